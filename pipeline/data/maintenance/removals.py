"""Records when files left a table, as the modification time of the files themselves.

Where storage alone dates its files, in a file beside them, until they are deleted.

So checkpoints need not name merged files, and a VACUUM by others, which uses that time too, keeps files that are being
read. Called by the modules beside it.
"""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from pipeline.base.failpoints import effect
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import commits_after
from pipeline.lake.delta.opening import DeltaTable
from pipeline.lake.storage.location import Location

_MARKED: Final = "_maintenance.json"
"""A file beside a table's files: its log was searched for removals up to this version of this table."""


def since_last_look(path: Location, table: DeltaTable) -> Mapping[str, float] | None:
    """Return when files left a table since the last search (path → Unix seconds), None where its log lacks it."""
    seen, removed = _last_marked(path, table)
    try:
        for version, actions in commits_after(path, seen):
            seen = version
            for each in (action["remove"] for action in actions if "remove" in action):
                # A removal without a time may have been a moment ago.
                removed[unquote(each["path"])] = (each.get("deletionTimestamp") or time.time() * 1000) / 1000
    except DeltaError:
        return None  # the log is damaged before the commit at which a rebuild restarted it
    return removed if seen >= table.version() else None


def mark(path: Location, modified: Mapping[str, float], removed_at: Mapping[str, float]) -> dict[str, float]:
    """Set the modification time of files (of path → modified, Unix seconds) to when they left the table.

    Returns the files that storage cannot date, with these times. The times are on disk: without them a file would be
    deleted before its retention is over.
    """
    times = {name: at for name, at in removed_at.items() if modified.get(name, at) < at}
    undated = touch(path, times)
    path.settle([name for name in times if name not in undated and (path / name).exists()])
    return undated


def touch(path: Location, times: Mapping[str, float]) -> dict[str, float]:
    """Set the modification time of a table's files (path → Unix seconds), and return those that storage cannot date.

    Missing files are fine.
    """
    undated = {}
    for name, at in times.items():
        with effect("mark_data_file"):
            if not (path / name).date(at):
                undated[name] = at
    return undated


def leaving(path: Location, names: Iterable[str]) -> None:
    """Mark files that are about to leave a table as modified now."""
    now = time.time()
    touch(path, dict.fromkeys(names, now))


def record_marked(path: Location, table: DeltaTable, undated: Mapping[str, float]) -> None:
    """Record that all removals up to a table's version are marked, and when the files left that storage cannot date."""
    marked = json.dumps({"table": str(table.metadata().id), "version": table.version(), "left": dict(undated)})
    (path / _MARKED).put(marked.encode())


def _last_marked(path: Location, table: DeltaTable) -> tuple[int, dict[str, float]]:
    try:
        kept = json.loads((path / _MARKED).read_text())
        version = int(kept["version"])
        known = kept["table"] == str(table.metadata().id) and version <= table.version()
        left = {str(name): float(at) for name, at in kept.get("left", {}).items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return -1, {}
    return (version, left) if known else (-1, {})
