"""Guards the metrics tables: each row once, whatever the store does; and that history reads them truly."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from listeners import history, metrics_table
from listeners.join import Pass
from listeners.metrics_schema import GROUP_SAMPLE, PROCESS_SAMPLE, STATUS_EVENT, STREAM_BATCH, TABLES
from listeners.metrics_table import CHECKPOINT_COMMITS, MetricsTables
from listeners.quantile import quantile
from listeners.sample import (
    LATENCY_EDGES_SECONDS,
    GameResult,
    GroupSample,
    IngestMinute,
    Lane,
    PassResult,
    ProcessMinute,
    Progress,
    Segments,
    StatusEvent,
    StreamMinute,
)
from listeners.totals import GroupTotals, ProcessSample, SelfCounts
from pipeline.lake.storage.places import located

NOW = 1_767_600_000.0  # 2026-01-05
DAY = 86_400.0
EMPTY = (0,) * (len(LATENCY_EDGES_SECONDS) + 1)


def counts(**buckets: int) -> tuple[int, ...]:
    """Return counts of 0 but for the named buckets: `b2=5` puts 5 rows into the third one."""
    return tuple(buckets.get(f"b{index}", 0) for index in range(len(EMPTY)))


def game(key: str = "chess_a", seq: int = 1, **changes: Any) -> GameResult:
    values = {
        "lane": Lane.RUN,
        "seq_from": seq,
        "seq_to": seq,
        "rows": 4,
        "rejects": {"malformed_payload": 1},
        "files": 1,
        "bytes": 100,
        "committed_at": NOW + 1,
        "commit_seconds": 0.1,
        "latency_counts": counts(b1=4),
    }
    return GameResult(key, **{**values, **changes})


def reported(
    batch_id: int, *games: GameResult, run_id: str = "run", at: float = NOW, progress: Progress | None = None
) -> Pass:
    return Pass(PassResult("eu-1", run_id, batch_id, at, at + 2, 1, games or (game(),)), progress)


def versions(folder: Path) -> int:
    return DeltaTable(folder / STREAM_BATCH.name).version()


def test_segments_and_rows_that_were_caught_up_are_kept(tmp_path: Path) -> None:
    """Where latency comes from, and what it excludes, survives the table; an unknown segment is null."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    segments = Segments(1.0, 2.0, 0.1, 30.0)
    tables.add(reported(1, game(caught_up_rows=3, segments_seconds=segments), game("go_b")))
    assert tables.flush()
    names = ["caught_up_rows", "queue_seconds", "process_seconds", "commit_seconds", "upstream_seconds"]
    first, second = history.passes(located(tmp_path), None, NOW).select(names).to_pylist()
    assert list(first.values()) == [3, 1.0, 2.0, 0.1, 30.0]
    assert list(second.values()) == [0, None, None, 0.1, None]


def test_a_pass_is_read_back_as_it_was(tmp_path: Path) -> None:
    """Every number of a pass and of its progress survives the table, unknown ones as null."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    progress = Progress("q", "id", "run", 1, "", 9, {"addBatch": 300})
    games = game(broken={"sales/price": 2}), game("go_b", committed_at=None, error="store down")
    tables.add(reported(1, *games, progress=progress))
    tables.add(reported(2))
    counted = Pass(replace(reported(3).result, input_rows=7), replace(progress, input_rows=None))
    tables.add(counted)
    assert tables.flush()
    first, second, third, fourth = history.passes(located(tmp_path), None, NOW).to_pylist()
    assert first["committed_at"].timestamp() == NOW + 1
    assert {name: first[name] for name in ("cluster_group", "game_key", "lane", "rows", "rejects", "pass_seconds")} == {
        "cluster_group": "eu-1",
        "game_key": "chess_a",
        "lane": "RUN",
        "rows": 4,
        "rejects": 1,
        "pass_seconds": 2.0,
    }
    assert list(counts(b1=4)) == first["latency_counts"]
    assert (
        first["reject_reasons"],
        first["durations"],
        first["input_rows"],
        first["broken"],
    ) == ([("malformed_payload", 1)], [("addBatch", 300)], 9, [("sales/price", 2)])
    assert (second["game_key"], second["committed_at"], second["error"]) == ("go_b", None, "store down")
    assert (third["batch_id"], third["input_rows"], third["durations"]) == (2, None, None)
    assert (fourth["input_rows"], fourth["durations"]) == (7, [("addBatch", 300)])
    assert tables.waiting == 0


def test_a_lost_reply_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the store commits but the answer is lost, the retry finds the version and does not append again."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    tables.add(reported(1))

    def write_and_lose_the_reply(*args: Any, **kwargs: Any) -> None:
        write_deltalake(*args, **kwargs)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(metrics_table, "write_deltalake", write_and_lose_the_reply)
        assert not tables.flush()
    assert (tables.waiting, tables.flush_failures) == (1, 1)
    before = versions(tmp_path)
    assert tables.flush()
    assert before == versions(tmp_path)
    assert (DeltaTable(tmp_path / STREAM_BATCH.name).count(), tables.waiting) == (1, 0)


@pytest.mark.proves("G135")
def test_a_store_that_is_down_costs_nothing_until_the_buffer_is_full(tmp_path: Path) -> None:
    """Rows wait for the store; beyond the capacity the oldest are dropped and counted."""
    folder = tmp_path / "metrics"
    folder.write_text("not a folder")
    tables = MetricsTables(located(folder), "eu-1", capacity=3)
    for batch_id in range(5):
        tables.add(reported(batch_id))
    assert not tables.flush()
    # The three newest are on their way now, and three more may wait behind them.
    for batch_id in range(5, 9):
        tables.add(reported(batch_id))
    assert not tables.flush()
    assert (tables.waiting, tables.dropped) == (3 + 3, 2 + 1)
    folder.unlink()
    assert tables.flush()
    assert history.passes(located(folder), None, 0.0)["batch_id"].to_pylist() == [2, 3, 4, 6, 7, 8]


def test_one_failing_table_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """Status events are written even when the passes' table cannot be."""
    (tmp_path / STREAM_BATCH.name).write_text("not a folder")
    tables = MetricsTables(located(tmp_path), "eu-1")
    tables.add(reported(1))
    tables.add(StatusEvent("chess_a", "eu-1", NOW, None, "STARTING", None))
    assert not tables.flush()
    assert history.transitions(located(tmp_path), 0.0, 10).num_rows == 1


def test_a_row_that_fits_no_column_does_not_block_the_rest(tmp_path: Path) -> None:
    """A number too large for its column is dropped with its batch and counted, and later rows are written."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    tables.add(reported(1, game(bytes=2**70)))
    assert not tables.flush()
    tables.add(reported(2))
    assert tables.flush()
    assert (history.passes(located(tmp_path), None, 0.0)["batch_id"].to_pylist(), tables.dropped) == ([2], 1)


def test_a_restarted_writer_does_not_take_old_commits_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second writer of the same name, whose first try fails, still writes although its versions begin again."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("store down")

    for batch_id in range(2):
        tables = MetricsTables(located(tmp_path), "eu-1")
        tables.add(reported(batch_id))
        with monkeypatch.context() as patched:
            patched.setattr(metrics_table, "write_deltalake", fail)
            assert not tables.flush()
        assert tables.flush()
    assert history.passes(located(tmp_path), None, 0.0)["batch_id"].to_pylist() == [0, 1]


def test_two_writers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    """Writers that share the folder, even in creating it, both get all rows in exactly once."""
    barrier = threading.Barrier(2, timeout=30)

    def write(run_id: str) -> None:
        tables = MetricsTables(located(tmp_path), run_id)
        barrier.wait()
        for batch_id in range(8):
            tables.add(reported(batch_id, run_id=run_id))
            tables.flush()
        assert tables.close(30)

    threads = [threading.Thread(target=write, args=(run_id,)) for run_id in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = DeltaTable(tmp_path / STREAM_BATCH.name).to_pyarrow_table(columns=["run_id", "batch_id"]).to_pylist()
    expected = [(run_id, batch_id) for run_id in "ab" for batch_id in range(8)]
    assert expected == sorted((row["run_id"], row["batch_id"]) for row in stored)


def test_the_writer_thread_flushes_and_closing_writes_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread writes without being asked, and what waits at the end is written by closing."""
    often, seldom = MetricsTables(located(tmp_path), "eu-1"), MetricsTables(located(tmp_path), "eu-2")
    written, flush = threading.Event(), often.flush

    def observed() -> bool:
        done = flush()
        if not often.waiting:
            written.set()
        return done

    often.add(reported(1))
    monkeypatch.setattr(often, "flush", observed)
    often.start(0.01)
    seldom.start(3600.0)
    assert written.wait(10)
    seldom.add(reported(2))
    assert seldom.close(30)
    assert often.close(30)
    assert history.passes(located(tmp_path), None, 0.0).num_rows == 2


def test_any_engine_can_write_the_tables(tmp_path: Path) -> None:
    """The protocol stays reader 1 / writer 2, and the only partition is the date."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    tables.add(reported(1))
    tables.add(StatusEvent("chess_a", "eu-1", NOW, "STARTING", "RUNNING", "caught up"))
    tables.add(GroupSample("eu-1", NOW, None, 3, 1, None))
    tables.add(StreamMinute(NOW, "chess_a", "eu-1", 0, 0, 0, 0, (), None, None))
    tables.add(IngestMinute(NOW, 0, 0, 0))
    tables.add(ProcessMinute(NOW, "group", "eu-1", 1.0, 60.0, is_whole=True))
    tables.add(ProcessSample("group", "eu-1", "p", NOW, GroupTotals(), None, {}, SelfCounts()))
    assert tables.flush()
    for table in TABLES:
        delta = DeltaTable(tmp_path / table.name)
        protocol = delta.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features) == (1, 2, None)
        assert delta.metadata().partition_columns == ["event_date"]


def test_a_table_of_an_older_turnout_gets_the_columns_it_lacks(tmp_path: Path) -> None:
    """An upgrade loses no row: the first write of a new column adds it, and older rows have null there."""
    path = tmp_path / PROCESS_SAMPLE.name
    older = pa.schema([field for field in PROCESS_SAMPLE.schema if field.name != "cpu_seconds"])
    row = {"event_date": datetime.fromtimestamp(NOW, UTC).date(), "kind": "group", "name": "eu-1"}
    write_deltalake(path, pa.Table.from_pylist([row], schema=older), partition_by=["event_date"])
    tables = MetricsTables(located(tmp_path), "eu-1")
    for seconds in (7.5, 8.5):
        tables.add(ProcessSample("group", "eu-1", "p", NOW, None, None, {}, SelfCounts(cpu_seconds=seconds)))
        assert tables.flush()
    assert tables.flush_failures == 0
    read = DeltaTable(path).to_pyarrow_table()["cpu_seconds"].to_pylist()
    assert sorted(read, key=str) == [7.5, 8.5, None]


def test_checkpoints_are_written(tmp_path: Path) -> None:
    """Readers need not replay the whole log: a checkpoint follows every few commits."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    for number in range(CHECKPOINT_COMMITS):
        tables.add(GroupSample("eu-1", NOW + number, number, 3, 1, 2.5))
        assert tables.flush()
    marker = tmp_path / GROUP_SAMPLE.name / "_delta_log" / "_last_checkpoint"
    assert json.loads(marker.read_text())["version"] >= CHECKPOINT_COMMITS - 1


def test_tables_that_do_not_exist_read_as_empty(tmp_path: Path) -> None:
    """A new environment has no history, which is no error, and its columns are the same."""
    assert STREAM_BATCH.schema == history.passes(located(tmp_path), "chess_a", 0.0).schema
    assert STATUS_EVENT.schema == history.transitions(located(tmp_path), 0.0, 10).schema
    assert list(history.summary(located(tmp_path), 0.0)) == []


def test_history_keeps_its_columns(tmp_path: Path) -> None:
    """Results have the types of an empty answer, with rows or without."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    tables.add(reported(1))
    assert tables.flush()
    assert STREAM_BATCH.schema == history.passes(located(tmp_path), "chess_a", 0.0).schema
    assert STREAM_BATCH.schema == history.passes(located(tmp_path), "nobody", 0.0).schema


def test_doubled_rows_are_read_once(tmp_path: Path) -> None:
    """If a row got into the table twice, neither the passes nor the sums show it twice; chunks stay apart."""
    for _ in range(2):
        tables = MetricsTables(located(tmp_path), "eu-1")
        tables.add(reported(1, game(seq=1), game(seq=2)))
        tables.add(StatusEvent("chess_a", "eu-1", NOW, None, "RUNNING", None))
        assert tables.flush()
    assert DeltaTable(tmp_path / STREAM_BATCH.name).count() == 4
    assert history.passes(located(tmp_path), None, 0.0)["seq_from"].to_pylist() == [1, 2]
    assert history.transitions(located(tmp_path), 0.0, 10).num_rows == 1
    assert [entry.rows for entry in history.summary(located(tmp_path), 0.0)] == [8]


def test_chunks_of_catch_up_are_all_read(tmp_path: Path) -> None:
    """Catch-up has no run of its own: a chunk that failed and its repetition share their key, and both are kept."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    failed = game(rows=0, rejects={}, latency_counts=EMPTY, committed_at=None, error="store down")
    tables.add(reported(-1, failed, run_id="catch-up"))
    tables.add(reported(-1, game(), run_id="catch-up", at=NOW + 5))
    assert tables.flush()
    assert [(entry.rows, entry.errors) for entry in history.summary(located(tmp_path), 0.0)] == [(4, 1)]


def test_since_and_game_choose_the_rows(tmp_path: Path) -> None:
    """Only the asked game and time are read, also across a change of date."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    for day in range(3):
        tables.add(reported(day, game("chess_a"), game("go_b"), at=NOW + day * DAY))
    assert tables.flush()
    assert history.passes(located(tmp_path), "go_b", NOW + DAY + 2)["batch_id"].to_pylist() == [1, 2]
    assert history.passes(located(tmp_path), "go_b", NOW + DAY + 2.001)["batch_id"].to_pylist() == [2]
    assert {"go_b"} == set(history.passes(located(tmp_path), "go_b", 0.0)["game_key"].to_pylist())


def test_the_summary_adds_up_and_omits_failures(tmp_path: Path) -> None:
    """Rows of failed results are not counted, and percentiles come from the summed buckets."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    tables.add(reported(1, game(rows=90, latency_counts=counts(b0=90)), game("go_b", error="down", committed_at=None)))
    tables.add(reported(2, game(rows=10, latency_counts=counts(b4=10))))
    tables.add(reported(3, game("ludo_c", rows=0, latency_counts=EMPTY)))
    assert tables.flush()
    chess, go, ludo = history.summary(located(tmp_path), NOW)
    assert (chess.game_key, chess.rows, chess.rejects, chess.commits, chess.errors) == ("chess_a", 100, 2, 2, 0)
    assert chess.p50_seconds == pytest.approx(0.5 * 50 / 90)
    assert chess.p95_seconds == pytest.approx(7.5)
    assert chess.p99_seconds == pytest.approx(9.5)
    assert chess.last_commit_at == NOW + 1
    assert (go.game_key, go.rows, go.rejects, go.commits, go.errors, go.last_commit_at) == ("go_b", 0, 0, 0, 1, None)
    assert (ludo.rows, ludo.p50_seconds, ludo.p95_seconds, ludo.p99_seconds) == (0, None, None, None)


def test_transitions_are_newest_first_and_limited(tmp_path: Path) -> None:
    """The dashboard asks for the last few changes."""
    tables = MetricsTables(located(tmp_path), "eu-1")
    for number in range(5):
        tables.add(StatusEvent("chess_a", "eu-1", NOW + number, "RUNNING", "LAGGING", str(number)))
    assert tables.flush()
    assert history.transitions(located(tmp_path), NOW, 2)["detail"].to_pylist() == ["4", "3"]
    assert history.transitions(located(tmp_path), NOW + 4, 2)["detail"].to_pylist() == ["4"]


@given(
    st.lists(st.integers(0, 50), min_size=len(EMPTY), max_size=len(EMPTY)),
    st.lists(st.floats(0, 1), min_size=2, max_size=2),
)
def test_a_quantile_grows_with_q_and_lies_in_its_bucket(buckets: list[int], shares: list[float]) -> None:
    """Interpolation never leaves the bucket that holds the rank, and a larger share is never faster."""
    low, high = (quantile(buckets, share) for share in sorted(shares))
    if low is None or high is None:
        assert (sum(buckets), low, high) == (0, None, None)
        return
    assert 0 <= low <= high <= LATENCY_EDGES_SECONDS[-1]
    for seconds, share in ((low, min(shares)), (high, max(shares))):
        reached = sum(
            count
            for count, edge in zip(buckets, (0.0, *LATENCY_EDGES_SECONDS), strict=True)
            if edge < seconds or seconds == LATENCY_EDGES_SECONDS[-1]
        )
        assert reached >= share * sum(buckets) - 1e-6


def test_a_quantile_of_nothing_is_unknown() -> None:
    """No rows have no latency, and what has no upper edge is told as its lower one."""
    assert quantile(EMPTY, 0.5) is None
    assert LATENCY_EDGES_SECONDS[-1] == quantile(counts(b13=1), 0.5)
    assert quantile(counts(b1=2), 0.5) == 0.75
    for q, wrong in ((1.1, EMPTY), (0.5, (1, 2))):
        with pytest.raises(ValueError, match="expected shares"):
            quantile(wrong, q)
