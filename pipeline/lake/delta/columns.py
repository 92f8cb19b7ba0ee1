"""The columns of a Delta table: as Arrow has them, as its log spells them, and by kind."""

from collections.abc import Mapping

import pyarrow as pa
from deltalake.schema import ArrayType, MapType, Schema, StructType

from pipeline.base.errors import Transient

__all__ = ["ArrayType", "MapType", "OtherColumns", "StructType", "arrow_of", "covers", "json_of", "require_addable"]


class OtherColumns(Transient):
    """Rows have a column that the table has with another type: only a rebuild makes them fit."""


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


def require_addable(name: str, have: Mapping[str, pa.DataType], want: pa.Schema) -> None:
    """Check that a table's columns can be extended to hold rows with others; `name` is the table's.

    Raises:
        OtherColumns: one has another type.
    """
    for each in want:
        if clashes(have.get(each.name), each.type):
            raise OtherColumns(
                f"{name}: the column {each.name} is {have[each.name]}, and its new rows have {each.type} there: they "
                f"wait until a rebuild has ended, as that of `turnout schemas merge`"
            )


def clashes(have: pa.DataType | None, want: pa.DataType) -> bool:
    """Return whether no added struct member makes a column of type `have` hold all of type `want`."""
    if have is None or have == want:
        return False
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        members = {member.name: member.type for member in have}
        return any(clashes(members.get(member.name), member.type) for member in want)
    if pa.types.is_list(have) and pa.types.is_list(want):
        return clashes(have.value_type, want.value_type)
    if pa.types.is_map(have) and pa.types.is_map(want):
        return clashes(have.key_type, want.key_type) or clashes(have.item_type, want.item_type)
    return True
