"""Decides what to do about the processes of duties, such as groups: pure, from their conditions and processes.

What died is started again later and later, and seldom enough; where many die at once, one is tried at a time.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from listeners.process_kinds import GROUP
from pipeline.control import kinds
from pipeline.control.backends.backend import Limits, RunState
from pipeline.control.backends.duties import Duty
from pipeline.control.backends.local import Local
from pipeline.health.verdicts.condition import MOST_DEATHS, GroupCondition, is_within
from pipeline.health.verdicts.liveness import ProcessRun
from pipeline.store.backends import backend_kind
from pipeline.store.processes.runs import RELEASED, Run

_FIRST_PAUSE: Final = 5.0  # seconds before the first new start; doubled with each death in a row
_LONGEST_PAUSE: Final = 300.0
_HEALTHY_SECONDS: Final = 600.0  # a run that lived longer ends a row of deaths
_UNSEEN_SECONDS: Final = 30.0  # a start whose process nobody knows is given up then
_PROBE_SECONDS: Final = 30.0  # between two tries in a mass failure


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """One group, or another duty: its condition, and what is known here of its process."""

    group: Duty
    run: Run | None  # the one that has not ended
    state: RunState | None  # of its run; None: there is none, or nobody can find it yet
    holds: bool  # the run's driver holds the group's lease
    is_held: bool  # a driver does, of this run or of none
    holder: str | None  # its reference, where it is of no run or that run has none yet, and its backend could end it
    condition: GroupCondition
    silent_seconds: float = 0.0  # since the run's driver gave its last sign of life, as far as we have watched it
    has_reported: bool = True  # the run's driver
    limits: Limits = Local.limits
    starts_once: bool = False  # a start that nobody knows the result of can be repeated


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do; `about` says why, or how a run ended."""

    what: Literal["start", "adopt", "stop", "kill", "ended", "wait"]
    group: str
    about: str
    run_id: int | None = None
    reference: str | None = None
    died: bool = False  # of a run that ended, or of one that is killed for it
    until: float | None = None  # of a wait: when it is over, where that is known
    kind: str = GROUP
    backend: str | None = None  # of the run that it is about; None: of the duty

    @property
    def key(self) -> tuple[str, str]:
        """Return kind and name of its process."""
        return self.kind, self.group


def plan(
    groups: Sequence[GroupObservation], alarm: str | None, now: float, max_silent: float = math.inf
) -> list[Action]:
    """Return what to do now; doing it and planning again gives only waits. `alarm` is a mass failure.

    In a mass failure one group is tried at a time, until one of them runs.

    A process that lives and has been silent for more than `max_silent` seconds hangs: it is killed.
    """
    planned = ((seen, _of_run(seen, now, max_silent)) for seen in groups)
    actions = [
        replace(action, kind=seen.group.kind, backend=None if seen.run is None else seen.run.backend)
        for seen, action in planned
        if action is not None
    ]
    starting: Counter[str] = Counter(
        seen.run.backend for seen in groups if seen.run is not None and seen.condition.liveness.state == "starting"
    )
    deaths = [run.ended_at or 0.0 for seen in groups for run in seen.condition.deaths]
    newest_death = max((at for at in deaths if is_within(at, _PROBE_SECONDS, now)), default=None)
    if _is_over(groups, max(deaths, default=now)):
        alarm = None
    for seen in sorted(groups, key=lambda each: (_ended_at(each) or 0.0, each.group.name)):
        if not _wants_start(seen):
            continue
        action = _start(seen, now, starting, alarm, newest_death)
        starting[seen.group.backend] += int(action.what == "start")
        actions.append(replace(action, kind=seen.group.kind))
    return actions


def _is_over(groups: Sequence[GroupObservation], newest_death: float) -> bool:
    """Return whether a driver that was started after the last death runs: what the groups share works again."""
    return any(
        seen.run is not None and seen.run.started_at > newest_death and seen.condition.liveness.state == "running"
        for seen in groups
    )


def pause_after(ended: Sequence[ProcessRun]) -> float:
    """Return for how many seconds a group rests after its last run; `ended` are its runs, the newest first."""
    in_a_row = 0
    for run in ended:
        if not run.died or (run.ended_at or run.started_at) - run.started_at >= _HEALTHY_SECONDS:
            break
        in_a_row += 1
    if not in_a_row:
        return 0.0
    longest = min(_LONGEST_PAUSE, math.ldexp(_FIRST_PAUSE, in_a_row - 1))
    return longest * random.Random(ended[0].ended_at).uniform(0.5, 1.0)  # noqa: S311 - so that not all start at once


def _of_run(seen: GroupObservation, now: float, max_silent: float) -> Action | None:
    """Return what to do about a group's process, None where it may go on."""
    group, run = seen.group, seen.run
    starts = backend_kind(group.backend).starts
    if run is None:
        return _of_other(seen) if starts and seen.is_held else None
    if not starts:
        return Action("ended", group.name, RELEASED, run.run_id, run.reference)
    if run.reference is None:
        return _of_unknown(seen, run, now)
    state = seen.state or RunState(is_alive=None, by_lease=True)  # this controller has not its backend
    if state.is_alive is False or (state.is_alive is None and state.by_lease and not seen.holds):
        why = run.exit_message or state.about  # the first of a run that was killed
        died = run.stop_requested_at is None and not state.is_harmless
        return Action("ended", group.name, why, run.run_id, run.reference, died=died)
    if run.stop_requested_at is None and (unwanted := _unwanted(group, run)):  # the store reaches it wherever it is
        return Action("stop", group.name, unwanted, run.run_id, run.reference)
    if state.is_alive is None:
        elsewhere = "its process is on another machine: look there"
        return Action("wait", group.name, elsewhere if state.by_lease else state.about)
    if run.stop_requested_at is None:
        patience = max_silent if seen.has_reported else max(max_silent, seen.limits.start_seconds)
        return None if seen.silent_seconds <= patience else _kill(seen, run)
    if is_within(run.stop_requested_at, seen.limits.stop_seconds, now):
        return Action("stop", group.name, "it has to end", run.run_id, run.reference)
    reason = f"it has not ended {seen.limits.stop_seconds:.0f} s after its stop was requested"
    return Action("kill", group.name, reason, run.run_id, run.reference)


def _unwanted(group: Duty, run: Run) -> str | None:
    """Return why a run should end, as a clause; None where it should go on."""
    if run.backend != group.backend:
        return f"its backend is {group.backend} now"
    return f"it is set to {group.desired}" if group.desired == "stopped" else None


def _of_unknown(seen: GroupObservation, run: Run, now: float) -> Action:
    """Return what to do about a run that was begun, and that no backend's reference is known of."""
    name = seen.group.name
    if seen.holds and seen.holder is not None:
        return Action("adopt", name, "found by the lease of its driver", run.run_id, seen.holder)
    if is_within(run.started_at, _UNSEEN_SECONDS, now):
        return Action("wait", name, "its process is being started")
    if seen.starts_once and run.stop_requested_at is None and seen.group.desired != "stopped":
        return Action("start", name, "its start had no answer", run.run_id)
    return Action("ended", name, "what started it ended before its process was known", run.run_id)


def _of_other(seen: GroupObservation) -> Action:
    """Return what to do about a process that no controller has written down, such as a group's, which it adopts."""
    if kinds.find(seen.group.kind).adopts and seen.holder is not None:
        return Action("adopt", seen.group.name, "found running", reference=seen.holder)
    return Action("wait", seen.group.name, "a process does it that no controller has started")


def _kill(seen: GroupObservation, run: Run) -> Action:
    reason = f"killed, as it hung: it was silent for {seen.silent_seconds:.0f} s"
    return Action("kill", seen.group.name, reason, run.run_id, run.reference, died=True)


def _wants_start(seen: GroupObservation) -> bool:
    group = seen.group
    idle = seen.run is None and not seen.is_held
    return idle and backend_kind(group.backend).starts and group.desired != "stopped"


def _start(
    seen: GroupObservation, now: float, starts: Mapping[str, int], alarm: str | None, newest_death: float | None
) -> Action:
    """Return a start, or what it has to wait for; `starts` counts those that are starting, by backend."""
    name, condition = seen.group.name, seen.condition
    if len(condition.deaths) >= MOST_DEATHS:
        command = kinds.find(seen.group.kind).restart_command
        hint = "" if command is None else f", then `{command(name)}`"
        reason = f"it died {MOST_DEATHS} times within an hour. Read its log{hint}"
        return Action("wait", name, reason)
    if (ended_at := _ended_at(seen)) is not None:
        pause = pause_after(condition.ended)
        if is_within(ended_at, pause, now):
            return Action("wait", name, f"it died: {condition.ended[0].message}", until=ended_at + pause)
    if alarm is not None and (any(starts.values()) or newest_death is not None):
        return Action("wait", name, alarm, until=None if newest_death is None else newest_death + _PROBE_SECONDS)
    if (starting := starts.get(seen.group.backend, 0)) >= seen.limits.starts_at_once:
        return Action("wait", name, f"{starting} others are starting")
    return Action("start", name, f"it is set to {seen.group.desired}")


def _ended_at(seen: GroupObservation) -> float | None:
    return seen.condition.ended[0].ended_at if seen.condition.ended else None
