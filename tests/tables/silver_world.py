"""One game's table, written as passes, maintenance and repairs write it, its silver table, and what must be in that."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest

from pipeline.base import failpoints
from pipeline.base.names import game_key, silver_key, stream_app_id
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.derived.definitions import SilverDefinition
from pipeline.data.derived.held_ids import SilverMemory
from pipeline.data.derived.silver import Silver, SilverPosition
from pipeline.data.maintenance.compact import GAME
from pipeline.data.maintenance.rewrite import columns_of, packed
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.lake.delta.commits import overwrite
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.generation import newest
from pipeline.lake.delta.log import infos
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import replace_files, table_files
from pipeline.lake.delta.stats import columns_with_statistics
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

CHESS: Final = game_key("Chess")


def avro(number: int, name: str, fields: Mapping[str, Any]) -> Schema:
    """Return an Avro schema of optional fields, by their kinds."""
    space, _, last = name.rpartition(".")
    named = [{"name": each, "type": ["null", kind], "default": None} for each, kind in fields.items()]
    record = {"type": "record", "namespace": space, "name": last, "fields": named}
    return Schema(number, "avro", name, json.dumps(record).encode())


PRICE: Final = {
    "type": "record", "name": "Price", "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "in", "type": {"type": "record", "name": "In", "fields": [{"name": "currency", "type": "string"}]}},
    ],
}  # fmt: skip
SOLD_FIELDS: Final = {
    "item": "string", "email": "string", "price": PRICE, "tags": {"type": "array", "items": "string"},
    "secret": "bytes", "points": "long", "score": "double",
}  # fmt: skip
SCHEMAS: Final = SchemaSet(
    2,
    {CHESS: (1, 2)},
    {1: avro(1, "acme.v1.Sold", SOLD_FIELDS), 2: avro(2, "acme.Left", {"why": "string"})},
    {CHESS: {2: FieldPlacement(struct="left")}},
)
COLUMNS: Final = pa.schema(
    [
        *OWN_COLUMNS,
        ("item", pa.string()),
        ("email", pa.string()),
        ("price", pa.struct([("amount", pa.decimal128(12, 2)), ("in", pa.struct([("currency", pa.string())]))])),
        ("tags", pa.list_(pa.string())),
        ("secret", pa.binary()),
        ("points", pa.int64()),
        ("score", pa.float64()),
        ("left", pa.struct([("why", pa.string())])),
    ]
)
SOLD: Final = SilverDefinition(
    "sold", "Chess", "Sold", within=2, mask=(("email", "hash"), ("price.in", "drop"), ("secret", "hash"))
)
"""Its event type is the first one of Chess."""

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """The driver's process ends here."""


@dataclass(frozen=True)
class Row:
    """One row of the game's table."""

    id: str | None
    at: float | None  # seconds of source time
    left: bool = False  # it is of the other event type
    event: float | None = 0.0  # seconds of event time


@dataclass
class SilverWorld:
    """The game's rows with the version that added each, and drivers that carry its silver table."""

    root: Path
    definition: SilverDefinition = SOLD
    step_rows: int = 3
    seq: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)  # those that the game's table has
    places: dict[int, Iterator[int]] = field(default_factory=dict)  # by seq, the next row's pos
    generation: int = 1
    columns: pa.Schema = COLUMNS
    began: int = 0  # the version of the game's table with which the silver generation began, where a log still says it
    points: Iterator[int] | None = None  # of the next rows; None: by their places

    @property
    def table(self) -> Location:
        return located(self.root / "tables" / CHESS)

    @property
    def silver(self) -> Location:
        return located(self.root / "silver" / self.definition.name)

    def driver(self) -> Silver:
        """A driver that starts now."""
        return Silver(
            self.table, self.silver, "test", self.definition, lambda: SCHEMAS, memory=SilverMemory(self.step_rows)
        )

    def commit(self, *rows: Row, seq: int | None = None) -> None:
        """Land rows in one version, as a pass does, or with the seq of an earlier one, as a replay does."""
        self.seq += seq is None
        table = CursorTable.create(self.table, self.columns, self._app, checkpoint_interval=4)
        table.add_missing_columns(self.columns)
        pos = self.places.setdefault(seq or self.seq, count())
        whole = [self._made(each, seq or self.seq, next(pos)) for each in rows]
        made = [{name: value for name, value in each.items() if name in self.columns.names} for each in whole]
        files = [write_file(pa.Table.from_pylist(made, self.columns), self.table, ["_seq"])] if made else []
        table.commit(files, table.cursor, max(table.cursor or 0, seq or self.seq), target=self.columns)
        self.rows += [{**each, "version": table.version} for each in made]

    def compact(self) -> None:
        """Merge all files of the game's table, as maintenance does: no row changes."""
        merge(self.table)

    def compact_silver(self) -> None:
        """Merge all files of the silver table likewise."""
        merge(self.silver)

    def remove(self, at: int) -> None:
        """Take a row away, as a dedupe does."""
        if self.rows:
            del self.rows[at % len(self.rows)]
            self._replace(self.generation)

    def rebuild(self) -> None:
        """Make the table again from its rows in one commit, as the next generation."""
        self._replace(self.generation + 1)

    def make_again(self) -> None:
        """Delete the table, and make another one of the same rows, one version for each row."""
        self.table.clear()
        self.generation, held = 1, self.rows
        self.rows = []
        table = CursorTable.create(self.table, self.columns, self._app, checkpoint_interval=1000)
        for each in held:
            row = {name: value for name, value in each.items() if name != "version"}
            file = write_file(pa.Table.from_pylist([row], self.columns), self.table, ["_seq"])
            table.commit([file], table.cursor, (table.cursor or 0) + 1)
            self.rows.append({**row, "version": table.version})

    def step(self) -> SilverPosition | None:
        """Let a new driver take one step."""
        return self.driver().step()

    def carry(self) -> SilverPosition:
        """Let a new driver take all steps there are."""
        driver = self.driver()
        while True:
            try:
                position = driver.step()
            except TableConflict:
                continue
            assert position is not None
            if position.is_level:
                return position

    def contents(self) -> list[dict[str, Any]]:
        """Return the rows of the silver table as they are, those that are there twice too."""
        rows = open_table(self.silver).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["_seq"], row["_pos"]))

    def expected(self) -> list[dict[str, Any]]:
        """Return what must be in the silver table by a batch computation over the game's rows, in DuckDB.

        A row counts in the version that added it, but in that of the silver generation's begin if it was there already.
        """
        notes = {
            each: note for each, info in infos(self.silver) if (note := str(info.get("turnout"))).startswith("silver: ")
        }
        if notes:
            self.began = int(notes[max(notes)].rpartition("@")[2])
        columns = pa.schema([*self.columns, ("version", pa.int64())])
        counted = [{**each, "version": max(each["version"], self.began)} for each in self.rows]
        rows = pa.Table.from_pylist(counted, columns)
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("rows", rows)
            answer = database.sql(_BATCH.format(within=(self.definition.within or 0) * 1_000_000))
            return list(answer.to_arrow_table().to_pylist())

    def check(self) -> None:
        """Check that silver is what the batch computation says, value by value, and counts what it left out."""
        kept = self.contents()
        assert kept == self.expected()
        assert self.left_out() == sum(each["_type"] == "acme.Sold" for each in self.rows) - len(kept)

    def left_out(self) -> int | None:
        """Return how many second rows silver's own log says that its generation left out."""
        read = open_table(self.silver).transaction_version
        key = silver_key(self.definition.name)
        return read(f"{stream_app_id('test', key, newest(read, 'test', key))}/duplicates")

    @property
    def _app(self) -> str:
        return stream_app_id("test", CHESS, self.generation)

    def _replace(self, generation: int) -> None:
        table = open_table(self.table)
        held = [{name: value for name, value in each.items() if name != "version"} for each in self.rows]
        files = [write_file(pa.Table.from_pylist(held, self.columns), self.table, ["_seq"])] if held else []
        cursor = table.transaction_version(self._app) or 0
        self.generation = generation
        overwrite(self.table, table, files, self.columns, {self._app: cursor}, "rebuild")
        version = open_table(self.table).version()
        self.rows = [{**each, "version": version} for each in held]

    def _points(self, number: int) -> int | None:
        if self.points is not None:
            return next(self.points)
        return None if number % 4 == 0 else 2**62 - number

    def _made(self, row: Row, seq: int, pos: int) -> dict[str, Any]:
        number = seq * 10 + pos
        own = {
            "_seq": seq, "_pos": pos, "_schema_id": 2 if row.left else 1, "_event_id": row.id,
            "_event_time": moment(row.event), "_source_time": moment(row.at),
            "_type": "acme.Left" if row.left else "acme.Sold",
        }  # fmt: skip
        if row.left:
            return {**own, "left": {"why": f"because {number}"}}
        price = None if number % 3 == 0 else {"amount": number, "in": {"currency": "EUR"}}
        tags = [None, [], ["a", None]][number % 3]
        return {
            **own, "item": f"item {number}\u2028", "email": None if pos % 2 else f"{number}@x", "price": price,
            "tags": tags, "secret": b"\xff" + bytes([number % 256]), "points": self._points(number),
            "score": number / 7,
        }  # fmt: skip


def moment(seconds: float | None) -> datetime | None:
    """A time this long after the begin of all."""
    return None if seconds is None else datetime.fromtimestamp(BEGIN.timestamp() + seconds, UTC)


def merge(table: Location, order: Sequence[str] = GAME) -> None:
    """Merge all files of a table, as maintenance does; a driver that was killed early has left none."""
    try:
        opened = open_table(table)
    except TableNotFoundError:
        return
    old = table_files(opened)
    if len(old) > 1:
        new = packed(table, columns_of(opened), old, order, columns_with_statistics(opened))
        replace_files(table, old, new, "OPTIMIZE")


def killed(work: Callable[[], object], at: int) -> bool:
    """Do the work of a driver that is killed at this hit of a fail-point; return whether it was."""
    hits = count(1)

    def on_hit(_point: str) -> None:
        if next(hits) == at:
            raise Killed

    with hooked(on_hit):
        try:
            work()
        except Killed:
            return True
    return False


@contextmanager
def hooked(on_hit: Callable[[str], None]) -> Iterator[None]:
    """Call this at each fail-point in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "on_hit", on_hit)
        yield


def cut_log(table: Location) -> None:
    """Cut a table's log up to its newest checkpoint, as maintenance does."""
    log = Path(str(table), "_delta_log")
    newest = max(int(each.name[:20]) for each in log.glob("*.checkpoint.parquet"))
    for version in range(newest):
        (log / f"{version:020}.json").unlink(missing_ok=True)


def change_commit(table: Location, version: int) -> None:
    """Give a version another commit with the same rows, as after a power cut that took it."""
    file = Path(str(table), "_delta_log", f"{version:020}.json")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["commitInfo"]["txnId"] = "another"
    file.write_text("\n".join(json.dumps(each) for each in lines))


_BATCH: Final = """
WITH RECURSIVE sold AS (SELECT *, epoch_us(_source_time) AS moment FROM rows WHERE _type = 'acme.Sold'),
numbered AS (
    SELECT *, row_number() OVER (PARTITION BY _event_id ORDER BY version, _seq, _pos) AS number FROM sold
    WHERE _event_id IS NOT NULL AND moment IS NOT NULL
),
walk AS (
    SELECT _event_id, _seq, _pos, number, [moment] AS kept, true AS is_kept FROM numbered WHERE number = 1
    UNION ALL
    SELECT _event_id, _seq, _pos, number, CASE WHEN near THEN kept ELSE list_append(kept, moment) END, NOT near FROM (
        SELECT later._event_id, later._seq, later._pos, later.number, kept, later.moment,
            len(list_filter(kept, lambda one: abs(one - later.moment) <= {within})) > 0 AS near
        FROM walk JOIN numbered AS later ON later._event_id = walk._event_id AND later.number = walk.number + 1
    )
)
SELECT _seq, _pos, _event_time, _event_id, _source_time, item, sha256(email) AS email, price.amount AS price_amount,
    tags, sha256(secret) AS secret, points, score
FROM sold
WHERE _event_id IS NULL OR moment IS NULL OR (_seq, _pos) IN (SELECT (_seq, _pos) FROM walk WHERE is_kept)
ORDER BY _seq, _pos
"""
"""Silver as one query over all rows: of each id the kept ones, one after the other in the order of the game's table."""
