"""Prometheus, Alertmanager and a receiver of alerts of a live demo, where they are installed."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipeline.base.errors import Refused
from pipeline.demo.server_process import HOST, free_ports
from pipeline.health.alerting.files import write
from pipeline.platforms.local.child_processes import Children
from pipeline.settings.tree import Paths, Settings

_SCRAPE_SECONDS: Final = 5.0
_PORTS: Final = {"prometheus": 9090, "alertmanager": 9093, "receiver": 9095}
"""The ports that people expect; where one is in use, any free one."""


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The programs that can be started, and a line for people about each part."""

    settings: Settings  # of the demo's children, with the addresses
    ports: Mapping[str, int]
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
        """Write the files and start the installed servers.

        Raises:
            Refused: the objectives are wrong.
        """
        if self.prometheus is None:
            return
        _rules, config, alertmanager = write(self.settings, paths, _SCRAPE_SECONDS)
        if self.alertmanager is not None:
            received = alertmanager.with_name("received.jsonl")
            receiver = [sys.executable, "-m", "pipeline.demo.webhook", str(self.ports["receiver"]), str(received)]
            children.start("webhook", receiver)
            children.start("alertmanager", _alertmanager(self.alertmanager, alertmanager, self.ports["alertmanager"]))
        children.start("prometheus", _prometheus(self.prometheus, config, self.ports["prometheus"]))


def plan(settings: Settings, paths: Paths) -> Monitoring:
    """Return what can be started; addresses that the settings have are kept, and nothing is started for them."""
    wanted = settings.alerts
    if wanted.alertmanager_url or wanted.prometheus_url:
        url = wanted.alertmanager_url or wanted.prometheus_url
        return Monitoring(settings, {}, None, None, {"alerts": f"{url} (from the settings)"})
    # Debian calls Alertmanager's program by the package's name, others as its makers do.
    prometheus = shutil.which("prometheus")
    alertmanager = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if prometheus is None:
        line = f"not installed (apt-get install prometheus); its targets are in {paths.targets}"
        return Monitoring(settings, {}, None, None, {"prometheus": line})
    ports = _ports()
    urls = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    found = {"prometheus_url": urls["prometheus"]}
    lines = {"prometheus": f"{urls['prometheus']}/classic/alerts"}
    if alertmanager is None:
        lines["alerts"] = "alertmanager is not installed (apt-get install prometheus-alertmanager)"
    else:
        hooks = {f"{name}_webhook": f"{urls['receiver']}/{name}" for name in ("page", "ticket", "watchdog")}
        found |= {"alertmanager_url": urls["alertmanager"], **hooks}
        lines["alerts"] = f"arrive in {paths.root / 'prometheus' / 'received.jsonl'} and {paths.logs / 'webhook.log'}"
    return Monitoring(replace(settings, alerts=replace(wanted, **found)), ports, prometheus, alertmanager, lines)


def _ports() -> dict[str, int]:
    spare = free_ports(None, len(_PORTS) - 1)
    return {name: port if _is_free(port) else other for (name, port), other in zip(_PORTS.items(), spare, strict=True)}


def _is_free(port: int) -> bool:
    try:
        free_ports(port)
    except Refused:
        return False
    return True


def _prometheus(program: str, config: Path, port: int) -> list[str]:
    return [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={config.with_name('data')}",
        f"--web.listen-address={HOST}:{port}",
        "--rules.alert.resend-delay=10s",  # it finds Alertmanager after 5 s, and would send again after a minute
    ]


def _alertmanager(program: str, config: Path, port: int) -> list[str]:
    return [
        program,
        f"--config.file={config}",
        f"--storage.path={config.with_name('alertmanager')}",
        f"--web.listen-address={HOST}:{port}",
        "--cluster.listen-address=",  # one of a kind: it looks for no others
    ]
