"""Spark's checkpoint of the ingest query: how far it says it is, whether that fits bronze, and small mends.

Files are only put aside (`<name>.damaged`, which Spark does not look at), and only where that provably changes
nothing: a batch that bronze has is skipped when it is repeated, and one that reached no table may be planned anew.
"""

import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import durable_file, query_log
from pipeline.errors import Refused

_log = logging.getLogger("turnout")
_WAY_OUT = "Run `turnout ingest adopt` to go on from what bronze has."


@dataclass(frozen=True, slots=True)
class Landed:
    """The last batch of this checkpoint in bronze, and in quarantine; None before the first."""

    bronze: int | None
    quarantine: int | None


def passed_offset(query: Path, landed: Landed) -> dict[str, Any] | None:
    """Return the source's offset, as Spark wrote it, after everything that is through; None at the beginning.

    Raises:
        Refused: the checkpoint is gone, damaged, or not the one that bronze was written with; it says how to go on.
    """
    planned = query_log.batches(query / "offsets")
    if not planned:
        if landed.bronze is not None:
            raise Refused(
                f"Bronze holds {landed.bronze + 1} batches of this source, but the checkpoint {query.parent} is gone: "
                f"starting anew would land everything twice. {_WAY_OUT}"
            )
        return None
    last, committed = planned[-1], query_log.batches(query / "commits")
    if landed.bronze is not None and landed.bronze > last:
        raise Refused(
            f"The checkpoint {query.parent} ends at batch {last}, but bronze has batch {landed.bronze}: it is an old "
            f"copy, and what it would read next would be taken for landed. {_WAY_OUT}"
        )
    if committed and committed[-1] > last:
        raise Refused(
            f"The checkpoint {query.parent} has no offsets of its last batch, {committed[-1]}: "
            f"{query / 'offsets' / str(committed[-1])} is gone. {_WAY_OUT}"
        )
    done = landed.bronze == last or (bool(committed) and committed[-1] == last)
    offsets = {number: _required(query / "offsets" / str(number)) for number in (last, last - 1) if number >= 0}
    passed = last if done else last - 1
    return offsets[passed] if passed >= 0 else None


def begin_behind(query: Path, offset: Mapping[str, Any]) -> None:
    """Write the checkpoint of a query that has read everything before this offset, in one batch without rows.

    For a beginning that is not there yet, which Spark takes from a checkpoint only. Killed half way, it is repeated.
    """
    if not query_log.has_id(query / "metadata"):
        _renew_metadata(query / "metadata")
    times = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
    _write(query / "offsets" / "0", f"v1\n{json.dumps(times)}\n{json.dumps(offset)}")
    _write(query / "commits" / "0", f"v1\n{json.dumps({'nextBatchWatermarkMs': 0})}")


def mend(query: Path, landed: Landed) -> None:
    """Mend what a crash of the machine or a hand may have damaged, where nothing can be lost or doubled by it."""
    for number in query_log.batches(query / "commits"):
        file = query / "commits" / str(number)
        if query_log.lines(file) is None:
            _put_aside(file, "the batch is repeated, and skipped if bronze has it")
    planned = query_log.batches(query / "offsets")
    if planned:
        _mend_last_offsets(query, planned[-1], landed)
    if (planned or (query / "metadata").exists()) and not query_log.has_id(query / "metadata"):
        _renew_metadata(query / "metadata")
        _log.warning("%s was missing or damaged and has a new query id now", query / "metadata")


def _mend_last_offsets(query: Path, last: int, landed: Landed) -> None:
    """Put the last offsets aside if they are unreadable and their batch has left no trace anywhere."""
    file = query / "offsets" / str(last)
    traces = [query / "commits" / str(last)] if (query / "commits" / str(last)).exists() else []
    untouched = all(done is None or done < last for done in (landed.bronze, landed.quarantine))
    if query_log.offset(file) is None and untouched and not traces:
        _put_aside(file, "the batch has written nothing and is planned anew")


def _renew_metadata(file: Path) -> None:
    """Give the query a new id: what is exactly once hangs on batch numbers, not on it."""
    if file.exists():
        _put_aside(file, "it is written anew")
    _write(file, json.dumps({"id": str(uuid.uuid4())}))


def _write(file: Path, text: str) -> None:
    """Write one of Spark's files."""
    _forget_checksum(file)
    durable_file.write_text(file, text)


def _forget_checksum(file: Path) -> None:
    """Delete Hadoop's checksum of a file, with which it would refuse another content."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _put_aside(file: Path, reason: str) -> None:
    _forget_checksum(file)
    file.replace(file.with_name(f"{file.name}.damaged"))
    _log.warning("%s is damaged and was put aside as %s.damaged: %s", file, file.name, reason)


def _required(file: Path) -> dict[str, Any]:
    offset = query_log.offset(file)
    if offset is None:
        state = "damaged" if file.exists() else "missing"
        raise Refused(f"The checkpoint file {file} is {state}, so Spark cannot go on from it. {_WAY_OUT}")
    return offset
