"""The Spark stream of docs/readers.md keeps copies of a game's table and of its silver table, each row once."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.storage.location import Location
from tests.tables.readers_world import followed, program
from tests.tables.silver_world import SilverWorld


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_spark_stream_has_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """A stream goes on over merges and columns, and begins another copy where rows were replaced or the log is cut."""
    follow_table = program("spark")["follow"]
    copies: dict[str, Path] = {}

    def follow(table: Location) -> tuple[list[dict[str, Any]], bool]:
        before = copies.get(table.name)
        copies[table.name] = follow_table(spark, str(table), tmp_path / table.name)
        rows = spark.read.format("delta").load(str(copies[table.name])).toArrow().to_pylist()
        return rows, copies[table.name] != before

    followed(SilverWorld(tmp_path / "world"), follow)
