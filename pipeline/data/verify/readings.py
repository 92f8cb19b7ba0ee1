"""What verify compares: every row position of bronze, quarantine and the game tables, side by side in DuckDB.

Read from the Parquet files that delta-rs lists, with no code of the path that wrote them. `balance` judges the
entries; nothing here writes to an environment.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from pipeline.base.errors import Refused, first_line
from pipeline.base.names import GameKey, attempt_app_ids, bronze_app_id, ingest_app_id, stream_app_id
from pipeline.data.verify import meanings
from pipeline.lake.delta import accepted_gaps
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.files import copy_of, paths_of, readable
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.scratch import Database, DatabaseError, OutOfMemory, scratch
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths

_MEMORY_LIMIT: Final = "1GB"  # more is spilled to a temporary folder
_PLACE: Final = frozenset({"_seq", "_pos", "game_key", "game", "seq", "pos", "prev_seq", "refused", "reason"})
_COLUMNS: Final = _PLACE | {"schema_id", "topic", "partition", "offset"}
"""All that statements of this room read of data files."""

_AT_ONCE: Final = 16  # tables of a store that are opened

_GENERATIONS_TRIED: Final = 4  # generations without a cursor that end the search for the newest one

_SCHEMA: Final = """
CREATE TYPE side AS ENUM ('bronze', 'table', 'before', 'after'); -- the last two: the readings of quarantine
CREATE TABLE reserved (first BIGINT, last BIGINT);
CREATE TABLE places (ord INTEGER, game_key VARCHAR, cursor BIGINT);
CREATE TABLE gaps (game_key VARCHAR, above BIGINT, through BIGINT);
CREATE TABLE titles (game_key VARCHAR, game VARCHAR, refused BOOLEAN, rows BIGINT);
CREATE TABLE entries (ord INTEGER, seq BIGINT, pos BIGINT, side side, refused BOOLEAN, reason VARCHAR);
CREATE TABLE chain (ord INTEGER, seq BIGINT, low BIGINT, high BIGINT, holes BOOLEAN);
CREATE MACRO files(paths) AS TABLE FROM read_parquet(paths, union_by_name = true, hive_partitioning = false);
"""

# A missing position becomes a negative one, a different one per side, so that it matches nothing on another side.
_READ_TITLES: Final = """
INSERT INTO titles
SELECT coalesce(game_key, ''), game, refused IS NOT NULL AS refused, count(*) FROM files(?) GROUP BY ALL
"""
_READ_BRONZE: Final = """
INSERT INTO entries
SELECT places.ord, coalesce(f.seq, -2), coalesce(f.pos, -2), 'bronze', f.refused IS NOT NULL, NULL
FROM files(?) AS f JOIN places ON places.game_key = coalesce(f.game_key, '')
"""
_READ_CHAIN: Final = """
INSERT INTO chain
SELECT places.ord, coalesce(f.seq, -2), min(f.prev_seq), max(f.prev_seq), count(f.prev_seq) < count(*)
FROM files(?) AS f JOIN places ON places.game_key = coalesce(f.game_key, '') GROUP BY places.ord, coalesce(f.seq, -2)
"""
_READ_TABLE: Final = """
INSERT INTO entries
SELECT places.ord, coalesce(f._seq, -1), coalesce(f._pos, -1), 'table', NULL, NULL
FROM files(?) AS f, places WHERE places.game_key = ?
"""
_READ_SPANS: Final = """
SELECT _file, min(_seq), max(_seq)
FROM read_parquet(?, union_by_name = true, hive_partitioning = false, filename = '_file')
WHERE _seq IS NOT NULL AND _pos IS NOT NULL GROUP BY _file
"""
_READ_QUARANTINE: Final = """
INSERT INTO entries
SELECT places.ord, coalesce(f.seq, -3), coalesce(f.pos, -3), ?, NULL, coalesce(f.reason, 'unknown')
FROM files(?) AS f JOIN places ON places.game_key = coalesce(f.game_key, '')
"""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One version of one Delta table: its label and its data files."""

    label: str
    version: int
    paths: tuple[str, ...]
    cursor: int | None = None  # of a game's table, or bronze's last seq; None: no commit has moved it yet
    gaps: tuple[tuple[int, int], ...] = ()  # of a game's table: the lost seqs that an operator accepted
    meanings: str = ""  # of a game's table: what its schema ids mean
    merges: str = ""  # of a game's table: which columns were merged into one, as JSON


@dataclass(frozen=True, slots=True)
class PinnedTables:
    """The table versions of one verification, pinned in the order of the fields (docs/verify.md says why)."""

    quarantine_before: TableSnapshot | None  # None: there is no quarantine table
    tables: Mapping[str, TableSnapshot]  # by game key
    bronze: TableSnapshot
    quarantine_after: TableSnapshot | None
    reserved: tuple[tuple[int, int], ...]  # first and last seq of refused rows that may precede their bronze commit
    given: Mapping[int, str] = field(default_factory=dict)  # the fingerprints of schema ids, as they were given


def pin(paths: Paths, environment: str, generations: Mapping[str, int]) -> PinnedTables:
    """Pin the version of every table; rows are read later, from the files of these versions.

    Raises:
        Refused: nothing is ingested yet, bronze is another environment's, or a table cannot be read.
    """
    before = _snapshot(paths.quarantine, "quarantine", ("game_key", "seq", "pos", "reason"))
    folders = paths.tables.folders()

    def of_game(folder: Location) -> TableSnapshot | None:
        return _snapshot(folder, f"tables/{folder.name}", ("_seq", "_pos"), environment, generations.get(folder.name))

    with ThreadPoolExecutor(_AT_ONCE if paths.tables.is_far else 1) as pool:  # each waits for its store
        found = zip(folders, pool.map(of_game, folders), strict=True)
        tables = {folder.name: table for folder, table in found if table is not None}
    bronze = _snapshot(paths.bronze, "bronze", ("game_key", "game", "seq", "pos", "prev_seq", "refused"))
    if bronze is None:
        raise Refused(f"There is nothing to verify: {paths.bronze} is no Delta table. Start ingest first.")
    require_own(paths.bronze, environment)  # another environment's cursors are not found, so every row would look early
    after = _snapshot(paths.quarantine, "quarantine", ("game_key", "seq", "pos", "reason"))
    opened_bronze = open_table(paths.bronze, bronze.version)
    head = opened_bronze.transaction_version(bronze_app_id(environment))
    reserved = () if before is None else tuple(_reserved(paths.quarantine, before.version, opened_bronze, environment))
    given = meanings.read_given(paths.bronze)
    return PinnedTables(before, tables, replace(bronze, cursor=head), after, reserved, given)


@contextmanager
def opened(reading: PinnedTables) -> Iterator[Database]:
    """Open a temporary database with the tables `places`, `gaps`, `reserved`, `titles`, `entries` and `chain`.

    It is deleted after the block.

    Raises:
        Refused: a data file cannot be read.
    """
    with scratch("verify", _MEMORY_LIMIT, on_disk=True, ordered=False) as database:
        database.execute(_SCHEMA)
        database.execute("BEGIN")  # one commit to disk for all tables, not one each
        _load(database, reading)
        database.execute("COMMIT")
        yield database


def execute(
    database: Database, sql: str, snapshot: TableSnapshot, *values: object, columns: Collection[str] = _COLUMNS
) -> list[Any]:
    """Run a statement that reads the snapshot's data files; return its rows, none when there are no files.

    Its parameters are the values, in order; the snapshot itself among them stands for its files. It reads `columns`.

    Raises:
        Refused: a data file is missing or damaged.
    """
    if not snapshot.paths:
        return []
    try:
        files = readable(database, snapshot.paths, columns)
        return database.execute(sql, [files if value is snapshot else value for value in values]).fetchall()
    except OutOfMemory:
        raise
    except (DatabaseError, OSError, pa.ArrowException) as error:  # DuckDB raises this very class for a damaged page
        reason = first_line(error)
        raise Refused(
            f"{snapshot.label} (version {snapshot.version}) cannot be read: {reason}. If VACUUM has just run, verify "
            f"again; otherwise restore that file."
        ) from error


def spans(database: Database, table: TableSnapshot) -> tuple[tuple[str, tuple[int, int]], ...]:
    """Return a game table's files with rows that have a place, each with its first and last seq, read from the rows.

    Not from the log's statistics: a writer with wrong statistics would hide rows.

    Raises:
        Refused: a data file is missing or damaged.
    """
    of = {copy_of(database, path, _COLUMNS): path for path in table.paths if located(path).is_far}
    return tuple((of.get(path, path), (low, high)) for path, low, high in execute(database, _READ_SPANS, table, table))


def _load(database: Database, reading: PinnedTables) -> None:
    bronze = reading.bronze
    execute(database, _READ_TITLES, bronze, bronze)
    keys = {key for (key,) in database.execute("SELECT DISTINCT game_key FROM titles").fetchall()} | set(reading.tables)
    quarantines = [("after", reading.quarantine_after)]
    if reading.quarantine_before != reading.quarantine_after:
        quarantines.append(("before", reading.quarantine_before))
    for _, quarantine in quarantines:
        if quarantine is not None:
            sql = "SELECT DISTINCT coalesce(game_key, '') FROM files(?)"
            keys |= {key for (key,) in execute(database, sql, quarantine, quarantine)}
    cursors = [reading.tables[key].cursor if key in reading.tables else None for key in sorted(keys)]
    database.execute(
        "INSERT INTO places SELECT unnest(?::INTEGER[]), unnest(?::VARCHAR[]), unnest(?::BIGINT[])",
        [list(range(len(keys))), sorted(keys), cursors],
    )
    if reading.reserved:
        database.executemany("INSERT INTO reserved VALUES (?, ?)", [list(span) for span in reading.reserved])
    execute(database, _READ_BRONZE, bronze, bronze)
    execute(database, _READ_CHAIN, bronze, bronze)
    if gaps := [[key, *gap] for key, table in reading.tables.items() for gap in table.gaps]:
        database.executemany("INSERT INTO gaps VALUES (?, ?, ?)", gaps)
    with suppress(OSError, pa.ArrowException):  # the next lines say which table it is
        readable(database, [path for table in reading.tables.values() for path in table.paths], _COLUMNS)
    for key, table in reading.tables.items():
        execute(database, _READ_TABLE, table, table, key)
    for side, quarantine in quarantines:
        if quarantine is not None:
            execute(database, _READ_QUARANTINE, quarantine, side, quarantine)


def _reserved(quarantine: Location, version: int, bronze: DeltaTable, environment: str) -> Iterator[tuple[int, int]]:
    """Yield the seqs of each ingest generation's last batch with refused rows, where bronze may lack them.

    Bronze may lack them while that batch is above bronze's cursor, and after the batch was given up: ingest first moves
    bronze's cursor over its seqs, then removes its rows from quarantine.
    """
    table, head = open_table(quarantine, version), bronze.transaction_version(bronze_app_id(environment)) or 0
    misses, number = 0, 1
    while misses < _GENERATIONS_TRIED:
        app = ingest_app_id(environment, number)
        first_app, last_app, given_up_app = attempt_app_ids(app)
        first, last = table.transaction_version(first_app), table.transaction_version(last_app)
        if first is not None and last is not None:
            if first > head or (bronze.transaction_version(given_up_app) or 0) >= last:
                yield first, last
            misses = 0
        else:
            misses = misses + 1 if bronze.transaction_version(app) is None else 0
        number += 1


def _snapshot(
    folder: Location,
    label: str,
    columns: Iterable[str],
    environment: str | None = None,
    generation: int | None = None,
) -> TableSnapshot | None:
    """Pin the newest version of a table; None where the table does not exist yet."""
    try:
        table = open_table(folder)
        known = {field.name: field.metadata for field in table.schema().fields}
        missing = sorted(set(columns) - known.keys())
        if missing:
            raise Refused(f"{label} has no column {', '.join(missing)}: not a table of turnout. Move it away.")
        paths = paths_of(table, label)
        key = GameKey(folder.name)
        cursor = None if environment is None else _cursor(table, environment, key, generation)
        gaps = [] if environment is None else accepted_gaps.read(table.transaction_version, environment, key)
        noted = str(table.metadata().configuration.get(meanings.PROPERTY) or "")
        merges = str(known.get("_schema_id", {}).get(meanings.MERGES) or "")
        return TableSnapshot(label, table.version(), paths, cursor, tuple(gaps), noted, merges)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        reason = first_line(error)
        raise Refused(f"{label} cannot be opened: {reason}. Repair its Delta log, then verify again.") from error


def _cursor(table: DeltaTable, environment: str, key: str, generation: int | None) -> int | None:
    """Return the cursor of the newest generation, from the recorded one on: a rebuild records after its commit."""
    newest, misses, number = None, 0, generation or 1
    while misses < _GENERATIONS_TRIED:
        version = table.transaction_version(stream_app_id(environment, GameKey(key), number))
        newest, misses = (newest, misses + 1) if version is None else (version, 0)
        number += 1
    if newest is None and generation is not None and generation > 1:  # an older copy of the table was restored
        return _cursor(table, environment, key, generation - 1)
    return newest
