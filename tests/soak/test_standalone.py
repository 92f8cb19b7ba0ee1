"""A cluster group on a real standalone Spark master and worker, both on this machine."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.spark.demo_world import last_line, turnout

_DEPLOY = "org.apache.spark.deploy"
_START_SECONDS = 60.0

pytestmark = pytest.mark.timeout(300)  # four cold JVMs


@contextmanager
def daemon(log: Path, ready: str, *arguments: str) -> Iterator[str]:
    """Run a Spark daemon until the block ends; yields what the first group of `ready` matched in its log."""
    home = Path(pyspark.__file__).parent
    environ = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    command = [str(home / "bin" / "spark-class"), *arguments]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environ)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not (found := re.search(ready, log.read_text("utf-8"))):
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < deadline, log.read_text("utf-8")
            time.sleep(0.1)
        yield found.group(1)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        listen = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        where = r"(spark://127\.0\.0\.1:\d+)"
        address = stack.enter_context(
            daemon(tmp_path / "master.log", f"Starting Spark master at {where}", f"{_DEPLOY}.master.Master", *listen)
        )
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        worker = (f"{_DEPLOY}.worker.Worker", *listen, *size, address)
        stack.enter_context(daemon(tmp_path / "worker.log", f"registered with master {where}", *worker))
        yield address


def test_a_group_runs_on_any_spark_master(master: str, tmp_path: Path) -> None:
    """A group is a driver on any master: with executors of their own, what is in bronze is split exactly once."""
    env = tmp_path / "env"
    at = ("--env-dir", str(env))
    assert turnout("simulate", "--events", "500", "--games", "3", "--hostile", *at).returncode == 0
    assert turnout("ingest", "run", "--once", *at).returncode == 0
    (env / "turnout.toml").write_text(f'[spark]\nmaster = "{master}"\n')
    done = turnout("groups", "run", "main", "--once", *at)
    assert done.returncode == 0, done.stderr
    found = last_line(turnout("verify", "--json", "--complete", *at))
    assert (found["ok"], found["bronze_rows"]) == (True, 500)
    assert list((tmp_path / "work").glob("app-*/0/stderr")), "no executor ran on the worker"
