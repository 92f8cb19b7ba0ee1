"""`python -m bench.bronze_reads`: what it costs to read one game of many from bronze, before and after maintenance.

Bronze is written commit by commit with the product's own writer, read, sorted by one round of maintenance, and read
again. Each read is a process of its own that opens the table anew. See docs/maintenance.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench import machine
from bench.command import keep
from bench.numbers import Ints
from bench.text import number, table
from pipeline.base.names import bronze_app_id, game_key
from pipeline.data.maintenance.run import one_round
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.delta.table import CursorTable
from pipeline.platforms.session.spark import spark_session
from pipeline.settings.tree import Paths, Settings, load

_LAST_SEQS: Final = 100
_REPEATS: Final = 3
_LONG_SECONDS: Final = 30.0  # a read that takes longer is not repeated
_SKEW: Final = 1.1  # as the simulator's
_CHECKPOINT_EVERY: Final = 200  # commits: ten is the default, and each checkpoint holds every file so far
_PAYLOAD_BYTES: Final = 150  # random, so compression gains nothing on it
_READERS: Final = ("delta-rs", "duckdb")


@dataclass(frozen=True, slots=True)
class Read:
    """What one read cost, the medians of a few where it is short."""

    state: str  # of bronze: as landed, or sorted
    question: str
    reader: str
    rows: int
    files: int  # whose statistics allow such rows
    table_files: int
    megabytes: float | None  # read from files, the log included; None for Spark, whose process does other things too
    seconds: float


def main() -> None:
    """Measure, print and keep the result."""
    options = _options()
    if options.read:
        print(json.dumps(_read_once(*options.read)), flush=True)
        os._exit(0)  # Arrow's threads over delta-rs's file system may abort a Python that ends
    with tempfile.TemporaryDirectory(prefix="turnout-bench-", dir=options.work) as folder:
        result = _run(options, Path(folder) / "env")
    print(_report(result))
    keep(result, options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=200, help="rows of one commit")
    parser.add_argument("--spark", action="store_true", help="read with Spark as well")
    parser.add_argument("--work", type=Path, help="folder for the temporary environment")
    parser.add_argument("--out", type=Path, help="keep the result here as JSON")
    parser.add_argument("--read", nargs=4, metavar=("READER", "TABLE", "KEY", "SEQ"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    root.mkdir()
    settings, paths = load(root, {})
    settings = replace(settings, maintenance=replace(settings.maintenance, bronze_age_minutes=0.0))
    keys = [str(game_key(f"game {rank}")) for rank in range(options.games)]
    started = time.monotonic()
    write_bronze(settings, paths, keys, options.commits, options.rows)
    written_seconds = time.monotonic() - started
    print(f"bronze written in {written_seconds:.0f} s", file=sys.stderr)
    key = keys[options.games // 2]
    reads = list(_measure("as landed", settings, paths, key, options))
    done = one_round(settings, paths, time.time(), thorough=True)
    assert done.ok, done
    reads += _measure("sorted", settings, paths, key, options)
    return {
        "machine": machine.describe(),
        "games": options.games,
        "commits": options.commits,
        "rows": options.commits * options.rows,
        "written_seconds": written_seconds,
        "maintenance": [asdict(each) for each in done.tables],
        "maintenance_seconds": done.seconds,
        "reads": [asdict(read) for read in reads],
    }


def write_bronze(settings: Settings, paths: Paths, keys: Sequence[str], commits: int, rows: int) -> None:
    """Write bronze commit by commit as ingest does: so many files each, a game's rows in one of them.

    Only Spark's micro-batch and the fetch of a source are left out, so that 10,000 commits take minutes, not hours.
    """
    dice = np.random.default_rng(1)
    weights = 1.0 / np.arange(1, len(keys) + 1) ** _SKEW
    bronze = CursorTable.create(paths.bronze, BRONZE, bronze_app_id(settings.environment), _CHECKPOINT_EVERY)
    last_seqs = np.zeros(len(keys), dtype=np.int64)
    for seq in range(1, commits + 1):
        games = np.sort(dice.choice(len(keys), rows, p=weights / weights.sum()))
        landed = _rows(seq, games, last_seqs, keys, dice)
        files = []
        for bucket in range(settings.ingest.bronze_files):
            mine = pa.array(games % settings.ingest.bronze_files == bucket)
            chosen = landed.filter(mine).sort_by([("game_key", "ascending"), ("pos", "ascending")])
            files.append(write_file(chosen, paths.bronze, ["seq", "game_key"], "zstd"))
        bronze.commit(files, seq - 1 or None, seq)
        last_seqs[games] = seq
    DeltaTable(paths.bronze).create_checkpoint()


def _rows(seq: int, games: Ints, last_seqs: Ints, keys: Sequence[str], dice: np.random.Generator) -> pa.Table:
    count = games.size
    now = pa.scalar(int(time.time() * 1e6), pa.timestamp("us", "UTC"))
    payload = dice.bytes(count * _PAYLOAD_BYTES)
    given: dict[str, Any] = {
        "game_key": pa.array(keys).take(pa.array(games)),
        "game": pa.array([f"game {game}" for game in games]),
        "schema_id": pa.array(games % 5 + 1),
        "seq": pa.array(np.full(count, seq)),
        "pos": pa.array(np.arange(count, dtype=np.int32)),
        "prev_seq": pa.array(last_seqs[games]),
        "event_time": pa.repeat(now, count),
        "event_id": pa.array([f"{seq}-{pos}" for pos in range(count)]),
        "offset": pa.array(np.arange(count) + seq * count),
        "source_time": pa.repeat(now, count),
        "ingest_time": pa.repeat(now, count),
        "raw": pa.array([payload[at : at + _PAYLOAD_BYTES] for at in range(0, len(payload), _PAYLOAD_BYTES)]),
    }
    return pa.table([given.get(field.name, pa.nulls(count)).cast(field.type) for field in BRONZE], schema=BRONZE)


def _measure(state: str, settings: Settings, paths: Paths, key: str, options: argparse.Namespace) -> Iterator[Read]:
    files = table_files(DeltaTable(paths.bronze))
    questions = {"whole history": 0, f"last {_LAST_SEQS} seqs": options.commits - _LAST_SEQS}
    for question, after in questions.items():
        may = [
            file for file in files if file.low["game_key"] <= key <= file.high["game_key"] and file.high["seq"] > after
        ]
        about = Read(state, question, "", 0, len(may), len(files), None, 0.0)
        for reader in _READERS:
            costs = [_read_elsewhere(reader, Path(paths.bronze), key, after)]
            if costs[0]["seconds"] < _LONG_SECONDS:
                costs += [_read_elsewhere(reader, Path(paths.bronze), key, after) for _ in range(_REPEATS - 1)]
            yield replace(
                about,
                reader=reader,
                rows=int(costs[0]["rows"]),
                megabytes=statistics.median(cost["bytes"] for cost in costs) / 1e6,
                seconds=statistics.median(cost["seconds"] for cost in costs),
            )
        if options.spark:
            yield replace(about, reader="spark", **_read_with_spark(settings, paths, key, after))


def _read_elsewhere(reader: str, bronze: Path, key: str, after: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.bronze_reads", "--read", reader, str(bronze), key, str(after)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _read_once(reader: str, bronze: str, key: str, seq: str) -> dict[str, float]:
    """Read a game's rows above a seq; opening the table is part of it."""
    after = int(seq)
    bytes_before, started = _bytes_read(), time.perf_counter()
    rows = _with_arrow(Path(bronze), key, after) if reader == "delta-rs" else _with_duckdb(Path(bronze), key, after)
    return {"rows": rows, "seconds": time.perf_counter() - started, "bytes": _bytes_read() - bytes_before}


def _with_arrow(bronze: Path, key: str, after: int) -> int:
    wanted = (pc.field("game_key") == key) & (pc.field("seq") > after)
    return int(DeltaTable(bronze).to_pyarrow_dataset().to_table(filter=wanted).num_rows)


def _with_duckdb(bronze: Path, key: str, after: int) -> int:
    """Let the log's statistics choose the files, as delta-rs and Spark do, and DuckDB the row groups."""
    chosen = [
        str(bronze / file.path)
        for file in table_files(DeltaTable(bronze))
        if file.low["game_key"] <= key <= file.high["game_key"] and file.high["seq"] > after
    ]
    with duckdb.connect(config={"threads": 2}) as database:
        query = "SELECT * FROM read_parquet(?) WHERE game_key = ? AND seq > ?"
        return len(database.execute(query, [chosen, key, after]).fetchall())


def _read_with_spark(settings: Settings, paths: Paths, key: str, after: int) -> dict[str, Any]:
    """Read with a warm session; the last of a few reads counts."""
    spark = spark_session(settings, paths, "turnout-bench-reads", light=False)
    seconds = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        frame = spark.read.format("delta").load(str(paths.bronze))
        rows = frame.where((frame.game_key == key) & (frame.seq > after)).selectExpr("sum(length(raw))", "count(*)")
        found = rows.collect()[0][1]
        seconds.append(time.perf_counter() - started)
    return {"rows": found, "seconds": seconds[-1]}


def _bytes_read() -> int:
    """Return the bytes this process has read so far, from disk or from the page cache."""
    return next(int(line.split()[1]) for line in Path("/proc/self/io").read_text().splitlines() if "rchar" in line)


def _report(result: dict[str, Any]) -> str:
    (done,) = result["maintenance"]
    rows = [
        [
            f"{read['state']}, {read['question']}, {read['reader']}",
            number(read["rows"]),
            f"{read['files']:,} of {read['table_files']:,}",
            number(read["megabytes"]),
            number(read["seconds"]),
        ]
        for read in result["reads"]
    ]
    size = f"{result['games']} games, {result['commits']:,} commits, {result['rows']:,} rows"
    work = f"{done['files_merged']:,} files into {done['files_written']} in {result['maintenance_seconds']:.0f} s"
    return "\n".join([size, work, table(["one game of many", "rows", "files", "MB read", "seconds"], rows)])


if __name__ == "__main__":
    main()
