"""The columns of a Delta table: as Arrow has them, as its log spells them, and by kind."""

import pyarrow as pa
from deltalake.schema import ArrayType, MapType, Schema, StructType

__all__ = ["ArrayType", "MapType", "StructType", "arrow_of", "json_of"]


def json_of(columns: pa.Schema) -> str:
    """Return columns as a log spells them."""
    return str(Schema.from_arrow(columns).to_json())


def arrow_of(spelled: str) -> pa.Schema:
    """Return the columns that a log spells."""
    return pa.schema(Schema.from_json(spelled).to_arrow())
