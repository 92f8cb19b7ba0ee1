"""Gives the product's modules a schedule's threads, clock, tables and rows instead of the real ones."""

import concurrent.futures
import importlib
import json
import pkgutil
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import deltalake
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
from pyspark.sql import functions as F

import pipeline
from pipeline.base import failpoints
from pipeline.base.names import GameKey
from pipeline.data.contracts import given_ids, stored_schemas
from pipeline.data.streams.batches import tail_batches
from pipeline.data.streams.bronze_files import Piece
from pipeline.data.streams.writing import rows
from pipeline.data.streams.writing import split as splitting
from pipeline.data.streams.writing.job import SplitJob
from pipeline.data.streams.writing.reports import fault
from pipeline.data.variations.resolution import ShapeResolution
from pipeline.lake.delta import checkpoint as delta_checkpoint
from pipeline.lake.delta import log as delta_log
from pipeline.lake.delta.data_files import DataFile
from pipeline.store import games, output_contracts, schema_needs, sources, stream_control, writers
from tests.model import schedule_store, schedule_tasks
from tests.model.schedule_spark import Functions
from tests.model.schedule_world import REMEMBERED, ControlStore

_MAX_KNOWN: Final = 5_000  # tables of a few rows each: some kilobytes
_LEFT_ALONE: Final = {
    "pipeline.base.durable_file",  # its threads only wait for the disk, which is no point of a schedule
    "pipeline.base.failpoints",
    "pipeline.platforms.session.spark",
}
_REAL: Final[dict[str, Any]] = {
    "time": time,
    "threading": threading,
    "random": random,
    "uuid": uuid,
    "ThreadPoolExecutor": concurrent.futures.ThreadPoolExecutor,
    "DeltaTable": deltalake.DeltaTable,
    "pq": pyarrow.parquet,
    "ds": pyarrow.dataset,
    "F": F,
    "split": splitting.split,
    "_scanner": rows._scanner,
    "spans_of": rows.spans_of,
    "write_when_due": delta_checkpoint.write_when_due,
    "read_commit": delta_log.read_commit,
    "publish_commit": delta_log.publish_commit,
    "settle_commits": delta_log.settle_commits,
    "has_version": delta_log.has_version,
    "reads_tail": tail_batches.reads_tail,
    "decided": stream_control.decided,
    "assigned": games.assigned,
    "_read_held": games._read_held,
    "latest_number": writers.latest_number,
    "latest_and_mark": writers.latest_and_mark,
    "stored_ids": given_ids.stored_ids,
    "read_schemas": stored_schemas.read_schemas,
    "contracts_in": output_contracts.contracts_in,
    "read_writers": writers.read_writers,
    "read_profiles": writers.read_profiles,
    "newest_writers": writers.newest_writers,
    "read_needs": schema_needs.read_needs,
    "read_states": schema_needs.read_states,
    "bronze_id": sources.bronze_id,
    "ShapeResolution": ShapeResolution,
}
_IN_MEMORY: Final = (
    "pq", "ds", "_scanner", "split", "read_commit", "publish_commit", "settle_commits", "has_version", "write_when_due",
)  # fmt: skip


def _places() -> list[tuple[ModuleType, str, str]]:
    """Return where product code has what is replaced: the module, its name there, and what it is."""
    for part in (
        "data.streams",
        "data.repair",
        "data.maintenance",
        "data.ingest",
        "store",
        "data.contracts",
        "data.derived",
    ):
        package = importlib.import_module(f"pipeline.{part}")
        for found in pkgutil.iter_modules(package.__path__, f"pipeline.{part}."):
            if not found.ispkg:
                importlib.import_module(found.name)
    importlib.import_module("pipeline.wiring")
    by_id = {id(value): kind for kind, value in _REAL.items()}
    return [
        (module, name, by_id[id(value)])
        for module_name, module in sorted(sys.modules.items())
        if module_name.startswith(f"{pipeline.__name__}.") and module_name not in _LEFT_ALONE
        for name, value in list(vars(module).items())
        if id(value) in by_id and not (module is splitting and name == "split")
    ]


class Patches:
    """The functions to replace; found once, as that takes longer than a schedule."""

    def __init__(self) -> None:
        self._places = _places()
        self.splits = Splits()

    @contextmanager
    def installed(
        self,
        scheduler: schedule_tasks.Scheduler,
        disk: schedule_store.Disk,
        store: ControlStore,
        seed: int,
        *,
        in_memory: bool = True,
    ) -> Iterator[None]:
        """Replace it for the block; with `in_memory` False delta-rs and Parquet stay the real ones."""
        draw, clock = random.Random(f"jitter {seed}"), partial(getattr, scheduler, "now")
        given: dict[str, Any] = {
            "time": schedule_tasks.Clock(scheduler),
            "threading": schedule_tasks.Threading(scheduler),
            "random": SimpleNamespace(random=draw.random),
            "uuid": disk.names,
            "ThreadPoolExecutor": partial(schedule_tasks.Pool, scheduler),
            "DeltaTable": schedule_store.DeltaTables(disk) if in_memory else LookedAt(scheduler),
            "pq": schedule_store.Parquet(disk),
            "ds": schedule_store.Datasets(disk),
            "F": Functions,
            "split": self.splits.split if in_memory else _REAL["split"],
            "_scanner": partial(_scanner, disk),
            "spans_of": lambda keys, _shares: _REAL["spans_of"](keys, 1 + (seed % 4 == 0 and len(keys) > 1)),
            "write_when_due": disk.write_when_due,
            "read_commit": disk.read_commit,
            "publish_commit": disk.publish_commit,
            "settle_commits": disk.settle_commits,
            "has_version": disk.has_version,
            "reads_tail": lambda _bronze, _settings, *, once: seed % 2 == 0 and not once,
            "ShapeResolution": partial(ShapeResolution, clock=clock, steady=clock),
        }
        given |= {name: store.remembered(_REAL[name]) for name in REMEMBERED}
        if not in_memory:
            given |= {kind: _REAL[kind] for kind in _IN_MEMORY}
        before = failpoints.on_hit
        for module, name, kind in self._places:
            setattr(module, name, given[kind])
        failpoints.on_hit = scheduler.point
        try:
            yield
        finally:
            failpoints.on_hit = before
            for module, name, kind in self._places:
                setattr(module, name, _REAL[kind])


class LookedAt:
    """The real `DeltaTable`, with the point that opening one is."""

    def __init__(self, scheduler: schedule_tasks.Scheduler) -> None:
        self._scheduler = scheduler

    def __call__(self, *arguments: Any, **more: Any) -> deltalake.DeltaTable:
        self._scheduler.point("open_table")
        return deltalake.DeltaTable(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(deltalake.DeltaTable, name)


def _scanner(
    disk: schedule_store.Disk,
    part: Sequence[Piece],
    low: int,
    high: int,
    keys: Sequence[str],
    columns: Sequence[str],
    span: rows.Keys = (None, None),
) -> "Scanned":
    """As `rows._scanner`: a table gives batches and itself as a scanner does."""
    first, end = span
    table = disk.rows([piece.path for piece in part], None)
    places = zip(table.column("seq").to_pylist(), table.column("game_key").to_pylist(), strict=True)
    wanted = [
        low < seq <= high
        and (not keys or key in keys)
        and (first is None or key >= first)
        and (end is None or key < end)
        for seq, key in places
    ]
    return Scanned(table.filter(pa.array(wanted, pa.bool_())).select(list(columns)))


class Scanned:
    """Rows that are asked for as those of a scanner are."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def to_table(self) -> pa.Table:
        return self._rows

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._rows.to_batches())


class Splits:
    """The real `split`, run once for the same rows and the same job: it is a pure function of them (law L5).

    Its files are written anew each time, with the points that writing them has.
    """

    def __init__(self) -> None:
        self._known: dict[Any, tuple[list[tuple[str | None, pa.Table, Sequence[str]]], dict[str, Any], Any] | None] = {}
        self.world: object = None
        self.runs = self.submitted = 0

    def split(self, batches: Iterator[pa.RecordBatch], job: SplitJob) -> Iterator[pa.RecordBatch]:
        parts = [batch for batch in batches if batch.num_rows]
        if not parts:
            return
        self.submitted += 1
        key = self.key(parts, job)
        if key not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self.runs += 1
            self._known[key] = _recorded(parts, job)
        known = self._known[key]
        assert known is not None
        written, report, rejects = known
        games = {name: {**game, "files": []} for name, game in report["games"].items()}
        for name, table, columns in written:
            if name is None:
                file = vars(splitting)["write_file"](table, job.quarantine, columns)
                report = {**report, "refused": {**report["refused"], "file": file.as_dict()}}
                continue
            try:
                file = vars(splitting)["write_file"](table, job.tables / name, columns)
                games[name]["files"].append(file.as_dict())
                failpoints.hit("mid_data_files")
            except Exception as error:  # noqa: BLE001 - as `split` does it
                games[name]["error"] = fault(error)
        yield pa.RecordBatch.from_pydict({"report": [json.dumps({**report, "games": games})], "rejects": [rejects]})

    def key(self, parts: Sequence[pa.RecordBatch], job: SplitJob) -> Any:
        """Return what tells one job over some rows from another."""
        columns = ("game_key", "seq", "pos", "refused")
        rows = tuple(tuple(part.column(name).to_pylist() for name in columns) for part in parts)
        keys = {key for row in rows for key in row[0]}
        cursors = tuple(sorted((key, cursor) for key, cursor in job.cursors.items() if key in keys))
        assert job.trial is None
        # By what is registered for whom: a version is another set where others were registered first.
        placed: tuple[Any, ...] = tuple(job.schema_set.placed(GameKey(key)) for key in sorted(keys))
        if any(part.column("profile").null_count < part.num_rows for part in parts):
            placed = (placed, frozenset(job.schema_set.writers.items()), frozenset(job.schema_set.profiles))
        return (self.world, placed, cursors, job.deadly, job.quarantine is None, repr(rows))


def _recorded(parts: Sequence[pa.RecordBatch], job: SplitJob) -> tuple[Any, Any, Any]:
    """Split, and keep the tables that would have been written."""
    written: list[tuple[str | None, pa.Table, Sequence[str]]] = []  # None: refused rows, for quarantine

    def kept(table: pa.Table, folder: Any, columns: Sequence[str], **_: bool) -> DataFile:
        written.append((None if folder == job.quarantine else folder.name, table, columns))
        return DataFile("", 0, table.num_rows, "")

    real = {name: vars(splitting)[name] for name in ("write_file", "hit")}
    vars(splitting).update(write_file=kept, hit=lambda _point: None)
    try:
        with patch.object(splitting._Split, "settle"):
            (done,) = _REAL["split"](iter(parts), job)
    finally:
        vars(splitting).update(real)
    return written, json.loads(done.column("report")[0].as_py()), done.column("rejects")[0].as_py()
