"""One schema's fields as people read them: in a table, and as lines of text that a diff compares. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline.contracts.columns import type_text
from pipeline.contracts.formats.supported import message
from pipeline.contracts.model import Field, FieldId, Message, rank
from pipeline.contracts.schemas import PLAIN, FieldPlacement, Schema


@dataclass(frozen=True, slots=True)
class FieldLine:
    """One field of a schema, at any depth."""

    path: str  # such as `driver.name`
    id: FieldId  # protobuf's number, Avro's name
    type: str  # in the format's words
    optional: bool  # it may be absent
    column: str | None  # its path in the game's table; None: it has none
    column_type: str | None
    values: tuple[str, ...] = ()  # the names of an enum's values


def fields_of(schema: Schema, placement: FieldPlacement = PLAIN) -> tuple[FieldLine, ...]:
    """Return a schema's fields, each before those inside of it.

    Raises:
        Refused: the definition cannot be read.
    """
    names = None if placement.quarantined is not None else dict(placement.names)
    return tuple(_lines(message(schema), names, "", ""))


def as_text(schema: Schema) -> tuple[str, ...]:
    """Return a schema as lines: a field each, those of inner messages indented, then its values and reserved ids.

    Raises:
        Refused: the definition cannot be read.
    """
    return (f"{schema.message} ({schema.format})", *_text(message(schema), "  "))


def _lines(inner: Message, names: Mapping[str, str] | None, path: str, columns: str) -> Iterator[FieldLine]:
    for each in inner.fields:
        own, column, kind = f"{path}{each.name}", None, None
        if names is not None and each.kind.type is not None:
            column, kind = f"{columns}{names.get(own, each.name)}", type_text(each.kind.type)
        values = tuple(each.labels[value] for value in sorted(each.labels, key=rank))
        yield FieldLine(own, each.id, each.kind.text, each.optional, column, kind, values)
        if each.inside is not None:
            below = None if column is None else names
            yield from _lines(each.inside, below, f"{own}.", f"{column}.")


def _text(inner: Message, indent: str) -> Iterator[str]:
    for each in inner.fields:
        yield f"{indent}{_declared(each)}"
        for value in sorted(each.labels, key=rank):
            number = f" = {value}" if isinstance(value, int) else ""
            yield f"{indent}  value {each.labels[value]}{number}"
        if each.inside is not None:
            yield from _text(each.inside, f"{indent}  ")
    for first, end in inner.reserved.ranges:
        yield f"{indent}reserved {first}" + (f" to {end - 1}" if end - first > 1 else "")
    for name in sorted(inner.reserved.names):
        yield f"{indent}reserved {name}"


def _declared(each: Field) -> str:
    number = f" = {each.id}" if isinstance(each.id, int) else ""
    aliases = f", once {', '.join(sorted(each.aliases))}" if each.aliases else ""
    return f"{each.given}: {each.kind.text}{number}{', optional' if each.optional else ''}{aliases}"
