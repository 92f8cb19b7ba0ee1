"""Closed days that open again: one person asks with a reason, a second one approves; both are in the audit log.

Called by `turnout books reopen | requests | approve | reject`. Approving changes no row: the day's next closing has the
next revision, and the one before stays in the ledger and in `closed/GAME`.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.api.books import closed, label
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.base.texts import in_utc
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.roles import is_self
from pipeline.data.books.book_days import reopened_days
from pipeline.data.books.days import MICROS, Closing, begin_of, newest_revisions
from pipeline.store import reopenings
from pipeline.store.audit import Act
from pipeline.store.database.engine import reading
from pipeline.store.database.states import RequestState
from pipeline.store.games import Game
from pipeline.store.reopenings import Reopening

__all__ = ["Reopening", "approve", "as_dict", "find", "line", "reject", "reopen", "requests", "waiting_lines"]


def reopen(environment: OpenEnvironment, actor: str, game: Game, moment: float, reason: str) -> Reopening:
    """Ask a second person to open the closed day of a game that a moment (Unix seconds) lies in.

    Raises:
        Refused: the actor has not the role or gives no reason, or the day is not closed.
    """
    known = closed(environment, game)
    seconds = known[-1].day_seconds if known else environment.settings.books.day_seconds
    day = begin_of(moment, seconds)
    detail = {"day": label(day, seconds), "reason": reason}
    act = Act(actor, str(DirectAct.REOPEN_DAY), (f"game:{game.key}",), detail=detail)
    with gate.acting(environment.settings, environment.engine, DirectAct.REOPEN_DAY, act):
        closing = _require_closed(environment, game.key, day, known)
        return reopenings.submit(
            environment.engine, game.key, day, closing.day_seconds, closing.revision, actor, reason
        )


def approve(environment: OpenEnvironment, actor: str, wanted: Reopening, reason: str = "") -> Reopening:
    """Open a closed day again, as another person asked.

    Raises:
        Refused: the actor is the requester or has not the role, the day has another revision by now, or another person
            has decided meanwhile.
    """
    settings, engine = environment.settings, environment.engine
    with gate.acting(settings, engine, DirectAct.APPROVE_REOPENING, _decision(wanted, actor, reason)):
        if is_self(settings.access, actor, wanted.requester):
            raise Refused("You cannot approve your own request; ask another person.")
        if wanted.state == "asked":
            closing = _require_closed(environment, wanted.game_key, wanted.day, closed(environment))
            if closing.revision != wanted.revision:
                raise Refused(
                    f"The day has revision {closing.revision} by now, and the request is about {wanted.revision}. "
                    "Reject it."
                )
        return reopenings.decide(engine, wanted, "approved", actor, reason)


def reject(environment: OpenEnvironment, actor: str, wanted: Reopening, reason: str) -> Reopening:
    """End a request; by the requester it is withdrawn, by another person rejected. The day stays closed.

    Raises:
        Refused: the actor has not the role, gives no reason, or another person has decided meanwhile.
    """
    settings, engine = environment.settings, environment.engine
    state: RequestState = "withdrawn" if is_self(settings.access, actor, wanted.requester) else "rejected"
    act = _decision(wanted, actor, reason, str(DirectAct.REJECT_REOPENING))
    with gate.acting(settings, engine, DirectAct.REJECT_REOPENING, act):
        return reopenings.decide(engine, wanted, state, actor, reason)


@reading()
def requests(environment: OpenEnvironment, limit: int = 100) -> list[Reopening]:
    """Return requests: open ones first, oldest first; then decided ones, newest first."""
    return reopenings.list_requests(environment.engine, limit)


@reading()
def find(environment: OpenEnvironment, request_id: str) -> Reopening:
    """Return a request by its id or a unique prefix.

    Raises:
        Refused: there is none, or there are several.
    """
    return reopenings.request(environment.engine, request_id)


def waiting_lines(wanted: Reopening) -> tuple[str, ...]:
    """Return for the requester what happens next, as sentences."""
    name = wanted.request_id[:8]
    waits = "waits already, with its first reason" if wanted.repeated else "waits"
    return (
        f"Request {name} {waits} for a second person: the day stays closed until then.",
        f"They approve it with `turnout books approve {name}`.",
    )


def line(wanted: Reopening) -> str:
    """Return a request as a line; raw texts are in it."""
    decided = f" by {wanted.decided_by}: {wanted.decision_reason or 'no reason'}" if wanted.decided_by else ""
    return (
        f"{wanted.request_id[:8]}  {in_utc(wanted.requested_at)}  {wanted.state}{decided}  {wanted.requester}: "
        f"{wanted.game_key} {label(wanted.day, wanted.day_seconds)} revision {wanted.revision}; {wanted.reason}"
    )


def as_dict(wanted: Reopening) -> dict[str, Any]:
    """Return a request for JSON; times are Unix seconds."""
    return {
        "request_id": wanted.request_id, "requester": wanted.requester, "game_key": wanted.game_key,
        "day": label(wanted.day, wanted.day_seconds), "begin": wanted.day // MICROS, "revision": wanted.revision,
        "reason": wanted.reason, "state": wanted.state, "requested_at": wanted.requested_at,
        "decided_by": wanted.decided_by, "decision_reason": wanted.decision_reason, "decided_at": wanted.decided_at,
    }  # fmt: skip


def _require_closed(environment: OpenEnvironment, key: str, day: int, known: Sequence[Closing]) -> Closing:
    """Return the closing in force of a day that is closed, and not open again."""
    own = [each for each in known if each.game_key == key]
    closing = newest_revisions(own).get(day)
    if closing is None:
        raise Refused("The day is not closed.")
    if day in reopened_days(reopenings.approved(environment.engine, key), own):
        raise Refused(f"The day is open again already: `turnout books close` makes revision {closing.revision + 1}.")
    return closing


def _decision(wanted: Reopening, actor: str, reason: str, action: str = str(DirectAct.APPROVE_REOPENING)) -> Act:
    detail = {
        "day": label(wanted.day, wanted.day_seconds), "revision": wanted.revision, "request": wanted.request_id,
        "requester": wanted.requester, "reason": reason,
    }  # fmt: skip
    return Act(actor, action, (f"game:{wanted.game_key}",), detail=detail)
