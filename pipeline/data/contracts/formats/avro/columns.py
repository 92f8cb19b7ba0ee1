"""The columns of an Avro record's payloads: names, types of Delta, and the limits of a table."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

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
    inside,
    is_weightless,
    kind_name,
    may_be_long,
)
from pipeline.data.contracts.model import MAX_COLUMNS, MAX_DEPTH

TIME: Final = pa.timestamp("us", "UTC")
DURATION: Final = pa.struct([(name, pa.int64()) for name in ("months", "days", "millis")])

_LONGEST_BASE: Final = 235  # characters of a made name's first part, so that the whole fits into 255
_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
}


def columns_of(record: Record) -> list[pa.Field]:
    """Return the columns of a record's fields, then those of texts; a field whose type holds no values has none."""
    return _columns(field_names(record), [each.type for each in record.fields])


def _columns(names: Sequence[str], types: Sequence[Type]) -> list[pa.Field]:
    typed = [(name, arrow_type(of)) for name, of in zip(names, types, strict=True)]
    typed += [(name, pa.string()) for name in text_names(names, types).values()]
    return [pa.field(name, kind) for name, kind in typed if kind is not None]


def arrow_type(of: Type) -> pa.DataType | None:
    """Return the column's type, None without values."""
    match of:
        case Primitive():
            return None if of.name == "null" else _logical_type(of.name, of.logical)
        case Fixed():
            return _logical_type("fixed", of.logical)
        case Enum():
            return pa.string()
        case Array():
            items = None if is_weightless(of.items) else arrow_type(of.items)  # a few bytes may state a million
            return None if items is None else pa.list_(pa.field("element", items))
        case Map():
            values = arrow_type(of.values)
            return None if values is None else pa.map_(pa.string(), values)
        case Record():
            held = columns_of(of)
            return pa.struct(held) if held else pa.bool_()  # present
        case Union():
            return _union_type(of)


def field_names(record: Record) -> list[str]:
    """Return the names under which a record's fields are decoded."""
    return distinct(each.name for each in record.fields)


def branch_names(union: Union) -> list[str]:
    """Return the names of the members for a union's branches other than null: their types without the namespace."""
    full = [kind_name(each) for each in union.valued()]
    return distinct((each.rpartition(".")[2] for each in full), full)


def text_names(names: Sequence[str], types: Sequence[Type]) -> dict[str, str]:
    """Return where the texts of decimals lie that have more digits than a column, by the name of their column.

    These are columns of the same record, or members of the same struct; lists and maps have no place for them.
    """
    long = [name for name, of in zip(names, types, strict=True) if may_be_long(of)]
    made = distinct([*names, *(f"{name[:_LONGEST_BASE]}__text" for name in long)], [*names, *long])
    return dict(zip(long, made[len(names) :], strict=True))


def distinct(names: Iterable[str], full: Iterable[str] | None = None) -> list[str]:
    """Return names of which no two differ by case only: the first keeps its name, the others get a suffix."""
    found: list[str] = []
    taken: set[str] = set()
    listed = list(names)
    for name, whole in zip(listed, listed if full is None else full, strict=True):
        found.append(f"{name}__{suffix(whole)}" if name.lower() in taken else name)
        taken.add(name.lower())
    return found


def suffix(name: str) -> str:
    """Return what tells a field's column from another one of the same name; it depends on the field's name alone."""
    return f"a{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:6]}"


def _union_type(union: Union) -> pa.DataType | None:
    valued = union.valued()
    if len(valued) == 1:
        return arrow_type(valued[0])
    held = _columns(branch_names(union), valued)
    return pa.struct(held) if held else None


def _logical_type(kind: str, logical: Logical) -> pa.DataType:
    match logical.name:
        case "decimal":
            return pa.decimal128(logical.digits, logical.scale)
        case "date":
            return pa.date32()
        case "timestamp-millis" | "timestamp-micros" | "timestamp-nanos":
            return TIME
        case "uuid":
            return pa.string()
        case "duration":
            return DURATION
        case _:  # times of day and local times are whole microseconds
            return _PRIMITIVES[kind]


def defects(record: Record) -> tuple[str, ...]:
    """Return why a record fits no table, whatever the policies: depth, columns, names that collide."""
    measure = _Measure()
    spread = measure.spread(record)
    if spread.depth > MAX_DEPTH:
        return (f"{record.name}: nests {spread.depth} levels deep, at most {MAX_DEPTH} are supported",)
    if spread.columns > MAX_COLUMNS:
        return (f"{record.name}: spreads into {spread.columns} columns, at most {MAX_COLUMNS} are supported",)
    return tuple(measure.reasons)


@dataclass(frozen=True, slots=True)
class _Spread:
    columns: int  # what holds no values counts as one, or a few types could stand for millions of members
    depth: int


@dataclass(slots=True)
class _Measure:
    """Looks at every type once, however often it is used, and counts its columns and levels."""

    reasons: list[str] = field(default_factory=list)
    done: dict[int, _Spread] = field(default_factory=dict)  # by the type's identity

    def spread(self, record: Record) -> _Spread:
        """Return the spread of a record; without recursion, since names can nest types without an end."""
        waiting: list[Type] = [record]
        while waiting:
            one = waiting[-1]
            unknown = [each for each in inside(one) if id(each) not in self.done]
            waiting += unknown
            if not unknown:
                waiting.pop()
                if id(one) not in self.done:
                    self._add(one, [self.done[id(each)] for each in inside(one)])
        return self.done[id(record)]

    def _add(self, one: Type, below: list[_Spread]) -> None:
        match one:
            case Primitive() | Fixed() | Enum():
                found = _Spread(1, 0)
            case _:
                level = 0 if isinstance(one, Union) and len(below) <= 1 else 1  # a value that may be null is no level
                depth = level + max((each.depth for each in below), default=0)
                texts = sum(map(may_be_long, inside(one))) if isinstance(one, Record | Union) else 0
                found = _Spread(max(1, texts + sum(each.columns for each in below)), depth)
        self._check_names(one)
        self.done[id(one)] = found

    def _check_names(self, one: Type) -> None:
        match one:
            case Record():
                names = field_names(one)
            case Union():
                names = branch_names(one)
            case _:
                return
        names += text_names(names, list(inside(one))).values()
        if len({name.lower() for name in names}) != len(names):
            self.reasons.append(f"{kind_name(one)}: has fields whose columns would have one name")
