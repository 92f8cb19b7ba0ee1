"""Delta logs as a measuring instrument: when each commit became visible, and how far it reached in bronze.

A commit's time is its log file's modification time, for every writer alike: what a writer notes in the commit
itself is taken before the work is done.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipeline.lake.delta.log import json_lines

CURSOR_PREFIX: Final = "turnout/"


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table."""

    version: int
    at: float  # Unix seconds
    files: int
    rows: int
    bytes: int
    seq_from: int | None  # the lowest bronze seq of its rows; None where the files' statistics do not tell
    seq_to: int | None  # the last bronze seq in the table with this commit; None where the commit does not tell


def parse_commit(lines: Iterable[str], version: int, at: float) -> Commit:
    """Read one commit's actions; the reach is the files' highest `seq`, or else the cursor the commit moved."""
    adds: list[dict[str, Any]] = []
    cursor: int | None = None
    for line in lines:
        action: dict[str, Any] = json.loads(line)
        if (txn := action.get("txn")) and txn["appId"].startswith(CURSOR_PREFIX):
            cursor = int(txn["version"])
        if add := action.get("add"):
            adds.append(add)
    stats = [json.loads(add["stats"]) for add in adds if add.get("stats")]
    lows = [each["minValues"]["seq"] for each in stats if "seq" in each.get("minValues", {})]
    highs = [each["maxValues"]["seq"] for each in stats if "seq" in each.get("maxValues", {})]
    return Commit(
        version=version,
        at=at,
        files=len(adds),
        rows=sum(each["numRecords"] for each in stats),
        bytes=sum(add["size"] for add in adds),
        seq_from=min(lows, default=None),
        seq_to=max(highs, default=cursor),
    )


@dataclass
class Follower:
    """Reads a table's log as it grows."""

    table: Path
    commits: list[Commit] = field(default_factory=list)
    _next: int = 0

    def read(self) -> list[Commit]:
        """Return the commits that were added since the last call."""
        new = []
        while (entry := self.table / "_delta_log" / f"{self._next:020}.json").exists():
            new.append(parse_commit(json_lines(entry.read_text("utf-8")), self._next, entry.stat().st_mtime))
            self._next += 1
        self.commits += new
        return new


def follow(tables: Iterable[Path]) -> dict[str, Follower]:
    """Return a follower of each table, by the name of its folder; a table may appear later."""
    return {table.name: Follower(table) for table in tables}
