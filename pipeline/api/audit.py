"""The audit log: entries that a person chose, and whether the log is intact.

Every query raises `Refused` where the control store or an entry of its log cannot be read.
"""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.api.environment import OpenEnvironment
from pipeline.control import gate
from pipeline.store import audit
from pipeline.store.audit import AccessChange, AuditVerdict, Entry, changes_of
from pipeline.store.database.engine import reading
from pipeline.store.games import known_games

__all__ = ["AccessChange", "AuditFilter", "AuditVerdict", "Entry", "Log", "changes_of", "log", "note", "verify"]

_MAX_ENTRIES: Final = 5_000  # on screen and in a file


@dataclass(frozen=True)
class AuditFilter:
    """Which entries of the audit log a person chose; an empty text is all."""

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


@dataclass(frozen=True, slots=True)
class Log:
    """The chosen entries of the audit log, newest first, read at one moment (Unix seconds)."""

    names: Mapping[str, str]  # by game key
    entries: tuple[Entry, ...]  # the newest of them
    matched: int  # all that match
    read_at: float


@reading()
def log(environment: OpenEnvironment, filters: AuditFilter) -> Log:
    """Read the chosen entries."""
    store = environment.engine
    newest: deque[Entry] = deque(maxlen=_MAX_ENTRIES)
    matched = 0
    names = known_games(store)
    for entry in audit.entries(store, filters.since, filters.until):
        if filters.matches(entry, names):
            newest.append(entry)
            matched += 1
    return Log(names, tuple(reversed(newest)), matched, time.time())


@reading()
def verify(environment: OpenEnvironment) -> tuple[AuditVerdict, float]:
    """Look through the whole log; return what was found and when (Unix seconds)."""
    return audit.verify(environment.engine), time.time()


@reading()
def note(environment: OpenEnvironment, actor: str, action: str, target: str, detail: Mapping[str, Any]) -> None:
    """Write a look at data into the log before anything is read."""
    gate.note_look(environment.engine, audit.Act(actor, action, (target,), None, detail))
