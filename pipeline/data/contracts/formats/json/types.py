"""The types of a declared JSON Schema as values, with every reference resolved. They never contain themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

SCALARS: Final = ("string", "integer", "number", "boolean", "date-time")

Checks: TypeAlias = tuple[tuple[str, str], ...]
"""Keywords that restrict values and give no column, such as `maximum`, each with its value as JSON; sorted."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts; `date-time` is a string of RFC 3339."""

    name: str  # one of SCALARS
    nullable: bool = False
    checks: Checks = ()


@dataclass(frozen=True, slots=True)
class JsonEnum:
    """One of some texts."""

    symbols: tuple[str, ...]  # sorted
    nullable: bool = False
    checks: Checks = ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """Null and no other value."""

    nullable: bool = True
    checks: Checks = ()


@dataclass(frozen=True, slots=True)
class JsonArray:
    """Any number of items of one type."""

    items: "Type"
    nullable: bool = False
    checks: Checks = ()


@dataclass(frozen=True, slots=True)
class JsonMap:
    """Values of one type by any text."""

    values: "Type"
    nullable: bool = False
    checks: Checks = ()


@dataclass(frozen=True, slots=True)
class Property:
    """One property of an object."""

    key: str
    type: "Type"
    required: bool


@dataclass(frozen=True, slots=True)
class Object:
    """The properties that a schema declares; other keys do not fit."""

    properties: tuple[Property, ...]  # sorted by key, as their order means nothing
    nullable: bool = False
    checks: Checks = ()


Type: TypeAlias = Scalar | JsonEnum | Nothing | JsonArray | JsonMap | Object


def inside(of: Type) -> Iterator[Type]:
    """Yield the types directly inside a type."""
    match of:
        case JsonArray():
            yield of.items
        case JsonMap():
            yield of.values
        case Object():
            yield from (each.type for each in of.properties)
        case _:
            return


def has_maps(of: Type) -> bool:
    """Return whether a type is a map or contains one."""
    return isinstance(of, JsonMap) or any(map(has_maps, inside(of)))
