"""Rows of bronze as a pass reads them, split here instead of by tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.data.streams.writing.job import READ, Place, SplitJob
from pipeline.data.streams.writing.split import split
from tests.tables.repair_world import World


@dataclass
class BronzeRows:
    """Bronze's rows above `low`, split here; `after_split` runs between the reading and the commit."""

    world: World
    after_split: Callable[[], object] = bool
    low: int = 0
    high: int = 2**40

    def split(self, job: SplitJob) -> list[Any]:
        rows = DeltaTable(self.world.paths.bronze).to_pyarrow_table(columns=list(READ))
        done = list(
            split(
                iter(
                    rows.filter((pc.field("seq") > self.low) & (pc.field("seq") <= self.high))
                    .combine_chunks()
                    .to_batches()
                ),
                job,
            )
        )
        self.after_split()
        columns = [(each.column("report")[0].as_py(), each.column("rejects")[0].as_py()) for each in done]
        return [SimpleNamespace(report=report, rejects=rejects) for report, rejects in columns]

    def places(self, key: str, above: int) -> list[Place]:
        raise AssertionError
