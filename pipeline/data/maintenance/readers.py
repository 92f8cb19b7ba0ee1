"""The positions of bronze's streaming readers: from the Spark checkpoints of this machine, and as their drivers said.

Files that a reader will still read by name are left alone; Spark continues at the checkpoint's position after a
restart. A driver on another machine has its checkpoint there, and says the position with its heartbeats.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from pipeline.data import query_log
from pipeline.data.streams.checkpoint import reads_from
from pipeline.lake.delta.log import Action, commits_after, read_commit
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.store.processes.drivers import bronze_readers


@dataclass(frozen=True, slots=True)
class Reader:
    """A query that reads bronze, or all of a group's."""

    name: str  # its folder below `checkpoints`, or the group
    next_version: int | None  # the table version it reads next; None: it has not finished its first micro-batch
    touched_at: float  # when it last wrote, or its driver last beat (Unix seconds)


def readers(checkpoints: Path, table_id: str) -> list[Reader]:
    """Return the readers of a Delta table among the checkpoints of this machine."""
    queries = _queries(located(checkpoints))
    each_query = [_reader(query, str(Path(query).relative_to(checkpoints)), table_id) for query in queries]
    return [reader for reader in each_query if reader is not None]


def readers_said(engine: Engine) -> list[Reader]:
    """Return the readers of bronze of which the drivers of groups have said where they are, or have yet to say it."""
    return [Reader(f"of group {each.group}", each.reads_from, each.said_at) for each in bronze_readers(engine)]


def passed_seq(bronze: Location, app_id: str, head_version: int, reader: Reader) -> float | None:
    """Return the last seq that a reader will not read again: infinite when it has read all, 0 when unknown.

    None means that the log lacks its next version: the reader cannot continue and holds nothing back.
    """
    if reader.next_version is None:
        return 0
    if reader.next_version <= head_version and read_commit(bronze, reader.next_version) is None:
        return None
    for _, actions in commits_after(bronze, reader.next_version - 1):
        for action in actions:
            if "txn" in action and action["txn"]["appId"] == app_id:
                return _first_seq(actions, int(action["txn"]["version"])) - 1
    return math.inf


def _first_seq(actions: list[Action], last: int) -> int:
    """Return the first seq of a commit that ends with `last`: a large micro-batch of ingest has several seqs."""
    stats = [json.loads(action["add"].get("stats") or "{}") for action in actions if "add" in action]
    return min([last, *(int(each.get("minValues", {}).get("seq", 0)) for each in stats)])


def _queries(folder: Location) -> Iterator[Location]:
    below = folder.folders()
    if any(each.name == "offsets" for each in below):
        yield folder
        return
    for each in below:
        yield from _queries(each)


def _reader(folder: Location, name: str, table_id: str) -> Reader | None:
    offsets = query_log.batches(folder / "offsets")
    if not offsets:
        return None
    newest = query_log.offset(folder / "offsets" / str(offsets[-1]))
    if newest is not None and newest.get("reservoirId") != table_id:
        return None
    entry = (folder / "offsets" / str(offsets[-1])).entry()
    touched_at = 0.0 if entry is None else entry.modified
    # Where the newest is damaged, its table and so its position is unknown.
    return Reader(name, None if newest is None else reads_from(folder), touched_at)
