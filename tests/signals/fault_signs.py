"""Signs of each fault of a demo: the status on a command, `/metrics` and a page, and the cause. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.store.database.states import Cause

AT_ONCE_SECONDS: Final = 10.0
"""So soon a status must be right that something reports."""

REFUSED_SECONDS: Final = 20.0
"""So soon refused rows must be shown: two triggers (2 s, 5 s), a pass, a heartbeat and a look (5 s each) come first."""

BY_SILENCE_SECONDS: Final = 30.0
"""So soon one must be that only missing heartbeats tell."""

SLOW_SINK: Final = "slow sink"
"""Each file and each commit takes 30 s more: fail-points do it, not the demo. Games are late after their objective."""

GROUP, INGEST, GAME, SOURCE, STORE = "group", "ingest", "game", "source", "store"
_LATE: Final = frozenset({"AT_RISK", "LAGGING", "STALLED"})
_FAILED: Final = frozenset({"FAILED", "CRASH_LOOP"})
_SILENT: Final = frozenset({"unknown", "dead"})
_LEAST_REFUSED: Final = 10
_STALE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Opened:
    """An open incident, as a command or a page has it."""

    incident_id: str
    cause: str
    title: str
    group: str | None
    games: tuple[str, ...]
    tone: str


@dataclass(frozen=True, slots=True)
class View:
    """A command or a page at one moment."""

    drivers: Mapping[tuple[str, str], str]  # state by kind and name
    games: Mapping[str, tuple[str | None, str]]  # group and status by key
    is_well: bool
    text: str  # the headline and all problems
    incidents: tuple[Opened, ...] = ()

    def of_group(self, group: str) -> Mapping[str, str]:
        """Return the status of each game of a group."""
        return {key: status for key, (its, status) in self.games.items() if its == group}

    def count(self, status: str) -> int:
        """Return how many games have a status."""
        return sum(each == status for _, each in self.games.values())


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of `/metrics`."""

    name: str
    labels: Mapping[str, str]
    value: float


Metrics = Mapping[str, Sequence[Sample] | None]
"""Samples by process (`group-a`, `ingest-main`), None where it does not answer."""


@dataclass(frozen=True, slots=True)
class Signs:
    """The right status of a fault, and its cause."""

    limit_seconds: float  # of the status
    view: Callable[[View, str], bool]
    metrics: Callable[[Metrics, Metrics, str, float], bool]  # before, now, target, Unix seconds
    cause: Cause
    about: str  # group | ingest | game | source | store
    cause_seconds: float = 60.0
    may_cope: bool = False  # a light load may survive it: then nothing may be said of it


def signs_of(fault: str, target: str) -> Signs:
    """Return the signs of a fault of `pipeline.demo.breaking.faults`."""
    return _OF_INGEST[fault] if target == INGEST else _SIGNS[fault]


def is_about(opened: Opened, signs: Signs, target: str, games: Mapping[str, str | None]) -> bool:
    """Return whether an incident is about the fault's target; `games` has the group of each."""
    if signs.about == GAME:
        return target in opened.games
    if signs.about == GROUP:
        return opened.group == target or any(games.get(key) == target for key in opened.games)
    return True


# ------------------------------------------------------------------------------------------------ commands and pages


def _driverless(view: View, group: str) -> bool:
    return view.drivers.get(("group", group)) != "running" and "RUNNING" not in view.of_group(group).values()


def _silent(view: View, group: str) -> bool:
    states = view.of_group(group).values()
    return view.drivers.get(("group", group)) in _SILENT and "RUNNING" not in states and not view.is_well


def _late(view: View, group: str) -> bool:
    return any(each in _LATE for each in view.of_group(group).values()) and not view.is_well


def _failed(view: View, group: str) -> bool:
    states = view.of_group(group).values()
    return {*states} <= _FAILED and bool(states) and not view.is_well


def _ingest_silent(view: View, _target: str) -> bool:
    return view.drivers.get(("ingest", "main")) in _SILENT and not view.count("RUNNING") and not view.is_well


def _all_silent(view: View, _target: str) -> bool:
    drivers = [state for (kind, _), state in view.drivers.items() if kind in {"group", "ingest"}]
    return set(drivers) <= {"unknown"} and not view.count("RUNNING") and not view.is_well


def _source_silent(view: View, _target: str) -> bool:
    """Return whether it is named, and nothing is called healthy beside it; no stream is in trouble for it."""
    return any(each.cause == Cause.SOURCE_SILENT for each in view.incidents) and "healthy" not in view.text


def _refused(view: View, game: str) -> bool:
    of_rows = (each for each in view.incidents if each.cause in {Cause.POISON, Cause.SCHEMA, Cause.CONTRACT})
    return any(game in each.games for each in of_rows)


# ------------------------------------------------------------------------------------------------------------ metrics


def total(samples: Sequence[Sample] | None, name: str, **labels: str) -> float | None:
    """Return the sum of the samples that have these labels, None where there is none."""
    found = [
        each.value
        for each in samples or ()
        if each.name == name and all(each.labels.get(label) == value for label, value in labels.items())
    ]
    return sum(found) if found else None


def _problem(now: Metrics, kind: str) -> bool:
    return (total(now.get("ingest-main"), "turnout_fleet_problems", problem=kind) or 0.0) > 0


def _group_away(_before: Metrics, now: Metrics, group: str, _at: float) -> bool:
    return now.get(f"group-{group}") is None or _problem(now, "group")


def _streams_late(_before: Metrics, now: Metrics, group: str, _at: float) -> bool:
    samples = now.get(f"group-{group}")
    return any((total(samples, "turnout_stream_status", status=each) or 0.0) > 0 for each in _LATE)


def _streams_failed(_before: Metrics, now: Metrics, group: str, _at: float) -> bool:
    samples = now.get(f"group-{group}")
    failed = sum(total(samples, "turnout_stream_status", status=each) or 0.0 for each in _FAILED)
    streams = {each.labels["game"] for each in samples or () if each.name == "turnout_stream_status"}
    return 0 < len(streams) == failed


def _ingest_away(_before: Metrics, now: Metrics, _target: str, _at: float) -> bool:
    return now.get("ingest-main") is None


def _unjudged(_before: Metrics, now: Metrics, _target: str, at: float) -> bool:
    judged = total(now.get("ingest-main"), "turnout_fleet_judged_timestamp_seconds")
    return judged is None or at - judged > _STALE_SECONDS


def _no_commit(_before: Metrics, now: Metrics, _target: str, at: float) -> bool:
    committed = total(now.get("ingest-main"), "turnout_ingest_last_commit_timestamp_seconds")
    return committed is None or at - committed > _STALE_SECONDS


def _rejects(before: Metrics, now: Metrics, game: str, _at: float) -> bool:
    def refused(of: Metrics) -> float:
        name = "turnout_stream_rejects_total"
        return sum(total(samples, name, game=game) or 0.0 for samples in of.values())

    return refused(now) - refused(before) >= _LEAST_REFUSED


def _any_late(view: View, _target: str) -> bool:
    return any(status in _LATE for _, status in view.games.values()) and not view.is_well


def _any_stream_late(before: Metrics, now: Metrics, _target: str, at: float) -> bool:
    return any(_streams_late(before, now, process.removeprefix("group-"), at) for process in now)


_SIGNS: Final[Mapping[str, Signs]] = {
    "kill": Signs(AT_ONCE_SECONDS, _driverless, _group_away, Cause.DRIVER_GONE, GROUP),
    "crash": Signs(AT_ONCE_SECONDS, _driverless, _group_away, Cause.DRIVER_GONE, GROUP),
    "freeze": Signs(BY_SILENCE_SECONDS, _silent, _group_away, Cause.DRIVER_GONE, GROUP),
    "starve": Signs(180.0, _late, _streams_late, Cause.DRIVER_SLOW, GROUP, 240.0, may_cope=True),
    SLOW_SINK: Signs(90.0, _any_late, _any_stream_late, Cause.STORAGE, SOURCE, 120.0),
    "disk": Signs(BY_SILENCE_SECONDS, _failed, _streams_failed, Cause.STORAGE, GROUP),
    "lock": Signs(BY_SILENCE_SECONDS, _all_silent, _unjudged, Cause.STORE, STORE),
    "silence": Signs(BY_SILENCE_SECONDS, _source_silent, _no_commit, Cause.SOURCE_SILENT, SOURCE, 30.0),
    "poison": Signs(REFUSED_SECONDS, _refused, _rejects, Cause.POISON, GAME),
    "quarantine": Signs(REFUSED_SECONDS, _refused, _rejects, Cause.POISON, GAME),
    "schema": Signs(REFUSED_SECONDS, _refused, _rejects, Cause.SCHEMA, GAME),
    "contract": Signs(REFUSED_SECONDS, _refused, _rejects, Cause.CONTRACT, GAME),
}

_OF_INGEST: Final[Mapping[str, Signs]] = {
    "freeze": Signs(BY_SILENCE_SECONDS, _ingest_silent, _ingest_away, Cause.INGEST_BEHIND, INGEST),
}
