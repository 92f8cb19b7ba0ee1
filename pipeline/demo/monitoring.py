"""Prometheus, Alertmanager and a receiver of alerts of a live demo, where they are installed and their ports free."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipeline.control.processes.child_processes import Children
from pipeline.demo.dashboard import HOST, require_free_port
from pipeline.errors import Refused
from pipeline.health.alerting.files import write
from pipeline.settings import Paths, Settings

_PROMETHEUS_PORT: Final = 9090
_ALERTMANAGER_PORT: Final = 9093
_RECEIVER_PORT: Final = 9095
_SCRAPE_SECONDS: Final = 5.0
_PROMETHEUS: Final = f"http://{HOST}:{_PROMETHEUS_PORT}"
_ALERTMANAGER: Final = f"http://{HOST}:{_ALERTMANAGER_PORT}"
_RECEIVER: Final = f"http://{HOST}:{_RECEIVER_PORT}"


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The programs that can be started, and a line for people about each part."""

    settings: Settings  # of the demo's children, with the addresses
    prometheus: str | None  # its program
    alertmanager: str | None
    lines: Mapping[str, str]  # name → where it is, or why it is not there

    @property
    def environ(self) -> dict[str, str]:
        """The variables that give the demo's children the addresses."""
        alerts = self.settings.alerts
        both = {"ALERTMANAGER_URL": alerts.alertmanager_url, "PROMETHEUS_URL": alerts.prometheus_url}
        return {f"TURNOUT_ALERTS__{name}": url for name, url in both.items() if url}

    def start(self, children: Children, paths: Paths) -> None:
        """Write the files and start what there is.

        Raises:
            Refused: the objectives are wrong.
        """
        if self.prometheus is None:
            return
        _rules, config, alertmanager = write(self.settings, paths, _SCRAPE_SECONDS)
        if self.alertmanager is not None:
            received = alertmanager.with_name("received.jsonl")
            children.start(
                "webhook", [sys.executable, "-m", "pipeline.demo.webhook", str(_RECEIVER_PORT), str(received)]
            )
            children.start("alertmanager", _alertmanager(self.alertmanager, alertmanager))
        children.start("prometheus", _prometheus(self.prometheus, config))


def plan(settings: Settings, paths: Paths) -> Monitoring:
    """Return what can be started; addresses that the settings have are kept, and nothing is started for them."""
    wanted = settings.alerts
    if wanted.alertmanager_url or wanted.prometheus_url:
        url = wanted.alertmanager_url or wanted.prometheus_url
        return Monitoring(settings, None, None, {"alerts": f"{url} (from the settings)"})
    prometheus, why_no_prometheus = _program("prometheus", "prometheus", _PROMETHEUS_PORT)
    # Debian calls its program by the package's name, others as its makers do.
    alertmanager, why = _program("prometheus-alertmanager", "alertmanager", _ALERTMANAGER_PORT)
    if alertmanager is not None and (taken := _taken(_RECEIVER_PORT)):
        alertmanager, why = None, taken
    if prometheus is None:
        return Monitoring(
            settings, None, None, {"prometheus": f"{why_no_prometheus}; its targets are in {paths.targets}"}
        )
    found = {"prometheus_url": _PROMETHEUS}
    lines = {"prometheus": f"{_PROMETHEUS}/classic/alerts", "alerts": why}
    if alertmanager is not None:
        hooks = {f"{name}_webhook": f"{_RECEIVER}/{name}" for name in ("page", "ticket", "watchdog")}
        found |= {"alertmanager_url": _ALERTMANAGER, **hooks}
        lines["alerts"] = (
            f"arrive in {paths.root / 'prometheus' / 'received.jsonl'} and in {paths.logs / 'webhook.log'}"
        )
    return Monitoring(replace(settings, alerts=replace(wanted, **found)), prometheus, alertmanager, lines)


def _program(package: str, name: str, port: int) -> tuple[str | None, str]:
    program = shutil.which(package) or shutil.which(name)
    if program is None:
        return None, f"{name} is not installed (apt-get install {package})"
    taken = _taken(port)
    return (None, taken) if taken else (program, "")


def _taken(port: int) -> str:
    try:
        require_free_port(port, "")
    except Refused:
        return f"not started: port {port} is in use"
    return ""


def _prometheus(program: str, config: Path) -> list[str]:
    return [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={config.with_name('data')}",
        f"--web.listen-address={HOST}:{_PROMETHEUS_PORT}",
    ]


def _alertmanager(program: str, config: Path) -> list[str]:
    return [
        program,
        f"--config.file={config}",
        f"--storage.path={config.with_name('alertmanager')}",
        f"--web.listen-address={HOST}:{_ALERTMANAGER_PORT}",
        "--cluster.listen-address=",  # one of a kind: it looks for no others
    ]
