"""Checkpoints of plain Delta tables, written here so that their size follows the table, not its number of commits.

delta-rs and Spark repeat each removed file in every checkpoint for a week: 604,800 files for a game that commits every
second. docs/decisions/0013 says why these checkpoints may leave them out.
"""

import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.failpoints import effect
from pipeline.lake.delta import parquet
from pipeline.lake.delta.log import Action, commit_file, has_checkpoint, log_folder, read_commits
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

MERGED_SECONDS: Final = 3600.0
"""How long checkpoints name a file that was merged into another."""

REMOVED_SECONDS: Final = 7 * 86_400.0
"""How long they name every other removed file, as with Delta's default."""

_SMALL_BYTES: Final = 32_768  # a checkpoint up to this size is written at every interval
_FEW_ROWS: Final = 200  # up to which zstd takes three times as long as snappy, and saves 4 % of the bytes
_POINTER: Final = "_last_checkpoint"
_NAME: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")

_MAP: Final = pa.map_(pa.string(), pa.string())
_FILE: Final = [("path", pa.string()), ("partitionValues", _MAP), ("size", pa.int64())]
_KINDS: Final[Mapping[str, pa.DataType]] = {
    "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", _MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "remove": pa.struct(
        [
            *_FILE,
            ("deletionTimestamp", pa.int64()),
            ("dataChange", pa.bool_()),
            ("extendedFileMetadata", pa.bool_()),
        ]
    ),
    "add": pa.struct(
        [*_FILE, ("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("tags", _MAP), ("stats", pa.string())]
    ),
}
"""What the protocol wants of each action of a plain table, in the order of a checkpoint's rows."""

_LOST: Final[Mapping[str, Sequence[str]]] = {
    "add": ("deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider"),
    "remove": ("deletionVector", "baseRowId", "defaultRowCommitVersion"),
    "protocol": ("readerFeatures", "writerFeatures"),
}


@dataclass
class KeptLog:
    """What a writer keeps of a table's log for its next checkpoint, so that it need not be read."""

    commits: dict[int, Sequence[Action]] = field(default_factory=dict)  # some of those since the last checkpoint
    last: int | None = None  # a version with a checkpoint by this writer
    actions: Mapping[str, pa.StructArray] = field(default_factory=dict)  # all in that checkpoint, by kind


class _Strange(Exception):
    """The log has something that a plain table lacks, a gap or a damaged page; delta-rs may be able to read it."""


def write_when_due(table: Location, version: int, kept: KeptLog | None = None) -> bool:
    """Write a checkpoint when the commits since the last one have as many bytes as it has, or when it is small.

    So an hour's checkpoints have about as many bytes as its commits, however large a single checkpoint is. Returns
    whether there is one of this version now.
    """
    pointer = _pointer(table)
    last = pointer.get("version")
    if last is not None and last >= version:
        return True  # a newer checkpoint was published first
    size = pointer.get("sizeInBytes")  # written by us; by others it may be missing
    if last is None or size is None:
        last = newest_checkpoint(table, version)
        size = 0 if last is None else checkpoint_file(table, last).size()
    if size <= _SMALL_BYTES or _bytes_of_commits(table, -1 if last is None else last + 1, version) >= size:
        try:
            _write(table, version, last, time.time(), KeptLog() if kept is None else kept)
        except FileNotFoundError:  # the pointer's checkpoint is lost
            write_checkpoint(table, version)
        return True
    return False


def write_checkpoint(
    table: Location,
    version: int,
    now: float | None = None,
    *,
    whole: bool = False,
) -> None:
    """Write the checkpoint of a plain table's version, unless there is one.

    Args:
        table: its folder.
        version: a version that was committed.
        now: the time by which removals are old, Unix seconds; None is the present.
        whole: the version's commit says all there is of the table, and nothing before it is read.
    """
    if not checkpoint_file(table, version).exists():
        last = version - 1 if whole else newest_checkpoint(table, version)
        try:
            _write(table, version, last, time.time() if now is None else now, KeptLog(), whole=whole)
        except FileNotFoundError:  # a cleanup of the log took it at this moment
            write_by_delta_rs(table)


def _write(table: Location, version: int, last: int | None, now: float, kept: KeptLog, *, whole: bool = False) -> None:
    """Write a checkpoint from the last one, and from the commits since.

    Raises:
        FileNotFoundError: the last one is lost.
    """
    target = checkpoint_file(table, version)
    try:
        actions = _actions_at(table, version, last, now, kept, whole=whole)
    except _Strange:
        write_by_delta_rs(table)
        return
    content = _as_table(actions)
    is_small = content.num_rows <= _FEW_ROWS
    written = parquet.encode(content, "snappy" if is_small else "zstd")
    # Never over a checkpoint that a reader has open.
    is_ours = target.put_if_absent(written, drafted="draft_checkpoint", published="publish_checkpoint")
    kept.last, kept.actions = (version, actions) if is_ours and is_small else (None, {})
    files, size = len(actions["add"]), len(written)
    _point_to(table, {"version": version, "size": content.num_rows, "sizeInBytes": size, "numOfAddFiles": files})


def write_by_delta_rs(table: Location) -> None:
    """Write a checkpoint of a table that may not be plain, and put it on disk."""
    newest = open_table(table)
    with effect("write_checkpoint"):
        newest.create_checkpoint()
    settle_checkpoint(table, newest.version())


def settle_checkpoint(table: Location, version: int) -> None:
    """Put a version's checkpoint on disk, by whichever writer, with the pointer to it."""
    if not table.is_far:
        names = (checkpoint_file(table, version).name, _POINTER)
        log_folder(table).settle([name for name in names if (log_folder(table) / name).exists()])


def checkpoint_file(table: Location, version: int) -> Location:
    """Return the path of a version's checkpoint, None where it has none."""
    return log_folder(table) / f"{version:020}.checkpoint.parquet"


def pointed_to(table: Location) -> int | None:
    """Return the version of the checkpoint to which the log sends its readers, None without a readable pointer."""
    return _pointer(table).get("version")


def _pointer(table: Location) -> dict[str, int]:
    """Return the numbers of the log's pointer; nothing without a readable one."""
    try:
        read = json.loads((log_folder(table) / _POINTER).read_text())
        return {name: int(read[name]) for name in ("version", "sizeInBytes") if name in read or name == "version"}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def newest_checkpoint(table: Location, version: int) -> int | None:
    """Return the version of the newest single-file checkpoint up to a version, None without any."""
    pointer = pointed_to(table)
    if pointer is not None and pointer <= version and checkpoint_file(table, pointer).exists():
        return pointer
    versions = (checkpoint_version(file.name) for file in log_folder(table).files())
    return max((each for each in versions if each is not None and each <= version), default=None)


def metadata_in(checkpoint: Location) -> Action | None:
    """Return the metadata that a checkpoint has, as the log's JSON spells it; None where it is damaged or gone.

    Raises:
        OSError: storage does not serve.
    """
    try:
        content = checkpoint.read()
    except FileNotFoundError:  # a cleanup of the log took it
        return None
    try:
        column = parquet.decode(content, ["metaData"]).column("metaData")
    except (OSError, KeyError, pa.ArrowException):
        return None
    return next((_plain(each) for each in column.drop_null().to_pylist()), None)


def checkpoint_version(name: str) -> int | None:
    """Return the version of a checkpoint file; None for another file, and for a part of a checkpoint."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def _point_to(table: Location, last: Mapping[str, int]) -> None:
    pointer = pointed_to(table)
    if pointer is not None and pointer >= last["version"] and has_checkpoint(table, pointer):
        return  # a pointer to a checkpoint that was lost keeps every reader out
    (log_folder(table) / _POINTER).put(json.dumps(last).encode())


def _bytes_of_commits(table: Location, first: int, last: int) -> int:
    if table.is_far:  # one request, and not one for each commit
        wanted = {commit_file(table, version).name for version in range(max(first, 0), last + 1)}
        return sum(each.size for each in log_folder(table).files() if each.name in wanted)
    total = 0
    for version in range(max(first, 0), last + 1):
        with contextlib.suppress(FileNotFoundError):
            total += commit_file(table, version).size()
    return total


@dataclass
class _Since:
    """The actions of the commits after a checkpoint; the newest action about each thing counts."""

    protocol: Action | None = None
    metadata: Action | None = None
    transactions: dict[str, Action] = field(default_factory=dict)
    adds: dict[str, Action] = field(default_factory=dict)
    removes: dict[str, Action] = field(default_factory=dict)

    def take(self, action: Action) -> None:
        (kind, values), *more = action.items()
        if more or any(values.get(name) for name in _LOST.get(kind, ())):
            raise _Strange(kind)
        if kind == "add":
            self.removes.pop(values["path"], None)
            self.adds[values["path"]] = values
        elif kind == "remove":
            self.adds.pop(values["path"], None)
            self.removes[values["path"]] = values
        elif kind == "txn":
            self.transactions[values["appId"]] = values
        elif kind == "metaData":
            self.metadata = values
        elif kind == "protocol":
            self.protocol = values
        elif kind not in {"commitInfo", "cdc"}:
            raise _Strange(kind)


def _actions_at(
    table: Location, version: int, last: int | None, now: float, kept: KeptLog, *, whole: bool
) -> Mapping[str, pa.StructArray]:
    """Return all that a checkpoint of a version has, by kind."""
    if whole or last is None:
        old: Mapping[str, pa.StructArray] = {}
    else:
        old = kept.actions if kept.last == last else _actions_of(checkpoint_file(table, last))
    since = _since(table, -1 if last is None else last, version, kept.commits)
    paths = pa.array([*since.adds, *since.removes], pa.string())
    kinds = {
        "protocol": _newest(old, "protocol", since.protocol),
        "metaData": _newest(old, "metaData", since.metadata),
        "txn": _beside(old, "txn", "appId", pa.array(list(since.transactions), pa.string()), since.transactions),
        "remove": _unforgotten(_beside(old, "remove", "path", paths, since.removes), now),
        "add": _beside(old, "add", "path", paths, since.adds),
    }
    if len(kinds["protocol"]) != 1 or len(kinds["metaData"]) != 1:
        raise _Strange("no protocol or no metadata")
    return kinds


def _as_table(actions: Mapping[str, pa.StructArray]) -> pa.Table:
    """Return actions as the rows of a checkpoint, of which each has one kind."""
    count, before, columns = sum(map(len, actions.values())), 0, {}
    for kind, rows in actions.items():
        after = count - before - len(rows)
        columns[kind] = pa.chunked_array([pa.nulls(before, rows.type), rows, pa.nulls(after, rows.type)])
        before += len(rows)
    return pa.table(columns)


def _since(table: Location, last: int, version: int, held: Mapping[int, Sequence[Action]]) -> _Since:
    since = _Since()
    versions = range(last + 1, version + 1)
    missing = [at for at in versions if at not in held]
    read = dict(zip(missing, read_commits(table, missing), strict=True))
    for at in versions:
        actions = held.get(at) or read.get(at)
        if actions is None:
            raise _Strange(f"no commit {at}")
        for action in actions:
            since.take(action)
    return since


def _actions_of(checkpoint: Location) -> dict[str, pa.StructArray]:
    """Return the actions in a checkpoint, by any writer, by kind."""
    try:
        # A dataset, as of `parquet.read`, would take half a millisecond more, and threads.
        rows = parquet.ParquetFile(pa.BufferReader(checkpoint.read())).read(use_threads=False)
    except FileNotFoundError:
        raise
    except (
        OSError,
        pa.ArrowException,
    ) as error:  # the table is open, but delta-rs does not read every page
        raise _Strange(f"{checkpoint.name} cannot be read") from error
    by_key = {}
    for name in rows.column_names:
        actions = rows.column(name).combine_chunks().drop_null()
        if len(actions) and name not in _KINDS:
            raise _Strange(name)
        if name in _KINDS:
            by_key[name] = _as_kind(name, actions)
    return by_key


def _as_kind(name: str, actions: pa.StructArray) -> pa.StructArray:
    if actions.type == _KINDS[name]:
        return actions  # as we write it
    present = {each.name for each in actions.type}
    if any(len(pc.struct_field(actions, lost).drop_null()) for lost in _LOST.get(name, ()) if lost in present):
        raise _Strange(name)
    if name == "add" and "stats" not in present and len(actions):
        raise _Strange("statistics in columns only")
    if name in {"protocol", "metaData"}:
        return pa.array([_plain(each) for each in actions.to_pylist()], _KINDS[name])
    columns = [
        pc.struct_field(actions, each.name).cast(each.type)
        if each.name in present
        else pa.nulls(len(actions), each.type)
        for each in _KINDS[name]
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_KINDS[name]))


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata or protocol as the log's JSON has it: maps are dictionaries."""
    maps = {name: dict(metadata[name] or []) for name in ("configuration",) if name in metadata}
    if "format" in metadata:
        maps["format"] = {**metadata["format"], "options": dict(metadata["format"].get("options") or [])}
    return {**metadata, **maps}


def _newest(old: Mapping[str, pa.StructArray], kind: str, new: Action | None) -> pa.StructArray:
    if new is not None:
        return pa.array([new], _KINDS[kind])
    return old.get(kind, pa.array([], _KINDS[kind]))


def _beside(
    old: Mapping[str, pa.StructArray], kind: str, key: str, changed: pa.Array, new: Mapping[str, Action]
) -> pa.StructArray:
    """Return the old actions that no newer one replaces, and the new ones."""
    rows = pa.array(list(new.values()), _KINDS[kind])
    before = old.get(kind)
    if before is None or not len(before):
        return rows
    kept = before.filter(pc.invert(pc.is_in(pc.struct_field(before, key), changed)))
    return pa.concat_arrays([kept, rows])


def _unforgotten(removes: pa.StructArray, now: float) -> pa.StructArray:
    """Return the removals that a checkpoint still names; one without a time may be young."""
    at = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 2**62)
    changes = pc.fill_null(pc.struct_field(removes, "dataChange"), fill_value=True)
    oldest = pc.if_else(changes, int((now - REMOVED_SECONDS) * 1000), int((now - MERGED_SECONDS) * 1000))
    return removes.filter(pc.greater_equal(at, oldest))
