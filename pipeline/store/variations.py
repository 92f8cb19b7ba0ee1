"""The variations of undeclared JSON: what documents of an event type had beyond those before. No values of users.

Written in the transaction of the registration that opened their columns. Counts and last times are statistics that no
decision reads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Connection, Engine, Select, case, cast, func, insert, select, update

from pipeline.store.database.engine import reading, writing
from pipeline.store.database.tables import variations

MOST_FORM_BYTES: Final = 4096
"""Most bytes of a variation's form in the store."""


@dataclass(frozen=True, slots=True)
class Variation:
    """What one document, the first of its kind, had beyond all before it."""

    game_key: str
    type: str  # empty: the profile of its source has no path for one
    fingerprint: str
    form: str  # a line for each fact, as `path:kind`, below the version of the rules; see `bounded_form`
    facts: int
    first_seq: int
    first_pos: int
    first_seen: float  # when bronze had that document, Unix seconds
    last_seen: float  # when a row of its schema landed last, or a registration read one
    count: int  # rows that landed by the schema that opened its columns; a statistic
    schema_id: int  # of the superset that opened its columns
    producer: str | None = None


@dataclass(frozen=True, slots=True)
class TypeVariations:
    """How many variations one event type of a game has."""

    game_key: str
    type: str
    variations: int
    first_seen: float  # of the oldest
    newest: float  # when bronze had the first document of the newest
    last_seen: float
    documents: int  # the sum of their counts


def bounded_form(form: str) -> str:
    """Return a form in at most `MOST_FORM_BYTES`; where facts are left out, the last line says how many."""
    if len(form.encode()) <= MOST_FORM_BYTES:
        return form
    lines, kept, size = form.split("\n"), list[str](), 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > MOST_FORM_BYTES - 40:  # room for the last line
            break
        kept.append(line)
    return "\n".join([*kept, f"and {len(lines) - len(kept):,} more"])


def write_variations(connection: Connection, key: str, event_type: str, new: Iterable[Variation]) -> None:
    """Add variations of an event type, under the lock of the store's numbers; a known one keeps its first document."""
    known = set(connection.scalars(select(variations.c.fingerprint).where(*_of(key, event_type))))
    values = [asdict(replace(each, form=bounded_form(each.form))) for each in new if each.fingerprint not in known]
    if values:
        connection.execute(insert(variations), values)


def _of(key: str, event_type: str) -> tuple[ColumnElement[bool], ...]:
    return variations.c.game_key == key, variations.c.type == event_type


def note_rows(engine: Engine, landed: Mapping[tuple[str, int], int], now: float) -> None:
    """Add rows that landed, by game and schema, to the variations that the schema's registration began.

    The first rows stand in place of the documents that the registration read, as they are the same ones.
    """
    table = variations
    with writing(engine) as connection:
        for (key, schema_id), rows in landed.items():
            own = (table.c.game_key == key, table.c.schema_id == schema_id)
            count = case((table.c.last_seen == table.c.first_seen, rows), else_=table.c.count + rows)
            later = case((table.c.last_seen < now, now), else_=table.c.last_seen)
            connection.execute(update(table).where(*own).values(count=count, last_seen=later))


def count_variations(connection: Connection, key: str, event_type: str) -> int:
    """Return how many variations an event type of a game has."""
    query = select(func.count()).where(*_of(key, event_type))
    return connection.scalar(query) or 0


def read_variations(
    engine: Engine, key: str, event_type: str | None = None, *, most: int = 1000
) -> tuple[Variation, ...]:
    """Read the variations of a game, or of one of its event types, the newest first.

    Raises:
        Refused: the control store cannot be read.
    """
    table = variations
    query = select(table).where(table.c.game_key == key)
    if event_type is not None:
        query = query.where(table.c.type == event_type)
    newest = (table.c.first_seq.desc(), table.c.first_pos.desc(), table.c.type, table.c.fingerprint)
    with reading(), engine.connect() as connection:
        return tuple(Variation(**row) for row in connection.execute(query.order_by(*newest).limit(most)).mappings())


def count_types(engine: Engine, key: str | None = None) -> tuple[TypeVariations, ...]:
    """Count the variations of each event type of a game, or of all games, in the order of key and type.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading(), engine.connect() as connection:
        return tuple(TypeVariations(**row) for row in connection.execute(_counts(key)).mappings())


def _counts(key: str | None) -> Select[Any]:
    table = variations
    found = select(
        table.c.game_key,
        table.c.type,
        func.count().label("variations"),
        func.min(table.c.first_seen).label("first_seen"),
        func.max(table.c.first_seen).label("newest"),
        func.max(table.c.last_seen).label("last_seen"),
        cast(func.sum(table.c.count), BigInteger).label("documents"),
    )
    by_type = found.group_by(table.c.game_key, table.c.type).order_by(table.c.game_key, table.c.type)
    return by_type if key is None else by_type.where(table.c.game_key == key)
