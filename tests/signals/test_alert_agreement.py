"""Alerts agree with the judgement: promtool runs the real rules over series sampled from the real /metrics.

What must fire is computed from the judgement at each sample and from each rule's stated wait (`expected.py`).
`SIGNALS_SEED=… python -m pytest tests/signals/test_alert_agreement.py -k seed` runs one history again.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.health.alerting import files
from pipeline.health.alerting.alerts import alerts
from tests.signals.expected import STEP, Recorder, expected
from tests.signals.histories import World, world
from tests.signals.servers import program
from tests.signals.surfaces import read_page

FEW, MANY = 1, 100
SAMPLES = 130
CHANCE = 0.05
CHECK_EACH = 4  # samples


@pytest.fixture(scope="module")
def made() -> Iterator[World]:
    with world() as opened:
        yield opened


def rules_test_of(of: World, seed: object) -> tuple[dict[str, Any], Counter[str]]:
    """Return a history as a test of promtool, and how often each alert must fire."""
    history = of.history(f"alerts {seed}")
    history.is_regular = True
    recorder = Recorder(history)
    for _ in range(SAMPLES):
        history.tick(STEP, CHANCE, clocks_are_right=True)
        history.judge()
        recorder.sample(read_page(history))
    checks, counted = [], Counter[str]()
    for name, matcher, truths in expected(recorder.samples, list(history.tables), list(history.groups)):
        wanted = ",".join(part for part in (f'alertname="{name}"', 'alertstate="firing"', matcher) if part)
        for number in range(0, SAMPLES, CHECK_EACH):
            if (fires := truths[number]) is not None:
                counted[name] += fires
                samples = [{"labels": "{}", "value": 1}] if fires else []
                checks.append(
                    {"expr": f"group(ALERTS{{{wanted}}})", "eval_time": f"{number * STEP}s", "exp_samples": samples}
                )
    series = [{"series": name, "values": " ".join(values)} for name, values in recorder.series.items()]
    return {"name": str(seed), "interval": f"{STEP}s", "input_series": series, "promql_expr_test": checks}, counted


def run(folder: Path, test: dict[str, Any]) -> None:
    document = {"rule_files": [str(files.RULES_FILE)], "evaluation_interval": f"{STEP}s", "tests": [test]}
    file = folder / "history.json"
    file.write_text(json.dumps(document), "utf-8")  # JSON is YAML
    done = subprocess.run([program("promtool", "promtool"), "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, f"history {test['name']} (SIGNALS_SEED): {(done.stdout + done.stderr)[-4_000:]}"


def follow(of: World, seeds: range, folder: Path) -> Counter[str]:
    counted = Counter[str]()
    for seed in seeds:
        of.take_new_tables()
        test, own = rules_test_of(of, seed)
        run(folder, test)
        counted += own
    return counted


@pytest.mark.proves("G131")
def test_alerts_follow_from_the_judgement(made: World, tmp_path: Path) -> None:
    """An alert fires after its wait where the page shows trouble, and is silent where the page shows none."""
    counted = follow(made, range(FEW), tmp_path)
    assert counted["TurnoutFleetUnhealthy"] > 0


@pytest.mark.skipif("SIGNALS_SEED" not in os.environ, reason="names no history to run again")
def test_a_seed_can_be_run_again(made: World, tmp_path: Path) -> None:
    """A history that failed is run again alone."""
    seed = int(os.environ["SIGNALS_SEED"])
    follow(made, range(seed, seed + 1), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.proves("G131")
def test_alerts_follow_from_the_judgement_over_a_hundred_histories(made: World, tmp_path: Path) -> None:
    """The same for many more, in which each alert that short troubles raise must fire somewhere."""
    counted = follow(made, range(1_000, 1_000 + MANY), tmp_path)
    silent = {each.name for each in alerts()} - {name for name, times in counted.items() if times}
    print(dict(counted))  # noqa: T201 - the table of the long tier
    assert silent <= {
        "TurnoutFreshnessBurnSlow", "TurnoutFreshnessBudgetDrip",  # hours; tests/processes/test_burn_alerts.py has them
        "TurnoutRejectRatioHigh", "TurnoutContractViolated", "TurnoutContractStale", "TurnoutDerivedStopped",
        "TurnoutContractNotUnique",
        "TurnoutDayNotClosed", "TurnoutTypesWithoutTable",
        "TurnoutRegistryMistrusted", "TurnoutEvacuationWaits", "TurnoutAccessDrift", "TurnoutAccessUnknown",
        "TurnoutAccessOverdue", "TurnoutListenerLagging", "TurnoutMetricsStale", "TurnoutEdgeDown",
        "TurnoutEdgeCertificateExpires",
        # These need a trouble that lasts, which random histories end too soon; test_end_to_end.py has them.
        "TurnoutSourceUnknown", "TurnoutSourceBacklog", "TurnoutStreamStalled", "TurnoutMaintenanceOverdue",
    }, silent  # fmt: skip
