"""One Delta table as we write it: files first, then one commit that also moves a cursor.

Used for bronze, quarantine and game tables. The cursor is a Delta transaction (`txn`): a commit moves it from
what was read to what the caller says, or fails with `TableConflict` (law L4).
"""

import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction

from pipeline.base.errors import Conflict, first_line
from pipeline.base.failpoints import effect, hit
from pipeline.lake.delta.checkpoint import KeptLog, write_by_delta_rs, write_when_due
from pipeline.lake.delta.columns import covers, merges_of, require_same_merges
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.foreign import Guard, cursor_expires, cursor_lost, open_own
from pipeline.lake.delta.log import (
    LOG,
    Action,
    commit_id,
    commits_after,
    has_version,
    is_plain,
    new_id,
    publish_commit,
    settle_commits,
)
from pipeline.lake.delta.marks import ACCEPTED, ENGINE, marked
from pipeline.lake.delta.meanings import PROPERTY, carried, joined
from pipeline.lake.delta.metadata import EXPIRY, NEVER, newest_metadata, with_properties
from pipeline.lake.delta.opening import create, open_table
from pipeline.lake.delta.own_view import own_view
from pipeline.lake.storage.location import Location

_log: Final = logging.getLogger("turnout")

QUIET: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""After a commit delta-rs does nothing more: checkpoints and clean-up are maintenance's."""

_COMMIT_RETRIES = 15  # against writers of other application ids, such as compaction
_COLUMN_RETRIES = 14  # against writers that change the columns at the same moment
_HELD_COMMITS = 32
_TRUSTED_SECONDS = 600.0  # how long a view of the log counts as recent; log cleanup keeps far more than that


class TableConflict(Conflict):
    """Another writer moved or repaired the table since it was read; nothing of the commit is in the table."""


class CursorTable:
    """A Delta table with the cursor of one application id, held open between commits.

    Threads that share it take turns. Another process may write to the same table at any time.
    """

    def __init__(
        self,
        path: Location,
        table: DeltaTable,
        app_id: str,
        checkpoint_interval: int,
        *,
        guarded: bool = False,
        chained: bool = False,
    ) -> None:
        """Wrap an open table; use `open` or `create`."""
        self.path = path
        self._chained = chained
        self._guard = Guard(path) if guarded else None
        # A commit's number follows from the last read, so commits are numbered one after the other.
        self._lock = threading.RLock()
        self._app_id = app_id
        self._checkpoint_interval = checkpoint_interval
        # Staggered over tables: all checkpoints at once made one pass three times longer (docs/performance.md). By the
        # folder's name alone, so that the phase does not depend on the environment's path.
        self._checkpoint_phase = zlib.crc32(path.name.encode()) % checkpoint_interval
        self._table = table
        self._version = -1
        self._last: str | None = None  # the id of its commit, None where it was not read
        self._id = ""  # of the table as last read
        self._expiry: str | None = None
        self._had: int | None = None  # its last known cursor
        self._lost: int | None = None  # the same where its log no longer has it
        self._followed: dict[str, int] = {}  # transactions of commits after the one `_table` stands at
        self._plain = False
        self._suits: pa.Schema | None = None  # columns of rows, found to be the table's as it was adopted
        self._seen_at = 0.0
        self._kept = KeptLog()
        self.heed: Callable[[int, Sequence[Action]], None] | None = None
        """Is called with each commit of others before one of ours follows it; where it raises, none does."""
        self._adopt(table)
        if self._guard is not None:
            self._last = self._guard.unread(self._version, 0)

    @classmethod
    def open(
        cls,
        path: Location,
        app_id: str,
        checkpoint_interval: int = 10,
        *,
        guarded: bool = False,
        chained: bool = False,
    ) -> Self | None:
        """Open a table, or return None where there is none.

        Of a guarded table a harmful change of another writer stops the next commit (`require_own`).
        Rows of a chained one are written again where a power cut takes a commit, so commits do not wait until the disk
        has their names; the files that they name are on disk before.

        Raises:
            ForeignChange: see `open_own`.
        """
        try:
            table = _opened(path, guarded=guarded)
            return cls(path, table, app_id, checkpoint_interval, guarded=guarded, chained=chained)
        except TableNotFoundError:
            return None

    @classmethod
    def create(
        cls,
        path: Location,
        schema: pa.Schema,
        app_id: str,
        checkpoint_interval: int = 10,
        description: str | None = None,
        *,
        guarded: bool = False,
        chained: bool = False,
    ) -> Self:
        """Open a table, creating it with these columns where there is none; see `open`."""
        existing = cls.open(path, app_id, checkpoint_interval, guarded=guarded, chained=chained)
        if existing is not None:
            return existing
        with effect("make_folder"):
            path.make()
        table = create(path, schema, description)
        settle_commits(path, -1)
        return cls(path, table, app_id, checkpoint_interval, guarded=guarded, chained=chained)

    @property
    def version(self) -> int:
        """The table version this object has seen."""
        return self._version

    @property
    def is_plain(self) -> bool:
        """Whether the log describes the files completely: no deletion vectors, no mapped columns."""
        return self._plain

    @property
    def table_id(self) -> str:
        """The table's id; a new table at the same path has another one."""
        return str(self._table.metadata().id)

    @property
    def cursor(self) -> int | None:
        """The transaction version as last read, None before the first commit."""
        version = self.transaction_version(self._app_id)
        self._had = self._had if version is None else version
        return version

    def transaction_version(self, app_id: str) -> int | None:
        """Return the transaction version of any application id as last read."""
        with self._lock:
            if app_id in self._followed:
                return self._followed[app_id]
            version = self._table.transaction_version(app_id)
            return None if version is None else int(version)

    def settle(self) -> None:
        """Put all commits on disk whose rows are seen here: a process that wrote one may have been killed before."""
        with self._lock:
            self.path.settle([LOG])

    def refresh(self) -> None:
        """Read what others have committed.

        Raises:
            ForeignChange: see `require_own`.
        """
        with self._lock:
            self._follow()
            self.require_own()

    def require_own(self) -> None:
        """Check that no other writer has harmed a guarded table, by the commits that were read for other reasons.

        Foreign commits are logged. Those that take rows, and in a bucket all that change something, are refused until
        a person has accepted them; a feature of another writer is refused always in a bucket.

        Raises:
            ForeignChange: another writer has taken rows, or in a bucket changed files, schema or protocol; or the
                table's log may forget the cursor, or has forgotten it.
        """
        if self._guard is None:
            return
        with self._lock:
            self._guard.judge(self._table, plain=self._plain)
            if self._expiry not in {None, NEVER}:
                raise cursor_expires(self.path, EXPIRY, str(self._expiry))
            if self._lost is not None:
                raise cursor_lost(self.path, self._lost)

    def accept_foreign(self) -> None:
        """Go on behind the foreign commits that the table has now, and none later: a person has decided so.

        An empty commit notes it right behind them, so the next process that opens the table knows of it, too.

        Raises:
            ForeignChange: another writer committed at this moment, or a table in a bucket has a feature of one.
        """
        if self._guard is None:
            return
        with self._lock:
            self._follow()
            self._guard.accept()
            self.require_own()
            info = {"timestamp": int(time.time() * 1000), "operation": "WRITE", "engineInfo": ENGINE, ENGINE: ACCEPTED}
            while self._plain:
                version, actions = self._version + 1, [{"commitInfo": {**info, "txnId": new_id()}}]
                if publish_commit(self.path, version, actions, before=self._last):
                    self._published(version, actions)
                    return
                self.refresh()
            self._write_expected([], {ENGINE: ACCEPTED}, {}, self.cursor)

    def _follow(self) -> None:
        others = commits_after(self.path, self._version)
        if self.heed is not None:
            others = iter(found := list(others))
            for version, actions in found:
                self.heed(version, actions)
        if not self._plain or abs(time.time() - self._seen_at) > _TRUSTED_SECONDS:  # the clock may have been set back
            self._adopt_newest()
            return
        if not has_version(self.path, self._version, self._last):
            # Log cleanup has removed the end of this view; or the table is another one, made again.
            self._adopt_newest(0)
            return
        for version, actions in others:
            if self._guard is not None:
                self._guard.read(version, actions, self._table)
            if any("metaData" in action or "protocol" in action for action in actions):
                self._adopt_newest(version)
                return
            self._followed.update({txn["appId"]: int(txn["version"]) for txn in _transactions(actions)})
            self._version, self._last = version, commit_id(actions)
            self._hold(version, actions)
        self._seen_at = time.time()

    def _adopt_newest(self, seen: int | None = None) -> None:
        """Read the table as it is now, and of a guarded one the commits after `seen`, by default its version here."""
        seen = self._version if seen is None else seen
        self._adopt(_opened(self.path, guarded=self._guard is not None))
        if self._guard is not None:
            self._last = self._guard.unread(self._version, seen)

    def _hold(self, version: int, actions: Sequence[Action]) -> None:
        """Keep a commit for the next checkpoint, where each that is read again costs a request."""
        if self.path.is_far:
            held = self._kept.commits
            held[version] = actions
            if len(held) > _HELD_COMMITS:
                del held[min(held)]

    def _adopt(self, table: DeltaTable) -> None:
        """Use a freshly read table as the current state."""
        self._kept = KeptLog()
        self._table = table
        self._version, self._last = table.version(), None
        self._followed = {}
        self._meanings = str(table.metadata().configuration.get(PROPERTY) or "")
        columns = pa.schema(table.schema().to_arrow())
        self._columns, self._merges = {field.name: field.type for field in columns}, merges_of(columns)
        self._plain, self._suits = is_plain(table), None
        self._seen_at = time.time()
        if self._guard is not None:
            self._look_for_cursor()

    def _look_for_cursor(self) -> None:
        """Note where the log no longer has the cursor that it had: it has expired, and rows would land twice."""
        metadata, before = self._table.metadata(), self._id
        self._id, self._expiry = str(metadata.id), metadata.configuration.get(EXPIRY)
        if self._id != before:
            self._had = None
        self._lost = self._had if self._had is not None and self.cursor is None else None

    def add_missing_columns(self, target: pa.Schema) -> bool:
        """Add the target's columns and struct members that the table lacks; return whether it lacked any.

        Must precede the commit of a file that has them: delta-rs would accept the file and lose the column. When
        another writer changes the columns at the same moment, the table is read again, and the columns that it then
        lacks are added.

        Raises:
            OtherMeaning: the table has rows of an id with another meaning; nothing was changed.
            OtherColumns: other columns of the table were merged; nothing was changed.
            CommitFailedError: the columns cannot be written, or other writers were first each time.
            ForeignChange: another writer has changed a guarded table; no column was added.
        """
        with self._lock:
            if target is self._suits:  # the same object as at the last commit, and nobody has changed the table's
                return False
            joined(self.path.name, self._meanings, carried(target))
            retries = _COLUMN_RETRIES
            if self._missing(target) or merges_of(target) != self._merges:
                self._adopt_newest()
            require_same_merges(self.path.name, self._merges, target)
            while missing := self._missing(target):
                self.require_own()
                hit("in_schema_change")
                fields = [field for field in Schema.from_arrow(target).fields if field.name in missing]
                try:
                    with effect("add_columns"):
                        self._table.alter.add_columns(
                            fields,
                            commit_properties=marked("columns added"),
                            post_commithook_properties=QUIET,
                        )
                except CommitFailedError:
                    seen = self._version
                    self._adopt_newest()
                    if retries == 0 or self._version == seen:
                        raise  # no other writer was first: storage or the table's features are the cause
                    retries -= 1
                    continue
                settle_commits(self.path, self._version)
                hit("in_schema_change")
                self._adopt_newest()
                return True
            self._suits = target
            return False

    def _missing(self, target: pa.Schema) -> set[str]:
        return {field.name for field in target if not covers(self._columns.get(field.name), field.type)}

    def commit(
        self,
        files: Sequence[DataFile],
        expected: int | None,
        cursor: int,
        note: Mapping[str, str] | None = None,
        also: Mapping[str, int] | None = None,
        target: pa.Schema | None = None,
    ) -> None:
        """Add the files and move the cursor from `expected` to `cursor` in one commit.

        `note` is kept in the commit's info; `also` sets transaction versions of further application ids. The table's
        property gets what the schema ids of the target's rows mean (`meanings`), in the same commit.

        Raises:
            OtherMeaning: the table has rows of an id with another meaning; nothing was added.
            TableConflict: the cursor is no longer `expected`; nothing was added.
            ForeignChange: another writer has changed a guarded table; nothing was added.
        """
        with self._lock:
            self.require_own()
            if abs(time.time() - self._seen_at) > _TRUSTED_SECONDS:
                self.refresh()  # log cleanup may have removed the commits after an old view
            self._require(expected)
            transactions = {self._app_id: cursor, **(also or {})}
            self._publish(files, note or {}, transactions, expected, "" if target is None else carried(target))
            self._had = cursor

    def append(self, files: Sequence[DataFile]) -> int:
        """Add the files without a cursor, for a table whose rows are a set (quarantine); return a version with them."""
        with self._lock:
            self.refresh()
            if self._plain:
                self._publish(files, {}, {}, self.cursor)
            else:
                self._write(files, {}, {})
            return self._version

    def _require(self, expected: int | None) -> None:
        if self.cursor != expected:
            raise TableConflict(f"{self.path.name}: cursor is {self.cursor}, expected {expected}")

    def _publish(
        self,
        files: Sequence[DataFile],
        note: Mapping[str, str],
        transactions: Mapping[str, int],
        expected: int | None,
        meanings: str = "",
    ) -> None:
        """Commit by writing the next log file; on a conflict read the other commits and try the next number."""
        now_ms = int(time.time() * 1000)
        info = {"timestamp": now_ms, "operation": "WRITE", "engineInfo": ENGINE, **note}
        moved = [{"txn": {"appId": app, "version": at, "lastUpdated": now_ms}} for app, at in transactions.items()]
        added = [file.to_action(now_ms) for file in files]
        while True:
            noted = self._noted(meanings)
            self._require(expected)
            if not self._plain:
                self._write_expected(files, note, transactions, expected)
                return
            actions: list[Action] = [{"commitInfo": info}, *noted, *moved, *added]
            info["txnId"] = new_id()
            version, settled = self._version + 1, not self._chained
            if publish_commit(self.path, version, actions, settled=settled, before=self._last):
                break
            self.refresh()
        if noted:
            self._meanings = joined(self.path.name, self._meanings, meanings)
        self._followed.update(transactions)
        self._published(version, actions)

    def _noted(self, new: str) -> list[Action]:
        """Return what the next commit says of the meanings of schema ids: nothing where the table has them."""
        wanted = joined(self.path.name, self._meanings, new)
        if wanted == self._meanings:
            return []
        try:
            metadata = newest_metadata(self.path, self._version) if self._plain else None
            if metadata is not None:
                return [{"metaData": with_properties(metadata, {PROPERTY: wanted})}]
            self._note_by_delta_rs(new)
        except (TableNotFoundError, CommitFailedError):
            raise
        except DeltaError as error:  # a damaged log: rows without a new column land all the same, as they did
            _log.warning("%s: what its schema ids mean is noted later: %s", self.path.name, first_line(error))
        return []

    def _note_by_delta_rs(self, new: str) -> None:
        """Note the meanings in a commit before that of the rows, in a table whose log our entries do not suit."""
        retries = _COLUMN_RETRIES
        self._adopt_newest()
        while (wanted := joined(self.path.name, self._meanings, new)) != self._meanings:
            self.require_own()
            seen = self._version
            try:
                with effect("set_properties"):
                    self._table.alter.set_table_properties(
                        {PROPERTY: wanted}, raise_if_not_exists=False, commit_properties=marked("schemas noted")
                    )
            except CommitFailedError:
                if retries == 0:
                    raise
                retries -= 1
            settle_commits(self.path, seen)
            self._adopt_newest()

    def _published(self, version: int, actions: Sequence[Action]) -> None:
        self._version, self._last = version, commit_id(actions)
        self._seen_at = time.time()
        self._hold(version, actions)
        self._checkpoint_when_due()

    def _write_expected(
        self, files: Sequence[DataFile], note: Mapping[str, str], transactions: Mapping[str, int], expected: int | None
    ) -> None:
        """Commit through delta-rs; of a guarded table judge who was first, then try the next version."""
        retries = 0 if self._guard is None else _COMMIT_RETRIES
        while True:
            if not has_version(self.path, self._version, self._last):
                self._adopt_newest(0)
                self.require_own()
                self._require(expected)
            seen = self._version
            try:
                self._write(files, note, transactions)
            except CommitFailedError:
                self.refresh()
                self._require(expected)
                if retries == 0 or self._version == seen:
                    raise
                retries -= 1
            else:
                return

    def _write(self, files: Sequence[DataFile], note: Mapping[str, str], transactions: Mapping[str, int]) -> None:
        """Commit through delta-rs, which supports every protocol.

        delta-rs would rebase the commit on foreign ones of a guarded table, so there it takes the next version or none.
        """
        now_ms = int(time.time() * 1000)
        retries = _COMMIT_RETRIES if self._guard is None else 0
        properties = marked("rows added", transactions, custom_metadata=dict(note), max_commit_retries=retries)
        with effect("commit_by_delta_rs"):
            self._table.create_write_transaction(
                [AddAction(file.path, file.size, {}, now_ms, True, file.stats) for file in files],
                mode="append",
                schema=self._table.schema(),
                commit_properties=properties,
                post_commithook_properties=QUIET,
            )
        settle_commits(self.path, self._version)
        self._adopt_newest(self._version + 1)  # of a guarded table that is ours
        self._checkpoint_when_due()

    def _checkpoint_when_due(self) -> None:
        if (self._version + self._checkpoint_phase) % self._checkpoint_interval == 0:
            if not self._plain:
                write_by_delta_rs(self.path)
            elif write_when_due(self.path, self._version, self._kept):
                self._kept.commits = {}


def _opened(path: Location, *, guarded: bool) -> DeltaTable:
    return own_view(path) or (open_own(path) if guarded else open_table(path))


def _transactions(actions: Sequence[Action]) -> list[Action]:
    return [action["txn"] for action in actions if "txn" in action]
