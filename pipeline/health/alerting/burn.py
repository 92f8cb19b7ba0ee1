"""The rules of objectives: how fast each game spends the time in which it may be late.

Each quarter of a minute a recording rule notes whether a game misses its class's objective. Alerts compare shares of
longer windows with the share that may be missed; the pairs of windows and the shares of the budget are those of the
Google SRE workbook, chapter 5 (2 % in an hour, 5 % in 6 hours, 10 % in 1 day and in 3 days).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipeline.health.alerting.expressions import EXEMPT, OWNER, late_games, owned, selector, source_late
from pipeline.health.alerting.objectives import Objective
from pipeline.health.kinds.groups import GROUP_SILENT, UNANSWERED
from pipeline.health.verdicts.alert import Alert

STEP_SECONDS: Final = 15
"""Time between two notes. The denominators of the shares rely on it, so a window that is only partly known cannot
burn: the first minutes of a Prometheus or of a game raise nothing."""

_HOUR: Final = 3600
_WINDOWS: Final[Mapping[str, int]] = {  # Prometheus's words → seconds
    "5m": 300, "30m": 1800, "1h": _HOUR, "2h": 2 * _HOUR, "6h": 6 * _HOUR, "1d": 24 * _HOUR, "3d": 72 * _HOUR,
}  # fmt: skip
_LONG: Final = ("1d", "3d")  # thousands of notes per game: looked at less often
_MISSED: Final = "game:turnout_objective_missed"
_LAST_OWNER: Final = "game:turnout_stream_owner:last"
_GAME_PAGE: Final = "/game?game={{ $labels.game }}"


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """One recording rule."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Recording rules that Prometheus evaluates in order, so often."""

    name: str
    interval: str
    records: Sequence[RecordingRule]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two windows that must both burn: the long one says that it matters, the short one says that it goes on."""

    long: str
    short: str
    spent: float  # share of the budget that the long one spends


_FAST: Final = (_Pair("1h", "5m", 0.02),)
_SLOW: Final = (_Pair("6h", "30m", 0.05),)
_DRIP: Final = (_Pair("1d", "2h", 0.10), _Pair("3d", "6h", 0.10))


def record_groups(objectives: Sequence[Objective], latency_seconds: float) -> tuple[RecordGroup, ...]:
    """Return the recording rules; `latency_seconds` is the latency of classes that name none."""
    missed = [
        RecordingRule(
            f"{_MISSED}:bool",
            _missed(f"{_latency(objective, latency_seconds):g}", matchers),
            {"class": objective.name},
        )
        for objective, matchers in zip(objectives, _matchers(objectives), strict=True)
    ]
    short = [_share(window) for window in _WINDOWS if window not in _LONG]
    return (
        RecordGroup("turnout-objectives", f"{STEP_SECONDS}s", (RecordingRule(_LAST_OWNER, _LAST), *missed, *short)),
        RecordGroup("turnout-objectives-long", "2m", [_share(window) for window in _LONG]),
    )


def burn_alerts(objectives: Sequence[Objective], latency_seconds: float) -> tuple[Alert, ...]:
    """Return the alerts of each class, in its order."""
    return tuple(alert for each in objectives for alert in _of_class(each, _latency(each, latency_seconds)))


def _of_class(objective: Objective, latency_seconds: float) -> Iterator[Alert]:
    labels = {"class": objective.name}  # two rules of one name and the same labels would be one
    promise = (
        f"Class {objective.name}: {objective.share * 100:g} % of {objective.days:g} days within {latency_seconds:g} s."
    )
    yield Alert(
        "TurnoutFreshnessBurnFast",
        "page",
        _burning(objective, _FAST),
        "0m",
        "{{ $labels.game }} misses its objective",
        f"It was late for {{{{ $value | humanizePercentage }}}} of the last hour, and still is. {promise}",
        _GAME_PAGE,
        labels=labels,
    )
    yield Alert(
        "TurnoutFreshnessBurnSlow",
        "page",
        _burning(objective, _SLOW),
        "0m",
        "{{ $labels.game }} has missed its objective for hours",
        f"It was late for {{{{ $value | humanizePercentage }}}} of the last 6 hours, and again now. {promise}",
        _GAME_PAGE,
        labels=labels,
    )
    yield Alert(
        "TurnoutFreshnessBudgetDrip",
        "ticket",
        _burning(objective, _DRIP),
        "0m",
        "{{ $labels.game }} will miss its objective if this goes on",
        f"It was late for {{{{ $value | humanizePercentage }}}} of the last 1 or 3 days. {promise}",
        _GAME_PAGE,
        labels=labels,
    )


def _burning(objective: Objective, pairs: Sequence[_Pair]) -> str:
    matcher = f'class="{objective.name}"'
    either = []
    for pair in pairs:
        above = objective.factor(pair.spent, _WINDOWS[pair.long] / _HOUR) * objective.budget
        both = (selector(f"{_MISSED}:ratio{window}", matcher) for window in (pair.long, pair.short))
        either.append("\nand\n".join(f"{each} > {above:.6g}" for each in both))
    return owned("\nor\n".join(either), _LAST_OWNER)


def _latency(objective: Objective, otherwise: float) -> float:
    return otherwise if objective.latency_seconds is None else objective.latency_seconds


def _matchers(objectives: Sequence[Objective]) -> Iterator[str]:
    """Yield matchers of the label `game` for each class: a game belongs to the first that names it."""
    taken: list[str] = []
    for each in objectives:
        wanted = "" if each.games is None else f'game=~"{each.games}"'
        others = f'game!~"{"|".join(taken)}"' if taken else ""
        yield ",".join(part for part in (wanted, others) if part)
        taken.append(".*" if each.games is None else each.games)


# A driver that dies takes its series with it. The judgement names its games; where it does not, or not yet, they are
# remembered as long as its target does not answer. A game that was retired or has moved is not among those.
_LAST: Final = f"""\
{OWNER}
or on (game)
max by (game, cluster_group) (turnout_fleet_game_stranded)
or on (game)
({_LAST_OWNER} and on (cluster_group) (
{UNANSWERED}
))"""


def _missed(objective: str, games: str) -> str:
    """Return 1 for each game that misses it now, 0 for each whose backlog is known and small; else nothing."""
    broken = selector("turnout_stream_status", 'status=~"CRASH_LOOP|FAILED|MISSING|STALLED|UNKNOWN"', games)
    return f"""\
group by (game) (
{late_games(objective, games)}
)
or on (game)
group by (game) ({broken} == 1)
or on (game)
group by (game) (
  {selector(_LAST_OWNER, games)} and on (cluster_group) (
{GROUP_SILENT}
  )
)
or on (game)
group by (game) (
  {selector(_LAST_OWNER, games)} and on () (
{source_late(objective)}
  )
  unless on (game) ({EXEMPT})
)
or on (game)
0 * group by (game) (
  {selector("turnout_stream_backlog_age_seconds", games)} unless on (game) ({EXEMPT})
)"""


def _share(window: str) -> RecordingRule:
    notes = _WINDOWS[window] // STEP_SECONDS
    return RecordingRule(f"{_MISSED}:ratio{window}", f"clamp_max(sum_over_time({_MISSED}:bool[{window}]) / {notes}, 1)")
