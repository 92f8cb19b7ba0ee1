"""The newest windows of a gold table as series of numbers, for its chart on the Game page.

The caller decides before whether the reader may see values. Read are the files of the newest windows alone, as the
table's log has their bounds: however long the table is, a reading has a limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused, first_line
from pipeline.base.names import gold_key, stream_app_id
from pipeline.data.derived.definitions import Aggregate, GoldDefinition
from pipeline.data.derived.gold_columns import END, ROWS
from pipeline.lake.delta import generation, parquet
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.files import require_no_deletion_vectors
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.storage.location import Location
from pipeline.store.database.engine import reading

__all__ = ["GoldDefinition", "GoldSeries", "read"]

MOST_WINDOWS: Final = 120
_MOST_FILES: Final = 240  # a window has one, until maintenance compacts the table
_MOST_ROWS: Final = 500_000
_NEVER: Final = 2**53


@dataclass(frozen=True, slots=True)
class GoldSeries:
    """The newest computed windows of a gold table, the oldest first."""

    since: int  # Unix seconds: where the first one begins; `until`, where no computed window has rows
    until: int  # where the last computed one ends: of later ones nothing is known
    values: Mapping[str, tuple[float | None, ...]]  # by column, a number for each window; None: of no value at all
    whole: bool  # False: older windows are in the table, too


@reading()
def read(environment: OpenEnvironment, definition: GoldDefinition) -> GoldSeries | None:
    """Read the newest windows of a gold table; None where none has closed yet.

    Where the table is grouped by columns, a number is that of all groups of its window: a distinct count and a
    percentile have none then, and are left out, as is what is no number.

    Raises:
        Refused: the table cannot be read.
    """
    folder, label = environment.paths.gold / definition.name, f"The gold table {definition.name}"
    try:
        table = open_table(folder)
        require_no_deletion_vectors(table, label)
        until = _computed_until(table, environment.settings.environment, definition.name)
        if until is None:
            return None
        return _series(table, folder, definition, until, label)
    except TableNotFoundError:
        return None
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise Refused(f"{label} cannot be read: {first_line(error)}. Its stream is not affected.") from error


def _computed_until(table: DeltaTable, environment: str, name: str) -> int | None:
    key = gold_key(name)
    return table.transaction_version(
        stream_app_id(environment, key, generation.newest(table.transaction_version, environment, key))
    )


def _series(table: DeltaTable, folder: Location, definition: GoldDefinition, until: int, label: str) -> GoldSeries:
    paths, above, whole = _newest(table, until - MOST_WINDOWS * definition.window)
    if above >= until:
        raise Refused(f"{label} has too many rows in its newest window for a chart.")
    columns = pa.schema(table.schema().to_arrow())
    drawn = {name: how for name, how in _drawable(definition) if _is_number(columns, name)}
    found = _gathered([str(folder / each) for each in paths], columns, drawn, above)
    since = min(found, default=until + definition.window) - definition.window if whole else above
    counts = {each.name for each in definition.aggregates if each.function in {"count", "distinct"}} | {ROWS}
    # A computed window without rows has none in the table: it counts 0, and has no sum.
    slots = [found.get(end, {}) for end in range(since + definition.window, until + 1, definition.window)]
    values = {name: tuple(each.get(name, 0.0 if name in counts else None) for each in slots) for name in drawn}
    return GoldSeries(since, until, values, whole)


def _newest(table: DeltaTable, wanted: int) -> tuple[list[str], int, bool]:
    """Return the files with the windows that end above a time; above which time, and whether those are all windows.

    The time is a later one where these files would be too many.
    """
    files = sorted(
        ((_end(each.high, _NEVER), _end(each.low, 0), each) for each in table_files(table)), key=itemgetter(0)
    )
    chosen: list[str] = []
    rows, whole = 0, True
    for high, low, each in reversed(files):
        rows += each.rows or 0
        if high <= wanted:
            return chosen, wanted, False
        if len(chosen) == _MOST_FILES or rows > _MOST_ROWS:
            return chosen, high, False
        chosen.append(each.path)
        whole = whole and low > wanted
    return chosen, wanted, whole


def _end(bounds: Mapping[str, Any], unknown: int) -> int:
    found = bounds.get(END)
    return int(found.timestamp()) if isinstance(found, datetime) else unknown


def _drawable(definition: GoldDefinition) -> Iterator[tuple[str, str]]:
    """Yield the columns whose numbers are of a whole window, and how Arrow joins those of several groups."""
    yield ROWS, "sum"
    for each in definition.aggregates:
        if (how := _joined(each)) is not None:
            yield each.name, how
        elif not definition.by:
            yield each.name, "max"


def _joined(each: Aggregate) -> str | None:
    match each.function:
        case "count" | "sum":
            return "sum"
        case "min" | "max":
            return each.function
        case _:
            return None


def _is_number(columns: pa.Schema, name: str) -> bool:
    kind = columns.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _gathered(
    paths: Sequence[str], columns: pa.Schema, drawn: Mapping[str, str], above: int
) -> dict[int, dict[str, float | None]]:
    """Return the numbers of the windows that have rows, by their ends and by aggregate."""
    if not paths:
        return {}
    read = pa.schema([columns.field(each) for each in (END, *drawn)])
    later = pc.field(END) > pa.scalar(datetime.fromtimestamp(above, UTC), columns.field(END).type)
    rows = parquet.dataset(paths, read).to_table(filter=later)
    numbers = [rows.column(each).cast(pa.float64(), safe=False) for each in drawn]
    whole = pa.table([rows.column(END), *numbers], names=[END, *drawn]).group_by(END).aggregate([*drawn.items()])
    return {
        int(each[END].timestamp()): {name: each[f"{name}_{how}"] for name, how in drawn.items()}
        for each in whole.to_pylist()
    }
