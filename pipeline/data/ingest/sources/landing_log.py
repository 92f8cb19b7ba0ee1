"""Reads a landing table's own log: its id, its commits, and their changes besides adding rows.

Read before ingest starts, and by `adopt`. Compaction (`dataChange: false`) neither adds nor changes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from pipeline.data.ingest.identity import Commits, LandingObservation
from pipeline.lake.delta.log import Action, appended, changes, commit_file, commits_after, listed_commits
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.pipelined import pipelined

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")

LANDING: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
"""The columns of a landing table."""


def observe_landing(landing: Location, position: Commits | None) -> LandingObservation:
    """Describe the table; with a position, also the changes of the commits from there on, and missing files."""
    table = open_table(landing)
    first = first_commit(landing, table.version())
    changed: dict[int, str] = {}
    missing: dict[int, str] = {}
    if position is not None and position.version is not None:
        unread = _unread_files(landing, max(position.version, first), position.skip, changed)
        for (version, name, _), there in pipelined(_is_there, unread, is_far=landing.is_far):
            if not there:
                missing.setdefault(version, name)
    replaced = None
    if position is not None and position.version is None:
        replaced = min(position.skip - files_now(landing), default=None)
    return LandingObservation(
        str(landing), str(table.metadata().id), first, table.version(), changed, missing, replaced
    )


def files_by_commit(landing: Location) -> Mapping[int, tuple[str, ...]]:
    """Return the names of the files with new rows of each commit in the log, () for a commit without such files."""
    first = first_commit(landing, open_table(landing).version())
    return {
        version: tuple(name for name, _ in _added(landing, actions))
        for version, actions in commits_after(landing, first - 1)
    }


def files_now(landing: Location) -> frozenset[str]:
    """Return the names of the table's present files."""
    actions = pa.table(open_table(landing).get_add_actions(flatten=True))
    return frozenset(file_name(path, landing) for path in actions.column("path").to_pylist())


def file_name(path: str, landing: Location | None) -> str:
    """Return the name of a file from its path in a log, or from its URI.

    It is its path in the landing table, as files of several partitions may share a name; for a file elsewhere, the last
    part.
    """
    whole = unquote(path)
    _, separator, inside = whole.partition(f"{landing}/")
    if separator:
        return inside
    return whole.rsplit("/", 1)[-1] if _ABSOLUTE.match(whole) else whole


def place(landing: Location, path: str) -> Location | None:
    """Return the local path of a file in the log, None for a file on another machine."""
    if "://" in path and not path.startswith("file:"):
        return None
    return landing / unquote(path.removeprefix("file://").removeprefix("file:"))


def first_commit(landing: Location, last: int) -> int:
    """Return the oldest commit from which the log continues without a gap.

    A listing of a growing log may show a commit but not the one before it, so a gap is looked up by name.
    """
    versions = listed_commits(landing)
    first = last
    while first - 1 in versions or (first and commit_file(landing, first - 1).exists()):
        first -= 1
    return first


def _unread_files(
    landing: Location, first: int, skip: frozenset[str], changed: dict[int, str]
) -> Iterator[tuple[int, str, Location]]:
    """Yield commit, name and place of the files that are read from a commit on; put into `changed` what took files."""
    for version, actions in commits_after(landing, first - 1):
        if removed := [action["remove"] for action in actions if changes(action.get("remove"))]:
            changed[version] = f"({_operation(actions)}) removed {len(removed)} of its files"
        yield from (
            (version, name, file) for name, file in _added(landing, actions) if file is not None and name not in skip
        )


def _is_there(file: tuple[int, str, Location]) -> bool:
    return file[2].exists()


def _added(landing: Location, actions: list[Action]) -> Iterator[tuple[str, Location | None]]:
    """Yield name and place of each file with new rows; None for a file on another machine, which counts as existing."""
    for add in appended(actions):
        yield file_name(add["path"], landing), place(landing, add["path"])


def _operation(actions: list[Action]) -> str:
    operations = (action["commitInfo"].get("operation") for action in actions if "commitInfo" in action)
    return next((str(name) for name in operations if name), "unknown operation")
