"""How a group's driver is: the one judgement that restarts, evacuation, placement, status and pages read.

Pure: judged once per look from facts of one read; times are Unix seconds by the store's clock, `now` included.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from listeners.process_kinds import GROUP
from pipeline.base.texts import join_limited
from pipeline.health.verdicts.liveness import RUNS, DriverFacts, Liveness, ProcessRun, heartbeat_limit
from pipeline.health.verdicts.reported import GroupIntent
from pipeline.store.backends import backend_kind
from pipeline.store.rows import START_LIMIT_SECONDS

WINDOW_SECONDS: Final = 3600.0
"""Deaths older than this are forgotten."""

MASS_SHARE: Final = 0.5
"""More than this share of the groups that should run, and two at least, without a driver is a mass failure.

A third of the groups may be one machine: those are evacuated and restarted as usual, three at a time, which overloads
nothing. Half is where the groups that are left could not carry the others, and where a shared cause is more likely than
several. What counts is who has no driver, not who died within a minute: a slow storm of deaths is one failure too.
"""

MOST_DEATHS: Final = 30
"""Deaths within the window after which the controller does not start a driver again: a person is needed."""

_MASS_LEAST: Final = 2  # the death of an only group says nothing of what groups share
_QUIET_SECONDS: Final = 60.0  # a process that is stopped, swapped out or tries again is heard of after that, as a rule
_TRIES: Final = 3  # starts that must have failed
_NO_INTENT: Final = GroupIntent("running")


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """A group's desired state and its driver's condition. Maintenance restarts by the same rules, so it has one too."""

    name: str
    liveness: Liveness
    desired: str = "running"  # running | drained | stopped
    backend: str = "none"  # what starts it; `none`: not turnout
    has_process: bool = False  # a run that has not ended, or a lease that has not run out
    is_trying: bool = False  # it is being started after a death, and has not been seen to run yet
    may_live: bool = True  # for acts that do harm where a process works on it
    may_return: bool = False  # its driver is gone for so short a time that a restart may bring it back
    ended: Sequence[ProcessRun] = ()  # within the window, the newest first
    deaths: Sequence[ProcessRun] = ()  # those of them that nobody asked for
    gone_since: float | None = None  # when a driver last lived, where none can live and none can be started from here

    @property
    def is_supervised(self) -> bool:
        """Whether the controller starts and restarts its driver."""
        return backend_kind(self.backend).starts

    @property
    def is_lost(self) -> bool:
        """Whether it had a driver, or tries to start one, and has none now."""
        return self.is_trying or not (self.may_live or self.liveness.state in {"not_started", "stopped"})

    @property
    def why_gone(self) -> str:
        """Why no driver can be started from here, as a clause."""
        if not self.is_supervised:
            return f"turnout does not start it: {self.liveness.silence}"
        return f"the last start ended with: {self.deaths[0].message if self.deaths else None}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """All registered groups at one moment."""

    now: float
    groups: Mapping[str, GroupCondition]  # by name
    mass_failure: str | None  # a sentence for a person where enough groups lack a driver to share a cause


def judge_groups(facts: DriverFacts) -> Conditions:
    """Judge every registered group."""
    groups = {name: judge_group(facts, name) for name in facts.groups}
    return Conditions(facts.now, groups, _mass_failure(groups.values()))


def judge_group(facts: DriverFacts, name: str) -> GroupCondition:
    """Judge one group."""
    return judge_duty(facts, GROUP, name, facts.groups.get(name, _NO_INTENT))


def judge_duty(facts: DriverFacts, kind: str, name: str, intent: GroupIntent = _NO_INTENT) -> GroupCondition:
    """Judge a duty whose process the controller starts, such as a group with its intent, or maintenance."""
    key, now, liveness = (kind, name), facts.now, facts.judge(kind, name)
    lease, run, ended = facts.leases.get(key), facts.runs.get(key), facts.ended.get(key, ())
    holder = lease if lease is not None and lease.expires_at > now else None
    deaths = tuple(each for each in ended if each.died and is_within(each.ended_at or 0.0, WINDOW_SECONDS, now))
    is_open = run is not None and run.ended_at is None
    has_process = is_open or holder is not None
    may_live = holder is not None or key in facts.unheard or _may_live(liveness, facts)
    return GroupCondition(
        name,
        liveness,
        intent.desired,
        intent.backend,
        has_process=has_process,
        is_trying=is_open
        and liveness.state == "starting"
        and (holder is None or (run is not None and holder.run_id == run.run_id))
        and bool(ended and ended[0].died),
        may_live=may_live,
        may_return=_may_return(liveness, now),
        ended=ended,
        deaths=deaths,
        gone_since=None if has_process or may_live else _gone_since(facts, key, intent, deaths),
    )


def is_within(since: float, seconds: float, now: float) -> bool:
    """Return whether fewer than `seconds` have passed since a moment.

    They have passed where it lies further ahead than that: the clock was set back, and nobody waits until it is there.
    """
    return abs(now - since) < seconds


def _may_live(liveness: Liveness, facts: DriverFacts) -> bool:
    """Return whether a process may work on it: it lives, or was heard of a minute ago, and its end is not on record.

    A process that stands still beats again, one that has failed tries again.
    """
    is_gone = liveness.is_over or liveness.has_lost_lease
    if liveness.is_live or is_gone or liveness.state not in {"unknown", "failed"}:
        return liveness.is_live
    patience = max(heartbeat_limit(facts.heartbeat_seconds), _QUIET_SECONDS)
    return liveness.since is None or facts.now - liveness.since <= patience


def _may_return(liveness: Liveness, now: float) -> bool:
    """Return whether a restart may bring a driver back before its games would be anywhere else."""
    if liveness.is_live or liveness.state == "not_started":
        return False
    return liveness.since is None or is_within(liveness.since, START_LIMIT_SECONDS, now)


def _gone_since(
    facts: DriverFacts, key: tuple[str, str], intent: GroupIntent, deaths: Sequence[ProcessRun]
) -> float | None:
    """Return when a driver last lived, None where it may be started here, or ended in order, or is not known.

    A driver that starts and dies of its work is none: the game that kills it would kill the next group; `isolation`
    parts it from the others.
    """
    driver, lived = facts.drivers.get(key), facts.lived.get(key)
    if not intent.is_supervised:  # one that has ended in order was stopped on purpose
        return None if driver is None or driver.state == "stopped" else driver.heartbeat_at
    if lived is None:
        return None
    tries = [each for each in deaths if (each.ended_at or 0.0) > lived or lived > facts.now]
    if len(tries) < _TRIES:
        return None
    last_runs = {each.run_id for each in tries[:_TRIES]}
    return None if driver is not None and driver.state in RUNS and driver.run_id in last_runs else lived


def _mass_failure(groups: Iterable[GroupCondition]) -> str | None:
    """Return a sentence where enough groups lack a driver that the cause is shared; else None."""
    enabled = [each for each in groups if each.desired != "stopped"]
    lost = sorted(each.name for each in enabled if each.is_lost)
    if len(lost) < _MASS_LEAST or len(lost) <= MASS_SHARE * len(enabled):
        return None
    return (
        f"{len(lost)} of {len(enabled)} groups that should run have lost their driver ({join_limited(lost)}): look for "
        "what they share, such as storage, the store or memory. One is started at a time, and no group is evacuated."
    )
