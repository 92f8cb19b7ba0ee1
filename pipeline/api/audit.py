"""The audit log: acts that a person chose, and whether the log is intact.

Every query raises `Refused` where the control store or an entry of its log cannot be read.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.api.environment import Engine, OpenEnvironment
from pipeline.control import gate
from pipeline.control.operations import registry
from pipeline.control.operations.executor import UNDO_SECONDS
from pipeline.store import audit
from pipeline.store.audit import AccessChange, AuditVerdict, Entry, changes_of
from pipeline.store.database.engine import reading
from pipeline.store.database.states import OperationState
from pipeline.store.games import known_games
from pipeline.store.operations import undone

__all__ = [
    "AccessChange",
    "AuditFilter",
    "AuditVerdict",
    "AuditedAct",
    "Entry",
    "Log",
    "changes_of",
    "log",
    "note",
    "verify",
]

_MAX_ACTS: Final = 5_000  # on screen and in a file


@dataclass(frozen=True)
class AuditFilter:
    """Which acts of the audit log a person chose; an empty text is all."""

    since: str  # YYYY-MM-DD, UTC, included like `until`
    until: str
    actor: str = ""  # a part of it, as of the next two; upper and lower case are the same
    action: str = ""
    target: str = ""

    def matches(self, entry: Entry, names: Mapping[str, str]) -> bool:
        """Return whether an entry of these days is chosen; `names` are the games' by their keys."""
        about = [*entry.targets, *(names.get(target.partition(":")[2], "") for target in entry.targets)]
        about += [change.sentence(names) for change in changes_of(entry.detail)]
        return (
            self.actor.casefold() in entry.actor.casefold()
            and self.action.casefold() in entry.action.casefold()
            and (not self.target or any(self.target.casefold() in each.casefold() for each in about))
        )


@dataclass(slots=True)
class AuditedAct:
    """One act: its entry before it was done, and the one after; None: it is not in the log of these days, or not yet.

    At least one of the two is there.
    """

    begun: Entry | None
    ended: Entry | None = None
    undone_by: str | None = None  # the id of the operation that undid it, or is doing so
    undoable_until: float | None = None  # Unix seconds; None: nothing undoes it, or not any more

    @property
    def entry(self) -> Entry:
        """Return the entry that says what the act is about: the first of the two."""
        entry = self.begun or self.ended
        assert entry is not None
        return entry

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return what the log has of it, the newest first."""
        return tuple(each for each in (self.ended, self.begun) if each is not None)


@dataclass(frozen=True, slots=True)
class Log:
    """The chosen acts of the audit log, those that began last first, read at one moment (Unix seconds)."""

    names: Mapping[str, str]  # by game key
    acts: tuple[AuditedAct, ...]  # the newest of them
    matched: int  # all that match
    read_at: float

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the entries of these acts, newest first."""
        found = (entry for act in self.acts for entry in act.entries)
        return tuple(sorted(found, key=lambda each: (each.day, each.number), reverse=True))


@reading()
def log(environment: OpenEnvironment, filters: AuditFilter) -> Log:
    """Read the chosen acts: those that began or ended in these days."""
    store = environment.engine
    newest: deque[AuditedAct] = deque(maxlen=_MAX_ACTS)
    matched = 0
    names = known_games(store)
    for act in _acts(audit.entries(store, filters.since), filters.until):
        if filters.matches(act.entry, names):
            newest.append(act)
            matched += 1
    for act, begun in _begun_before(store, newest):
        act.begun = begun
    _add_undo(store, newest)
    return Log(names, tuple(reversed(newest)), matched, time.time())


def _acts(entries: Iterable[Entry], until: str) -> Iterator[AuditedAct]:
    """Yield the acts of entries that began or ended until a day (YYYY-MM-DD), each when it begins: its end comes later.

    Entries of one act have the same operation, actor and action. Where several are open, the last of them ends first:
    what a person does about an operation lies within it.
    """
    opened: dict[tuple[Any, ...], list[AuditedAct]] = {}
    for entry in entries:
        key = (entry.operation_id or entry.targets, entry.actor, entry.action)
        if entry.phase == "ended" and opened.get(key):
            opened[key].pop().ended = entry
            continue
        act = AuditedAct(entry) if entry.phase == "begun" else AuditedAct(None, entry)
        if entry.phase == "begun":
            opened.setdefault(key, []).append(act)
        if entry.day <= until or entry.defect is not None:
            yield act


def _begun_before(store: Engine, acts: Iterable[AuditedAct]) -> Iterator[tuple[AuditedAct, Entry]]:
    """Yield operations that ended in the chosen days and began before them, with the entry of their beginning."""
    early = {each.ended.operation_id: each for each in acts if each.begun is None and each.ended is not None}
    for entry in audit.begun_of(store, [each for each in early if each is not None]):
        act = early[entry.operation_id]
        if act.ended is not None and (entry.action, entry.actor) == (act.ended.action, act.ended.actor):
            yield act, entry


def _add_undo(store: Engine, acts: Iterable[AuditedAct]) -> None:
    """Add what undid each act, and until when an operation may be undone."""
    by = undone(store)
    for act in acts:
        entry, ended = act.entry, act.ended
        if entry.operation_id is None or ended is None:
            continue
        known = registry.find(entry.action)
        if known is None:
            continue  # what a person did about the operation
        act.undone_by = by.get(entry.operation_id)
        if act.undone_by is None and ended.outcome == OperationState.SUCCEEDED and known.inverse is not None:
            act.undoable_until = ended.at + UNDO_SECONDS


@reading()
def verify(environment: OpenEnvironment) -> tuple[AuditVerdict, float]:
    """Look through the whole log; return what was found and when (Unix seconds)."""
    return audit.verify(environment.engine), time.time()


@reading()
def note(environment: OpenEnvironment, actor: str, action: str, target: str, detail: Mapping[str, Any]) -> None:
    """Write a look at data into the log before anything is read."""
    gate.note_look(environment.engine, audit.Act(actor, action, (target,), None, detail))
