"""Who can read what, for pages: the controller's snapshot of the catalog, entitlements, requests, drift.

Nothing here asks the catalog. Every query raises `Refused` where the control store cannot be read.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sqlalchemy import Engine, select

from grants.applying import drift_store, ledger, proposals
from grants.applying.drift_store import DEFAULT_DAYS, MOST_DAYS, id_of
from grants.applying.ledger import Held, Item
from grants.applying.proposals import principal_of
from grants.applying.requests import Request, list_requests
from grants.derived_tables import inventory
from grants.model import Observed, PrincipalKind, folded
from grants.observing import snapshot
from grants.observing.external import judged
from grants.observing.matrix import Matrix, Way, by_game, matrix, ways
from grants.observing.resolver import Resolver
from grants.planning.drift import Drift
from pipeline.api import operations
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.base.texts import game_text, visible
from pipeline.control.roles import FRESH_SECONDS
from pipeline.store.database.engine import reading
from pipeline.store.database.states import AccessItemState
from pipeline.store.database.tables import catalog_snapshots
from pipeline.store.operations import Operation, operation

__all__ = [
    "DEFAULT_DAYS",
    "MOST_DAYS",
    "AccessItemState",
    "AccessState",
    "Drift",
    "GrantRecord",
    "Held",
    "Item",
    "PrincipalChoice",
    "Request",
    "ResolvedCatalog",
    "drift",
    "game_label",
    "history",
    "id_of",
    "items",
    "newest",
    "read",
    "resolve",
    "waiting",
    "why_values_hidden",
]

_KINDS: Final[tuple[PrincipalKind, ...]] = ("group", "user", "service_principal")  # in this order in lists
_SOON: Final = 14 * 86_400.0  # seconds


@dataclass(frozen=True, slots=True)
class PrincipalChoice:
    """A principal that can be granted to, or once could."""

    name: str  # raw, as the catalog spells it
    kind: PrincipalKind | None  # None: the directory does not know them (any more)
    active: bool = True


@dataclass(frozen=True)
class ResolvedCatalog:
    """A snapshot of the catalog, worked out."""

    observed: Observed
    resolver: Resolver
    matrix: Matrix
    ways: Mapping[str, tuple[Way | None, ...]]  # of the matrix' cells
    who: Mapping[str, PrincipalChoice]  # folded name → it: groups, then users, then service principals


@dataclass(frozen=True)
class AccessState:
    """What is known of access, read at one moment (Unix seconds)."""

    names: Mapping[str, str]  # by key: games, and silver and gold tables in force
    known: ResolvedCatalog | None  # None: the catalog was never read
    problem: str | None  # why the newest attempt to read the catalog failed; None: it did not
    requests: tuple[Request, ...]  # those that wait first
    held: tuple[Held, ...]
    on_the_way: tuple[Operation, ...]  # the changes of access that are not over
    no_controller: str | None  # why no controller acts, as a clause; None: one does
    read_at: float

    def game(self, key: str) -> str:
        """Return a game by the name people know it by, with its key."""
        return game_label(key, self.names)

    @cached_property  # each entry of each list asks for its label by it
    def everybody(self) -> Mapping[str, PrincipalChoice]:
        """All of the directory, then those who hold something and are not in it."""
        listed = {} if self.known is None else self.known.who
        gone = {folded(each.principal): PrincipalChoice(each.principal, None) for each in self.held}
        return {**listed, **{name: who for name, who in gone.items() if name not in listed}}

    @property
    def waiting(self) -> tuple[Request, ...]:
        """The requests nobody has decided about."""
        return tuple(each for each in self.requests if each.state == "asked")

    @property
    def ending(self) -> tuple[Held, ...]:
        """What ends by itself within two weeks, the soonest first."""
        soon = [(each.until, each) for each in self.held if each.until is not None]
        ordered = sorted(soon, key=lambda pair: (pair[0], pair[1].entitlement_id))
        return tuple(each for until, each in ordered if until - self.read_at <= _SOON)


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """A present or past entitlement, with the people who granted and ended it."""

    held: Held
    given_by: str
    ended_by: str | None


def game_label(key: str, names: Mapping[str, str]) -> str:
    """Return a game by the name people know it by, with its key; `names` is the inventory by key."""
    return game_text(key, names[key]) if key in names else f"{visible(key, 60)} · not registered"


@reading()
def newest(environment: OpenEnvironment) -> tuple[float | None, str | None]:
    """Read when the snapshot was taken, which is little beside the snapshot itself, and why no newer one could be.

    None for the time: the catalog was never read.
    """
    with environment.engine.connect() as connection:
        row = connection.execute(select(catalog_snapshots.c.read_at, catalog_snapshots.c.problem)).first()
    return (None, None) if row is None else (row.read_at, row.problem)


@reading()
def resolve(environment: OpenEnvironment) -> ResolvedCatalog:
    """Read the snapshot and work it out, which takes a while: callers keep it until `newest` has another time.

    Raises:
        Refused: it is gone.
    """
    observed = snapshot.read(environment.engine).observed
    if observed is None:
        raise Refused("The snapshot of the catalog is gone. Reload the page.")
    resolver = Resolver(observed)
    found = observed.directory.principals.items()
    principals = sorted(found, key=lambda pair: (_KINDS.index(pair[1].kind), pair[0]))
    who = {name: PrincipalChoice(each.name, each.kind, each.active) for name, each in principals}
    cells = matrix(resolver, by_game(observed), [each.name for each in who.values()])
    return ResolvedCatalog(observed, resolver, cells, ways(resolver, cells), who)


@reading()
def read(environment: OpenEnvironment, known: ResolvedCatalog | None, problem: str | None) -> AccessState:
    """Read the rest of what is known of access, beside the snapshot and why there is no newer one."""
    store = environment.engine
    opened = [each for each in operations.opened(environment) if each.kind == proposals.KIND]
    no_controller = operations.absence(environment)
    return AccessState(
        names=inventory(store),
        known=known,
        problem=problem,
        requests=tuple(list_requests(store)),
        held=tuple(ledger.held(store)),
        on_the_way=tuple(opened),
        no_controller=no_controller,
        read_at=time.time(),
    )


@reading()
def waiting(environment: OpenEnvironment, most: int) -> tuple[Request, ...]:
    """Read the requests that nobody has decided about, the oldest first, without the catalog."""
    return tuple(each for each in list_requests(environment.engine, most) if each.state == "asked")


@reading()
def drift(environment: OpenEnvironment, known: ResolvedCatalog) -> Drift:
    """Return where a snapshot differs from what turnout keeps."""
    return drift_store.in_snapshot(environment.engine, known.observed)


@reading()
def history(environment: OpenEnvironment, key: str, principal: str) -> tuple[GrantRecord, ...]:
    """Read what a principal (folded) was ever given of a game by turnout, the newest first."""
    store: Engine = environment.engine
    entries = [each for each in ledger.history(store, key) if folded(each.principal) == principal]
    ids = {*(each.operation_id for each in entries), *(each.ended_by for each in entries if each.ended_by)}
    actors = {each: operation(store, each).actor for each in ids}
    past = [GrantRecord(each, actors[each.operation_id], actors.get(each.ended_by or "")) for each in entries]
    return tuple(reversed(past))


@reading()
def items(environment: OpenEnvironment, operation_id: str) -> tuple[Item, ...]:
    """Read the changes of an operation and how far each is."""
    return tuple(ledger.items(environment.engine, operation_id))


@reading()
def why_values_hidden(environment: OpenEnvironment, known: ResolvedCatalog, actor: str, key: str) -> str | None:
    """Return why an actor is not known to read a game's table with all its values; None where they do.

    What is not known hides them: no old snapshot of the catalog shows anything.
    """
    settings = environment.settings
    age = snapshot.age(environment.engine, known.observed)
    if age > FRESH_SECONDS + 2 * settings.access.refresh_seconds:
        return f"your access is not known, as the catalog was last read {age:,.0f} s ago"
    try:
        verdict = known.resolver.verdict(principal_of(settings.access, actor), key)
    except Refused as refused:
        return str(refused)
    table = known.observed.tables[key]
    if judged(table, environment.paths.table(GameKey(key)).uri, settings.demux.writer) is not None:
        return "the catalog's table of this name is not known to be the game's own"
    if verdict.badges:
        return f"the catalog hides some of them ({'; '.join(verdict.badges)})"
    if verdict.reads is None:
        return "your access is not known, as the catalog does not show all grants"
    return None if verdict.reads else "you may not read this game's table"
