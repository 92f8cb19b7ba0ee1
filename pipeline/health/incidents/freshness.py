"""Tables that are not as fresh as output contracts promise: one incident for all of them, which names each. Pure.

It is about what readers rely on and no stream, so it is judged beside the causes of games; its incident has no games.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pipeline.base.texts import first_lines, join_limited
from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.incidents import Incident, ended
from pipeline.health.incidents.texts import MAX_NAME, cut, of_all
from pipeline.health.verdicts.freshness import FreshnessVerdict
from pipeline.store.database.states import Cause

_MOST_NAMED: Final = 10
_MOST_READERS: Final = 5


def judge_freshness(verdicts: Sequence[FreshnessVerdict]) -> Finding | None:
    """Return that promises are broken, or not known to be kept; None where all are kept."""
    stale = sorted((each for each in verdicts if each.is_stale), key=lambda each: (each.game, each.promise.contract))
    if not stale:
        return None
    keys = sorted({each.game_key for each in stale})
    title, action = f"{len(keys):,} games are not as fresh as their contracts promise", Action("Open fleet", "fleet")
    past = f"{len(keys):,} games were not as fresh as their contracts promise"
    if len(keys) == 1:
        game = cut(stale[0].game, MAX_NAME)
        title, past = (f"{game} {verb} not as fresh as its contract promises" for verb in ("is", "was"))
        action = Action("Look at its contract", "game", {"game": keys[0], "rows": "contract"})
    return of_all(
        Cause.FRESHNESS, title, first_lines(stale, _MOST_NAMED, _line), (), action, "turnoutcontractstale",
        scope="contracts", is_fact=True, past=past,
    )  # fmt: skip


def keep_freshness(
    before: Sequence[Incident], verdicts: Sequence[FreshnessVerdict], now: float, new_id: Callable[[], str]
) -> tuple[Incident, ...]:
    """Return the incident of freshness after a look; `before` has those that are open or ended just now.

    One that ended just now opens again, as a time that is known in steps passes a limit several times.
    """
    finding = judge_freshness(verdicts)
    still_open = [each for each in before if each.ended_at is None]
    if finding is None:
        return tuple(ended(each, now) for each in still_open)
    new = Incident(new_id(), finding, (), None, now, None, None, "late", now)
    first, *others = sorted(still_open or before, key=lambda each: (each.since, each.incident_id)) or [new]
    kept = replace(first, finding=finding, ended_at=None, tone="late")
    return (kept, *(replace(each, ended_at=now) for each in others if each.ended_at is None))


def _line(verdict: FreshnessVerdict) -> str:
    readers = join_limited(verdict.promise.readers, _MOST_READERS, lambda each: cut(each, MAX_NAME))
    broken = "; ".join(each.text for each in verdict.parts if not each.is_kept)
    said = f"{cut(verdict.game, MAX_NAME)}, contract {verdict.promise.contract}: {broken}"
    return f"{said} (readers: {readers})" if readers else said
