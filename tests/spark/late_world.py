"""A game whose schema is registered late."""

from typing import Any

from sqlalchemy import select

from pipeline.contracts.registry import LocalRegistry
from pipeline.store.database.tables import schemas

LATE = "neznámá hra"
"""A game the simulator sends and does not register."""


def _register_late(world: Any) -> None:
    """Give the game the schema its rows name."""
    with world.engine.connect() as connection:
        row = connection.execute(select(schemas).where(schemas.c.schema_id == 1)).one()
    LocalRegistry(world.engine).register(LATE, row.message, row.definition)
