"""A schema id that was given once is never given again, whatever happens to the control store."""

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pipeline.base import failpoints
from pipeline.base.errors import Refused
from pipeline.base.failpoints import Injected
from pipeline.data.contracts.given_ids import GivenId, GivenIds, IdTaken
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from tests.checkout import ROOT
from tests.unit.data.contracts.definition_world import bundle, define


def version(*more: str) -> bytes:
    return bundle(define({"M": {name: (at, "int64") for at, name in enumerate(("points", *more), start=1)}}))


class Environment:
    """An environment with a control store in SQLite, which can be copied back."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        self.copy = root / "copy.db"

    @property
    def store(self) -> Engine:
        return open_store(Settings(), self.paths)

    def register(self, definition: bytes, game: str = "chess") -> int:
        with closing_store(self.store) as engine:
            return LocalRegistry(engine, self.paths.bronze).register(game, "t.M", definition).schema_id

    def back_up(self) -> None:
        shutil.copyfile(self.paths.control_db, self.copy)

    def restore(self) -> None:
        for file in self.paths.root.glob("control.db*"):
            file.unlink()
        shutil.copyfile(self.copy, self.paths.control_db)

    @property
    def given(self) -> GivenIds:
        given = GivenIds(self.paths.bronze)
        given.refresh()
        return given

    @property
    def files(self) -> list[int]:
        return sorted(int(each.name) for each in self.given.folder.files() if each.name.isdigit())


@contextmanager
def closing_store(engine: Engine) -> Iterator[Engine]:
    """Close a store's files afterwards: with them it is copied."""
    try:
        yield engine
    finally:
        engine.dispose()


@pytest.fixture
def world(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


@pytest.fixture
def fails_at() -> Iterator[Callable[[str], None]]:
    """Make the process fail at a point, until the test's end."""

    def arm(point: str) -> None:
        def fail(at: str) -> None:
            if at == point:
                raise Injected(point)

        failpoints.on_hit = fail

    yield arm
    failpoints.on_hit = None


@pytest.mark.proves("G260")
def test_after_a_restore_of_an_older_store_no_id_is_given_again(world: Environment) -> None:
    """Rows in bronze have their ids for ever: after a restore another schema gets another one."""
    assert world.register(version()) == 1
    world.back_up()
    assert world.register(version("level")) == 2
    world.restore()
    assert world.register(version("bonus"), "go") == 3
    assert world.register(version("level")) == 2, "the very same schema gets the id that it had"
    assert world.files == [1, 2, 3]


def test_a_refused_registration_takes_no_id(world: Environment) -> None:
    """Ids are taken last: what is refused leaves nothing that would pass for a lost registration."""
    world.register(version())
    with pytest.raises(Refused, match="cannot follow"):
        world.register(bundle(define({"M": {"points": (1, "string")}})))
    assert world.files == [1]


def test_no_schema_is_registered_where_ids_cannot_be_taken(world: Environment) -> None:
    """Without the place of the ids a new schema is refused in one sentence; what the game has needs no place."""
    world.register(version())
    shutil.rmtree(world.given.folder)
    Path(world.given.folder).write_text("a file in the way")
    with pytest.raises(Refused, match=r"gets its id in .*/registrations, which does not serve .* register again"):
        world.register(version("level"))
    with closing_store(world.store) as engine:
        assert LocalRegistry(engine).latest_version() == 1
    assert world.register(version()) == 1


@pytest.mark.proves("G260")
@pytest.mark.parametrize(("point", "ids"), [("before_publish_id", (2, 3)), ("after_publish_id", (3, 2))])
def test_a_killed_registration_keeps_its_id_for_its_schema(
    world: Environment, fails_at: Callable[[str], None], point: str, ids: tuple[int, int]
) -> None:
    """A crash leaves an id to the schema that took it: the same schema gets it, no other one does."""
    world.register(version())
    fails_at(point)
    with pytest.raises(Injected):
        world.register(version("level"))
    failpoints.on_hit = None
    assert (world.register(version("bonus"), "go"), world.register(version("level"))) == ids


def test_ids_of_an_earlier_turnout_are_taken_in_one_pass(world: Environment) -> None:
    """The ids of a store that never took any are taken with its next registration, by one more file at most."""
    with closing_store(world.store) as engine:
        registry = LocalRegistry(engine)  # as it was
        for number in range(3):
            registry.register("chess", "t.M", version(*(f"f{each}" for each in range(number))))
    assert world.register(version("level")) == 4
    assert world.files == [1]
    assert {number: each.message for number, each in world.given.by_id.items()} == dict.fromkeys((1, 2, 3, 4), "t.M")


@pytest.mark.proves("G260")
def test_two_stores_never_give_one_id_twice(world: Environment, tmp_path: Path) -> None:
    """A restored copy of the store and the old one, both in use, take different numbers, and one for one schema."""
    world.register(version())
    other = Environment(tmp_path / "other")
    other.paths.root.mkdir()
    world.back_up()
    shutil.copyfile(world.copy, other.paths.control_db)
    ids: dict[tuple[int, str], int] = {}
    barrier = threading.Barrier(2)

    def race(number: int, engine: Engine) -> None:
        registry = LocalRegistry(engine, world.paths.bronze)
        barrier.wait()
        for each in ("shared", f"own {number}"):
            for field in range(6):
                name = f"{each.replace(' ', '_')}_{field}"
                done = registry.register(f"{each} {field}", "t.M", version(name))
                ids[number, name] = done.schema_id

    engines = [world.store, other.store]
    threads = [threading.Thread(target=race, args=each) for each in enumerate(engines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for engine in engines:
        engine.dispose()
    by_name: dict[str, set[int]] = {}
    for (_, name), schema_id in ids.items():
        by_name.setdefault(name, set()).add(schema_id)
    assert {len(each) for each in by_name.values()} == {1}
    assert len({schema_id for each in by_name.values() for schema_id in each}) == len(by_name) == 18


def test_many_schemas_of_one_registration_are_one_file(world: Environment) -> None:
    """Thousands of games are registered with one request to the tables' place, not one for each."""
    registering = [
        Registration(f"game {number}", "t.M", version(*(f"f{each}" for each in range(number % 40))))
        for number in range(400)
    ]
    with closing_store(world.store) as engine:
        done = LocalRegistry(engine, world.paths.bronze).register_many(registering)
    assert sorted({each.schema_id for each in done}) == sorted(world.given.by_id) == list(range(1, 41))
    assert world.files == [1]


def test_numbers_are_taken_by_one_process(world: Environment) -> None:
    """Whoever has read less than what is taken by now takes nothing."""
    one, other = world.given, world.given
    one.take([GivenId(1, "a", "protobuf", "t.M")])
    with pytest.raises(IdTaken):
        other.take([GivenId(1, "b", "protobuf", "t.N")])
    other.take([GivenId(1, "a", "protobuf", "t.M")])  # a lost reply
    other.refresh()
    assert (other.highest, other.by_id) == (1, one.by_id)


def test_a_damaged_file_is_named(world: Environment) -> None:
    """A registration refuses to guess what an id means."""
    world.register(version())
    Path(world.given.folder / "1").write_text("{}")
    with pytest.raises(Refused, match=r"registrations/1 is damaged.*backup"):
        world.register(version("level"))


def test_every_registration_of_the_product_takes_its_ids() -> None:
    """No part of turnout registers by a registry that knows the store alone."""
    alone = re.compile(r"LocalRegistry\([^(),]+\)\s*\.\s*register|Resolution\([^()]*\)\n")
    files = [*ROOT.glob("pipeline/**/*.py"), *ROOT.glob("app/**/*.py")]
    assert [str(file) for file in files if alone.search(file.read_text("utf-8"))] == []
