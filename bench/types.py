"""`python -m bench.types`: what many event types in one table cost: small files, the log, checkpoints and readers.

A table has its first type flat and a struct column for each further type, with the same fields. Files of one pass hold
rows of one type, or of a few, and only the columns of these; beside them stands a file with all columns of the table,
and the table of one type. Sizes are of files as tasks write them, times are CPU of this process, taken in turn. The
readers are DuckDB, delta-rs and Spark over one table with files of different types. See docs/performance.md.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench import machine
from bench.command import carry_out
from bench.text import table as text_table
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.lake.delta.checkpoint import checkpoint_file, write_checkpoint
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.log import LOG
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.platforms.session.spark import spark_session
from pipeline.settings.tree import load

_GOAL: Final = 1.5  # times a one-type file with the same rows
_MIXES: Final = (1, 2, 5, 20)
_SIZES: Final = (20, 200, 2_000)
_KINDS: Final = (pa.int64(), pa.string(), pa.float64(), pa.bool_())
_TYPE: Final = pa.field("_type", pa.string())
_STEPS: Final = (1, 10, 50, 100, 200, 299)


def fields(count: int) -> list[pa.Field]:
    """Return the fields of a type."""
    return [pa.field(f"field_{each:02}", _KINDS[each % len(_KINDS)]) for each in range(count)]


def columns(types: int, count: int) -> pa.Schema:
    """Return the columns of a table: our own, the first type's, and a struct for each further type."""
    structs = [pa.field(_name(each), pa.struct(fields(count))) for each in range(1, types)]
    return pa.schema([*OWN_COLUMNS, _TYPE, *fields(count), *structs])


def rows(of: Sequence[int], many: int, count: int, *, wide: pa.Schema | None = None, seq: int = 1) -> pa.Table:
    """Return rows whose types take turns, with the columns of these types, or with all of a wide table."""
    numbers = range(many)
    own: dict[str, pa.Array] = {
        "_seq": pa.array([seq] * many, pa.int64()),
        "_pos": pa.array(numbers, pa.int32()),
        "_schema_id": pa.array([of[each % len(of)] for each in numbers], pa.int64()),
        "_event_time": pa.array(numbers, pa.timestamp("us", "UTC")),
        "_event_id": pa.array([f"event {each}" for each in numbers]),
        "_source_time": pa.array(numbers, pa.timestamp("us", "UTC")),
        "_type": pa.array([_name(of[each % len(of)]) for each in numbers]),
    }
    for place, each in enumerate(of):
        here = [number % len(of) == place for number in numbers]
        values = {field.name: _values(field.type, here) for field in fields(count)}
        if each == 0:
            own |= values
        else:
            mask = pa.array([not held for held in here])
            own[_name(each)] = pa.StructArray.from_arrays(list(values.values()), fields=fields(count), mask=mask)
    held = pa.table(own)
    if wide is None:
        return held
    return pa.table([held[f.name] if f.name in own else pa.nulls(many, f.type) for f in wide], schema=wide)


def _name(number: int) -> str:
    return f"event_{number:03}"


def _values(kind: pa.DataType, here: Sequence[bool]) -> pa.Array:
    made: Mapping[pa.DataType, Callable[[int], Any]] = {
        pa.int64(): lambda each: each * 7,
        pa.string(): lambda each: f"value {each % 50}",
        pa.float64(): lambda each: each / 3,
        pa.bool_(): lambda each: each % 3 == 0,
    }
    return pa.array([made[kind](each) if held else None for each, held in enumerate(here)], kind)


def _timed(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median CPU milliseconds of each, taken in turn."""
    took: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            run()  # so that none pays for what the one before has left in caches
            begun = time.process_time()
            run()
            took[name].append(1000 * (time.process_time() - begun))
    return {name: round(median(each), 3) for name, each in took.items()}


def files(folder: Location, types: int, count: int, repeats: int) -> list[dict[str, Any]]:
    """Return bytes and milliseconds of small files."""
    wide, found = columns(types, count), []
    for many in _SIZES:
        kinds = {"one-type table": rows([0], many, count).drop_columns(["_type"])}
        kinds |= {f"{mix} of {types} types": rows(list(range(1, mix + 1)), many, count) for mix in _MIXES}
        kinds["all columns"] = rows([1], many, count, wide=wide)

        def write(held: pa.Table) -> Callable[[], int]:
            return lambda: write_file(held, folder, ["_seq"], settled=False).size

        sizes = {name: write(held)() for name, held in kinds.items()}
        times = _timed({name: write(held) for name, held in kinds.items()}, repeats)
        base = "one-type table"
        found += [
            {
                "rows": many,
                "file": name,
                "bytes": sizes[name],
                "ms": times[name],
                "bytes_ratio": round(sizes[name] / sizes[base], 2),
                "ms_ratio": round(times[name] / times[base], 2),
            }
            for name in kinds
        ]
    return found


def log(folder: Location, types: int, count: int, repeats: int) -> list[dict[str, Any]]:
    """Add the types one by one; return what it costs at some of the steps."""
    table = CursorTable.create(folder, columns(1, count), "turnout/bench/types/1")
    found, total = [], 0
    for number in range(1, types):
        begun = time.process_time()
        table.add_missing_columns(columns(number + 1, count))
        added = 1000 * (time.process_time() - begun)
        entry = _size(folder / LOG / f"{table.version:020}.json")
        total += entry
        if number not in _STEPS and number != types - 1:
            continue
        seqs = [10 * number, 10 * number + 1]
        took = [_commit(table, rows([number], 20, count, seq=seq), seq) for seq in seqs]
        begun = time.process_time()
        write_checkpoint(folder, table.version)
        checkpoint = 1000 * (time.process_time() - begun)
        opened = _timed({"open": lambda: DeltaTable(str(folder))}, repeats)["open"]
        found.append(
            {
                "types": number + 1,
                "leaves": (number + 1) * count,
                "add_ms": round(added, 1),
                "entry_bytes": entry,
                "entries_bytes": total,
                "first_commit_ms": round(took[0], 2),
                "commit_ms": round(took[1], 2),
                "checkpoint_ms": round(checkpoint, 1),
                "checkpoint_bytes": _size(checkpoint_file(folder, table.version)),
                "open_ms": opened,
            }
        )
    return found


def _commit(table: CursorTable, held: pa.Table, seq: int) -> float:
    """Commit a file of rows; return the CPU milliseconds of the commit alone."""
    file = write_file(held, table.path, ["_seq"])
    begun = time.process_time()
    table.commit([file], table.cursor, seq, target=held.schema)
    return 1000 * (time.process_time() - begun)


def _size(place: Location) -> int:
    return Path(str(place)).stat().st_size


def readers(folder: Location, work: Path, types: int, count: int) -> dict[str, Any]:
    """Return whether each reader gives the same values of the first, a middle and the last type, and its seconds."""
    table = DeltaTable(str(folder))
    chosen = [each for each in _STEPS if each < types]
    wanted = {_name(each): 2 * sum(value or 0 for value in _whole(each, count)) for each in chosen}
    found: dict[str, Any] = {}

    def note(reader: str, read: Callable[[str], int]) -> None:
        begun = time.monotonic()
        same = all(read(name) == value for name, value in wanted.items())
        found[reader] = {"same": same, "seconds_each": round((time.monotonic() - begun) / len(wanted), 2)}

    uris = table.file_uris()
    select = "SELECT sum({name}.field_00)::BIGINT FROM read_parquet(?, union_by_name = true) WHERE _type = '{name}'"
    with duckdb.connect() as database:
        note("DuckDB", lambda name: database.execute(select.format(name=name), [uris]).fetchall()[0][0])

    def by_delta_rs(name: str) -> int:
        # Not `to_pyarrow_table(filters=…)`: of a column without statistics delta-rs 1.6.6 finds no row there.
        query = f"SELECT sum({name}['field_00']) AS total FROM held WHERE _type = '{name}'"  # noqa: S608 - names of ours
        return int(pa.table(QueryBuilder().register("held", table).execute(query).read_all())["total"][0].as_py())

    note("delta-rs", by_delta_rs)
    settings, paths = load(work)
    spark = spark_session(settings, paths, "turnout-bench", light=True)
    spark.range(1).collect()  # what a session's first query costs is not this table's
    try:

        def by_spark(name: str) -> int:
            frame = spark.read.format("delta").load(str(folder)).where(f"_type = '{name}'")
            return int(frame.selectExpr(f"sum({name}.field_00) AS total").collect()[0].total)

        note("Spark", by_spark)
        begun = time.monotonic()
        width = len(spark.read.format("delta").load(str(folder)).limit(20).collect()[0])
        found["Spark, every column of 20 rows"] = {
            "same": width == len(columns(types, count)),
            "seconds_each": round(time.monotonic() - begun, 2),
        }
    finally:
        spark.stop()
    return found


def _whole(number: int, count: int) -> list[int | None]:
    held: list[int | None] = rows([number], 20, count)[_name(number)].combine_chunks().field(0).to_pylist()
    return held


def measure(work: Path, types: int, count: int, repeats: int) -> dict[str, Any]:
    """Return all numbers."""
    place = located(work)
    small = files(place / "files", types, count, repeats)
    added = log(place / "table", types, count, repeats)
    log(place / "alone", 2, count, 1)
    alone = readers(place / "alone", work, 2, count)
    return {
        "machine": machine.describe(),
        "types": types,
        "fields": count,
        "files": small,
        "log": added,
        "readers_of_2_types": alone,
        "readers": readers(place / "table", work, types, count),
    }


def report(result: dict[str, Any]) -> str:
    """Return the result as tables, with the goal."""
    alone = [each for each in result["files"] if each["file"].startswith("1 of")]
    held = all(each["bytes_ratio"] <= _GOAL and each["ms_ratio"] <= _GOAL for each in alone)
    small = [[f"{e['rows']} rows, {e['file']}", *(str(e[k]) for k in _FILE)] for e in result["files"]]
    added = [[str(each["types"]), *(str(each[key]) for key in _LOG)] for each in result["log"]]
    sizes = {f"{result['types']} types": result["readers"], "2 types": result["readers_of_2_types"]}
    read = [
        [f"{name}, {size}", str(each["same"]), str(each["seconds_each"])]
        for size, found in sizes.items()
        for name, each in found.items()
    ]
    goal = f"{'HELD' if held else 'NOT held'}: a file of one type of many is at most {_GOAL} × that of a one-type table"
    parts = [text_table(["file", *_FILE], small), text_table(["types", *_LOG], added)]
    return "\n\n".join([*parts, text_table(["reader", "same", "seconds"], read), goal])


_FILE: Final = ("bytes", "ms", "bytes_ratio", "ms_ratio")
_LOG: Final = (
    "leaves", "add_ms", "entry_bytes", "entries_bytes", "first_commit_ms", "commit_ms", "checkpoint_ms",
    "checkpoint_bytes", "open_ms",
)  # fmt: skip


def main() -> None:
    """Measure, print tables, and with `--out` write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.types")
    parser.add_argument("--types", type=int, default=300)
    parser.add_argument("--fields", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--work", type=Path, help="where its folder is made")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    carry_out(options, lambda work: measure(work, options.types, options.fields, options.repeats), report)


if __name__ == "__main__":
    main()
