"""One judgement: page, `turnout status`, /metrics and the metrics tables agree over random histories of a fleet.

`SIGNALS_SEED=… python -m pytest tests/signals/test_one_judgement.py -k seed` runs one history again.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest

from listeners import history as passes_of
from listeners.metrics_table import MetricsTables
from listeners.quantile import quantile
from listeners.sample import LATENCY_EDGES_SECONDS, StreamState
from listeners.status import Status
from pipeline.api.series import open_reader
from tests.signals.histories import START, History, Running, World, world
from tests.signals.surfaces import SHARES, check_window, compare, scrape

FEW, MANY, BATCH = 40, 10_000, 50
TICKS: Final = (3, 10)
_MINUTE: Final = 60.0
_MICROSECONDS: Final = 0.001  # the tables round to one


@pytest.fixture(scope="module")
def made() -> Iterator[World]:
    with world() as opened:
        yield opened


def follow(of: World, seed: object) -> History:
    """Run one history and compare the surfaces at random moments of it, and at its end."""
    history = of.history(seed)
    ticks = history.random.randint(*TICKS)
    for tick, now in enumerate(history.run(ticks), 1):
        if tick == ticks or history.random.random() < 0.2:
            compare(history)
            for process in history.processes.values():
                if process.kind == "group" and not process.was_skewed:
                    check_window(history, process, now)
    return history


def judge(of: World, seeds: Sequence[object]) -> None:
    """Follow histories, then compare what the metrics tables have of all of them."""
    of.take_new_tables()
    followed = []
    for seed in seeds:
        try:
            followed.append(follow(of, seed))
            followed[-1].finish()
        except Exception as error:
            error.add_note(f"history {seed}: run it again with SIGNALS_SEED={seed}")
            raise
    assert of.tables.flush()
    compare_tables(of.tables, of, followed)


def compare_tables(written: MetricsTables, of: World, followed: Sequence[History]) -> None:
    """The tables have what the drivers reported, minute by minute, and nothing of the time in which none did."""
    assert written.dropped == 0
    place: Any = SimpleNamespace(metrics=of.metrics)
    series = open_reader(place).read(60, 60, START + 3_600, 0.0)
    at = {key: number for number, key in enumerate(series.games)}
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in passes_of.passes(of.metrics, None, START - 3_600).to_pylist():
        rows[row["run_id"]].append(row)
    changes = passes_of.transitions(of.metrics, START - 3_600, 1_000_000).to_pylist()
    for history in followed:
        try:
            processes = [each for each in (*history.ended, *history.processes.values()) if each.kind == "group"]
            certain, possible = _by_minute(processes)
            for key in history.tables:
                for slot in range(series.slots):
                    known = -1 if key not in at else int(series.status[at[key], slot])
                    minute = START + slot * _MINUTE
                    _compare_minute(known, certain[key, minute], possible[key, minute])
            for process in processes:
                _compare_totals(process, rows[process.spark_run])
                if not process.was_skewed and process in history.processes.values():
                    _compare_window(process, rows[process.spark_run])
                    _compare_changes(process, changes)
        except AssertionError as error:
            error.add_note(f"history {history.seed}: run it again with SIGNALS_SEED={history.seed}")
            raise


Ranks = dict[tuple[str, float], list[int]]


def _by_minute(processes: Sequence[Running]) -> tuple[Ranks, Ranks]:
    """Return the statuses that drivers reported, by game and minute; a killed one may have taken some with it."""
    certain: Ranks = defaultdict(list)
    possible: Ranks = defaultdict(list)
    for process in processes:
        for state in process.log:
            key = (state.game_key, state.updated_at // _MINUTE * _MINUTE)
            (possible if process.is_killed else certain)[key].append(Status(state.status).severity)
    return certain, possible


def _compare_minute(known: int, certain: Sequence[int], possible: Sequence[int]) -> None:
    least, most = max(certain, default=-1), max((*certain, *possible), default=-1)
    assert least <= known <= most, (known, certain, possible)


def _compare_totals(process: Running, rows: Sequence[dict[str, Any]]) -> None:
    """All that a driver counts in /metrics is in the table, by game and bucket."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0] * (len(LATENCY_EDGES_SECONDS) + 1))
    landed: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["error"] is None:
            landed[row["game_key"]] += row["rows"]
            totals[row["game_key"]] = [
                a + b for a, b in zip(totals[row["game_key"]], row["latency_counts"], strict=True)
            ]
    counted = process.telemetry.exposition.snapshot().games
    for key, total in counted.items():
        assert list(total.latency_counts) == totals[key]
        assert total.rows == landed[key]
    assert landed.keys() <= counted.keys()


def _compare_window(process: Running, rows: Sequence[dict[str, Any]]) -> None:
    """The latencies of the last five minutes, as the driver reports them, follow from the table's rows as well."""
    assert process.group is not None
    for key, state in process.published.items():
        stream = process.group.streams.get(key)
        if stream is None:
            continue
        counts = [0] * (len(LATENCY_EDGES_SECONDS) + 1)
        for row in rows:
            if row["game_key"] == key and row["error"] is None and _is_within(row, state, stream.taken_at):
                counts = [a + b for a, b in zip(counts, row["latency_counts"], strict=True)]
        for name, share in SHARES:
            assert quantile(counts, share) == getattr(state, f"latency_{name}_seconds"), (key, name)


def _is_within(row: dict[str, Any], state: StreamState, taken_at: float) -> bool:
    at, finished = row["committed_at"].timestamp(), row["finished_at"].timestamp()
    is_own = taken_at - _MICROSECONDS <= finished <= state.updated_at + _MICROSECONDS
    return bool(state.updated_at - 300 < at and is_own)


def _compare_changes(process: Running, changes: Sequence[dict[str, Any]]) -> None:
    """The last change of a stream's status in the table is to the one that its driver reports."""
    own = [each for each in changes if each["cluster_group"] == process.name]
    for key, state in process.published.items():
        newest = next(each for each in own if each["game_key"] == key)  # the newest first
        assert newest["to_status"] == state.status


@pytest.mark.proves("G131")
def test_all_surfaces_agree_over_random_histories(made: World) -> None:
    """Statuses, counts, latencies and what is unknown are the same wherever a person looks."""
    judge(made, range(FEW))


@pytest.mark.skipif("SIGNALS_SEED" not in os.environ, reason="names no history to run again")
def test_a_seed_can_be_run_again(made: World) -> None:
    """A history that failed is run again alone."""
    judge(made, [int(os.environ["SIGNALS_SEED"])])


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.proves("G131")
def test_all_surfaces_agree_over_ten_thousand_histories(made: World) -> None:
    """The same for many more; SIGNALS_HISTORIES runs another number, from SIGNALS_FROM on."""
    begin = int(os.environ.get("SIGNALS_FROM", "1000"))
    seeds = range(begin, begin + int(os.environ.get("SIGNALS_HISTORIES", str(MANY))))
    for first in range(0, len(seeds), BATCH):
        judge(made, seeds[first : first + BATCH])


def test_a_killed_driver_is_in_no_metric(made: World) -> None:
    """A process that does not answer has no series, so nothing of it can look well."""
    history = made.history("killed")
    process = history.processes["group", "a"]
    history.kill(process)
    assert scrape(process) is None
