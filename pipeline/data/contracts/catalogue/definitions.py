"""Definitions of schemas, for what compares or shows fields."""

from collections.abc import Set as AbstractSet

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.data.contracts.schemas import Schema
from pipeline.data.contracts.stored_schemas import read_schemas


def read_definitions(engine: Engine, ids: AbstractSet[int]) -> dict[int, Schema]:
    """Return schemas with their definitions, by id.

    Raises:
        Refused: the control store lacks one.
    """
    with engine.connect() as connection:
        found = read_schemas(connection, set(ids))
    if missing := ids - found.keys():
        raise Refused(f"The control store lacks the schema {min(missing)}. Restore the store from a backup.")
    return found
