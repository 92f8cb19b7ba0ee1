"""A control store that is an older copy than the tables: no row lands under an id whose meaning it has lost."""

import shutil
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.data.contracts.given_ids import StoreAge
from pipeline.data.contracts.schemas import Schema
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.lanes import failure_of
from pipeline.lake.delta.meanings import PROPERTY, OtherMeaning
from pipeline.lake.delta.opening import open_table
from tests.tables.repair_world import CHESS, FIRST, SECOND, Event, Message, early, good
from tests.tables.restored_world import THIRD, RestoredWorld, by_points, resolve, restored_world

LATER = Message({"points": (1, "int64"), "player": (2, "string"), "bonus": (3, "int64")})


@pytest.fixture
def world(tmp_path: Path) -> RestoredWorld:
    """Chess has landed rows of two schemas, and the store is the copy from before the second."""
    made = restored_world(tmp_path)
    made.back_up()
    assert made.register(message=SECOND) == 2
    made.ingest(good(1), early(2))
    made.split()
    made.restore()
    return made


@pytest.mark.proves("G260")
def test_rows_of_a_lost_schema_never_land_in_another_ones_column(world: RestoredWorld) -> None:
    """The old producer goes on after a restore: its rows wait, named, until its schema is registered again."""
    with pytest.raises(Refused, match="lost schema 2"):
        world.register(message=THIRD)
    world.ingest(early(4), good(6))
    world.split()
    assert by_points(world) == {1: (None, None), 2: ("player 2", None), 6: (None, None)}
    assert world.details() == {
        "the control store has lost schema 2, 't.M': restore its newest copy, or register the schema again"
    }


@pytest.mark.proves("G260")
def test_rows_of_a_lost_schema_land_after_its_registration(world: RestoredWorld) -> None:
    """The same schema gets the id that it had: rows that waited for it land, in the columns that it had."""
    world.ingest(early(4), good(6))
    world.split()
    assert world.register(message=SECOND) == 2
    replay_all(world.paths, world.environment, world.registry.snapshot, world.known(), Selection(), dry_run=False)
    assert by_points(world) == {1: (None, None), 2: ("player 2", None), 4: ("player 4", None), 6: (None, None)}
    found = world.values()
    assert (found.complete, found.values and found.values.mismatches) == (True, 0)


@pytest.mark.proves("G261")
def test_a_driver_says_at_its_start_that_the_store_is_older(
    world: RestoredWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """An older store is noticed before a row comes, by name, and until its schemas are registered again."""
    age = StoreAge(world.engine, world.paths.bronze)
    said = (
        "the control store is older than bronze by 1 registration: restore its newest copy, or register again schema 2 "
        "('t.M')"
    )
    assert age.trouble() == said
    assert said in caplog.text
    world.ingest(Event(CHESS, 9, FIRST.payload(points=1)))
    assert age.trouble() == said, "an id that nobody ever gave proves nothing"
    world.register(message=SECOND)
    assert age.trouble() is None


@pytest.mark.proves("G261")
def test_a_driver_takes_the_ids_of_an_earlier_turnout_at_its_start(world: RestoredWorld) -> None:
    """An environment from before ids were taken gets its folder at the first start, in one file of each kind."""
    folder = Path(world.paths.bronze).parent / "registrations"
    shutil.rmtree(folder)
    assert StoreAge(world.engine, world.paths.bronze).trouble() is None
    assert sorted(file.name for file in folder.iterdir()) == ["1", "placed-1"]


@pytest.mark.proves("G260")
def test_a_running_driver_notices_that_its_store_was_put_back(world: RestoredWorld) -> None:
    """A store that was restored under a running driver gives its numbers to other sets: none is read on top of it."""
    world.register(message=SECOND)
    running = world.registry
    before = running.snapshot()
    world.restore()
    resolve(world, Schema(0, "protobuf", "t.M", THIRD.descriptor_set))
    after = running.snapshot()
    assert (before.version, before.games[CHESS.key]) == (2, (1, 2))
    assert (after.version, after.games[CHESS.key], after.lost) == (2, (1, 3), {2: "t.M"})
    assert after.mark != before.mark


@pytest.mark.proves("G260")
def test_a_table_is_not_read_as_one_with_other_ids(world: RestoredWorld) -> None:
    """Where the folder of given ids is lost as well, the property of a table parks its game at once."""
    shutil.rmtree(Path(world.paths.bronze).parent / "registrations")
    assert world.register(message=THIRD) == 2
    rows = world.contents()
    world.ingest(early(4))
    with pytest.raises(OtherMeaning, match=r"its table has rows of schema 2 .* older copy. Restore its newest") as why:
        world.split()
    assert failure_of(why.value).parks
    with pytest.raises(OtherMeaning):
        rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert world.contents() == rows


def test_a_table_notes_what_its_ids_mean(world: RestoredWorld) -> None:
    """A table has the fingerprints of its game's schemas from its first commit on, and later ones with their rows."""
    noted = properties(world)
    assert noted.keys() == {1, 2}
    assert (world.register(message=SECOND), world.register(message=LATER)) == (2, 3)
    world.ingest(good(3))
    world.split()
    assert properties(world).keys() == {1, 3} | noted.keys()
    versions = open_table(world.paths.table(CHESS.key)).version()
    world.ingest(good(4))
    world.split()
    assert open_table(world.paths.table(CHESS.key)).version() == versions + 1, "known ids cost no commit"


def properties(world: RestoredWorld) -> dict[int, str]:
    text = open_table(world.paths.table(CHESS.key)).metadata().configuration[PROPERTY]
    return {int(schema_id): mark for schema_id, mark in (each.split("=") for each in text.split())}
