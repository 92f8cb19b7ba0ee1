"""What waits for a person's decision: stuck operations, requested registrations and reopened days, proposed games.

Requests of access are of `grants.api.access`. Every query raises `Refused` where the control store cannot be read.
"""

from dataclasses import dataclass
from typing import Final, Literal

from pipeline.api import operations
from pipeline.api.environment import OpenEnvironment
from pipeline.control.registering import requests
from pipeline.data.books.days import label
from pipeline.store import reopenings
from pipeline.store.database.engine import reading
from pipeline.store.game_proposals import open_proposals
from pipeline.store.games import known_games

InboxKind = Literal["operation", "access", "registration", "reopening", "proposal"]

MOST: Final = 1_000
"""Most items of a kind that are read."""


@dataclass(frozen=True, slots=True)
class InboxItem:
    """One thing that waits for a person; names in it are raw."""

    kind: InboxKind
    item_id: str  # of the operation or request; the game key of a proposal
    verb: str  # what is asked for, before the names, as `move of` or `grant`
    names: tuple[str, ...]  # of the games and groups it is about
    by: str
    since: float  # Unix seconds by the store's clock
    needs: str = ""  # a clause behind the names


@reading()
def stuck(environment: OpenEnvironment) -> tuple[InboxItem, ...]:
    """Read the operations that need a person, the oldest first."""
    games = known_games(environment.engine)
    return tuple(
        InboxItem(
            "operation",
            each.operation_id,
            f"{(said := operations.words(each)).verb} of",
            tuple(_name(target, games) for target in said.about),
            each.actor,
            each.requested_at if each.stuck_since is None else each.stuck_since,
            "needs a person",
        )
        for each in operations.opened(environment)
        if each.is_stuck
    )


@reading()
def requested(environment: OpenEnvironment) -> tuple[InboxItem, ...]:
    """Read what people ask for: registrations, days to reopen, games; of each the oldest first."""
    store = environment.engine
    games = known_games(store)
    found = [
        InboxItem("registration", each.request_id, "register", (each.game,), each.requester, each.requested_at)
        for each in requests.list_requests(store, MOST)
        if each.state == "asked"
    ]
    found += [
        InboxItem(
            "reopening",
            each.request_id,
            f"reopen {label(each.day, each.day_seconds)}",
            (games.get(each.game_key, each.game_key),),
            each.requester,
            each.requested_at,
        )
        for each in reopenings.list_requests(store, MOST)
        if each.state == "asked"
    ]
    found += [
        InboxItem("proposal", key, "propose", (each.game,), each.proposed_by, each.proposed_at)
        for key, each in open_proposals(store).items()
    ]
    return tuple(found)


def _name(target: str, games: dict[str, str]) -> str:
    kind, _, name = target.partition(":")
    return games.get(name, name) if kind == "game" else f"{kind} {name}"
