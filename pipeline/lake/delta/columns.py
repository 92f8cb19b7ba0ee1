"""The columns of a Delta table: as Arrow has them, as its log spells them, and by kind."""

import json
from collections.abc import Collection
from typing import Final

import pyarrow as pa
from deltalake.schema import ArrayType, MapType, Schema, StructType

from pipeline.base.errors import Transient

__all__ = [
    "ArrayType", "MapType", "OtherColumns", "StructType", "arrow_of", "covers", "json_of", "merges_of",
    "require_same_merges", "with_merges",
]  # fmt: skip

_MERGES: Final = "turnout.merges"
_MARKED: Final = "_schema_id"  # the column whose metadata names the merges: every game's table has it


class OtherColumns(Transient):
    """Rows were decoded for other columns than the table has.

    Either a rebuild has not ended, or the schema set is older than the table.
    """

    def __init__(self, text: str, types: Collection[str] = ()) -> None:
        """Say it to a person; `types` are the event types whose columns are merged in one of both only."""
        super().__init__(text)
        self.types = frozenset(types)


def with_merges(columns: pa.Schema, merges: str) -> pa.Schema:
    """Return a game's columns that say which columns were merged into one; without any, the columns themselves.

    A table keeps it, as no type says so where the first of merged columns was text already.
    """
    at = columns.get_field_index(_MARKED)
    return columns.set(at, columns.field(at).with_metadata({_MERGES: merges})) if merges and at >= 0 else columns


def merges_of(columns: pa.Schema) -> str:
    """Return which columns were merged into one; empty for none."""
    at = columns.get_field_index(_MARKED)
    found = (columns.field(at).metadata or {}) if at >= 0 else {}
    return str(found.get(_MERGES.encode(), b""), "utf-8")


def json_of(columns: pa.Schema) -> str:
    """Return columns as a log spells them."""
    return str(Schema.from_arrow(columns).to_json())


def arrow_of(spelled: str) -> pa.Schema:
    """Return the columns that a log spells."""
    return pa.schema(Schema.from_json(spelled).to_arrow())


def covers(have: pa.DataType | None, want: pa.DataType) -> bool:
    """Return whether a column of type `have` can hold all of type `want`: struct members may be more, not fewer."""
    if have is None or have == want:
        return have is not None
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        members = {member.name: member.type for member in have}
        return all(covers(members.get(member.name), member.type) for member in want)
    if pa.types.is_list(have) and pa.types.is_list(want):
        return covers(have.value_type, want.value_type)
    if pa.types.is_map(have) and pa.types.is_map(want):
        return covers(have.key_type, want.key_type) and covers(have.item_type, want.item_type)
    return False


def require_same_merges(name: str, have: str, want: pa.Schema) -> None:
    """Check that a table, given with its name for people and what it says of merges, can hold rows with these columns.

    Raises:
        OtherColumns: other columns were merged.
    """
    if merges_of(want) != have:
        mine, theirs = (json.loads(each or "{}") for each in (have, merges_of(want)))
        raise OtherColumns(
            f"{name}: columns of its new rows were merged, or parted, and its own were not: they wait until the "
            f"rebuild of `turnout schemas merge` has ended and its driver knows the newest schemas",
            {each for each in {*mine, *theirs} if mine.get(each) != theirs.get(each)},
        )
