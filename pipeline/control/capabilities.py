"""What can be done now with a game or a group: whether it is possible, why not, what instead, and what it touches.

Called by the command line and the dashboard. Each operation's own definition says so; `read_facts` looks. Nothing is
changed here.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.control.operations import registry
from pipeline.control.operations.definition import RETIRED, WAIT, Offer, describe_open
from pipeline.control.operations.facts import GameFacts, GroupFacts
from pipeline.control.operations.repairs import selection
from pipeline.data.repair.quarantined import opened
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.lake.delta.log import exists
from pipeline.settings.tree import Metrics, Paths
from pipeline.store.assignments import read_assignments
from pipeline.store.database.states import OperationKind
from pipeline.store.games import known_names, registered_keys
from pipeline.store.operations import last_durations, open_by_target
from pipeline.store.stream_control import StreamControl, decided

Facts = TypeVar("Facts", GameFacts, GroupFacts)
_NOTHING: Final = StreamControl()
_REASONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Alternative:
    """What is possible instead."""

    name: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that may be done."""

    name: str
    possible: bool
    why_not: str | None  # one sentence; None: it is possible
    alternative: Alternative | None  # None: it is possible, or nothing else is
    touches: str  # one sentence
    seconds: float | None  # how long it may take; None: unknown
    estimate: str  # one sentence: where the time comes from


def repairs(facts: GameFacts) -> tuple[Capability, ...]:
    """Return which repairs of a game are possible, the gentlest first."""
    menu = {name for name, (_, offer) in registry.offers_of_game().items() if offer.repairs}
    return tuple(each for each in of_game(facts) if each.name in menu)


def of_game(facts: GameFacts) -> tuple[Capability, ...]:
    """Return what can be done with a game, the gentlest first."""
    offers = {name: offer for name, (_, offer) in registry.offers_of_game().items()}
    obstacles = {name: _obstacle_of_game(offer, facts) for name, offer in offers.items()}
    return tuple(_capability(name, facts, offers, obstacles, facts.took_seconds) for name in offers)


def of_group(facts: GroupFacts) -> tuple[Capability, ...]:
    """Return what can be done with a cluster group, that which disturbs least first."""
    offers = {name: offer for name, (_, offer) in registry.offers_of_group().items()}
    obstacles = {name: _obstacle_of_group(offer, facts) for name, offer in offers.items()}
    return tuple(_capability(name, facts, offers, obstacles, {}) for name in offers)


def read_facts(
    engine: Engine,
    paths: Paths,
    key: str,
    now: float,
    *,
    count: bool = True,
    metrics: Metrics = Metrics(),
) -> GameFacts:
    """Look at one game.

    Args:
        engine: the control store.
        paths: where the environment keeps its tables; nothing is written there.
        key: the game's key.
        now: Unix seconds by the control store's clock.
        count: count its rows in quarantine, which takes the longer the more there are; else they are unknown.
        metrics: the settings by which missed heartbeats are counted.

    Raises:
        Refused: no such game is known, or its rows cannot be counted.
    """
    facts = read_all_facts(engine, paths, [key], now, metrics=metrics).get(key)
    if facts is None:
        raise Refused(f"No such game: {key}. `turnout games list` shows those there are.")
    return with_quarantined(facts, paths) if count else facts


def read_all_facts(
    engine: Engine,
    paths: Paths,
    keys: Collection[str],
    now: float,
    rows: Mapping[str, str | None] | None = None,
    *,
    metrics: Metrics = Metrics(),
) -> dict[str, GameFacts]:
    """Look at several games, by key; those nobody knows are left out, and nobody has counted their rows in quarantine.

    `rows` are those of quarantine that a replay takes, see `choice` of `operations.repairs`; all where None.
    """
    known, assignments = known_names(engine), read_assignments(engine)
    drivers = read_group_liveness(engine, metrics, now)
    decisions, schemas = decided(engine), registered_keys(engine)
    names = {key: known[key] for key in keys if key in known}
    carried = Counter(each.group for each in assignments.values())
    groups = {key: assignments[key].group if key in assignments else None for key in names}
    belongs = open_by_target(
        engine, [*(f"game:{key}" for key in names), *(f"group:{name}" for name in {*groups.values()})]
    )
    facts_by_game = {}
    for key, group in groups.items():
        assignment = assignments.get(key)  # None: it has a schema, and no row of it has come
        driver = drivers.get(group) if group else None
        busy, group_busy = belongs.get(f"game:{key}"), belongs.get(f"group:{group}")
        facts_by_game[key] = GameFacts(
            game_key=key,
            game=names[key],
            group=group,
            lane=assignment.lane if assignment else None,
            decision=decisions.get(key, _NOTHING),
            retired=assignment is not None and assignment.retired_at is not None,
            has_schema=key in schemas,
            has_table=exists(paths.table(GameKey(key))),
            quarantined=None,
            silence=driver.liveness.silence if driver else "nobody knows this group",
            backend=driver.backend if driver else None,
            neighbours=carried[group] - 1 if group else 0,
            busy=describe_open(busy) if busy else None,
            took_seconds=last_durations(engine, f"game:{key}"),
            rows=rows or {},
            group_busy=describe_open(group_busy) if group_busy else None,
            group_desired=driver.desired if driver else "running",
            has_other_group=bool(drivers.keys() - {group}),
            had_table=assignment is not None and bool(assignment.cursor_seq),
        )
    return facts_by_game


def with_quarantined(facts: GameFacts, paths: Paths) -> GameFacts:
    """Return the same facts with the game's rows in quarantine counted.

    Raises:
        Refused: quarantine cannot be read, or the game's table.
    """
    known, counts = {facts.game_key: facts.game}, Counter[str]()
    with opened(paths, known, selection(facts.rows, known)) as chosen:
        for each in chosen.counts(_REASONS):
            counts[each.reason] += each.rows
    return replace(facts, quarantined=dict(counts))


def _obstacle_of_game(offer: Offer[GameFacts], facts: GameFacts) -> str | None:
    busy = facts.busy or (facts.group_busy if offer.repairs else None)
    if busy is not None:
        return f"It belongs to an open operation now: {busy}. {WAIT}"
    if facts.retired and not offer.of_retired:
        return RETIRED
    return offer.obstacle(facts)


def _obstacle_of_group(offer: Offer[GroupFacts], facts: GroupFacts) -> str | None:
    if (busy := facts.busy.get(f"group:{facts.name}")) is not None:
        return f"It belongs to an open operation now: {describe_open(busy)}. {WAIT}"
    if facts.name not in facts.groups:
        return "Nobody has registered this group. Make one with this name under “Make a group”."
    return offer.obstacle(facts)


def _capability(
    name: str, facts: Facts, offers: Mapping[str, Offer[Facts]], obstacles: Mapping[str, str | None],
    took: Mapping[str, float],
) -> Capability:  # fmt: skip
    why_not, seconds = obstacles[name], took.get(name)
    instead = (*offers[name].instead, OperationKind.RESTORE)  # that is possible where it is retired
    other = next((each for each in instead if each in offers and obstacles[each] is None), None)
    alternative = None
    if why_not is not None and other is not None:
        alternative = Alternative(str(other), _touches(offers[other], facts))
    return Capability(
        name=str(name),
        possible=why_not is None,
        why_not=why_not,
        alternative=alternative,
        touches=_touches(offers[name], facts),
        seconds=seconds,
        estimate=(
            f"No {name} of this game alone has succeeded yet, so nobody knows how long it takes."
            if seconds is None
            else f"As long as its last {name}, from the request until its effect was seen."
        ),
    )


def _touches(offer: Offer[Facts], facts: Facts) -> str:
    return offer.touches if isinstance(offer.touches, str) else offer.touches(facts)
