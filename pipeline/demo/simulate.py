"""`turnout simulate`: registers the sample schemas, makes events and carries them to the environment's source.

A later run on the same environment goes on where the last one stopped: its sequence numbers and event ids are new.
"""

import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event as StopEvent

from sqlalchemy import Engine

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused, Transient
from pipeline.base.private_files import PUBLIC, write_file
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.demo.framings.supported import NO_REGISTRY, WRAPPER, RegistryAddress, foreign_framing
from pipeline.demo.heard import Heard
from pipeline.demo.producer import EdgeDoor, write_edge, write_kafka, write_landing
from pipeline.demo.samples.supported import payload_schema
from pipeline.demo.simulator import Event, SimulationPlan, Simulator, family, game_writings
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source, reads_several
from pipeline.settings.tree import Paths, Settings
from pipeline.store.edge_producers import EdgeProducer, read_producers, sha256_of
from pipeline.store.edge_producers import apply as apply_producers
from pipeline.store.onboarding import onboarded_names
from pipeline.store.onboarding_rules import ALL_TYPES, OnboardingRule, RuleSet, apply, read_rules

PARTITIONS = 4  # of a topic the simulator creates
_RULE = "simulate"  # the onboarding rule of games whose schemas come from a registry
_BATCH_EVENTS = 5_000  # in one landing commit at full speed
_BATCHES_PER_SECOND = 2  # at a given rate


@dataclass(frozen=True, slots=True)
class Carried:
    """How events get into a source."""

    into: str = ""  # of several sources, the name of one
    edge: str | None = None  # the address of the edge that they go through; None: through none
    edge_roots: Path | None = None  # certificates that the edge's leads to; None: no TLS
    follows: bool = False  # the edge's producer waits until each of its events has an outcome behind the log


@dataclass(frozen=True, slots=True)
class Simulated:
    """What one run sent."""

    events: int
    failed: int  # events whose delivery Kafka did not confirm
    by_kind: dict[str, int]
    refused: Mapping[str, int] = field(default_factory=dict)  # by the edge, by reason code
    heard: Heard | None = None  # of those that the edge acknowledged, where its producer followed them


def simulate(
    settings: Settings,
    paths: Paths,
    engine: Engine,
    plan: SimulationPlan,
    rate: float | None,
    stop: StopEvent | None = None,
    registry: RegistryAddress = NO_REGISTRY,
    carried: Carried | None = None,
) -> Simulated:
    """Send the plan's events to the source of the settings, at `rate` per second or as fast as it goes.

    An edge that carries them there gets a producer of its own.

    Raises:
        Refused: the plan is impossible, or the source or the registry does not take it.
        Transient: Kafka did not confirm every event, or the registry does not answer.
    """
    carried = carried or Carried()
    into, edge = carried.into, carried.edge
    source = settings.every_source.get(into)
    if source is None:
        known = ", ".join(settings.sources)
        raise Refused(
            f"Simulated events go into one source, and the settings have {known}. Choose one by --into."
            if known
            else f"The settings have no [sources.{into}]. Leave out --into."
        )
    state = paths.root / (f"simulator-{into}.json" if into else "simulator.json")
    plan = replace(plan, start_sequence=_next_sequence(state))
    game_writings(plan)  # refuses an impossible plan before anything is registered
    foreign = foreign_framing(plan.framings, replace(registry, topic=source.topic))
    simulator = Simulator(plan, register_samples(engine, plan, paths.bronze), foreign)
    allow_others(engine, plan)
    size = _BATCH_EVENTS if rate is None else max(1, round(rate / _BATCHES_PER_SECOND))
    batches = simulator.batches(size)
    refused: Mapping[str, int] = {}
    heard = None
    if edge is None:
        failed = send(source, paths, batches, rate, plan.events, stop)
    else:
        door = EdgeDoor(edge, _new_token(engine), carried.edge_roots)
        follow = paths.root if carried.follows else None
        sent = write_edge(door, batches, rate_per_second=rate, total=plan.events, stop=stop, follow=follow)
        failed, refused, heard = sent.failed, sent.refused, sent.heard
    _keep(state, simulator.next_sequence)
    if failed:
        raise Transient(f"Kafka did not confirm {failed} events. Check the broker's log, then retry.")
    return Simulated(simulator.counts.total(), failed, simulator.counts_by_kind(), refused, heard)


def send(
    source: Source,
    paths: Paths,
    batches: Iterator[Sequence[Event]],
    rate: float | None,
    total: int | None,
    stop: StopEvent | None,
    *,
    bar: bool = True,
) -> int:
    """Carry batches to a source as `producer` does; return how many events failed.

    Raises:
        Refused: the source does not take them, or is several topics.
        Transient: the broker ended the producer's session for good.
    """
    if source.kind == "kafka":
        if reads_several(source):
            raise Refused("Simulated events go into one topic: set source.topic alone, or TURNOUT_SOURCE__TOPIC.")
        ensure_topic(source.bootstrap_servers, source.topic, PARTITIONS)
        address = source.bootstrap_servers, source.topic
        return write_kafka(*address, batches, rate_per_second=rate, total=total, stop=stop, bar=bar)[1]
    landing = located(source.path) if source.path else paths.landing
    write_landing(landing, batches, rate_per_second=rate, total=total, stop=stop, bar=bar)
    return 0


def _new_token(engine: Engine) -> str:
    """Return a token of the edge's producer of this name, which may send events of all games; its last one ends."""
    token, known = secrets.token_urlsafe(32), read_producers(engine)
    own = EdgeProducer(_RULE, sha256_of(token), prefixes=("",))
    others = [each for each in known.producers if each.name != _RULE]
    act = {"action": "apply edge producers", "target": _RULE}
    apply_producers(engine, [*others, own], known.number, current_user(), "turnout simulate --via edge", **act)
    return token


def register_samples(
    engine: Engine, plan: SimulationPlan, bronze: Location | None = None
) -> dict[tuple[str, int], int]:
    """Register the sample schemas of the games that use turnout's ids; return the id of each (game, version).

    New ones get their ids beside `bronze`; None: the store alone counts.
    """
    own = {game: writing.format for game, writing in game_writings(plan).items() if writing.framing == WRAPPER}
    pairs = list(itertools.product(own, plan.versions_of_types()))
    registrations = [
        Registration(game, *payload_schema(family(game), version, own[game]), format=own[game], new_type=True)
        for game, version in pairs
    ]
    registered = LocalRegistry(engine, bronze).register_many(registrations)
    return {pair: each.schema_id for pair, each in zip(pairs, registered, strict=True)}


def allow_others(engine: Engine, plan: SimulationPlan) -> None:
    """Apply a rule for the games whose schemas come from a registry: ingest refuses rows of names that are not games.

    It accepts all their event types where the plan has several, and leaves names to the prefixes of other rules.

    Raises:
        Refused: another person has applied rules at the same moment.
    """
    rules, actor = read_rules(engine), current_user()
    others = [each for each in rules.rules if each.name != _RULE]
    taken = {*onboarded_names(engine).values(), *(name for each in others for name in each.names)}
    foreign = [game for game, writing in game_writings(plan).items() if writing.framing != WRAPPER]
    own = rules.by_name.get(_RULE, OnboardingRule(_RULE, changed_by=actor))
    ruled = RuleSet(rules=tuple(others))
    new = [game for game in foreign if game not in taken and game not in own.names and ruled.match(game) is None]
    then = replace(own, names=(*own.names, *new), event_types=(ALL_TYPES,) if plan.event_types > 1 else ())
    if then.names and then != own:
        apply(engine, [*others, then], rules.number, actor, "turnout simulate")


def _next_sequence(state: Path) -> dict[str, int]:
    try:
        kept = json.loads(state.read_text("utf-8"))
        return {str(game): int(number) for game, number in kept.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        raise Refused(f"{state} is invalid: {error}. Delete it to start at 1.") from error


def _keep(state: Path, numbers: dict[str, int]) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    write_file(state, json.dumps(numbers, ensure_ascii=True), PUBLIC)
