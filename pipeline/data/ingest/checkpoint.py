"""Spark's checkpoint of the ingest query: its position, whether it fits bronze, and small repairs.

Files are only renamed (to `<name>.damaged`, which Spark ignores), and only where that provably changes nothing: a
repeated batch that bronze has is skipped, and a batch that reached no table may be planned again.
"""

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.base.errors import Refused
from pipeline.base.failpoints import effect
from pipeline.data import query_log
from pipeline.lake.storage.location import Location

_log = logging.getLogger("turnout")
# A start amid batch 1 compares this number in the offsets of both batches; Spark gives batch 1 the one of batch 0.
_CONF = {"spark.sql.shuffle.partitions": "2"}
_WAY_OUT = "Run `turnout ingest adopt` to continue from the end of bronze."


@dataclass(frozen=True, slots=True)
class LandedBatches:
    """The last batch of this checkpoint in bronze, and in quarantine; None before the first."""

    bronze: int | None
    quarantine: int | None


def passed_offset(query: Location, landed: LandedBatches, streams: int = 1) -> dict[str, Any] | None:
    """Return the offset, in Spark's form, after the last finished batch; None at the beginning.

    `streams` is how many sources of Spark's the query has.

    Raises:
        Refused: the checkpoint is gone, damaged, or not the one that wrote bronze.
    """
    planned = query_log.batches(query / "offsets")
    if not planned:
        if landed.bronze is not None:
            raise Refused(
                f"Bronze holds {landed.bronze + 1} batches of this source, but the checkpoint {query.parent} is gone: "
                f"a restart would land everything twice. {_WAY_OUT}"
            )
        return None
    last, committed = planned[-1], query_log.batches(query / "commits")
    if landed.bronze is not None and landed.bronze > last:
        raise Refused(
            f"The checkpoint {query.parent} ends at batch {last}, but bronze has batch {landed.bronze}: it is an old "
            f"copy, and its next records would count as landed. {_WAY_OUT}"
        )
    if committed and committed[-1] > last:
        raise Refused(
            f"The checkpoint {query.parent} has no offsets of its last batch, {committed[-1]}: "
            f"{query / 'offsets' / str(committed[-1])} is gone. {_WAY_OUT}"
        )
    done = landed.bronze == last or (bool(committed) and committed[-1] == last)
    offsets = {
        number: _required(query / "offsets" / str(number), streams) for number in (last, last - 1) if number >= 0
    }
    passed = last if done else last - 1
    return offsets[passed] if passed >= 0 else None


def require_bronze(query: Location, landed: LandedBatches, table_id: str) -> None:
    """Compare bronze with the checkpoint's record of it: its id, and that it has every batch.

    Spark plans a batch when bronze has the one before, so bronze lacks at most the last planned batch.

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
            "Restore the old bronze, or use another --env-dir."
        )
    done = _done(query)
    have = -1 if landed.bronze is None else landed.bronze
    if done >= first and done > have:
        lacks = max(have + 1, first)
        raise Refused(
            f"Bronze was restored from an older copy: the checkpoint {query.parent} has brought batches up to {done} "
            f"into bronze, which lacks those from {lacks} on. Restore the newest copy, or run `turnout ingest adopt`: "
            f"it reads the lost records from the source again, and names the games to rebuild."
        )


def keep_bronze(query: Location, table_id: str) -> None:
    """Record which bronze this checkpoint belongs to, and the first batch from which on bronze has a commit for each.

    The batch of `begin_behind` is in no table.
    """
    if _kept_bronze(query) is None:
        _keep_bronze(query, table_id, _done(query) + 1)


def pass_empty(query: Location, table_id: str, batch_id: int) -> None:
    """Record that bronze lacks a batch without rows that preceded the first landed one."""
    _keep_bronze(query, table_id, batch_id + 1)


def _keep_bronze(query: Location, table_id: str, from_batch: int) -> None:
    kept = {"table_id": table_id, "from_batch": from_batch}
    _put(query.parent / "bronze.json", json.dumps(kept))


def _kept_bronze(query: Location) -> tuple[str, int] | None:
    """Return the id of bronze and the first batch to compare; None without a readable record."""
    file = query.parent / "bronze.json"
    try:
        kept = json.loads(file.read())
        return str(kept["table_id"]), int(kept["from_batch"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("rewriting %s, which cannot be used: %s", file, error)
        return None


def _done(query: Location) -> int:
    """Return the last batch that bronze has according to the checkpoint, -1 without any."""
    planned, committed = query_log.batches(query / "offsets"), query_log.batches(query / "commits")
    return max(committed[-1] if committed else -1, planned[-1] - 1 if planned else -1)


def begin_behind(query: Location, offset: Mapping[str, Any]) -> None:
    """Write the checkpoint of a query that has read everything before this offset, in one batch without rows.

    For a beginning that does not exist yet, which Spark accepts only from a checkpoint. Idempotent.
    """
    if not query_log.has_id(query / "metadata"):
        _renew_metadata(query / "metadata")
    times = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": _CONF}
    lines = [json.dumps(each) for each in (times, *offset.get("sources", [offset]))]
    _write(query / "offsets" / "0", "\n".join(["v1", *lines]))
    _write(query / "commits" / "0", f"v1\n{json.dumps({'nextBatchWatermarkMs': 0})}")


def settle(query: Location, batch_id: int) -> str | None:
    """Put on disk what Spark has planned for a batch, and return it, None where Spark has not.

    Called before a row of the batch is written: Spark leaves its files to the system, and a position before one that
    bronze has passed would be refused.
    """
    if query.is_far:
        return _text(query / "offsets" / str(batch_id))
    places = ["metadata", f"offsets/{batch_id}", f"commits/{batch_id - 1}"]
    places += [f"sources/{each.name}" for each in (query / "sources").files(deep=True)]  # where Spark began
    there = [f"{query.name}/{place}" for place in places if (query / place).exists()]
    if there:
        query.parent.settle([query.name, *there])
    return _text(query / "offsets" / str(batch_id))


def _text(file: Location) -> str | None:
    try:
        return file.read_text()
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def mend(
    query: Location, landed: LandedBatches, streams: int = 1, plan_of: Callable[[int], str | None] = lambda _: None
) -> None:
    """Repair damage by a crash of the machine or by hand, where that can neither lose nor double rows.

    `plan_of` returns what bronze keeps of the offsets of a batch that it has, None where it keeps nothing.
    """
    _restore_offsets(query, landed.bronze, streams, plan_of)
    if landed.bronze is None:
        _drop_empty_beginnings(query)
    for number in query_log.batches(query / "commits"):
        file = query / "commits" / str(number)
        if query_log.lines(file) is None:
            _put_aside(file, "the batch is repeated, or skipped if bronze has it")
    query_log.clear_drafts(query / "offsets")
    planned = query_log.batches(query / "offsets")
    if planned:
        _mend_last_offsets(query, planned[-1], landed, streams)
    if (planned or (query / "metadata").exists()) and not query_log.has_id(query / "metadata"):
        _renew_metadata(query / "metadata")
        _log.warning("rewrote %s, which was missing or damaged, with a new query id", query / "metadata")


def _drop_empty_beginnings(query: Location) -> None:
    """Delete first offsets of Spark that a power cut has emptied: Spark dies of an empty file at each start."""
    for each in list((query / "sources").files(deep=True)):
        if not each.size:
            with effect("delete_query"):
                (query / "sources" / each.name).delete()


def _restore_offsets(query: Location, batch: int | None, streams: int, plan_of: Callable[[int], str | None]) -> None:
    """Write the offsets of the last batch in bronze again if they are missing or unreadable, and no later ones are.

    Not where the whole checkpoint is gone: a person who took it away may want another one.
    """
    if not (query / "metadata").exists():
        return
    if batch is None or any(number > batch for number in query_log.batches(query / "offsets")):
        return
    file = query / "offsets" / str(batch)
    if query_log.offset(file, streams) is not None or (batch and not (query / "offsets" / str(batch - 1)).exists()):
        return
    text = plan_of(batch)
    if text is not None:
        _write(file, text)
        _log.warning("wrote %s again, which was missing or damaged: bronze keeps what it held", file)


def _mend_last_offsets(query: Location, last: int, landed: LandedBatches, streams: int) -> None:
    """Rename the last offsets if they are unreadable and their batch has left no trace."""
    file = query / "offsets" / str(last)
    traces = [query / "commits" / str(last)] if (query / "commits" / str(last)).exists() else []
    untouched = all(done is None or done < last for done in (landed.bronze, landed.quarantine))
    if query_log.offset(file, streams) is None and untouched and not traces:
        _put_aside(file, "the batch wrote nothing and is planned again")


def _renew_metadata(file: Location) -> None:
    """Give the query a new id: exactly-once depends on batch numbers, not on the id."""
    if file.exists():
        _put_aside(file, "it is written again")
    _write(file, json.dumps({"id": str(uuid.uuid4())}))


def _write(file: Location, text: str) -> None:
    """Write one of Spark's files."""
    _forget_checksum(file)
    _put(file, text)


def _put(file: Location, text: str) -> None:
    with effect("make_folder"):
        file.parent.make()
    file.put(text.encode())


def _forget_checksum(file: Location) -> None:
    """Delete Hadoop's checksum of a file, which would reject the new content."""
    with effect("delete_query"):
        (file.parent / f".{file.name}.crc").delete()


def _put_aside(file: Location, reason: str) -> None:
    _forget_checksum(file)
    aside = file.parent / f"{file.name}.damaged"
    if file.name == "0":  # Spark plans its first batch in an empty folder only
        aside = file.parent.parent / f"{file.parent.name}-{aside.name}"
    with effect("put_query_aside"):
        file.move(aside)
    _log.warning("%s is damaged and was renamed to %s: %s", file, aside.name, reason)


def _required(file: Location, streams: int) -> dict[str, Any]:
    offset = query_log.offset(file, streams)
    if offset is None:
        state = "damaged" if file.exists() else "missing"
        raise Refused(f"The checkpoint file {file} is {state}, so Spark cannot continue from it. {_WAY_OUT}")
    return offset
