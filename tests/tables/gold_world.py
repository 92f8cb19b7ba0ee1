"""A silver table's world with bronze, a clock and the pairs of `through`, its gold table, and what must be in that."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import duckdb
import pyarrow as pa

from pipeline.base.names import bronze_app_id, closings_key, gold_key, silver_key, stream_app_id
from pipeline.data.derived.definitions import Aggregate, GoldDefinition
from pipeline.data.derived.gold import Gold, GoldPosition
from pipeline.data.derived.gold_account import GoldAccount, gold_account
from pipeline.data.derived.gold_columns import CLOSING, END, ROWS, START
from pipeline.data.maintenance.compact import WINDOWS
from pipeline.lake.delta import generation
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.stats import stats_of
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.delta.through import ThroughPair, ThroughTable, joined, read_pairs
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths
from tests.tables.silver_world import BEGIN, CHESS, SOLD, Row, SilverWorld, killed, merge

SALES: Final = GoldDefinition(
    "sales", SOLD, 60,
    (
        Aggregate("sold", "count"), Aggregate("priced", "count", "price_amount"),
        Aggregate("turnover", "sum", "price_amount"), Aggregate("points", "sum", "points"),
        Aggregate("score", "sum", "score"), Aggregate("cheapest", "min", "price_amount"),
        Aggregate("last", "max", "item"), Aggregate("buyers", "distinct", "email"),
        Aggregate("half", "percentile", "price_amount", 5000), Aggregate("most", "percentile", "score", 9500),
    ),
    by=("_event_id",), lateness=30,
)  # fmt: skip


@dataclass
class GoldWorld(SilverWorld):
    """Silver's world, and drivers that carry its gold table; the oracle computes each window when a driver has."""

    gold: GoldDefinition = SALES
    now: float = BEGIN.timestamp()
    closings: dict[tuple[int, int, int], int] = field(default_factory=dict)  # by window, lateness and end, once known
    counted: list[dict[str, Any]] = field(default_factory=list)  # the oracle's gold rows
    until: int | None = None
    made_by: tuple[int, str] | None = None  # the silver generation and the definition
    generation_seen: int = 0  # of the gold table

    @property
    def paths(self) -> Paths:
        return Paths(self.root)

    @property
    def table_of_gold(self) -> Location:
        return self.paths.gold / self.gold.name

    @property
    def elapsed(self) -> float:
        """Seconds since the begin of all."""
        return self.now - BEGIN.timestamp()

    def commit(self, *rows: Row, seq: int | None = None) -> None:
        """Land rows in bronze, then in the game's table."""
        super().commit(*rows, seq=seq)
        if seq is None:
            columns = {"game_key": str(CHESS), "game": "Chess", "schema_id": 1, "seq": self.seq, "prev_seq": 0}
            made = [{**columns, "pos": 0, "topic": "t", "partition": 0, "offset": 0, "raw": b""}]
            bronze = CursorTable.create(self.paths.bronze, BRONZE, bronze_app_id("test"))
            file = write_file(pa.Table.from_pylist(made, BRONZE), self.paths.bronze, ["seq", "game_key"])
            bronze.commit([file], bronze.cursor, self.seq)

    def beat(self, seconds: float) -> None:
        """Let time pass, and ingest record that bronze has all of its source by then."""
        self.now += seconds
        table = ThroughTable(self.paths.through)
        assert table.write(joined(table.read(), ThroughPair(self.seq, self.now, "{}")))

    def thin(self) -> None:
        """Thin the pairs, as ingest does with their age."""
        table = ThroughTable(self.paths.through)
        if pairs := table.read():
            assert table.write(pairs[-1:])

    def gold_driver(self) -> Gold:
        """A driver that starts now."""
        wanted = replace(self.gold, silver=self.definition)
        return Gold(self.paths, "test", wanted, lambda: self.now, file_rows=2, checkpoint_interval=4)

    def close(self) -> GoldPosition | None:
        """Let a new driver compute what can be computed."""
        position = self.gold_driver().step()
        self.account()
        return position

    def kill_gold(self, at: int) -> bool:
        """Let a new driver do so that is killed at this hit of a fail-point; return whether it was."""
        was_killed = killed(self.gold_driver().step, at)
        self.account()
        return was_killed

    def compact_gold(self) -> None:
        """Merge all files of the gold table and of the closing seqs, as maintenance does."""
        for folder in (self.table_of_gold, self.paths.closings / self.gold.name):
            merge(folder, WINDOWS)

    def account(self) -> None:
        """Let the oracle compute, of silver as it is now, what a step says that it has computed."""
        self.know()
        until = self.cursor()
        if until is None:
            return
        number = self.silver_generation()
        made_by = number, replace(self.gold, silver=self.definition).digest
        after = self.until
        if self.generation_of_gold() != self.generation_seen:
            self.generation_seen = self.generation_of_gold()
            self.made_by, self.counted, after = made_by, [], None
        if after is None or until > after:
            assert self.made_by == made_by, "a step goes on with what the generation was made of"
            self.counted += self.batch(after, until)
        self.until = until

    def cursor(self) -> int | None:
        """Return the position of the gold table: the end of the last computed window."""
        try:
            table = open_table(self.table_of_gold)
        except TableNotFoundError:
            return None
        return table.transaction_version(stream_app_id("test", gold_key(self.gold.name), self.generation_of_gold()))

    def generation_of_gold(self) -> int:
        table = open_table(self.table_of_gold)
        return generation.newest(table.transaction_version, "test", gold_key(self.gold.name))

    def silver_generation(self) -> int:
        table = open_table(self.silver)
        return generation.newest(table.transaction_version, "test", silver_key(self.definition.name))

    def know(self) -> None:
        """Let the oracle know the closing seq of each window as it was when a driver first kept it."""
        window, lateness = self.gold.window, self.gold.lateness
        app = stream_app_id("test", closings_key(self.gold.name, window, lateness), 1)
        try:
            until = open_table(self.paths.closings / self.gold.name).transaction_version(app)
        except TableNotFoundError:
            return
        pairs, first = read_pairs(self.paths.through), int(BEGIN.timestamp()) - 600
        for end in range(first - first % window, (until or 0) + 1, window):
            if (window, lateness, end) not in self.closings:
                self.closings[window, lateness, end] = next(each.seq for each in pairs if each.at >= end + lateness)

    def batch(self, after: int | None, until: int) -> list[dict[str, Any]]:
        """Return what silver's rows are in some windows, by a batch computation in DuckDB."""
        silver = open_table(self.silver).to_pyarrow_table()
        known = [{"until": end, "seq": seq} for (window, lateness, end), seq in self.closings.items()
                 if (window, lateness) == (self.gold.window, self.gold.lateness)]  # fmt: skip
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("silver", silver)
            database.register("closings", pa.Table.from_pylist(known))
            by = "".join(f"{each}, " for each in self.gold.by)
            low = -(2**60) if after is None else after
            answer = database.sql(_BATCH.format(by=by, window=self.gold.window, low=low, until=until))
            return list(answer.to_arrow_table().to_pylist())

    def gold_contents(self) -> list[dict[str, Any]]:
        """Return the rows of the gold table as they are, those that are there twice too."""
        return _sorted(open_table(self.table_of_gold).to_pyarrow_table().to_pylist())

    def found_account(self) -> GoldAccount | None:
        return gold_account(self.paths, "test", replace(self.gold, silver=self.definition))

    def check_gold(self) -> None:
        """Gold is what the batch computation says, value by value, and each silver row is accounted for."""
        if self.cursor() is None:
            return
        assert self.gold_contents() == _sorted(self.counted)
        found = self.found_account()
        if found is None:
            assert self.made_by != (self.silver_generation(), replace(self.gold, silver=self.definition).digest)
            return
        until, rows = self.until, open_table(self.silver).to_pyarrow_table(columns=["_event_time"]).to_pylist()
        times = [row["_event_time"].timestamp() for row in rows if row["_event_time"] is not None]
        assert until is not None
        ended = sum(at < until for at in times)
        counted = sum(row["_rows"] for row in self.counted)
        expected = GoldAccount(until, counted, ended - counted, len(times) - ended, len(rows) - len(times))
        assert found == expected


def write_gold(
    paths: Paths, environment: str, definition: GoldDefinition, kinds: Mapping[str, pa.DataType],
    rows: Sequence[Mapping[str, Any]], until: int,
) -> None:  # fmt: skip
    """Write rows of a gold table by hand, a file for each window, and that windows are computed up to a time.

    `kinds` are the columns between the window and `_rows`; a row names its window by `end`, in Unix seconds.
    """
    moment = pa.timestamp("us", "UTC")
    own = pa.schema([(START, moment), (END, moment), *kinds.items(), (ROWS, pa.int64()), (CLOSING, pa.int64())])
    folder = paths.gold / definition.name
    table = CursorTable.create(folder, own, stream_app_id(environment, gold_key(definition.name), 1))
    files = []
    for end in dict.fromkeys(row["end"] for row in rows):
        times = {START: datetime.fromtimestamp(end - definition.window, UTC), END: datetime.fromtimestamp(end, UTC)}
        made = [{ROWS: 1, CLOSING: 9, **row, **times} for row in rows if row["end"] == end]
        part = pa.Table.from_pylist(made, own)
        files.append(replace(write_file(part, folder), stats=stats_of(part, [START, END])))
    table.commit(files, table.cursor, until)


def _sorted(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps([str(row["window_start"]), row.get("_event_id")]))


_BATCH: Final = """
WITH dated AS (
    SELECT *, (floor(epoch(_event_time) / {window})::BIGINT + 1) * {window} AS ended FROM silver
    WHERE _event_time IS NOT NULL
),
on_time AS (
    SELECT dated.*, closings.seq AS closing FROM dated JOIN closings ON closings.until = dated.ended
    WHERE ended > {low} AND ended <= {until} AND _seq <= closings.seq
)
SELECT to_timestamp(ended - {window}) AS window_start, to_timestamp(ended) AS window_end, {by}count(*) AS sold,
    count(price_amount) AS priced, sum(price_amount) AS turnover, sum(points)::DECIMAL(38, 0) AS points,
    sum(score ORDER BY _seq, _pos) AS score, min(price_amount) AS cheapest, max(item) AS "last",
    coalesce(len(list_distinct(list(email) FILTER (email IS NOT NULL))), 0) AS buyers,
    (list_sort(list(price_amount) FILTER (price_amount IS NOT NULL)))[ceil(count(price_amount) * 5 / 10)::INT] AS half,
    (list_sort(list(score) FILTER (score IS NOT NULL)))[ceil(count(score) * 95 / 100)::INT] AS most,
    count(*) AS _rows, any_value(closing) AS _closing_seq
FROM on_time GROUP BY {by}ended
"""
"""Gold as one query over all rows of silver, by the closing seq of each single window."""
