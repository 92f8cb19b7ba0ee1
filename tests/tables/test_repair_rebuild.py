"""The rebuild of a game's table, on a small environment without Spark."""

import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from pipeline.base.errors import Refused, Transient
from pipeline.base.failpoints import ENVIRON, Injected
from pipeline.base.names import GameKey, bronze_app_id, stream_app_id
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.repair import bronze_rows, removal, stale_quarantine, switch
from pipeline.data.repair import rebuild as rebuilds
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import Rebuilt, rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.verify.balance import Balance
from pipeline.lake.delta import generation, parquet
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.store.games import generations
from tests import repairing
from tests.tables.repair_world import (
    CHESS,
    FIRST,
    GO,
    OTHER,
    SECOND,
    Event,
    Message,
    World,
    arming,
    broken,
    copied,
    early,
    good,
    make_world,
)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Chess has five rows in three seqs, two of them refused; a sixth one has a schema nobody registered yet."""
    made = make_world(tmp_path_factory.mktemp("rebuild"))
    made.ingest(good(1), broken(), good(2))
    made.ingest(good(3), early(4))
    made.split()
    made.ingest(broken(), good(5))
    made.split()
    assert is_clean(made.verify(), landed=4, quarantined=3)
    return made


@pytest.fixture
def world(made_once: World, tmp_path: Path) -> World:
    return copied(made_once, tmp_path)


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Arms an exception at the rebuild's n-th fail-point."""
    return arming(tmp_path / "failpoints", monkeypatch, "in_rebuild_switch")


def run(world: World) -> Rebuilt:
    return rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)


def replay(world: World) -> None:
    replay_all(
        world.paths, world.environment, world.registry.snapshot, world.known(), Selection(), dry_run=False
    )  # fmt: skip


def is_clean(balance: Balance, **counts: int) -> bool:
    assert balance.problems == ()
    assert {name: getattr(balance.totals, name) for name in counts} == counts
    return balance.ok


def table(world: World) -> DeltaTable:
    return DeltaTable(world.paths.table(CHESS.key))


@pytest.mark.proves("G154")
def test_a_rebuild_makes_the_same_table_in_one_commit(world: World) -> None:
    """Law L12: same rows, same table id, description and history, one version further; the cursor is the last seq."""
    before, rows = table(world), world.contents()
    done = run(world)
    after = table(world)
    assert (done.generation, done.cursor, done.rows, done.refused, done.removed) == (2, 3, 4, 3, 0)
    assert world.contents() == rows
    assert (after.version(), after.metadata()) == (before.version() + 1, before.metadata())
    assert len(after.file_uris()) == 1
    assert DeltaTable(world.paths.table(CHESS.key), version=before.version()).to_pyarrow_table().num_rows == 4
    assert generations(world.engine)[CHESS.key] == 2
    assert is_clean(world.verify(), landed=4, quarantined=3, quarantine_copies=0, stale_twins=0)
    world.ingest(good(6))
    world.split()
    assert run(world).generation == 3
    assert is_clean(world.verify(), landed=5, quarantined=3, pending=0)


def test_bronze_is_read_in_bounded_chunks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk becomes a file, in the order of seqs; the rows are the same however they are cut."""
    rows = world.contents()
    monkeypatch.setattr(parquet, "_CHUNK_ROWS", 2)
    monkeypatch.setattr(bronze_rows, "_BATCH_ROWS", 1)
    done = run(world)
    assert done.files == 3
    assert world.contents() == rows
    spans = pa.table(table(world).get_add_actions(flatten=True)).select(["min._seq", "max._seq"]).to_pylist()
    ordered = sorted(spans, key=lambda span: (span["min._seq"], span["max._seq"]))
    assert all(one["max._seq"] <= next_one["min._seq"] for one, next_one in itertools.pairwise(ordered))
    assert is_clean(world.verify(), landed=4)


@pytest.mark.parametrize("protocol", ["plain", "delta-rs"])
@pytest.mark.proves("G156")
def test_a_late_commit_of_the_old_owner_adds_nothing(world: World, protocol: str) -> None:
    """Laws L4 and L12: whoever still holds the old generation finds a conflict, on both ways of committing."""
    if protocol == "delta-rs":
        table(world).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    zombie, rows = world.stream(CHESS), world.contents()
    world.ingest(good(6))
    stale = CursorTable.open(zombie.path, zombie.app_id)
    assert stale is not None
    assert run(world).cursor == 4
    late = write_file(table(world).to_pyarrow_table().slice(0, 1), zombie.path, ["_seq"])
    for owner in (zombie.table, stale):
        assert owner is not None
        with pytest.raises(TableConflict):
            owner.commit([late], 3, 4)
        assert owner.cursor == generation.RETIRED
    assert world.contents()[:-1] == rows
    world.ingest(good(7))
    world.split()
    assert is_clean(world.verify(), landed=6)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.proves("G154")
def test_a_killed_rebuild_leaves_a_whole_table(world: World, arm: Callable[[int], None], number: int) -> None:
    """Before the switch the old table serves; after it the new one does, also before the control store has it."""
    world.register(message=SECOND)
    before = world.contents()
    arm(number)
    with pytest.raises(Injected):
        run(world)
    assert generations(world.engine)[CHESS.key] == 1
    assert (len(world.rows()), len(before)) == ((4, 4) if number == 1 else (5, 4))
    assert is_clean(world.verify(), bronze_rows=7, quarantined=3 if number == 1 else 2)
    world.ingest(good(6))
    world.split()
    assert is_clean(world.verify(), landed=4 + number, pending=0)
    assert run(world).generation == (2 if number == 1 else 3)
    assert generations(world.engine)[CHESS.key] == (2 if number == 1 else 3)
    assert is_clean(world.verify(), landed=6, quarantined=2, pending=0, stale_twins=0)


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.proves("G154")
def test_a_rebuild_that_is_killed_for_real_leaves_a_whole_table(world: World, tmp_path: Path, number: int) -> None:
    """The same with SIGKILL of its process, before the switch and after."""
    folder = tmp_path / "kill"
    folder.mkdir()
    (folder / "armed").write_text(f"in_rebuild_switch crash {number}\n")
    command = repairing.command(world.paths.root, "rebuild", "Chess")
    environ = {**os.environ, ENVIRON: str(folder)}
    died = subprocess.run(command, env=environ, capture_output=True, start_new_session=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert is_clean(world.verify(), landed=4, quarantined=3)
    again = subprocess.run(command, env=environ, capture_output=True, text=True, start_new_session=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert f"generation {1 + number}, 4 row(s)" in again.stdout
    assert is_clean(world.verify(), landed=4, quarantined=3)


@pytest.mark.proves("G156")
def test_readers_never_lose_what_the_stream_added_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that goes on during a rebuild is caught up with before the switch: the cursor never goes back."""

    def meanwhile(_point: str) -> None:
        monkeypatch.undo()
        world.ingest(good(6), broken())
        world.split()

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    done = run(world)
    assert (done.cursor, done.rows) == (4, 5)
    assert is_clean(world.verify(), landed=5, quarantined=4, pending=0)


@pytest.mark.proves("G157")
def test_rows_of_a_schema_that_is_registered_during_a_rebuild_stay_in_the_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L15: a rebuild reads again with the registrations that hold at its switch, so that no landed row leaves."""
    looked: list[str] = []

    def meanwhile(point: str) -> None:
        looked.append(point)
        if len(looked) == 1:
            world.register(message=SECOND)
            world.ingest(early(6))
            world.split()
            assert (4, 0) in world.rows()

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    done = run(world)
    assert (done.generation, done.cursor, done.rows, done.refused) == (2, 4, 6, 2)
    assert [row["player"] for row in world.contents() if row["_schema_id"] == 2] == ["player 4", "player 6"]
    assert is_clean(world.verify(), landed=6, quarantined=2, pending=0, stale_twins=0)
    assert len(looked) == 3, "before the first switch, which is not made, and around the second"


def test_a_rebuild_that_slept_through_the_retention_of_its_files_reads_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L12: files that maintenance has deleted meanwhile, as on a machine that was asleep, enter no table."""

    def meanwhile(_point: str) -> None:
        monkeypatch.undo()
        folder = world.paths.table(CHESS.key)
        known = {Path(uri).name for uri in DeltaTable(folder).file_uris()}
        for file in Path(folder).glob("*.parquet"):
            if file.name not in known:
                file.unlink()

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    assert run(world).generation == 2
    assert world.contents()
    assert is_clean(world.verify(), landed=4, quarantined=3, pending=0)


def test_a_registration_of_another_game_makes_no_rebuild_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L15: of a thousand games somebody always registers a schema; only the game's own registrations count."""
    looked: list[str] = []

    def meanwhile(point: str) -> None:
        looked.append(point)
        world.register(GO, (FIRST, SECOND)[len(looked) - 1])

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    assert run(world).rows == 4
    assert len(looked) == 2, "before and after the switch"


def test_a_rebuild_beside_endless_registrations_gives_up_and_leaves_the_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L15: what cannot be switched without loss is not switched; the old table serves on, and a person is told."""
    made, before = itertools.count(10), table(world).version()

    def meanwhile(_point: str) -> None:
        number = next(made)
        world.register(message=Message({"points": (1, "int64"), f"more_{number}": (number, "string")}))

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    with pytest.raises(Transient, match="got new schemas, during all 5 attempts; its table is unchanged"):
        run(world)
    assert (next(made), table(world).version(), len(table(world).file_uris())) == (15, before, 2)
    assert is_clean(world.verify(), landed=4, quarantined=3, stale_twins=0)


def test_a_compaction_just_before_the_switch_does_not_bring_rows_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch removes the files that are in the table at its own version, whoever made them."""
    real = switch._commit

    def after_compaction(*arguments: Any) -> None:
        monkeypatch.undo()
        table(world).optimize.compact()
        real(*arguments)

    monkeypatch.setattr(switch, "_commit", after_compaction)
    assert run(world).rows == 4
    assert is_clean(world.verify(), landed=4, duplicated=0)


@pytest.mark.proves("G158")
def test_a_replay_during_a_rebuild_is_neither_lost_nor_doubled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two repairs that overlap the later one begins again."""
    world.register(message=SECOND)

    def meanwhile(_point: str) -> None:
        monkeypatch.undo()
        replay(world)
        assert len(world.rows()) == 5

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    assert run(world).rows == 5
    assert is_clean(world.verify(), landed=5, quarantined=2, stale_twins=0)


def test_rows_that_land_now_leave_quarantine_and_rows_that_are_refused_now_enter_it(tmp_path: Path) -> None:
    """Law L5 and an incompatible change: the columns are replaced in the switch, the table's identity is not."""
    world = make_world(tmp_path)
    world.ingest(good(1), Event(CHESS, 2, OTHER.payload(points="two")), broken())
    world.split()
    assert world.rows() == [(1, 0)]
    identity = table(world).metadata().id
    world.forget()
    assert world.register(message=OTHER) == 2
    done = run(world)
    assert (done.rows, done.refused, done.removed) == (1, 2, 1)
    assert table(world).metadata().id == identity
    assert pa.schema(table(world).schema().to_arrow()).field("points").type == pa.string()
    assert [(row["_pos"], row["points"]) for row in world.contents()] == [(1, "two")]
    assert is_clean(world.verify(), landed=1, quarantined=2, stale_twins=0, quarantine_copies=0)
    late = world.streams[CHESS.key]
    world.ingest(Event(CHESS, 2, OTHER.payload(points="six")))
    with pytest.raises(TableConflict):
        late.commit([], late.position, 2, pa.schema([]))
    world.split()
    assert is_clean(world.verify(), landed=2, quarantined=2, pending=0)


def test_rows_from_before_the_game_was_known_stay_in_its_table(tmp_path: Path) -> None:
    """Rows that a replay landed from under the malformed key are the game's: a rebuild keeps them without a replay."""
    world = make_world(tmp_path)
    for game, event in ((GO, good(1, GO)), (CHESS, good(2))):
        world.ingest(event, broken(game))
    world.split()
    world.register(GO)
    world.ingest(good(3, GO))
    world.split(GO)
    done = rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, GO)
    assert (done.rows, done.refused, done.removed, done.cursor) == (2, 1, 1, 3)
    assert is_clean(world.verify(), landed=3, quarantined=2, quarantine_copies=0)


@pytest.mark.parametrize("twins_there", [1, 4], ids=["one of those refused", "all of those refused"])
@pytest.mark.parametrize("point", ["before the commit", "before the rewrite"])
@pytest.mark.proves("G158")
def test_a_removal_never_takes_what_a_rebuild_leaves_to_quarantine(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, twins_there: int
) -> None:
    """Law L5: a row that is refused again while its twin is being removed is not lost, whoever is slower."""
    places = world.rows()[:twins_there]  # landed; after the change they are refused
    bronze = DeltaTable(world.paths.bronze).to_pyarrow_table().to_pylist()
    rows = [row for row in bronze if (row["seq"], row["pos"]) in places]
    world.quarantine([{**row, "reason": "unknown_schema"} for row in rows])
    world.forget()
    world.register(message=OTHER)
    module, name = (removal, "_commit") if point == "before the commit" else (stale_quarantine, "_delete")
    real = getattr(module, name)

    def slow(*arguments: Any) -> None:
        monkeypatch.undo()
        run(world)
        real(*arguments)

    monkeypatch.setattr(module, name, slow)
    stale_quarantine.remove(world.paths, world.environment, CHESS)
    assert not set(places) & set(world.rows())
    assert set(places) <= set(world.refused())
    assert is_clean(world.verify(), lost=0)


@pytest.mark.proves("G158")
def test_a_rebuild_whose_refused_rows_are_taken_for_twins_begins_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L5, the other way round: refused rows stand in quarantine and the old table, and somebody removes them."""
    world.forget()
    world.register(message=OTHER)
    attempts: list[int] = []

    def meanwhile(_point: str) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            assert world.verify().totals.stale_twins == 4
            assert stale_quarantine.remove(world.paths, world.environment, CHESS) == 4

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    assert run(world).refused == 7
    assert len(attempts) == 3
    assert is_clean(world.verify(), landed=0, quarantined=7, lost=0)


def test_a_row_that_kills_workers_is_not_read_by_a_rebuild(tmp_path: Path) -> None:
    """Law L6: it stays in quarantine, or the rebuild would die of it each time."""
    world = make_world(tmp_path)
    world.ingest(good(1), good(2))
    row = DeltaTable(world.paths.bronze).to_pyarrow_table().to_pylist()[1]
    world.ingest(good(3))
    world.split()
    world.quarantine([{**row, "reason": "kills_worker"}])
    assert run(world).rows == 2
    assert world.rows() == [(1, 0), (2, 0)]
    assert is_clean(world.verify(), landed=2, quarantined=1, quarantine_copies=0)


def test_what_cannot_be_rebuilt_is_refused_with_the_reason(tmp_path: Path) -> None:
    """No table, no schema, or a bronze that does not hold all rows: the old table is better than a poorer new one."""
    world = make_world(tmp_path)
    world.ingest(good(1))
    with pytest.raises(Refused, match="has no table yet"):
        run(world)
    world.split()
    version = table(world).version()
    with pytest.raises(Refused, match="No schema is registered"):
        rebuild(world.paths, world.environment, world.engine, lambda: SchemaSet(0, {}, {}), CHESS)
    bronze = CursorTable.open(world.paths.bronze, bronze_app_id(world.environment))
    assert bronze is not None
    lost = DeltaTable(world.paths.bronze).to_pyarrow_table()
    seqs = {"seq": 3, "prev_seq": 2}
    for name, value in seqs.items():
        lost = lost.set_column(lost.column_names.index(name), name, pa.array([value], pa.int64()))
    bronze.commit([write_file(lost, world.paths.bronze)], 1, 3)
    with pytest.raises(Refused, match=r"has a gap in the rows of .* before seq 3"):
        run(world)
    assert (table(world).version(), world.rows()) == (version, [(1, 0)])


def test_a_table_ahead_of_bronze_is_not_rebuilt(tmp_path: Path) -> None:
    """A table made from another bronze would lose rows that nothing can bring back."""
    world = make_world(tmp_path)
    world.ingest(good(1))
    world.split()
    held = world.stream(CHESS).table
    assert held is not None
    held.commit([], 1, 9)
    with pytest.raises(Refused, match="ahead of bronze, which ends at seq 1"):
        run(world)
    assert world.rows() == [(1, 0)]


def test_a_bronze_whose_files_delta_rs_has_merged_is_read(tmp_path: Path) -> None:
    """L12: somebody may have run OPTIMIZE on bronze; its text columns are then stored another way."""
    world = make_world(tmp_path)
    for number in (1, 2):
        world.ingest(good(number), good(number, GO))
        world.split()
    assert DeltaTable(world.paths.bronze).optimize.compact()["numFilesAdded"] == 1
    assert run(world).rows == 2


@given(st.integers(1, 30), st.integers(1, 40), st.booleans())
def test_the_newest_generation_is_found_from_any_told_one(last: int, reported: int, retired: bool) -> None:
    """Law L12: the table's log has the last word, also where an older copy of it lacks the number that was told."""
    versions = {stream_app_id("e", GameKey("g"), number): generation.RETIRED for number in range(1, last)}
    versions[stream_app_id("e", GameKey("g"), last)] = generation.RETIRED if retired else 7
    assert generation.newest(versions.get, "e", GameKey("g"), reported) == last


@pytest.mark.parametrize("rebuilds", [1, 2])
@pytest.mark.proves("G29")
def test_a_table_put_back_from_before_its_rebuild_is_not_filled_again(tmp_path: Path, rebuilds: int) -> None:
    """Law L5: the control store has a generation that an older copy lacks; its rows are in it all the same."""
    world = make_world(tmp_path)
    world.ingest(good(1), good(2))
    world.split()
    table, copy = world.paths.table(CHESS.key), world.paths.root / "copy"
    shutil.copytree(table, copy)
    for _ in range(rebuilds):
        run(world)
    world.ingest(good(3))
    shutil.rmtree(table)
    copy.rename(table)
    world.streams.clear()
    world.split()
    assert world.rows() == [(1, 0), (1, 1), (2, 0)]
    assert world.verify().ok
    assert run(world).generation == 2
    world.ingest(good(4))
    world.split()
    assert world.verify().ok
