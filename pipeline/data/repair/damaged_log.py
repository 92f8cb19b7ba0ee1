"""A game's table with a damaged Delta log: what is left of the log, and the commit that restarts it.

That commit holds the whole table and removes every earlier file, also those that only the damaged part names. Its
checkpoint keeps readers from the earlier log. Nothing is moved or deleted. Called by the rebuild.
"""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.data.repair.refusals import unreadable
from pipeline.lake.delta import parquet
from pipeline.lake.delta.checkpoint import checkpoint_file, pointed_to, write_checkpoint
from pipeline.lake.delta.columns import json_of
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import LOG, Action, exists, has_checkpoint, log_folder, publish_commit, read_commit
from pipeline.lake.delta.marks import ENGINE
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

_BEGINS: Final = "turnoutBegins"
"""Key in the info of a commit that restarts a log."""

_KINDS: Final = ("protocol", "metaData", "txn", "add")


@dataclass(slots=True)
class Remains:
    """The state from the undamaged parts of a log; later parts outrank earlier ones."""

    version: int = -1  # the newest version with a file in the log, damaged or not
    transactions: dict[str, int] = field(default_factory=dict)
    protocol: Action | None = None
    metadata: Action | None = None
    paths: set[str] = field(default_factory=set)  # of files that were in the table at any time
    damage: list[str] = field(default_factory=list)  # the names of damaged and of missing parts

    def transaction_version(self, app_id: str) -> int | None:
        """Return the transaction version of an application id, None where no undamaged part has it."""
        return self.transactions.get(app_id)

    def take(self, action: Action) -> None:
        """Apply an action that follows those applied before."""
        if txn := action.get("txn"):
            self.transactions[str(txn["appId"])] = int(txn["version"])
        if added := action.get("add"):
            self.paths.add(str(added["path"]))
        self.protocol = action.get("protocol") or self.protocol
        self.metadata = action.get("metaData") or self.metadata


def read(folder: Location, key: str, error: Exception) -> Remains:
    """Read the undamaged parts of the log of a game's table, which cannot be opened because of `error`.

    Raises:
        Refused: the table opens by now; its parts cannot be read; or it has features that only Spark can write.
    """
    try:
        remains = _read(folder)
    except OSError as cause:
        raise unreadable(key, cause) from cause
    if not remains.damage:
        _require_shut(folder, key, error)
        remains.damage.append("the content of its newest checkpoint")  # it can be read, and has no protocol or metadata
    protocol = remains.protocol or {}
    if (protocol.get("minReaderVersion") or 1) > 1 or (protocol.get("minWriterVersion") or 2) > 2:
        raise Refused(
            f"The log of {key} is damaged, and the table has features that only Spark can write, so a rebuild cannot "
            f"replace it. "
            f"Put {join_limited(remains.damage, 3)} back from a backup."
        )
    return remains


def _require_shut(folder: Location, key: str, error: Exception) -> None:
    try:
        open_table(folder)
    except DeltaError:
        return
    raise unreadable(key, error) from error


def finish(folder: Location) -> None:
    """Write the checkpoint of a rebuild that was killed right after its commit."""
    for version in sorted(_versions(folder), reverse=True):
        if _begins(folder, version):
            write_checkpoint(folder, version, whole=True)
            return


def publish(
    folder: Location,
    remains: Remains,
    columns: pa.Schema,
    files: list[DataFile],
    transactions: Mapping[str, int],
    note: str,
    description: str,
) -> bool:
    """Restart the log with these files and transactions; return False where others have written to it since."""
    now_ms, version = int(time.time() * 1000), remains.version + 1
    new = {file.path for file in files}
    info: Action = {"timestamp": now_ms, "operation": "WRITE", "engineInfo": ENGINE, ENGINE: note, _BEGINS: True}
    old = {quote(unquote(path)) if path not in remains.paths else path for path in remains.paths | _data_files(folder)}
    actions: list[Action] = [
        {"commitInfo": info},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": _metadata(remains.metadata or {}, columns, description, now_ms)},
        *(
            {"txn": {"appId": app, "version": at, "lastUpdated": now_ms}}
            for app, at in {**remains.transactions, **transactions}.items()
        ),
        # If the damaged part is put back later, no earlier row may stand beside the new ones.
        *({"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": True}} for path in sorted(old - new)),
        *(file.to_action(now_ms) for file in files),
    ]
    if not publish_commit(folder, version, actions):
        return False
    write_checkpoint(folder, version, whole=True)
    return True


def _read(folder: Location) -> Remains:
    if not exists(folder):
        raise NotADirectoryError(f"{log_folder(folder)} is not a folder. Move it away and start the game's group")
    remains = Remains()
    versions = sorted(_versions(folder))
    readable = -1  # the newest version that can be read from its checkpoint
    for version in versions:
        _take(remains, f"{version:020}.json", partial(read_commit, folder, version))
        checkpoint = checkpoint_file(folder, version)
        if checkpoint.exists() and _take(remains, checkpoint.name, partial(_checkpointed, checkpoint)):
            readable = version
    if versions:
        remains.version = versions[-1]
        wanted = range(max(readable + 1, 0), remains.version + 1)
        remains.damage += [f"{each:020}.json" for each in wanted if each not in versions]
    pointer = pointed_to(folder)
    if pointer is not None and not has_checkpoint(folder, pointer):
        remains.damage.append("_last_checkpoint")
    if versions and (remains.protocol is None or remains.metadata is None):
        remains.damage.append(f"{versions[0]:020}.json")
    return remains


def _take(remains: Remains, name: str, actions: Callable[[], list[Action] | None]) -> bool:
    """Apply a part of the log; without readable actions, add it to the damaged parts and return False."""
    try:
        found = actions()
        for action in found or []:
            remains.take(action)
    except (DeltaError, AttributeError, KeyError, TypeError, ValueError):
        found = []
    if found == []:  # an empty commit was cut short, as by a power failure; None is one that log cleanup removed
        remains.damage.append(name)
    return bool(found)


def _begins(folder: Location, version: int) -> bool:
    """Return whether a log restarts at a version, as far as its commit can be read."""
    try:
        return any(_BEGINS in action.get("commitInfo", {}) for action in read_commit(folder, version) or [])
    except (DeltaError, AttributeError, TypeError):
        return False


def _versions(folder: Location) -> set[int]:
    """Return the versions of which a log has a commit or a checkpoint."""
    names = (each.name for each in log_folder(folder).files())
    commits = [name for name in names if name[:20].isdecimal() and name[20:21] == "."]
    return {int(name[:20]) for name in commits if name[20:] == ".json" or name[20:].startswith(".checkpoint.")}


def _checkpointed(file: Location) -> list[Action]:
    content = file.read()  # an error of storage is not damage
    try:
        rows = parquet.decode(content)
        actions: list[Action] = rows.select([kind for kind in _KINDS if kind in rows.column_names]).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:  # Arrow raises OSError for unreadable bytes, too
        raise DeltaError(f"{file} is damaged: {error}") from error
    return actions


def _data_files(folder: Location) -> set[str]:
    names = (each.name for each in folder.files(deep=True))
    return {quote(name) for name in names if name.endswith(".parquet") and not name.startswith(f"{LOG}/")}


def _metadata(before: Action, columns: pa.Schema, description: str, now_ms: int) -> dict[str, Any]:
    """Return the table's metadata: the earlier one where it is known, with today's columns."""
    return {
        "id": before.get("id") or str(uuid.uuid4()),
        "name": before.get("name"),
        "description": before.get("description") or description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json_of(columns),
        "partitionColumns": [],
        "configuration": dict(before.get("configuration") or {}),
        "createdTime": before.get("createdTime") or now_ms,
    }
