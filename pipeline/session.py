"""The one place that builds a SparkSession: jars, Delta, and the settings that make small machines fast."""

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pipeline.jars import spark_jars
from pipeline.settings import Paths, Settings

TUNED: Final = {  # reasons and measurements: docs/performance.md
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",  # rows of 25 kB would fill more than an array holds
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.listenerbus.eventqueue.streams.capacity": "50000",
    "spark.locality.wait": "0",
    "spark.scheduler.mode": "FAIR",  # a pass gets the next free core before a catch-up does: streams/pools.xml
    # Small inputs are read by one task, so that a game's rows of several bronze commits go into one file.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.files.maxPartitionBytes": "16m",
    # Without native Hadoop libraries the stock local file system starts a process for each chmod.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
}

_POOLS: Final = Path(__file__).parent / "streams" / "pools.xml"
_JVM: Final = "-XX:+UseSerialGC -XX:-UsePerfData"
_LIGHT_JVM: Final = "-XX:TieredStopAtLevel=1"


def spark_session(settings: Settings, paths: Paths, app_name: str, *, light: bool = False) -> SparkSession:
    """Start the Spark session of this process, or return the one it has.

    The JVM of a `light` session compiles quickly rather than well: it ends soon, or leaves the work to Python.

    Raises:
        Refused: a jar is missing.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers would otherwise use another Python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.spark.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else a machine that cannot resolve its own name fails
    jars = spark_jars()
    class_path = ":".join(str(jar) for jar in jars)
    builder = (
        SparkSession.builder.master(settings.spark.master)
        .appName(app_name)
        .config("spark.driver.memory", settings.spark.driver_memory)
        .config("spark.driver.extraClassPath", class_path)  # the file system class must be on the system class path
        .config("spark.driver.extraJavaOptions", f"{_JVM} {_LIGHT_JVM if light else ''}".strip())
        .config("spark.scheduler.allocation.file", _POOLS.as_uri())
        .config("spark.sql.warehouse.dir", str(paths.root / "warehouse"))
    )
    if settings.spark.master.startswith("local"):
        place = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    else:
        place = {"spark.jars": ",".join(str(jar) for jar in jars), "spark.executor.extraClassPath": class_path}
    for key, value in {**TUNED, **place, **settings.spark.conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
