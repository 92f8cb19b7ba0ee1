"""The Delta log of a plain table, read and written commit by commit as the protocol describes it.

A commit of ours is one JSON file that must not exist yet: that is all of Delta's concurrency control. Used for tables
of the oldest protocol only (`is_plain`). docs/decisions/0006 says why not through delta-rs.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.base.failpoints import effect
from pipeline.lake.delta.marks import info_of
from pipeline.lake.storage.location import Location

Action = dict[str, Any]

_AT_ONCE: Final = 16  # requests to a bucket
_ENCODE: Final = msgspec.json.Encoder().encode  # json.dumps takes 7 µs for an action, this one 0.4

LOG: Final = "_delta_log"
"""The name of a log's folder in its table's."""


def is_plain(table: DeltaTable) -> bool:
    """Return whether a commit to this table needs only its actions: no table features, no column invariants."""
    protocol = table.protocol()
    plain = protocol.min_reader_version == 1 and protocol.min_writer_version <= 2 and not protocol.writer_features
    return plain and "delta.invariants" not in table.schema().to_json()


def read_commit(table: Location, version: int) -> list[Action] | None:
    """Return the actions of one commit, or None when there is no such commit (yet).

    Raises:
        DeltaError: its file is damaged.
    """
    file = commit_file(table, version)
    try:
        return [json.loads(line) for line in json_lines(file.read_text())]
    except FileNotFoundError:
        return None
    except ValueError as error:  # also bytes that are not text
        raise DeltaError(f"{file} is damaged ({error}). Put it back from a backup.") from error


def read_commits(table: Location, versions: Sequence[int]) -> Iterator[list[Action] | None]:
    """Yield what `read_commit` says of versions, in their order; of a bucket many are read at once.

    Raises:
        DeltaError: the file of one of them is damaged.
    """
    if not table.is_far or len(versions) < 2:
        yield from (read_commit(table, version) for version in versions)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(partial(read_commit, table), versions)


def json_lines(text: str) -> list[str]:
    """Return the lines of a text of JSON lines, without empty ones.

    They end at a line feed only: `str.splitlines` also ends them at U+0085, U+2028 and U+2029, which JSON writes as
    they are, and which names and statistics have.
    """
    return [line for line in text.split("\n") if line]


def publish_commit(
    table: Location, version: int, actions: Sequence[Action], *, settled: bool = True, before: str | None = None
) -> bool:
    """Write a commit unless its version is taken, or was before log cleanup; return whether it was written.

    The files that it names are on disk already. With `settled` False a power cut may take it, as if it never was.
    It has an id (`new_id`): storage may have written it and lost the reply, and a repeated request then says that the
    version is taken. A commit of ours is no lost race. `before` is the id of the commit that it must follow, None: any.
    """
    target = commit_file(table, version)
    text = b"\n".join(_ENCODE(_with_id(action)) for action in actions)
    written = target.put_if_absent(text, drafted="draft_commit", published="publish_commit", settled=settled)
    if not written and not _holds(target, text):
        return False
    if version and not has_version(table, version - 1, before):
        # The log was cut from below, so it ends elsewhere: this writer had stood still and saw the old end. Or it is
        # the log of a table that was made again.
        with effect("withdraw_commit"):
            target.delete()
        return False
    return True


def new_id() -> str:
    """Return an id for a commit."""
    return str(uuid.uuid4())


def commit_id(actions: Sequence[Action]) -> str:
    """Return what sets a commit apart from all others, also from those of its version in other logs."""
    own = info_of(actions).get("txnId")
    if isinstance(own, str) and own:
        return own
    return hashlib.sha256(json.dumps(actions, sort_keys=True).encode()).hexdigest()


def _with_id(action: Action) -> Action:
    """Give a commit its id, by the name that Spark gives its own, unless its writer did."""
    if "txnId" in action.get("commitInfo", {"txnId": None}):
        return action
    return {"commitInfo": {**action["commitInfo"], "txnId": new_id()}}


def _holds(target: Location, text: bytes) -> bool:
    try:
        return target.read() == text
    except FileNotFoundError:  # a cleanup of the log took it
        return False


def commits_after(table: Location, version: int) -> Iterator[tuple[int, list[Action]]]:
    """Yield the commits after a version, in order."""
    ahead = 1  # more where there was one: of a log whose end is near each further look costs a request
    while True:
        for actions in read_commits(table, range(version + 1, version + 1 + ahead)):
            if actions is None:
                return
            version += 1
            yield version, actions
        ahead = min(2 * ahead, _AT_ONCE)


def infos(table: Location) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each version that the log still has as a commit, in order, with its commit info.

    In place of delta-rs's `history`, which holds the interpreter's lock until storage has answered.

    Raises:
        DeltaError: a commit is damaged.
    """
    versions = sorted(listed_commits(table))
    for version, actions in zip(versions, read_commits(table, versions), strict=True):
        if actions is not None:
            yield version, info_of(actions)


def settle_commits(table: Location, version: int) -> None:
    """Put the commits after a version on disk, with the files that they add: delta-rs leaves both to the system."""
    if table.is_far:
        return
    names = [LOG]
    for at, actions in commits_after(table, version):
        added = (unquote(action["add"]["path"]) for action in actions if "add" in action)
        names += [f"{LOG}/{at:020}.json", *(path for path in added if (table / path).exists())]
    table.settle(names)


def appended(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the log entry of each file with new rows in a commit."""
    return (action["add"] for action in actions if changes(action.get("add")))


def changes(action: Action | None) -> bool:
    """Return whether an action adds or removes rows, and not only moves them to another file."""
    return action is not None and bool(action.get("dataChange", True))


def exists(table: Location) -> bool:
    """Return whether there is a table: whether it has a log."""
    return log_folder(table).is_folder()


def log_folder(table: Location) -> Location:
    """Return the folder of a table's log."""
    return table / LOG


def listed_commits(table: Location) -> set[int]:
    """Return the versions whose commits a listing of the log shows; of a growing log it may lack some."""
    names = (each.name.removesuffix(".json") for each in log_folder(table).files() if each.name.endswith(".json"))
    return {int(name) for name in names if name.isdigit()}


def has_version(table: Location, version: int, own: str | None = None) -> bool:
    """Return whether a log still has a version, as a commit or as a checkpoint.

    With `own` the commit must have this id: where a table was made again, another one has its number. One request.
    """
    commit = commit_file(table, version)
    if own is None:
        return commit.exists() or has_checkpoint(table, version)
    try:
        if own.encode() in commit.read():
            return True  # mostly: ids of ours are in their commits, and digests are not
        actions = read_commit(table, version)
        return actions is not None and commit_id(actions) == own
    except FileNotFoundError:
        return has_checkpoint(table, version)
    except DeltaError:
        return True  # who opens the log next finds the damage


def has_checkpoint(table: Location, version: int) -> bool:
    """Return whether a version has a checkpoint, by any writer, in one file or in several."""
    return any(each.name.startswith(f"{version:020}.checkpoint") for each in log_folder(table).files())


def commit_file(table: Location, version: int) -> Location:
    """Return the path of a version's commit, None where it is missing."""
    return table / f"{LOG}/{version:020}.json"
