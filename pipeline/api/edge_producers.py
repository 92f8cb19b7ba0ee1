"""Producers of the edge for people: who may send, what would change, and the change. Called by the Access page."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pipeline.api.acts import Preview, writing
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.control.acts import DirectAct
from pipeline.control.producers import proposals
from pipeline.edge.kind import KIND
from pipeline.health.facts.liveness import read_drivers
from pipeline.store.database.engine import reading
from pipeline.store.edge_producers import EdgeProducer, ProducerSet, read_producers, require_revocable
from pipeline.store.operations import Intent

__all__ = ["EdgeProducer", "ProducerSet", "ProducersOverview", "preview_added", "preview_revoked", "read"]


@dataclass(frozen=True, slots=True)
class ProducersOverview:
    """Who may send events, and which edges follow changes of it."""

    known: ProducerSet
    edges: Mapping[str, float]  # running edges by name: seconds since the newest heartbeat
    read_at: float  # Unix seconds by the store's clock


@reading()
def read(environment: OpenEnvironment) -> ProducersOverview:
    """Return the producers and the edges that run."""
    facts = read_drivers(environment.engine, environment.settings.metrics)
    edges = {
        each.name: each.heartbeat_age(facts.now)
        for (kind, _), each in facts.drivers.items()
        if kind == KIND and each.state in {"starting", "running"}
    }
    return ProducersOverview(read_producers(environment.engine), edges, facts.now)


@reading()
def preview_added(environment: OpenEnvironment, actor: str, producer: EdgeProducer) -> Preview:
    """Plan to add one producer to those in force.

    Raises:
        Refused: another one has its name, token or certificate; one of them was revoked; or a field is wrong.
    """
    proposal = proposals.plan_added(environment.engine, producer)
    intent = Intent(DirectAct.CHANGE_PRODUCERS, ("producers",), actor)
    lines = (*proposal.lines, "Every edge takes it within 2 s.")
    submit = partial(_add, producer, proposal.hash)
    return Preview(intent, lines, 0, time.time(), submit=submit, label="Add the producer")


@reading()
def preview_revoked(environment: OpenEnvironment, actor: str, name: str) -> Preview:
    """Show what a revocation of a producer would do.

    Raises:
        Refused: there is no such producer, or it is revoked already.
    """
    require_revocable(read_producers(environment.engine), name)
    lines = (
        f"{name}: its token and certificate are refused for ever, in later files as well.",
        "New calls are refused within 2 s, open streams end within 10 s.",
    )
    intent = Intent(DirectAct.REVOKE_PRODUCER, (name,), actor)
    return Preview(intent, lines, 0, time.time(), submit=partial(_revoke, name), label="Revoke the producer")


@writing()
def _add(producer: EdgeProducer, shown: str, environment: OpenEnvironment, intent: Intent) -> str:
    proposal = proposals.plan_added(environment.engine, producer)
    if proposal.hash != shown:
        raise Refused("Other producers were applied after you looked. Plan again.")
    proposals.apply(environment.settings, environment.engine, proposal, intent.actor, intent.reason)
    return f"{producer.name} may send events."


@writing()
def _revoke(name: str, environment: OpenEnvironment, intent: Intent) -> str:
    proposals.revoke(environment.settings, environment.engine, name, intent.actor, intent.reason)
    return f"{name} is revoked."
