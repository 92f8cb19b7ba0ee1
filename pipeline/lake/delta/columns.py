"""The columns of a Delta table: as Arrow has them, as its log spells them, and by kind."""

import pyarrow as pa
from deltalake.schema import ArrayType, MapType, Schema, StructType

__all__ = ["ArrayType", "MapType", "StructType", "arrow_of", "covers", "json_of"]


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
