"""Data of the steering pages: games with their assignments and decisions, groups, operations, the audit log.

Read from the control store, cached for a second or two and shared by all viewers. Nothing here draws or writes.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from app.state.services import BY_STORE, Environment, engine, reading
from listeners.process_kinds import CONTROLLER, ONLY
from pipeline.base.errors import Refused
from pipeline.control.capabilities import read_all_facts
from pipeline.control.operations.executor import require_undoable
from pipeline.control.operations.facts import GameFacts
from pipeline.health.facts.fleet import Fleet, read_fleet
from pipeline.health.facts.liveness import judge_controller
from pipeline.health.facts.loads import read_loads
from pipeline.health.verdicts.liveness import controller_absence
from pipeline.health.verdicts.placement.capacity import Loads
from pipeline.store import audit
from pipeline.store.assignments import GameAssignment, read_assignments
from pipeline.store.audit import changes_of
from pipeline.store.database.states import OperationKind
from pipeline.store.games import known_games
from pipeline.store.groups import Group, read_groups
from pipeline.store.operations import Operation, Step, list_operations, steps
from pipeline.store.operations import operation as find
from pipeline.store.processes.leases import store_time
from pipeline.store.stream_control import StreamControl, decided

_MAX_OPEN: Final = 1_000
_LATEST: Final = 200  # operations that have ended
_MAX_ENTRIES: Final = 5_000  # of the audit log, on screen and in a file


@dataclass(frozen=True, slots=True)
class ControlState:
    """Data of a page that steers games, read at one moment (Unix seconds)."""

    fleet: Fleet
    assignments: Mapping[str, GameAssignment]  # by game key
    decisions: Mapping[str, StreamControl]  # by game key; no entry: nothing was decided
    groups: Mapping[str, Group]  # by name; no entry: it is not registered
    loads: Loads
    busy: Mapping[str, Operation]  # by target, such as game:KEY: the open operation it belongs to
    no_controller: str | None  # why no controller acts, as a clause; None: one does
    read_at: float

    @property
    def alarms(self) -> list[str]:
        """What alarms the controller that runs, such as many groups that died at once."""
        state = self.fleet.state(CONTROLLER, ONLY)
        is_current = state is not None and state.liveness.state == "running"
        return (state.liveness.reason or "").splitlines() if state is not None and is_current else []


@dataclass(frozen=True, slots=True)
class OperationList:
    """The operations there are, with the names of the games they are about, read at one moment (Unix seconds)."""

    operations: tuple[Operation, ...]  # those that need a person, then the open ones, then the newest
    names: Mapping[str, str]  # by game key
    no_controller: str | None  # why no controller acts, as a clause; None: one does
    read_at: float


@dataclass(frozen=True, slots=True)
class OneOperation:
    """One operation with its steps, read at one moment (Unix seconds)."""

    operation: Operation
    steps: tuple[Step, ...]
    names: Mapping[str, str]
    no_controller: str | None  # why no controller acts, as a clause; None: one does
    why_no_undo: str | None  # None: it may be undone
    read_at: float


@dataclass(frozen=True, slots=True)
class OpenCounts:
    """How many operations are open, and how many of them need a person, at one moment (Unix seconds)."""

    open: int
    need_a_person: int
    read_at: float


@dataclass(frozen=True)
class AuditFilter:
    """Which entries of the audit log a person chose; an empty text is all."""

    since: str  # YYYY-MM-DD, UTC, included like `until`
    until: str
    actor: str = ""  # a part of it, as of the next two; upper and lower case are the same
    action: str = ""
    target: str = ""

    def matches(self, entry: audit.Entry, names: Mapping[str, str]) -> bool:
        """Return whether an entry of these days is chosen; `names` are the games' by their keys."""
        about = [*entry.targets, *(names.get(target.partition(":")[2], "") for target in entry.targets)]
        about += [change.sentence(names) for change in changes_of(entry.detail)]
        return (
            self.actor.casefold() in entry.actor.casefold()
            and self.action.casefold() in entry.action.casefold()
            and (not self.target or any(self.target.casefold() in each.casefold() for each in about))
        )


@dataclass(frozen=True, slots=True)
class Log:
    """The chosen entries of the audit log, newest first, read at one moment (Unix seconds)."""

    names: Mapping[str, str]  # by game key
    entries: tuple[audit.Entry, ...]  # the newest of them
    matched: int  # all that match
    read_at: float


@st.cache_resource(ttl=2, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def steering(environment: Environment) -> ControlState:
    """Read what pages that steer look at, at most 2 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    control_store = engine(environment)
    with reading():
        heartbeat_seconds = environment.settings.metrics.heartbeat_seconds
        maintenance = environment.settings.maintenance
        seen = read_fleet(control_store, heartbeat_seconds=heartbeat_seconds, maintenance=maintenance)
        max_games = environment.settings.placement.max_games_per_group
        return ControlState(
            fleet=seen,
            assignments=read_assignments(control_store),
            decisions=decided(control_store),
            groups=read_groups(control_store),
            loads=read_loads(control_store, max_games=max_games, look=seen.judgement.conditions),
            busy={target: each for each in _open(control_store) for target in each.targets},
            no_controller=seen.judgement.controller_absence,
            read_at=seen.read_at,
        )


@st.cache_data(ttl=3, max_entries=50, show_spinner=False, hash_funcs=BY_STORE)
def facts(environment: Environment, keys: Sequence[str]) -> Mapping[str, GameFacts]:
    """Read what decides about what can be done for games, at most 3 s old; rows in quarantine are not counted.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading():
        control_store = engine(environment)
        now, heartbeat_seconds = store_time(control_store), environment.settings.metrics.heartbeat_seconds
        return read_all_facts(control_store, environment.paths, keys, now, heartbeat_seconds=heartbeat_seconds)


@st.cache_resource(ttl=1, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def journal(environment: Environment) -> OperationList:
    """Read the open operations and the latest ones, at most 1 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    control_store = engine(environment)
    with reading():
        opened = _open(control_store)
        known = {each.operation_id for each in opened}
        ended = [each for each in list_operations(control_store, limit=_LATEST) if each.operation_id not in known]
        absence = _controller_absence(environment, control_store)
        return OperationList((*opened, *ended), known_games(control_store), absence, time.time())


@st.cache_data(ttl=1, max_entries=50, show_spinner=False, hash_funcs=BY_STORE)
def one_operation(environment: Environment, operation_id: str) -> OneOperation:
    """Read one operation (its id or the beginning of it) with its steps, at most 1 s old.

    Raises:
        Refused: there is none, or the control store cannot be read.
    """
    control_store = engine(environment)
    with reading():
        stored = find(control_store, operation_id)
        try:
            # The page plans the inverse of a change of access itself.
            if stored.kind != OperationKind.ACCESS or stored.is_open:
                require_undoable(control_store, stored)
            why = None
        except Refused as refused:
            why = str(refused)
        journaled = tuple(steps(control_store, stored.operation_id))
        absence = _controller_absence(environment, control_store)
        return OneOperation(stored, journaled, known_games(control_store), absence, why, time.time())


@st.cache_data(ttl=2, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def waiting(environment: Environment) -> OpenCounts:
    """Count the open operations, at most 2 s ago.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading():
        opened = _open(engine(environment))
    return OpenCounts(len(opened), sum(each.is_stuck for each in opened), time.time())


@st.cache_data(ttl=5, max_entries=4, show_spinner=False, hash_funcs=BY_STORE)
def audit_log(environment: Environment, filters: AuditFilter) -> Log:
    """Read the chosen entries, at most 5 s old.

    Raises:
        Refused: the control store cannot be read, or an entry of its log.
    """
    control_store = engine(environment)
    newest: deque[audit.Entry] = deque(maxlen=_MAX_ENTRIES)
    matched = 0
    with reading():
        names = known_games(control_store)
        for entry in audit.entries(control_store, filters.since, filters.until):
            if filters.matches(entry, names):
                newest.append(entry)
                matched += 1
    return Log(names, tuple(reversed(newest)), matched, time.time())


@st.cache_data(ttl=600, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def verify_audit(environment: Environment) -> tuple[audit.AuditVerdict, float]:
    """Look through the whole audit log; return what was found and when (Unix seconds).

    It is kept for 10 minutes, or until `forget_verdict`.

    Raises:
        Refused: the control store cannot be read, or an entry of its log.
    """
    with reading():
        return audit.verify(engine(environment)), time.time()


def forget_verdict() -> None:
    """Look through the whole audit log again at the next `verify_audit`."""
    verify_audit.clear()


def forget() -> None:
    """Read again the next time: an operation was submitted."""
    for reader in (steering, facts, journal, one_operation, waiting):
        reader.clear()


def _open(store: Engine) -> list[Operation]:
    return list_operations(store, only_open=True, limit=_MAX_OPEN)


def _controller_absence(environment: Environment, store: Engine) -> str | None:
    return controller_absence(judge_controller(store, environment.settings.metrics.heartbeat_seconds))
