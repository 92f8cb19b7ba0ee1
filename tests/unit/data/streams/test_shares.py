"""Several tasks may read the same files of a pass: each splits the games of one range of keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.streams.bronze_files import Piece
from pipeline.data.streams.writing.job import SplitJob
from pipeline.data.streams.writing.rows import EVERY_SEQ, FileRows, spans_of
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located

GAMES = 120
ROWS = 6_000


@given(keys=st.lists(st.text(max_size=4), unique=True), shares=st.integers(1, 9), other=st.text(max_size=4))
def test_each_key_is_in_one_range(keys: list[str], shares: int, other: str) -> None:
    """Law L4: whatever keys rows have, also of games that are not the group's, one task gets them."""
    spans = spans_of(sorted(keys), shares if keys else 1)
    for key in {*keys, other, "", "__malformed__"}:
        assert sum((low is None or key >= low) and (high is None or key < high) for low, high in spans) == 1


@dataclass
class Spark:
    """Runs each task of a job in turn, and counts them."""

    tasks: int = 0

    def range(self, _first: int, last: int, _step: int, tasks: int) -> Any:
        assert last == tasks
        self.tasks += tasks
        return self

    def mapInArrow(self, body: Any, _schema: Any) -> Any:  # noqa: N802 - Spark's name
        batches = [pa.record_batch({"id": [number]}) for number in range(self.tasks)]
        return SimpleNamespace(collect=lambda: [each for batch in batches for each in body(iter([batch]))])


def count(batches: Iterator[pa.RecordBatch], _job: SplitJob) -> Iterator[Mapping[str, int]]:
    """Return a task's rows by game."""
    keys = [key for batch in batches for key in batch.column("game_key").to_pylist()]
    yield dict(zip(*(part.tolist() for part in np.unique(np.array(keys, object), return_counts=True)), strict=True))


@pytest.mark.parametrize(
    ("games", "rows", "cores", "tasks"),
    [(GAMES, ROWS, 1, 1), (GAMES, ROWS, 2, 2), (GAMES, ROWS, 8, 2), (GAMES, 1_000, 8, 1), (30, ROWS, 8, 1)],
)
def test_a_pass_uses_the_cores_where_it_pays(tmp_path: Path, games: int, rows: int, cores: int, tasks: int) -> None:
    """Law L2: all rows of a game go to one task; few rows or few games are not worth another one."""
    keys = [f"game_{number % games:03}" for number in range(rows - 1)] + ["_"]
    table = pa.table(
        {
            field.name: pa.array(keys) if field.name == "game_key" else pa.nulls(rows, field.type)
            for field in BRONZE
            if field.name != "seq"
        }
        | {"seq": pa.array(np.ones(rows, np.int64))}
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    spark: Any = Spark()
    part = [[Piece(str(tmp_path / "rows.parquet"))]]
    cursors = {f"game_{number:03}": 0 for number in range(games)}
    job = SplitJob(cursors, SchemaSet(0, {}, {}), located(tmp_path), None)
    found = FileRows(spark, part, *EVERY_SEQ, count, rows, with_others=True, cores=cores).split(job)  # type: ignore[arg-type]
    assert spark.tasks == tasks
    assert sum(sum(each.values()) for each in found) == rows
    assert len({key for each in found for key in each}) == sum(map(len, found)) == games + 1
