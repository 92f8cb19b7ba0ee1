"""The last seq of every game in bronze: what a new row's `prev_seq` is made of (law L1).

Rebuilt from bronze at every start. A snapshot beside the checkpoint only shortens the reading: it holds for one
table identity and one seq, and everything above that seq is read again.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from pipeline.delta_table import CursorTable


def read_heads(bronze: CursorTable, snapshot: Path) -> dict[str, int]:
    """Return the last seq of every game key bronze has rows of."""
    heads, since = _snapshot(bronze, snapshot)
    if (bronze.cursor or 0) <= since:
        return heads
    dataset = DeltaTable(bronze.path).to_pyarrow_dataset()
    for batch in dataset.to_batches(columns=["game_key", "seq"], filter=ds.field("seq") > since):
        last = pa.Table.from_batches([batch]).group_by("game_key").aggregate([("seq", "max")])
        for row in last.to_pylist():
            heads[row["game_key"]] = max(row["seq_max"], heads.get(row["game_key"], 0))
    return heads


def write_snapshot(bronze: CursorTable, heads: dict[str, int], snapshot: Path) -> None:
    """Keep the heads as of bronze's cursor; a crash leaves the old snapshot whole."""
    draft = snapshot.with_suffix(".draft")
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(json.dumps({"table_id": bronze.table_id, "seq": bronze.cursor or 0, "heads": heads}))
    draft.replace(snapshot)


def _snapshot(bronze: CursorTable, snapshot: Path) -> tuple[dict[str, int], int]:
    try:
        kept = json.loads(snapshot.read_text())
    except FileNotFoundError:
        return {}, 0
    if kept["table_id"] != bronze.table_id or kept["seq"] > (bronze.cursor or 0):
        return {}, 0  # of another table, or of a future this one does not have
    return dict(kept["heads"]), int(kept["seq"])
