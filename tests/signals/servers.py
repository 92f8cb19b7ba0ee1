"""A real Prometheus and a real Alertmanager with turnout's own files, an hour of which lasts six seconds."""

import contextlib
import json
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.demo.server_process import free_ports
from pipeline.demo.webhook import Receiver
from pipeline.health.alerting import files
from pipeline.settings.alerts import AlertSettings
from pipeline.settings.tree import Paths, Settings
from tests.signals.scaling import FACTOR, HOUR_SECONDS, scaled

PATIENCE_SECONDS = 10.0 * HOUR_SECONDS


def program(package: str, name: str) -> str:
    found = shutil.which(package) or shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is missing, so alerts cannot be followed. Install the package {package}.")
    return found


def is_about(alert: Mapping[str, Any], game: str) -> bool:
    return bool(alert["labels"].get("game", game) == game)


class Inbox:
    """The alerts that arrived at the webhooks, in order."""

    def __init__(self) -> None:
        self._alerts: list[tuple[str, Mapping[str, Any]]] = []
        self._changed = threading.Condition()

    def receive(self, path: str, alert: Mapping[str, Any]) -> None:
        with self._changed:
            self._alerts.append((path, alert))
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._alerts.clear()

    def names(self, status: str, game: str) -> set[str]:
        """Return the names of alerts that arrived in this status, without those about other games."""
        with self._changed:
            return {
                alert["labels"]["alertname"]
                for path, alert in self._alerts
                if alert["status"] == status and path != "/watchdog" and is_about(alert, game)
            }

    def wait(self, path: str, name: str, status: str) -> Mapping[str, Any]:
        """Return the alert once it has arrived there in this status."""
        alert = self.wait_or_none(path, name, status, PATIENCE_SECONDS)
        with self._changed:
            got = [(to, each["labels"]["alertname"], each["status"]) for to, each in self._alerts if to != "/watchdog"]
        assert alert is not None, f"{name} did not arrive as {status}; arrived: {got[-20:]}"
        return alert

    def wait_or_none(self, path: str, name: str, status: str, seconds: float) -> Mapping[str, Any] | None:
        """Return the alert once it has arrived, or None after this time."""

        def found() -> Mapping[str, Any] | None:
            return next(
                (
                    alert
                    for to, alert in self._alerts
                    if (to, alert["labels"]["alertname"], alert["status"]) == (path, name, status)
                ),
                None,
            )

        with self._changed:
            return self._changed.wait_for(found, seconds)


class Servers:
    """Both servers, what they write, and the inbox of their webhooks."""

    def __init__(self, folder: Path, inbox: Inbox, prometheus: str, alertmanager: str) -> None:
        self.folder, self.inbox, self.prometheus, self.alertmanager = folder, inbox, prometheus, alertmanager

    def firing(self, game: str) -> set[str]:
        """Return the names of the alerts that fire in Prometheus now, without those about other games."""
        found = _json(f"{self.prometheus}/api/v1/alerts")["data"]["alerts"]
        return {each["labels"]["alertname"] for each in found if each["state"] == "firing" and is_about(each, game)}

    def scraped(self) -> int:
        """Return how many processes Prometheus reads now."""
        targets = _json(f"{self.prometheus}/api/v1/targets")["data"]["activeTargets"]
        return sum(each["health"] == "up" for each in targets)

    def missed_scrapes(self) -> int:
        """Return how many scrapes have failed so far: a stall of this machine of 0.3 s is one of 3 minutes here."""
        found = _json(f"{self.prometheus}/api/v1/query?query=sum(count_over_time(up[1h])-sum_over_time(up[1h]))")
        return sum(int(each["value"][1]) for each in found["data"]["result"])

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < until, what
            pause.wait(0.05)  # a server is asked again; it does not say when it changes


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Servers]:
    """Write turnout's files, scale them, and run both servers with them."""
    inbox = Inbox()
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver(0, inbox.receive))
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        stack.callback(thread.join)
        stack.callback(receiver.shutdown)
        _, one, two = free_ports(None, 2)
        prometheus, alertmanager = f"http://127.0.0.1:{one}", f"http://127.0.0.1:{two}"
        hooks = {f"{name}_webhook": f"{receiver.url}/{name}" for name in ("page", "ticket", "watchdog")}
        settings = Settings(alerts=AlertSettings(alertmanager_url=alertmanager, **hooks))
        rules, config, routes = files.write(settings, Paths(folder), 30)
        for file in (rules, config, routes):
            file.write_text(scaled(file.read_text("utf-8")), "utf-8")
        window = 300_000 // FACTOR
        stack.enter_context(
            _process(
                folder / "alertmanager.log",
                program("prometheus-alertmanager", "alertmanager"),
                f"--config.file={routes}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address=127.0.0.1:{two}",
                "--cluster.listen-address=",
            )
        )
        stack.enter_context(
            _process(
                folder / "prometheus.log",
                program("prometheus", "prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{one}",
                f"--query.lookback-delta={window}ms",  # of 5 minutes
                "--rules.alert.resend-delay=1s",
                "--rules.alert.for-grace-period=10ms",
            )
        )
        servers = Servers(folder, inbox, prometheus, alertmanager)
        for name, address in (("alertmanager", alertmanager), ("prometheus", prometheus)):
            servers.wait_for(partial(_is_ready, address), f"{name} is not ready; see {folder / name}.log")
        yield servers


@contextlib.contextmanager
def _process(log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())
