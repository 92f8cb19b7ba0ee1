"""Series and alerts as promtool reads them in scenarios."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

STEP_SECONDS = 15
PROMTOOL = shutil.which("promtool")


def promtool(*arguments: str) -> str:
    """Run promtool and return what it said; its failure is the test's failure."""
    if PROMTOOL is None:
        pytest.fail("promtool is missing, so the alerts cannot be tested. Install the package prometheus.")
    environ = {**os.environ, "GOGC": "400"}  # it is short: a sixth of its time is what it collects
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, env=environ)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def steps(seconds: float) -> int:
    return round(seconds / STEP_SECONDS)


def flat(value: float, seconds: float) -> str:
    """Return a series that has one value for a while."""
    return f"{value:g}x{steps(seconds) - 1}"


def gone(seconds: float) -> str:
    return f"stale _x{steps(seconds) - 2}"


def grows(per_second: float, seconds: float, start: float = 0) -> str:
    return f"{start:g}+{per_second * STEP_SECONDS:g}x{steps(seconds) - 1}"


def status(value: str, values: str, game: str = "g", instance: str = "a:1") -> tuple[str, str]:
    return f'turnout_stream_status{{game="{game}",status="{value}",cluster_group="a",instance="{instance}"}}', values


def info(values: str, group: str = "a", game: str = "g") -> tuple[str, str]:
    return f'turnout_stream_info{{game="{game}",cluster_group="{group}",lane="RUN",instance="{group}:1"}}', values


def age(values: str, group: str = "a") -> tuple[str, str]:
    return f'turnout_stream_backlog_age_seconds{{game="g",cluster_group="{group}",instance="{group}:1"}}', values


def up(values: str, kind: str = "group", group: str = "a") -> tuple[str, str]:
    owner = f',cluster_group="{group}"' if kind == "group" else ""
    return f'up{{job="turnout",kind="{kind}",instance="{group}:1"{owner}}}', values


def heartbeat(values: str, group: str = "a") -> tuple[str, str]:
    return f'turnout_group_heartbeat_timestamp_seconds{{cluster_group="{group}",instance="{group}:1"}}', values


def later(seconds: float, values: str) -> str:
    """Return a series that begins after a while."""
    return f"_x{steps(seconds) - 1} {values}"


def judged(values: str) -> tuple[str, str]:
    return 'turnout_fleet_judged_timestamp_seconds{kind="ingest",instance="i:1"}', values


def source_age(values: str) -> tuple[str, str]:
    return 'turnout_source_backlog_seconds{kind="ingest",instance="i:1"}', values


HOUR = 3_600


@dataclass(frozen=True, slots=True)
class Scenario:
    """The series of a Prometheus, and which alerts fire at which second (the watchdog aside)."""

    law: str
    series: Sequence[tuple[str, str]]
    firing: Mapping[int, Sequence[str]]


def _fired(alert: str, severity: str = "page", **labels: str) -> str:
    reported = {"alertname": alert, "alertstate": "firing", "severity": severity, **labels}
    return "ALERTS{" + ", ".join(f'{name}="{value}"' for name, value in sorted(reported.items())) + "}"
