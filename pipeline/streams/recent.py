"""Bronze's newest rows, found through its log alone: what a stream needs that is only a little behind (law L7).

A Delta snapshot and a scan cost about a second of processor time however few rows they bring; a game that is restarted
again and again would take that from all others of its driver.
"""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipeline.bronze import BRONZE, text
from pipeline.delta_log import read_commit
from pipeline.streams.split import READ

_MOST_COMMITS: Final = 64
_MOST_FILE_BYTES: Final = 8 * 1024 * 1024
_MOST_BYTES: Final = 32 * 1024 * 1024  # unpacked
_BATCH_ROWS: Final = 256  # payloads may be a megabyte each
_READ: Final = pa.schema([BRONZE.field(name) for name in READ])


def recent_rows(bronze: Path, version: int, app_id: str, low: int, high: int, keys: Collection[str]) -> pa.Table | None:
    """Return the games' rows of seqs above `low` up to `high`, or None where that takes more than a look at the end.

    Args:
        bronze: the table's folder.
        version: the version to look at, whose commits hold all seqs up to `high`.
        app_id: the application id under which ingest counts its seqs.
        low: the seq before the first wanted.
        high: the last wanted seq.
        keys: the games' keys.
    """
    files = _files(bronze, version, app_id, low, high)
    if files is None or sum(int(each["size"]) for each in files) > _MOST_FILE_BYTES:
        return None
    batches, size = [], 0
    for batch in _batches([str(bronze / each["path"]) for each in reversed(files)], low, high, keys):
        batches.append(batch)
        size += batch.nbytes
        if size > _MOST_BYTES:
            return None
    return pa.Table.from_batches(batches, _READ)


def _files(bronze: Path, version: int, app_id: str, low: int, high: int) -> list[dict[str, Any]] | None:
    """Return the files that were added with these seqs, newest first; None where the end of the log does not tell."""
    files = []
    for at in range(version, max(version - _MOST_COMMITS, -1), -1):
        actions = read_commit(bronze, at)
        if actions is None or any("remove" in action for action in actions):
            return None  # log cleanup was here, or compaction or a hand: the files of before are not the ones of now
        seqs = [int(action["txn"]["version"]) for action in actions if action.get("txn", {}).get("appId") == app_id]
        added = [action["add"] for action in actions if "add" in action]
        files += [each for each in added if _may_hold(each, low, high)]
        if seqs and max(seqs) <= low + 1:
            return files
    return files if version < _MOST_COMMITS else None


def _may_hold(file: dict[str, Any], low: int, high: int) -> bool:
    stats = json.loads(file.get("stats") or "{}")
    first, last = (stats.get(end, {}).get("seq") for end in ("minValues", "maxValues"))
    return first is None or last is None or (first <= high and last > low)


def _batches(files: list[str], low: int, high: int, keys: Collection[str]) -> Iterator[pa.RecordBatch]:
    if not files:
        return
    wanted = text("game_key").isin(pa.array(sorted(keys), pa.string()))
    wanted &= (pc.field("seq") > low) & (pc.field("seq") <= high)
    rows = ds.dataset(files, schema=_READ).scanner(filter=wanted, batch_size=_BATCH_ROWS, batch_readahead=1)
    for batch in rows.to_batches():
        if batch.num_rows:
            yield batch
