"""What it costs to put the files of a pass on disk, alone and beside a writer like a broker, which syncs nothing.

`python -m bench.disk --files 300 --out FILE`. Each file lies in a folder of its own, as games' do. Compared are: one
after another, as a task does it (`durable_file.settle`), and `syncfs`, which also writes what others have left.
"""

import argparse
import ctypes
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.command import carry_out
from pipeline.base import durable_file

_BYTES: Final = 20_000  # of a game's file in a pass
_SEGMENTS: Final = 12
_BLOCK: Final = os.urandom(256 * 1024)
_SEGMENT_BYTES: Final = 200_000_000

Sync = Callable[[Path, Sequence[str]], None]


def _one_by_one(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        durable_file.settle(folder, [name])


def _whole(folder: Path, _names: Sequence[str]) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(handle)


_WAYS: Final[dict[str, Sync]] = {"one_by_one": _one_by_one, "settle": durable_file.settle, "syncfs": _whole}


def measure(work: Path, files: int, rounds: int, megabytes: float) -> dict[str, Any]:
    """Return milliseconds by way, alone and beside the writer, the ways in turn."""
    folder = work / "tables"
    for number in range(files):
        (folder / f"game_{number:04}").mkdir(parents=True)
    _whole(folder, ())
    alone = _rounds(folder, files, rounds)
    with _broker(work / "broker", megabytes):
        beside = _rounds(folder, files, rounds)
    return {"files": files, "rounds": rounds, "writer_mb_per_second": megabytes, "alone": alone, "beside": beside}


def _rounds(folder: Path, files: int, rounds: int) -> dict[str, dict[str, float]]:
    took: dict[str, list[float]] = {way: [] for way in _WAYS}
    for _ in range(rounds):
        for way, sync in _WAYS.items():
            names = [f"game_{number:04}/part-{uuid.uuid4()}.parquet" for number in range(files)]
            for name in names:
                (folder / name).write_bytes(_BLOCK[:_BYTES])
            begun = time.monotonic()
            sync(folder, names)
            took[way].append((time.monotonic() - begun) * 1000)
            time.sleep(0.3)  # what one way has left to do does not count for the next
    return {way: {"median_ms": round(median(each), 1), "most_ms": round(max(each), 1)} for way, each in took.items()}


@contextmanager
def _broker(folder: Path, megabytes: float) -> Iterator[None]:
    """Append to segments at a rate until the block ends."""
    folder.mkdir()
    done = threading.Event()

    def write() -> None:
        begun, written = time.monotonic(), 0
        segments = [(folder / str(number)).open("wb", buffering=0) for number in range(_SEGMENTS)]
        while not done.is_set():
            for segment in segments:
                written += segment.write(_BLOCK)
                if segment.tell() > _SEGMENT_BYTES:
                    segment.seek(0)
            done.wait(max(written / (megabytes * 1e6) - (time.monotonic() - begun), 0))
        for segment in segments:
            segment.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def main() -> None:
    """Measure and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--megabytes", type=float, default=40, help="that the writer beside writes in a second")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    def run(folder: Path) -> dict[str, Any]:
        return measure(folder, options.files, options.rounds, options.megabytes)

    carry_out(options, run, lambda numbers: json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
