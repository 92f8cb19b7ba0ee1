"""What is done about the processes of cluster groups: pure, so each law is a case."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.control.backends.backend import Limits, RunState
from pipeline.control.backends.databricks import Databricks
from pipeline.control.backends.duties import Duty
from pipeline.control.backends.local import Local
from pipeline.control.kinds import Upkeep
from pipeline.control.supervision.restart_policy import Action, GroupObservation, pause_after, plan
from pipeline.health.verdicts.condition import Conditions, judge_duty, judge_group, judge_groups
from pipeline.health.verdicts.liveness import DriverFacts, ProcessRun
from pipeline.health.verdicts.reported import GroupIntent
from pipeline.store.groups import Group
from pipeline.store.processes.runs import Run
from pipeline.store.rows import Driver

NOW = 1_000_000.0
GROUP = Group("a", backend="local")


@dataclass(frozen=True)
class Seen:
    """A duty as a look finds it."""

    group: Duty = GROUP
    run: Run | None = None
    state: RunState | None = None
    holds: bool = False
    is_held: bool = False
    holder: str | None = None
    starts_once: bool = False
    is_reported: bool = False  # by the run's process
    ended: tuple[ProcessRun, ...] = ()
    silent_seconds: float = 0.0
    has_reported: bool = True
    limits: Limits = Local.limits

    @property
    def key(self) -> tuple[str, str]:
        return self.group.kind, self.group.name


ALIVE, ENDED = RunState(is_alive=True), RunState(is_alive=False)
ELSEWHERE, UNKNOWN = RunState(is_alive=None, by_lease=True), RunState(is_alive=None, about="the workspace is away")
IDLE = Seen()
RUN = Run(1, "a", "p", NOW - 900, None, None, died=False, exit_message=None)
JOB_RUN, JOB_GROUP = replace(RUN, backend="databricks"), replace(GROUP, backend="databricks")
RUNNING = Seen(run=RUN, state=ALIVE, holds=True, is_reported=True)


def died(ago: float, lived: float = 1.0) -> ProcessRun:
    return ProcessRun(0, NOW - ago - lived, NOW - ago, died=True, message="exit code 1", is_known=False)


def judged(groups: list[Seen]) -> tuple[Conditions, list[GroupObservation]]:
    runs = {
        each.key: ProcessRun(each.run.run_id, each.run.started_at, None, False, None) for each in groups if each.run
    }
    begun = {key: run.started_at + 1 for key, run in runs.items()}
    facts = DriverFacts(
        NOW,
        {each.key: Driver(*each.key, "h", 8, begun[each.key], NOW - 1, "running", None, 9, each.run.run_id)
         for each in groups if each.is_reported and each.run},
        {},
        {**{each.key: each.ended[0] for each in groups if each.ended}, **runs},
        ended={each.key: each.ended for each in groups},
        groups={each.group.name: GroupIntent(each.group.desired, each.group.backend) for each in groups
                if each.group.kind == "group"},
    )  # fmt: skip
    observed = [
        GroupObservation(
            each.group, each.run, each.state, each.holds, each.is_held, each.holder,
            judge_group(facts, each.group.name)
            if isinstance(each.group, Group)
            else judge_duty(facts, each.group.kind, each.group.name),
            each.silent_seconds, each.has_reported, each.limits, starts_once=each.starts_once,
        )
        for each in groups
    ]  # fmt: skip
    return judge_groups(facts), observed


def planned(groups: list[Seen], max_silent: float = math.inf) -> list[Action]:
    conditions, observed = judged(groups)
    return plan(observed, conditions.mass_failure, NOW, max_silent)


def mass_failure(groups: list[Seen]) -> str | None:
    return judged(groups)[0].mass_failure


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
    "a run whose process is gone has ended": (replace(RUNNING, state=ENDED, holds=False), "ended"),
    "a driver nobody has written down is adopted": (replace(IDLE, is_held=True, holder="q"), "adopt"),
    "an orphan is adopted also where it shall not run, to be stopped at the next look (D15)": (
        replace(IDLE, is_held=True, holder="q", group=replace(GROUP, desired="stopped")),
        "adopt",
    ),
    "a driver on another machine is left alone": (replace(RUNNING, state=ELSEWHERE), "wait"),
    "a driver on another machine has ended with its lease": (replace(RUNNING, state=ELSEWHERE, holds=False), "ended"),
    "a run of which its backend cannot know now is neither dead nor alive": (
        replace(RUNNING, state=UNKNOWN, holds=False),
        "wait",
    ),
    "nor is it killed until it is known": (
        replace(RUNNING, state=UNKNOWN, run=replace(RUN, stop_requested_at=NOW - 999)),
        "wait",
    ),
    "it can be asked to end all the same: the control store reaches its driver": (
        replace(RUNNING, state=UNKNOWN, group=replace(GROUP, desired="stopped")),
        "stop",
    ),
    "a run of a backend that this controller has not lives as long as its lease": (
        replace(RUNNING, state=None, run=JOB_RUN, group=JOB_GROUP),
        "wait",
    ),
    "and has ended with it": (replace(RUNNING, state=None, holds=False, run=JOB_RUN, group=JOB_GROUP), "ended"),
    "a run of an earlier backend is asked to end": (replace(RUNNING, group=JOB_GROUP), "stop"),
    "a start without an answer is repeated where that gives the same run": (
        replace(IDLE, run=replace(RUN, reference=None, started_at=NOW - 31), starts_once=True),
        "start",
    ),
    "it is not repeated where the run has to end": (
        replace(IDLE, run=replace(RUN, reference=None, started_at=NOW - 31, stop_requested_at=NOW), starts_once=True),
        "ended",
    ),
    "a run whose reference was lost is found by the lease of its driver": (
        replace(IDLE, run=replace(RUN, reference=None, started_at=NOW - 2), holds=True, is_held=True, holder="q"),
        "adopt",
    ),
    "a driver that its backend cannot end is left alone": (replace(IDLE, is_held=True), "wait"),
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
        replace(IDLE, ended=tuple(died(400 + each) for each in range(30))),
        "wait",
    ),
    "what died long ago does not count": (
        replace(IDLE, ended=tuple(died(3601 + each) for each in range(30))),
        "start",
    ),
}


@pytest.mark.parametrize(("seen", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_done(seen: Seen, expected: str | None) -> None:
    """Each case is its own sentence."""
    assert [action.what for action in planned([seen])] == ([expected] if expected else [])


def test_what_lives_and_is_silent_for_too_long_is_killed_and_has_died_of_it() -> None:
    """Only where its process is here and should run; the reason stands in its row until it has ended."""
    silent = replace(RUNNING, silent_seconds=301.0)
    for seen, expected in (
        (silent, ["kill"]),
        (replace(silent, silent_seconds=299.0), []),
        (replace(silent, state=ELSEWHERE), ["wait"]),
        (replace(silent, group=replace(GROUP, desired="stopped")), ["stop"]),
    ):
        assert [each.what for each in planned([seen], 300.0)] == expected
    assert planned([silent]) == [], "where it is turned off nothing hangs"
    (kill,) = planned([silent], 300.0)
    assert kill.died
    noted = replace(silent, state=ENDED, holds=False, run=replace(RUN, exit_message=kill.about))
    (ended,) = planned([noted], 300.0)
    assert (ended.what, ended.about, ended.died) == ("ended", "killed, as it hung: it was silent for 301 s", True)


def test_maintenance_is_a_duty_beside_the_groups() -> None:
    """It is started, stopped and kept by the same rules; it is no group in a failure of many, nor is its budget."""
    upkeep = replace(IDLE, group=Upkeep("local"))
    assert [each.key for each in planned([upkeep, IDLE])] == [("group", "a"), ("maintenance", "main")]
    ended = tuple(died(400 + each) for each in range(30))
    (wait,) = planned([replace(upkeep, ended=ended)])
    assert (wait.what, wait.about) == ("wait", "it died 30 times within an hour. Read its log")
    assert mass_failure([replace(IDLE, ended=(died(1.0),)), replace(upkeep, ended=(died(1.0),))]) is None


@pytest.mark.parametrize("desired", ["running", "stopped"])
@pytest.mark.proves("G150")
def test_maintenance_that_others_have_started_is_left_to_them(desired: str) -> None:
    """The controller waits as long as it runs and takes no run for it, so never ends it; then it starts its own."""
    upkeep = replace(IDLE, group=Upkeep("local", desired))
    (wait,) = planned([replace(upkeep, is_held=True, holder="q")])
    assert (wait.what, wait.kind, wait.about) == (
        "wait",
        "maintenance",
        "a process does it that no controller has started",
    )
    assert [each.what for each in planned([upkeep])] == (["start"] if desired == "running" else [])


def test_a_run_that_was_asked_to_end_has_not_died() -> None:
    """Only deaths that nobody asked for count against a group's budget."""
    gone = replace(RUNNING, state=ENDED, holds=False)
    assert planned([gone])[0].died
    assert not planned([replace(gone, run=replace(RUN, stop_requested_at=NOW - 1))])[0].died


@given(lives=st.lists(st.floats(0, 1200), min_size=1, max_size=12))
def test_each_death_in_a_row_doubles_the_pause(lives: list[float]) -> None:
    """Retries back off from 5 s to at most 300 s, with jitter, and a healthy run makes them begin anew."""
    runs = [died(1.0, lived) for lived in lives]
    in_a_row = next((index for index, lived in enumerate(lives) if lived >= 600), len(lives))
    longest = min(300.0, 5.0 * 2 ** (in_a_row - 1)) if in_a_row else 0.0
    assert longest / 2 <= pause_after(runs) <= longest


def many(count: int, dead: int, ago: float = 20.0) -> list[Seen]:
    """Return groups of which the first few died some seconds ago and the others run."""
    made = []
    for number in range(count):
        group = replace(GROUP, name=f"g{number:02}")
        if number < dead:
            made.append(replace(IDLE, group=group, ended=(died(ago),)))
        else:
            made.append(replace(RUNNING, group=group))
    return made


def starts(actions: list[Action]) -> list[str]:
    return [action.group for action in actions if action.what == "start"]


@pytest.mark.proves("D21")
def test_thirty_starts_at_once_are_staggered() -> None:
    """Three groups start at a time, so that a small machine is not overwhelmed (D21)."""
    idle = [replace(IDLE, group=replace(GROUP, name=f"g{number:02}")) for number in range(30)]
    assert len(starts(planned(idle))) == 3
    starting = [replace(each, run=replace(RUN, started_at=NOW - 5), state=ALIVE) for each in idle[:3]]
    assert starts(planned([*starting, *idle[3:]])) == []
    shown = [replace(each, is_reported=True) for each in starting]
    assert starts(planned([*shown, *idle[3:]])) == ["g03", "g04", "g05"]


@pytest.mark.proves("D9")
def test_a_mass_failure_of_before_the_clock_was_set_back_is_not_waited_for() -> None:
    """D9: of groups that died a moment before their clock went back an hour one starts at once, as in any failure."""
    groups = [replace(IDLE, group=replace(GROUP, name=name), ended=(died(-3600.0),)) for name in "abcd"]
    assert mass_failure(groups) is not None
    assert [each.what for each in planned(groups)] == ["start", "wait", "wait", "wait"]


@pytest.mark.proves("D16", "G105")
def test_a_mass_failure_is_tried_one_at_a_time() -> None:
    """Where most groups have no driver they share a cause: one alarm, no storm of restarts (D16)."""
    assert mass_failure(many(10, dead=6)) is not None
    assert starts(planned(many(10, dead=6))) == [], "it is too early for a try"
    later = many(10, dead=6, ago=31.0)
    assert starts(planned(later)) == ["g00"], "one try"
    trying = [replace(later[0], run=replace(RUN, started_at=NOW - 5), state=ALIVE), *later[1:]]
    assert starts(planned(trying)) == [], "as long as it has not reported"
    trying[0] = replace(trying[0], holds=True, is_reported=True)
    assert mass_failure(trying) is None
    assert len(starts(planned(trying))) == 3, "half of them run again: the others follow"
    assert len(starts(planned(many(10, dead=5, ago=20.0)))) == 3, "half is no mass: three at a time, as always"


def test_a_mass_failure_ends_for_restarts_when_the_first_driver_runs() -> None:
    """After a reboot one try shows that the shared cause is gone: the others follow three at a time (D16)."""
    later = many(10, dead=10, ago=31.0)
    runs = replace(later[0], run=replace(RUN, started_at=NOW - 5), state=ALIVE, holds=True, is_reported=True)
    assert mass_failure([runs, *later[1:]]) is not None
    assert len(starts(planned([runs, *later[1:]]))) == 3
    older = replace(runs, run=replace(RUN, started_at=NOW - 40))
    assert starts(planned([older, *later[1:]])) == ["g01"], "a driver of before the deaths shows nothing"


@given(count=st.integers(1, 12), dead=st.integers(0, 12), ago=st.floats(0, 4000))
def test_doing_what_is_planned_and_planning_again_starts_nothing(count: int, dead: int, ago: float) -> None:
    """A plan that was applied leaves nothing to do but to wait."""
    seen = many(count, min(dead, count), ago)
    begun = set(starts(planned(seen)))
    after = [
        replace(each, run=replace(RUN, started_at=NOW), state=ALIVE) if each.group.name in begun else each
        for each in seen
    ]
    assert not begun & set(starts(planned(after)))
    assert len(begun) <= Local.limits.starts_at_once


def test_a_cluster_that_starts_for_minutes_does_not_hang() -> None:
    """Law: a run whose driver has not reported yet may be silent for as long as its backend takes to start."""
    of_job = replace(RUNNING, silent_seconds=900.0, limits=Databricks.limits, run=JOB_RUN, group=JOB_GROUP)
    assert planned([replace(of_job, has_reported=False)], 300.0) == []
    assert [each.what for each in planned([of_job], 300.0)] == ["kill"]
    late = replace(of_job, has_reported=False, silent_seconds=1201.0)
    assert [each.what for each in planned([late], 300.0)] == ["kill"]


def test_a_start_that_another_run_was_in_the_way_of_is_no_death() -> None:
    """Law: a run that the workspace skipped costs no death of the group's budget."""
    skipped = replace(RUNNING, holds=False, state=RunState(is_alive=False, about="skipped", is_harmless=True))
    (ended,) = planned([skipped])
    assert (ended.what, ended.died) == ("ended", False)


def test_jobs_that_start_for_minutes_do_not_hold_up_processes() -> None:
    """Law: how many may start at once is counted by backend."""
    young = replace(JOB_RUN, started_at=NOW - 5)
    pending = [
        replace(IDLE, group=replace(JOB_GROUP, name=f"j{number}"), run=young, state=ALIVE, limits=Databricks.limits)
        for number in range(4)
    ]
    job = replace(IDLE, group=replace(JOB_GROUP, name="k"), limits=Databricks.limits)
    assert sorted(starts(planned([*pending, IDLE, job]))) == [IDLE.group.name, "k"]
