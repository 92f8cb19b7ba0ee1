"""The last seq of every game in bronze, a new row's `prev_seq` (law L1). Rebuilt from bronze at every start.

A snapshot beside the checkpoint only shortens the reading: it holds for one table id and one seq, and all rows above
that seq are read again. If it is unusable, all of bronze is read.
"""

import json
import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.failpoints import effect
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.lake.delta.opening import rows_of
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location

_log = logging.getLogger("turnout")


@dataclass(frozen=True, slots=True)
class SeqSnapshot:
    """The heads as of one seq of one table."""

    table_id: str
    seq: int
    last_seqs: Mapping[str, int]


def read_last_seqs(bronze: CursorTable, file: Location, losses: Iterable[LostSeqs] = ()) -> dict[str, int]:
    """Return the last seq of every game key in bronze; `losses` are the seqs that bronze lost."""
    kept = read_snapshot(file)
    if kept is None or not _fits(kept, bronze, losses):
        kept = SeqSnapshot(bronze.table_id, 0, {})
    last_seqs = dict(kept.last_seqs)
    if (bronze.cursor or 0) <= kept.seq:
        return last_seqs
    dataset = rows_of(bronze.path)
    for batch in dataset.to_batches(columns=["game_key", "seq"], filter=pc.field("seq") > kept.seq):
        last = pa.Table.from_batches([batch]).group_by("game_key").aggregate([("seq", "max")])
        for row in last.to_pylist():
            last_seqs[row["game_key"]] = max(row["seq_max"], last_seqs.get(row["game_key"], 0))
    return last_seqs


def write_snapshot(bronze: CursorTable, last_seqs: Mapping[str, int], file: Location) -> None:
    """Save the heads as of bronze's cursor; a crash leaves the old snapshot intact."""
    body = {"table_id": bronze.table_id, "seq": bronze.cursor or 0, "last_seqs": dict(last_seqs)}
    with effect("make_folder"):
        file.parent.make()
    file.put(json.dumps({**body, "crc32": _checksum(body)}).encode())


def read_snapshot(file: Location) -> SeqSnapshot | None:
    """Return the snapshot; None where it is missing, and None, with a line in the log, where it is damaged."""
    try:
        kept = json.loads(file.read())
        checksum = kept.pop("crc32")
        if checksum != _checksum(kept):
            raise ValueError("its checksum does not match")
        last_seqs = {str(key): int(at) for key, at in kept["last_seqs"].items()}
        return SeqSnapshot(str(kept["table_id"]), int(kept["seq"]), last_seqs)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        _log.warning("%s cannot be used (%s): reading the last seq of each game from bronze", file, why)
        return None


def _fits(kept: SeqSnapshot, bronze: CursorTable, losses: Iterable[LostSeqs]) -> bool:
    """Return whether the snapshot belongs to this table, and is not ahead of it."""
    return (
        kept.table_id == bronze.table_id
        and kept.seq <= (bronze.cursor or 0)
        and not any(kept.seq in lost for lost in losses)
    )


def _checksum(body: Any) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
