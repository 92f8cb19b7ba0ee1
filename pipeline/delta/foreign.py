"""Commits of others to a table that only turnout should write to: which they are, what they change, and the way back.

Every commit of ours has a mark. An object store has no lock that a workspace and turnout share, so a commit of another
writer there is a fault of rights. In a folder other writers are rebased (law L4), but those that take rows away.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import Schema

from pipeline.delta.log import Action, changes, listed_commits, read_commit
from pipeline.delta.marks import has_judged, info_of, is_ours
from pipeline.delta.opening import open_table
from pipeline.errors import Refused, first_line
from pipeline.storage.location import Location

_log = logging.getLogger("turnout")

_MOST: Final = 20  # commits that are read to find the last of a driver
_NEWEST: Final = 5
_AT_ONCE: Final = 16  # tables
_LETTERS: Final = 60  # of a foreign name that people see

_LEGACY: Final[Mapping[int, tuple[str, ...]]] = {
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""The features that a writer version before 7 brings (Delta's protocol, "Valid Feature Names in Table Features")."""

_PLAIN: Final = frozenset({"appendOnly", "invariants"})  # of every table of writer version 2


class ForeignChange(Refused):
    """Another writer has changed a game's table: no driver goes on before a person has decided."""


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit without our mark."""

    version: int
    operation: str
    engine: str
    user: str  # empty where the commit does not say
    at: str  # UTC, empty where the commit does not say
    changes: tuple[str, ...]  # of files, schema or protocol; empty: nothing that matters to a driver
    features: tuple[str, ...] = ()  # that its protocol has and a plain table lacks
    takes_rows: bool = False  # it removed files, and not only to write their rows into other files

    def __str__(self) -> str:
        who = f" as {self.user}" if self.user else ""
        when = f" at {self.at}" if self.at else ""
        what = " and ".join(self.changes) or "changed neither files nor schema nor protocol"
        return f"version {self.version}, {self.operation} by {self.engine}{who}{when}, {what}"

    def way_back(self, table: Location) -> str:
        """Return the statement that takes its change back, for a person who may write to the table."""
        name = f"delta.`{table.uri}`"
        if self.features:
            others = f" (and {', '.join(self.features[1:])})" if self.features[1:] else ""
            return f"ALTER TABLE {name} DROP FEATURE {self.features[0]} TRUNCATE HISTORY{others}"
        return f"RESTORE TABLE {name} TO VERSION AS OF {self.version - 1}"


def foreign_commit(
    version: int, actions: Sequence[Action], before: Callable[[], DeltaTable | None]
) -> ForeignCommit | None:
    """Return what a commit of another writer changes, None of a commit of ours and of the table's first.

    `before` opens the table as it was before the commit, None where nobody can: its schema then counts as changed.
    """
    if version == 0 or is_ours(actions):
        return None
    info = info_of(actions)
    metadata = next((each["metaData"] for each in actions if "metaData" in each), None)
    protocol = next((each["protocol"] for each in actions if "protocol" in each), None)
    changed = [*_files(actions)]
    if metadata is not None and _has_other_schema(metadata, before()):
        changed.append("changed the schema")
    features = () if protocol is None else _features(protocol)
    if protocol is not None:
        changed.append(f"changed the protocol ({', '.join(features) or 'no new feature'})")
    return ForeignCommit(
        version=version,
        operation=_short(info.get("operation")) or "an operation without a name",
        engine=_short(info.get("engineInfo")) or "an unknown engine",
        user=_short(info.get("userName") or info.get("userId")),
        at=_moment(info.get("timestamp")),
        changes=tuple(changed),
        features=features,
        takes_rows=any(changes(each.get("remove")) for each in actions),
    )


def commits_of_others(table: Location, newest: int, seen: int) -> list[ForeignCommit]:
    """Return the foreign commits up to `newest` that no driver has followed yet, in order.

    They are those above `seen` and above the last commit that says that the ones before were judged. A request for
    each commit, as a rule for one; at most 20, and none below the end of a log that was cut.
    """
    found = []
    for version in range(newest, max(seen, 0, newest - _MOST), -1):
        actions = read_commit(table, version)
        if actions is None or has_judged(actions):
            break
        each = foreign_commit(version, actions, lambda: _opened(table, version - 1))  # noqa: B023 - called at once
        found += [] if each is None else [each]
    return found[::-1]


def newest_in(tables: Iterable[Location]) -> tuple[list[tuple[Location, ForeignCommit]], list[str]]:
    """Return the foreign ones of the newest five commits of each table, and what could not be read, as sentences."""

    def look(table: Location) -> tuple[list[tuple[Location, ForeignCommit]], list[str]]:
        try:
            return [(table, each) for each in newest_foreign(table, _NEWEST)], []
        except (OSError, DeltaError) as error:
            return [], [f"{table}: {first_line(error)}"]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looked = list(pool.map(look, tables))
    return [each for found, _ in looked for each in found], [each for _, unread in looked for each in unread]


def newest_foreign(table: Location, most: int) -> list[ForeignCommit]:
    """Return the foreign ones of a log's newest commits, in order; a listing, and a request for each.

    Raises:
        DeltaError: a commit is damaged.
    """
    versions = sorted(listed_commits(table))[-most:]
    read = ((version, read_commit(table, version)) for version in versions)
    each = (
        foreign_commit(version, actions, lambda: _opened(table, version - 1))  # noqa: B023 - called at once
        for version, actions in read
        if actions is not None
    )
    return [commit for commit in each if commit is not None]


class Guard:
    """Judges the commits to a game's table that its driver reads for other reasons. For one thread at a time."""

    def __init__(self, table: Location) -> None:
        """Begin before the table's first commit."""
        self._table = table
        self._found: list[ForeignCommit] = []  # not yet logged
        self._refused: list[ForeignCommit] = []  # until a person has accepted them

    def read(self, version: int, actions: Sequence[Action], before: DeltaTable) -> None:
        """Take a commit, and the table as it was before."""
        found = foreign_commit(version, actions, lambda: before)
        self._found += [] if found is None else [found]

    def unread(self, newest: int, seen: int) -> None:
        """Look at the commits between two versions, which the driver skips: it has read the table as a whole."""
        self._found += commits_of_others(self._table, newest, seen)

    def judge(self, table: DeltaTable, *, plain: bool) -> None:
        """Log the foreign commits since the last call; `plain` says that the table has no features.

        Raises:
            ForeignChange: one has taken rows, or in a bucket changed files, schema or protocol, and no person has
                accepted it since; or a table in a bucket has a feature of another writer.
        """
        self._log_found()
        if self._refused:
            raise refusal(self._table, self._refused)
        if self._table.is_far and not plain and (refused := refused_features(self._table, table)) is not None:
            raise refused

    def accept(self) -> None:
        """Take the commits so far as accepted by a person. A feature of another writer is refused all the same."""
        self._log_found()
        self._refused = []

    def _log_found(self) -> None:
        found, self._found = self._found, []
        for each in found:
            _log.warning("%s: foreign commit: %s", self._table.name, each)
        self._refused += [each for each in found if each.takes_rows or (self._table.is_far and each.changes)]


def open_own(table: Location) -> DeltaTable:
    """Open a game's table; in a bucket nobody else may write to it.

    Raises:
        ForeignChange: a feature of another writer keeps delta-rs from opening one in a bucket.
        DeltaError: see `open_table`.
    """
    try:
        return open_table(table)
    except TableNotFoundError:
        raise
    except DeltaError as error:
        refused = _refused_protocol(table, None) if table.is_far else None
        if refused is None:
            raise
        raise refused from error


def refusal(table: Location, commits: Sequence[ForeignCommit]) -> ForeignChange:
    """Return why a game's driver does not go on, from foreign commits that change something."""
    first, more = commits[0], len(commits) - 1
    others = f" ({more} more after it)" if more else ""
    rebuilt = "" if first.features else f" or run `turnout repair rebuild {table.name}`"
    return ForeignChange(
        f"Another writer committed to the table: {first}{others}. Take it back with {first.way_back(table)}{rebuilt}; "
        f"then run `turnout repair retry {table.name}`."
    )


def refused_features(table: Location, opened: DeltaTable) -> ForeignChange | None:
    """Return why a table that is not plain is not written to, None where its features are ours.

    Raises:
        DeltaError: a commit is damaged.
    """
    protocol = opened.protocol()
    stated = {
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }
    return _refused_protocol(table, _features(stated))


def _refused_protocol(table: Location, features: tuple[str, ...] | None) -> ForeignChange | None:
    """Look for the commit with the newest protocol; without `features` its own count."""
    for version in sorted(listed_commits(table), reverse=True):
        actions = read_commit(table, version) or []
        if not any("protocol" in each for each in actions):
            continue
        if version == 0 or is_ours(actions):
            return None
        found = foreign_commit(version, actions, lambda: None)
        return refusal(table, [found]) if found is not None and (found.features or features is None) else None
    if not features:
        return None
    unknown = ForeignCommit(0, "an operation", "an unknown engine", "", "", ("changed the protocol",), features)
    return ForeignChange(
        f"The table has {', '.join(features)}, added by a commit that the log no longer has. Take it back with "
        f"{unknown.way_back(table)}; then run `turnout repair retry {table.name}`."
    )


def _files(actions: Sequence[Action]) -> Iterator[str]:
    for kind, verb in (("remove", "removed"), ("add", "added")):
        if count := sum(kind in each for each in actions):
            yield f"{verb} {count} file{'' if count == 1 else 's'}"


def _has_other_schema(metadata: Mapping[str, Any], before: DeltaTable | None) -> bool:
    """Return whether metadata changes more than properties and comments of the table."""
    if before is None:
        return True
    held = before.metadata()
    same = metadata.get("id") == str(held.id) and list(metadata.get("partitionColumns") or []) == held.partition_columns
    try:
        return not same or _without_comments(Schema.from_json(metadata["schemaString"])) != _without_comments(
            before.schema()
        )
    except (KeyError, TypeError, ValueError, DeltaError):
        return True


def _without_comments(schema: Schema) -> Schema:
    def bare(part: Any) -> Any:
        if isinstance(part, list):
            return [bare(each) for each in part]
        if not isinstance(part, dict):
            return part
        kept = {name: bare(value) for name, value in part.items() if name != "metadata"}
        if "metadata" in part:
            kept["metadata"] = {name: value for name, value in part["metadata"].items() if name != "comment"}
        return kept

    return Schema.from_json(json.dumps(bare(json.loads(schema.to_json()))))


def _features(protocol: Mapping[str, Any]) -> tuple[str, ...]:
    named = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    writer = int(protocol.get("minWriterVersion") or 0)
    legacy = [name for version, names in _LEGACY.items() if version <= writer < 7 for name in names]
    return tuple(sorted({_short(each) for each in named | set(legacy)} - _PLAIN))


def _opened(table: Location, version: int) -> DeltaTable | None:
    try:
        return open_table(table, version)
    except DeltaError:  # the log was cut there
        return None


def _short(text: object) -> str:
    """Return a foreign text on one line, cut."""
    shown = "".join(letter if letter.isprintable() and letter != "`" else " " for letter in str(text or ""))
    return " ".join(shown.split())[:_LETTERS]


def _moment(timestamp: object) -> str:
    if not isinstance(timestamp, int):
        return ""
    try:
        return f"{datetime.fromtimestamp(timestamp / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return ""
