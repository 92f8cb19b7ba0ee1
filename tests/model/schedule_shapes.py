"""The columns of undeclared documents after a schedule: the ranges kept beside bronze give an empty store the same."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Engine, delete, select

from pipeline.base.errors import Refused
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.data.variations.registering import Registrar
from pipeline.settings.tree import Paths
from pipeline.store.database.tables import placements, registrations, schemas, variations
from pipeline.store.games import Game


def recomputed(engine: Engine, paths: Paths, environment: str, games: Sequence[Game]) -> Iterator[str]:
    """Take the supersets out of the store, compute them again from their ranges, and yield what differs (law L1)."""
    before = {game: _supersets(engine, game) for game in games}
    _lose(engine)
    for game, had in before.items():
        registrar = Registrar(engine, paths.bronze, environment)
        try:
            while registrar.serve(game, [], 0.0, 0.0) is not None:
                pass
        except Refused as refused:
            yield f"{game.name}: computed otherwise: {refused}"
            continue
        if (has := _supersets(engine, game)) != had:
            yield f"{game.name}: computed otherwise: {has} instead of {had}"


def _supersets(engine: Engine, game: Game) -> list[tuple[Schema, FieldPlacement]]:
    placed = LocalRegistry(engine).snapshot().placed(game.key)
    found = [(schema, at) for schema, at in placed if schema.format == UNDECLARED]
    return sorted(found, key=lambda each: each[0].schema_id)


def _lose(engine: Engine) -> None:
    lost = select(schemas.c.schema_id).where(schemas.c.format == UNDECLARED)
    of_lost = select(registrations.c.registration_id).where(registrations.c.schema_id.in_(lost))
    with engine.begin() as connection:
        connection.execute(delete(variations))
        connection.execute(delete(placements).where(placements.c.registration_id.in_(of_lost)))
        connection.execute(delete(registrations).where(registrations.c.schema_id.in_(lost)))
        connection.execute(delete(schemas).where(schemas.c.format == UNDECLARED))
