"""Which alerts must fire over a history, from the judgement at each sample and each rule's stated wait.

Three-valued: where a surface lags by less than a rule's own resolution nobody can know, and nothing is expected.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipeline.health.alerting.alerts import alerts
from pipeline.health.alerting.files import RULES_FILE
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.verdicts.alert import Alert
from tests.signals.histories import OBJECTIVE, START, History, Running
from tests.signals.surfaces import scrape

STEP: Final = 15
Truth = bool | None  # None: it may be either
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_EXEMPT: Final = frozenset({"PAUSED", "BACKFILLING", "STARTING"})
_DOWN: Final = frozenset({"FAILED", "CRASH_LOOP", "MISSING"})
_NEVER: Final = (
    "TurnoutRegistryMistrusted", "TurnoutEvacuationWaits", "TurnoutAccessDrift", "TurnoutAccessUnknown",
    "TurnoutAccessOverdue", "TurnoutListenerLagging", "TurnoutMetricsStale",
)  # fmt: skip
# Shares of the long and the short window, and their notes of 15 s: docs/alerts.md, for 30 days and a share of 0.99.
_BURNS: Final[Mapping[str, Sequence[tuple[int, int, float]]]] = {
    "TurnoutFreshnessBurnFast": ((240, 20, 0.144),),
    "TurnoutFreshnessBurnSlow": ((1_440, 120, 0.06),),
    "TurnoutFreshnessBudgetDrip": ((5_760, 480, 0.03), (17_280, 1_440, 0.01)),
}


@dataclass(frozen=True)
class Sample:
    """One scrape of everything, and the judgement of that moment."""

    at: int  # seconds since the beginning
    page: Fleet
    up: Mapping[str, bool]  # by target
    ingest: str  # works | hangs | away | gone | none
    ingest_commits: bool  # the running ingest has committed
    late_rows: frozenset[str]  # games with a commit above the objective since the last sample
    landed: Mapping[str, tuple[int, int]]  # rows landed and refused since the last sample
    targets: Mapping[str, str]  # by group: works | hangs | away | gone | none


@dataclass
class Recorder:
    """Samples a history as Prometheus does."""

    history: History
    samples: list[Sample] = field(default_factory=list)
    series: dict[str, list[str]] = field(default_factory=dict)
    _targets: dict[str, Running] = field(default_factory=dict)
    _seen: dict[tuple[int, str], tuple[int, int, int]] = field(default_factory=dict)

    def sample(self, page: Fleet) -> None:
        history, number = self.history, len(self.samples)
        for process in history.processes.values():
            if process.kind != "controller":
                self._targets[f"{process.kind}-{process.name}"] = process
        up = {}
        present: dict[str, float] = {}
        for target, process in list(self._targets.items()):
            if process in history.ended and not process.is_killed:  # it has removed its file
                del self._targets[target]
                continue
            read = None if process in history.ended else scrape(process)
            up[target] = read is not None
            labels = {"job": "turnout", "kind": process.kind, "instance": f"{target}:{process.pid}"}
            if process.kind == "group":
                labels["cluster_group"] = process.name
            present[_name("up", labels)] = float(up[target])
            for (name, own), value in (read or {}).items():
                if name in _USED:
                    shift = START if name.endswith("_timestamp_seconds") else 0.0
                    present[_name(name, {**labels, **dict(own)})] = value - shift
        for name in self.series.keys() | present.keys():
            values = self.series.setdefault(name, ["_"] * number)
            absent = "stale" if values and values[-1] not in {"_", "stale"} else "_"
            values.append(repr(present[name]) if name in present else absent)
        late, landed = self._commits()
        ingest = history.processes.get(("ingest", "main"))
        self.samples.append(
            Sample(
                number * STEP, page, up, self._state("ingest", "main"),
                ingest is not None and ingest.telemetry.exposition.snapshot().ingest is not None, late, landed,
                {name: self._state("group", name) for name in history.groups},
            )
        )  # fmt: skip

    def _state(self, kind: str, name: str) -> str:
        process = self.history.processes.get((kind, name))
        if process is None:
            return "gone" if f"{kind}-{name}" in self._targets else "none"
        if process.is_hung:
            return "hangs"
        return "away" if self.history.clock.is_store_away else "works"

    def _commits(self) -> tuple[frozenset[str], dict[str, tuple[int, int]]]:
        late, landed = set(), dict[str, tuple[int, int]]()
        for process in self.history.processes.values():
            if process.kind == "controller":
                continue
            for key, total in process.telemetry.exposition.snapshot().games.items():
                now = (sum(total.latency_counts[8:]), total.rows, sum(total.rejects.values()))
                before = self._seen.get((process.pid, key), (0, 0, 0))
                self._seen[process.pid, key] = now
                if now[0] > before[0]:
                    late.add(key)
                rows, refused = landed.get(key, (0, 0))
                landed[key] = (rows + now[1] - before[1], refused + now[2] - before[2])
        return frozenset(late), landed


def _name(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inside}}}"


_USED: Final = frozenset(re.findall(r"(?<!:)\bturnout_\w+", RULES_FILE.read_text("utf-8")))


# --------------------------------------------------------------------------------------------------- what must fire


def expected(
    samples: Sequence[Sample], games: Sequence[str], groups: Sequence[str]
) -> Iterator[tuple[str, str, list[Truth]]]:
    """Yield each alert, a matcher of its labels, and whether it must fire at each sample."""
    rules: dict[str, Alert] = {}
    for alert in alerts():
        rules.setdefault(alert.name, alert)
    for name, condition in _OF_FLEET.items():
        yield name, "", _held(rules[name], [condition(samples, number) for number in range(len(samples))])
    for group in groups:
        truths = [_group_down(samples, number, group) for number in range(len(samples))]
        yield "TurnoutGroupDown", f'cluster_group="{group}"', _held(rules["TurnoutGroupDown"], truths)
    for game in games:
        for name, of_game in _OF_GAMES.items():
            truths = [of_game(samples, number, game) for number in range(len(samples))]
            yield name, f'game="{game}"', _held(rules[name], truths)
        missed = [_missed(samples, number, game) for number in range(len(samples))]
        for name, pairs in _BURNS.items():
            yield name, f'game="{game}"', [_burns(missed[: number + 1], pairs) for number in range(len(samples))]
    for name in _NEVER:
        yield name, "", [False] * len(samples)
    yield "TurnoutWatchdog", "", [True] * len(samples)


def _held(alert: Alert, truths: Sequence[Truth]) -> list[Truth]:
    """Apply a rule's wait, and for how long it keeps firing."""
    wait = _duration(alert.hold) // STEP
    plain: list[Truth] = []
    for number in range(len(truths)):
        if number < wait:
            known = truths[: number + 1]
            plain.append(False if number < wait or False in known else None)
            continue
        window = truths[number - wait : number + 1]
        plain.append(True if all(each is True for each in window) else False if False in window else None)
    keep = _duration(alert.keep_firing or "0s") // STEP
    if not keep:
        return plain
    kept: list[Truth] = []
    for number in range(len(plain)):
        surely, maybe = plain[max(0, number - keep + 1) : number + 1], plain[max(0, number - keep - 1) : number + 1]
        kept.append(True if any(each is True for each in surely) else False if all(e is False for e in maybe) else None)
    return kept


def _duration(text: str) -> int:
    return int(text[:-1]) * _SECONDS[text[-1]]


def _lasting(samples: Sequence[Sample], number: int, seconds: int, holds: Callable[[Sample], bool]) -> bool:
    """Return whether something has held at every sample of a span, up to this one."""
    first = number - seconds // STEP
    return first >= 0 and all(holds(each) for each in samples[first : number + 1])


def _works(sample: Sample) -> bool:
    return sample.ingest == "works"


def _unhealthy(samples: Sequence[Sample], number: int) -> Truth:
    now = samples[number]
    if _works(now):
        return bool(now.page.judgement.problems)
    if now.ingest in {"gone", "none"}:
        return True if now.up else None
    return True if _lasting(samples, number, 90, lambda each: each.ingest in {"hangs", "away"}) else None


def _of_ingest(read: Callable[[Sample], bool]) -> Callable[[Sequence[Sample], int], Truth]:
    """Return a condition that is known while ingest exports it."""
    return lambda samples, number: read(samples[number]) if _works(samples[number]) else None


def _no_controller(sample: Sample) -> bool:
    judgement = sample.page.judgement
    waits = any(re.search(r"waits? and (no|the) controller", each.text) for each in judgement.problems)
    return not judgement.controller_runs and (judgement.supervised_groups > 0 or waits)


def _source_late(samples: Sequence[Sample], number: int) -> Truth:
    recent = samples[max(0, number - 9) : number + 1]
    if not all(_works(each) for each in recent):
        return None
    ages = [each.page.judgement.source.age_seconds or 0.0 for each in recent]
    if any(age > OBJECTIVE for age in ages[-7:]):
        return True
    return False if all(age <= OBJECTIVE for age in ages) else None


def _ingest_stalled(samples: Sequence[Sample], number: int) -> Truth:
    now = samples[number]
    at = now.page.newest_bronze_at
    if not _works(now):
        return None
    if not now.ingest_commits:
        return True
    quiet = now.page.read_at - (at or 0.0)
    limit = max(300.0, now.page.judgement.source.silent_after or 0.0)
    return True if quiet > limit + 1 else False if quiet < limit - 1 else None


_OF_FLEET: Final[Mapping[str, Callable[[Sequence[Sample], int], Truth]]] = {
    "TurnoutFleetUnhealthy": _unhealthy,
    "TurnoutControllerDown": _of_ingest(_no_controller),
    "TurnoutOperationNeedsPerson": _of_ingest(
        lambda each: any(problem.kind == "operation" for problem in each.page.judgement.problems)
    ),
    "TurnoutMaintenanceOverdue": _of_ingest(lambda each: each.page.upkeep.overdue_seconds(each.page.read_at) > 0),
    "TurnoutSourceBacklog": _source_late,
    "TurnoutSourceUnknown": _of_ingest(lambda each: each.page.judgement.source.age_seconds is None),
    "TurnoutIngestStalled": _ingest_stalled,
}


def _group_down(samples: Sequence[Sample], number: int, group: str) -> Truth:
    now = samples[number]
    state = now.page.judgement.driver("group", group)
    if _lasting(
        samples, number, 195, lambda each: _works(each) and each.page.judgement.wanted_groups.get(group, False)
    ):
        return True
    if now.targets[group] == "works":
        return False if _lasting(samples, number, 90, lambda each: _is_well(each, group)) else None
    if state is None or state.liveness.is_live or now.targets[group] == "none":
        return None
    if group in now.page.judgement.stopped_groups:
        return False if _works(now) else None
    silent = _lasting(samples, number, 150, lambda each: each.targets[group] in {"hangs", "away", "gone"})
    return True if silent and group not in now.page.judgement.stopped_groups else None


def _is_well(sample: Sample, group: str) -> bool:
    return sample.targets[group] == "works" and sample.page.judgement.wanted_groups.get(group) is False


def _behind_source(samples: Sequence[Sample], number: int) -> Truth:
    """Return whether rows are late before they reach bronze; an ingest that is not heard of is expected nothing of."""
    now = samples[number]
    age = now.page.judgement.source.age_seconds
    if not _works(now):
        return None
    return _ingest_stalled(samples, number) if age is None else age > OBJECTIVE


def _row(sample: Sample, game: str) -> GameRow | None:
    return sample.page.row(game)


def _word(sample: Sample, game: str) -> str | None:
    """Return a stream's status where it is its driver's own word; None where nobody's word counts."""
    row = _row(sample, game)
    if row is None or row.live is None or sample.targets.get(row.group or "") != "works":
        return None  # the judgement learns of a silent death after some seconds, Prometheus at the next scrape
    return row.live.status


def _in(statuses: frozenset[str]) -> Callable[[Sequence[Sample], int, str], Truth]:
    def condition(samples: Sequence[Sample], number: int, game: str) -> Truth:
        word = _word(samples[number], game)
        return None if word is None else word in statuses

    return condition


def _late(samples: Sequence[Sample], number: int, game: str) -> Truth:
    now = samples[number]
    row, word = _row(now, game), _word(now, game)
    if row is None or word is None or row.live is None:
        return None
    if word in _EXEMPT:
        return False
    age = row.live.backlog_age_seconds
    if (age is not None and age > OBJECTIVE) or (age is None and word in {"CATCHING_UP", "LAGGING", "UNKNOWN"}):
        return True
    recent = samples[max(0, number - 11) : number + 1]
    return None if any(game in each.late_rows for each in recent) else False


def _rejects(samples: Sequence[Sample], number: int, game: str) -> Truth:
    recent = samples[max(0, number - 42) : number + 1]
    refused = sum(each.landed.get(game, (0, 0))[1] for each in recent)
    return None if refused else False


_OF_GAMES: Final[Mapping[str, Callable[[Sequence[Sample], int, str], Truth]]] = {
    "TurnoutStreamDown": _in(_DOWN),
    "TurnoutStreamStalled": _in(frozenset({"STALLED"})),
    "TurnoutLatencyOverObjective": _late,
    "TurnoutRejectRatioHigh": _rejects,
}


def _missed(samples: Sequence[Sample], number: int, game: str) -> Truth:
    """Return whether a game misses its objective at a note."""
    now = samples[number]
    word, late = _word(now, game), _late(samples, number, game)
    if word is None:
        row = _row(now, game)
        group = None if row is None else row.group
        if group is None or _group_down(samples, number, group) is not True:
            return None
        before = next((each for each in reversed(samples[:number]) if _word(each, game) is not None), None)
        last = None if before is None else _row(before, game)  # without it Prometheus never heard of the game
        return True if last is not None and last.group == group else None
    if word in _DOWN or word in {"STALLED", "UNKNOWN"}:
        return True
    if word in _EXEMPT or late is True:
        return late
    behind = _behind_source(samples, number)
    if behind is True:
        return True
    return None if behind is None or late is None or _was_down(samples, number, game) else False


def _was_down(samples: Sequence[Sample], number: int, game: str) -> bool:
    """Return whether the judgement found the game's group down within the last minute, which its rule looks back."""
    row = _row(samples[number], game)
    group = "" if row is None else row.group or ""
    return any(each.page.judgement.wanted_groups.get(group, False) for each in samples[max(0, number - 5) : number])


def _burns(missed: Sequence[Truth], pairs: Sequence[tuple[int, int, float]]) -> Truth:
    """Return whether both windows of a pair burn; rules are evaluated a note earlier or later."""
    verdicts: list[Truth] = []
    for long, short, share in pairs:
        least = [sum(each is True for each in missed[-notes:]) - 2 for notes in (long, short)]
        most = [sum(each is not False for each in missed[-notes - 1 :]) + 1 for notes in (long, short)]
        if all(count / notes > share for count, notes in zip(least, (long, short), strict=True)):
            verdicts.append(True)
        elif any(count / notes <= share for count, notes in zip(most, (long, short), strict=True)):
            verdicts.append(False)
        else:
            verdicts.append(None)
    return True if True in verdicts else None if None in verdicts else False
