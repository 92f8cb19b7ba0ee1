"""What is kept of the sources of ingest: which generation reads which, what it was when it was read, accepted gaps."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, Engine, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.base.errors import Refused
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import ingest_gaps, ingest_generations, ingest_identities, ingest_parts

_RETIRED: Final = " (until generation "


@dataclass(frozen=True, slots=True)
class Part:
    """What one of the sources that a generation reads together was, when it was last looked at."""

    source: str  # as one line
    source_id: str | None
    partitions: int | None
    source_clock: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """What one generation reads, as it was recorded before its first row."""

    generation: int
    source_id: str | None  # of the topic or the landing table; None: could not be looked at
    partitions: int | None  # of the topic; None for a landing table, or when it could not be looked at
    bronze_id: str
    since_seq: int  # every bronze row of this generation has a larger seq
    start: (
        str | None
    )  # where it begins, see `pipeline/data/ingest/identity.py`; None: where Spark takes the setting to be
    actor: str | None = None  # who adopted the source; None for a first start
    source_clock: str | None = None  # whose time records have: broker, producer or landing; None: not known
    parts: tuple[Part, ...] = ()  # of a generation that reads several sources: source_id and partitions are theirs


_COLUMNS: Final = tuple(name for name in Identity.__slots__ if name != "parts")


@dataclass(frozen=True, slots=True)
class AcceptedGap:
    """Something a source no longer had when a person let ingest go on without it."""

    generation: int  # the one that goes on behind the gap
    source: str
    partition: int | None  # None for the landing table
    first: int  # offset or commit
    last: int | None  # None: nobody can know how far it went
    reason: str
    actor: str
    accepted_at: float  # Unix seconds


def generation(engine: Engine, source: str) -> int | None:
    """Return the number of the generation that reads this source, None when it was never read."""
    table = ingest_generations
    with engine.connect() as connection:
        number = connection.scalar(select(table.c.generation).where(table.c.source == source))
        return None if number is None else int(number)


def open_generation(engine: Engine, source: str, number: int | None = None) -> int:
    """Return the number of the generation that reads this source, at its first start this one; None: the next one."""
    known = generation(engine, source)
    if known is not None:
        return known
    with writing(engine) as connection:
        return _insert_generation(connection, source, number)


def generations(engine: Engine) -> list[tuple[int, str, str | None]]:
    """Return number, source and the source's id of every generation there ever was; the id is None when unknown."""
    table, known = ingest_generations, ingest_identities
    query = select(table.c.generation, table.c.source, known.c.source_id)
    with engine.connect() as connection:
        joined = query.outerjoin_from(table, known, table.c.generation == known.c.generation)
        return [(number, source, source_id) for number, source, source_id in connection.execute(joined)]


def has_parts(engine: Engine) -> bool:
    """Return whether a generation ever read several sources."""
    with engine.connect() as connection:
        return connection.scalar(select(ingest_parts.c.generation).limit(1)) is not None


def identity(engine: Engine, number: int) -> Identity | None:
    """Return what a generation's source was when it was last looked at; None when that was never recorded."""
    query = select(*(ingest_identities.c[name] for name in _COLUMNS))
    of_parts = select(*(ingest_parts.c[name] for name in Part.__slots__)).order_by(ingest_parts.c.source)
    with engine.connect() as connection:
        row = connection.execute(query.where(ingest_identities.c.generation == number)).one_or_none()
        if row is None:
            return None
        found = connection.execute(of_parts.where(ingest_parts.c.generation == number))
        return replace(Identity(*row), parts=tuple(Part(*each) for each in found))


def identities(engine: Engine) -> list[Identity]:
    """Return what the source of each generation was when it was last looked at, without parts, the oldest first."""
    query = select(*(ingest_identities.c[name] for name in _COLUMNS)).order_by(ingest_identities.c.generation)
    with engine.connect() as connection:
        return [Identity(*row) for row in connection.execute(query)]


def sources_of(engine: Engine) -> list[tuple[int, str, str | None]]:
    """Return number, source and the source's id for each source that a generation reads, alone or with others."""
    query = select(ingest_parts.c.generation, ingest_parts.c.source, ingest_parts.c.source_id)
    with engine.connect() as connection:
        parts = [(number, source, source_id) for number, source, source_id in connection.execute(query)]
    several = {number for number, _, _ in parts}
    return [each for each in generations(engine) if each[0] not in several] + parts


def bronze_id(engine: Engine) -> str | None:
    """Return the id of the bronze table that ingest writes to, None when none was ever recorded."""
    newest = select(ingest_identities.c.bronze_id).order_by(ingest_identities.c.generation.desc()).limit(1)
    with engine.connect() as connection:
        newest_id: str | None = connection.scalar(newest)
        return newest_id


def newest_clock(connection: Connection) -> str | None:
    """Return whose time the records of the source have that was looked at last; None when that is not known."""
    newest = select(ingest_identities.c.source_clock).order_by(ingest_identities.c.recorded_at.desc()).limit(1)
    clock: str | None = connection.scalar(newest)
    return clock


def record_identity(engine: Engine, new: Identity) -> None:
    """Keep what a generation's source is, before anything of it is read; what was kept before is replaced."""
    with writing(engine) as connection:
        _record(connection, new)


def replace_generation(
    engine: Engine,
    source: str,
    before: int,
    new: Identity,
    gaps: Sequence[AcceptedGap],
    others: Sequence[int] = (),
    number: int | None = None,
) -> int:
    """Give a source a new generation, with its identity and the gaps before it, in one transaction.

    It has this number; None: the next one.

    The generation numbers in `found` and `gaps` are set here. The generations `others`, which have read the same
    sources in another set, are retired.

    Raises:
        Refused: another process has just replaced the generation.
    """
    table = ingest_generations
    retired = f"{source}{_RETIRED}{before} was replaced)"
    as_read = (table.c.generation == before) & (table.c.source == source)
    try:
        with writing(engine) as connection:
            if not connection.execute(update(table).where(as_read).values(source=retired)).rowcount:
                raise Refused("Another process adopted this source just now. Start ingest.")
            for other in others:
                text = connection.scalar(select(table.c.source).where(table.c.generation == other))
                if text is not None and _RETIRED not in text:
                    ended = f"{text}{_RETIRED}{other} was replaced)"
                    connection.execute(update(table).where(table.c.generation == other).values(source=ended))
            number = _insert_generation(connection, source, number)
            _record(connection, replace(new, generation=number))
            for gap in gaps:
                connection.execute(ingest_gaps.insert().values({**asdict(gap), "generation": number}))
    except IntegrityError as error:
        raise Refused("Another process adopted this source just now. Start ingest.") from error
    return number


def is_of(text: str, source: str) -> bool:
    """Return whether a generation's text names this source, also when the generation was replaced."""
    return text == source or text.startswith(f"{source}{_RETIRED}")


def source_of(text: str) -> str:
    """Return the source that a generation's text names, also when the generation was replaced."""
    return text.partition(_RETIRED)[0]


def accepted_gaps(engine: Engine) -> list[AcceptedGap]:
    """Return every accepted gap, oldest first."""
    query = select(*(ingest_gaps.c[name] for name in AcceptedGap.__slots__)).order_by(ingest_gaps.c.gap_id)
    with engine.connect() as connection:
        return [AcceptedGap(*row) for row in connection.execute(query)]


def gaps_with_seqs(engine: Engine) -> list[tuple[AcceptedGap, int]]:
    """Return every accepted gap, oldest first, with the last seq before ingest went on behind it."""
    found = []
    for gap in accepted_gaps(engine):
        known = identity(engine, gap.generation)
        if known is not None:
            found.append((gap, known.since_seq))
    return found


def _record(connection: Connection, new: Identity) -> None:
    values: dict[str, Any] = {name: getattr(new, name) for name in _COLUMNS} | {"recorded_at": time.time()}
    table = ingest_identities
    own_row = table.c.generation == new.generation
    if not connection.execute(update(table).where(own_row).values(values)).rowcount:
        connection.execute(table.insert().values(values))
    connection.execute(delete(ingest_parts).where(ingest_parts.c.generation == new.generation))
    for part in new.parts:
        connection.execute(ingest_parts.insert().values({**asdict(part), "generation": new.generation}))


def _insert_generation(connection: Connection, source: str, number: int | None) -> int:
    table = ingest_generations
    if number is None:
        number = int(connection.scalar(select(func.max(table.c.generation))) or 0) + 1
    connection.execute(table.insert().values(generation=number, source=source, created_at=time.time()))
    return number
