"""The time up to which a game is complete, as `turnout wait` says it, against an oracle that knows all records."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from pipeline.base.failpoints import ENVIRON, Injected
from pipeline.base.names import bronze_app_id
from pipeline.cli.main import cli
from pipeline.data.ingest.restored import RolledBack, heed_restores
from pipeline.lake.delta import lost_seqs
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.delta.through import ThroughPair, ThroughTable, read_pairs
from pipeline.settings.tree import Paths
from pipeline.store.through import through_in
from tests.tables.maintenance_world import DAY, live, maintain, on_disk
from tests.tables.repair_world import CHESS, FIRST, GO, arming, make_world
from tests.tables.through_world import (
    LandingTables,
    ThroughWorld,
    random_step,
    rest,
    store_clock,
    through_world,
    trial,
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ThroughWorld]:
    with through_world(tmp_path) as made:
        yield made


def trials(root: Path, seed: int, number: int) -> None:
    """Wait in one world again and again, each time after some random steps; then all rests."""
    random = Random(seed)
    with through_world(root) as run:
        for _ in range(number):
            for _ in range(6):
                random_step(run, random)
            trial(run, random)
        rest(run)


@pytest.mark.parametrize("seed", range(2))
def test_wait_is_what_an_oracle_says(tmp_path: Path, seed: int) -> None:
    """L8: a game's time never says that a record is there which is not, and `wait` says the same as an oracle."""
    trials(tmp_path, seed, 5)


@pytest.mark.parametrize("seed", range(2))
def test_wait_over_several_sources_is_what_an_oracle_says(tmp_path: Path, seed: int) -> None:
    """L8: no time passes before each source has been read up to its end of that time, whichever of them is behind."""
    random = Random(seed)
    with store_clock() as clock:
        world = make_world(tmp_path)
        run = ThroughWorld(world, clock, LandingTables(world, random))
        for _ in range(5):
            for _ in range(6):
                random_step(run, random)
            trial(run, random)
        rest(run)
        world.engine.dispose()


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_wait_is_what_an_oracle_says_1000_times(tmp_path: Path) -> None:
    """L8: the same in 1,000 trials: random orders of records, batches, heartbeats, restarts, clocks that go back."""
    for seed in range(50):
        trials(tmp_path / str(seed), 1_000 + seed, 20)
        shutil.rmtree(tmp_path / str(seed))


def test_a_quiet_game_is_carried_on_without_a_commit_of_rows(run: ThroughWorld) -> None:
    """L8: heartbeats carry the time of a game without rows, and neither bronze nor its table gets a commit."""
    run.split(CHESS)
    versions = [
        DeltaTable(str(table)).version() for table in (run.world.paths.bronze, run.world.paths.table(CHESS.key))
    ]
    for _ in range(4):
        run.clock.tick(5)
        run.beat()
    run.require_true()
    assert run.waits(CHESS, run.clock.wall - 5)
    assert not run.waits(CHESS, run.clock.wall - 4), "an observation counts once the next one is made"
    assert versions == [
        DeltaTable(str(table)).version() for table in (run.world.paths.bronze, run.world.paths.table(CHESS.key))
    ]
    assert len(read_pairs(run.world.paths.through)) == 1, "of one seq the newest time says it all"


def test_a_game_that_is_behind_holds_back_itself_alone(run: ThroughWorld) -> None:
    """L6: what one game's table lacks holds back its own time, and no other's."""
    for game in (CHESS, GO):
        run.split(game)
    run.beat()
    run.beat()
    before = run.clock.wall
    run.clock.tick(5)
    run.produce(CHESS)
    run.land(9)
    for _ in range(3):
        run.clock.tick(5)
        run.beat()
    run.require_true()
    assert run.waits(CHESS, before)
    assert not run.waits(CHESS, before + 5)
    assert run.waits(GO, before + 10)


def test_a_clock_that_goes_back_takes_no_more_than_it_must(run: ThroughWorld) -> None:
    """L8: of a quiet game one time is kept; a clock set back lowers it to what the clock can have shown, no further."""
    run.split(CHESS)
    begun = run.clock.wall
    for _ in range(4):
        run.beat()
        run.clock.tick(5)
    assert run.waits(CHESS, begun + 10)
    run.clock.wall -= 14  # the least that it showed since the last heartbeat is one second after the first
    run.beat()
    run.require_true()
    assert run.waits(CHESS, begun + 1)
    assert not run.waits(CHESS, begun + 1.1)


def test_a_killed_ingest_loses_nothing_but_the_newest_time(
    run: ThroughWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L9: wherever the recorder dies between two effects, each time stays true and the next process goes on."""
    for game in (CHESS, GO):
        run.split(game)
    points = ("create_table", "write_data_file", "draft_commit", "publish_commit", "delete_draft", "draft_checkpoint")
    for number, point in enumerate(f"{when}_{effect}" for effect in points for when in ("before", "after")):
        run.produce(CHESS)
        run.land(9)
        arming(tmp_path / f"points-{number}", monkeypatch, point)(1)
        for _ in range(12):
            run.clock.tick(5)
            try:
                run.beat()
            except Injected:
                break
        monkeypatch.delenv(ENVIRON)
        run.start()
        run.split(CHESS)
        run.pairs = [(pair.seq, pair.at) for pair in read_pairs(run.world.paths.through)]
        run.require_true()
        before = max((at for _, at in run.pairs), default=0.0)
        for _ in range(2):
            run.clock.tick(5)
            run.beat()
        run.require_true()
        assert run.pairs[-1][1] > before


def test_a_restored_bronze_takes_its_times_back(run: ThroughWorld, tmp_path: Path) -> None:
    """L1: times after the copy that bronze was restored from count no more, and the table names the restore."""
    run.split(CHESS)
    run.beat()
    run.clock.tick(5)
    run.beat()
    kept, paths, seq = run.clock.wall - 5, run.world.paths, run.world.seq
    shutil.copytree(str(paths.bronze), tmp_path / "copy")
    for _ in range(3):
        run.produce(CHESS)
        run.land(9)
        run.clock.tick(5)
        run.beat()
    run.split(CHESS)
    assert run.waits(CHESS, kept + 5)
    shutil.rmtree(str(paths.bronze))
    shutil.copytree(tmp_path / "copy", str(paths.bronze))
    assert run.waits(CHESS, kept)
    assert not run.waits(CHESS, kept + 5), "pairs above bronze's end do not count"
    bronze = CursorTable.open(paths.bronze, bronze_app_id(run.world.environment))
    assert bronze is not None
    lost = LostSeqs(seq, run.world.seq + 100)
    bronze.commit([], seq, lost.before, also=lost_seqs.transactions(run.world.environment, 1, lost))
    run.world.seq = lost.before
    assert not run.waits(CHESS, kept + 5), "pairs among the lost seqs do not count"
    run.start()
    run.clock.tick(5)
    run.beat()
    assert [pair.seq for pair in read_pairs(paths.through)] == [seq]
    history = DeltaTable(str(paths.through)).history()
    assert "restore" in [each.get("withdrawn") for each in history]
    with run.world.engine.connect() as connection:
        reading = through_in(connection)
    assert reading is not None
    (back,) = reading.withdrawals
    assert back.incident == "restore"
    assert back.kept == pytest.approx(kept)


def test_restored_rows_take_their_times_back_and_bring_them_again(run: ThroughWorld) -> None:
    """L1: `RESTORE TABLE` on bronze keeps its transactions; times of rows that are gone do not count meanwhile."""
    run.split(CHESS)
    run.beat()
    run.clock.tick(5)
    run.beat()
    kept = run.clock.wall - 5
    before = DeltaTable(str(run.world.paths.bronze)).version()
    for _ in range(2):
        run.produce(GO)
        run.land(9)
        run.clock.tick(5)
        run.beat()
    whole = DeltaTable(str(run.world.paths.bronze)).version()
    assert run.waits(CHESS, kept + 5)
    DeltaTable(str(run.world.paths.bronze)).restore(before)
    assert run.waits(CHESS, kept)
    assert not run.waits(CHESS, kept + 5)
    DeltaTable(str(run.world.paths.bronze)).restore(whole)
    assert run.waits(CHESS, kept + 5)


def test_a_running_ingest_notices_restored_rows_and_takes_their_times_back(run: ThroughWorld) -> None:
    """L1: a heartbeat withdraws the times of rows that `RESTORE TABLE` took, records none meanwhile, and goes on."""
    for game in (CHESS, GO):
        run.split(game)
    run.beat()
    run.clock.tick(5)
    run.beat()
    kept, paths = run.clock.wall - 5, run.world.paths
    before = DeltaTable(str(paths.bronze)).version()
    run.produce(GO)
    run.land(9)
    for _ in range(2):
        run.clock.tick(5)
        run.beat()
    assert run.waits(CHESS, kept + 5)
    whole = DeltaTable(str(paths.bronze)).version()
    DeltaTable(str(paths.bronze)).restore(before)
    for _ in range(3):
        run.clock.tick(5)
        with pytest.raises(RolledBack, match=f"TO VERSION AS OF {whole}"):
            run.beat()
    assert max(pair.at for pair in read_pairs(paths.through)) == pytest.approx(kept)
    assert not run.waits(CHESS, kept + 5)
    assert run.shown(CHESS) == pytest.approx(kept), "pages say no later time than the logs"
    with run.world.engine.connect() as connection:
        reading = through_in(connection)
    assert reading is not None
    assert [each.incident for each in reading.withdrawals] == ["restore"]
    DeltaTable(str(paths.bronze)).restore(whole)
    run.split(GO)
    for _ in range(2):
        run.clock.tick(5)
        run.beat()
    assert run.waits(CHESS, run.clock.wall - 5)


def test_no_row_lands_above_rows_that_a_restore_took(run: ThroughWorld) -> None:
    """L1: a restore between ingest's look and its commit is seen before the commit: nothing hides what was lost."""
    paths, seq = run.world.paths, run.world.seq
    before = DeltaTable(str(paths.bronze)).version()
    run.produce(GO)
    run.land(9)
    bronze = CursorTable.open(paths.bronze, bronze_app_id(run.world.environment))
    assert bronze is not None
    heed_restores(bronze)
    DeltaTable(str(paths.bronze)).restore(before)
    with pytest.raises(RolledBack, match=rf"to seq {seq}, but ingest has landed rows up to seq {seq + 1}\."):
        bronze.commit([], bronze.cursor, seq + 2)
    found = DeltaTable(str(paths.bronze)).transaction_version(bronze_app_id(run.world.environment))
    assert found == seq + 1


def test_a_restore_that_removes_no_row_stops_nothing(run: ThroughWorld) -> None:
    """L6: a restore to a version with the same rows, as behind a compaction, is no loss."""
    bronze = CursorTable.open(run.world.paths.bronze, bronze_app_id(run.world.environment))
    assert bronze is not None
    heed_restores(bronze)
    table = DeltaTable(str(run.world.paths.bronze))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    table.restore(table.version() - 1)
    bronze.refresh()
    bronze.commit([], bronze.cursor, run.world.seq + 1)


def test_a_time_is_noted_before_the_ends_of_the_source(run: ThroughWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """L8: a record that the source takes while ingest asks for its ends is later than the observation's time."""
    for game in (CHESS, GO):
        run.split(game)
    before, backlog = run.clock.wall, run.recorder._source
    ends = backlog.ends

    def slowly() -> object:
        found = ends()
        run.clock.tick(3)
        run.produce(CHESS)
        run.clock.tick(3)
        return found

    monkeypatch.setattr(backlog, "ends", slowly)
    run.beat()
    monkeypatch.undo()
    run.beat()
    assert run.waits(CHESS, before)
    assert not run.waits(CHESS, before + 2), "nobody knows what came meanwhile"
    assert not run.waits(CHESS, before + 4), "the record is not landed"


def test_maintenance_keeps_the_table_of_times_small(tmp_path: Path) -> None:
    """L8: of a commit each heartbeat maintenance keeps the newest of the log, and no file of a killed ingest."""
    paths = Paths(tmp_path)
    table = ThroughTable(paths.through)
    table.read()
    for number in range(100):
        assert table.write([ThroughPair(number, float(number), "{}")])
    next_one = ThroughTable(paths.through)  # the first was killed: nobody knows its replaced files
    pairs = next_one.read()
    folder = Path(str(paths.through))
    assert len(on_disk(folder)) > 50
    assert len(list((folder / "_delta_log").glob("*.json"))) > 50
    maintain(paths, after=31 * DAY)
    assert on_disk(folder) == live(folder)
    assert len(list((folder / "_delta_log").glob("*.json"))) <= 12
    assert read_pairs(paths.through) == pairs
    assert next_one.write([*pairs, ThroughPair(100, 100.0, "{}")])
    assert [pair.seq for pair in read_pairs(paths.through)] == [99, 100]


def test_the_command_says_it_in_one_sentence(run: ThroughWorld) -> None:
    """L8: `turnout wait` exits with 0 where the game is complete and with 1 where it is not, with the reason."""
    run.split(CHESS)
    run.split(GO)
    folder = str(run.world.paths.root)

    def wait(moment: str, *more: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["--env-dir", folder, "wait", "Chess", "--through", moment, *more])
        return done.exit_code, done.output.strip()

    known = f"{CHESS.key} is complete through"
    code, text = wait("1970-01-12T13:46:40Z", "--timeout", "0")
    assert code == 1
    assert text.startswith(f"{known} no known time, not through 1970-01-12 13:46:40 UTC: ingest has recorded no time")
    run.beat()
    run.clock.tick(5)
    run.beat()
    assert wait("1970-01-12T13:46:40Z") == (0, f"{known} 1970-01-12 13:46:40 UTC.")
    code, text = wait("1970-01-12T14:46:41+01:00", "--timeout", "0")
    assert code == 1
    assert text.endswith("13:46:41 UTC: bronze has all of its source through 1970-01-12 13:46:40 UTC.")
    run.produce(CHESS)
    run.land(9)
    run.beat()
    run.clock.tick(5)
    run.beat()
    code, text = wait("1970-01-12T13:46:45Z", "--timeout", "0", "--json")
    found = json.loads(text)
    assert (code, found["ok"], found["next_seq"], found["cursor_seq"]) == (1, False, 2, 1)
    assert found["sentence"].endswith("its table is at seq 1 and lacks its rows of seq 2.")
    assert wait("yesterday")[0] == 2


def test_a_game_that_has_sent_nothing_is_complete_with_bronze(run: ThroughWorld) -> None:
    """L8: `turnout wait` knows a game by its first schema: there is nothing that its table could lack."""
    run.world.registry.register("New", "t.M", FIRST.descriptor_set)
    run.beat()
    run.clock.tick(5)
    run.beat()
    words = ["wait", "New", "--through", "1970-01-12T13:46:40Z", "--timeout", "0"]
    done = CliRunner().invoke(cli, [*words, "--env-dir", str(run.world.paths.root)])
    assert (done.exit_code, "is complete through 1970-01-12 13:46:40 UTC" in done.output) == (0, True), done.output
