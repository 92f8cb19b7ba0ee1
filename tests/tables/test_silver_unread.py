"""Maintenance keeps the versions and files of a game's table that a derived stream in force has yet to read."""

import os
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema
from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.data.derived.definitions import Definition, FlatRule, SilverDefinition, dumps
from pipeline.data.maintenance import process, retain, run
from pipeline.data.maintenance.report import Round, TableReport
from pipeline.data.maintenance.unread import unread
from pipeline.lake.delta.opening import open_table
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings
from pipeline.store import derived
from pipeline.store.database.engine import open_store
from pipeline.store.rows import RuleTable
from tests.tables.maintenance_world import DAY, on_disk
from tests.tables.silver_world import CHESS, COLUMNS, SOLD, Row, SilverWorld
from tests.unit.store.outage_world import away

SETTINGS = Settings(
    "test", maintenance=Maintenance(small_files=3, file_retention_hours=24, log_retention_hours=24, derived_days=3)
)


@pytest.fixture
def world(tmp_path: Path) -> SilverWorld:
    """A game's table with four versions that silver has read, and twelve that it has not, merged into one file."""
    made = SilverWorld(tmp_path)
    for at in range(4):
        made.commit(Row(f"a{at}", 0.0), Row("twice", 0.0))
    made.carry()
    for at in range(12):
        made.commit(Row(f"b{at}", 0.0), Row("twice", 1.0))
    return made


def round_of(world: SilverWorld, after: float, *streams: Definition, known: bool = True, hurt: int = 0) -> Round:
    now, in_force = time.time() + after, streams if known else None
    done = run.one_round(SETTINGS, Paths(world.root), now, thorough=False, streams=lambda: in_force)
    assert len([report.error for report in done.tables if report.error]) == hurt
    return done


def notes(done: Round) -> list[str]:
    return [note for report in done.tables if report.table == f"tables/{CHESS}" for note in report.notes]


def first_version(world: SilverWorld) -> int:
    return min(int(each.stem) for each in Path(str(world.table), "_delta_log").glob("*.json"))


def test_silver_that_is_behind_by_hours_reads_on(world: SilverWorld) -> None:
    """Versions and merged files that silver has not read stay beyond both retentions, so its generation goes on."""
    round_of(world, 0.0, SOLD)  # merges
    done = round_of(world, 2 * DAY, SOLD)
    (note,) = set(notes(done))
    assert note.startswith("versions after 4 wait for silver sold, which is 2 d 0 h behind")
    assert first_version(world) <= 4
    position = world.carry()
    assert (position.generation, position.is_level) == (1, True)
    world.check()
    done = round_of(world, 2 * DAY, SOLD)
    assert (notes(done), first_version(world) > 4) == ([], True)
    assert len(on_disk(Path(str(world.table)))) == 1


@pytest.mark.parametrize("days", [3.1, 30.0])
def test_silver_further_behind_begins_a_generation(world: SilverWorld, days: float) -> None:
    """After `derived_days` nothing is kept for a stream, and it has all rows again in a new generation."""
    round_of(world, 0.0, SOLD)
    assert notes(round_of(world, days * DAY, SOLD)) == []
    assert first_version(world) > 5
    assert world.carry().generation == 2
    world.check()


def test_a_stream_that_is_not_in_force_keeps_nothing(world: SilverWorld) -> None:
    """The table of a removed stream, of another definition, or of another game holds no log back."""
    paths, table_id = Paths(world.root), str(open_table(world.table).metadata().id)
    other = SilverDefinition("sold", "Chess", "Sold", within=3)
    elsewhere = SilverDefinition("sold", "Go", "Sold")
    for streams in ((), (other,), (elsewhere,)):
        assert unread(streams, SETTINGS, paths, CHESS, table_id, time.time()) is None
    assert unread((SOLD,), SETTINGS, paths, CHESS, "another table", time.time()) is None
    assert unread((SOLD,), SETTINGS, paths, CHESS, table_id, time.time()) is not None
    round_of(world, 0.0)
    round_of(world, 2 * DAY)
    assert world.carry().generation == 2
    world.check()


def test_the_stream_furthest_behind_counts(world: SilverWorld) -> None:
    """Of two streams of a game the one that has read less decides; a gold table keeps nothing of it."""
    second = SilverWorld(world.root, SilverDefinition("second", "Chess", "Sold"))
    second.carry()
    world.commit(Row("c", 0.0))
    table_id = str(open_table(world.table).metadata().id)
    streams = (second.definition, SOLD)
    kept = [unread(each, SETTINGS, Paths(world.root), CHESS, table_id, time.time()) for each in (streams, streams[:1])]
    assert [each and each.version for each in kept] == [4, 16]


def test_a_table_that_another_writer_changed_keeps_its_removed_files(tmp_path: Path) -> None:
    """Where delta-rs merges and vacuums, files that silver has not read stay, too."""
    world = SilverWorld(tmp_path)
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable.create(str(world.table), Schema.from_arrow(COLUMNS), configuration=feed)
    world.commit(Row("a", 0.0))
    world.carry()
    for at in range(4):
        world.commit(Row(f"b{at}", 0.0))
    round_of(world, 0.0, SOLD)
    folder, now = Path(str(world.table)), time.time()
    merged = on_disk(folder)
    table_id = str(open_table(world.table).metadata().id)
    kept = unread((SOLD,), SETTINGS, Paths(world.root), CHESS, table_id, now)
    retain.clean_files(world.table, now, 0.0, TableReport("t"), kept)
    assert on_disk(folder) == merged
    assert world.carry().generation == 1
    world.check()
    retain.clean_files(world.table, now, 0.0, TableReport("t"))
    assert len(on_disk(folder)) < len(merged)


def test_where_the_streams_are_not_known_all_that_is_young_stays(world: SilverWorld) -> None:
    """While the control store has never answered, logs and files are kept for `derived_days`."""
    round_of(world, 0.0, known=False)
    (note,) = set(notes(round_of(world, 2 * DAY, known=False)))
    assert note == "versions after -1 wait for derived streams, which the control store would name"
    assert world.carry().generation == 1
    round_of(world, 4 * DAY, known=False)
    assert first_version(world) > 5


def test_a_damaged_silver_table_holds_the_log_for_as_long_and_stops_no_round(world: SilverWorld) -> None:
    """Where a stream's position cannot be read, its game's table is looked after, and keeps what is young enough."""
    for each in Path(str(world.silver), "_delta_log").iterdir():
        each.write_text("{")
    assert "versions after -1 wait for silver sold, whose position is unknown" in str(
        notes(round_of(world, 2 * DAY, SOLD, hurt=1))
    )
    assert first_version(world) == 0
    round_of(world, 4 * DAY, SOLD, hurt=1)
    assert first_version(world) > 5


@pytest.fixture
def store(world: SilverWorld) -> Engine:
    return open_store(SETTINGS, Paths(world.root))


def aged_round(world: SilverWorld) -> int:
    """Let the process of maintenance do one round over a log that is two days old; return where the log begins."""
    log = Path(str(world.table), "_delta_log")
    for each in log.iterdir():
        os.utime(each, (time.time() - 2 * DAY,) * 2)
    paths = Paths(world.root)
    assert process.maintain(SETTINGS, paths, threading.Event(), once=True, as_json_lines=True) == 0
    return first_version(world)


def test_the_process_waits_for_tables_by_rules(world: SilverWorld, store: Engine) -> None:
    """A table that a rule makes counts as one of the file does; without both the log is cut."""
    rule = FlatRule("flat", games=("Chess",))
    derived.apply(store, dumps([rule]), 0, "ada", "a test")
    made = RuleTable("sold", game_key("Chess"), "Chess", "acme.v1.Sold", 1, dumps([SOLD])[1:-1], None)
    derived.keep_rule_tables(store, lambda applied, known: [made])
    assert aged_round(world) <= 4
    derived.keep_rule_tables(store, lambda applied, known: [])
    assert aged_round(world) > 5


def test_while_the_store_is_away_the_streams_last_known_count(world: SilverWorld, store: Engine) -> None:
    """An outage of the control store lets no log go that silver still reads."""
    derived.apply(store, dumps([SOLD]), 0, "ada", "a test")
    in_force = process.InForce(store)
    assert in_force.read() == (SOLD,)
    with away(store):
        assert in_force.read() == (SOLD,)
        assert process.InForce(store).read() is None
