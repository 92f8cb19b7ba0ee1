"""Spark's own `from_avro` and `from_json` for `bench.decode`, in a plain session, with generated code and one core."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from bench import cpu
from pipeline.data.contracts.columns import type_text
from pipeline.data.contracts.formats.supported import columns
from pipeline.data.contracts.schemas import Schema
from pipeline.platforms.local.fetch import download_with_ivy, fetch
from pipeline.platforms.local.jars import LockedJar

_JAR: Final = LockedJar(
    "4c186cedc03cbe4ee356a94b32232b347ef48611c3209400b3a77e4fe4abff4f", "spark", "spark-avro_2.13-4.2.0.jar"
)
_IVY_FILE: Final = Path(__file__).with_name("ivy.xml")
TIMES: Final = 10  # a job of Spark needs more payloads than a batch, or its start would be measured


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Start a session with the jar, fetched into this folder if it is not there, and stop it after the block.

    Raises:
        Refused: the jar cannot be fetched.
    """
    cache = folder.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    fetch(cache, cache / "linked", [_JAR], partial(download_with_ivy, ivy_file=_IVY_FILE))
    builder = SparkSession.builder.master("local[1]").appName("bench-decode")
    builder = builder.config("spark.driver.extraClassPath", str(cache / "linked" / _JAR.conf / _JAR.file))
    builder = builder.config("spark.driver.memory", "2g").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.sql.warehouse.dir", str(cache / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def from_avro_of(of: Schema) -> Column:
    """Return the payload decoded by Spark's function."""
    return from_avro("payload", of.definition.decode())


def from_json_of(of: Schema) -> Column:
    """Return the payload decoded by Spark's function, into the columns that turnout has."""
    types = ", ".join(f"`{each.name}` {type_text(each.type)}" for each in columns(of))
    return F.from_json(F.col("payload").cast("string"), types.replace("long", "bigint"))


class SparkDecoding:
    """Payloads in Spark's memory, to be decoded or only read."""

    def __init__(self, spark: SparkSession, contents: list[bytes]) -> None:
        """Cache the payloads, repeated."""
        table = pa.table({"payload": pa.array(contents * TIMES, pa.binary())})
        self._rows: DataFrame = cast(Any, spark).createDataFrame(table).repartition(1).cache()
        self._count = int(self._rows.count())
        self._jvm = int(cast(Any, spark.sparkContext)._gateway.proc.pid)  # noqa: SLF001 - Spark does not tell it

    def decode(self, decoded: Column) -> int:
        """Decode every payload into a column that nobody keeps; return how many there are."""
        return self._into_nothing(self._rows.select(decoded.alias("row")))

    def read(self) -> int:
        """Read every payload and decode nothing: what Spark needs besides."""
        return self._into_nothing(self._rows.select(F.length("payload").alias("size")))

    def cpu_seconds(self) -> float:
        """Return what the JVM has used, its compiler and garbage collector included."""
        return cpu.read_trees({"jvm": self._jvm})["jvm"].cpu_seconds

    def _into_nothing(self, rows: DataFrame) -> int:
        rows.write.format("noop").mode("overwrite").save()
        return self._count
