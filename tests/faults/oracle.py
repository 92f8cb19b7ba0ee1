"""The oracle: what the producer was told had arrived, against what is in the tables.

Shares no code with the product's way from bronze to the tables. It knows the producer's own log (sequence number,
CRC, event id of every message the source acknowledged), reads tables with DuckDB, and asks `turnout verify --values` as
well. Rows are compared in DuckDB, so that an hour of traffic is judged by the code that judges a thousand events.
"""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from pipeline.base.failpoints import ENVIRON
from pipeline.demo.producer import write_landing
from pipeline.demo.simulator import GOOD, Event, Simulator
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths
from tests.faults import figures

_VERIFY_SECONDS = 3600.0  # an hour of traffic is millions of rows, each decoded again


class ProducerLog:
    """The producer's record of each acknowledged message; a file, so that it outlives every process."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def note(self, events: Iterable[Event]) -> None:
        with self.file.open("a", encoding="utf-8") as handle:
            for event in events:
                line = [event.game, event.sequence, event.kind, zlib.crc32(event.value)]
                handle.write(json.dumps(line) + "\n")

    def count(self) -> int:
        """Return how many messages were acknowledged."""
        with self.file.open("rb") as handle:
            return sum(1 for _ in handle)


def produce(simulator: Simulator, landing: Path | Location, log: ProducerLog, events: int, batch: int = 500) -> None:
    """Send the simulator's next events, and note each batch when the landing table has it."""

    def acknowledged() -> Iterator[Sequence[Event]]:
        left = events
        while left and (part := next(simulator.batches(min(batch, left)), None)):
            yield part
            log.note(part)  # runs when the writer asks for the next batch: this one is in the table
            left -= len(part)

    with patch.dict(os.environ):
        os.environ.pop(ENVIRON, None)  # what is put into the source is where the data path begins: no fault is its own
        write_landing(located(landing), acknowledged())


@dataclass(frozen=True)
class RowVerdict:
    """Rows by what is wrong with them; all zero is what is promised."""

    events: int
    lost: int
    duplicated: int
    misrouted: int
    corrupted: int
    unexplained: int  # what `turnout verify` finds beyond these, and rows still waiting
    values_compared: int  # by `turnout verify --values`, which decodes bronze again
    value_mismatches: int

    @property
    def clean(self) -> bool:
        wrong = (
            self.lost,
            self.duplicated,
            self.misrouted,
            self.corrupted,
            self.unexplained,
            self.value_mismatches,
        )
        return not any(wrong) and self.values_compared > 0


def mirrored(paths: Paths) -> Path:
    """Return the folder of an environment's tables, copied there file by file where they are in a bucket."""
    if not paths.storage:
        return paths.root
    copy = paths.root / "mirror"
    for each in paths.data.files(deep=True):
        target = copy / each.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((paths.data / each.name).read())
    return copy


def judge(env: Path, log: ProducerLog, tables: Path | None = None) -> RowVerdict:
    """Compare an environment that has come to rest with the producer's log, and record the verdict for the figures.

    A row that is twice in a table counts once as duplicated. `tables` is the folder of its tables, if another one.
    """
    with closing(duckdb.connect()) as database:
        _read(database, tables or env, log)
        counts = {name: int(database.execute(sql).fetchall()[0][0] or 0) for name, sql in _COUNTS.items()}
    found = read_completeness(env)
    verdict = RowVerdict(
        events=counts["events"],
        lost=counts["not_arrived"] + counts["not_landed"],
        duplicated=counts["arrived_again"] + counts["landed_again"] + counts["sequence_again"],
        misrouted=counts["from_nowhere"] + counts["not_at_home"] + counts["shared_homes"] + counts["never_sent"],
        corrupted=counts["changed_on_arrival"] + counts["changed_in_table"],
        unexplained=found["unexplained"],
        values_compared=found["values_compared"],
        value_mismatches=found["value_mismatches"],
    )
    figures.record(asdict(verdict))
    return verdict


def read_completeness(env: Path) -> dict[str, int]:
    """Ask `turnout verify --values` of an environment at rest; return counts by column of the figures.

    `events` are bronze's rows, `unexplained` those at fault or waiting; values are compared by decoding bronze again.
    """
    options = ["--json", "--complete", "--values", "--env-dir", str(env)]
    command = [sys.executable, "-m", "pipeline", "verify", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_VERIFY_SECONDS)
    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    kinds = ("lost", "duplicated", "misrouted", "phantom", "early", "broken_chain", "bronze_duplicates", "pending")
    values = {name: int(found[name]) for name in figures.VALUES}
    unexplained = sum(found[kind] for kind in kinds)
    if done.returncode and not unexplained and not values["value_mismatches"]:
        unexplained = 1  # whatever it is that verify does not accept
    return {"events": found["bronze_rows"], "unexplained": unexplained, **values}


def require_completeness(env: Path) -> None:
    """Require of an environment at rest, without a producer's log, that it is complete and every value is equal."""
    found = read_completeness(env)
    figures.record(found)
    assert not found["unexplained"], found
    assert not found["value_mismatches"], found
    assert found["values_compared"], found


def report(verdict: RowVerdict, fired: Mapping[str, int]) -> None:
    """Print what went off and what came of it; the table of figures has the rest."""
    sys.stdout.write(f"\n{sum(fired.values())} faults went off: {dict(fired)}\n{verdict}\n")


_ARRIVALS = """
    CREATE TABLE arrivals AS
    SELECT coalesce(sent.copies, 0) AS sent, coalesce(arrived.copies, 0) AS arrived
    FROM (SELECT crc, count(*) AS copies FROM sent GROUP BY crc) AS sent
    FULL JOIN (SELECT crc, count(*) AS copies FROM bronze GROUP BY crc) AS arrived USING (crc)
"""
_FOUND = """
    CREATE TABLE found AS
    SELECT bronze.game, landed.* FROM landed LEFT JOIN (SELECT DISTINCT seq, pos, game FROM bronze) AS bronze
    USING (seq, pos)
"""
_HOMES = "CREATE TABLE homes AS SELECT game, min(home) AS home FROM found WHERE game IS NOT NULL GROUP BY game"
_COUNTS = {
    "events": "SELECT count(*) FROM sent",
    "not_arrived": "SELECT sum(greatest(sent - arrived, 0)) FROM arrivals",
    "arrived_again": "SELECT sum(greatest(arrived - sent, 0)) FROM arrivals WHERE sent > 0",
    "changed_on_arrival": "SELECT sum(arrived) FROM arrivals WHERE sent = 0",
    "not_landed": """
        SELECT count(*) FROM (SELECT DISTINCT seq, pos FROM bronze) ANTI JOIN landed USING (seq, pos)
        ANTI JOIN quarantined USING (seq, pos)
    """,
    "landed_again": "SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT seq, pos FROM landed)) FROM landed",
    "sequence_again": """
        SELECT sum(places - 1)
        FROM (SELECT count(DISTINCT (seq, pos)) AS places FROM found WHERE game IS NOT NULL GROUP BY game, sequence)
    """,
    "from_nowhere": "SELECT count(*) FROM found WHERE game IS NULL",
    "not_at_home": "SELECT count(*) FROM found JOIN homes USING (game) WHERE found.home <> homes.home",
    "shared_homes": "SELECT count(*) - count(DISTINCT home) FROM homes",
    "never_sent": """
        SELECT count(*) FROM (SELECT DISTINCT game, sequence FROM found WHERE game IS NOT NULL)
        ANTI JOIN (SELECT game, sequence FROM sent WHERE kind = 'GOOD') USING (game, sequence)
    """.replace("GOOD", GOOD),
    "changed_in_table": "SELECT count(*) FROM found WHERE sequence <> id_sequence",
}
"""The counts, each as one number."""


def _read(database: duckdb.DuckDBPyConnection, env: Path, log: ProducerLog) -> None:
    """Make the tables that `_COUNTS` counts in: what was sent, what bronze has, what the games' tables have."""
    database.execute(
        """
        CREATE TABLE sent AS
        SELECT json->>0 AS game, (json->>1)::BIGINT AS sequence, json->>2 AS kind, (json->>3)::UINTEGER AS crc
        FROM read_ndjson_objects(?)
        """,
        [str(log.file)],
    )
    database.execute("CREATE TABLE bronze (seq BIGINT, pos BIGINT, game VARCHAR, crc UINTEGER)")
    bronze = DeltaTable(env / "bronze").to_pyarrow_dataset()
    for batch in bronze.to_batches(columns=["seq", "pos", "game", "raw"]):
        crcs = pa.array([zlib.crc32(raw) for raw in batch.column("raw").to_pylist()], pa.uint32())
        columns = [*batch.columns[:3], crcs]
        database.from_arrow(pa.Table.from_arrays(columns, ["seq", "pos", "game", "crc"])).insert_into("bronze")
    database.execute("CREATE TABLE landed (home VARCHAR, seq BIGINT, pos BIGINT, sequence BIGINT, id_sequence BIGINT)")
    place = "_seq, _pos, round, split_part(_event_id, '-', -1)::BIGINT"
    for table in sorted((env / "tables").glob("*/_delta_log")):
        _insert(database, "landed", table.parent, f"'{table.parent.name}', {place}")
    database.execute("CREATE TABLE quarantined (seq BIGINT, pos BIGINT)")
    _insert(database, "quarantined", env / "quarantine", "seq, pos")
    for statement in (_ARRIVALS, _FOUND, _HOMES):
        database.execute(statement)


def _insert(database: duckdb.DuckDBPyConnection, target: str, path: Path, columns: str) -> None:
    if files := _files(path):
        database.execute(f"INSERT INTO {target} SELECT {columns} FROM read_parquet(?, union_by_name=true)", [files])


def _files(path: Path) -> list[str]:
    return DeltaTable(path).file_uris() if (path / "_delta_log").exists() else []
