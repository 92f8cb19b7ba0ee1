"""Guards the arithmetic of series: sums, quantiles and groups, where unknown is never 0."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from listeners.quantile import quantile
from listeners.series import BUCKETS, Series, by_game
from listeners.status import Status

GAMES = ("a", "b", "c")


def some() -> Series:
    """Return three games; `a` is of group y, the last slot was reported by nobody, the second by `a` only."""
    shape = (3, 3)
    rows = np.zeros(shape, np.int64)
    rows[:, 0] = (1, 2, 4)
    status = np.full(shape, -1, np.int64)
    status[:, 0] = (Status.RUNNING.severity, Status.LAGGING.severity, Status.RUNNING.severity)
    status[0, 1] = Status.RUNNING.severity
    backlog = np.full(shape, math.nan)
    backlog[:2, 0] = (0.0, 80.0)
    counts = np.zeros((*shape, BUCKETS), np.int64)
    counts[0, 0, 1], counts[1, 0, 7] = 1, 2
    nothing = np.zeros(shape, np.int64)
    events = np.array([7.0, 0.0, math.nan])
    return Series(
        960.0, 60, GAMES, ("y", "x", "x"), rows, nothing, nothing, nothing, counts, backlog, status, events, events
    )  # fmt: skip


def test_a_slot_that_nobody_reported_has_no_number() -> None:
    """Unknown is not 0: the total of a slot without reports is nan, that of a quiet one 0."""
    series = some()
    np.testing.assert_array_equal([7, 0, math.nan], series.total("rows"))
    np.testing.assert_array_equal([80, math.nan, math.nan], series.total("backlog"))
    np.testing.assert_array_equal([Status.LAGGING.severity, 0, math.nan], series.total("status"))
    np.testing.assert_array_equal([7, 0, math.nan], series.total("events"))
    assert np.isnan(series.of(()).total("rows")).all()
    assert np.isnan(series.of(()).total("backlog")).all()


def test_groups_have_the_totals_of_their_games() -> None:
    """A group's numbers are its games' and no others', and unknown where only other groups reported."""
    rows = some().by_group("rows")
    assert list(rows) == ["x", "y"]
    np.testing.assert_array_equal([6, math.nan, math.nan], rows["x"])
    np.testing.assert_array_equal([1, 0, math.nan], rows["y"])


def test_some_games_are_those_games() -> None:
    """A selection keeps each array of the right games, in order, and leaves out a game without reports."""
    series = some().of(["c", "nobody", "a"])
    assert (series.games, series.groups) == (("a", "c"), ("y", "x"))
    assert series.rows.tolist() == [[1, 0, 0], [4, 0, 0]]
    assert series.counts.shape == (2, 3, BUCKETS)


def test_a_young_environment_has_its_age_as_range() -> None:
    """Slots before an environment began are no gap; a slot that somebody reported stays, whenever it began."""
    series = some()
    for name in ("rows", "status"):
        getattr(series, name)[:, 0] = -1 if name == "status" else 0
    series.events[0] = math.nan
    later = series.begun(1050.0)
    assert (later.since, later.slots, later.rows.shape, later.counts.shape[:2]) == (1020.0, 2, (3, 2), (3, 2))
    assert later.events.tolist()[0] == 0.0
    assert series.begun(1000.0) is series, "it began within the first slot"
    assert some().begun(5000.0).slots == 3


def test_the_last_slot_may_have_fewer_seconds() -> None:
    """Rates: sums are divided by the seconds that are closed, not by those of the slot."""
    series = replace(some(), slot_seconds=360, since=720.0, until=720.0 + 780)
    assert series.seconds.tolist() == [360, 360, 60]
    assert some().seconds.tolist() == [60, 60, 60]


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=BUCKETS, max_size=BUCKETS), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]),
)
def test_latency_is_the_quantile_of_all_rows(counts: list[list[int]], share: float) -> None:
    """Page and driver compute one p95: that of the summed buckets, and none without rows."""
    series = replace(some(), counts=np.array(counts, np.int64).reshape(-1, 1, BUCKETS))
    wanted = quantile([sum(column) for column in zip(*counts, strict=True)], share)
    assert series.latency(share)[0] == pytest.approx(math.nan if wanted is None else wanted, nan_ok=True)


def test_latency_of_some_games() -> None:
    """A group's latency has no rows of other groups."""
    series = some()
    assert series.latency(1.0, ["b"])[0] == 60.0
    assert series.latency(1.0, ["a"])[0] == 1.0
    assert math.isnan(series.latency(1.0, ["c"])[0])
    with pytest.raises(ValueError, match="from 0 to 1"):
        series.latency(95)


def moved() -> Series:
    """Return two games: `a` was in group x, was reported by nobody, and is in y; `b` is in x."""
    rows = np.array([[5, 0, 0, 0], [0, 0, 1, 2], [7, 7, 7, 7]], np.int64)
    nothing, quiet = np.zeros_like(rows), np.zeros(4)
    lines = Series(
        960.0, 60, ("a", "a", "b"), ("x", "y", "x"), rows, nothing, nothing, nothing,
        np.zeros((*rows.shape, BUCKETS), np.int64), np.where(rows > 0, rows, np.nan), np.where(rows > 0, 0, -1),
        quiet, quiet,
    )  # fmt: skip
    return by_game(lines, [(0, 1, 0), (3, 1, 1), (3, 1, 2)])


def test_a_group_keeps_the_hour_of_a_game_that_left_it() -> None:
    """After a move the minutes before it stay the old group's, and the new group has only its own."""
    series = moved()
    assert (series.games, series.groups) == (("a", "b"), ("y", "x"))
    assert series.rows.tolist() == [[5, 0, 1, 2], [7, 7, 7, 7]]
    rows = series.by_group("rows")
    np.testing.assert_array_equal([12, 7, 7, 7], rows["x"])
    np.testing.assert_array_equal([math.nan, math.nan, 1, 2], rows["y"])
    np.testing.assert_array_equal([7, 7, 7, 7], series.by_group("backlog")["x"])
    assert sorted(series.of_group("x").games) == ["a", "b"]
    assert series.of_group("y").rows.tolist() == [[0, 0, 1, 2]]
    assert series.of_group("z").games == ()
    np.testing.assert_array_equal(rows["y"], series.of(["a"]).by_group("rows")["y"])
    assert list(series.of(["b"]).by_group("rows")) == ["x"]


def test_each_slot_of_a_game_knows_its_group() -> None:
    """A slot has the group that reported it, a gap has none, and a game that stayed has one group."""
    assert moved().group_by_slot("a") == ["x", None, "y", "y"]
    assert moved().of(["a"]).group_by_slot("a") == ["x", None, "y", "y"]
    assert moved().group_by_slot("b") == ["x"] * 4
    assert moved().group_by_slot("nobody") == [None] * 4
