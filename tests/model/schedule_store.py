"""Delta tables kept in memory: what our own code and delta-rs do with a log and Parquet files, without its cost.

Of a data file there is an empty one in a folder, so that it can be looked for and deleted. The same schedules over
delta-rs and real files take the same course: `tests/model/test_schedules.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.schema import Schema

from pipeline.base.failpoints import effect, hit
from tests.model.schedule_tasks import Names, Scheduler

_RETRIES = 15  # delta-rs' own


@dataclass(frozen=True)
class State:
    """A table at one version."""

    version: int
    metadata: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]  # path → add action
    transactions: Mapping[str, int]

    def after(self, actions: Sequence[Mapping[str, Any]]) -> "State":
        files, transactions, metadata = dict(self.files), dict(self.transactions), self.metadata
        for action in actions:
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
            elif "txn" in action:
                transactions[action["txn"]["appId"]] = action["txn"]["version"]
            elif "metaData" in action:
                metadata = action["metaData"]
        return State(self.version + 1, metadata, files, transactions)


class Disk:
    """The data files and tables of one schedule."""

    def __init__(self, scheduler: Scheduler, names: Names, root: Path, *, in_memory: bool = True) -> None:
        self.scheduler, self.names, self.root = scheduler, names, str(root).encode()
        self._in_memory = in_memory  # else the files are real ones, and are only read here
        self._written: list[pa.Table] = []  # a file has the place of its rows here
        self.logs: dict[str, dict[int, list[dict[str, Any]]]] = {}  # by table, then by version
        self._states: dict[str, list[State]] = {}
        self._checkpoints: dict[str, set[int]] = {}  # by table
        self._pointed: dict[str, int] = {}  # the one that readers are sent to

    def states(self, path: Path) -> list[State]:
        """Return all versions that a table's log has now, up to the first gap."""
        if not self._in_memory:
            self._look(path)
        known, log = self._states.setdefault(str(path), []), self.logs.get(str(path), {})
        while len(known) in log:
            before = known[-1] if known else State(-1, {}, {}, {})
            known.append(before.after(log[len(known)]))
        return known

    def _look(self, path: Path) -> None:
        """Take over what a real log has."""
        log = self.logs.setdefault(str(path), {})
        for file in (path / "_delta_log").glob("*.json"):
            if int(file.stem) not in log:
                log[int(file.stem)] = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]

    def put(self, path: Path, version: int, actions: Sequence[dict[str, Any]]) -> bool:
        """Make a version of a table's log unless there is one; tell whether it was made."""
        log = self.logs.setdefault(str(path), {})
        return log.setdefault(version, made := list(actions)) is made

    # As `pipeline.lake.delta.log`, with the points it has.

    def read_commit(self, path: Path, version: int) -> list[dict[str, Any]] | None:
        found = self.logs.get(str(path), {}).get(version)
        return None if found is None else list(found)

    def has_version(self, path: Path, version: int, _own: str | None = None) -> bool:
        """No table is made again here."""
        return version in self.logs.get(str(path), {})

    def write_when_due(self, path: Path, version: int, _held: object = None) -> None:
        """As in `pipeline.lake.delta.checkpoint`; what a checkpoint holds, the log holds here."""
        written = self._checkpoints.setdefault(str(path), {-1})
        if self._pointed.get(str(path), -1) >= version or version in written:
            return
        with effect("draft_checkpoint"):
            pass
        hit("before_publish_checkpoint")
        if version not in written:
            written.add(version)
            hit("after_publish_checkpoint")
        with effect("delete_draft"):
            pass
        if self._pointed.get(str(path), -1) < version:
            with effect("draft_file"):
                pass
            with effect("publish_file"):
                self._pointed[str(path)] = version
            with effect("delete_draft"):
                pass

    def publish_commit(self, path: Path, version: int, actions: Sequence[dict[str, Any]], **_: Any) -> bool:
        with effect("draft_commit"):
            pass
        hit("before_publish_commit")
        done = self.put(path, version, actions)
        if done:
            hit("after_publish_commit")
        with effect("delete_draft"):
            pass
        return done

    def settle_commits(self, _path: Path, _version: int) -> None:
        """There is no disk."""

    def read(self, file: str | Path) -> pa.Table:
        if not Path(file).exists():
            raise FileNotFoundError(str(file))
        if not self._in_memory:
            return pq.read_table(file, partitioning=None)
        return self._written[int(Path(file).read_bytes())]

    # As `pyarrow.parquet`.

    def write_table(self, table: pa.Table, sink: pa.NativeFile, **_: Any) -> None:
        sink.write(str(len(self._written)).encode())
        self._written.append(table)

    def read_table(self, file: str, columns: Sequence[str] | None = None, **_: Any) -> pa.Table:
        table = self.read(file)
        return table if columns is None else table.select(list(columns))

    def read_schema(self, file: str, **_: Any) -> pa.Schema:
        return self.read(file).schema

    # As `pyarrow.dataset`.

    def dataset(self, files: Sequence[str] | str, schema: pa.Schema | None = None, **_: Any) -> ds.Dataset:
        return ds.dataset(self.rows(files if isinstance(files, list) else [str(files)], schema))

    def rows(self, files: Sequence[str | Path], schema: pa.Schema | None) -> pa.Table:
        tables = [self.read(file) for file in files]
        schema = schema or tables[0].schema  # as a dataset takes the first file's
        return pa.concat_tables([_conformed(table, schema) for table in tables]) if tables else schema.empty_table()


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema):
        return table
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


class Parquet:
    """The module `pyarrow.parquet` over a disk."""

    def __init__(self, disk: Disk) -> None:
        self.write_table, self.read_table, self.read_schema = disk.write_table, disk.read_table, disk.read_schema


class Datasets:
    """The module `pyarrow.dataset` over a disk."""

    def __init__(self, disk: Disk) -> None:
        self.dataset, self.field = disk.dataset, ds.field


@dataclass(frozen=True)
class KnownTable:
    """A table's `Schema`, of which all is known that is asked of it."""

    fields: Sequence[Any]
    arrow: pa.Schema
    json: str

    def to_arrow(self) -> pa.Schema:
        return self.arrow

    def to_json(self) -> str:
        return self.json


@cache
def _known(text: str) -> KnownTable:
    schema = Schema.from_json(text)
    return KnownTable(schema.fields, pa.schema(schema.to_arrow()), schema.to_json())


class DeltaTables:
    """The class `deltalake.DeltaTable` over a disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def __call__(self, path: Path | str, version: int | None = None, **_: Any) -> "DeltaTable":
        self.disk.scheduler.point("open_table")
        states = self.disk.states(Path(path))
        if not states:
            raise TableNotFoundError(f"no table at {path}")
        return DeltaTable(self.disk, Path(path), states[-1 if version is None else version])

    def is_deltatable(self, path: str) -> bool:
        return bool(self.disk.states(Path(path)))

    def create(
        self,
        place: str,
        schema: Schema,
        mode: str = "error",
        description: str | None = None,
        configuration: Mapping[str, str] | None = None,
        **_: Any,
    ) -> "DeltaTable":
        path = Path(place)
        assert mode == "ignore"
        if not self.disk.states(path):
            metadata: dict[str, Any] = {
                "id": str(self.disk.names.uuid4()),
                "name": None,
                "description": description,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema.to_json(),
                "partitionColumns": [],
                "createdTime": int(self.disk.scheduler.now * 1000),
                "configuration": dict(configuration or {}),
            }
            actions: list[dict[str, Any]] = [
                {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                {"metaData": metadata},
            ]
            (path / "_delta_log").mkdir(parents=True, exist_ok=True)
            self.disk.put(path, 0, [{"commitInfo": {"operation": "CREATE TABLE"}}, *actions])
        return DeltaTable(self.disk, path, self.disk.states(path)[-1])


class DeltaTable:
    """A table at the version it was opened at, as far as the data path asks delta-rs for it."""

    def __init__(self, disk: Disk, path: Path, state: State) -> None:
        self._disk, self._path, self._state = disk, path, state
        self.alter = self

    def version(self) -> int:
        return self._state.version

    def metadata(self) -> Any:
        reported = self._state.metadata
        return SimpleNamespace(
            id=reported["id"], configuration=reported["configuration"], partition_columns=reported["partitionColumns"]
        )

    def protocol(self) -> Any:
        return SimpleNamespace(min_reader_version=1, min_writer_version=2, writer_features=None, reader_features=None)

    def schema(self) -> "KnownTable":
        return _known(self._state.metadata["schemaString"])

    def transaction_version(self, app_id: str) -> int | None:
        return self._state.transactions.get(app_id)

    def file_uris(self) -> list[str]:
        return [str(self._path / path) for path in self._state.files]

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        assert flatten
        adds = list(self._state.files.values())
        columns: dict[str, Any] = {
            "path": pa.array([add["path"] for add in adds], pa.string()),
            "size_bytes": pa.array([add["size"] for add in adds], pa.int64()),
            "modification_time": pa.array([add["modificationTime"] for add in adds], pa.int64()),
        }
        stats = [json.loads(add["stats"]) if add.get("stats") else {} for add in adds]
        columns["num_records"] = pa.array([each.get("numRecords") for each in stats], pa.int64())
        for kind, prefix in (("minValues", "min"), ("maxValues", "max")):
            for field in self._arrow():
                if any(field.name in each.get(kind, {}) for each in stats):
                    values = [each.get(kind, {}).get(field.name) for each in stats]
                    if pa.types.is_timestamp(field.type):
                        continue
                    columns[f"{prefix}.{field.name}"] = pa.array(values, field.type)
        return pa.table(columns)

    def to_pyarrow_dataset(self, filesystem: object) -> ds.Dataset:
        return ds.dataset(self.to_pyarrow_table())

    def to_pyarrow_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        files = [self._path / unquote(path) for path in self._state.files]
        rows = self._disk.rows(files, self._arrow())
        return rows if columns is None else rows.select(list(columns))

    def create_checkpoint(self) -> None:
        """The log is short here: nothing would be gained by one."""

    def create_write_transaction(
        self,
        actions: Sequence[Any],
        mode: str,
        schema: Schema,
        commit_properties: Any,
        post_commithook_properties: object = None,
    ) -> None:
        del post_commithook_properties
        made: list[dict[str, Any]] = [_info("WRITE", commit_properties)]
        if schema.to_json() != self._state.metadata["schemaString"] and mode == "overwrite":
            made.append({"metaData": {**self._state.metadata, "schemaString": schema.to_json()}})
        for action in actions:
            if hasattr(action, "stats"):
                add = {
                    "path": action.path,
                    "partitionValues": {},
                    "size": action.size,
                    "modificationTime": action.modification_time,
                    "dataChange": action.data_change,
                    "stats": action.stats,
                }
                made.append({"add": add})
            else:
                made.append(_removal(action.path, action.deletion_timestamp))
        if mode == "overwrite":
            made += [_removal(path, int(self._disk.scheduler.now * 1000)) for path in self._state.files]
        applications = {each.app_id: each.version for each in commit_properties.app_transactions or ()}
        made += [{"txn": {"appId": app, "version": version}} for app, version in applications.items()]
        retries = commit_properties.max_commit_retries
        self._commit(made, set(applications), _RETRIES if retries is None else retries)

    def add_columns(
        self, fields: Sequence[Any], commit_properties: Any, post_commithook_properties: object = None
    ) -> None:
        del post_commithook_properties
        held = json.loads(self._state.metadata["schemaString"])
        merged = _merged(held["fields"], [json.loads(field.to_json()) for field in fields])
        metadata = {**self._state.metadata, "schemaString": json.dumps({**held, "fields": merged})}
        self._commit([_info("ADD COLUMN", commit_properties), {"metaData": metadata}], set(), _RETRIES)

    def set_table_properties(
        self, properties: Mapping[str, str], raise_if_not_exists: bool, commit_properties: Any
    ) -> None:
        assert not raise_if_not_exists
        configuration = {**self._state.metadata["configuration"], **properties}
        metadata = {**self._state.metadata, "configuration": configuration}
        self._commit([_info("SET TBLPROPERTIES", commit_properties), {"metaData": metadata}], set(), _RETRIES)

    def _commit(self, made: Sequence[dict[str, Any]], applications: set[str], retries: int) -> None:
        """Publish after the version that was looked at, or after later ones whose commits do not conflict."""
        version = self._state.version
        removed = {action["remove"]["path"] for action in made if "remove" in action}
        while not self._disk.put(self._path, version + 1, made):
            if retries == 0:
                raise CommitFailedError("Failed to commit transaction: 0")
            version += 1
            for action in self._disk.logs[str(self._path)][version]:
                if (
                    action.get("txn", {}).get("appId") in applications
                    or action.get("remove", {}).get("path") in removed
                    or "metaData" in action
                ):
                    raise CommitFailedError("a concurrent transaction conflicts")
            retries -= 1
        self._state = self._disk.states(self._path)[version + 1]

    def _arrow(self) -> pa.Schema:
        return _known(self._state.metadata["schemaString"]).arrow


def _merged(held: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a struct's fields with new ones behind them; a struct that is there gets the members that it lacks."""
    added = {field["name"]: field for field in new}
    names = {field["name"] for field in held}
    return [
        *(_grown(field, added[field["name"]]) if field["name"] in added else field for field in held),
        *(field for field in new if field["name"] not in names),
    ]


def _grown(held: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(held["type"], dict) or held["type"]["type"] != "struct":
        return held
    return {**held, "type": {**held["type"], "fields": _merged(held["type"]["fields"], new["type"]["fields"])}}


def _info(operation: str, properties: Any) -> dict[str, Any]:
    return {"commitInfo": {"operation": operation, **(properties.custom_metadata or {})}}


def _removal(path: str, at_ms: int) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": at_ms, "partitionValues": {}, "size": 0}}
