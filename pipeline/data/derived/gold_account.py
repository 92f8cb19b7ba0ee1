"""How many rows of a silver table its gold table has not, and why: read from the tables, changes nothing."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import gold_key, silver_key, stream_app_id
from pipeline.data.derived.definitions import GoldDefinition
from pipeline.data.derived.gold_columns import EVENT_TIME
from pipeline.data.derived.source_log import number_of
from pipeline.lake.delta import generation, parquet
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.rewrite import TableFile, table_files
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths


@dataclass(frozen=True, slots=True)
class GoldAccount:
    """What became of the rows of a silver table."""

    until: int  # Unix seconds: the windows that end up to here are computed
    counted: int  # rows in these windows that their numbers have
    late: int  # rows of these windows that silver got too late: they are in no number
    open: int  # rows of windows that are not computed yet
    undated: int  # rows without an event time, which are in no window


def gold_account(paths: Paths, environment: str, definition: GoldDefinition) -> GoldAccount | None:
    """Count the rows of a silver table by what its gold table has of them; None where it was made of another one."""
    try:
        gold, silver = open_table(paths.gold / definition.name), open_table(paths.silver / definition.silver.name)
    except TableNotFoundError:
        return None
    key = gold_key(definition.name)
    app = stream_app_id(environment, key, generation.newest(gold.transaction_version, environment, key))
    until, counted = gold.transaction_version(app), gold.transaction_version(f"{app}/rows")
    number = generation.newest(silver.transaction_version, environment, silver_key(definition.silver.name))
    counts_in = number_of(str(silver.metadata().id), str(number), definition.digest)
    if until is None or counted is None or gold.transaction_version(f"{app}/source") != counts_in:
        return None
    ended, undated, rows = _counts(silver, paths.silver / definition.silver.name, until)
    return GoldAccount(until, counted, ended - counted, rows - ended - undated, undated)


def _counts(silver: DeltaTable, place: Location, until: int) -> tuple[int, int, int]:
    """Return how many rows have an event time before `until`, how many have none, and how many there are."""
    ended = undated = rows = 0
    unknown: list[str] = []
    for each in table_files(silver):
        if _is_all_before(each, until) and each.rows is not None:
            ended, rows = ended + each.rows, rows + each.rows
        else:
            unknown.append(str(place / each.path))
    read = pa.schema([(EVENT_TIME, pa.timestamp("us", "UTC"))])
    moment = pa.scalar(datetime.fromtimestamp(until, UTC), read.types[0])
    for batch in parquet.dataset(unknown, read).to_batches() if unknown else ():
        times = batch.column(EVENT_TIME)
        ended += pc.sum(pc.less(times, moment)).as_py() or 0
        undated, rows = undated + times.null_count, rows + len(times)
    return ended, undated, rows


def _is_all_before(file: TableFile, until: int) -> bool:
    """Return whether the log alone says that all rows of a file have an event time before a moment."""
    last = file.high.get(EVENT_TIME)
    return last is not None and file.nulls.get(EVENT_TIME) == 0 and last < datetime.fromtimestamp(until, UTC)
