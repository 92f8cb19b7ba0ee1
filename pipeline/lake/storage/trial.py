"""Tries a place for tables as turnout uses it: rights, put-if-absent, clock and latency. Leaves nothing behind.

Called by `turnout doctor`. What cannot create a name once loses rows, so it is tried, not believed.
"""

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Final

from pipeline.lake.storage.location import Location

_WRITERS: Final = 8
_CLOCK_SECONDS: Final = 300.0  # the most by which leases and ages of files bear a wrong clock
_SLOW_SECONDS: Final = 1.0
_ASKED: Final = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing tried; `remedy` is empty where it went well, `stops` tells whether turnout cannot work without it."""

    subject: str
    detail: str
    remedy: str = ""
    stops: bool = False


def trials(root: Location) -> Iterator[Trial]:
    """Try a place, and yield what was found; ends at the first thing without which nothing else can be tried."""
    folder = root / f"turnout-doctor-{uuid.uuid4().hex}"
    try:
        try:
            folder.make()
            took = [_timed(folder / f"file-{number}") for number in range(_ASKED)]
            names = {each.name for each in folder.files()}
        except OSError as error:
            remedy = "give this process the rights to read, write, list and delete there; see docs/storage.md"
            yield Trial("rights", str(error), remedy, stops=True)
            return
        if len(names) < _ASKED:
            detail = f"a listing shows {len(names)} of {_ASKED} files that were just written"
            yield Trial("rights", detail, "use a store whose listings are complete", stops=True)
            return
        yield Trial("rights", "read, write and list")
        yield _created_once(folder / "once")
        yield _clock(folder / "file-0")
        middle = median(took)
        slow = "" if middle <= _SLOW_SECONDS else "use a bucket in this machine's region"
        yield Trial("latency", f"{middle * 1000:.0f} ms to write and read a small file", slow)
        remedy = "give this process the right to delete: maintenance needs it"
        try:
            (folder / "file-0").delete()
        except OSError as error:
            yield Trial("deletion", str(error), remedy)
            return
        if (folder / "file-0").exists():
            yield Trial("deletion", "a deleted file is still there", remedy)
    finally:
        folder.clear()


def _timed(file: Location) -> float:
    begun = time.monotonic()
    file.put(b"turnout doctor")
    if file.read() != b"turnout doctor":
        raise OSError(f"{file} has another content than was written")
    return time.monotonic() - begun


def _created_once(file: Location) -> Trial:
    def create(writer: int) -> bool:
        return file.put_if_absent(b"%d" % writer, drafted="draft_file", published="publish_file")

    remedy = "use a store with conditional writes, such as S3 or MinIO; without them two writers may win one commit"
    try:
        with ThreadPoolExecutor(_WRITERS) as pool:
            done = list(pool.map(create, range(_WRITERS)))
    except OSError as error:
        return Trial("put if absent", str(error), remedy, stops=True)
    if sum(done) != 1 or file.read() != b"%d" % done.index(True):
        return Trial("put if absent", f"{sum(done)} of {_WRITERS} writers created one name", remedy, stops=True)
    return Trial("put if absent", f"of {_WRITERS} writers one created the name")


def _clock(file: Location) -> Trial:
    now = time.time()
    file.put(b"what time is it?")
    entry = file.entry()
    off = 0.0 if entry is None else entry.modified - now
    if abs(off) > _CLOCK_SECONDS:
        where = "ahead of" if off > 0 else "behind"
        return Trial("clock", f"the store's is {abs(off):.0f} s {where} this machine's", "set this machine's clock")
    return Trial("clock", f"within {_CLOCK_SECONDS:.0f} s of this machine's")
