"""The checkpoint of a demux query: Spark's position in bronze, and the schema sets pinned for its batches.

The cursors are in the tables, so nothing depends on it: a checkpoint from which Spark cannot continue is deleted, and
the streams catch up from their cursors (law L7).
"""

import logging
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from pipeline.base.failpoints import effect
from pipeline.data import query_log
from pipeline.lake.delta.log import changes, commits_after, has_version, read_commit
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

_FAR_COMMITS = 100  # a few minutes of ingest

_log = logging.getLogger("turnout")


def can_resume(folder: Path, bronze: CursorTable) -> bool:
    """Return whether Spark can continue from a query's checkpoint; delete it if not.

    The pins are in the same folder and go with it: their keys are batch numbers, which start again.
    """
    query = located(folder)
    dropped = query.parent / f"{query.name}-dropped"
    with effect("delete_query"):
        dropped.clear()  # an earlier deletion was interrupted
    if not any(query_log.batches(query / log) for log in ("offsets", "commits", "pins")):
        query_log.clear_drafts(query / "offsets")
        _drop_damaged_id(query)
        return False  # it never planned a batch; another driver may be about to plan its first
    flaw = next(chain(_flaws(query, bronze), _merges(query, bronze)), None)
    if flaw is None:
        return True
    _log.warning("the checkpoint %s %s: it starts again, and the streams catch up from their tables", query, flaw)
    with effect("put_query_aside"):
        query.move(dropped)
    with effect("delete_query"):
        dropped.clear()
    return False


def reads_from(query: Location) -> int | None:
    """Return the version of bronze that Spark reads next after a restart; None: it has not ended a micro-batch yet.

    It repeats a micro-batch that has not ended.
    """
    planned, committed = query_log.batches(query / "offsets"), query_log.batches(query / "commits")
    ended = [number for number in planned if committed and number <= committed[-1]]
    offset = query_log.offset(query / "offsets" / str(ended[-1])) if ended else None
    return None if offset is None else int(offset["reservoirVersion"])


def _drop_damaged_id(query: Location) -> None:
    """Delete a query id that a power cut has emptied, of which Spark would die at each start."""
    if not (query / "metadata").exists() or query_log.has_id(query / "metadata"):
        return
    for name in (".metadata.crc", "metadata"):
        with effect("delete_query"):
            (query / name).delete()


def _flaws(query: Location, bronze: CursorTable) -> Iterator[str]:
    """Yield the reasons why Spark could not continue, or would read another table than bronze."""
    committed = query_log.batches(query / "commits")  # before the offsets, which another driver may be writing
    planned = query_log.batches(query / "offsets")
    if not planned:
        yield "has no offsets"
        return
    last = planned[-1]
    begun = query_log.offset(query / "offsets" / str(last))
    if begun is not None and committed and committed[-1] == last:  # an interrupted batch is repeated unchanged
        waiting = bronze.version - int(begun["reservoirVersion"])
        if waiting > _FAR_COMMITS:
            yield f"is {waiting} commits of bronze behind, which catch-up reads sooner"
    if not query_log.has_id(query / "metadata"):
        yield "has no query id"
    if committed and query_log.lines(query / "commits" / str(committed[-1])) is None:
        yield f"has a damaged file: commits/{committed[-1]}"
    if committed and committed[-1] > last:
        yield f"lacks the offsets of its last batch, {committed[-1]}"
    for number in range(max(last - 1, 0), last + 1):  # Spark reads the last batch again, even when it is committed
        offset = query_log.offset(query / "offsets" / str(number))
        if offset is None:
            yield f"has a damaged or missing file: offsets/{number}"
        elif offset.get("reservoirId") != bronze.table_id:
            yield "is about another table than bronze"
        elif int(offset["reservoirVersion"]) > bronze.version + 1:
            yield f"is at commit {offset['reservoirVersion']} of bronze, which ends at {bronze.version}"
        elif (gone := _cut(int(offset["reservoirVersion"]), bronze)) is not None:
            yield f"needs commit {gone} of bronze, which its log no longer has"


def _merges(query: Location, bronze: CursorTable) -> Iterator[str]:
    """Yield the reason where files that Spark would read next were merged: maintenance deletes them after a while.

    As when another machine has driven the group since, and maintenance went by its position.
    """
    version = reads_from(query)
    added: set[str] = set()
    for at, actions in () if version is None else commits_after(bronze.path, version - 1):
        added.update(action["add"]["path"] for action in actions if "add" in action)
        removed = (action["remove"] for action in actions if "remove" in action)
        if any(not changes(each) and each["path"] in added for each in removed):
            yield f"needs files of bronze that commit {at} has merged"
            return


def _cut(version: int, bronze: CursorTable) -> int | None:
    """Return the commit that a query needs and the log no longer has, to read on from a version; None: it has all.

    The one before the version shows that no writer that had stood still has filled a gap below the log's first commit.
    """
    if version <= bronze.version and read_commit(bronze.path, version) is None:
        return version
    is_certain = version in {0, bronze.version} or has_version(bronze.path, version - 1)
    return None if is_certain else version - 1
