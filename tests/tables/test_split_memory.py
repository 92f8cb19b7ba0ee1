"""A pass holds a bounded part of its rows' values, however much its payloads inflate or spread (law L6)."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.envelopes import framing
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.schemas import Schema, SchemaSet, Writer
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.portions import portions
from pipeline.data.streams.writing.split import split
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located
from tests.tables.profiled_world import CHESS, PROFILE
from tests.unit.data.contracts.formats.avro.avro_world import listed, schema, varint
from tests.unit.data.contracts.formats.malformed_world import UUID
from tests.unit.data.contracts.formats.peak_memory import at_most

MIB = 1024 * 1024
SLICE = MIB
WIDE = {"type": "record", "name": "W", "fields": listed({f"f{index}": "long" for index in range(50)})}
SWARM = schema({"i": "int", "xs": {"type": "array", "items": ["null", WIDE]}})


def landed(folder: Path, of: Schema, contents: list[bytes]) -> list[dict[str, Any]]:
    """Split records of Glue without an envelope by one task; return the rows' own columns and first field."""
    row: dict[str, Any] = dict.fromkeys(READ) | {"game_key": CHESS, "game": "Chess", "seq": 1, "profile": PROFILE}
    row |= {"registry": "main", "writer": UUID, "prev_seq": 0}
    rows = [row | {"pos": pos, "raw": content} for pos, content in enumerate(contents)]
    table = pa.Table.from_pylist(rows, pa.schema([BRONZE.field(name) for name in READ]))
    profiles = {PROFILE: SourceProfile("none", "topic", "glue", "main")}
    known = SchemaSet(1, {CHESS: (1,)}, {1: of}, writers={("main", UUID): Writer(1)}, profiles=profiles)
    found = []
    for done in split(iter(table.to_batches()), SplitJob({CHESS: 0}, known, located(folder), slice_bytes=SLICE)):
        game = json.loads(done.column("report")[0].as_py())["games"][CHESS]
        assert (game["error"], game["rejects"], game["needs"]) == (None, {}, [])
        for file in game["files"]:
            found += pq.read_table(folder / CHESS / file["path"], columns=["_pos", "i"]).to_pylist()
    return sorted(found, key=lambda each: int(each["_pos"]))


@pytest.mark.proves("B20")
def test_many_payloads_that_inflate_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte of zlib each, 60 MiB together: all of them land, and never more than a part is held."""
    monkeypatch.setattr(framing, "PIECE_BYTES", SLICE)
    of = schema({"i": "int", "b": "bytes"})
    size = MAX_PAYLOAD_BYTES - 5
    frames = [b"\3\5" + UUID[1:] + zlib.compress(varint(row, 2) + varint(size, 3) + bytes(size)) for row in range(60)]
    landed(tmp_path, of, frames[:1])  # what is loaded once does not count
    with at_most(60):
        assert [{"_pos": row, "i": row} for row in range(60)] == landed(tmp_path, of, frames)


@pytest.mark.proves("B9")
def test_many_payloads_that_spread(tmp_path: Path) -> None:
    """A byte of Avro may be a null of 50 columns, 400 bytes: 20 rows take 80 MB, of which a part is held."""
    frames = [b"\3\0" + UUID[1:] + varint(row) + varint(10_000) + b"\0" * 10_001 for row in range(20)]
    landed(tmp_path, SWARM, frames[:1])
    with at_most(60):
        assert [{"_pos": row, "i": row} for row in range(20)] == landed(tmp_path, SWARM, frames)


def test_portions_hold_every_row_once() -> None:
    """Rows stay in order, a row that may be too much is alone, and plain rows are not cut."""
    rows, sizes = np.arange(5, dtype=np.int64) + 7, np.array([10, MIB, 10, 10, 10])
    assert [part.tolist() for part in portions(rows, sizes, SWARM, 64 * MIB)] == [[7], [8], [9, 10, 11]]
    plain = schema({"i": "int", "s": "string"})
    assert [part.tolist() for part in portions(rows, sizes, plain, 64 * MIB)] == [rows.tolist()]
    assert list(portions(rows[:0], sizes[:0], plain, 1)) == []
