"""A micro-batch above 2 GiB of values, which no Arrow column holds, goes from landing into the game's table."""

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipeline.base.names import GameKey
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.table import CursorTable
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.spark.conftest import World
from tests.tables.repair_world import CHESS, GO, Message

_log = logging.getLogger("turnout")

ROWS = 200_000
ROW_BYTES = 10_700
MAX_RESIDENT = 4 * 1024**3

pytestmark = pytest.mark.timeout(900)


def descendants() -> list[int]:
    """Return this process and all that it started, the JVM and its Python workers among them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = [os.getpid()]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def resident_bytes() -> int:
    """Return what all of them hold now; pages that several share are counted once for each."""
    total = 0
    for process in descendants():
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


@pytest.fixture
def peak() -> Iterator[list[int]]:
    """The most that was resident at any of four looks a second."""
    highest, stop = [resident_bytes()], threading.Event()

    def watch() -> None:
        while not stop.wait(0.25):
            highest[0] = max(highest[0], resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    yield highest
    stop.set()
    thread.join()


def land_one_file(world: World, schema_ids: Mapping[GameKey, int], message: Message, refused_every: int) -> None:
    """Append one landing file with all rows; each `refused_every`-th has a payload that its schema refuses."""
    table = CursorTable.create(world.paths.landing, LANDING, "soak")
    target = world.paths.landing / "part-large.parquet"
    text = "".join(chr(97 + number % 26) for number in np.random.default_rng(7).integers(0, 26, ROW_BYTES))
    with pq.ParquetWriter(target, LANDING, compression="zstd") as writer:
        for first in range(0, ROWS, 5_000):
            values = []
            for number in range(first, first + 5_000):
                game = CHESS if number % 3 else GO
                good = (number + 1) % refused_every
                payload = message.payload(number=number, text=text) if good else b"\xff" * 4 + text.encode()
                wrapper = Wrapper(game=game.name, schema_id=schema_ids[game.key], payload=payload)
                values.append(wrapper.SerializeToString())
            writer.write_table(pa.table({"key": pa.nulls(len(values), pa.binary()), "value": values}, schema=LANDING))
    stats = f'{{"numRecords": {ROWS}, "minValues": {{}}, "maxValues": {{}}, "nullCount": {{}}}}'
    table.commit([DataFile(target.name, Path(target).stat().st_size, ROWS, stats)], table.cursor, 1)


@pytest.mark.parametrize("refused_every", [100, 1], ids=["some refused", "all refused"])
@pytest.mark.proves("G20")
def test_more_than_an_arrow_column_holds_lands_in_bounded_memory(
    refused_every: int, world: World, peak: list[int]
) -> None:
    """Laws L1, L6: 200,000 rows of 10.7 kB in one landing file are ingested and split with the defaults, each once."""
    message = Message({"number": (1, "int64"), "text": (2, "string")})
    schema_ids = {
        game.key: LocalRegistry(world.engine).register(game.name, "t.M", message.descriptor_set).schema_id
        for game in (CHESS, GO)
    }
    land_one_file(world, schema_ids, message, refused_every)
    before = peak[0]
    world.ingest()
    ingested = peak[0]
    group = world.group("a")
    world.split(group)
    group.stop()
    reported = [f"{each / 2**20:.0f} MiB" for each in (before, ingested, peak[0])]
    _log.info("most resident: %s before, %s after ingest, %s after the group", *reported)
    balance = world.verify()
    assert balance.complete, balance.problems
    assert (balance.totals.bronze_rows, balance.totals.quarantined) == (ROWS, ROWS // refused_every)
    places = DeltaTable(world.paths.bronze).to_pyarrow_dataset().to_table(columns=["offset"])["offset"].to_pylist()
    assert Counter(places) == Counter(range(ROWS))
    numbers = set()
    for game in (CHESS, GO):
        table = world.paths.table(game.key)
        files = DeltaTable(table).file_uris() if DeltaTable.is_deltatable(os.fspath(table)) else []
        if not files:
            continue  # all of its rows are in quarantine
        rows = duckdb.execute("SELECT number, length(text) FROM read_parquet(?)", [files]).fetchall()
        assert {ROW_BYTES} == {size for _, size in rows}
        numbers |= {number for number, _ in rows}
    assert numbers == {number for number in range(ROWS) if (number + 1) % refused_every}
    assert peak[0] < MAX_RESIDENT
