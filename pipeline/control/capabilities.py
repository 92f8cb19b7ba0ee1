"""What can be done for one game now: each repair with whether it is possible, why not, and what it touches.

Called by the command line and the dashboard; `capabilities` is pure, `read_facts` looks. Nothing is changed here.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from sqlalchemy import Engine

from pipeline.errors import Refused
from pipeline.health.liveness import HEARTBEAT_SECONDS
from pipeline.names import GameKey
from pipeline.repair.quarantined import Selection, opened
from pipeline.settings import Paths
from pipeline.store.assignments import read_assignments, read_group_drivers
from pipeline.store.game_lookup import Game, known_names
from pipeline.store.games import registered_keys
from pipeline.store.operations import last_durations, open_by_target
from pipeline.store.stream_control import StreamControl, decided

Name = Literal["retry", "replay", "dedupe", "rebuild", "restart"]
NAMES: Final[tuple[Name, ...]] = ("retry", "replay", "dedupe", "rebuild", "restart")
"""By blast radius, the gentlest first."""

_NOTHING: Final = StreamControl()
_ALL_ROWS: Final = Selection()
_KILLS_WORKER: Final = "kills_worker"
_REASONS: Final = 1_000
_INSTEAD: Final[Mapping[Name, tuple[Name, ...]]] = {
    "retry": ("restart",),
    "replay": ("retry",),
    "dedupe": ("replay", "retry"),
    "rebuild": ("replay", "retry"),
    "restart": ("retry", "rebuild"),
}
"""What may help where something is not possible, the nearest first."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One game as it is now."""

    game_key: str
    game: str
    group: str | None  # wanted; None: it waits for one, or is retired
    lane: str | None  # as last reported; None: never
    decision: StreamControl
    retired: bool
    has_schema: bool
    has_table: bool
    quarantined: Mapping[str, int] | None  # rows by reason, those that `rows` chooses; None: nobody has counted them
    silence: str | None  # why nothing can be expected of its group's driver, as the end of a sentence; None: it beats
    backend: str | None  # what starts its group, `none`: not turnout; None: it has no group
    neighbours: int  # other games of its group
    busy: str | None  # the open operation that the game or its group belongs to, as in "move 4f1d2a3b by ann"
    took_seconds: Mapping[str, float]  # how long the last success of each kind took, for this game alone
    rows: Selection = _ALL_ROWS  # of quarantine, which a replay would take


@dataclass(frozen=True, slots=True)
class Alternative:
    """What is possible instead."""

    name: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that may be done for a game."""

    name: Name
    possible: bool
    why_not: str | None  # one sentence; None: it is possible
    alternative: Alternative | None  # None: it is possible, or nothing else is
    touches: str  # one sentence
    seconds: float | None  # it may take so long; None: unknown
    estimate: str  # one sentence: where the time comes from


def capabilities(facts: Facts) -> tuple[Capability, ...]:
    """Return what can be done for a game, the gentlest first."""
    obstacles = {name: _obstacle(name, facts) for name in NAMES}
    return tuple(_capability(name, facts, obstacles) for name in NAMES)


def read_facts(
    engine: Engine,
    paths: Paths,
    key: str,
    now: float,
    *,
    count: bool = True,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> Facts:
    """Look at one game.

    Args:
        engine: the control store.
        paths: where the environment keeps its tables; nothing is written there.
        key: the game's key.
        now: Unix seconds by the control store's clock.
        count: count its rows in quarantine, which takes the longer the more there are; else they are unknown.
        heartbeat_seconds: the setting metrics.heartbeat_seconds, by which missed heartbeats are counted.

    Raises:
        Refused: no such game is known, or its rows cannot be counted.
    """
    facts = read_all_facts(engine, paths, [key], now, heartbeat_seconds=heartbeat_seconds).get(key)
    if facts is None:
        raise Refused(f"No such game: {key}. `turnout games list` shows those there are.")
    return with_quarantined(facts, paths) if count else facts


def read_all_facts(
    engine: Engine,
    paths: Paths,
    keys: Collection[str],
    now: float,
    rows: Selection = _ALL_ROWS,
    *,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> dict[str, Facts]:
    """Look at several games, by key; those nobody knows are left out, and nobody has counted their rows in quarantine.

    `rows` are those of quarantine that a replay takes, of whichever game it is.
    """
    known, assignments = known_names(engine), read_assignments(engine)
    drivers = read_group_drivers(engine, heartbeat_seconds, now)
    decisions, schemas = decided(engine), registered_keys(engine)
    names = {key: known[key] for key in keys if key in known}
    carried = Counter(each.group for each in assignments.values())
    groups = {key: assignments[key].group if key in assignments else None for key in names}
    belongs = open_by_target(
        engine, [*(f"game:{key}" for key in names), *(f"group:{name}" for name in {*groups.values()})]
    )
    facts_by_game = {}
    for key, group in groups.items():
        seat = assignments.get(key)  # None: it has a schema, and no row of it has come
        driver = drivers.get(group) if group else None
        busy = belongs.get(f"game:{key}") or belongs.get(f"group:{group}")
        facts_by_game[key] = Facts(
            game_key=key,
            game=names[key],
            group=group,
            lane=seat.lane if seat else None,
            decision=decisions.get(key, _NOTHING),
            retired=seat is not None and seat.retired_at is not None,
            has_schema=key in schemas,
            has_table=(paths.table(GameKey(key)) / "_delta_log").exists(),
            quarantined=None,
            silence=driver.liveness.silence if driver else "nobody knows this group",
            backend=driver.backend if driver else None,
            neighbours=carried[group] - 1 if group else 0,
            busy=f"{busy.kind} {busy.operation_id[:8]} by {busy.actor}" if busy else None,
            took_seconds=last_durations(engine, f"game:{key}"),
            rows=rows,
        )
    return facts_by_game


def with_quarantined(facts: Facts, paths: Paths) -> Facts:
    """Return the same facts with the game's rows in quarantine counted.

    Raises:
        Refused: quarantine cannot be read, or the game's table.
    """
    game, counts = Game(GameKey(facts.game_key), facts.game), Counter[str]()
    with opened(paths, {game.key: game.name}, replace(facts.rows, game=game)) as chosen:
        for each in chosen.counts(_REASONS):
            counts[each.reason] += each.rows
    return replace(facts, quarantined=dict(counts))


def _capability(name: Name, facts: Facts, obstacles: Mapping[Name, str | None]) -> Capability:
    why_not, seconds = obstacles[name], facts.took_seconds.get(name)
    return Capability(
        name=name,
        possible=why_not is None,
        why_not=why_not,
        alternative=None if why_not is None else _alternative(name, facts, obstacles),
        touches=_touches(name, facts),
        seconds=seconds,
        estimate=(
            f"No {name} of this game alone has succeeded yet, so nobody knows how long it takes."
            if seconds is None
            else f"Its last {name} took so long, from the request until its effect was seen."
        ),
    )


def _alternative(name: Name, facts: Facts, obstacles: Mapping[Name, str | None]) -> Alternative | None:
    if facts.busy is not None:
        return None  # whatever it is, it belongs to that operation first
    if facts.retired:
        return Alternative("restore", "Restoring it gives it a group, and it catches up from its table's cursor.")
    other = next((each for each in _INSTEAD[name] if obstacles[each] is None), None)
    return None if other is None else Alternative(other, _touches(other, facts))


def _obstacle(name: Name, facts: Facts) -> str | None:
    """Return why something is not possible now, as one sentence; None when it is."""
    if facts.busy is not None:
        return f"It belongs to an open operation now: {facts.busy}. Wait for it, or see `turnout ops list`."
    if facts.retired:
        return "It is retired: no group carries it until it is restored."
    if name == "retry":
        return _obstacle_to_retry(facts)
    if name == "restart":
        return _obstacle_to_restart(facts)
    if not facts.has_schema:
        return "No schema is registered for it: all its rows would be refused. Register one first."
    if name == "replay":
        return _obstacle_to_replay(facts)
    return None if facts.has_table else "It has no table yet. Its stream makes one from bronze."


def _obstacle_to_retry(facts: Facts) -> str | None:
    if facts.group is None:
        return "No group carries it yet, so there is no stream to try again."
    if facts.silence is not None:
        return f"Group {facts.group} cannot take it up: {facts.silence}."
    if facts.decision.parked_at is None and not facts.decision.failures:
        lane = "and nothing was reported about it" if facts.lane is None else f"and its lane is {facts.lane}"
        return f"There is no failure to try again after, {lane}."
    return None


def _obstacle_to_replay(facts: Facts) -> str | None:
    if facts.quarantined is None:
        return None  # nobody has counted: the replay will
    if not sum(facts.quarantined.values()):
        return f"Quarantine holds no {'row' if facts.rows == _ALL_ROWS else 'such row'} of it."
    if set(facts.quarantined) == {_KILLS_WORKER} and facts.rows.reason is None:
        return (
            "All its rows in quarantine have killed a worker, and may kill the controller: only "
            "`turnout repair replay --quarantine-reason kills_worker` takes them."
        )
    return None


def _obstacle_to_restart(facts: Facts) -> str | None:
    if facts.group is None:
        return "No group carries it yet, so there is nothing to restart."
    if facts.backend in {None, "none"}:
        return f"Group {facts.group} is not started by turnout: restart it where it runs."
    return None


def _touches(name: Name, facts: Facts) -> str:
    if name == "retry":
        return "Lets its stream run again at once, with all of its attempts; no other stream is touched."
    if name == "replay":
        count = None if facts.quarantined is None else sum(facts.quarantined.values())
        of_all = "its rows in quarantine" if facts.rows == _ALL_ROWS else "the chosen of its rows in quarantine"
        rows = f"{of_all}, which nobody has counted" if count is None else f"{count:,} rows in quarantine"
        return f"Decodes {rows}: what decodes goes into its table, the rest stays."
    if name == "dedupe":
        return "Reads all places of its table and removes second copies of rows in one commit; without any, nothing."
    if name == "rebuild":
        return "Reads all its bronze and replaces all files of its table in one commit; until then the old ones serve."
    if facts.group is None:
        return "All games of a group stand still while its driver starts; no row is lost or doubled."
    return (
        f"It and the {facts.neighbours} other games of group {facts.group} stand still while their driver starts; "
        "no row is lost or doubled."
    )
