"""The columns of a declared JSON Schema's payloads: names, types of Delta, and the limits of a table."""

import hashlib
import re
from typing import Final

import pyarrow as pa

from pipeline.data.contracts.formats.json.types import (
    JsonArray,
    JsonEnum,
    JsonMap,
    Nothing,
    Object,
    Scalar,
    Type,
    inside,
)
from pipeline.data.contracts.known import LONGEST_BASE
from pipeline.data.contracts.model import MAX_COLUMNS

TIME: Final = pa.timestamp("us", "UTC")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_SCALARS: Final = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date-time": TIME,
}


def columns_of(one: Object) -> list[pa.Field]:
    """Return the columns of an object's properties; a property of nulls only has none."""
    typed = zip(names_of(one), (arrow_type(each.type) for each in one.properties), strict=True)
    return [pa.field(name, kind) for name, kind in typed if kind is not None]


def arrow_type(of: Type) -> pa.DataType | None:
    """Return the column's type, None without values."""
    match of:
        case Nothing():
            return None
        case Scalar():
            return _SCALARS[of.name]
        case JsonEnum():
            return pa.string()
        case JsonArray():
            return pa.list_(pa.field("element", arrow_type(of.items)))
        case JsonMap():
            return pa.map_(pa.string(), arrow_type(of.values))
        case Object():
            held = columns_of(of)
            return pa.struct(held) if held else pa.bool_()  # present


def names_of(one: Object) -> list[str]:
    """Return the names under which an object's properties are decoded, of which no two differ by case only.

    A key that no column can have, or that differs from an earlier one by case only, gets a name of its own.
    """
    found: list[str] = []
    taken: set[str] = set()
    for each in one.properties:
        name = each.key
        if not _NAME.fullmatch(name) or name.lower() in taken:
            name = f"{re.sub(r'[^A-Za-z0-9_]', '_', name)[:LONGEST_BASE]}__{suffix(name)}"
        taken.add(name.lower())
        found.append(name)
    return found


def suffix(key: str) -> str:
    """Return what tells a property's column from another one of the same name; it depends on the key alone."""
    return f"j{hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:6]}"


def defects(root: Object) -> tuple[str, ...]:
    """Return why an object fits no table, whatever the policies: columns, and names that collide."""
    if (leaves := _leaves(root)) > MAX_COLUMNS:
        return (f"it spreads into {leaves} columns, at most {MAX_COLUMNS} are supported",)
    return tuple(collisions(root))


def _leaves(of: Type) -> int:
    return max(1, sum(map(_leaves, inside(of))))


def collisions(of: Type) -> list[str]:
    """Return a sentence for each object with two properties that would be decoded under one name."""
    found = [reason for each in inside(of) for reason in collisions(each)]
    if isinstance(of, Object):
        names = [name.lower() for name in names_of(of)]
        if len(set(names)) != len(names):
            found.append("it has properties whose columns would have one name")
    return found
