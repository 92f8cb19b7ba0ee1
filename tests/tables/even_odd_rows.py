"""Rows of bronze as two tasks split them."""

from types import SimpleNamespace
from typing import Any

from deltalake import DeltaTable

from pipeline.data.streams.writing.job import READ, Place, SplitJob
from pipeline.data.streams.writing.split import split
from tests.tables.repair_world import World


class BronzeRows:
    """Bronze's rows above `low`, split by two tasks: those of the even and those of the odd seqs."""

    def __init__(self, world: World, low: int = 0) -> None:
        self.world, self._low = world, low
        self.reports: list[Any] = []

    def split(self, job: SplitJob) -> list[Any]:
        rows = DeltaTable(self.world.paths.bronze).to_pyarrow_table(columns=list(READ)).combine_chunks()
        seqs = rows["seq"].to_pylist()
        tasks = [rows.filter([seq > self._low and seq % 2 == parity for seq in seqs]) for parity in (0, 1)]
        done = [each for task in tasks for each in split(iter(task.to_batches()), job)]
        found = [{name: each.column(name)[0].as_py() for name in ("report", "rejects")} for each in done]
        self.reports += found
        return [SimpleNamespace(**each) for each in found]

    def places(self, key: str, above: int) -> list[Place]:
        raise AssertionError(key, above)
