"""One schema's fields as people read them: in a table, and as lines of text that a diff compares. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pipeline.data.contracts.columns import type_text
from pipeline.data.contracts.formats.json.shapes import MARK
from pipeline.data.contracts.formats.supported import message
from pipeline.data.contracts.model import Field, FieldId, Message, ranges_text, rank, remarks
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema

MOST_LINES: Final = 3_000
"""Most lines of a schema's text: a diff takes seconds for ten thousand changed ones."""

_SIDE: Final = re.compile(rf"{MARK}(\d+)$")  # of an undeclared key's further column
_NUMBERED: Final = r" (column \1)"


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
    inside = "" if placement.struct is None else f"{placement.struct}."
    return tuple(_lines(message(schema), names, "", inside))


def remarks_on(schema: Schema) -> tuple[str, ...]:
    """Return what a plan says of the definition itself, such as of extensions that it lacks.

    Raises:
        Refused: the definition cannot be read.
    """
    return tuple(remarks(message(schema)))


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of a schema's text. Equal texts at different paths are different lines."""

    path: str
    text: str


def as_text(schema: Schema) -> tuple[TextLine, ...]:
    """Return a schema as lines: a field each, those of inner messages indented, then its values and reserved ids.

    Of very many lines, such as those of huge enums, the first ones.

    Raises:
        Refused: the definition cannot be read.
    """
    lines = [TextLine("", f"{schema.message} ({schema.format})")]
    lines += islice(_text(message(schema), "", 1), MOST_LINES)
    if len(lines) > MOST_LINES:
        lines[-1] = TextLine("", "and more lines")
    return tuple(lines)


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


def _text(inner: Message, path: str, depth: int) -> Iterator[TextLine]:
    indent = "  " * depth
    for each in inner.fields:
        own = f"{path}{each.name}."
        yield TextLine(path, f"{indent}{_declared(each)}")
        for value in sorted(each.labels, key=rank):
            number = f" = {value}" if isinstance(value, int) else ""
            yield TextLine(own, f"{indent}  value {each.labels[value]}{number}")
        if each.inside is not None:
            yield from _text(each.inside, own, depth + 1)
    for first, end in inner.reserved.ranges:
        yield TextLine(path, f"{indent}reserved {first}" + (f" to {end - 1}" if end - first > 1 else ""))
    for name in sorted(inner.reserved.names):
        yield TextLine(path, f"{indent}reserved {name}")
    yield from (TextLine(path, f"{indent}extensions {each}") for each in ranges_text(inner.open))


def _declared(each: Field) -> str:
    number = f" = {each.id}" if isinstance(each.id, int) else ""
    aliases = f", once {', '.join(sorted(each.aliases))}" if each.aliases else ""
    return (
        f"{_SIDE.sub(_NUMBERED, each.given)}: {each.kind.text}{number}{', optional' if each.optional else ''}{aliases}"
    )
