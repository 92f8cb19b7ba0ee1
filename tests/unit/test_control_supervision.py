"""What is done about the processes of cluster groups: pure, so each law is a case."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.control.processes.duties import Upkeep
from pipeline.control.supervision import restart_policy
from pipeline.control.supervision.restart_policy import Action, GroupObservation, mass_failure, pause_after, plan
from pipeline.store.groups import Group
from pipeline.store.runs import Run

NOW = 1_000_000.0
GROUP = Group("a", backend="local")
IDLE = GroupObservation(GROUP, run=None, is_alive=None, holds=False, holder=None, is_reported=False)
RUN = Run(1, "a", "p", NOW - 900, None, None, died=False, exit_message=None)
RUNNING = replace(IDLE, run=RUN, is_alive=True, holds=True, is_reported=True)


def died(ago: float, lived: float = 1.0, run_id: int = 1) -> Run:
    return Run(run_id, "a", "p", NOW - ago - lived, None, NOW - ago, died=True, exit_message="exit code 1")


def planned(groups: list[GroupObservation]) -> list[Action]:
    return plan(groups, mass_failure(groups, NOW), NOW)


CASES = {
    "a group that shall run and does not is started": (IDLE, "start"),
    "a drained group runs too: it carries what it has": (
        replace(IDLE, group=replace(GROUP, desired="drained")),
        "start",
    ),
    "a group that runs is left alone": (RUNNING, None),
    "a stopped group is not started": (replace(IDLE, group=replace(GROUP, desired="stopped")), None),
    "a group of somebody else is left alone": (replace(IDLE, group=replace(GROUP, backend="none")), None),
    "a group that shall stop is asked to": (replace(RUNNING, group=replace(GROUP, desired="stopped")), "stop"),
    "a run that was asked to end is given time": (
        replace(RUNNING, run=replace(RUN, stop_requested_at=NOW - 59)),
        "stop",
    ),
    "a run that hangs is killed": (replace(RUNNING, run=replace(RUN, stop_requested_at=NOW - 61)), "kill"),
    "a run whose process is gone has ended": (replace(RUNNING, is_alive=False, holds=False), "ended"),
    "a driver nobody has written down is adopted": (replace(IDLE, holder="q"), "adopt"),
    "an orphan is adopted also where it shall not run, to be stopped at the next look (D15)": (
        replace(IDLE, holder="q", group=replace(GROUP, desired="stopped")),
        "adopt",
    ),
    "a driver on another machine is left alone": (replace(RUNNING, is_alive=None), "wait"),
    "a driver on another machine has ended with its lease": (replace(RUNNING, is_alive=None, holds=False), "ended"),
    "a start whose process is not known yet is waited for": (
        replace(IDLE, run=replace(RUN, reference=None, started_at=NOW - 29)),
        "wait",
    ),
    "a start whose process nobody knows has ended": (
        replace(IDLE, run=replace(RUN, reference=None, started_at=NOW - 31)),
        "ended",
    ),
    "a run of a group that lost its backend is left to others": (
        replace(RUNNING, group=replace(GROUP, backend="none")),
        "ended",
    ),
    "what died rests before it is started again": (replace(IDLE, ended=(died(1.0),)), "wait"),
    "what has rested is started again": (replace(IDLE, ended=(died(5.1),)), "start"),
    "what died before the clock was set back is started": (replace(IDLE, ended=(died(-3600.0),)), "start"),
    "a start that nobody knows, of before the clock was set back, has ended": (
        replace(IDLE, run=replace(RUN, reference=None, started_at=NOW + 3600)),
        "ended",
    ),
    "a run that hangs is killed though the clock was set back": (
        replace(RUNNING, run=replace(RUN, stop_requested_at=NOW + 3600)),
        "kill",
    ),
    "what died too often in an hour needs a person": (
        replace(IDLE, ended=tuple(died(400 + each, run_id=each) for each in range(30))),
        "wait",
    ),
    "what died long ago does not count": (
        replace(IDLE, ended=tuple(died(3601 + each, run_id=each) for each in range(30))),
        "start",
    ),
}


@pytest.mark.parametrize(("seen", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_done(seen: GroupObservation, expected: str | None) -> None:
    """Each case is its own sentence."""
    assert [action.what for action in planned([seen])] == ([expected] if expected else [])


def test_what_lives_and_is_silent_for_too_long_is_killed_and_has_died_of_it() -> None:
    """Only where its process is here and should run; the reason stands in its row until it has ended."""
    silent = replace(RUNNING, silent_seconds=301.0)
    for seen, expected in (
        (silent, ["kill"]),
        (replace(silent, silent_seconds=299.0), []),
        (replace(silent, is_alive=None), ["wait"]),
        (replace(silent, group=replace(GROUP, desired="stopped")), ["stop"]),
    ):
        assert [each.what for each in plan([seen], None, NOW, 300.0)] == expected
    assert planned([silent]) == [], "where it is turned off nothing hangs"
    (kill,) = plan([silent], None, NOW, 300.0)
    assert kill.died
    noted = replace(silent, is_alive=False, holds=False, run=replace(RUN, exit_message=kill.about))
    (ended,) = plan([noted], None, NOW, 300.0)
    assert (ended.what, ended.about, ended.died) == ("ended", "killed, as it hung: it was silent for 301 s", True)


def test_maintenance_is_a_duty_beside_the_groups() -> None:
    """It is started, stopped and kept by the same rules; it is no group in a failure of many, nor is its budget."""
    upkeep = replace(IDLE, group=Upkeep("local"))
    assert [each.key for each in planned([upkeep, IDLE])] == [("group", "a"), ("maintenance", "main")]
    ended = tuple(died(400 + each, run_id=each) for each in range(30))
    (wait,) = planned([replace(upkeep, ended=ended)])
    assert (wait.what, wait.about) == ("wait", "it died 30 times within an hour. Read its log")
    dead = [replace(IDLE, group=Group(name, "local"), ended=(died(1.0),)) for name in "ab"]
    assert mass_failure([*dead, replace(upkeep, ended=(died(1.0),))], NOW) is None


@pytest.mark.parametrize("desired", ["running", "stopped"])
def test_maintenance_that_others_have_started_is_left_to_them(desired: str) -> None:
    """The controller waits as long as it runs and takes no run for it, so never ends it; then it starts its own."""
    upkeep = replace(IDLE, group=Upkeep("local", desired))
    (wait,) = planned([replace(upkeep, holder="q")])
    assert (wait.what, wait.kind, wait.about) == (
        "wait",
        "maintenance",
        "a process does it that no controller has started",
    )
    assert [each.what for each in planned([upkeep])] == (["start"] if desired == "running" else [])


def test_a_run_that_was_asked_to_end_has_not_died() -> None:
    """Only deaths that nobody asked for count against a group's budget."""
    gone = replace(RUNNING, is_alive=False, holds=False)
    assert planned([gone])[0].died
    assert not planned([replace(gone, run=replace(RUN, stop_requested_at=NOW - 1))])[0].died


@given(lives=st.lists(st.floats(0, 1200), min_size=1, max_size=12))
def test_each_death_in_a_row_doubles_the_pause(lives: list[float]) -> None:
    """Retries back off from 5 s to at most 300 s, with jitter, and a healthy run makes them begin anew."""
    runs = [died(1.0, lived, run_id) for run_id, lived in enumerate(lives)]
    in_a_row = next((index for index, lived in enumerate(lives) if lived >= 600), len(lives))
    longest = min(300.0, 5.0 * 2 ** (in_a_row - 1)) if in_a_row else 0.0
    assert longest / 2 <= pause_after(runs) <= longest


def many(count: int, dead: int, ago: float = 20.0) -> list[GroupObservation]:
    """Return groups of which the first few died some seconds ago and the others run."""
    made = []
    for number in range(count):
        group = replace(GROUP, name=f"g{number:02}")
        if number < dead:
            made.append(replace(IDLE, group=group, ended=(died(ago, run_id=number),)))
        else:
            made.append(replace(RUNNING, group=group))
    return made


def starts(actions: list[Action]) -> list[str]:
    return [action.group for action in actions if action.what == "start"]


def test_thirty_starts_at_once_are_staggered() -> None:
    """Three groups start at a time, so that a small machine is not overwhelmed (D21)."""
    idle = [replace(IDLE, group=replace(GROUP, name=f"g{number:02}")) for number in range(30)]
    assert len(starts(planned(idle))) == 3
    starting = [replace(each, run=replace(RUN, started_at=NOW - 5), is_alive=True) for each in idle[:3]]
    assert starts(planned([*starting, *idle[3:]])) == []
    told = [replace(each, is_reported=True) for each in starting]
    assert starts(planned([*told, *idle[3:]])) == ["g03", "g04", "g05"]


def test_a_mass_failure_of_before_the_clock_was_set_back_keeps_nobody() -> None:
    """D9: groups that died a moment before their clock went back an hour start again at once, three at a time."""
    groups = [replace(IDLE, group=replace(GROUP, name=name), ended=(died(-3600.0),)) for name in "abcd"]
    assert mass_failure(groups, NOW) is None
    assert [each.what for each in planned(groups)] == ["start", "start", "start", "wait"]


def test_a_mass_failure_is_tried_one_at_a_time() -> None:
    """Where many groups die at once they share a cause: one alarm, no storm of restarts (D16)."""
    down = many(10, dead=3)
    assert "3 of 10 groups died" in str(mass_failure(down, NOW))
    assert starts(planned(down)) == [], "it is too early for a try"
    assert len(starts(planned(many(10, dead=3, ago=31.0)))) == 1, "one try"
    assert mass_failure(many(10, dead=2), NOW) is None, "two are no mass"
    assert mass_failure(many(20, dead=5), NOW) is None, "less than a share of 0.3 is no mass"
    assert mass_failure(many(10, dead=9, ago=61.0), NOW) is None, "deaths long ago are over"


@given(count=st.integers(1, 12), dead=st.integers(0, 12), ago=st.floats(0, 4000))
def test_doing_what_is_planned_and_planning_again_starts_nothing(count: int, dead: int, ago: float) -> None:
    """A plan that was applied leaves nothing to do but to wait."""
    seen = many(count, min(dead, count), ago)
    begun = set(starts(planned(seen)))
    after = [
        replace(each, run=replace(RUN, started_at=NOW), is_alive=True) if each.group.name in begun else each
        for each in seen
    ]
    assert not begun & set(starts(planned(after)))
    assert len(begun) <= restart_policy._AT_ONCE
