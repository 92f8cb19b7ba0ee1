"""Commits of others to a table that only turnout should write to: which they are, what they change, and the way back.

Every commit of ours has a mark. An object store has no lock that a workspace and turnout share, so a commit of another
writer there is a fault of rights. In a folder other writers are rebased (law L4), but those that take rows away.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import Schema

from pipeline.base.errors import Refused, first_line
from pipeline.lake.delta.log import Action, changes, commit_id, listed_commits, read_commit, read_commits
from pipeline.lake.delta.marks import has_judged, info_of, is_ours
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

_log = logging.getLogger("turnout")

_ENOUGH: Final = 1_000  # commits after which a look back ends where one that parks the game was found
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

    hides_cursor = False  # what was read of the table's cursor may be wrong: it must be opened anew


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
        """Return the statement that reverts its change, for a person who may write to the table."""
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


@dataclass(slots=True)
class ForeignLook:
    """What a driver finds in the commits that it has not followed."""

    found: list[ForeignCommit] = field(default_factory=list)  # in order
    rows_at: int = 0  # the version of the newest commit of ours that adds or removes rows, 0 without one
    is_whole: bool = True  # it went back to the last commit that was judged
    last: str | None = None  # the id of the newest commit


def look_back(table: Location, newest: int, seen: int) -> ForeignLook:
    """Return what the commits up to `newest` are that no driver has followed yet.

    They are those above `seen` and above the last commit that says that the ones before were judged. A request for
    each commit, as a rule for one, and none below the end of a log that was cut. After a thousand commits the look
    ends where it has found one that parks the game.
    """
    look, least = ForeignLook(), max(seen, 0)
    for version, actions in _newest_first(table, newest, min(least, newest - 1)):
        if actions is None:
            look.is_whole = False
            break
        if version == newest:
            look.last = commit_id(actions)
        if version <= least or has_judged(actions):
            break
        if look.rows_at == 0 and changes_rows(actions):
            look.rows_at = version
        each = foreign_commit(version, actions, lambda: _opened(table, version - 1))  # noqa: B023 - called at once
        look.found += [] if each is None else [each]
        if newest - version >= _ENOUGH and any(_parks(table, each) for each in look.found):
            look.is_whole = False
            break
    look.found.reverse()
    return look


def _newest_first(table: Location, newest: int, above: int) -> Iterator[tuple[int, list[Action] | None]]:
    """Yield the commits from a version down to above another one; the first alone, as it mostly is the last one."""
    ahead = 1
    while newest > above:
        versions = range(newest, max(above, newest - ahead), -1)
        yield from zip(versions, read_commits(table, versions), strict=True)
        newest -= ahead
        ahead = min(2 * ahead, _AT_ONCE)


def changes_rows(actions: Sequence[Action]) -> bool:
    """Return whether a commit is ours and adds or removes rows, which a `RESTORE` to before it would take back."""
    changed = any(changes(each.get("add")) or changes(each.get("remove")) for each in actions)
    return changed and is_ours(actions)


def _parks(table: Location, commit: ForeignCommit) -> bool:
    return commit.takes_rows or (table.is_far and bool(commit.changes))


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
        self._rows_at = 0  # the version of the last commit of ours that changes rows
        self._is_whole = True  # the first of the refused is the first there is

    def read(self, version: int, actions: Sequence[Action], before: DeltaTable) -> None:
        """Take a commit, and the table as it was before."""
        found = foreign_commit(version, actions, lambda: before)
        self._found += [] if found is None else [found]
        if self._refused or self._found:
            self._rows_at = version if changes_rows(actions) else self._rows_at

    def unread(self, newest: int, seen: int) -> str | None:
        """Look at the commits between two versions, which the driver skips: it has read the table as a whole.

        Returns the id of the newest one, None where the log does not have it.
        """
        look = look_back(self._table, newest, seen)
        self._found += look.found
        self._rows_at = max(self._rows_at, look.rows_at)
        self._is_whole = self._is_whole and (look.is_whole or not look.found)
        return look.last

    def judge(self, table: DeltaTable, *, plain: bool) -> None:
        """Log the foreign commits since the last call; `plain` says that the table has no features.

        Raises:
            ForeignChange: one has taken rows, or in a bucket changed files, schema or protocol, and no person has
                accepted it since; or a table in a bucket has a feature of another writer.
        """
        self._log_found()
        if self._refused:
            restores = self._is_whole and self._rows_at < self._refused[0].version
            raise refusal(self._table, self._refused, restores=restores)
        if self._table.is_far and not plain and (refused := refused_features(self._table, table)) is not None:
            raise refused

    def accept(self) -> None:
        """Take the commits so far as accepted by a person. A feature of another writer is refused all the same."""
        self._log_found()
        self._refused, self._is_whole = [], True

    def _log_found(self) -> None:
        found, self._found = self._found, []
        for each in found:
            _log.warning("%s: foreign commit: %s", self._table.name, each)
        self._refused += [each for each in found if _parks(self._table, each)]


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


def refusal(table: Location, commits: Sequence[ForeignCommit], *, restores: bool = True) -> ForeignChange:
    """Return why a game's driver does not go on, from foreign commits that change something.

    Without `restores` a `RESTORE` to the version before them would lose rows of ours, or not bring all rows back.
    """
    first, more = commits[0], len(commits) - 1
    others = f" ({more} more after it)" if more else ""
    rebuild = f"run `turnout repair rebuild {table.name}`"
    if first.features:
        advice = f"Take it back with {first.way_back(table)}"
    elif restores:
        advice = f"Take it back with {first.way_back(table)} or {rebuild}"
    else:
        advice = f"To take it back {rebuild}: RESTORE loses rows"
    retry = f"run `turnout repair retry {table.name}`"
    return ForeignChange(f"Another writer committed to the table: {first}{others}. {advice}; then {retry}.")


def cursor_expires(table: Location, name: str, value: str) -> ForeignChange:
    """Return why no row lands in a table with the property that lets transactions expire."""
    change = ForeignChange(
        f"Another writer set the table's property {name} to {value!r}: its log may forget turnout's cursor, and rows "
        f"would land twice. Run ALTER TABLE delta.`{table.uri}` UNSET TBLPROPERTIES ('{name}'); then run "
        f"`turnout repair retry {table.name}`."
    )
    change.hides_cursor = True
    return change


def cursor_lost(table: Location, cursor: int) -> ForeignChange:
    """Return why no row lands in a table with rows whose log no longer has the cursor."""
    return ForeignChange(
        f"The table's log has lost turnout's cursor, which was seq {cursor}, as where transactions expire: rows would "
        f"land twice. Run `turnout repair rebuild {table.name}`; then run `turnout repair retry {table.name}`."
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
    buried = False
    for version in sorted(listed_commits(table), reverse=True):
        actions = read_commit(table, version) or []
        if not any("protocol" in each for each in actions):
            buried = buried or changes_rows(actions)
            continue
        if version == 0 or is_ours(actions):
            return None
        found = foreign_commit(version, actions, lambda: None)
        if found is None or not (found.features or features is None):
            return None
        return refusal(table, [found], restores=not buried)
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
