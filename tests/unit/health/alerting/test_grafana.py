"""Guards that the Grafana dashboard asks for what turnout exports: a renamed metric would leave an empty panel."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser

from pipeline.health.alerting.burn import record_groups
from pipeline.health.alerting.objectives import default
from tests.checkout import ROOT
from tests.unit.repo.listed_metrics import listed_metrics

BOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "turnout.json").read_text("utf-8"))
TARGET_LABELS = {"instance", "kind"}
OWN = {"game", "cluster_group", "class"}  # of what the rules record


def queries() -> Iterator[tuple[str, str]]:
    """Yield panel or variable and query of all that Grafana asks Prometheus for."""
    for panel in BOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))
    for each in BOARD["annotations"]["list"]:
        yield each["name"], each["expr"]
    for each in BOARD["templating"]["list"]:
        if found := re.fullmatch(
            r"label_values\((.*), (\w+)\)", each["query"] if isinstance(each["query"], str) else each["query"]["query"]
        ):
            yield each["name"], f"count by ({found[2]}) ({found[1]})"


def exported() -> dict[str, set[str]]:
    """Return the labels of each metric that a query may name."""
    known = {}
    for name, (kind, labels) in listed_metrics().items():
        known[f"{name}_bucket" if kind == "histogram" else name] = {*labels, *TARGET_LABELS, "le"}
    for group in record_groups(default(), 60):
        known |= {record.name: OWN for record in group.records}
    return {**known, "ALERTS": {"alertname", "alertstate", "severity", *OWN}}


def test_each_query_names_metrics_and_labels_that_exist() -> None:
    """Each query is PromQL, and asks for no metric and no label that nobody exports."""
    known, asked = exported(), list(queries())
    assert len(asked) > 25
    for title, query in asked:
        plain = query.replace("$__rate_interval", "5m").replace("$cluster_group", "a").replace("$game", "g")
        promql_parser.parse(plain)
        selectors = re.findall(r"\b((?:game:)?turnout_[\w:]+|ALERTS)(?:\{([^}]*)\})?", plain)
        assert selectors, title
        labels = set().union(*(known.get(name, set()) for name, _ in selectors))
        for name, matchers in selectors:
            assert name in known, f"{title}: {name}"
            assert set(re.findall(r"(\w+)[=!]", matchers)) <= known[name], f"{title}: {name}"
        for listed in re.findall(r"\bby \(([^)]*)\)", plain):
            assert {each.strip() for each in listed.split(",")} <= labels, title


def test_legends_use_labels_of_their_query() -> None:
    """A legend with an unknown label is an empty one."""
    known = exported()
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            names = re.findall(r"\b((?:game:)?turnout_[\w:]+|ALERTS)", target["expr"])
            labels = set().union(*(known[name] for name in names))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, panel["title"]


def test_unknown_is_written_where_there_is_no_value() -> None:
    """No panel shows a zero for what nobody reports, and none bridges a gap."""
    for panel in BOARD["panels"]:
        if panel["type"] != "row":
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["noValue"] == "unknown"
            assert defaults["custom"].get("spanNulls", False) is False
            assert "vector(0)" not in json.dumps(panel["targets"])


def test_ids_and_places_are_each_panels_own() -> None:
    """Grafana drops one of two panels with one id, and moves those that overlap."""
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
