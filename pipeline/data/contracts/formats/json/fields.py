"""The properties of a declared JSON Schema for evolution: a property is known by its key."""

from collections.abc import Iterator
from typing import Final

from pipeline.base.names import shown
from pipeline.data.contracts.formats.json.columns import arrow_type, columns_of, names_of, suffix
from pipeline.data.contracts.formats.json.types import (
    JsonArray,
    JsonEnum,
    JsonMap,
    Nothing,
    Object,
    Property,
    Scalar,
    Type,
    inside,
)
from pipeline.data.contracts.model import Field, FieldId, Kind, Message

_VALUES: Final = {
    "string": "string", "integer": "int64", "number": "double", "boolean": "bool", "date-time": "timestamp",
}  # fmt: skip
_PROMOTES: Final = {"double": frozenset({"int64"})}
"""What a schema with the wider type takes as well: an integer is a number."""


def message_of(root: Object) -> Message:
    """Return an object's properties, sorted by key, and what of its schema turnout does not check."""
    return Message(_fields(root), unchecked=tuple(_unchecked(root, "")))


def _fields(one: Object) -> tuple[Field, ...]:
    return tuple(_field(name, each) for name, each in zip(names_of(one), one.properties, strict=True))


def _field(name: str, one: Property) -> Field:
    text, shape, values = _words(one.type)
    return Field(
        id=one.key,
        name=name,
        given=one.key,
        kind=Kind(text, shape, values, arrow_type(one.type), _PROMOTES.get(values, frozenset())),
        optional=one.type.nullable or not one.required,
        suffix=suffix(one.key),
        labels=_labels(one.type),
        inside=_inside(one.type),
    )


def _words(of: Type) -> tuple[str, str, str]:
    """Return a type in an operator's words, the shape of its values, and their kind."""
    match of:
        case Nothing():
            return "null", "", "null"
        case Scalar():
            return of.name, "", _VALUES[of.name]
        case JsonEnum():
            return "enum", "", "enum"
        case JsonArray():
            text, shape, values = _words(of.items)
            return f"array of {text}", f"repeated {shape}".rstrip(), values
        case JsonMap():
            text, shape, values = _words(of.values)
            return f"map of {text}", f"map of string {shape}".rstrip(), values
        case Object():
            return ("object" if columns_of(of) else "object without properties"), "", "message"


def _labels(of: Type) -> dict[FieldId, str]:
    match of:
        case JsonEnum():
            return {symbol: symbol for symbol in of.symbols}
        case JsonArray():
            return _labels(of.items)
        case JsonMap():
            return _labels(of.values)
        case _:
            return {}


def _inside(of: Type) -> Message | None:
    match of:
        case Object():
            return Message(_fields(of))
        case JsonArray():
            return _inside(of.items)
        case JsonMap():
            return _inside(of.values)
        case _:
            return None


def _unchecked(of: Type, path: str) -> Iterator[str]:
    if of.checks:
        words = ", ".join(key for key, _ in of.checks)
        yield f"turnout does not check {words} of {shown(path) if path else 'the schema'}"
    if isinstance(of, Object):
        for each in of.properties:
            yield from _unchecked(each.type, f"{path}.{each.key}" if path else each.key)
    else:
        for inner in inside(of):
            yield from _unchecked(inner, path)
