"""Drivers in a Spark session that other code made, as on Databricks: rows land, and the session stays as it was."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pipeline.lake.storage.mounts import RUNTIME
from pipeline.platforms.local.jars import spark_jars, store_jars
from tests.checkout import ROOT
from tests.postgres import postgres_server
from tests.storage.served import served

EVENTS = 400
DELTA = [jar for jar in spark_jars() if jar.name.startswith("delta-")]
COMMANDS = (("ingest", "run", "--once"), ("groups", "run", "a", "--once"), ("verify", "--complete", "--json"))


def turnout(*words: str, **environ: str) -> None:
    command = [sys.executable, "-m", "pipeline", *words]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, env={**os.environ, **environ}, capture_output=True)


def run_job(
    place: str, master: str, environ: Mapping[str, str] = MappingProxyType({}), jars: Sequence[Path] = DELTA
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Send events, and run the drivers as a job of a platform; return what verify and the job found, and the log."""
    turnout("simulate", "--events", str(EVENTS), "--games", "3", "--seed", "7", "--env-dir", place, **environ)
    words = [word for command in COMMANDS for word in (*command, "--env-dir", place, "--")]
    command = [sys.executable, "-m", "tests.processes.session_of_others", master, ",".join(map(str, jars)), *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, RUNTIME: "19.0", **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    proof, found = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    return proof, found, done.stderr


def require_exact(proof: dict[str, Any], found: dict[str, Any]) -> None:
    """Every row of bronze is in a game's table, and the session is as it was."""
    assert (proof["ok"], proof["complete"], proof["bronze_rows"]) == (True, True, EVENTS), proof
    assert proof["landed"] > EVENTS * 0.9
    assert (found["lives"], found["is_same"], found["other_runs"]) == (True, True, True)
    assert found["before"] == found["after"]
    assert found["class_path"] == "", "ours are not there"


@pytest.mark.timeout(120)
def test_drivers_work_in_a_session_that_other_code_made(tmp_path: Path) -> None:
    """Without our jars and settings, under another master, rows land exactly once; nothing is stopped or left over."""
    proof, found, log = run_job(str(tmp_path / "env"), "local[1]")
    require_exact(proof, found)
    assert len(re.findall(r"lacks spark\.scheduler\.mode=FAIR \(passes wait", log)) == 2, "each driver says it once"
    assert "lacks spark.scheduler.allocation.file" in log
    assert "which is lost with this cluster" in log
    assert log.count("this is not the main thread") == 1, "the group's driver ran in another"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_executors_of_a_cluster_need_nothing_from_the_driver(tmp_path: Path) -> None:
    """Executors that are processes of their own have our code as their platform put it there: nothing is sent."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = {"SPARK_HOME": str(Path(spec.origin).parent), "SPARK_SCALA_VERSION": "2.13"}
    require_exact(*run_job(str(tmp_path / "env"), "local-cluster[1,1,1024]", home)[:2])


@pytest.mark.long
@pytest.mark.timeout(300)
def test_drivers_do_without_private_classes(tmp_path: Path) -> None:
    """Another version of Spark may have moved them: rows land, and events of queries come by Spark's public class."""
    proof, found, log = run_job(str(tmp_path / "env"), "local[1]", {"WITHOUT_PRIVATE_CLASSES": "yes"})
    require_exact(proof, found)
    assert log.count("using its public class for events of queries") == 2, "each driver says it once"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_platforms_session_reads_a_bucket_with_our_credentials(tmp_path: Path) -> None:
    """Where the platform has stock Hadoop and no credentials of its own, the variables of the driver serve.

    Paths without a scheme are elsewhere there, as on Databricks; a group's checkpoint is on its driver's disk.
    """
    with served(tmp_path / "objects") as url, postgres_server() as store:
        variables = {
            "TURNOUT_STORE__URL": store.url(),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "DEFAULT_FS": "gs://elsewhere/",
        }
        require_exact(*run_job(url, "local[1]", variables, [*DELTA, *store_jars("s3")])[:2])
    (query,) = (tmp_path / "state").glob("turnout/*/checkpoints/demux/a/query")
    assert (query / "offsets").is_dir()
