"""Data of the Access page: the controller's snapshot of the catalog, and turnout's entitlements.

The snapshot is worked out once, however many look at it. Nothing here draws, writes, or asks the catalog.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import streamlit as st
from sqlalchemy import Engine, select

from app import formatting
from app.state.services import BY_STORE, Environment, engine, reading
from grants.applying import drift_store, ledger, proposals, requests
from grants.applying.ledger import Held, Item
from grants.applying.requests import Request
from grants.model import Observed, PrincipalKind, folded
from grants.observing import snapshot
from grants.observing.matrix import Matrix, Way, matrix, ways
from grants.observing.resolver import Resolver
from grants.planning.drift import Drift
from pipeline.base.errors import Refused
from pipeline.health.facts.liveness import judge_controller
from pipeline.health.verdicts.liveness import controller_absence
from pipeline.store.database.tables import catalog_snapshots
from pipeline.store.games import known_games
from pipeline.store.operations import Operation, list_operations, operation

KINDS: Final[Mapping[PrincipalKind, str]] = {
    "group": "group",
    "user": "user",
    "service_principal": "service principal",
}
_NOT_ACTIVE: Final = ", not active"
_KIND_WIDTH: Final = max(map(len, KINDS.values())) + len(_NOT_ACTIVE)
_SOON: Final = 14 * 86_400.0  # seconds
_MAX_OPEN: Final = 1_000


@dataclass(frozen=True, slots=True)
class PrincipalChoice:
    """A principal that can be granted to, or once could."""

    name: str  # raw, as the catalog spells it
    kind: PrincipalKind | None  # None: the directory does not know them (any more)
    active: bool = True

    @property
    def label(self) -> str:
        """It for a list to choose from.

        What follows the name is of one length, in spaces that no browser draws: of the labels that a typed text fits
        equally well, Streamlit takes the shortest, which has to be the one with the shortest name.
        """
        kind = "not in the directory" if self.kind is None else KINDS[self.kind]
        state = f"{kind}{'' if self.active else _NOT_ACTIVE}"
        return f"{formatting.principal_text(self.name)} · {state:<{_KIND_WIDTH}}"


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
    """Data of the page, read at one moment (Unix seconds)."""

    names: Mapping[str, str]  # by game key: the inventory
    known: ResolvedCatalog | None  # None: the catalog was never read
    problem: str | None  # why the newest attempt to read the catalog failed; None: it did not
    requests: tuple[Request, ...]  # those that wait first
    held: tuple[Held, ...]
    on_the_way: tuple[Operation, ...]  # the changes of access that are not over
    no_controller: str | None  # why no controller acts, as a clause; None: one does
    read_at: float

    def game(self, key: str) -> str:
        """Return a game by the name people know it by, with its key."""
        return (
            formatting.game_text(key, self.names[key])
            if key in self.names
            else f"{formatting.shown(key, 60)} · not registered"
        )

    def label(self, principal: str) -> str:
        """Return a principal, by the folded name, for a list to choose from."""
        choice = self.everybody.get(principal)
        return formatting.shown(principal, 80) if choice is None else choice.label

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


@st.cache_resource(ttl=2, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def read_access(environment: Environment) -> AccessState:
    """Read what the page looks at, at most 2 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    control_store = engine(environment)
    with reading():
        read_at, problem = _newest(control_store)
        opened = [
            each
            for each in list_operations(control_store, only_open=True, limit=_MAX_OPEN)
            if each.kind == proposals.KIND
        ]
        controller = judge_controller(control_store, environment.settings.metrics.heartbeat_seconds)
        return AccessState(
            names=known_games(control_store),
            known=None if read_at is None else _known(environment, read_at),
            problem=problem,
            requests=tuple(requests.list_requests(control_store)),
            held=tuple(ledger.held(control_store)),
            on_the_way=tuple(opened),
            no_controller=controller_absence(controller),
            read_at=time.time(),
        )


def known_catalog(environment: Environment) -> ResolvedCatalog | None:
    """Return the newest snapshot of the catalog; None where it was never read.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading():
        read_at, _ = _newest(engine(environment))
        return None if read_at is None else _known(environment, read_at)


@st.cache_resource(
    ttl=5,
    max_entries=2,
    show_spinner=False,
    hash_funcs={**BY_STORE, ResolvedCatalog: lambda known: known.observed.read_at},
)
def drift(environment: Environment, known: ResolvedCatalog) -> Drift:
    """Return where a snapshot differs from what turnout keeps, at most 5 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading():
        return drift_store.in_snapshot(engine(environment), known.observed)


def history(environment: Environment, key: str, principal: str) -> tuple[GrantRecord, ...]:
    """Read what a principal (folded) was ever given of a game by turnout, the newest first.

    Raises:
        Refused: the control store cannot be read.
    """
    store = engine(environment)
    with reading():
        entries = [each for each in ledger.history(store, key) if folded(each.principal) == principal]
        ids = {*(each.operation_id for each in entries), *(each.ended_by for each in entries if each.ended_by)}
        actors = {each: operation(store, each).actor for each in ids}
    past = [GrantRecord(each, actors[each.operation_id], actors.get(each.ended_by or "")) for each in entries]
    return tuple(reversed(past))


@st.cache_resource(ttl=1, max_entries=50, show_spinner=False, hash_funcs=BY_STORE)
def items(environment: Environment, operation_id: str) -> tuple[Item, ...]:
    """Read the changes of an operation and how far each is, at most 1 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading():
        return tuple(ledger.items(engine(environment), operation_id))


def forget() -> None:
    """Read again the next time: an operation was submitted."""
    for reader in (read_access, drift, items):
        reader.clear()


def _newest(store: Engine) -> tuple[float | None, str | None]:
    """Read when the snapshot was taken, which is little beside the snapshot itself."""
    with store.connect() as connection:
        row = connection.execute(select(catalog_snapshots.c.read_at, catalog_snapshots.c.problem)).first()
    return (None, None) if row is None else (row.read_at, row.problem)


@st.cache_resource(max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def _known(environment: Environment, read_at: float) -> ResolvedCatalog:  # noqa: ARG001 - a part of the cache's key
    observed = snapshot.read(engine(environment)).observed
    if observed is None:
        raise Refused("The snapshot of the catalog is gone. Reload the page.")
    resolver = Resolver(observed)
    order = list(KINDS)
    principals = sorted(observed.directory.principals.items(), key=lambda pair: (order.index(pair[1].kind), pair[0]))
    who = {name: PrincipalChoice(each.name, each.kind, each.active) for name, each in principals}
    cells = matrix(resolver, None, [each.name for each in who.values()])
    return ResolvedCatalog(observed, resolver, cells, ways(resolver, cells), who)
