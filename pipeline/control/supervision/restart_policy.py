"""Decides what to do about the processes of duties, such as groups: pure, from what was seen of them.

What died is started again later and later, and seldom enough; where many die at once, one is tried at a time.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pipeline.control.processes.duties import Duty
from pipeline.control.processes.signals import STOP_SECONDS
from pipeline.store.runs import Run

WINDOW_SECONDS: Final = 3600.0
"""Deaths older than this are forgotten."""

_FIRST_PAUSE: Final = 5.0  # seconds before the first new start; doubled with each death in a row
_LONGEST_PAUSE: Final = 300.0
_HEALTHY_SECONDS: Final = 600.0  # a run that lived so long is no death in a row
_BUDGET: Final = 30  # deaths of a group within the window after which a person is needed
_AT_ONCE: Final = 3  # groups that start at the same time
_STARTING_SECONDS: Final = 120.0  # so long a run that has not reported yet counts as starting
_UNSEEN_SECONDS: Final = 30.0  # a start whose process nobody knows is given up then
_MASS_SECONDS: Final = 60.0  # deaths within it are one failure
_MASS_SHARE: Final = 0.3  # of the groups, and
_MASS_LEAST: Final = 3
_PROBE_SECONDS: Final = 30.0  # between two tries in a mass failure


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """One group as it is, or another duty; times are Unix seconds by the store's clock."""

    group: Duty
    run: Run | None  # the one that has not ended
    is_alive: bool | None  # its process; None: there is none, or it cannot be known from here
    holds: bool  # the run's process holds the group's lease
    holder: str | None  # the reference of another process that does
    is_reported: bool  # the holder of its lease has reported that it runs
    ended: tuple[Run, ...] = ()  # within the window, the newest first
    silent_seconds: float = 0.0  # since the run's process gave its last sign of life, as far as we have watched it
    unreadable: str | None = None  # why its runs or its driver cannot be known; then none of the above is

    @property
    def defect(self) -> str | None:
        """Why nobody acts on the group, None where one does."""
        return self.unreadable


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
    kind: str = "group"

    @property
    def key(self) -> tuple[str, str]:
        """Return kind and name of what it is about."""
        return self.kind, self.group


def plan(
    groups: Sequence[GroupObservation], alarm: str | None, now: float, most_silent: float = math.inf
) -> list[Action]:
    """Return what to do now; doing it and planning again gives only waits. `alarm` is what `mass_failure` says.

    A process that lives and has been silent for more than `most_silent` seconds hangs: it is killed.
    """
    planned = ((seen, _of_run(seen, now, most_silent)) for seen in groups)
    actions = [replace(action, kind=seen.group.kind) for seen, action in planned if action is not None]
    starting = sum(_is_starting(seen, now) for seen in groups)
    for seen in sorted(
        groups, key=lambda each: (each.ended[0].ended_at or 0.0 if each.ended else 0.0, each.group.name)
    ):
        if not _wants_start(seen):
            continue
        action = _start(seen, now, starting, alarm, groups)
        starting += action.what == "start"
        actions.append(replace(action, kind=seen.group.kind))
    return actions


def mass_failure(groups: Iterable[GroupObservation], now: float) -> str | None:
    """Say that many groups died at once, which no group alone is to blame for; None where they did not."""
    ours = [seen for seen in groups if seen.group.kind == "group" and seen.group.backend != "none"]
    died = sorted(seen.group.name for seen in ours if any(_died_within(seen, _MASS_SECONDS, now)))
    if len(died) < max(_MASS_LEAST, _MASS_SHARE * len(ours)):
        return None
    return (
        f"{len(died)} of {len(ours)} groups died within {_MASS_SECONDS:.0f} s ({', '.join(died[:5])}…): look for what "
        "they share, such as storage, the store or memory. One is tried at a time."
    )


def pause_after(ended: Sequence[Run]) -> float:
    """Return for how many seconds a group rests after its last run; `ended` are its runs, the newest first."""
    in_a_row = 0
    for run in ended:
        if not run.died or (run.ended_at or run.started_at) - run.started_at >= _HEALTHY_SECONDS:
            break
        in_a_row += 1
    if not in_a_row:
        return 0.0
    longest = min(_LONGEST_PAUSE, math.ldexp(_FIRST_PAUSE, in_a_row - 1))
    return longest * random.Random(ended[0].run_id).uniform(0.5, 1.0)  # noqa: S311 - so that not all start at once


def is_within(since: float, seconds: float, now: float) -> bool:
    """Tell whether less than so many seconds have passed since a moment.

    They have passed where it lies further ahead than that: the clock was set back, and nobody waits until it is there.
    """
    return abs(now - since) < seconds


def _of_run(seen: GroupObservation, now: float, most_silent: float) -> Action | None:
    """Return what to do about a group's process, None where it may go on."""
    group, run = seen.group, seen.run
    if seen.defect is not None:
        return Action("wait", group.name, seen.defect)
    if group.backend == "none" and run is None:
        return None
    if run is None:
        return None if seen.holder is None else _of_other(seen, seen.holder)
    if group.backend == "none":
        return Action("ended", group.name, "turnout does not run it: the group has no backend", run.run_id)
    if run.reference is None:
        if is_within(run.started_at, _UNSEEN_SECONDS, now):
            return Action("wait", group.name, "its process is being started")
        reason = "what started it ended before its process was known"
        return Action("ended", group.name, reason, run.run_id)
    if seen.is_alive is False or (seen.is_alive is None and not seen.holds):
        why = run.exit_message or ""  # of one that was killed
        return Action("ended", group.name, why, run.run_id, run.reference, died=run.stop_requested_at is None)
    if seen.is_alive is None:
        return Action("wait", group.name, "its process is on another machine: look there")
    if run.stop_requested_at is None:
        if group.desired != "stopped":
            return None if seen.silent_seconds <= most_silent else _kill(seen, run)
        return Action("stop", group.name, f"it is set to {group.desired}", run.run_id, run.reference)
    if is_within(run.stop_requested_at, STOP_SECONDS, now):
        return Action("stop", group.name, "it was asked to end", run.run_id, run.reference)
    reason = f"it has not ended {STOP_SECONDS:.0f} s after it was asked to"
    return Action("kill", group.name, reason, run.run_id, run.reference)


def _of_other(seen: GroupObservation, holder: str) -> Action:
    """Return what to do about a process that no controller has written down: a group's belongs to the controller."""
    if seen.group.kind == "group":
        return Action("adopt", seen.group.name, "found running", reference=holder)
    return Action("wait", seen.group.name, "a process does it that no controller has started")


def _kill(seen: GroupObservation, run: Run) -> Action:
    reason = f"killed, as it hung: it was silent for {seen.silent_seconds:.0f} s"
    return Action("kill", seen.group.name, reason, run.run_id, run.reference, died=True)


def _wants_start(seen: GroupObservation) -> bool:
    group = seen.group
    idle = seen.run is None and seen.holder is None
    return idle and seen.defect is None and group.backend != "none" and group.desired != "stopped"


def _start(
    seen: GroupObservation, now: float, starting: int, alarm: str | None, groups: Sequence[GroupObservation]
) -> Action:
    """Return a start, or what it has to wait for."""
    name = seen.group.name
    if sum(1 for _ in _died_within(seen, WINDOW_SECONDS, now)) >= _BUDGET:
        hint = f", then `turnout groups restart {name}`" if seen.group.kind == "group" else ""
        reason = f"it died {_BUDGET} times within an hour. Read its log{hint}"
        return Action("wait", name, reason)
    if seen.ended:
        ended_at, pause = seen.ended[0].ended_at or now, pause_after(seen.ended)
        at = ended_at + pause
        if is_within(ended_at, pause, now):
            return Action("wait", name, f"it died: {seen.ended[0].exit_message}", until=at)
    if alarm is not None:
        recent = [run.ended_at or 0.0 for each in groups for run in _died_within(each, _PROBE_SECONDS, now)]
        if starting or recent:
            return Action("wait", name, alarm, until=max(recent) + _PROBE_SECONDS if recent else None)
    if starting >= _AT_ONCE:
        return Action("wait", name, f"{starting} others are starting")
    return Action("start", name, f"it is set to {seen.group.desired}")


def _is_starting(seen: GroupObservation, now: float) -> bool:
    return seen.run is not None and not seen.is_reported and is_within(seen.run.started_at, _STARTING_SECONDS, now)


def _died_within(seen: GroupObservation, seconds: float, now: float) -> Iterable[Run]:
    return (run for run in seen.ended if run.died and is_within(run.ended_at or 0.0, seconds, now))
