"""The load and the headroom of a group are measured or estimated, are named as such, and are never made up."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from app.components import group_cards, group_load
from app.state.control_queries import ControlState
from listeners.series import Series, by_game
from pipeline.health.verdicts.placement.capacity import GameLoad, GroupLoad, Load, Loads, tallied
from pipeline.store.database.states import OperationState
from pipeline.store.operations import Operation
from pipeline.store.processes.runs import Run
from pipeline.store.rows import Driver
from tests.unit.app.fleet_world import NOW, Game, fleet, series

OBJECTIVE = 60.0


def hour() -> Series:
    """Return an hour of group a, two games of 600 rows a minute each; its best minute had twice as many."""
    made = series(["one", "two", "other"], groups=["a", "a", "b"])
    made.rows[:2, 30] = 1200
    return made


def came_to_a(made: Series, slot: int) -> Series:
    """Return the same hour, whose games of group a were in b before a slot."""
    kept = np.array([0, 0, 1, 1, 2])
    arrays = {}
    for name, nothing in {"rows": 0, "commits": 0, "caught_up": 0, "refused": 0, "counts": 0, "status": -1}.items():
        arrays[name] = getattr(made, name)[kept].copy()
        arrays[name][[1, 3], slot:] = arrays[name][[0, 2], :slot] = nothing
    lines = replace(
        made, games=("one", "one", "two", "two", "other"), groups=("a", "b", "a", "b", "b"),
        backlog=made.backlog[kept], **arrays,
    )  # fmt: skip
    return by_game(lines, [(59, 0), (slot - 1, 0), (59, 0), (slot - 1, 0), (59, 0)])


def test_a_group_keeps_its_hour_after_a_drain() -> None:
    """Rows that games landed before they moved are the old group's course, and not the new one's."""
    made = came_to_a(hour(), 40)
    left, came = (group_load.course(made, name, OBJECTIVE) for name in ("b", "a"))
    assert (came.per_minute[39], came.per_minute[40]) == (None, 1200)
    assert (left.per_minute[39], left.per_minute[40]) == (1800, 600)
    assert (left.kept_up, came.kept_up) == (group_load.Peak(3000.0, NOW - 30 * 60), group_load.Peak(1200.0, NOW - 1200))
    empty = came_to_a(hour(), 60)
    assert not group_load.course(empty, "a", OBJECTIVE).is_known


def test_a_group_compares_with_the_most_it_kept_up_with() -> None:
    """Without a limit the highest minute in which no game was late counts, and the words name it with its time."""
    seen = group_load.course(hour(), "a", OBJECTIVE)
    assert seen.kept_up == group_load.Peak(2400.0, NOW - 30 * 60)
    assert seen.now == 1200
    said = group_load.headroom(GroupLoad("a"), seen, 0)
    assert said == "No limit is set. It kept up with 2\u202f400 rows/min at 07:30 UTC; lately 1\u202f200, 50 % of it."


@pytest.mark.parametrize("why", ["late", "unknown", "caught up", "another group's"])
def test_rows_that_were_late_or_another_groups_prove_nothing(why: str) -> None:
    """A minute with a late game, an unknown backlog, caught-up rows or rows of another group is not kept up with."""
    made = hour()
    if why == "late":
        made.backlog[0, 30] = 61.0
    elif why == "unknown":
        made.backlog[0, 30] = np.nan
    elif why == "caught up":
        made.caught_up[0, 30] = 1
    else:
        made = came_to_a(made, 31)
    seen = group_load.course(made, "a", OBJECTIVE)
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
    assert (seen.per_minute[10], seen.estimated[10]) == (None, None)
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
    assert seen.estimated[-1] == pytest.approx(loads.groups["a"].cores)
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


def measured(*cores: float, limit: float | None = 2.0) -> tuple[GroupLoad, group_load.Course]:
    """Return a group of which its driver measured these cores in the last minutes, and its course."""
    slots = np.array([*[np.nan] * (60 - len(cores)), *cores])
    made = replace(hour(), cores={("group", "a"): slots, ("ingest", "main"): np.full(60, 9.0)})
    return GroupLoad("a", capacity_cores=limit, games=2, cores=0.032), group_load.course(made, "a", OBJECTIVE)


def words(loads: Loads, seen: group_load.Course | None, silent: float = 2.0) -> tuple[str, str]:
    """Return the load and the headroom of group a, whose driver was heard some seconds ago."""
    known = fleet([Game("Chess")], silent={"a": silent})
    return group_cards.load_words(cast(ControlState, SimpleNamespace(loads=loads, fleet=known)), seen, "a")


def test_a_measured_load_is_the_load() -> None:
    """The measurement of the driver's processes counts, and the estimate is named beside it."""
    group, seen = measured(0.5, 0.13)
    assert seen.shares(2.0)[-3:] == [None, 0.25, 0.065]
    assert group_load.headroom(group, seen, 0) == (
        "Could carry about 15 times as many rows, as measured; placement estimates 0.032 cores for its games."
    )
    loads = Loads((), {"a": group})
    assert words(loads, seen) == ("0.13 cores", "1.9 cores")
    assert words(loads, seen, silent=120.0) == ("\u2013", "\u2013"), "a driver that is not heard uses what nobody knows"
    emptied = Loads((), {"a": GroupLoad("a", capacity_cores=2.0)})
    assert words(emptied, seen, silent=120.0) == ("0 cores", "2 cores"), "without games nothing waits for a driver"
    assert words(emptied, None) == ("\u2013", "\u2013"), "a driver that lives uses cores without games, too"
    assert words(emptied, seen) == ("0.13 cores", "1.9 cores")
    assert "Over its limit by 0.5 cores, as measured" in group_load.headroom(*measured(2.5), 0)
    empty = replace(hour().of([]), cores={("group", "a"): np.full(60, 0.1)})
    assert group_load.course(empty, "a", OBJECTIVE).is_known, "a drained group still has a driver"


@pytest.mark.parametrize(
    ("state", "age", "status", "said", "why"),
    [
        ("starting", 2.0, "RUNNING", "\u2013", "Its driver is starting"),
        ("running", 20.0, "STARTING", "\u2013", "Its games are starting"),
        ("running", 59.0, "RUNNING", "about 0.032 cores, estimated", ""),
        ("running", 61.0, "RUNNING", "0.5 cores", ""),
        ("running", 61.0, "STARTING", "0.5 cores", ""),
    ],
)
def test_a_killed_driver_leaves_no_load_of_now(state: str, age: float, status: str, said: str, why: str) -> None:
    """The present driver measured the load: until its first whole minute the page shows a dash or an estimate."""
    driver = Driver("group", "a", "host", 8, NOW - age, NOW - 1, state, None, 9)
    known = fleet([Game("Chess", status)], more=[driver])
    group, _ = measured()
    cores = np.full(60, 0.5)
    seen = group_load.courses(replace(hour(), cores={("group", "a"): cores}), known, OBJECTIVE)["a"]
    steering = cast(ControlState, SimpleNamespace(loads=Loads((), {"a": group}), fleet=known))
    assert group_cards.load_words(steering, seen, "a")[0] == said
    assert group_cards.why_load_unknown(steering, seen, "a") == why
    assert group_load.headroom(group, seen, 0).count("as measured") == (said == "0.5 cores")
    assert seen.shares(2.0)[0] == 0.25, "the chart keeps what was measured then"


def test_an_estimate_is_called_one() -> None:
    """Without a measurement of now the load is an estimate; executors elsewhere are named as not measured."""
    group, seen = measured(0.13, np.nan, np.nan, np.nan)
    assert seen.measured_now is None
    assert words(Loads((), {"a": group}), seen) == (
        "about 0.032 cores, estimated",
        "about 2 cores",
    )
    assert group_load.headroom(group, None, 0).endswith("as estimated from rows and commits.")
    elsewhere = group_load.course(replace(hour(), partly_measured=frozenset({("group", "a")})), "a", OBJECTIVE)
    assert "executors outside its driver's processes are not measured" in group_load.headroom(group, elsewhere, 0)
    assert words(Loads(), None) == ("\u2013", "\u2013")


def test_bars_say_cores_and_have_a_scale() -> None:
    """A plan that empties a group leaves 0 cores and not what rounding leaves; bars say what 100 % is."""
    games = tuple(GameLoad(f"g{at}", "a", Load(), cores) for at, cores in enumerate((0.011, 0.0105, 0.0105)))
    groups = {"a": GroupLoad("a", games=3, cores=0.1 + 0.2 - 0.268, capacity_cores=2.0), "b": GroupLoad("b")}
    loads = Loads(games, groups)
    after = loads.after({"g0": "b", "g1": "b", "g2": "b"})
    drawn = group_cards.load_bars((group, after[name]) for name, group in groups.items())
    assert "<dd>0.032 → 0 of 2 cores</dd>" in drawn
    assert "<dd>0 → 0.032 cores, no limit</dd>" in drawn
    assert "50 %" in drawn
    assert "of its limit; of 2 cores if it has none" in drawn
    assert "e-" not in drawn
    pairs = [(group, after[name]) for name, group in groups.items()]
    dead = [(replace(group, alive=False), then) for group, then in pairs]
    for gone in (group_cards.load_bars(pairs, {"a"}), group_cards.load_bars(dead)):
        assert gone.count("<dd>not known</dd>") == 1, "a driver that is gone uses what nobody knows, as its card says"
        assert "0.032 →" not in gone


def test_starts_deaths_and_moves_are_marked_at_their_group_only() -> None:
    """A chart has its own drivers' starts and deaths, and the games that came and left, and nothing of others."""
    seen = fleet([Game("one"), Game("two", group="b")])
    moved = {"ended_at": NOW - 60, "preview": {"x": ["a", "b", 1], "y": [None, "b", 1], "desired": 1}}
    moved["parameters"] = {"assignments": {"x": "b", "y": "b"}}
    done = SimpleNamespace(state=OperationState.SUCCEEDED, **moved)
    failed = SimpleNamespace(state=OperationState.FAILED, **{**moved, "parameters": {"assignments": {"x": "a"}}})
    operations = [cast(Operation, each) for each in (done, failed)]
    runs = [
        Run(1, "a", "r", NOW - 6000, None, NOW - 5000, died=False, exit_message="killed"),
        Run(2, "a", "r", NOW - 4000, NOW - 3010, NOW - 3000, died=False, exit_message="exit code 0"),
        Run(3, "b", "r", NOW - 2000, None, NOW - 1000, died=True, exit_message="killed"),
        Run(4, "main", "r", NOW - 900, None, NOW - 800, died=True, exit_message="killed", kind="maintenance"),
    ]

    def labels(group: str, since: float = NOW - 8000) -> list[str]:
        return [each.label for each in group_load.marks(seen, runs, operations, group, since)]

    assert labels("a") == ["starts", "starts", "died", "starts", "-1 game"]
    assert labels("b") == ["starts", "starts", "died", "+2 games"]
    assert labels("b", NOW - 30) == []


def test_a_plan_moves_load_from_one_group_to_the_other() -> None:
    """Before and after differ by exactly the games that move; unknown games and groups move nothing."""
    games = tuple(GameLoad(key, group, Load(), 0.5) for key, group in (("one", "a"), ("two", "a"), ("new", None)))
    groups = {"a": GroupLoad("a", games=2, cores=1.0), "b": GroupLoad("b", capacity_cores=1.0)}
    loads = Loads(games, groups)
    after = loads.after({"one": "b", "new": "b", "two": "a", "gone": "b"})
    assert (after["a"].games, after["a"].cores) == (1, 0.5)
    assert (after["b"].games, after["b"].share) == (2, 1.0)
    assert loads.after({"one": "nowhere"})["a"] == replace(groups["a"], games=1, cores=0.5)


def test_every_group_with_a_measurement_of_now_has_its_load() -> None:
    """A group whose games report no load yet, and a drained one, show what their drivers use; ingest is no group."""
    old, new = np.full(60, np.nan), np.full(60, np.nan)
    old[50], new[58] = 0.4, 0.13
    made = replace(hour(), cores={("group", "a"): new, ("group", "b"): old, ("ingest", "main"): new})
    seen = fleet([Game("one"), Game("two", group="b")])
    assert group_load.all_measured_now(made, seen) == {"a": 0.13}
    restarted = Driver("group", "a", "host", 8, NOW - 90, NOW - 2, "running", None, 9)
    assert not group_load.all_measured_now(made, fleet([Game("one")], more=[restarted])), "its predecessor used them"
