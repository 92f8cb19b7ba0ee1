"""The load and the headroom of a group are measured or estimated, are named as such, and are never made up."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from app.components import group_load
from listeners.series import Series
from pipeline.health.verdicts.placement.capacity import GameLoad, GroupLoad, Load, Loads, tallied
from pipeline.store.database.states import OperationState
from pipeline.store.operations import Operation
from tests.unit.app.fleet_world import NOW, Game, fleet, series

OBJECTIVE = 60.0


def hour() -> Series:
    """Return an hour of group a, two games of 600 rows a minute each; its best minute had twice as many."""
    made = series(["one", "two", "other"], groups=["a", "a", "b"])
    made.rows[:2, 30] = 1200
    return made


def test_a_group_compares_with_the_most_it_kept_up_with() -> None:
    """Without a limit the highest minute in which no game was late counts, and the words name it with its time."""
    seen = group_load.course(hour(), "a", OBJECTIVE)
    assert seen.kept_up == group_load.Peak(2400.0, NOW - 30 * 60)
    assert seen.now == 1200
    said = group_load.headroom(GroupLoad("a"), seen, 0)
    assert said == "No limit is set. It kept up with 2\u202f400 rows/min at 07:30 UTC; now 1\u202f200, 50 % of it."


@pytest.mark.parametrize("why", ["late", "unknown", "caught up", "moved"])
def test_rows_that_were_late_or_another_groups_prove_nothing(why: str) -> None:
    """A minute with a late game, an unknown backlog, caught-up rows or games that came later is not kept up with."""
    made, since = hour(), 0.0
    if why == "late":
        made.backlog[0, 30] = 61.0
    elif why == "unknown":
        made.backlog[0, 30] = np.nan
    elif why == "caught up":
        made.caught_up[0, 30] = 1
    else:
        since = NOW - 29 * 60
    seen = group_load.course(made, "a", OBJECTIVE, since)
    assert seen.kept_up is not None
    assert seen.kept_up.per_minute == 1200


def test_a_parked_game_does_not_hide_what_the_others_keep_up_with() -> None:
    """A game without rows is late for ever, and no sign of a group that is full."""
    made = hour()
    made.rows[0, :], made.backlog[0, :] = 0, 9000.0
    seen = group_load.course(made, "a", OBJECTIVE)
    assert seen.kept_up is not None
    assert seen.kept_up.per_minute == 1200


def test_a_slot_without_a_report_is_unknown_and_no_zero() -> None:
    """A minute without a report is a gap in both charts; a group without any has no course and no peak."""
    made = hour()
    for values in (made.rows, made.commits):
        values[:2, 10] = 0
    made.status[:2, 10] = -1
    seen = group_load.course(made, "a", OBJECTIVE)
    assert (seen.per_minute[10], seen.cores[10]) == (None, None)
    assert seen.shares(2.0)[10] is None
    nobody = group_load.course(made, "gone", OBJECTIVE)
    assert not nobody.is_known
    assert (nobody.now, nobody.kept_up) == (None, None)
    assert group_load.headroom(GroupLoad("gone"), nobody, 0) == (
        "No limit is set. How much it keeps up with is not known yet."
    )


def test_the_course_estimates_as_the_placement_does() -> None:
    """The load over time of games that land alike is the one by which games are placed."""
    games = [(key, "a", Load(rows_per_second=10.0, commits_per_second=0.2)) for key in ("one", "two")]
    loads = tallied(games, [GroupLoad("a", capacity_cores=2.0)])
    seen = group_load.course(series(["one", "two"]), "a", OBJECTIVE)
    assert seen.cores[-1] == pytest.approx(loads.groups["a"].cores)
    assert seen.shares(2.0)[-1] == pytest.approx(loads.groups["a"].share)


@pytest.mark.parametrize(
    ("cores", "unknown", "said"),
    [
        (1.0, 0, "Could carry about 2 times as many rows"),
        (0.1, 0, "Could carry about 20 times as many rows"),
        (1.6, 0, "Could carry about 25 % more rows"),
        (2.5, 0, "Over its limit by 0.5 cores"),
        (0.0, 0, "Empty: its 2 cores are free."),
        (1.0, 3, "The load of 3 of its games is unknown."),
    ],
)
def test_headroom_is_words(cores: float, unknown: int, said: str) -> None:
    """A limit says how much more fits, by how much it is passed, and what of it is a guess."""
    assert said in group_load.headroom(GroupLoad("a", capacity_cores=2.0, games=1, cores=cores), None, unknown)


def test_starts_and_arrivals_are_marked_at_their_group_only() -> None:
    """A chart has the starts of its own driver and the games that came to it, not what failed or went elsewhere."""
    seen = fleet([Game("one"), Game("two", group="b")])
    done = SimpleNamespace(
        state=OperationState.SUCCEEDED, ended_at=NOW - 60, parameters={"assignments": {"x": "b", "y": "b"}}
    )
    failed = SimpleNamespace(state=OperationState.FAILED, ended_at=NOW - 50, parameters={"assignments": {"x": "a"}})
    operations = [cast(Operation, each) for each in (done, failed)]
    assert [each.label for each in group_load.marks(seen, None, operations, "a", NOW - 8000)] == ["starts"]
    assert [each.label for each in group_load.marks(seen, None, operations, "b", NOW - 8000)] == ["starts", "+2 games"]
    assert group_load.marks(seen, None, operations, "b", NOW - 30) == []
    assert group_load.games_came_at(operations, "b") == NOW - 60
    assert group_load.games_came_at(operations, "a") == 0.0


def test_a_plan_moves_load_from_one_group_to_the_other() -> None:
    """Before and after differ by exactly the games that move; unknown games and groups move nothing."""
    games = tuple(GameLoad(key, group, Load(), 0.5) for key, group in (("one", "a"), ("two", "a"), ("new", None)))
    groups = {"a": GroupLoad("a", games=2, cores=1.0), "b": GroupLoad("b", capacity_cores=1.0)}
    loads = Loads(games, groups)
    after = loads.after({"one": "b", "new": "b", "two": "a", "gone": "b"})
    assert (after["a"].games, after["a"].cores) == (1, 0.5)
    assert (after["b"].games, after["b"].share) == (2, 1.0)
    assert loads.after({"one": "nowhere"})["a"] == replace(groups["a"], games=1, cores=0.5)
