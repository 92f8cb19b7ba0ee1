"""The built wheel in empty environments: a laptop's, a Databricks App's and a Databricks runtime's.

Packages come from where this machine's pip is configured to get them, jars from the user's cache or the network.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.base.names import game_key
from pipeline.platforms.databricks.deploy.build import AppSource, build_app_source
from tests.browser.seed import fleet_of_forty, seed
from tests.browser.served import free_port, started
from tests.checkout import ROOT
from tests.packaging.runtime import KEPT, REPLACED, RUNTIME
from tests.raw_client import request, tab

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]

HOST = ("X-Forwarded-Host", "turnout-1234.aws.databricksapps.com")
ANN = ("X-Forwarded-Email", "ann@example.com")
PAGES = ("", "groups", "games", "schemas", "repairs", "access", "operations", "audit")
ABSENT = {"confluent_kafka", "delta", "grpc_tools", "py4j", "pyspark"}
MOST_START_SECONDS = 10.0
MOST_BYTES = 1 << 30


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> AppSource:
    return build_app_source(ROOT, tmp_path_factory.mktemp("built") / "app-source")


def run(command: list[str], cwd: Path, seconds: float = 900) -> str:
    """Run a command as a shell outside the checkout does; return what it prints, or fail with it."""
    hidden = ("PYTHONPATH", "TURNOUT_HOME", "TURNOUT_ENV_DIR", "VIRTUAL_ENV")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def programs(source: AppSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel as on a new laptop; return the folder of its programs."""
    folder = tmp_path_factory.mktemp("laptop")
    run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    run([str(folder / "venv" / "bin" / "pip"), "install", "-q", f"{source.wheel.path}[local]"], folder)
    return folder / "venv" / "bin"


def demo(programs: Path, cwd: Path, *options: str) -> dict[str, Any]:
    """Run a bounded demo in a folder; return its proof."""
    return dict(
        json.loads(run([str(programs / "turnout"), "demo", "--once", "--json", *options], cwd).splitlines()[-1])
    )


def test_a_laptop_needs_the_wheel_alone(programs: Path, source: AppSource, tmp_path: Path) -> None:
    """After `pip install 'turnout[local]'` a demo lands, splits and proves every event, without a checkout."""
    assert run([str(programs / "turnout"), "--version"], tmp_path) == f"turnout {source.wheel.version}\n"
    balance = demo(programs, tmp_path, "--games", "4", "--events", "1000")
    assert (balance["ok"], balance["events"], balance["lost"], balance["duplicated"]) == (True, 1_000, 0, 0)


def test_the_libraries_of_a_runtime_are_enough(programs: Path, tmp_path: Path) -> None:
    """With a runtime's pyarrow, numpy and protobuf, and no compiler of .proto files, each value arrives unchanged."""
    theirs = [
        f"{name}=={RUNTIME[name]}" for name in ("googleapis-common-protos", "numpy", "pandas", "protobuf", "pyarrow")
    ]
    run([str(programs / "pip"), "uninstall", "-q", "-y", "grpcio-tools"], tmp_path)
    run([str(programs / "pip"), "install", "-q", *theirs], tmp_path)
    wanted = ["--games", "6", "--events", "3000", "--versions", "6", "--formats", "protobuf,avro"]
    balance = demo(programs, tmp_path, *wanted)
    assert (balance["ok"], balance["value_mismatches"], balance["value_rows"]) == (True, 0, balance["landed"])


def test_an_app_needs_its_folder_alone(source: AppSource, tmp_path: Path) -> None:
    """Every page is drawn with the app's own requirements, in time and memory that an app of the smallest size has."""
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")], tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    run([python, "-m", "pip", "install", "-q", "-r", "requirements.txt"], source.folder)
    folder, port = tmp_path / "environment", free_port()
    games = fleet_of_forty()
    seed(folder, games, now=time.time(), history=False)
    start = yaml.safe_load((source.folder / "app.yaml").read_text("utf-8"))
    environ = {
        "DATABRICKS_APP_NAME": "turnout", "DATABRICKS_APP_PORT": str(port), "DATABRICKS_CLIENT_ID": "c0ffee",
        "DATABRICKS_HOST": "https://example.cloud.databricks.com", "TURNOUT_ENV_DIR": str(folder), "PYTHONPATH": "",
        **{each["name"]: str(tmp_path / "state") for each in start["env"] if "value" in each},
    }  # fmt: skip
    origin, began = f"http://127.0.0.1:{port}", time.monotonic()
    with started(start["command"][1:], port, tmp_path / "app.log", source.folder, environ, python) as app:
        assert time.monotonic() - began < MOST_START_SECONDS
        assert request(origin, "/", [HOST]).status == 401
        assert request(origin, "/", [HOST, ANN]).status == 200
        assert request(origin, "/runbooks/turnoutgroupdown", [HOST]).status == 200
        assert request(origin, "/runbooks/turnoutgroupdown", [HOST, ANN]).status == 303
        with tab(origin, f"https://{HOST[1]}", [HOST, ANN]) as draw:
            for page in PAGES:
                drawn = draw(page=page)
                assert (page, drawn.exceptions) == (page, ())
                assert "ann@example.com" in drawn.text
            drawn = draw(page="game", query=f"game={game_key(games[0].name)}")
            assert drawn.exceptions == ()
            assert games[0].name in drawn.text
        status = Path(f"/proc/{app.pid}/status").read_text()
        (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        assert int(kilobytes) * 1_024 < MOST_BYTES
        opened = Path(f"/proc/{app.pid}/maps").read_text()
    assert {name for name in ABSENT if f"/{name}/" in opened} == set()
    assert "Traceback" not in (tmp_path / "app.log").read_text()


def test_on_a_runtime_pip_leaves_spark_alone(source: AppSource, tmp_path: Path) -> None:
    """A job's cluster keeps the PySpark, Delta, pyarrow, pandas, numpy and protobuf that belong together."""
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], tmp_path)
    (packages,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    for name, version in RUNTIME.items():
        folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "RECORD").write_text("")
    command = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv" / "bin" / "python"), "install", "-q"]
    run([*command, "--dry-run", "--report", "report.json", str(source.wheel.path)], tmp_path)
    planned = json.loads((tmp_path / "report.json").read_text("utf-8"))["install"]
    names = {each["metadata"]["name"].lower().replace("_", "-") for each in planned}
    assert "duckdb" in names
    assert names & KEPT == set()
    assert names & RUNTIME.keys() <= REPLACED
