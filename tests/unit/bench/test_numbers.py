import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import Arrivals
from bench.log import Commit, parse_commit
from bench.numbers import Slope, Spread, applied_at, backlog_age, block_means, held, quantile, spread, theil_sen
from bench.text import number, ranged, table
from bench.window import Window, exact, measure, render_summaries, summarise


def _add(seqs: tuple[int, int] | None, rows: int) -> str:
    low, high = ({"seq": each} for each in seqs) if seqs else ({}, {})
    stats = {"numRecords": rows, "minValues": low, "maxValues": high}
    return json.dumps({"add": {"path": "x", "size": 10, "stats": json.dumps(stats)}})


def _txn(app_id: str, version: int) -> str:
    return json.dumps({"txn": {"appId": app_id, "version": version}})


def test_the_reach_of_a_pass_is_its_cursor() -> None:
    """A game table's commit reaches as far as its cursor says; Spark's own batch numbers say nothing."""
    commit = parse_commit([_txn("turnout/local/chess/1", 17), _txn("a-query-id", 99), _add(None, 5)], 3, 8.0)
    assert commit == Commit(version=3, at=8.0, files=1, rows=5, bytes=10, seq_from=None, seq_to=17)


def test_the_reach_of_a_classic_commit_is_the_highest_seq_of_its_files() -> None:
    """A classic table knows no cursor: only its files' statistics tell how far it is."""
    commit = parse_commit([_txn("a-query-id", 99), _add((3, 6), 5), _add((2, 4), 1)], 3, 8.0)
    assert (commit.rows, commit.seq_from, commit.seq_to) == (6, 2, 6)


def test_a_commit_without_rows_tells_no_reach() -> None:
    """The classic layout commits for games without rows as well: such a commit is not progress."""
    assert parse_commit([_txn("a-query-id", 99)], 3, 8.0) == Commit(3, 8.0, 0, 0, 0, None, None)


def test_work_is_done_by_the_first_commit_that_reaches_it() -> None:
    """Latency ends with the first commit at or above a seq; what no commit reaches is never done."""
    assert applied_at([1, 4, 5, 9], [(4, 10.0), (8, 20.0)]) == [10.0, 10.0, 20.0, math.inf]
    assert applied_at([1], []) == [math.inf]


def test_the_oldest_waiting_item_is_the_backlogs_age() -> None:
    """Neither what is not there yet nor what is done already waits."""
    arrived, done = [0.0, 2.0, 9.0], [5.0, 8.0, math.inf]
    assert backlog_age([1.0, 4.0, 6.0, 8.5, 12.0], arrived, done) == [1.0, 4.0, 4.0, 0.0, 3.0]


@given(st.floats(-3, 3), st.floats(-50, 50), st.integers(3, 15))
def test_the_slope_of_a_line_is_the_lines(rise: float, start: float, count: int) -> None:
    """Without noise there is one slope, and no doubt about it."""
    slope = theil_sen(list(range(count)), [start + rise * at for at in range(count)])
    assert slope.low <= slope.per_second + 1e-9 <= slope.high + 2e-9
    assert (slope.per_second, slope.low, slope.high) == pytest.approx((rise, rise, rise), abs=1e-6)


def test_an_outlier_does_not_make_a_slope() -> None:
    """One long pause of the machine is not a growing backlog."""
    values = [5.0, 5.1, 4.9, 90.0, 5.0, 5.1, 4.9, 5.0, 5.1]
    assert abs(theil_sen(range(9), values).per_second) < 0.1


@pytest.mark.parametrize("times", [[0, 1], [0, 1, 1], [2, 1, 0]])
def test_a_slope_needs_points_in_time(times: list[float]) -> None:
    """Too few points, or points at one time, have no slope: that is an error, not a zero."""
    with pytest.raises(ValueError, match="three points"):
        theil_sen(times, [1.0] * len(times))


def test_held_means_no_growth_beyond_noise_and_none_that_matters() -> None:
    """Growth that is certain is not held, and noise does not excuse a backlog that doubles."""
    assert held(Slope(-0.1, -0.2, 0.1), 300, 5)
    assert held(Slope(0.01, -0.02, 0.05), 300, 5)
    assert not held(Slope(0.01, 0.005, 0.02), 300, 5)
    assert not held(Slope(0.5, -0.1, 1.0), 300, 5)


def test_blocks_are_whole() -> None:
    """A last block that is not full would be another phase of the saw tooth."""
    assert block_means([1, 3, 5, 7, 100], 2) == [2.0, 6.0]


def test_the_unknown_is_not_zero() -> None:
    """A quantile of nothing is unknown, and shown so."""
    assert quantile([], 0.5) is None
    assert number(None) == ranged(None) == "-"
    assert number(math.inf) == "never"


def test_numbers_keep_three_digits() -> None:
    """A reader compares figures, not noise."""
    assert [number(each) for each in (0.1234, 12.345, 1234.5678)] == ["0.12", "12.3", "1,235"]
    assert ranged(spread([3.0, 1.0, 2.0])) == "2.00 (1.00–3.00)"


def test_columns_of_a_table_line_up() -> None:
    """Each line has every column at the same place."""
    assert table(["name", "a"], [["x", "1.0"], ["longer", "22.0"]]).splitlines() == [
        "name       a",
        "------  ----",
        "x        1.0",
        "longer  22.0",
    ]


def _window() -> Window:
    return Window("shared", 100.0, 120.0, 4.0, {"jvm": 4.0}, 512.0, 9, 0.3, {}, settled=True)


def _work() -> Arrivals:
    return Arrivals(
        keys=["chess"],
        game=np.zeros(3, dtype=np.int64),
        seq=np.array([1, 2, 3]),
        rows=np.array([10, 10, 10]),
        source_at=np.array([98.0, 104.0, 111.0]),
        bronze_at=np.array([99.0, 105.0, 112.0]),
    )


_LOG = (
    Commit(1, 101.0, 1, 10, 5, 1, 1),
    Commit(2, 109.0, 1, 10, 5, 2, 2),
    Commit(3, 115.0, 0, 0, 0, None, None),
    Commit(4, 125.0, 1, 10, 5, 3, 3),
)


def test_only_what_was_committed_in_the_window_counts() -> None:
    """CPU time, commits and latencies are of the same window: a later commit improves none of them."""
    found = measure(_window(), {"chess": _LOG}, _work(), 10.0)
    assert (found.commits, found.empty_commits, found.cpu_ms_per_commit) == (2, 1, 2000.0)
    assert pytest.approx((found.rows_per_second, found.cores, found.p50_seconds, found.worst_game_p99_seconds)) == (
        1.0,
        0.2,
        3.0,
        3.98,
    )
    assert found.commits_per_game_and_trigger == pytest.approx(1.0)


def test_a_window_without_commits_has_no_cost_per_commit() -> None:
    """A contender that committed nothing was not free."""
    found = measure(_window(), {"chess": ()}, _work(), 10.0)
    assert found.cpu_ms_per_commit is None
    assert summarise([found])["cpu_ms_per_commit"] is None


def test_a_table_is_exact_when_it_has_bronzes_rows() -> None:
    """Between a table's first and last seq no row is missing and none is twice."""
    assert exact(_LOG, [0, 1, 2, 3], [99, 10, 10, 10])
    assert not exact(_LOG, [1, 2, 3], [10, 11, 10])
    assert not exact((), [1], [1])


def test_a_summary_shows_every_number_of_every_contender() -> None:
    """Medians come with their range, side by side."""
    summary = summarise([measure(_window(), {"chess": _LOG}, _work(), 10.0)])
    assert summary["cores"] == Spread(0.2, 0.2, 0.2)
    text = render_summaries({"tuned": summary, "shared": summary})
    assert "2,000 (2,000–2,000)" in text
    assert text.splitlines()[0].split()[-2:] == ["tuned", "shared"]
