"""Scenarios of objectives that burn their budget."""

import json
import re
from pathlib import Path

import yaml

from pipeline.health.alerting import files
from tests.processes.alert_world import (
    STEP_SECONDS,
    Scenario,
    _fired,
    promtool,
)


def burn(alert: str, severity: str = "page", group: str | None = "a", game: str = "g", cls: str = "all") -> str:
    labels = {"game": game, "class": cls, **({} if group is None else {"cluster_group": group})}
    return _fired(f"TurnoutFreshness{alert}", severity, **labels)


FAST, SLOW, DRIP = burn("BurnFast"), burn("BurnSlow"), burn("BudgetDrip", "ticket")
OBJECTIVES = "TurnoutFreshness.*"


def rules_of(folder: Path, text: str, only: str = OBJECTIVES) -> Path:
    """Write a rules file without the other alerts: promtool evaluates each at each step."""
    tree = yaml.safe_load(text)
    for group in tree["groups"]:
        group["rules"] = [each for each in group["rules"] if "record" in each or re.fullmatch(only, each["alert"])]
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
    return rules


def run(folder: Path, scenario: Scenario, text: str | None = None, only: str = OBJECTIVES) -> None:
    rules = rules_of(folder, text or files.RULES_FILE.read_text("utf-8"), only)
    test = {
        "interval": f"{STEP_SECONDS}s",
        "input_series": [{"series": name, "values": values} for name, values in scenario.series],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertstate="firing",alertname=~"{only}"}}',
                "eval_time": f"{at}s",
                "exp_samples": [{"labels": each, "value": 1} for each in firing],
            }
            for at, firing in scenario.firing.items()
        ],
    }
    document = {"rule_files": [str(rules)], "evaluation_interval": f"{STEP_SECONDS}s", "tests": [test]}
    (folder / "test.json").write_text(json.dumps(document), "utf-8")
    promtool("test", "rules", str(folder / "test.json"))
