"""A JVM that dies within a pass, as of too little memory: a real one, killed by a task of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.data.streams.active_games import read_leftover

_DRIVER = """
import os, pathlib, signal, sys
from pyspark.sql import SparkSession
from pipeline.data.streams.active_games import ActiveGames

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())

def kill(rows):
    os.kill(jvm, signal.SIGKILL)
    yield from rows

with ActiveGames(pathlib.Path(sys.argv[1]), "shared").track(["calm", "killer"]):
    rows = spark.range(3)
    rows.rdd.mapPartitions(kill).count() if sys.argv[2] == "rdd" else rows.mapInPandas(kill, "id long").collect()
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", ["frame", pytest.param("rdd", marks=pytest.mark.long)])
@pytest.mark.proves("G94")
def test_a_dead_jvm_is_a_dead_driver(tmp_path: Path, way: str) -> None:
    """Where Spark itself dies in a pass, the games in hand stay named, although the driver's Python goes on."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(tmp_path), way], env=environ, capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 1, done.stderr.decode()
    assert read_leftover(tmp_path) == ["calm", "killer"]
