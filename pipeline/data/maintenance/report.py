"""The report of a round of maintenance, as text and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from pipeline.base.names import plain

_COLUMNS: Final = ("files", "after", "MB", "merged", "into", "deleted", "log", "checkpoint")


@dataclass(slots=True)
class TableReport:
    """The work on one table; filled as it happens."""

    table: str
    version: int | None = None  # before the work; None: the table was skipped as unchanged
    files_before: int | None = None  # None: the table could not be opened
    files_after: int | None = None
    bytes: int | None = None  # of the files afterwards
    files_merged: int = 0
    files_written: int = 0
    rows_removed: int = 0  # copies and stale twins of quarantine; expired minutes
    files_deleted: int = 0
    bytes_deleted: int = 0
    log_entries_deleted: int = 0
    checkpoint: bool = False  # one was written
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def touched(self) -> bool:
        """Return whether a change was made, a note taken or an error raised."""
        done = self.files_merged + self.rows_removed + self.files_deleted + self.log_entries_deleted
        return bool(done or self.checkpoint or self.notes or self.error)


@dataclass(frozen=True, slots=True)
class Round:
    """The work on all tables of an environment."""

    tables: Sequence[TableReport]
    seconds: float
    is_whole: bool = True  # every table was visited

    @property
    def ok(self) -> bool:
        """Return whether no table failed."""
        return all(table.error is None for table in self.tables)


def as_json(done: Round) -> str:
    """Return the round as one line of JSON."""
    tables = [asdict(table) for table in done.tables]
    return json.dumps({"ok": done.ok, "seconds": round(done.seconds, 3), "tables": tables})


def render_round(done: Round) -> str:
    """Return the round as text: a line per changed table, then its notes and errors."""
    shown = [table for table in done.tables if table.touched]
    width = max([len("table"), *(len(table.table) for table in shown)])
    lines = ["  ".join(["table".ljust(width), *(name.rjust(10) for name in _COLUMNS)])] if shown else []
    lines += ["  ".join([table.table.ljust(width), *(cell.rjust(10) for cell in _cells(table))]) for table in shown]
    lines += [f"{table.table}: {note}" for table in shown for note in table.notes]
    lines += [f"{table.table}: FAILED: {table.error}" for table in shown if table.error]
    quiet = len(done.tables) - len(shown)
    lines.append(f"{quiet} table(s) need nothing; {done.seconds:.1f} s")
    return "\n".join(map(plain, lines))


def _cells(table: TableReport) -> list[str]:
    size = None if table.bytes is None else round(table.bytes / 1e6, 1)
    numbers = (
        table.files_before, table.files_after, size, table.files_merged, table.files_written,
        table.files_deleted, table.log_entries_deleted,
    )  # fmt: skip
    return [*("?" if number is None else f"{number:,}" for number in numbers), "yes" if table.checkpoint else "-"]
