"""A tenth of the matrix of formats, framings, registries and changes through real tasks and queries of Spark."""

import time
from typing import Any

import pyarrow as pa
import pytest

from pipeline.data.contracts.registries.patience import Patience
from pipeline.data.streams.group import Group
from tests.tables.matrix_cases import CASES
from tests.tables.matrix_consequence import require_consequence
from tests.tables.matrix_world import Matrix, games_of

CHOSEN = ("id confluent", "GUID header folder", "zlib glue", "topic folder", "wrapper or id confluent")
SOME = [
    case
    for number, name in enumerate(CHOSEN)
    for place, case in enumerate(each for each in CASES if each.way.name == name and each.is_of_its_way)
    if place % 11 == 2 * number
]
"""Changes of five ways, each with one profile."""

QUICK = Patience(away=0.01, away_most=0.01, absent=0.01, absences=1, absent_for=0.0)


class SparkMatrix(Matrix):
    """The environment, with records in frames of Spark."""

    def frame(self, batch: pa.RecordBatch) -> Any:
        kinds = "key binary, value binary, topic string, partition int, offset bigint, source_time timestamp, "
        kinds += "headers array<struct<key: string, value: binary>>, source_clock string"
        return self.spark.createDataFrame([tuple(row.values()) for row in batch.to_pylist()], kinds)


@pytest.mark.proves("G190", "G191")
def test_changes_do_what_they_say(world: Any) -> None:
    """Laws L5, L13 and L14: tasks of Spark read what ingest's tasks wrote; games wait for schemas, then all lands."""
    matrix = SparkMatrix(world.paths, world.settings, world.engine, games_of(SOME), world.spark)
    matrix.begin(QUICK, time.time)
    group = Group(
        world.spark, matrix.settings, matrix.paths, matrix.engine, "a", lambda _: None, resolution=matrix.resolution
    )
    group.start(once=True).awaitTermination()
    group.finish()
    matrix.note_waiting(group.streams)
    for registry in matrix.registries.values():
        registry.silent = False
        registry.away.clear()
    while any(stream.waits for stream in group.streams.values()):
        group.finish()
    group.stop()
    matrix.end()
    assert len(matrix.games) > 20
    for game in matrix.games:
        require_consequence(matrix, game)
    balance = matrix.check()
    assert balance.values is not None
    assert (balance.complete, balance.values.mismatches) == (True, 0)
