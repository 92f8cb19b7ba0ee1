"""What games wait for, and how the registries that must answer it stand.

Written by the threads that ask registries; read by them, by drivers for a game's cause, by pages and commands.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, case, delete, func, insert, not_, select, update

from pipeline.base.names import GameKey
from pipeline.store.database.engine import writing
from pipeline.store.database.states import RegistryState
from pipeline.store.database.tables import registrations, registry_states, schema_needs
from pipeline.store.writers import lock

MOST_NEEDS: Final = 1000
"""Most open needs of one game; its further rows report theirs again once these are answered."""

READ_SECONDS: Final = 300.0
"""How long a game may take to read its rows again; its later schemas are registered then."""

_IN_ORDER: Final = (schema_needs.c.seq, schema_needs.c.pos, schema_needs.c.writer)
_WRITERS_PER_QUERY: Final = 500  # databases limit the parameters of a statement
_OK_SECONDS: Final = 60.0  # between two notes that a registry still answers


@dataclass(frozen=True, slots=True)
class OpenNeed:
    """A writer that a game waits for."""

    registry: str  # a generation of it
    writer: bytes  # with its index path where it has one
    game_key: GameKey
    game: str
    wanted_at: float  # when it was first reported, Unix seconds
    seq: int  # of the first row that needs it,
    pos: int  # and its place there
    asked_at: float | None = None  # when its registry answered last; None: it has not yet
    absences: int = 0  # answers that the registry has no such schema
    absent_since: float | None = None  # the first of them
    answer: str | None = None  # the last one, a sentence
    again: bool = False  # its registry is asked even where the writer is refused


@dataclass(frozen=True, slots=True)
class NeedCount:
    """How many writers of one registry a game waits for."""

    registry: str
    game_key: GameKey
    game: str
    writers: int
    since: float  # the oldest of them, Unix seconds


@dataclass(frozen=True, slots=True)
class RegistryHealth:
    """How a generation of a registry stands."""

    registry: str
    state: RegistryState
    since: float
    detail: str | None  # a sentence; None where it is ok
    checked_at: float
    retry_at: float | None = None  # when it is asked again; None: when a row needs it


def write_needs(engine: Engine, needs: Iterable[OpenNeed]) -> None:
    """Add needs; an open one only takes over `again`, and the place of an earlier row.

    One of a message that rows say they are takes the place, in the order of needs, of the one that they were read for.
    """
    in_order = sorted(needs, key=lambda each: (each.seq, each.pos), reverse=True)
    wanted = {(each.registry, each.writer, each.game_key): each for each in in_order}  # of each that of the first row
    if not wanted:
        return
    table = schema_needs
    with writing(engine) as connection:
        lock(connection)
        connection.execute(delete(table).where(_has_read_again(max(each.wanted_at for each in wanted.values()))))
        names = ("registry", "writer", "game_key", "seq", "pos", "again", "wanted_at", "reads_again_at")
        rows = connection.execute(select(*(table.c[name] for name in names))).all()
        held = {(row.registry, bytes(row.writer), row.game_key): row for row in rows}
        reading = [
            ((row.registry, bytes(row.writer), row.game_key), row.wanted_at)
            for row in rows
            if row.reads_again_at is not None
        ]
        room = {key: MOST_NEEDS - number for key, number in Counter(key for _, _, key in held).items()}
        new = []
        for own, need in wanted.items():
            if (row := held.get(own)) is not None:
                seq, pos = min((row.seq, row.pos), (need.seq, need.pos))
                values = {"seq": seq, "pos": pos, "again": int(need.again or row.again)}
                if (row.seq, row.pos, row.again) != tuple(values.values()):
                    connection.execute(update(table).where(*_same(own)).values(values))
            elif (left := room.setdefault(need.game_key, MOST_NEEDS)) > 0:
                room[need.game_key] = left - 1
                read_for = [each for each in reading if _is_message_of(own, each[0])]
                since = min([need.wanted_at, *(at for _, at in read_for)])
                for ended, _ in read_for:
                    connection.execute(delete(table).where(*_same(ended)))
                new.append(asdict(need) | {"again": int(need.again), "wanted_at": since})
        if new:
            connection.execute(insert(table), new)


def _same(own: tuple[str, bytes, str]) -> Iterator[ColumnElement[bool]]:
    columns = (schema_needs.c.registry, schema_needs.c.writer, schema_needs.c.game_key)
    return (column == value for column, value in zip(columns, own, strict=True))


def _has_read_again(now: float) -> ColumnElement[bool]:
    """Return whether the time to read rows again is over, or began in the future: the clock was set back."""
    at = schema_needs.c.reads_again_at
    return (at <= now - READ_SECONDS) | (at > now)


def _is_message_of(own: tuple[str, bytes, str], read: tuple[str, bytes, str]) -> bool:
    """Return whether a need is of one message of the id that its game's rows are read again for."""
    return (own[0], own[2]) == (read[0], read[2]) and own[1].startswith(read[1])


def read_needs(connection: Connection, registry: str | None = None) -> list[OpenNeed]:
    """Return the open needs in the order of the first rows that need them; of one registry, or all."""
    table = schema_needs
    query = select(table).where(table.c.reads_again_at.is_(None)).order_by(*_IN_ORDER)
    if registry is not None:
        query = query.where(table.c.registry == registry)
    return [_need(**row) for row in connection.execute(query).mappings()]


def count_needs(connection: Connection) -> list[NeedCount]:
    """Count the open needs of each game and registry, oldest first."""
    table = schema_needs
    oldest = func.min(table.c.wanted_at)
    query = select(table.c.registry, table.c.game_key, func.max(table.c.game), func.count(), oldest).where(
        table.c.reads_again_at.is_(None)
    )
    return [
        NeedCount(*row)
        for row in connection.execute(query.group_by(table.c.registry, table.c.game_key).order_by(oldest))
    ]


def needs_of_game(connection: Connection, key: str, most: int) -> list[OpenNeed]:
    """Return the open needs of a game, those of its first rows first."""
    table = schema_needs
    query = select(table).where(table.c.game_key == key, table.c.reads_again_at.is_(None))
    ordered = query.order_by(*_IN_ORDER).limit(most)
    return [_need(**row) for row in connection.execute(ordered).mappings()]


def needs_of(connection: Connection, registry: str, writers: Collection[bytes]) -> list[OpenNeed]:
    """Return the open needs of these writers."""
    table, all_of, found = schema_needs, list(writers), list[OpenNeed]()
    is_open = table.c.reads_again_at.is_(None)
    for start in range(0, len(all_of), _WRITERS_PER_QUERY):
        part = all_of[start : start + _WRITERS_PER_QUERY]
        query = select(table).where(table.c.registry == registry, table.c.writer.in_(part), is_open)
        found += (_need(**row) for row in connection.execute(query).mappings())
    return found


def needs_of_games(connection: Connection, registry: str, keys: Collection[GameKey]) -> list[OpenNeed]:
    """Return the open needs of these games in the order of the first rows that need them."""
    table = schema_needs
    query = select(table).where(table.c.registry == registry, table.c.game_key.in_(list(keys)))
    ordered = query.where(table.c.reads_again_at.is_(None)).order_by(*_IN_ORDER)
    return [_need(**row) for row in connection.execute(ordered).mappings()]


def first_elsewhere(connection: Connection, registry: str, keys: Collection[GameKey]) -> dict[GameKey, tuple[int, int]]:
    """Return, of games without a schema, the place of the first row that waits for another registry.

    That row decides the game's event type, so what rows after it need waits with it.
    """
    table = schema_needs
    has_schema = select(registrations.c.game_key).where(registrations.c.game_key == table.c.game_key).exists()
    theirs = (table.c.registry != registry, table.c.game_key.in_(list(keys)), table.c.again == 0, ~has_schema)
    rows = connection.execute(select(table.c.game_key, table.c.seq, table.c.pos).where(*theirs).order_by(*_IN_ORDER))
    found: dict[GameKey, tuple[int, int]] = {}
    for row in rows:
        found.setdefault(GameKey(row.game_key), (row.seq, row.pos))
    return found


def games_that_read_again(connection: Connection, now: float) -> set[GameKey]:
    """Return the games whose rows are read once more, to say which of several messages they are."""
    table = schema_needs
    reading = table.c.reads_again_at.is_not(None), not_(_has_read_again(now))
    return {GameKey(key) for key in connection.scalars(select(table.c.game_key).where(*reading))}


def read_again(connection: Connection, need: OpenNeed, now: float) -> bool:
    """Close an answered need until the rows of its game have said which message they are, for at most `READ_SECONDS`.

    Where they have said it before, end it and return False.
    """
    table = schema_needs
    own = (need.registry, need.writer, need.game_key)
    same = (table.c.registry == need.registry, table.c.game_key == need.game_key)
    writers = map(bytes, connection.scalars(select(table.c.writer).where(*same)))
    if any(each != need.writer and each.startswith(need.writer) for each in writers):
        connection.execute(delete(table).where(*_same(own)))
        return False
    connection.execute(update(table).where(*_same(own)).values(reads_again_at=now))
    return True


def end_needs(connection: Connection, registry: str, writers: Collection[bytes], key: GameKey | None = None) -> None:
    """Forget needs that were answered; of one game, or all."""
    table, ended = schema_needs, list(writers)
    for start in range(0, len(ended), _WRITERS_PER_QUERY):
        part = ended[start : start + _WRITERS_PER_QUERY]
        ours = [table.c.registry == registry, table.c.writer.in_(part)]
        if key is not None:
            ours.append(table.c.game_key == key)
        connection.execute(delete(table).where(*ours))


def note_answer(connection: Connection, registry: str, writer: bytes, answer: str, now: float, *, absent: bool) -> None:
    """Keep the last answer about a writer that its games go on to wait for.

    A first absence of the future, as the clock was set back, begins again.
    """
    table = schema_needs
    values: dict[str, object] = {"asked_at": now, "answer": answer}
    if absent:
        first = case((table.c.absent_since <= now, table.c.absent_since), else_=now)
        values |= {"absences": table.c.absences + 1, "absent_since": first}
    own = (table.c.registry == registry, table.c.writer == writer)
    connection.execute(update(table).where(*own).values(values))


def read_states(connection: Connection) -> dict[str, RegistryHealth]:
    """Return how each registry stands that was ever asked."""
    rows = connection.execute(select(registry_states)).mappings()
    return {row["registry"]: RegistryHealth(**row) for row in rows}


def write_state(connection: Connection, health: RegistryHealth) -> None:
    """Keep how a registry stands, under the lock: since when is kept, and only a person ends mistrust."""
    table = registry_states
    held = connection.execute(select(table).where(table.c.registry == health.registry)).first()
    values: dict[str, Any] = asdict(health)
    if held is None:
        connection.execute(insert(table).values(values))
        return
    if held.state == health.state == "ok" and 0 <= health.checked_at - held.checked_at < _OK_SECONDS:
        return
    if held.state == "mistrusted":
        values |= {"state": held.state, "detail": held.detail, "retry_at": None}
    if held.state == values["state"]:
        values["since"] = held.since
    connection.execute(update(table).where(table.c.registry == health.registry).values(values))


def trust_again(engine: Engine, registry: str, now: float, since: float | None = None) -> bool:
    """End the mistrust of a registry, as a person has decided; return False where there was none.

    `since` is when the mistrust began that the person saw; None: whichever there is.
    """
    table = registry_states
    with writing(engine) as connection:
        lock(connection)
        query = update(table).where(table.c.registry == registry, table.c.state == "mistrusted")
        if since is not None:
            query = query.where(table.c.since == since)
        return bool(connection.execute(query.values(state="ok", since=now, detail=None, retry_at=None)).rowcount)


def _need(*, writer: bytes, again: int, reads_again_at: None, **values: object) -> OpenNeed:  # noqa: ARG001 - a column
    return OpenNeed(writer=bytes(writer), again=bool(again), **values)  # type: ignore[arg-type]  # the table's types
