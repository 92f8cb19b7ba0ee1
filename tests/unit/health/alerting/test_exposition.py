import re

from prometheus_client import CollectorRegistry, generate_latest

from listeners.join import Pass
from listeners.prometheus import Exposition
from listeners.sample import LATENCY_EDGES_SECONDS, GameResult, Lane, PassResult
from pipeline.edge.metrics import EdgeMetrics
from pipeline.health.alerting.alerts import alerts
from pipeline.health.alerting.burn import record_groups
from pipeline.health.alerting.objectives import default
from pipeline.health.verdicts.status import StreamFacts
from pipeline.health.verdicts.watch import StreamReading, Watch
from tests.unit.listeners.controller_metrics import CONTROLLER_METRICS, NOW


def reported() -> dict[str, set[str]]:
    """Return the labels of every metric a process tells after one pass, one ingest commit and one evaluation."""
    registry = CollectorRegistry()
    exposition = Exposition(registry)
    counts = (1, *[0] * len(LATENCY_EDGES_SECONDS))
    refused = {"unknown_schema": 1}
    game = GameResult("g", Lane.RUN, 1, 1, 1, refused, 1, 10, NOW, 0.1, counts, broken={"sales/price": 1})
    exposition.add_pass(Pass(PassResult("a", "run", 0, NOW - 1, NOW, 1, (game,)), None))
    facts = StreamFacts("running", True, None, 0, Lane.RUN, NOW, 5.0, None, 60.0, None)
    exposition.set_states(Watch("a").observe(NOW, {"g": StreamReading(facts, 1, 1, 0.0)}, [game]))
    exposition.set_heartbeat("a", NOW)
    exposition.add_ingest(seq=1, accepted=1, refused=0, committed_at=NOW)
    exposition.set_fleet({"group": 0}, NOW, ("b",), {"a": True}, [("g", "a")])
    exposition.set_controller_metrics(CONTROLLER_METRICS)
    exposition.set_self(events_dropped=0, listener_errors=0, outbox_items=0, flush_failures=0)
    edge = EdgeMetrics()
    edge.served(NOW, 86_400.0)
    shown = generate_latest(registry) + generate_latest(edge.registry)
    samples = re.findall(r"^(\w+)(?:\{(.*)\})? ", shown.decode(), re.MULTILINE)
    return {name: set(re.findall(r'(\w+)="', labels)) for name, labels in samples}


def test_alerts_read_only_what_is_told() -> None:
    """Every metric of a rule, and every label it selects or joins by, exists in the exposition of the processes."""
    metrics = reported()
    rules = [(alert.name, alert.expr) for alert in alerts()]
    rules += [(record.name, record.expr) for group in record_groups(default(), 60) for record in group.records]
    for rule, expr in rules:
        for name, selected in re.findall(r"(?<!:)\b(turnout_\w+)(?:\{([^}]*)\})?", expr):
            if name.startswith("turnout_metrics_serve_"):  # tests/unit/repo/test_docs.py lists these
                continue
            assert name in metrics, rule
            assert set(re.findall(r"(\w+)=", selected)) <= metrics[name], rule
    assert {"game", "cluster_group"} <= metrics["turnout_stream_info"]
    assert {"game", "le"} <= metrics["turnout_stream_latency_seconds_bucket"]
