"""Who is to read a game from its onboarding on: written by the onboarding, granted by what knows the catalog."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, insert, select, update

from pipeline.store.database.engine import writing
from pipeline.store.database.tables import entitlements, games, operations, wanted_readers
from pipeline.store.processes.leases import store_now


@dataclass(frozen=True, slots=True)
class WantedReader:
    """One principal who is to read one game."""

    game_key: str
    principal: str
    reason: str
    authorised_by: str  # the access admin who applied the rule, or approved the game
    operation_id: str  # which onboarded the game
    access_operation_id: str | None = None  # which grants it; empty: the catalog had it already; None: none yet
    problem: str | None = None  # why it could not be submitted at the last try


_COLUMNS = tuple(wanted_readers.c[name] for name in WantedReader.__slots__)


def want_within(connection: Connection, readers: Sequence[WantedReader]) -> None:
    """Note readers in the caller's transaction; those that were noted before stay as they are."""
    keys = {each.game_key for each in readers}
    query = select(wanted_readers.c.game_key, wanted_readers.c.principal).where(wanted_readers.c.game_key.in_(keys))
    known = {(key, principal) for key, principal in connection.execute(query)} if keys else set()
    for each in readers:
        if (each.game_key, each.principal) not in known:
            values = {name: getattr(each, name) for name in WantedReader.__slots__}
            connection.execute(insert(wanted_readers).values(wanted_at=store_now(), **values))


def read_wanted(engine: Engine, keys: Collection[str] | None = None) -> list[WantedReader]:
    """Return the readers of these games, of all where None, by game and principal."""
    query = select(*_COLUMNS).order_by(wanted_readers.c.game_key, wanted_readers.c.principal)
    if keys is not None:
        query = query.where(wanted_readers.c.game_key.in_(list(keys)))
    with engine.connect() as connection:
        return [WantedReader(*row) for row in connection.execute(query)]


def read_lasting(engine: Engine, key: str) -> list[WantedReader]:
    """Return the readers of a game, without those to whom turnout gave access that has ended since."""
    query = select(entitlements.c.principal, entitlements.c.ended_at, entitlements.c.revoked_at)
    with engine.connect() as connection:
        rows = connection.execute(query.where(entitlements.c.game_key == key)).all()
    holding = {row.principal for row in rows if row.ended_at is None and row.revoked_at is None}
    ended = {row.principal for row in rows} - holding
    return [each for each in read_wanted(engine, [key]) if each.principal not in ended]


def read_ungranted(engine: Engine) -> list[WantedReader]:
    """Return the readers for whom no operation was submitted, of games that are not retired."""
    known = wanted_readers.join(games, games.c.game_key == wanted_readers.c.game_key)
    open_ones = wanted_readers.c.access_operation_id.is_(None) & games.c.retired_at.is_(None)
    query = select(*_COLUMNS).select_from(known).where(open_ones).order_by(wanted_readers.c.wanted_at)
    with engine.connect() as connection:
        return [WantedReader(*row) for row in connection.execute(query)]


def note_submitted(engine: Engine, readers: Sequence[WantedReader], access_operation_id: str) -> None:
    """Note the operation that grants these readers; empty where the catalog has it all."""
    _note(engine, readers, access_operation_id, None)


def note_problem(engine: Engine, readers: Sequence[WantedReader], problem: str) -> None:
    """Note why no operation could be submitted for these readers."""
    _note(engine, readers, None, problem)


def _note(engine: Engine, readers: Sequence[WantedReader], operation_id: str | None, problem: str | None) -> None:
    with writing(engine) as connection:
        for each in readers:
            own_row = (wanted_readers.c.game_key == each.game_key) & (wanted_readers.c.principal == each.principal)
            values = {"access_operation_id": operation_id, "problem": problem}
            connection.execute(update(wanted_readers).where(own_row).values(values))


def read_taken_back(engine: Engine) -> list[WantedReader]:
    """Return the readers whose onboarding was undone."""
    undone = wanted_readers.join(operations, operations.c.undoes == wanted_readers.c.operation_id)
    query = select(*_COLUMNS).select_from(undone).where(operations.c.state == "succeeded")
    with engine.connect() as connection:
        return [WantedReader(*row) for row in connection.execute(query)]


def forget(engine: Engine, readers: Sequence[WantedReader]) -> None:
    """Remove readers who are not wanted any more."""
    with writing(engine) as connection:
        for each in readers:
            own_row = (wanted_readers.c.game_key == each.game_key) & (wanted_readers.c.principal == each.principal)
            is_same = wanted_readers.c.operation_id == each.operation_id
            connection.execute(delete(wanted_readers).where(own_row & is_same))
