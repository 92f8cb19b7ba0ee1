"""`turnout metrics serve` as a process: a real Prometheus scrapes it, the shipped rules judge its series, it ends."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.demo.server_process import free_ports
from pipeline.health.alerting import files
from tests.unit.telemetry.bridge_world import GROUP, BridgeWorld, until


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run the command on a free port, and yield its address and process."""
    command = [sys.executable, "-m", "pipeline", "metrics", "serve", "--env-dir", str(folder), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://(\S+)/metrics", process.stdout.readline())
            assert found is not None
            yield found[1], process
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def prometheus(folder: Path, targets: Path) -> Iterator[str]:
    """Run a Prometheus with turnout's configuration and rules, and yield its address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.fail("prometheus is missing, so nothing scrapes. Install the package prometheus.")
    config, (port,) = folder / "prometheus.yml", free_ports(1)
    config.write_text(files.prometheus_config(targets, files.RULES_FILE, 1), "utf-8")
    command = [
        program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def query(server: str, expr: str) -> list[Mapping[str, Any]]:
    try:
        with urllib.request.urlopen(f"{server}/api/v1/query?query={urllib.parse.quote(expr)}", timeout=5) as answer:
            found: list[Mapping[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except OSError:  # it has not begun to listen
        return []


def test_a_prometheus_has_the_fleet_and_its_rules_judge_it(tmp_path: Path) -> None:
    """Prometheus finds the bridge by its target file; of a failed stream TurnoutStreamDown waits to fire, none other.

    The bridge is no group: it never counts as one that is down. SIGTERM ends it in order, and takes it off the list.
    """
    world = BridgeWorld(tmp_path / "env")
    targets = world.paths.targets
    for each in targets.glob("*.json"):  # drivers of a job cluster list themselves on machines of their own
        each.unlink()
    (tmp_path / "prometheus").mkdir()
    with ExitStack() as stack:
        address, process = stack.enter_context(serving(world.paths.root))
        server = stack.enter_context(prometheus(tmp_path / "prometheus", targets))
        stack.callback(world.close)

        def alerts() -> dict[str, str]:
            world.beat("FAILED")
            found = query(server, "ALERTS")
            return {each["metric"]["alertname"]: each["metric"].get("game", "") for each in found}

        world.work()
        until(lambda: "TurnoutStreamDown" in alerts(), "the rules see no failed stream")
        rows = 'turnout_stream_rows_total{game="go",result="ok"}'
        until(lambda: [each["value"][1] for each in query(server, rows)] == ["7"], "the rows are never counted")
        assert query(server, "up") != []
        assert {each["metric"]["kind"] for each in query(server, "up")} == {"bridge"}
        assert not alerts().keys() & {"TurnoutGroupDown", "TurnoutMetricsStale", "TurnoutIngestStalled"}
        (owner,) = query(server, "count by (cluster_group) (turnout_stream_info)")
        assert owner["metric"]["cluster_group"] == GROUP
        target = world.paths.target("bridge", "main")
        assert json.loads(target.read_text())[0] == {"targets": [address], "labels": {"kind": "bridge"}}
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        assert not target.exists()
