"""Metrics that the docs list."""

from functools import cache

from prometheus_client import CollectorRegistry

from listeners.bridge.families import Known, Readings, bridge_families
from listeners.join import Pass
from listeners.prometheus import Exposition
from listeners.sample import LATENCY_EDGES_SECONDS, GameResult, Lane, PassResult, Progress, StreamState, TypeRows
from tests.unit.listeners.controller_metrics import CONTROLLER_METRICS


@cache
def listed_metrics() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return name → (type, labels) of every metric family, from an exposition that knows something of everything."""
    exposition = Exposition(CollectorRegistry())
    counts = (1, *[0] * len(LATENCY_EDGES_SECONDS))
    game = GameResult(
        "g",
        Lane.RUN,
        1,
        1,
        1,
        {"unknown_schema": 1},
        1,
        1,
        1.0,
        1.0,
        counts,
        types={"t.M": TypeRows(1, 1)},
        broken={"promise/price": 1},
    )
    exposition.add_pass(Pass(PassResult("a", "run", 0, 0.0, 1.0, 1, (game,), {"commit": 1.0}), None))
    exposition.set_states([StreamState("g", "a", Lane.RUN, "RUNNING", 0.0, 1, 1.0, 0.0, 1.0, 1.0, 1, 1, None, 1.0)])
    exposition.set_heartbeat("a", 1.0)
    exposition.add_progress(Progress("q", "id", "run", 0, "", 1, {"addBatch": 1}))
    exposition.add_ingest(seq=1, accepted=1, refused=1, committed_at=1.0, clocks={"broker": 2})
    exposition.set_fleet({"group": 1}, 1.0, ("b",), {"a": True}, [("g", "a")], {"g": 1.0}, 1.0)
    exposition.set_through_posts(1, 0)
    exposition.set_controller_metrics(CONTROLLER_METRICS)
    exposition.set_self(
        events_dropped=0, listener_errors=0, outbox_items=0, flush_failures=0, push_failures=0, cpu_seconds=0.0
    )
    places = {"control_store": Readings(is_up=True, read_at=1.0, failures=0)}
    known = Known(exposition.snapshot(), {}, places, {"stream_batch": 1.0}, {("group", "a"): False})
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            tuple(name for name in family.samples[0].labels if name != "le"),
        )
        for family in bridge_families(known)
    }
