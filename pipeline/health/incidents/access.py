"""Access that is over and still there: one incident for all of it, which names who and what. Pure.

It is about no stream, so it is judged beside the causes of games, and its incident has no games.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pipeline.base.texts import first_lines
from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.incidents import Incident, ended
from pipeline.health.incidents.texts import MAX_NAME, cut, of_all
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import Cause

OVERDUE_SECONDS: Final = 300.0
"""Access is overdue from this time after its end on: a revoke that works takes seconds."""

_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class OverdueAccess:
    """A grant that is over, and that no read of the catalog has shown as revoked."""

    principal: str
    game: str  # its name
    since: float  # Unix seconds: when it was over


def judge_access(overdue: Sequence[OverdueAccess], now: float) -> Finding | None:
    """Return that access is over and still there; None where nothing is overdue."""
    if not overdue:
        return None
    listed = sorted(overdue, key=lambda each: (each.since, each.principal, each.game))

    def line(each: OverdueAccess) -> str:
        return f"{cut(each.principal, MAX_NAME)} on {cut(each.game, MAX_NAME)}, over for {duration(now - each.since)}"

    one = listed[0]
    title, past = f"{len(listed):,} grants are over and not revoked", f"{len(listed):,} grants were revoked too late"
    if len(listed) == 1:
        grant = f"The grant of {cut(one.principal, MAX_NAME)} on {cut(one.game, MAX_NAME)}"
        title, past = f"{grant} is over and not revoked", f"{grant} was revoked too late"
    return of_all(
        Cause.ACCESS, title, first_lines(listed, _MOST_NAMED, line), ("streams are not affected",),
        Action("Open operations", "operations", {}), "turnoutaccessoverdue", scope="access", is_fact=True,
        past=past,
    )  # fmt: skip


def keep_access(
    before: Sequence[Incident], overdue: Sequence[OverdueAccess], now: float, new_id: Callable[[], str]
) -> tuple[Incident, ...]:
    """Return the incident of access after a look; `before` has those that are open or ended just now."""
    finding = judge_access(overdue, now)
    still_open = [each for each in before if each.ended_at is None]
    if finding is None:
        return tuple(ended(each, now) for each in still_open)
    since = min(each.since for each in overdue)
    new = Incident(new_id(), finding, (), None, since, None, None, "bad", now)
    first, *others = sorted(still_open, key=lambda each: (each.since, each.incident_id)) or [new]
    return (replace(first, finding=finding), *(replace(each, ended_at=now) for each in others))
