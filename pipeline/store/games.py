"""Games in the control store: their names, their assignment to cluster groups, and their priorities."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import BindParameter, ColumnElement, Connection, Engine, Select, bindparam, exists, func, select, update
from sqlalchemy.exc import IntegrityError

from listeners.process_kinds import GROUP
from pipeline.base.errors import Refused
from pipeline.base.names import MALFORMED, GameKey, game_key, shown
from pipeline.base.texts import meant
from pipeline.store import audit
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import games, groups, leases, registrations, schemas
from pipeline.store.onboarding import onboarded_names
from pipeline.store.onboarding_rules import rules_of_games
from pipeline.store.processes.leases import MARGIN, Lease, store_now


@dataclass(frozen=True, slots=True)
class Assignment:
    """One game as its group sees it."""

    game_key: GameKey
    game: str
    epoch: int
    generation: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Held:
    """What a driver holds."""

    carried: list[Assignment]  # of its group
    astray: list[GameKey]  # assigned to another group by now, perhaps in the moment they were taken: to be let go


Take = Callable[[str, str], bool]
"""Gives a game (its key) to a group, where it still waits and the group takes games; returns whether it did."""

Place = Callable[[Connection, Take], None]
"""Chooses the groups of the games that wait from what it reads in a transaction, and gives them there."""

_ASSIGNMENT = tuple(games.c[name] for name in Assignment.__slots__)

# Built once: ingest runs these at each commit, drivers at each pass, and to build one costs more than to run it.
_WAITS: Final = games.c.group_name.is_(None) & games.c.retired_at.is_(None)
_ANY_WAITS: Final = select(games.c.game_key).where(_WAITS).limit(1)
_TAKE: Final = (
    update(games)
    .where(
        games.c.game_key == bindparam("key"),
        _WAITS,
        exists().where(groups.c.name == bindparam("target"), groups.c.desired == "running"),
    )
    .values(group_name=bindparam("target"))
)
_ASSIGNED: Final = select(*_ASSIGNMENT).where(games.c.group_name == bindparam("name"))
_KNOWN_OF: Final = select(games.c.game_key).where(games.c.game_key.in_(bindparam("keys", expanding=True)))
_SEEN: Final = (
    update(games)
    .where(games.c.game_key == bindparam("key"), games.c.last_seq < bindparam("seq"))  # a late report changes nothing
    .values(last_seq=bindparam("seq"))
)


def record_seen(engine: Engine, seen: Mapping[str, str], seq: int, place: Place) -> None:
    """Note that these games (key → name) had rows in a bronze commit; `place` gives new ones a group at once."""
    with writing(engine) as connection:
        present = set(connection.scalars(_KNOWN_OF, {"keys": list(seen)}))
        if present:
            connection.execute(_SEEN, [{"key": key, "seq": seq} for key in present])
    new = {key: seen[key] for key in seen.keys() - present}
    if not new:
        return
    try:
        with writing(engine) as connection:
            connection.execute(games.insert(), _rows(connection, new, seq))
    except IntegrityError:  # another process discovered some of them at the same moment
        for key, name in new.items():
            record_one(engine, key, name, seq)
    assign_waiting(engine, place)


def register_group(engine: Engine, name: str, place: Place) -> None:
    """Make a cluster group known, and let `place` give games that wait their groups."""
    try:
        with writing(engine) as connection:
            connection.execute(groups.insert().values(name=name, created_at=time.time()))
    except IntegrityError:
        pass  # it was known
    assign_waiting(engine, place)


def record_last_seqs(engine: Engine, last_seqs: Mapping[str, int], place: Place) -> None:
    """Bring the store up to what bronze holds (key → last seq), once at every start of ingest.

    Repairs what a crash between a bronze commit and `record_seen` left untold.
    """
    names = onboarded_names(engine)
    known = known_games(engine)
    rows = [{"key": key, "seq": seq} for key, seq in last_seqs.items() if key in known]
    if rows:
        with writing(engine) as connection:
            connection.execute(_SEEN, rows)
    for key in names.keys() & last_seqs.keys() - known.keys():
        record_one(engine, key, names[key], last_seqs[key])
    assign_waiting(engine, place)


def reset_last_seqs(engine: Engine, last_seqs: Mapping[str, int], after: int) -> None:
    """Set the last seq of each game that stands above `after` to what bronze still holds (key → last seq)."""
    with writing(engine) as connection:
        above = connection.scalars(select(games.c.game_key).where(games.c.last_seq > after)).all()
        rows = [{"key": key, "seq": last_seqs.get(key, 0)} for key in above]
        if rows:
            own_row = games.c.game_key == bindparam("key")
            connection.execute(update(games).where(own_row).values(last_seq=bindparam("seq")), rows)


def last_seq(engine: Engine, key: str) -> int:
    """Return the last seq in which ingest put rows of a game into bronze, 0 for none."""
    with engine.connect() as connection:
        return connection.scalar(select(games.c.last_seq).where(games.c.game_key == key)) or 0


def assign_waiting(engine: Engine, place: Place) -> None:
    """Let `place` give every game without a group one, within one transaction; nobody else moves.

    A retired game gets none. One that fits nowhere waits: the controller tries again.
    """
    with writing(engine) as connection:
        if connection.scalar(_ANY_WAITS) is None:
            return

        def take(key: str, target: str) -> bool:
            return bool(connection.execute(_TAKE, {"key": key, "target": target}).rowcount)

        place(connection, take)


def known_priorities(engine: Engine) -> dict[str, str]:
    """Return key → priority of every game in the store."""
    with engine.connect() as connection:
        return {row.game_key: row.priority for row in connection.execute(select(games.c.game_key, games.c.priority))}


def assigned(engine: Engine, group: str) -> list[Assignment]:
    """Return the games that are assigned to a group."""
    return all_assigned(engine, group).carried


def all_assigned(engine: Engine, group: str) -> Held:
    """Return the games that are assigned to a group, as what a driver holds without a lease."""
    with engine.connect() as connection:
        return Held([Assignment(*row) for row in connection.execute(_ASSIGNED, {"name": group})], [])


def carried(engine: Engine, lease: Lease) -> list[Assignment]:
    """Return the games of a group that its driver holds, after taking those that nobody holds.

    A game stays with the driver that holds it until that one lets it go, or its lease has run out or is another's.
    """
    return held(engine, lease).carried


def held(engine: Engine, lease: Lease) -> Held:
    """Return what a group's driver holds, after taking those of the group's games that nobody holds."""
    held_games, free = _read_held(engine, lease)
    if not free:
        return held_games
    take = update(games).where(games.c.group_name == lease.name, _is_free(), lease.runs())
    with writing(engine) as connection:
        connection.execute(take.values(held_by=lease.name, held_epoch=lease.epoch))
    return _read_held(engine, lease)[0]


def let_go(engine: Engine, lease: Lease, keys: Iterable[str]) -> None:
    """Let other groups have games that this driver holds, where they are assigned to another group."""
    moved = games.c.group_name.is_distinct_from(lease.name) & _is_held(lease.name, lease.epoch)
    query = update(games).where(games.c.game_key == bindparam("key"), moved).values(held_by=None, held_epoch=None)
    with writing(engine) as connection:
        connection.execute(query, [{"key": key} for key in keys])


def holds(engine: Engine, lease: Lease, key: str) -> bool:
    """Return whether a driver holds a game now, and its lease runs long enough to begin a write."""
    query = select(games.c.game_key).where(
        games.c.game_key == key, _is_held(lease.name, lease.epoch), lease.runs(lease.seconds * MARGIN)
    )
    with engine.connect() as connection:
        return connection.scalar(query) is not None


def _read_held(engine: Engine, lease: Lease) -> tuple[Held, bool]:
    """Return the games that a group's driver holds, and whether there are others of the group that it may take."""
    with engine.connect() as connection:
        rows = connection.execute(_held_query(), {"name": lease.name, "epoch": lease.epoch}).all()
    wanted = [Assignment(*row) for *row, ours, holds_it, _ in rows if ours and holds_it]
    astray = [GameKey(key) for key, *_, ours, holds_it, _ in rows if holds_it and not ours]
    may_take = any(free and ours and not holds_it for *_, ours, holds_it, free in rows)
    return Held(wanted, astray), may_take


@cache
def _held_query() -> Select[Any]:
    is_assigned = games.c.group_name == bindparam("name")
    held = _is_held(bindparam("name"), bindparam("epoch"))
    return select(*_ASSIGNMENT, is_assigned.is_(True), held, _is_free()).where(is_assigned | held)


def _is_held(name: str | BindParameter[str], epoch: int | BindParameter[int]) -> ColumnElement[bool]:
    """Return the SQL condition that a lease is the one under which a game is held, running or not."""
    return (games.c.held_by == name) & (games.c.held_epoch == epoch)


def _is_free() -> ColumnElement[bool]:
    """Return the SQL condition that no driver which still may run holds a game."""
    return ~exists().where(holding())


def holding() -> ColumnElement[bool]:
    """Return the SQL condition that a lease is the one under which a game is held, and runs."""
    holder = (leases.c.kind == GROUP) & (leases.c.name == games.c.held_by) & (leases.c.epoch == games.c.held_epoch)
    return holder & (leases.c.expires_at > store_now())


def known_games(engine: Engine) -> dict[str, str]:
    """Return key → name of every game in the store."""
    with engine.connect() as connection:
        return {row.game_key: row.game for row in connection.execute(select(games.c.game_key, games.c.game))}


def known_groups(engine: Engine) -> dict[str, str | None]:
    """Return key → group of every game in the store, None where it waits for one."""
    with engine.connect() as connection:
        rows = connection.execute(select(games.c.game_key, games.c.group_name))
        return {row.game_key: row.group_name for row in rows}


def arrived(engine: Engine) -> frozenset[str]:
    """Return the keys of the games of which rows have come."""
    with engine.connect() as connection:
        return frozenset(connection.scalars(select(games.c.game_key).where(games.c.last_seq > 0)))


def registered(engine: Engine) -> list[tuple[str, int, int, str]]:
    """Return (game, version, schema id, message) of every registration, by game and version."""
    columns = (registrations.c.game, registrations.c.version, schemas.c.schema_id, schemas.c.message)
    query = select(*columns).join(schemas).order_by(registrations.c.game, registrations.c.version)
    with engine.connect() as connection:
        return [(game, version, schema_id, message) for game, version, schema_id, message in connection.execute(query)]


def registered_keys(engine: Engine) -> dict[str, int]:
    """Return how many schemas are registered for each game that has one, by key."""
    query = select(registrations.c.game_key, func.count()).group_by(registrations.c.game_key)
    with engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def retired_games(engine: Engine) -> frozenset[str]:
    """Return the keys of the games that are retired."""
    with engine.connect() as connection:
        return frozenset(connection.scalars(select(games.c.game_key).where(games.c.retired_at.is_not(None))))


def generations(engine: Engine) -> dict[str, int]:
    """Return the current generation of every game's table."""
    with engine.connect() as connection:
        rows = connection.execute(select(games.c.game_key, games.c.generation))
        return {row.game_key: row.generation for row in rows}


def record_generation(engine: Engine, key: str, generation: int) -> None:
    """Note the generation of a game's table, which never goes back; the table's own log is the truth."""
    older = (games.c.game_key == key) & (games.c.generation < generation)
    with writing(engine) as connection:
        connection.execute(update(games).where(older).values(generation=generation))


def record_one(engine: Engine, key: str, name: str, seq: int) -> None:
    """Note one game, new or not."""
    try:
        with writing(engine) as connection:
            connection.execute(games.insert(), _rows(connection, {key: name}, seq))
    except IntegrityError:
        with writing(engine) as connection:
            connection.execute(update(games).where(games.c.game_key == key).values(last_seq=seq))


def discover_within(connection: Connection, key: str, name: str, group: str | None, priority: str | None) -> None:
    """Note a game before its first row, in the caller's transaction; where it waits for a group it gets this one.

    A priority replaces the one of its rule. A game that is there keeps its group.
    """
    own_row = games.c.game_key == key
    if connection.scalar(select(games.c.game_key).where(own_row)) is None:
        connection.execute(games.insert(), _rows(connection, {key: name}, 0))
    if priority is not None:
        connection.execute(update(games).where(own_row).values(priority=priority))
    if group is not None:
        connection.execute(_TAKE, {"key": key, "target": group})


def _rows(connection: Connection, new: Mapping[str, str], seq: int) -> list[dict[str, str | int | float]]:
    """Return new games (key → name) as rows; each begins with the priority of its onboarding rule."""
    rules, now = rules_of_games(connection, new.keys()), time.time()
    return [
        {"game_key": key, "game": name, "epoch": 1, "generation": 1, "last_seq": seq, "discovered_at": now,
         "priority": rules[key].priority if key in rules else "normal"}
        for key, name in new.items()
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Game:
    """A game by both of its identifiers."""

    key: GameKey
    name: str  # exact; data, never part of a path or a statement

    @property
    def bronze_keys(self) -> tuple[GameKey, GameKey]:
        """The keys under which bronze and quarantine may have its rows: from before it was known, no game's."""
        return self.key, MALFORMED


def known_names(engine: Engine) -> dict[str, str]:
    """Return key → exact name of every game, also of those that have a schema and of which no row has come."""
    known: dict[str, str] = {game_key(name): name for name, *_ in registered(engine)}
    known |= {str(key): name for key, name in onboarded_names(engine).items()}
    return known | known_games(engine)


def find(text: str, known: Mapping[str, str]) -> Game:
    """Return the game that has this key or, when no key is meant, this exact name; `known` is key to name.

    Raises:
        Refused: no such game is known.
    """
    if text in known:
        return Game(GameKey(text), known[text])
    for key, name in known.items():
        if name == text:
            return Game(GameKey(key), name)
    near = meant(text, {*known.values(), *known})
    raise Refused(f"No such game: {shown(text)}.{near} `turnout games list` lists names and keys.")


def set_priority(engine: Engine, keys: Iterable[str], priority: str, actor: str, reason: str) -> dict[str, str]:
    """Give games a priority; return those that had another one, with it. Nobody moves because of it."""
    with engine.begin() as connection:
        audit.lock_log(connection)
        wanted = (games.c.game_key.in_(list(keys))) & (games.c.priority != priority)
        before = {
            row.game_key: row.priority
            for row in connection.execute(select(games.c.game_key, games.c.priority).where(wanted))
        }
        if before:
            targets = tuple(f"game:{key}" for key in sorted(before))
            detail = {"priority": priority, "before": before, "reason": reason}
            act = audit.Act(actor, "set a priority", targets, None, detail)
            audit.begin(connection, act)
            connection.execute(update(games).where(wanted).values(priority=priority))
            audit.end(connection, act, "succeeded")
    return before
