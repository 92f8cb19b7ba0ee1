"""Spark's checkpoint of the ingest query: how far it says it is, whether that fits bronze, and small mends.

Files are only put aside (`<name>.damaged`, which Spark does not look at), and only where that provably changes
nothing: a batch that bronze has is skipped when it is repeated, and one that reached no table may be planned again.
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
from pipeline.failpoints import effect

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
                f"starting again would land everything twice. {_WAY_OUT}"
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


def require_bronze(query: Path, landed: Landed, table_id: str) -> None:
    """Compare bronze with what was kept of it beside the checkpoint: its id, and that it has every batch.

    Spark plans a batch when the one before is in bronze, so at most the last planned one may be missing there.

    Raises:
        Refused: bronze is another table, or an older copy.
    """
    kept = _kept_bronze(query)
    if kept is None:
        return
    known, first = kept
    if known != table_id:
        raise Refused(
            f"The checkpoint {query.parent} belongs to another bronze: its table id is {known}, bronze has {table_id}. "
            "Put the old bronze back, or use another --env-dir."
        )
    done = _done(query)
    have = -1 if landed.bronze is None else landed.bronze
    if done >= first and done > have:
        lacks = max(have + 1, first)
        raise Refused(
            f"Bronze was restored from an older copy: the checkpoint {query.parent} has brought batches up to {done} "
            f"into bronze, which lacks those from {lacks} on. Restore the newest copy, or run `turnout ingest adopt`: "
            "it reads again from the source what bronze lost, and names the games to rebuild."
        )


def keep_bronze(query: Path, table_id: str) -> None:
    """Keep which bronze this checkpoint belongs to, and from which batch on each is committed there, also an empty one.

    What stands for a beginning (`begin_behind`) is in no table.
    """
    if _kept_bronze(query) is None:
        _keep_bronze(query, table_id, _done(query) + 1)


def pass_empty(query: Path, table_id: str, batch_id: int) -> None:
    """Note that a batch without rows, before any that landed one, is not in bronze."""
    _keep_bronze(query, table_id, batch_id + 1)


def _keep_bronze(query: Path, table_id: str, from_batch: int) -> None:
    kept = {"table_id": table_id, "from_batch": from_batch}
    durable_file.write_text(query.parent / "bronze.json", json.dumps(kept))


def _kept_bronze(query: Path) -> tuple[str, int] | None:
    """Return the id of bronze and the first batch that is compared; None where nothing usable was kept."""
    file = query.parent / "bronze.json"
    try:
        kept = json.loads(file.read_bytes())
        return str(kept["table_id"]), int(kept["from_batch"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s cannot be used and is written again: %s", file, error)
        return None


def _done(query: Path) -> int:
    """Return the last batch that is in bronze by the checkpoint, -1 for none."""
    planned, committed = query_log.batches(query / "offsets"), query_log.batches(query / "commits")
    return max(committed[-1] if committed else -1, planned[-1] - 1 if planned else -1)


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
    query_log.clear_drafts(query / "offsets")
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
        _put_aside(file, "the batch has written nothing and is planned again")


def _renew_metadata(file: Path) -> None:
    """Give the query a new id: what is exactly once hangs on batch numbers, not on it."""
    if file.exists():
        _put_aside(file, "it is written again")
    _write(file, json.dumps({"id": str(uuid.uuid4())}))


def _write(file: Path, text: str) -> None:
    """Write one of Spark's files."""
    _forget_checksum(file)
    durable_file.write_text(file, text)


def _forget_checksum(file: Path) -> None:
    """Delete Hadoop's checksum of a file, with which it would refuse another content."""
    with effect("delete_query"):
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _put_aside(file: Path, reason: str) -> None:
    _forget_checksum(file)
    aside = file.with_name(f"{file.name}.damaged")
    if file.name == "0":  # Spark plans its first batch in an empty folder only
        aside = file.parent.with_name(f"{file.parent.name}-{aside.name}")
    with effect("put_query_aside"):
        file.replace(aside)
    _log.warning("%s is damaged and was put aside as %s: %s", file, aside.name, reason)


def _required(file: Path) -> dict[str, Any]:
    offset = query_log.offset(file)
    if offset is None:
        state = "damaged" if file.exists() else "missing"
        raise Refused(f"The checkpoint file {file} is {state}, so Spark cannot go on from it. {_WAY_OUT}")
    return offset
