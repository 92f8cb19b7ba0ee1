"""How far the streaming readers of bronze have come, from their Spark checkpoints.

Files they still have to read by name are left alone; what a checkpoint says is what Spark will do after a restart.
"""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.delta_log import commits_after, read_commit


@dataclass(frozen=True, slots=True)
class Reader:
    """A checkpoint of a query that reads bronze."""

    name: str  # its folder below `checkpoints`
    next_version: int | None  # the table version it reads next; None: it has not ended its first micro-batch
    touched_at: float  # when it last wrote (Unix seconds)


def readers(checkpoints: Path, table_id: str) -> list[Reader]:
    """Return the readers of a Delta table among all checkpoints of an environment."""
    found = [_reader(folder, str(folder.relative_to(checkpoints)), table_id) for folder in _queries(checkpoints)]
    return [reader for reader in found if reader is not None]


def passed_seq(bronze: Path, app_id: str, head_version: int, reader: Reader) -> float | None:
    """Return the last seq a reader will not read again: infinite when it has read all, 0 when it may read anything.

    None means that the log no longer has what it reads next: it cannot go on and holds nothing back.
    """
    if reader.next_version is None:
        return 0
    if reader.next_version <= head_version and read_commit(bronze, reader.next_version) is None:
        return None
    for _, actions in commits_after(bronze, reader.next_version - 1):
        for action in actions:
            if "txn" in action and action["txn"]["appId"] == app_id:
                return int(action["txn"]["version"]) - 1
    return math.inf


def _queries(checkpoints: Path) -> Iterator[Path]:
    for folder, below, _ in os.walk(checkpoints):
        if "offsets" in below:
            yield Path(folder)
            below.clear()


def _reader(folder: Path, name: str, table_id: str) -> Reader | None:
    offsets, commits = _numbers(folder / "offsets"), _numbers(folder / "commits")
    if not offsets:
        return None
    newest = _offset(folder / "offsets" / str(offsets[-1]))
    if newest is None or newest.get("reservoirId") != table_id:
        return None
    done = [number for number in offsets if commits and number <= commits[-1]]
    ended = _offset(folder / "offsets" / str(done[-1])) if done else None
    touched_at = (folder / "offsets" / str(offsets[-1])).stat().st_mtime
    return Reader(name, None if ended is None else int(ended["reservoirVersion"]), touched_at)


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    except FileNotFoundError:
        return []


def _offset(file: Path) -> dict[str, Any] | None:
    """Return the source's offset of a micro-batch; None where the source is no Delta table."""
    last = file.read_text("utf-8").splitlines()[-1]
    parsed = json.loads(last) if last.startswith("{") else None
    return parsed if isinstance(parsed, dict) else None
