"""Times up to which games were complete, and which an incident took back: one incident for all of it. Pure.

It is about all games and no stream, so it is judged beside the causes of games, and its incident has no games.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pipeline.base.texts import moment
from pipeline.health.incidents.causes import Finding
from pipeline.health.incidents.incidents import Incident, ended
from pipeline.health.incidents.texts import of_all
from pipeline.store.database.states import Cause
from pipeline.store.rows import Withdrawal

SHOWN_SECONDS: Final = 300.0
"""Least seconds for which times that went back are an incident."""

_MOST_NAMED: Final = 3
_WHY: Final = {
    "clock": "the control store's clock was set back",
    "restore": "bronze was restored from an older copy",
    "truncated": "the source lost records that ingest had read",
    "older_copy": "the source is an older copy of itself",
}


def judge_through(withdrawals: Sequence[Withdrawal], through_at: float | None, now: float) -> Finding | None:
    """Return that times went back, until bronze is complete through the latest of them again; None without any.

    Args:
        withdrawals: as ingest reported them, the newest last.
        through_at: the time through which bronze is complete; None where none is known.
        now: Unix seconds, as all times here.
    """
    recent = [each for each in withdrawals if _is_open(each, through_at, now)]
    if not recent:
        return None
    kept = recent[-1].kept
    title, advice = (
        "No time is known any more through which games are complete",
        "compute again what relied on such times",
    )
    if kept is not None:
        title = f"The time through which games are complete went back to {moment(kept)}"
        advice = f"compute again what relied on times after {moment(kept)}"
    said = [
        f"{_reason(each.incident)}, noticed {moment(each.at)}: {each.pairs:,} times up to {moment(each.newest)} do not "
        "count any more"
        for each in reversed(recent[-_MOST_NAMED:])
    ]
    found = of_all(
        Cause.TIME_WENT_BACK,
        title,
        said,
        ("streams are not affected",),
        None,
        None,
        scope="through",
        is_fact=True,
        past=title.replace("is known any more", "was known any more"),
    )
    return replace(found, advice=advice)


def keep_through(
    before: Sequence[Incident], withdrawals: Sequence[Withdrawal], through_at: float | None, now: float,
    new_id: Callable[[], str],
) -> tuple[Incident, ...]:  # fmt: skip
    """Return the incident of times that went back, after a look; `before` has those that are open or ended just now."""
    finding = judge_through(withdrawals, through_at, now)
    still_open = [each for each in before if each.ended_at is None]
    if finding is None:
        return tuple(ended(each, now) for each in still_open)
    since = min(now, *(each.at for each in withdrawals if _is_open(each, through_at, now)))
    new = Incident(new_id(), finding, (), None, since, None, None, "late", now)
    first, *others = sorted(still_open, key=lambda each: (each.since, each.incident_id)) or [new]
    return (replace(first, finding=finding), *(replace(each, ended_at=now) for each in others))


def _is_open(each: Withdrawal, through_at: float | None, now: float) -> bool:
    if now - each.at < SHOWN_SECONDS or through_at is None:
        return True
    return through_at < min(each.newest, each.at)  # of a clock that was ahead, later times never were true


def _reason(incident: str) -> str:
    return " and ".join(_WHY.get(each, each) for each in incident.split(", "))
