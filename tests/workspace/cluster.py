"""A cluster's Python as a wheel task finds it: `python -m tests.workspace.cluster COMMAND...`.

Other code has made a Spark session, with Delta, with what reads buckets, and with the cluster's `spark_conf` (JSON in
the variable STANDIN_SPARK_CONF); nothing else of ours is in it. Then the entry point is called as by the platform.
Commands that need no Spark get none, to save this machine's memory.
"""

import json
import os
import sys

from pipeline.cli.main import main as entry_point
from pipeline.platforms.local.jars import spark_jars, store_jars
from tests.checkout import ROOT

_WITH_SPARK = frozenset({"ingest", "groups"})


def main() -> None:
    """Make the session, call the entry point, and stop the session after it, as a cluster ends after its run."""
    if sys.argv[1] not in _WITH_SPARK:
        sys.argv[0] = "turnout"
        entry_point()
        return
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = [str(each) for each in (*spark_jars(), *store_jars("s3")) if "bare-naked" not in str(each)]
    conf = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        **{name: value for name, value in json.loads(os.environ.get("STANDIN_SPARK_CONF", "{}")).items()
           if name != "spark.master"},
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2]").appName("of the platform")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        sys.argv[0] = "turnout"
        entry_point()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
