"""`python -m bench.books`: what a closing costs, by rows of the game's history and by rows of the day.

One game grows, a day at a time, by the writers of production: bronze, decoded rows, a silver table. After each day one
process classifies all rows, as `turnout books show` does, and another one closes that day. The difference of the two is
what the day's own rows cost: their hashes, sums and copy. CPU time of the process counts, with all threads, and its
largest resident memory. See docs/performance.md.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bench import cpu, machine, policies
from bench.command import carry_out
from bench.text import number, table
from pipeline.base.names import bronze_app_id, game_key, stream_app_id
from pipeline.data.books.closing import Books
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import SilverDefinition, dumps
from pipeline.data.derived.held_ids import IdRoom
from pipeline.data.derived.kinds import Surroundings, carrier
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.demo.samples.supported import payload_schema
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.delta.through import ThroughPair, ThroughTable
from pipeline.settings.tree import Paths, Settings
from pipeline.store import derived
from pipeline.store.database.engine import open_store
from pipeline.store.games import Game
from protos.turnout.v1.wrapper_pb2 import Wrapper

_VERSION: Final = 5  # of the payloads of `policies.sample_rows`
_FAMILY: Final = "shooter"
_BEGIN: Final = 1_700_006_400  # Unix seconds: a midnight UTC
_DAY: Final = 86_400
_MILLION: Final = 1_000_000
_PAPER_ROWS: Final = 10**8
_LINEAR: Final = 1.25  # the cost of a row in the largest size, in times of that in the smallest


class GrowingGame:
    """An environment with one game, to which days are added."""

    def __init__(self, folder: Path, batch_rows: int) -> None:
        """Make it without a row."""
        self.settings, self.paths = Settings(), Paths(folder)
        self.engine = open_store(self.settings, self.paths)
        chosen = [each for each in policies.sample_rows(3, 4 * batch_rows) if each.family == _FAMILY]
        self.game = Game(game_key(chosen[0].game), chosen[0].game)
        wrappers = [_anonymous(each.wrapper) for each in chosen if each.game == self.game.name][:batch_rows]
        message, definition = payload_schema(_FAMILY, _VERSION)
        self.registry = LocalRegistry(self.engine, self.paths.bronze)
        schema_id = self.registry.register(self.game.name, message, definition).schema_id
        self.wrappers = [_with_schema(each, schema_id) for each in wrappers]
        self.schema_id, self.seq, self.rows = schema_id, 0, 0
        silver = SilverDefinition("bench", self.game.name, within=3600)
        derived.apply(self.engine, dumps([silver]), 0, "bench", "a measurement")
        within = Surroundings(self.settings, self.paths, self.registry.snapshot, time.time, IdRoom())
        self._silver = carrier(silver, within, lambda: True)

    def add_day(self, day: int, rows: int) -> None:
        """Land a day's rows in bronze, in the game's table and in silver, and note that the source is complete."""
        schemas = self.registry.snapshot()
        for at in range(0, rows, len(self.wrappers)):
            self._land(schemas, day, at / rows, min(rows - at, len(self.wrappers)))
        while (position := self._silver.step()) is not None and not position.is_level:
            pass
        through = ThroughTable(self.paths.through)
        pairs = through.read()
        ends = _BEGIN + (day + 1) * _DAY + self.settings.books.lateness_seconds
        if not through.write((*pairs, ThroughPair(self.seq, float(ends), "{}"))):
            raise ValueError("another writer was first")

    def _land(self, schemas: SchemaSet, day: int, part: float, rows: int) -> None:
        key, environment = self.game.key, self.settings.environment
        self.seq += 1
        begin = int((_BEGIN + day * _DAY + part * 0.9 * _DAY) * _MILLION)
        times = pa.array([begin + 1000 * place for place in range(rows)], pa.int64())
        given = {
            "game_key": pa.array([key] * rows), "game": pa.array([self.game.name] * rows),
            "schema_id": pa.array([self.schema_id] * rows), "seq": pa.array([self.seq] * rows, pa.int64()),
            "pos": pa.array(range(rows), pa.int32()), "prev_seq": pa.array([self.seq - 1] * rows, pa.int64()),
            "raw": pa.array(self.wrappers[:rows], pa.binary()),
            **{name: times.cast(pa.timestamp("us", "UTC")) for name in ("event_time", "source_time", "ingest_time")},
        }  # fmt: skip
        columns = [given.get(each.name, pa.nulls(rows, each.type)) for each in BRONZE]
        bronze_rows = pa.Table.from_arrays(columns, schema=BRONZE)
        bronze = CursorTable.create(self.paths.bronze, BRONZE, bronze_app_id(environment))
        bronze.commit([write_file(bronze_rows, self.paths.bronze, ["seq", "game_key"])], bronze.cursor, self.seq)
        job = SplitJob({key: self.seq - 1}, schemas, self.paths.tables)
        (done,) = split(iter(bronze_rows.select(list(READ)).combine_chunks().to_batches()), job)
        report = json.loads(done.column("report")[0].as_py())["games"][key]
        files = [DataFile(**each) for each in report["files"]]
        if sum(each.rows for each in files) != rows:
            raise ValueError(f"not every row landed: {report}")
        target = landing_schema(schemas, key)
        own = CursorTable.create(self.paths.table(key), target, stream_app_id(environment, key, 1))
        own.add_missing_columns(target)
        own.commit(files, own.cursor, self.seq, target=target)
        self.rows += rows


def _anonymous(raw: bytes) -> Wrapper:
    """Return a wrapper without an id: the same payloads come again and again, and are no duplicates."""
    wrapper = Wrapper.FromString(raw)
    wrapper.event_id = ""
    return wrapper


def _with_schema(wrapper: Wrapper, schema_id: int) -> bytes:
    wrapper.schema_id = schema_id
    return bytes(wrapper.SerializeToString())


def measured(folder: Path, name: str, day: int | None) -> dict[str, Any]:
    """Classify a game's rows in this process, and close a day where one is given; return what it cost."""
    settings, paths = Settings(), Paths(folder)
    engine = open_store(settings, paths)
    began, cpu_before, held = time.perf_counter(), time.process_time(), _largest_megabytes()
    books, game = Books(settings, paths, engine), Game(game_key(name), name)
    if day is None:
        rows = sum(each.sums.rows for each in books.look(game).days)
    else:
        rows = books.close(game, (_BEGIN + day * _DAY) * _MILLION, "bench").sums.accepted
    engine.dispose()
    return {
        "rows": rows, "cpu_seconds": time.process_time() - cpu_before, "seconds": time.perf_counter() - began,
        "megabytes": _largest_megabytes(), "megabytes_before": held,
    }  # fmt: skip


def _largest_megabytes() -> float:
    """Return the largest resident memory of this process so far: `ru_maxrss` would begin with its parent's."""
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    raise ValueError("/proc/self/status has no VmHWM")


def _in_a_process(folder: Path, game: Game, day: int | None) -> dict[str, Any]:
    chosen = [] if day is None else ["--day", str(day)]
    command = [sys.executable, "-m", "bench.books", "--measure", str(folder), "--game", game.name, *chosen]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(folder: Path, sizes: Sequence[int], batch_rows: int) -> dict[str, Any]:
    """Return for each size of the history what it costs to classify it, and to close its last day."""
    game, found = GrowingGame(folder / "env", batch_rows), []
    for day, size in enumerate(sizes):
        began = time.perf_counter()
        day_rows = size - game.rows
        game.add_day(day, day_rows)
        made = time.perf_counter() - began
        look = _in_a_process(folder / "env", game.game, None)
        close = _in_a_process(folder / "env", game.game, day)
        if look["rows"] != size or close["rows"] != day_rows:
            raise ValueError(f"{look['rows']} rows of {size} were classified, {close['rows']} of {day_rows} closed")
        found.append({"rows": size, "day_rows": day_rows, "made_seconds": made, "look": look, "close": close})
    game.engine.dispose()
    return {"silver": True, "batch_rows": batch_rows, "sizes": found}


def per_million(size: Mapping[str, Any]) -> tuple[float, float]:
    """Return the CPU seconds for a million rows of the history, and those for a million rows of the day beside."""
    look, close = size["look"]["cpu_seconds"], size["close"]["cpu_seconds"]
    return look / size["rows"] * _MILLION, (close - look) / size["day_rows"] * _MILLION


def report(result: Mapping[str, Any]) -> str:
    """Return the result as a table, whether it is linear, and what it means for 10^8 rows on paper."""
    lines = []
    for each in result["sizes"]:
        history, day = per_million(each)
        look, close = each["look"], each["close"]
        lines.append([
            f"{each['rows']:,}", f"{each['day_rows']:,}", number(look["cpu_seconds"]), number(close["cpu_seconds"]),
            number(history), number(day), number(look["megabytes"]), number(close["megabytes"]),
        ])  # fmt: skip
    header = [
        "rows", "of the day", "classify CPU s", "close CPU s", "CPU s / M rows", "+ CPU s / M of the day",
        "classify MB", "close MB",
    ]  # fmt: skip
    small, large = per_million(result["sizes"][0]), per_million(result["sizes"][-1])
    times = max(high / low if low > 0 else float("inf") for low, high in zip(small, large, strict=True))
    shape = "linear" if times <= _LINEAR else "NOT linear"
    history, day = (each * _PAPER_ROWS / _MILLION for each in large)
    return "\n".join([
        table(header, lines),
        f"A row costs {times:.2f} times as much in the largest size as in the smallest: {shape}.",
        f"On paper, by the largest size: 10^8 rows of history take {number(history)} CPU s of each look.",
        f"10^8 rows of a day take {number(day)} CPU s beside.",
    ])  # fmt: skip


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.books")
    parser.add_argument("--sizes", default="250000,1000000,2000000", help="rows of the history, growing")
    parser.add_argument("--batch-rows", type=int, default=25_000, help="rows of a commit")
    parser.add_argument("--work", type=Path, help="the folder for tables")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--game", help=argparse.SUPPRESS)
    parser.add_argument("--day", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measured(options.measure, options.game, options.day)))
        return
    before = machine.load_average()
    sizes = [int(each) for each in options.sizes.split(",")]

    def run(folder: Path) -> dict[str, Any]:
        looked, began = cpu.read_all(), time.perf_counter()
        found = measure(folder, sizes, options.batch_rows)
        others = machine.others(looked, cpu.read_all(), time.perf_counter() - began, os.getpid())
        return {"machine": machine.describe(), "load": before, "others": others, **found}

    carry_out(options, run, report)


if __name__ == "__main__":
    main()
