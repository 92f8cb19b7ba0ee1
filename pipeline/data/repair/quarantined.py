"""Reads quarantine as the set it is, without Spark: each place once, without places in the game's table (law L5)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from pipeline.base.errors import Refused, first_line
from pipeline.base.names import GameKey
from pipeline.data.repair.places import PLACES, landed
from pipeline.data.repair.refusals import unreadable
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.files import paths_of, readable
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.scratch import Database, DatabaseError, OutOfMemory, scratch
from pipeline.settings.tree import Paths
from pipeline.store.games import Game

SCHEMA_IDS_SHOWN: Final = 10
_MEMORY_LIMIT: Final = "512MB"  # the rest is spilled to a temporary folder

# Of several rows of one place the newest gives the reason, and the oldest the time of the refusal.
_READ: Final = """
CREATE TABLE refused AS
SELECT game_key, game, seq, pos, reason, schema_id, first_seen FROM (
    SELECT game_key, game, seq, pos, reason, schema_id, min(epoch_us(quarantined_at)) OVER place AS first_seen,
        row_number() OVER newest AS number
    FROM rows
    WINDOW place AS (PARTITION BY game_key, seq, pos),
        newest AS (PARTITION BY game_key, seq, pos ORDER BY quarantined_at DESC, reason)
) WHERE number = 1 AND ($game IS NULL OR game = $game) AND ($reason IS NULL OR reason = $reason)
    AND ($since IS NULL OR first_seen >= $since) AND ($until IS NULL OR first_seen < $until)
"""
_COUNT: Final = """
SELECT game_key, game, reason, count(*) AS rows, min(first_seen), max(first_seen),
    list_sort(list_distinct(list(schema_id)))[:$ids], count(DISTINCT schema_id)
FROM refused GROUP BY game_key, game, reason ORDER BY rows DESC, game_key, game, reason LIMIT $limit
"""
_TOTAL: Final = "SELECT count(*), count(DISTINCT (game_key, game, reason)) FROM refused"
_SHOW: Final = """
WITH chosen AS (SELECT * FROM refused ORDER BY seq DESC, pos DESC, game_key LIMIT $limit)
SELECT chosen.game_key, chosen.game, chosen.seq, chosen.pos, chosen.reason, arg_max(detail, quarantined_at),
    chosen.schema_id, any_value(topic), any_value("partition"), any_value("offset"),
    epoch_us(any_value(source_time)), chosen.first_seen, any_value(octet_length(raw)), any_value(raw[:$bytes])
FROM chosen JOIN rows USING (game_key, seq, pos)
GROUP BY ALL ORDER BY chosen.seq DESC, chosen.pos DESC, chosen.game_key
"""
_BY_SCHEMA: Final = """
SELECT schema_id, named, count(*) FROM (
    SELECT refused.schema_id,
        any_value(CASE WHEN refused.reason = 'other_type' THEN split_part(detail, ' ', 1) END) AS named
    FROM refused JOIN rows USING (game_key, seq, pos) GROUP BY game_key, seq, pos, refused.schema_id
) GROUP BY ALL ORDER BY ALL
"""
_PLACES: Final = """
SELECT DISTINCT seq, pos FROM refused
WHERE game = ? AND coalesce(reason, '') NOT IN (SELECT unnest(?::VARCHAR[]))
"""
_LEAVE_OUT: Final = """
DELETE FROM refused USING gone WHERE refused.game = ? AND refused.seq = gone.seq AND refused.pos = gone.pos
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of quarantined rows; None is no restriction."""

    game: Game | None = None
    reason: str | None = None
    since: datetime | None = None  # first seen at or after
    until: datetime | None = None  # first seen before


@dataclass(frozen=True, slots=True)
class Count:
    """The number of rows of one game that were refused for one reason."""

    game_key: str
    game: str | None  # None: the name could not be read
    reason: str
    rows: int
    first_seen: datetime
    last_seen: datetime
    schema_ids: tuple[int | None, ...]  # at most SCHEMA_IDS_SHOWN of them
    schemas: int  # their number


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """One refused row."""

    game_key: str
    game: str | None
    seq: int
    pos: int
    reason: str
    detail: str | None
    schema_id: int | None
    topic: str | None
    partition: int | None
    offset: int | None
    source_time: datetime | None
    first_seen: datetime
    size: int  # bytes of the wrapper
    raw: bytes  # its beginning


_ROW: Final = tuple(item.name for item in fields(RefusedRow))


def moment(text: str) -> datetime:
    """Parse a moment in ISO 8601; UTC where no zone is given.

    Raises:
        Refused: the text is not a moment.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"{text!r} is not a time; write it like 2026-01-31 or 2026-01-31T12:00:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Quarantined:
    """The refused rows of one selection, as of one moment."""

    def __init__(self, database: Database) -> None:
        """Use `opened`."""
        self._database = database

    def counts(self, limit: int) -> list[Count]:
        """Count the rows by game and reason, largest counts first; at most `limit` counts."""
        counted = self._database.execute(_COUNT, {"ids": SCHEMA_IDS_SHOWN, "limit": limit}).fetchall()
        return [
            Count(key, game, reason, rows, _time(first), _time(last), tuple(ids), schemas)
            for key, game, reason, rows, first, last, ids, schemas in counted
        ]

    def totals(self) -> tuple[int, int]:
        """Return how many rows there are, and how many counts."""
        rows, counts = self._database.execute(_TOTAL).fetchall()[0]
        return int(rows), int(counts)

    def rows(self, limit: int, max_bytes: int) -> list[RefusedRow]:
        """Return the newest rows, at most `limit`, each with at most `max_bytes` of its wrapper."""
        rows = self._database.execute(_SHOW, {"limit": limit, "bytes": max_bytes}).fetchall()
        return [_row(dict(zip(_ROW, values, strict=True))) for values in rows]

    def games(self) -> list[str]:
        """Return the exact names of the rows' games."""
        sql = "SELECT DISTINCT game FROM refused WHERE game IS NOT NULL ORDER BY game"
        return [name for (name,) in self._database.execute(sql).fetchall()]

    def by_schema(self) -> list[tuple[int | None, str | None, int]]:
        """Count the rows by their wrapper's schema id and, where they are of another event type, by their message."""
        return [(number, named, int(rows)) for number, named, rows in self._database.execute(_BY_SCHEMA).fetchall()]

    def places(self, name: str, skipped: Sequence[str] = ()) -> pa.Table:
        """Return the places of a game's rows, without those refused for a reason to skip."""
        columns = self._database.execute(_PLACES, [name, list(skipped)]).fetchnumpy()
        return pa.table({name: pa.array(columns[name]) for name in PLACES.names}).cast(PLACES)

    def leave_out(self, name: str, places: pa.Table) -> None:
        """Remove rows of a game from the selection."""
        self._database.register("gone", places)
        self._database.execute(_LEAVE_OUT, [name])
        self._database.unregister("gone")


@contextmanager
def opened(
    paths: Paths, known: Mapping[str, str], selection: Selection, *, twins: bool = False
) -> Iterator[Quarantined]:
    """Read the selected rows.

    Args:
        paths: where the environment keeps its tables; nothing is written there.
        known: key to exact name of the games whose tables are looked at for twins.
        selection: which rows.
        twins: also those that are in their game's table already.

    Raises:
        Refused: quarantine, or the table of one of these games, cannot be read.
    """
    # The number of threads does not depend on the machine's cores, as each holds rows beyond the limit.
    with scratch("quarantine", _MEMORY_LIMIT, threads=2) as database:
        try:
            if files := _files(paths):
                database.read_parquet(
                    readable(database, files), union_by_name=True, hive_partitioning=False
                ).create_view("written")
                database.register("columns", QUARANTINE.empty_table())  # a file, or each, may be older than a column
                database.execute("CREATE VIEW rows AS FROM written UNION ALL BY NAME FROM columns")
            else:
                database.register("rows", QUARANTINE.empty_table())
            game = selection.game.name if selection.game else None
            span = {"since": _micros(selection.since), "until": _micros(selection.until)}
            database.execute(_READ, {"game": game, "reason": selection.reason, **span})
            result = Quarantined(database)
            if not twins:
                _leave_out_twins(paths, known, result)
            yield result
        except OutOfMemory:
            raise
        except DatabaseError as error:  # DuckDB raises several classes for a damaged file
            raise Refused(
                f"Quarantine cannot be read: {first_line(error)}. Restore its damaged file, then try again."
            ) from error


def _files(paths: Paths) -> Sequence[str]:
    """Return the data files of quarantine for DuckDB to read by itself.

    Not a dataset of delta-rs: its files are Python's, so that DuckDB's threads wait for Arrow's and those for the
    interpreter's lock, which deadlocked on a starved machine; and its read-ahead does not count towards the limit.
    """
    try:
        return paths_of(open_table(paths.quarantine), "Quarantine")
    except TableNotFoundError:
        return []
    except DeltaError as error:
        raise Refused(
            f"Quarantine cannot be opened: {first_line(error)}. Repair its Delta log, then try again."
        ) from error


def _leave_out_twins(paths: Paths, known: Mapping[str, str], quarantined: Quarantined) -> None:
    keys = {name: GameKey(key) for key, name in known.items()}
    for name in quarantined.games():
        if name not in keys:
            continue
        folder = paths.table(keys[name])
        try:
            landed_places = landed(open_table(folder), folder, quarantined.places(name))
        except TableNotFoundError:
            continue
        except DeltaError as error:
            raise unreadable(keys[name], error) from error
        except (OSError, pa.ArrowException) as error:
            raise Refused(
                f"A file of the table of {keys[name]} cannot be read: {first_line(error)}. "
                "If it is damaged, run `turnout repair rebuild`."
            ) from error
        quarantined.leave_out(name, landed_places)


def _row(values: dict[str, Any]) -> RefusedRow:
    for name in ("source_time", "first_seen"):
        values[name] = None if values[name] is None else _time(values[name])
    return RefusedRow(**values)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000)


def _time(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)
