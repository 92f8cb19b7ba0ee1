"""The fields of an Avro record for evolution: a field is known by its name, and its aliases are its earlier names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from pipeline.data.contracts.formats.avro.columns import (
    arrow_type,
    branch_names,
    columns_of,
    field_names,
    suffix,
    text_names,
)
from pipeline.data.contracts.formats.avro.types import (
    Array,
    Enum,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    kind_name,
)
from pipeline.data.contracts.model import Field, FieldId, Kind, Message

_VALUES: Final[Mapping[str, str]] = {
    "null": "null",
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
    "fixed": "bytes",
}
_PROMOTES: Final[Mapping[str, frozenset[str]]] = {  # what Avro's readers take for these
    "float": frozenset({"int32", "int64"}),
    "double": frozenset({"int32", "int64", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}

_TEXT: Final = Kind("string", "", "string", pa.string())


def message_of(record: Record) -> Message:
    """Return a record's fields, in the order of their declaration."""
    names = field_names(record)
    fields = [_field(each.name, name, each.type, each.aliases) for name, each in zip(names, record.fields, strict=True)]
    texts = _texts(fields, [each.type for each in record.fields])
    return Message((*fields, *texts), aliases=frozenset(record.aliases))


def _texts(fields: Sequence[Field], types: Sequence[Type]) -> list[Field]:
    """Return what lies beside fields whose decimals may be longer than their column; their ids are no names of Avro."""
    names = text_names([each.name for each in fields], types)
    return [
        Field(
            id=_text_id(each.id),
            name=names[each.name],
            given=names[each.name],
            kind=_TEXT,
            optional=True,
            suffix=suffix(names[each.name]),
            aliases=frozenset(map(_text_id, each.aliases)),
        )
        for each in fields
        if each.name in names
    ]


def _text_id(identity: FieldId) -> str:
    return f"{identity} as text"


def _field(given: str, name: str, of: Type, aliases: Iterable[str] = (), *, optional: bool = False) -> Field:
    return Field(
        id=given,
        name=name,
        given=given.rpartition(".")[2],  # a union's branch goes by its type without the namespace
        kind=_kind(of),
        optional=optional or _is_optional(of),
        suffix=suffix(given),
        labels=_labels(of),
        aliases=frozenset(aliases),
        inside=_inside(of),
    )


def _is_optional(of: Type) -> bool:
    return isinstance(of, Union) and len(of.valued()) < len(of.branches)


def _kind(of: Type) -> Kind:
    text, shape, values = _words(of)
    return Kind(text, shape, values, arrow_type(of), _PROMOTES.get(values, frozenset()))


def _words(of: Type) -> tuple[str, str, str]:
    """Return a type in an operator's words, the shape of its values, and their kind."""
    match of:
        case Array():
            text, shape, values = _words(of.items)
            return f"array of {text}", f"repeated {shape}".rstrip(), values
        case Map():
            text, shape, values = _words(of.values)
            return f"map of {text}", f"map of string {shape}".rstrip(), values
        case Union():
            valued = of.valued()
            if len(valued) == 1:
                return _words(valued[0])
            return ("union", "", "union") if valued else ("null", "", "null")
        case Record():
            return ("record" if columns_of(of) else "record without fields"), "", "message"
        case Enum():
            return "enum", "", "enum"
        case Fixed():
            text, values = _logical_words("fixed", of.logical)
            return (f"fixed({of.size})" if text == "fixed" else text), "", values
        case Primitive():
            text, values = _logical_words(of.name, of.logical)
            return text, "", values


def _logical_words(kind: str, logical: Logical) -> tuple[str, str]:
    family = logical.name.rpartition("-")[0]
    match logical.name:
        case "":
            return kind, _VALUES[kind]
        case "decimal":
            text = f"decimal({logical.digits}, {logical.scale})"
            return text, text
        case "uuid":
            return "uuid", "string"
        case "date":
            return "date", "date"
        case "duration":
            return "duration", "duration in months, days and milliseconds"
        case name:
            return name, {"time": "time of day"}.get(family, family)


def _labels(of: Type) -> dict[FieldId, str]:
    match of:
        case Enum():
            return {symbol: symbol for symbol in of.symbols}
        case Array():
            return _labels(of.items)
        case Map():
            return _labels(of.values)
        case Union() if len(of.valued()) == 1:
            return _labels(of.valued()[0])
        case _:
            return {}


def _inside(of: Type) -> Message | None:
    """Return the fields of the records or unions that a type holds."""
    match of:
        case Record():
            return message_of(of)
        case Array():
            return _inside(of.items)
        case Map():
            return _inside(of.values)
        case Union():
            valued = of.valued()
            if len(valued) == 1:
                return _inside(valued[0])
            named = zip(branch_names(of), valued, strict=True)
            branches = [_field(kind_name(each), name, each, optional=True) for name, each in named]
            return Message((*branches, *_texts(branches, valued))) if branches else None
        case _:
            return None
