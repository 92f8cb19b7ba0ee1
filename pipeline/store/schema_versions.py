"""The registered schemas of a game, for people."""

from dataclasses import dataclass

from sqlalchemy import Engine, func, select

from pipeline.store.database.engine import reading
from pipeline.store.database.tables import registrations, schemas


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema a game may use, in the order of registration."""

    game: str
    version: int
    schema_id: int
    format: str
    message: str
    fingerprint: str
    created_at: float


def newest_registrations(engine: Engine) -> dict[str, int]:
    """Return the number of each game's newest registration, by key: a schema set of that number or above has it."""
    columns = registrations.c
    query = select(columns.game_key, func.max(columns.registration_id)).group_by(columns.game_key)
    with engine.connect() as connection:
        return {key: int(number) for key, number in connection.execute(query)}


def read_schemas(engine: Engine, game_key: str) -> tuple[SchemaVersion, ...]:
    """Read the schemas registered for a game, oldest first; empty when the game has none.

    Raises:
        Refused: the control store cannot be read.
    """
    query = (
        select(registrations, schemas.c.format, schemas.c.message, schemas.c.fingerprint)
        .join(schemas, schemas.c.schema_id == registrations.c.schema_id)
        .where(registrations.c.game_key == game_key)
        .order_by(registrations.c.version)
    )
    with reading(), engine.connect() as connection:
        return tuple(
            SchemaVersion(
                game=row["game"],
                version=row["version"],
                schema_id=row["schema_id"],
                format=row["format"],
                message=row["message"],
                fingerprint=row["fingerprint"],
                created_at=row["created_at"],
            )
            for row in connection.execute(query).mappings()
        )
