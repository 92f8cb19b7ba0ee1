"""The numbers of schema sets, and the rows of writers and profiles that have them.

Registrations, writers, profiles and output contracts share one sequence, so one number names all that a pass pins. Rows
are added, never changed. Callers of the `write_` functions hold the lock until their transaction ends.
"""

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, Engine, Row, func, insert, select, text

from pipeline.store.database.engine import writing
from pipeline.store.database.tables import output_contracts, profiles, registrations, writers

_BEHIND_ALL_PATHS: Final = b"\xff" * 8  # a count of steps comes first, which is far below it
_ORIGINS: Final = (  # what no two rows have in common, with the number of each
    (registrations.c.created_at, registrations.c.registration_id),
    (registrations.c.game_key, registrations.c.registration_id),
    (registrations.c.schema_id, registrations.c.registration_id),
    (writers.c.created_at, writers.c.number),
    (writers.c.writer, writers.c.number),
    (profiles.c.created_at, profiles.c.number),
    (profiles.c.fingerprint, profiles.c.number),
    (output_contracts.c.applied_at, output_contracts.c.number),
    (output_contracts.c.contracts, output_contracts.c.number),
)
_MARK_DIGITS: Final = 16
_NUMBERS: Final = (registrations.c.registration_id, writers.c.number, profiles.c.number, output_contracts.c.number)


@dataclass(frozen=True, slots=True)
class WriterRow:
    """What a registry answered about a writer; one of schema_id, refused and indexed says what it means."""

    registry: str  # a generation of it
    writer: bytes  # its id as on the wire, then the index path where it has one
    schema_id: int | None = None
    refused: str | None = None
    indexed: bool = False
    fingerprint: str | None = None  # of what the registry answered; None: it gave no usable schema
    # Where the schema stands in the registry, which says nothing of what it is; None: not known
    subject: str | None = field(default=None, compare=False)
    version: int | None = field(default=None, compare=False)


def lock(connection: Connection) -> None:
    """Make numbers visible in their order only, or a pinned schema set could still grow; call it first."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE registrations IN SHARE ROW EXCLUSIVE MODE"))
    else:  # no other one writes from here on; without it the newest number could be read before another takes it
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def latest_number(connection: Connection) -> int:
    """Return the highest number; 0 without any."""
    row = connection.execute(select(*(select(func.max(each)).scalar_subquery() for each in _NUMBERS))).one()
    return max(each or 0 for each in row)


def latest_and_mark(connection: Connection, number: int) -> tuple[int, str]:
    """Return the highest number, and the mark of a number; both by one statement.

    The mark tells a schema set from one with the same number in another copy of the store; it is empty for 0. Rows are
    only added, so the row of its number says it of all before.
    """
    highest = [select(func.max(each)).scalar_subquery() for each in _NUMBERS]
    marks = [select(column).where(own == number).scalar_subquery() for column, own in _ORIGINS]
    row = connection.execute(select(*highest, *marks)).one()
    origin = [bytes(each) if isinstance(each, memoryview) else each for each in row[len(highest) :]]
    mark = "" if all(each is None for each in origin) else hashlib.sha256(repr(origin).encode()).hexdigest()
    return max(each or 0 for each in row[: len(highest)]), mark[:_MARK_DIGITS]


def write_writers(connection: Connection, rows: Iterable[WriterRow], now: float) -> None:
    """Add rows under the next numbers."""
    number = latest_number(connection)
    values = [
        {
            "number": number + place,
            "registry": row.registry,
            "writer": row.writer,
            "schema_id": row.schema_id,
            "refused": row.refused,
            "indexed": int(row.indexed),
            "fingerprint": row.fingerprint,
            "subject": row.subject,
            "version": row.version,
            "created_at": now,
        }
        for place, row in enumerate(rows, start=1)
    ]
    if values:
        connection.execute(insert(writers), values)


def read_writers(connection: Connection, above: int, up_to: int) -> list[WriterRow]:
    """Return the rows with a number in (above, up_to], in their order."""
    query = select(writers).where(writers.c.number > above, writers.c.number <= up_to).order_by(writers.c.number)
    return [_writer(row) for row in connection.execute(query)]


def newest_writers(connection: Connection, registry: str, ids: Iterable[bytes]) -> dict[bytes, WriterRow]:
    """Return the rows that count of these writers."""
    found = {}
    for each in ids:
        query = select(writers).where(writers.c.registry == registry, writers.c.writer == each)
        row = connection.execute(query.order_by(writers.c.number.desc()).limit(1)).first()
        if row is not None:
            found[each] = _writer(row)
    return found


def rows_of_paths(connection: Connection, registry: str, writer: bytes) -> list[WriterRow]:
    """Return the rows that count of an id's index paths."""
    own = (writers.c.registry == registry, writers.c.writer > writer, writers.c.writer < writer + _BEHIND_ALL_PATHS)
    rows = connection.execute(select(writers).where(*own).order_by(writers.c.number))
    return list({bytes(row.writer): _writer(row) for row in rows}.values())


def writers_of(connection: Connection, schema_ids: Iterable[int], most: int) -> list[WriterRow]:
    """Return the newest writers that mean one of these schemas; what a writer means never changes afterwards."""
    query = select(writers).where(writers.c.schema_id.in_(list(schema_ids))).order_by(writers.c.number.desc())
    return [_writer(row) for row in connection.execute(query.limit(most))]


def count_writers(connection: Connection) -> dict[str, int]:
    """Return how many answers of each registry are kept."""
    query = select(writers.c.registry, func.count()).group_by(writers.c.registry)
    return {row[0]: row[1] for row in connection.execute(query)}


def sampled_writer(connection: Connection, registry: str, place: int) -> bytes | None:
    """Return one writer whose schema its registry gave, by its place among all, which wraps; None without any."""
    own = (writers.c.registry == registry, writers.c.fingerprint.is_not(None))
    number = connection.scalar(select(func.count()).select_from(writers).where(*own)) or 0
    if not number:
        return None
    query = select(writers.c.writer).where(*own).order_by(writers.c.number).offset(place % number).limit(1)
    found = connection.scalar(query)
    return None if found is None else bytes(found)


def newest_refused(connection: Connection, registry: str, most: int) -> list[bytes]:
    """Return the writers of a registry that are refused, those that were refused last first."""
    later = writers.alias()
    is_later = (
        later.c.registry == writers.c.registry,
        later.c.writer == writers.c.writer,
        later.c.number > writers.c.number,
    )
    query = select(writers.c.writer).where(
        writers.c.registry == registry,
        writers.c.refused.is_not(None),
        ~select(later.c.number).where(*is_later).exists(),
    )
    return [bytes(each) for each in connection.scalars(query.order_by(writers.c.number.desc()).limit(most))]


def read_profiles(connection: Connection, above: int, up_to: int) -> dict[int, str]:
    """Return the definitions of the profiles with a number in (above, up_to]."""
    query = select(profiles.c.number, profiles.c.definition)
    rows = connection.execute(query.where(profiles.c.number > above, profiles.c.number <= up_to))
    return {row.number: row.definition for row in rows}


def number_of_definition(engine: Engine, definition: str, above: int = 0) -> int:
    """Return the number of a profile by its canonical JSON, giving it one the first time, above the given number."""
    fingerprint = hashlib.sha256(definition.encode()).hexdigest()
    query = select(profiles.c.number).where(profiles.c.fingerprint == fingerprint)
    with engine.connect() as connection:
        number = connection.scalar(query)
    if number is None:
        with writing(engine) as connection:
            lock(connection)
            number = connection.scalar(query)
            if number is None:
                number = max(above, latest_number(connection)) + 1
                values = {"fingerprint": fingerprint, "definition": definition, "created_at": time.time()}
                connection.execute(insert(profiles).values(number=number, **values))
    return int(number)


def _writer(row: "Row[tuple[object, ...]]") -> WriterRow:
    place = row.subject, row.version
    indexed = bool(row.indexed)
    return WriterRow(row.registry, bytes(row.writer), row.schema_id, row.refused, indexed, row.fingerprint, *place)
