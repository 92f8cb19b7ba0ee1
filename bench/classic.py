"""The classic layout: one Delta-to-Delta streaming query per game, each with its own checkpoint.

The baseline of `bench.compare`. Nothing is decoded: rows of one game are filtered out of bronze and appended to
the game's table as they are.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from listeners.callbacks import start_callbacks
from pipeline.platforms.local.jars import spark_jars
from pipeline.settings.tree import Paths, Settings

COLUMNS: Final = ("seq", "pos", "schema_id", "event_time", "event_id", "source_time", "raw")
STOCK: Final = {  # what Delta cannot run without, and loopback addresses
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LOOK_SECONDS: Final = 0.5


def stock_session(settings: Settings, home: Path) -> SparkSession:
    """Start a session as it comes: Spark's and Delta's defaults, Hadoop's own local file system, the JVM's own GC."""
    builder = (
        SparkSession.builder.master(settings.spark.master)
        .appName("bench-classic-stock")
        .config("spark.driver.memory", settings.spark.driver_memory)
        .config("spark.driver.extraClassPath", ":".join(str(jar) for jar in spark_jars()))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
    )
    for key, value in STOCK.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    start_callbacks(spark.sparkContext._gateway)  # noqa: SLF001 - as in turnout's own sessions
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(
    spark: SparkSession, settings: Settings, paths: Paths, home: Path, keys: Sequence[str], stop: threading.Event
) -> None:
    """Run one query per game until told to stop; a later run goes on from the checkpoints.

    Raises:
        StreamingQueryException: a query failed.
    """
    queries = [start(spark, settings, Path(paths.bronze), home, key) for key in keys]
    try:
        while not stop.wait(_LOOK_SECONDS):
            for query in queries:
                if not query.isActive and (error := query.exception()) is not None:
                    raise error
    finally:
        with ThreadPoolExecutor(len(queries)) as pool:  # each waits for its micro-batch
            list(pool.map(lambda query: query.stop(), queries))


def start(spark: SparkSession, settings: Settings, bronze: Path, home: Path, key: str) -> StreamingQuery:
    """Start the query of one game at bronze's newest commit."""
    frame = spark.readStream.format("delta").option("startingVersion", "latest").load(str(bronze))
    return (
        frame.where((F.col("game_key") == key) & F.col("refused").isNull())
        .select(*COLUMNS)
        .writeStream.format("delta")
        .outputMode("append")
        .queryName(f"classic {key}")
        .option("checkpointLocation", str(home / "checkpoints" / key))
        .trigger(processingTime=f"{settings.demux.trigger_seconds} seconds")
        .start(str(home / "tables" / key))
    )
