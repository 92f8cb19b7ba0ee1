"""Which names became games, which must not, and the sketch of those that wait.

Onboardings are append-only, so "the games up to number n" never changes: ingest pins n for each micro-batch. A game's
key belongs to the name that was onboarded under it first, for ever.
"""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Engine, delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.store.database.engine import writing
from pipeline.store.database.states import OnboardedBy
from pipeline.store.database.tables import name_sketches, onboardings, refused_names, registrations, schemas

_SKETCH = 1


@dataclass(frozen=True, slots=True)
class OnboardingCandidate:
    """A name that would become a game."""

    game_key: GameKey
    game: str
    how: OnboardedBy
    prefix: str | None = None
    actor: str | None = None
    reason: str | None = None
    rule: str | None = None  # the onboarding rule that the name matches


@dataclass(frozen=True, slots=True)
class Onboarded:
    """A name that became a game, as the number-th one."""

    number: int
    candidate: OnboardingCandidate
    onboarded_at: float  # Unix seconds


@dataclass(frozen=True, slots=True)
class RefusedName:
    """A name that must not become a game until a person approves it."""

    game: str
    actor: str
    reason: str | None
    refused_at: float  # Unix seconds


def onboard(engine: Engine, candidates: Iterable[OnboardingCandidate], now: float | None = None) -> None:
    """Make games of these names. A name that is one already, or whose key is another's, is left as it is."""
    rows = [_row(candidate, now) for candidate in candidates]
    if not rows:
        return
    try:
        _insert(engine, rows)
    except IntegrityError:  # another process onboarded some of them at the same moment
        for row in rows:
            try:
                _insert(engine, [row])
            except IntegrityError:
                continue


def approve(engine: Engine, candidate: OnboardingCandidate, now: float | None = None) -> bool:
    """Make a game of a name and forget that it was refused; return False, with nothing done, where its key is taken."""
    try:
        _insert(engine, [_row(candidate, now)])
    except IntegrityError:
        return False
    return True


def approve_within(connection: Connection, candidate: OnboardingCandidate) -> None:
    """Make a game of a name in the caller's transaction, and forget that it was refused; a name that is one stays so.

    Raises:
        Refused: its key is another name's.
    """
    _lock(connection)
    own_row = onboardings.c.game_key == candidate.game_key
    owner = connection.scalar(select(onboardings.c.game).where(own_row))
    if owner is None:
        connection.execute(insert(onboardings).values(_row(candidate, None)))
    elif owner != candidate.game:
        raise Refused(f"The key {candidate.game_key} belongs to the game {owner!r}. Rename one of the two.")
    connection.execute(delete(refused_names).where(refused_names.c.game == candidate.game))


def number_of(engine: Engine, key: str) -> int:
    """Return the number of a game among the onboardings, 0 where the name is none."""
    with engine.connect() as connection:
        return connection.scalar(select(onboardings.c.onboarding_id).where(onboardings.c.game_key == key)) or 0


def onboarded(engine: Engine, above: int = 0) -> list[Onboarded]:
    """Return the onboardings with a number greater than `above`, in their order."""
    table = onboardings
    columns = (table.c.game_key, table.c.game, table.c.how, table.c.prefix, table.c.actor, table.c.reason, table.c.rule)
    query = select(table.c.onboarding_id, table.c.onboarded_at, *columns).where(table.c.onboarding_id > above)
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(table.c.onboarding_id)).all()
    return [Onboarded(number, OnboardingCandidate(*candidate), at) for number, at, *candidate in rows]


def onboarded_names(engine: Engine) -> dict[GameKey, str]:
    """Return key → exact name of every game."""
    with engine.connect() as connection:
        rows = connection.execute(select(onboardings.c.game_key, onboardings.c.game))
        return {GameKey(row.game_key): row.game for row in rows}


def registered_above(engine: Engine, registration: int) -> tuple[int, list[tuple[GameKey, str]]]:
    """Return the last registration's id, and key and name of each game with one above the given id, in their order."""
    table = registrations
    with engine.connect() as connection:
        last = connection.scalar(select(func.max(table.c.registration_id))) or 0
        if last <= registration:
            return last, []
        new = (table.c.registration_id > registration) & (table.c.registration_id <= last)
        first = func.min(table.c.registration_id)
        query = select(table.c.game_key, table.c.game).where(new).group_by(table.c.game_key, table.c.game)
        return last, [(GameKey(row.game_key), row.game) for row in connection.execute(query.order_by(first))]


def first_registered(engine: Engine) -> list[tuple[GameKey, str, float]]:
    """Return key and name of each name with a schema, and when its first one came (Unix seconds), in that order."""
    table, first = registrations, func.min(registrations.c.registration_id)
    query = select(table.c.game_key, table.c.game, func.min(table.c.created_at))
    with engine.connect() as connection:
        rows = connection.execute(query.group_by(table.c.game_key, table.c.game).order_by(first))
        return [(GameKey(key), name, at) for key, name, at in rows]


def first_formats(engine: Engine) -> dict[str, str]:
    """Return the format of each name's first registered schema, by exact name."""
    order = registrations.c.registration_id.desc()  # so the first one counts
    query = select(registrations.c.game, schemas.c.format).join(schemas).order_by(order)
    with engine.connect() as connection:
        return {row.game: row.format.partition("-")[0] for row in connection.execute(query)}


def refuse(engine: Engine, refusal: RefusedName) -> bool:
    """Note that a name is not to become a game; return False, with nothing done, where it is one. The newest counts."""
    values = asdict(refusal)
    own_row = refused_names.c.game == refusal.game
    with writing(engine) as connection:
        _lock(connection)
        connection.execute(delete(refused_names).where(own_row))  # in SQLite no other one writes from here on
        if connection.scalar(select(onboardings.c.game).where(onboardings.c.game == refusal.game)) is not None:
            return False
        connection.execute(insert(refused_names).values(values))
        return True


def refusals(engine: Engine) -> dict[str, RefusedName]:
    """Return every refusal by exact name."""
    table = refused_names
    columns = (table.c.game, table.c.actor, table.c.reason, table.c.refused_at)
    with engine.connect() as connection:
        return {row.game: RefusedName(*row) for row in connection.execute(select(*columns))}


def read_sketch(engine: Engine) -> str | None:
    """Return the sketch of the names that wait, None when none ever waited."""
    with engine.connect() as connection:
        sketch: str | None = connection.scalar(select(name_sketches.c.sketch))
    return sketch


def write_sketch(engine: Engine, sketch: str) -> None:
    """Replace the sketch of the names that wait."""
    values = {"sketch": sketch, "written_at": time.time()}
    with writing(engine) as connection:
        if not connection.execute(update(name_sketches).values(values)).rowcount:
            connection.execute(insert(name_sketches).values(sketch_id=_SKETCH, **values))


def _row(candidate: OnboardingCandidate, now: float | None) -> dict[str, object]:
    return {**asdict(candidate), "onboarded_at": time.time() if now is None else now}


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Numbers must become visible in their order, or a set of games could still grow after it was pinned.
        connection.execute(text("LOCK TABLE onboardings IN SHARE ROW EXCLUSIVE MODE"))


def _insert(engine: Engine, rows: list[dict[str, object]]) -> None:
    with writing(engine) as connection:
        _lock(connection)
        connection.execute(insert(onboardings), rows)
        approved = [row["game"] for row in rows if row["how"] == "approval"]
        if approved:
            connection.execute(delete(refused_names).where(refused_names.c.game.in_(approved)))
