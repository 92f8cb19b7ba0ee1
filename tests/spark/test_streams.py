import os
import shutil
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from pyspark import cloudpickle
from sqlalchemy import update

from pipeline.base.names import game_key
from pipeline.data.streams import bronze_to_game
from pipeline.data.streams.writing.job import SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.data.verify.balance import verify
from pipeline.data.verify.report import run as report
from pipeline.demo.simulator import game_names
from pipeline.lake.delta.quarantine import REASONS
from pipeline.store.database.tables import games
from pipeline.store.stream_control import submit_retry

GAMES = [game_key(name) for name in game_names(12, 7, hostile=True)]


def _table(world: Any, key: str) -> pa.Table:
    return DeltaTable(world.paths.table(key)).to_pyarrow_table()


@pytest.mark.proves("G44")
def test_everything_lands_once_in_two_groups_and_a_second_run_adds_only_the_new(world: Any) -> None:
    """Laws L1 to L5: each sent row is in one game's table or in quarantine, once; no work is repeated."""
    sent = world.simulate(4_000)
    first, second = world.group("a"), world.group("b")
    world.ingest()
    world.split(first)
    world.split(second)
    balance = world.verify()
    assert balance.complete
    assert balance.totals.bronze_rows == 4_000
    assert balance.totals.landed == sent.by_kind["good"]
    assert {reason: sent.by_kind[reason] for reason in sent.by_kind if reason in REASONS} == dict(balance.by_reason)

    commits = {key: DeltaTable(world.paths.table(key)).version() for key in GAMES}
    world.simulate(1_000, games=3)
    world.ingest()
    world.split(first)
    world.split(second)
    assert world.verify().complete
    assert world.verify().totals.bronze_rows == 5_000
    idle = GAMES[3:]
    assert {key: commits[key] for key in idle} == {key: DeltaTable(world.paths.table(key)).version() for key in idle}


@pytest.mark.long
@pytest.mark.proves("G67")
def test_a_group_that_comes_late_catches_up(world: Any) -> None:
    """Law L7: what lies before the first micro-batch is read by catch-up, in bounded chunks, without a gap."""
    for _ in range(3):
        world.simulate(500)
        world.ingest()
    group = world.group("late")
    world.split(group)
    assert {"CATCHUP"} == {game.lane for each in world.passes for game in each.games if game.committed_at}
    assert world.verify().complete
    world.simulate(500)
    world.ingest()
    world.passes.clear()
    world.split(group)
    assert {"RUN"} == {game.lane for each in world.passes for game in each.games if game.committed_at}
    assert world.verify().complete


@pytest.mark.proves("G72")
def test_a_schema_that_grows_needs_no_restart(world: Any) -> None:
    """Old and new versions are decoded side by side; new fields become columns, and are null in older rows."""
    group = world.group("a")
    world.simulate(600, games=2, versions=1, bad_share=0)
    world.ingest()
    world.split(group)
    key = GAMES[0]
    before = _table(world, key)
    world.simulate(600, games=2, versions=6, bad_share=0)
    world.ingest()
    world.split(group)
    after = _table(world, key)
    assert world.verify().complete
    new = set(after.column_names) - set(before.column_names)
    assert new
    old_rows = after.filter(pa.compute.less_equal(after["_seq"], pa.scalar(before["_seq"][0].as_py())))
    assert before.num_rows == old_rows.num_rows
    assert all(old_rows[name].null_count == old_rows.num_rows for name in new)
    assert any(after[name].null_count < after.num_rows for name in new)
    by_name = world.spark.read.format("delta").load(str(world.paths.table(key)))
    assert after.num_rows == by_name.count()


@pytest.mark.long
@pytest.mark.proves("D11", "G31")
def test_two_owners_of_one_game_neither_lose_nor_double_a_row(world: Any) -> None:
    """Law L4, D11: a driver that writes on after a move cannot put a row in twice, nor make the other skip one."""
    zombie = world.group("a")
    world.simulate(600)
    world.ingest()
    world.split(zombie)
    heir = world.group("b")
    with world.engine.begin() as connection:
        connection.execute(update(games).values(group_name="b"))
    world.simulate(600)
    world.ingest()
    zombie.roster.sync = lambda: None  # it never hears of the move
    world.split(heir)
    world.split(zombie)
    world.simulate(600)
    world.ingest()
    world.split(zombie)
    world.split(heir)
    assert world.verify().complete


FORGIVEN: list[bool] = []
"""Not empty once no game kills a worker any more; pickled with each job."""


def _deadly(batches: Iterator[pa.RecordBatch], job: SplitJob) -> Iterator[pa.RecordBatch]:
    if not FORGIVEN and GAMES[4] in job.cursors:
        os._exit(139)
    yield from split(batches, job)


@pytest.mark.long
@pytest.mark.proves("D12", "G53")
def test_a_game_whose_rows_kill_the_worker_is_parked_and_the_others_go_on(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L6, D12: the game is found by halving; its rows wait, everybody else's are in the tables."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # pyspark's copy
    monkeypatch.setattr(bronze_to_game, "split", _deadly)
    world.simulate(600)
    world.ingest()
    group = world.group("a")
    world.split(group)
    balance = world.verify()
    assert balance.ok
    waiting = {each.game_key for each in balance.games if each.counts.pending}
    assert {GAMES[4]} == waiting
    assert "kill the worker" in (group.streams[GAMES[4]].error or "")
    monkeypatch.setattr(sys.modules[__name__], "FORGIVEN", [True])
    submit_retry(world.engine, GAMES[4], "somebody")
    group.finish()
    assert world.verify().complete


DEADLY: dict[str, int] = {}


def _kills_at_one_record(batches: Iterator[pa.RecordBatch], job: SplitJob) -> Iterator[pa.RecordBatch]:
    held = list(batches)
    rows = [row for batch in held for row in batch.select(["game_key", "seq", "pos"]).to_pylist()]
    for row in rows:
        place = (row["seq"], row["pos"])
        mine = row["game_key"] in job.cursors and place not in job.deadly
        if mine and (job.trial is None or job.trial[0] <= place <= job.trial[1]) and row["pos"] == DEADLY["pos"]:
            os.kill(os.getpid(), DEADLY["signal"])
    yield from split(iter(held), job)


@pytest.mark.parametrize(
    ("number", "lane"),
    [(signal.SIGSEGV, "RUN"), pytest.param(signal.SIGKILL, "CATCHUP", marks=pytest.mark.long)],
)
@pytest.mark.proves("G54")
def test_a_record_that_kills_the_worker_is_quarantined_alone(
    world: Any, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, lane: str
) -> None:
    """Law L6: a crash of the decoder, or the kernel's answer to memory used up, costs the one record that causes it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # pyspark's copy
    rows, pos, of = (600, 333, 12) if lane == "CATCHUP" else (12, 7, 3)  # each halving waits for a new worker
    world.simulate(rows, games=of, bad_share=0)
    world.ingest()
    DEADLY.update(pos=pos, signal=number)
    monkeypatch.setattr(bronze_to_game, "split", _kills_at_one_record)
    group = world.group("a")
    if lane == "RUN":
        world.split(group)
    else:
        group.finish()
    assert {lane} == {game.lane for each in world.passes for game in each.games}
    balance = world.verify()
    assert balance.complete
    assert dict(balance.by_reason) == {"kills_worker": 1}
    assert balance.totals.landed == rows - 1


@pytest.mark.proves("G45")
def test_a_replayed_batch_changes_nothing(world: Any) -> None:
    """Spark repeats the last micro-batch after a crash before its commit log: cursors and quarantine keep it out."""
    world.simulate(800)
    world.ingest()
    group = world.group("a")
    world.split(group)
    rows = world.verify().totals
    log = world.paths.checkpoints / "demux" / "a" / "query" / "commits"
    for file in log.iterdir():
        file.unlink()
    again = world.group("a")
    world.split(again)
    assert rows == world.verify().totals
    quarantine = DeltaTable(world.paths.quarantine).to_pyarrow_table()
    assert quarantine.num_rows == rows.quarantined


def test_a_table_that_was_moved_away_is_filled_again_from_bronze(world: Any) -> None:
    """Law L7: a stream without a table is merely behind; its refused rows are not written twice."""
    world.simulate(800, games=4, bad_share=0.2)
    world.ingest()
    world.split(world.group("a"))
    before = world.verify().totals
    shutil.move(world.paths.table(GAMES[0]), world.paths.root / "away")
    world.split(world.group("a"))
    assert before == world.verify().totals
    assert before.quarantined == DeltaTable(world.paths.quarantine).to_pyarrow_table().num_rows


@pytest.mark.parametrize("harm", ["deleted", "doubled", "moved"])
@pytest.mark.proves("G159")
def test_verify_fails_when_one_row_is_changed_by_hand(world: Any, harm: str) -> None:
    """The proof is one: a row deleted from, doubled in, or moved between tables makes the exit code 1."""
    world.simulate(400, games=4)
    world.ingest()
    world.split(world.group("a"))
    assert report(verify(world.paths, world.settings.environment), complete=True) == 0
    victim = DeltaTable(world.paths.table(GAMES[1]))
    row = victim.to_pyarrow_table().slice(0, 1)
    if harm == "doubled":
        write_deltalake(victim, row, mode="append")
    else:
        victim.delete(f"_seq = {row['_seq'][0]} and _pos = {row['_pos'][0]}")
    if harm == "moved":
        other = DeltaTable(world.paths.table(GAMES[2]))
        shared = [name for name in row.column_names if name.startswith("_")]
        write_deltalake(other, row.select(shared), mode="append", schema_mode="merge")
    assert report(verify(world.paths, world.settings.environment)) == 1
