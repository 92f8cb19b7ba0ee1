"""A job of a platform, as a process: `python -m tests.processes.session_of_others MASTER JARS COMMAND... [-- ...]`.

Other code makes a Spark session, with Delta and without anything of ours, and runs a query of its own. Then it calls
the entry point of turnout once for each command, as a wheel task does, and prints what it finds afterwards. With the
variable WITHOUT_PRIVATE_CLASSES no private class of Spark is found; DEFAULT_FS is where paths without a scheme are.
"""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from pyspark.sql import SparkSession

from listeners import listener
from pipeline.base.terminal import say_json
from pipeline.cli.main import main as entry_point
from pipeline.data.streams.writing import spark_writer
from tests.checkout import ROOT

_SHUFFLE = "spark.sql.shuffle.partitions"
_ZONE = "spark.sql.session.timeZone"


def main(master: str, jars: str, *words: str) -> None:
    """Run the commands, and print as JSON what became of the session."""
    root = str(ROOT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(master)
        .appName("of others")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.executorEnv.PYTHONPATH", root)  # where a cluster has libraries on all of its machines
        .config("spark.executor.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.hadoop.fs.defaultFS", os.environ.get("DEFAULT_FS", "file:///"))
        .config(_SHUFFLE, "7")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    place = tempfile.TemporaryDirectory(prefix="of-others-")
    other = (
        spark.readStream.format("rate")
        .load()
        .writeStream.format("noop")
        .queryName("of others")
        .option("checkpointLocation", f"file:{place.name}")
        .start()
    )
    before = _state(spark)
    if os.environ.get("WITHOUT_PRIVATE_CLASSES"):
        for module in (listener, spark_writer):
            vars(module)["java_class"] = lambda _jvm, *_names: None
    for is_end, command in groupby(words, lambda word: word == "--"):
        if not is_end:
            sys.argv = ["turnout", *command]
            if sys.argv[1] == "groups":
                with ThreadPoolExecutor(1) as pool:  # which thread a platform takes is not documented
                    pool.submit(entry_point).result()
            else:
                entry_point()
    found = {
        "lives": spark.range(10).count() == 10,
        "is_same": SparkSession.getActiveSession() is spark,
        "other_runs": other.isActive,
        "before": before,
        "after": _state(spark),
        "class_path": spark.conf.get("spark.driver.extraClassPath", ""),
    }
    say_json(found)
    other.stop()
    place.cleanup()
    spark.stop()


def _state(spark: SparkSession) -> dict[str, Any]:
    """Return settings and listeners of a session, which a guest may not leave changed."""
    manager: Any = spark.streams._jsqm
    return {
        "shuffle": spark.conf.get(_SHUFFLE),
        "zone": spark.conf.getAll.get(_ZONE),
        "confs": len(spark.conf.getAll),
        "listeners": len(manager.listListeners()),
        "pool": spark.sparkContext.getLocalProperty("spark.scheduler.pool"),
        "python": os.environ["PYSPARK_PYTHON"],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
