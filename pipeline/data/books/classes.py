"""Puts each bronze row of a game on its day and into its class, by one scan for all days, in a temporary database.

DuckDB holds a bounded part of it in memory and spills the rest. Nothing here writes to an environment.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Transient, first_line
from pipeline.data.books.days import MICROS, NONE, Sums
from pipeline.data.books.hashing import MEMORY, hashed, reader
from pipeline.data.books.tables import ReadTables, types_of
from pipeline.lake.delta.files import files_with
from pipeline.lake.delta.scratch import Database, DatabaseError, scratch
from pipeline.lake.storage.location import Location
from pipeline.settings.books import BooksSettings

_DAY: Final = 86_400
_TIME: Final = pa.timestamp("us", "UTC")

_BRONZE: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("pos", pa.int32()),
        ("game_key", pa.string()),
        ("game", pa.string()),
        ("refused", pa.string()),
        ("event_time", _TIME),
        ("source_time", _TIME),
        ("ingest_time", _TIME),
    ]
)
_LANDED: Final = pa.schema([("_seq", pa.int64()), ("_pos", pa.int32()), ("_type", pa.string())])
_KEPT: Final = pa.schema([("_seq", pa.int64()), ("_pos", pa.int32())])
_QUARANTINE: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("pos", pa.int32()),
        ("game_key", pa.string()),
        ("game", pa.string()),
        ("reason", pa.string()),
    ]
)

_TABLES: Final = """
CREATE TABLE events (seq BIGINT, pos INTEGER, day BIGINT, untimed BOOLEAN, astray BOOLEAN);
CREATE TABLE landed (seq BIGINT, pos INTEGER, type VARCHAR);
CREATE TABLE kept (silver INTEGER, seq BIGINT, pos INTEGER);
CREATE TABLE held (seq BIGINT, pos INTEGER);
CREATE TABLE types (type VARCHAR, silver INTEGER);
CREATE TABLE days (day BIGINT, closing BIGINT);
"""
_EVENTS: Final = """
INSERT INTO events
SELECT seq, pos, (moment - ((moment % $day) + $day) % $day), event IS NULL, astray
FROM (
    SELECT *, CASE WHEN event IS NULL OR astray THEN base ELSE event END AS moment
    FROM (
        SELECT *, coalesce(event > base + $ahead OR event < base - $behind, false) AS astray
        FROM (
            SELECT seq, pos, epoch_us(event_time) AS event,
                coalesce(epoch_us(source_time), epoch_us(ingest_time), 0) AS base
            FROM rows
        )
    )
)
"""
# A row is in the first class that fits; `lost` and `doubled` are faults, not classes. The number is `PLACES`.
_CLASSES: Final = """
CREATE TABLE places AS
SELECT events.*,
    CASE WHEN landed.copies IS NULL AND held.seq IS NULL THEN 'lost'
        WHEN landed.copies IS NULL THEN 'refused'
        WHEN types.silver IS NOT NULL AND kept.seq IS NULL THEN 'duplicate'
        WHEN events.seq > days.closing THEN 'late'
        ELSE 'accepted' END AS class,
    coalesce(landed.copies > 1, false) AS doubled,
    CASE WHEN landed.copies IS NOT NULL AND types.silver IS NULL THEN coalesce(landed.type, '') END AS untold,
    (md5_number_lower(events.seq || '/' || events.pos) % 4611686018427387904::UBIGINT)::BIGINT AS place
FROM events JOIN days USING (day)
LEFT JOIN (SELECT seq, pos, any_value(type) AS type, count(*) AS copies FROM landed GROUP BY seq, pos) AS landed
    ON landed.seq = events.seq AND landed.pos = events.pos
LEFT JOIN types ON types.type = landed.type
LEFT JOIN (SELECT DISTINCT * FROM kept) AS kept
    ON kept.silver = types.silver AND kept.seq = events.seq AND kept.pos = events.pos
LEFT JOIN (SELECT DISTINCT seq, pos FROM held) AS held ON held.seq = events.seq AND held.pos = events.pos
"""
_COUNTS: Final = """
SELECT day,
    count(*) FILTER (class = 'refused'), count(*) FILTER (class = 'duplicate'), count(*) FILTER (class = 'late'),
    count(*) FILTER (class = 'accepted'),
    (coalesce(sum(place::HUGEINT) FILTER (class = 'accepted'), 0) % 4611686018427387904)::BIGINT,
    count(*) FILTER (class = 'lost'), count(*) FILTER (doubled), count(*) FILTER (untimed), count(*) FILTER (astray),
    min(seq), max(seq), list(DISTINCT untold) FILTER (untold IS NOT NULL)
FROM places GROUP BY day ORDER BY day
"""
_ACCEPTED: Final = "(_seq, _pos) IN (SELECT (seq, pos) FROM places WHERE day = {day} AND class = 'accepted')"


@dataclass(frozen=True, slots=True)
class DayCounts:
    """One day as its rows are classified now."""

    day: int  # its begin, microseconds since 1970
    sums: Sums = NONE
    lost: int = 0  # rows of bronze that are neither in the game's table nor in quarantine
    doubled: int = 0  # rows of bronze that are in the game's table more than once
    without_event_time: int = 0
    clock_errors: int = 0
    first_seq: int = 0
    last_seq: int = 0
    untold: tuple[str, ...] = ()  # event types of its rows without a silver table; empty: the type is not known

    @property
    def rows(self) -> int:
        """All rows of bronze that count on it."""
        return self.sums.rows + self.lost


class Classified:
    """The classified rows of one game, while the database is open."""

    def __init__(self, database: Database, tables: ReadTables, place: Location, days: Mapping[int, DayCounts]) -> None:
        """Wrap them; use `classified`."""
        self._database, self._tables, self._place, self.days = database, tables, place, days

    @property
    def columns(self) -> pa.Schema:
        """The columns of the game's table, which accepted rows have."""
        return pa.schema(self._tables.table.schema().to_arrow())

    def accepted(self, day: int) -> Iterator[tuple[pa.Table, Sequence[str]]]:
        """Yield the accepted rows of a day by seq and pos, with the hash of each, as many at once as a file has."""
        counts = self.days.get(day) or DayCounts(day)
        seqs = range(counts.first_seq, counts.last_seq + 1)
        files = files_with(self._tables.table, self._place, "_seq", seqs)
        with _readable():
            rows, which = reader(files, self.columns), _ACCEPTED.format(day=day)
            yield from hashed(self._database, rows, self.columns, which)


@contextmanager
def classified(
    tables: ReadTables, place: Location, settings: BooksSettings, day_seconds: int, closing: Callable[[int], int | None]
) -> Iterator[Classified]:
    """Classify the rows of a game.

    Args:
        tables: the versions to read.
        place: the folder of the game's table.
        settings: which event times are clock errors.
        day_seconds: the length of a day.
        closing: returns the closing seq of a day by its begin in microseconds; None: not known yet, no row is late.

    Raises:
        Transient: a file left a table while it was read.
    """
    times = {
        "day": day_seconds * MICROS, "ahead": settings.ahead_seconds * MICROS,
        "behind": settings.behind_days * _DAY * MICROS,
    }  # fmt: skip
    with scratch("books", MEMORY, threads=1, on_disk=True, ordered=False) as database:
        with _readable():
            database.execute("SET TimeZone = 'UTC'")
            database.execute(_TABLES)
            _fill(database, tables.bronze, _BRONZE, _EVENTS, tables.of_game, times)
            _fill(database, tables.files, _LANDED, "INSERT INTO landed SELECT _seq, _pos, _type FROM rows")
            for number, each in enumerate(tables.silvers):
                kept = "INSERT INTO kept SELECT $silver, _seq, _pos FROM rows"
                _fill(database, each.files, _KEPT, kept, values={"silver": number})
            held = "INSERT INTO held SELECT seq, pos FROM rows"
            _fill(database, tables.quarantine, _QUARANTINE, held, tables.of_quarantine)
            for name, number in types_of(tables).items():
                database.execute("INSERT INTO types VALUES (?, ?)", [name, number])
            for (day,) in database.execute("SELECT DISTINCT day FROM events").fetchall():
                database.execute("INSERT INTO days VALUES (?, ?)", [day, closing(day)])
            database.execute(_CLASSES)
            found = [_counts(row) for row in database.execute(_COUNTS).fetchall()]
        yield Classified(database, tables, place, {each.day: each for each in found})


def _counts(row: Sequence[Any]) -> DayCounts:
    """Return a row of `_COUNTS`."""
    lost, doubled, untimed, astray, first, last, untold = row[6:]
    untold = tuple(sorted(untold or ()))
    return DayCounts(row[0], Sums(*row[1:6]), lost, doubled, untimed, astray, first, last, untold)


def _fill(
    database: Database, files: Sequence[str], columns: pa.Schema, statement: str, wanted: pc.Expression | None = None,
    values: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """Insert rows of files by a statement that reads `rows`."""
    database.register("rows", reader(files, columns, wanted))
    database.execute(statement, values)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (OSError, DatabaseError, pa.ArrowException) as error:
        raise Transient(f"a table cannot be read while its day is classified: {first_line(error)}") from error
