"""A group's checkpoint, deleted, copied and damaged: the cursors are in the tables, so no row is lost or doubled."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sqlalchemy import update

from pipeline.data.maintenance.run import one_round
from pipeline.data.verify.balance import Counts
from pipeline.lake.delta.rewrite import table_files
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import games
from tests.spark.conftest import World
from tests.tables.maintenance_world import LATER, on_disk

ROWS = 1_500


@dataclass(frozen=True)
class Seed:
    """An environment whose group has read three of its five bronze commits."""

    env: Path
    last_offsets: str


def query_of(world: World, group: str = "a") -> Path:
    return world.paths.checkpoints / "demux" / group / "query"


def newest(folder: Path) -> Path:
    return max((file for file in folder.iterdir() if file.name.isdecimal()), key=lambda file: int(file.name))


@pytest.fixture(scope="module")
def seed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Seed:
    env = tmp_path_factory.mktemp("seed") / "env"
    settings, paths = load(env, {})
    world = World(spark, settings, paths, open_store(settings, paths))
    group = world.group("a")
    for number in range(5):
        world.simulate(ROWS // 5, games=6)
        world.ingest()
        if number < 3:
            world.split(group)
    group.stop()
    world.engine.dispose()
    return Seed(env, newest(query_of(world) / "offsets").name)


@pytest.fixture
def copied(spark: Any, seed: Seed, tmp_path: Path) -> Iterator[World]:
    """The environment as it was, for one test; nothing may be ingested into a copy."""
    shutil.copytree(seed.env, tmp_path / "env")
    settings, paths = load(tmp_path / "env", {})
    engine = open_store(settings, paths)
    yield World(spark, settings, paths, engine)
    engine.dispose()


def split(world: World, name: str = "a") -> None:
    group = world.group(name)
    world.split(group)
    group.stop()


def settled(world: World) -> Counts:
    """Return what verify counts: nothing may be missing, twice or waiting; quarantine has no row twice."""
    balance = world.verify()
    assert balance.complete
    assert balance.totals.bronze_rows == ROWS
    refused = DeltaTable(world.paths.quarantine).to_pyarrow_table(columns=["game_key", "seq", "pos"])
    assert (
        refused.num_rows == balance.totals.quarantined == refused.group_by(refused.column_names).aggregate([]).num_rows
    )
    return balance.totals


def whole_folder(query: Path) -> None:
    shutil.rmtree(query.parent)


def query_only(query: Path) -> None:
    """The pins of the old batch numbers must go with it."""
    shutil.rmtree(query)


def offsets_gone(query: Path) -> None:
    shutil.rmtree(query / "offsets")


def offsets_emptied(query: Path) -> None:
    newest(query / "offsets").write_bytes(b"")


def offsets_garbled(query: Path) -> None:
    newest(query / "offsets").write_bytes(b"v1\n{")


def commit_emptied(query: Path) -> None:
    newest(query / "commits").write_bytes(b"")


def metadata_gone(query: Path) -> None:
    (query / "metadata").unlink()


def commits_gone(query: Path) -> None:
    for file in (query / "commits").iterdir():
        file.unlink()


def second_source(query: Path) -> None:
    file = newest(query / "offsets")
    text = file.read_text()
    offsets_garbled(query)  # its checksum, if there is one, is no longer right either
    file.write_text(f"{text}\n{text.splitlines()[-1]}")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "A9 folder": whole_folder,
    "A9 query": query_only,
    "A9 offsets": offsets_gone,
    "A13 empty": offsets_emptied,
    "A13 garbled": offsets_garbled,
    "A14": commit_emptied,
    "A15": metadata_gone,
    "A16": commits_gone,
    "A17": second_source,
}


ALWAYS = ("A9 folder",)
"""The damage that the ordinary run has Spark meet; `tests/tables/test_streams_checkpoint.py` has all of them."""


@pytest.mark.parametrize(
    "damage", [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.long) for each in DAMAGE]
)
@pytest.mark.usefixtures("each_source")
@pytest.mark.proves("A9", "A13", "A14", "A15", "A16", "A17", "G59")
def test_damage_of_a_groups_checkpoint_costs_no_row_and_doubles_none(copied: World, damage: str) -> None:
    """A9, A13 to A17, laws L3 and L7: the group starts as if nothing had been, and a second start adds nothing."""
    DAMAGE[damage](query_of(copied))
    split(copied)
    totals = settled(copied)
    split(copied)
    assert totals == settled(copied)


@pytest.mark.usefixtures("each_source")
@pytest.mark.proves("A10", "G59")
def test_a10_a_copied_checkpoint_is_as_good_as_none(copied: World) -> None:
    """A10: a group that runs on another's checkpoint, over games of which it never read a row, lacks and doubles none.

    An older copy that is put back does no harm either.
    """
    old = copied.paths.root / "backup"
    shutil.copytree(query_of(copied), old)
    split(copied)
    totals = settled(copied)
    shutil.rmtree(query_of(copied))
    old.replace(query_of(copied))
    split(copied)
    assert totals == settled(copied)
    shutil.copytree(query_of(copied).parent, query_of(copied, "b").parent)
    moved = sorted(copied.group("a").streams)[::2]
    for key in moved:
        shutil.rmtree(copied.paths.table(key))  # its stream begins at cursor 0
    copied.group("b").stop()
    with copied.engine.begin() as connection:
        connection.execute(update(games).where(games.c.game_key.in_(moved)).values(group_name="b"))
    split(copied)
    split(copied, "b")
    assert totals == settled(copied)


@pytest.mark.usefixtures("each_source")
@pytest.mark.proves("A21", "G60")
def test_a21_a_group_behind_bronzes_log_catches_up_from_bronze_itself(copied: World) -> None:
    """A21: the log no longer has what the query reads next, but the table has its rows; none is skipped."""
    bronze = DeltaTable(copied.paths.bronze)
    bronze.create_checkpoint()
    for file in sorted(Path(copied.paths.bronze / "_delta_log").glob("*.json"))[:-1]:
        file.unlink()
    split(copied)
    settled(copied)
    assert "CATCHUP" in {game.lane for each in copied.passes for game in each.games if game.committed_at}


@pytest.mark.usefixtures("each_source")
@pytest.mark.parametrize("is_cut_off", [False, True])
@pytest.mark.proves("G236")
def test_a_driver_says_the_version_that_its_queries_read_next(copied: World, *, is_cut_off: bool) -> None:
    """Maintenance elsewhere leaves what they read: a pass that was cut off is repeated, and reads the same files."""
    group = copied.group("a")
    assert group.reads_from() == 4, "its predecessor has read the table's beginning and three commits"
    copied.split(group)
    assert group.reads_from() == 6
    if is_cut_off:
        newest(query_of(copied) / "commits").unlink()
        assert group.reads_from() == 4
    group.stop()


def test_a_driver_without_a_checkpoint_reads_from_where_it_begins(copied: World) -> None:
    """Until its first micro-batch only the driver itself knows it, and before its start nobody does."""
    group = copied.group("b")
    assert group.reads_from() is None
    copied.split(group)
    assert group.reads_from() == 6
    newest(query_of(copied, "b") / "commits").unlink()
    assert group.reads_from() == 5
    group.stop()


@pytest.mark.usefixtures("each_source")
@pytest.mark.proves("G236")
def test_a_driver_that_comes_back_to_its_machine_does_not_miss_deleted_files(copied: World, tmp_path: Path) -> None:
    """Its pass was cut off there; while it ran elsewhere, maintenance merged and deleted what that pass read."""
    newest(query_of(copied) / "commits").unlink()
    maintenance_is_elsewhere = Paths(tmp_path / "elsewhere", str(copied.paths.root))
    wanted = Maintenance(bronze_commits=2, bronze_age_minutes=0.0)
    settings = replace(copied.settings, maintenance=wanted)
    for after in (0.0, LATER):
        one_round(settings, maintenance_is_elsewhere, time.time() + after, thorough=True)
    assert len(table_files(DeltaTable(copied.paths.bronze))) == len(on_disk(Path(copied.paths.bronze))) == 1
    split(copied)
    settled(copied)
