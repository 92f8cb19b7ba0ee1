"""Commits to a folder and to a bucket, side by side in one run: CPU, seconds of a pass, and requests.

`python -m bench.storage --games 300 --passes 10 --latency-ms 30 --out FILE`. A pass writes a file of each game and
commits it, as a group's driver does with its threads, without Spark. Before the bucket stands a proxy in a process of
its own that adds the latency to each request and counts them; the S3 server is the demo's.
"""

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa

from bench.command import carry_out
from bench.delay import Delay, delayed
from pipeline.data.streams.writing.in_threads import commit_threads
from pipeline.demo.object_server import ObjectServer
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

_SCHEMA: Final = pa.schema([("_seq", pa.int64()), ("_pos", pa.int32()), *((f"c{at}", pa.string()) for at in range(10))])
_ROWS: Final = 20
_DAY: Final = 86_400


def measure(work: Path, games: int, passes: int, latency_ms: float, trigger_seconds: float) -> dict[str, Any]:
    """Run the same passes on both and return all numbers."""
    folder = _passes(located(work / "tables"), games, passes)
    with ObjectServer.start(work / "objects", "key", "secret") as server:
        server.make_bucket("bench")
        with delayed(server.address, latency_ms) as proxy:
            os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
            os.environ["AWS_ENDPOINT_URL"] = proxy.address
            bucket = _passes(located("s3://bench/tables"), games, passes, proxy)
    per_commit = bucket["requests"] / (games * passes)
    return {
        "games": games,
        "passes": passes,
        "latency_ms": latency_ms,
        "folder": folder,
        "bucket": bucket,
        "cpu_ratio": round(bucket["cpu_ms_per_commit"] / folder["cpu_ms_per_commit"], 2),
        "requests_per_commit": round(per_commit, 2),
        "requests_per_day": round(per_commit * games * _DAY / trigger_seconds),
        "trigger_seconds": trigger_seconds,
    }


def _passes(root: Location, games: int, passes: int, proxy: Delay | None = None) -> dict[str, Any]:
    columns = [pa.array([f"value {at}" for at in range(_ROWS)]) for _ in range(10)]
    with ThreadPoolExecutor(commit_threads(root)) as pool:

        def create(game: int) -> CursorTable:
            return CursorTable.create(
                root / f"game_{game:04}", _SCHEMA, f"turnout/bench/game_{game:04}/1", chained=True
            )

        def write(table: CursorTable, seq: int) -> DataFile:
            places = [pa.array([seq] * _ROWS, pa.int64()), pa.array(range(_ROWS), pa.int32())]
            rows = pa.table([*places, *columns], schema=_SCHEMA)
            return write_file(rows, table.path, ["_seq"], settled=False)

        def commit(table: CursorTable, file: DataFile, seq: int) -> None:
            table.commit([file], table.cursor, seq)

        tables = list(pool.map(create, range(games)))
        before = _requests(proxy)
        begun, took = time.process_time(), []
        for seq in range(1, passes + 1):
            at = time.monotonic()
            files = list(pool.map(write, tables, [seq] * games))
            root.settle([f"{table.path.name}/{file.path}" for table, file in zip(tables, files, strict=True)])
            list(pool.map(commit, tables, files, [seq] * games))
            took.append(time.monotonic() - at)
        cpu = time.process_time() - begun
    return {
        "threads": commit_threads(root),
        "cpu_ms_per_commit": round(cpu * 1000 / (games * passes), 3),
        "pass_seconds": [round(each, 2) for each in took],
        "pass_median_seconds": round(median(took), 2),
        "requests": _requests(proxy) - before,
    }


def _requests(proxy: Delay | None) -> int:
    return 0 if proxy is None else sum(proxy.requests().values())


def main() -> None:
    """Measure and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--trigger-seconds", type=float, default=10)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    def run(folder: Path) -> dict[str, Any]:
        return measure(folder, options.games, options.passes, options.latency_ms, options.trigger_seconds)

    carry_out(options, run, lambda numbers: json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
