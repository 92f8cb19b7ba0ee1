"""Avro's types as values: what a definition means, with every name resolved.

A named type that is used twice is one object, so types compare by identity: by value, a short definition could take
for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

MAX_DIGITS: Final = 38
"""Most digits of a decimal column; a schema's decimal may have more, as Connect's has by default."""
MAX_TEXT_DIGITS: Final = 4300
"""Most digits of a decimal that lands as text; the time for more grows with their square, and Python reads no more."""


@dataclass(frozen=True, slots=True)
class Logical:
    """What a logical type adds to a primitive or fixed; without a name it adds nothing."""

    name: str = ""
    precision: int = 0  # of a decimal
    scale: int = 0  # of a decimal

    @property
    def digits(self) -> int:
        """Return the most digits of a decimal in its column."""
        return min(self.precision, MAX_DIGITS)


PLAIN: Final = Logical()


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """A type without a name of its own and without parts."""

    name: str
    logical: Logical = PLAIN


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A number of bytes."""

    name: str
    size: int
    aliases: tuple[str, ...] = ()
    logical: Logical = PLAIN


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    """One of some symbols."""

    name: str
    symbols: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """Any number of items."""

    items: "Type"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """Values by text."""

    values: "Type"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """A value of one of some types."""

    branches: tuple["Type", ...]

    def valued(self) -> list["Type"]:
        """Return the branches other than null."""
        return [each for each in self.branches if kind_name(each) != "null"]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    type: "Type"
    aliases: tuple[str, ...] = ()
    default: str | None = None  # as JSON text


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Some fields, in the order of their bytes."""

    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = ()


Type: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | Record


def kind_name(of: Type) -> str:
    """Return what tells a type from the others of a union: its full name, or the name of its kind."""
    match of:
        case Array():
            return "array"
        case Map():
            return "map"
        case Union():
            return "union"
        case _:
            return of.name


def inside(of: Type) -> Iterator[Type]:
    """Yield the types directly inside a type, null left out of a union."""
    match of:
        case Array():
            yield of.items
        case Map():
            yield of.values
        case Union():
            yield from of.valued()
        case Record():
            yield from (each.type for each in of.fields)
        case _:
            return


def may_be_long(of: Type) -> bool:
    """Return whether values are decimals, or null, that may have more digits than their column."""
    match of:
        case Primitive() | Fixed():
            return of.logical.precision > MAX_DIGITS
        case Union():
            return len(valued := of.valued()) == 1 and may_be_long(valued[0])
        case _:
            return False


def is_weightless(of: Type) -> bool:
    """Return whether every value of a type has no bytes at all."""
    match of:
        case Primitive():
            return of.name == "null"
        case Record():
            return all(is_weightless(each.type) for each in of.fields)
        case _:
            return False
