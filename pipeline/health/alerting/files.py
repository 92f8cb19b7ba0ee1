"""The files that a Prometheus and an Alertmanager need: rules, and both configurations.

`rules.yml` beside this module is made by `python -m pipeline.health.alerting.files`; a test fails when it is stale.
`turnout alerts write` makes those of an environment.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pipeline.base import private_files
from pipeline.base.errors import Refused
from pipeline.health.alerting.alertmanager import alertmanager_config
from pipeline.health.alerting.alerts import alerts
from pipeline.health.alerting.burn import record_groups
from pipeline.health.alerting.links import runbook_url
from pipeline.health.alerting.objectives import Objective, default, read
from pipeline.settings.tree import Paths, Settings

RULES_FILE: Final = Path(__file__).with_name("rules.yml")
JOB: Final = "turnout"
SCRAPE_SECONDS: Final = 15.0
_DEFAULTS: Final = Settings()
_SAMPLE_LIMIT: Final = 200_000  # 2,000 games with their series: more is a mistake in the labels


def write(settings: Settings, paths: Paths, scrape_seconds: float = SCRAPE_SECONDS) -> tuple[Path, ...]:
    """Write the three files into `prometheus` in the environment's folder, and return them; all of them or none.

    Only their owner reads them: addresses of webhooks may be secrets.

    Raises:
        Refused: the objectives are wrong, or a file cannot be written; what was there stays.
    """
    folder = paths.root / "prometheus"
    rules = folder / "rules.yml"
    texts = {
        rules: render_rules(settings, read(paths.root)),
        folder / "prometheus.yml": prometheus_config(
            paths.targets, rules, scrape_seconds, settings.alerts.alertmanager_url
        ),
        folder / "alertmanager.yml": alertmanager_config(settings.alerts),
    }
    try:
        for each in (folder, paths.targets):  # Prometheus watches only a folder that is there when it starts
            each.mkdir(parents=True, exist_ok=True)
        private_files.write_files(texts)
    except OSError as error:
        raise Refused(f"{folder} cannot be written: {error.strerror}. Make it writable for this user.") from error
    return tuple(texts)


def render_rules(settings: Settings = _DEFAULTS, objectives: Sequence[Objective] | None = None) -> str:
    """Return the rules file (YAML) of an environment: with its objectives and the address of its dashboard."""
    wanted, seconds = default() if objectives is None else objectives, settings.metrics.latency_objective_seconds
    lines = ["# Made by `turnout alerts write` or `python -m pipeline.health.alerting.files`; do not edit.", "groups:"]
    for group in record_groups(wanted, seconds):
        lines += [f"  - name: {group.name}", f"    interval: {group.interval}", "    rules:"]
        for record in group.records:
            lines += [f"      - record: {record.name}", *_expr(record.expr), *_map("labels", record.labels.items())]
    lines += ["  - name: turnout", "    rules:"]
    address = settings.dashboard.address
    for alert in alerts(seconds, wanted):
        lines += [f"      - alert: {alert.name}", *_expr(alert.expr), f"        for: {alert.hold}"]
        lines += [f"        keep_firing_for: {alert.keep_firing}"] if alert.keep_firing else []
        lines += _map("labels", (("severity", alert.severity), *alert.labels.items()))
        texts = (
            ("summary", alert.summary),
            ("description", alert.description),
            ("runbook_url", runbook_url(alert, address)),
            ("dashboard_url", address + alert.dashboard),
        )
        lines += _map("annotations", texts)
    return "\n".join(lines) + "\n"


def prometheus_config(targets_folder: Path, rules: Path, scrape_seconds: float, alertmanager_url: str = "") -> str:
    """Return a Prometheus configuration (YAML) that scrapes every process with a target file and loads the rules.

    The rules rely on the target labels `kind` (ingest or group) and, for a group, `cluster_group`.

    Raises:
        Refused: the time between two scrapes is not in the range for which the alerts are made.
    """
    if not 1 <= scrape_seconds <= 30:  # rates over 2 minutes need several scrapes
        raise Refused(f"A scrape every {scrape_seconds:g} s does not fit the alerts. Choose 1 to 30 seconds.")
    every = f"{round(scrape_seconds * 1000)}ms"
    return "\n".join(
        (
            "global:",
            f"  scrape_interval: {every}",
            f"  evaluation_interval: {every}",
            "rule_files:",
            f"  - {json.dumps(str(rules.resolve()))}",
            *_alerting(alertmanager_url),
            "scrape_configs:",
            f"  - job_name: {JOB}",
            "    honor_labels: true  # a driver knows better than its target file which group a stream belongs to",
            f"    sample_limit: {_SAMPLE_LIMIT}",
            "    file_sd_configs:",
            f"      - files: [{json.dumps(str(targets_folder.resolve() / '*.json'))}]",
            "",
        )
    )


def main() -> None:
    """Write the rules of the defaults beside this module."""
    RULES_FILE.write_text(render_rules(), "utf-8")


def _alerting(url: str) -> Iterator[str]:
    if url:
        parts = urlsplit(url)
        yield "alerting:"
        yield "  alertmanagers:"
        yield f"    - scheme: {parts.scheme}"
        yield f"      path_prefix: {json.dumps(parts.path.rstrip('/') or '/')}"
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        yield f"      static_configs: [{{targets: [{json.dumps(f'{host}:{port}')}]}}]"


def _expr(expr: str) -> Iterator[str]:
    yield "        expr: |-"
    yield from (f"          {line}" for line in expr.splitlines())


def _map(name: str, items: Iterable[tuple[str, str]]) -> Iterator[str]:
    lines = [f"          {key}: {json.dumps(text)}" for key, text in items]  # JSON strings are YAML strings
    if lines:
        yield f"        {name}:"
        yield from lines


if __name__ == "__main__":
    main()
