"""A bucket that answers late holds up one thread of a driver, and no other."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event

import pyarrow as pa
import pytest

from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.meanings import with_meanings
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from tests.storage.buckets import bucket, proxied_apart

_SECONDS = 5.0  # until the bucket answers, whether the driver beats or not
_SPAWN = multiprocessing.get_context("spawn")
_COLUMNS = pa.schema([("_seq", pa.int64())])


class Waiting:
    """Answers a request for a commit when another thread of its client has come by, or late."""

    def __init__(self, asked: Event, beaten: Event, late: Event) -> None:
        self.asked, self.beaten, self.late = asked, beaten, late

    def __call__(self, method: str, path: str) -> None:
        if method == "PUT" and "/_delta_log/" in path:
            self.asked.set()
            if not self.beaten.wait(_SECONDS):
                self.late.set()


@pytest.mark.long
def test_a_driver_beats_while_a_slow_bucket_takes_the_meaning_of_a_schema() -> None:
    """Leases do not lapse where a new schema's first rows land: that wait is without the interpreter's lock."""
    waiting = Waiting(_SPAWN.Event(), _SPAWN.Event(), _SPAWN.Event())

    def beat() -> None:
        assert waiting.asked.wait(60.0)
        waiting.beaten.set()

    with bucket() as url, proxied_apart(os.environ["AWS_ENDPOINT_URL"], waiting) as between:
        folder, new = located(f"{url}/t"), with_meanings(_COLUMNS, {1: "a", 2: "b"})
        table = CursorTable.create(folder, with_meanings(_COLUMNS, {1: "a"}), "turnout/t/t/1", guarded=True)
        file = write_file(pa.table({"_seq": [1]}), folder)
        between.loses.set()
        with ThreadPoolExecutor(1) as pool:
            beating = pool.submit(beat)
            table.add_missing_columns(new)
            table.commit([file], None, 1, target=new)
            beating.result()
    assert not waiting.late.is_set()
