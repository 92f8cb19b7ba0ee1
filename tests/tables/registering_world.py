"""Documents that nobody declared on the small environment without Spark; their shapes are registered as drivers do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import delete

from pipeline.base import failpoints
from pipeline.base.names import game_key
from pipeline.data.contracts.formats.json.caps import USUAL, Caps
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.contracts.shape_needs import SHAPES, writer_of
from pipeline.data.streams.needs import Need as TaskNeed
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.data.variations.resolution import ShapeResolution
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.places import located
from pipeline.store.database.tables import placements, registrations, schemas, variations
from pipeline.store.games import Game
from pipeline.store.schema_needs import read_needs
from tests.tables.shapes_world import GAME, KEY, record, shapes_world
from tests.tables.value_world import ValueWorld

LATER = 1e12
"""A time at which bronze stands still."""


class Killed(BaseException):
    """The end of a process, which nothing catches."""


def world_of(folder: Path, *batches: list[tuple[str, bytes]]) -> ValueWorld:
    """Return an environment in whose bronze each batch is a seq of Chess, of event types and documents."""
    world = shapes_world(folder)
    for batch in batches:
        arrive(world, batch)
    return world


def arrive(world: ValueWorld, batch: list[tuple[str, bytes]], game: str = GAME) -> None:
    told = json.dumps(game).encode()
    world.arrive(*[record(name, each).replace(b'"Chess"', told, 1) for name, each in batch])


def registry(world: ValueWorld) -> LocalRegistry:
    return LocalRegistry(world.engine, world.paths.bronze)


def shapes(world: ValueWorld, now: float = LATER, caps: Caps = USUAL) -> ShapeResolution:
    """Return what a driver has; `now` is the time by every clock."""
    return ShapeResolution(world.engine, world.paths.bronze, world.environment, caps, lambda: now, steady=lambda: now)


def need(name: str, version: int = 0, place: tuple[int, int] = (1, 0), game: str = GAME) -> Need:
    return Need(game_key(game), game, SHAPES, writer_of(name, version), *place)


def resolve(world: ValueWorld, *needs: Need, now: float = LATER, caps: Caps = USUAL) -> float:
    """Let a new driver register what is needed, as far as it can now; return when it looks again."""
    driver = shapes(world, now, caps)
    driver.note(needs)
    return driver.step()


def waits(world: ValueWorld) -> list[bytes]:
    with world.engine.connect() as connection:
        return [each.writer for each in read_needs(connection, SHAPES)]


def supersets(world: ValueWorld, game: str = GAME) -> list[tuple[str, int, tuple[str, ...]]]:
    """Return type, version and columns of each superset of a game, in the order of their ids."""
    known = registry(world).snapshot()
    found = [each for each in known.of(game_key(game)) if each.format == UNDECLARED]
    return [(each.message, superset_of(each).version, tuple(superset_of(each).root.slots)) for each in found]


def content(world: ValueWorld, key: str = KEY) -> object:
    """Return all that a registration decides about a game: ids, definitions and columns."""
    known: SchemaSet = registry(world).snapshot()
    return [(each, known.placement(key, each.schema_id)) for each in known.of(key)]  # type: ignore[arg-type]


@contextmanager
def killed_at(point: str, count: int = 1) -> Iterator[None]:
    """Let the process end at the n-th hit of a fail-point."""
    left = [count]

    def hit(name: str) -> None:
        left[0] -= name == point
        if name == point and not left[0]:
            raise Killed(point)

    failpoints.on_hit = hit
    try:
        yield
    finally:
        failpoints.on_hit = None


def tried(world: ValueWorld) -> dict[str, Any]:
    """Return what a task reports of the rows of all games behind their cursors, by game key; it writes no table."""
    rows = open_table(world.paths.bronze).to_pyarrow_table(columns=list(READ)).combine_chunks()
    cursors: dict[str, int] = {game_key(name): world.stream(Game(game_key(name), name)).cursor for name in world.names}
    job = SplitJob(cursors, registry(world).snapshot(), located(world.paths.root / "tried"))
    (done,) = split(iter(rows.to_batches()), job)
    games: dict[str, Any] = json.loads(done.column("report")[0].as_py())["games"]
    return games


def reported(world: ValueWorld) -> list[Need]:
    """Return what a task lacks for these rows, as their streams note it."""
    names = {key: name for name, key in world.names.items()}
    found = list[Need]()
    for key, game in tried(world).items():
        listed = map(TaskNeed.of_json, game["needs"])
        found += [Need(game_key(names[key]), names[key], SHAPES, each.writer, each.seq, each.pos) for each in listed]
    return found


def drive(world: ValueWorld, caps: Caps = USUAL) -> int:
    """Let streams land what they can and drivers register what they lack, until all has landed; return the rounds."""
    for rounds in range(100):
        world.split_all()
        if not (lacking := reported(world)):
            return rounds
        resolve(world, *lacking, caps=caps)
    raise AssertionError("its needs are never answered")


def two_types(folder: Path) -> ValueWorld:
    """Return an environment in which Chess has the accepted type `sold` beside its first one."""
    world = world_of(folder, [("move", b'{"first":1}'), ("sold", b'{"first":1}')])
    resolve(world, need("move"), need("sold", place=(1, 1)))
    (schema,) = [each for each in registry(world).snapshot().of(KEY) if each.message == "sold"]
    accepted = Registration(GAME, "sold", schema.definition, format=schema.format, new_type=True)
    registry(world).register_many([accepted])
    return world


def require_kept(world: ValueWorld) -> None:
    """Take the registrations out of the store, and let a driver compute them again from what is kept beside bronze."""
    before = content(world)
    with world.engine.begin() as connection:
        for each in (variations, placements, registrations, schemas):
            connection.execute(delete(each))
    while resolve(world, need("move"), need("sold", place=(1, 1))) == 0.0:
        pass  # it computes some of them, and then other games have their turn
    assert content(world) == before
