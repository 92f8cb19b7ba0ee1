"""Guards what the demo runs beside turnout: Prometheus, Alertmanager and a receiver, where there is room for them."""

import json
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

from pipeline.demo import monitoring
from pipeline.platforms.local.child_processes import Children
from pipeline.settings.alerts import AlertSettings
from pipeline.settings.tree import Paths, Settings, load


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


def test_what_is_not_installed_is_said_and_not_started(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo goes on without them, and the dashboard's alerts are unknown, not none."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    found = monitoring.plan(Settings(), paths)
    assert "not installed" in found.lines["prometheus"]
    assert found.environ == {}


def test_an_alertmanager_without_its_program_leaves_prometheus(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus alone still answers which alerts fire."""
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/prometheus" if name == "prometheus" else None)
    found = monitoring.plan(Settings(), paths)
    assert list(found.environ) == ["TURNOUT_ALERTS__PROMETHEUS_URL"]
    assert "alertmanager is not installed" in found.lines["alerts"]


def test_a_second_demo_has_ports_of_its_own(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody else has a port, another one is printed, written and used."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        in_use = taken.getsockname()[1]
        monkeypatch.setattr(monitoring, "_PORTS", dict.fromkeys(monitoring._PORTS, in_use))
        found = monitoring.plan(Settings(), paths)
    assert len({*found.ports.values(), in_use}) >= 2
    assert in_use not in found.ports.values()
    assert found.settings.alerts.alertmanager_url.endswith(f":{found.ports['alertmanager']}")


def test_servers_of_the_settings_are_used_as_they_are(paths: Paths) -> None:
    """Somebody's own Alertmanager is neither replaced nor started."""
    found = monitoring.plan(Settings(alerts=AlertSettings("http://127.0.0.1:1")), paths)
    assert (found.prometheus, found.alertmanager) == (None, None)
    assert found.environ == {"TURNOUT_ALERTS__ALERTMANAGER_URL": "http://127.0.0.1:1"}


@pytest.mark.long
def test_the_demos_alerts_arrive_in_a_file(paths: Paths) -> None:
    """The watchdog goes the whole way with the files of a demo, unscaled."""
    settings, _ = load(paths.root, {})
    found = monitoring.plan(settings, paths)
    received = paths.root / "prometheus" / "received.jsonl"
    with Children(paths.logs, found.environ) as children:
        found.start(children, paths)
        until, pause = time.monotonic() + 60, threading.Event()
        while not received.exists() or not received.read_text("utf-8").endswith("\n"):
            assert time.monotonic() < until, "no alert has arrived"
            pause.wait(0.2)  # a file says nothing when it grows
    first = json.loads(received.read_text("utf-8").splitlines()[0])
    assert (first["path"], first["status"]) == ("/watchdog", "firing")
