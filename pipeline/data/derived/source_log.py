"""The log of a game's table as a derived stream reads it on: contiguous versions, or the reason to begin again."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from pipeline.lake.delta.log import Action, appended, changes, commit_id, read_commit
from pipeline.lake.storage.location import Location

_MOST_VERSIONS: Final = 1000  # of one step


class StartOver(Exception):
    """The rows that were read are no longer all that the table has: a new generation reads it as it is now."""


@dataclass(frozen=True, slots=True)
class AddedRows:
    """The files with the rows that one version added."""

    version: int
    paths: tuple[str, ...]  # relative to the table
    rows: int


@dataclass(frozen=True, slots=True)
class ReadOn:
    """Some versions behind a position."""

    version: int  # the last one
    commit: int  # what tells its commit from others of this number
    added: tuple[AddedRows, ...]


def number_of(*parts: str) -> int:
    """Return a number of 63 bits that tells texts apart, as a Delta transaction can keep it."""
    return int.from_bytes(hashlib.sha256("\n".join(parts).encode()).digest()[:8], "big") >> 1


def commit_number(table: Location, version: int) -> int:
    """Return what tells a version's commit from others of this number; 0 where the log no longer has it."""
    actions = read_commit(table, version)
    return 0 if actions is None else number_of(commit_id(actions))


def read_on(table: Location, version: int, commit: int, head: int, most: int) -> ReadOn | None:
    """Return the versions behind a position up to `head`, the first of them that have `most` rows; None at the head.

    Raises:
        StartOver: rows were removed, the log lacks a version, or its commit at the position is another one.
    """
    if version > head:
        raise StartOver(f"version {version} is not in the log, which ends at {head}")
    if commit and commit_number(table, version) not in {0, commit}:
        raise StartOver(f"the log has another version {version}: an older copy was restored")
    added: list[AddedRows] = []
    for at in range(version + 1, min(head, version + _MOST_VERSIONS) + 1):
        actions = read_commit(table, at)
        if actions is None:
            raise StartOver(f"the log no longer has version {at}")
        if any(changes(action.get("remove")) for action in actions):
            raise StartOver(f"version {at} removes rows")
        added.append(_rows_of(at, actions))
        version, commit = at, number_of(commit_id(actions))
        if sum(each.rows for each in added) >= most:
            break
    return ReadOn(version, commit, tuple(each for each in added if each.paths)) if added else None


def _rows_of(version: int, actions: Sequence[Action]) -> AddedRows:
    files = list(appended(actions))
    rows = sum(int(json.loads(each.get("stats") or "{}").get("numRecords", 0)) for each in files)
    return AddedRows(version, tuple(unquote(each["path"]) for each in files), rows)
