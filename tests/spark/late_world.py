"""A game whose schema is registered late."""

from typing import Any

from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.stored_schemas import read_schemas

LATE = "neznámá hra"
"""A game the simulator sends and does not register."""


def register_late(world: Any) -> None:
    """Give the game the schema its rows name."""
    with world.engine.connect() as connection:
        schema = read_schemas(connection, {1})[1]
    LocalRegistry(world.engine).register(LATE, schema.message, schema.definition)
