"""One stream of a group's driver: the game's table, its cursor, and the seq up to which it is complete.

The chain of its rows in bronze tells whether rows that were read connect to the cursor (law L4).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from listeners.sample import Lane
from pipeline.base import names
from pipeline.base.errors import Transient
from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.streams import lanes
from pipeline.data.streams.definition import StreamTarget
from pipeline.data.streams.lanes import Failure
from pipeline.data.streams.needs import Waiting, is_indexed, is_open
from pipeline.data.streams.writing.writers import GameTable
from pipeline.lake.delta import generation, remade
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.foreign import ForeignChange
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.table import TableConflict
from pipeline.lake.storage.location import Location
from pipeline.store.games import Assignment
from pipeline.store.stream_control import StreamControl


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a game's table: its rows are split from here, and their commit expects it (law L4)."""

    generation: int
    cursor: int

    def __str__(self) -> str:
        return f"seq {self.cursor} of generation {self.generation}"


@dataclass
class Stream:
    """A game's stream. Whether it is behind follows from the chain alone (law L7)."""

    game_key: GameKey
    game: str
    target: StreamTarget
    generation: int
    last_seq: int  # the game's last seq in bronze according to the control store
    stored_generation: int = 1  # the control store's value when the table was opened
    table: GameTable | None = None
    cursor: int = 0  # the last seq wholly applied, 0 before the first commit
    complete_through: int = 0  # the last seq up to which bronze held nothing more for this game
    behind: bool = False
    unreadable: bool = False  # its table could not be opened: its cursor is unknown, and its rows may not be read
    waits: Waiting | None = None  # for a schema set that has what its next rows need; it has not failed
    other_columns: frozenset[str] = frozenset()  # event types that its table and its rows have merged columns of apart
    decision: StreamControl = field(default_factory=StreamControl)  # decisions of operators and after failures
    # Rows with an earlier source time waited until this driver took the stream on, or for an outage of it to end.
    read_since: float = -math.inf
    held_up: bool = False  # nothing lands for now: it is paused, parked, fails, or waits for a schema
    retried: bool = False  # a person lets it go on behind foreign commits, and its table's log lacks that yet
    removed_at: int = 0  # of a table that is made again: the removed one had all rows up to this seq
    unrecorded: Failure | None = None  # a failure that parks it, and that the control store may not have yet

    @property
    def lane(self) -> Lane:
        """The stream's present lane."""
        return lanes.lane(self.decision, behind=self.behind)

    @property
    def error(self) -> str | None:
        """The reason of its last failure, None after a success."""
        return self.decision.evidence

    @property
    def app_id(self) -> str:
        """The Delta transaction id of the cursor."""
        return names.stream_app_id(self.target.environment, self.game_key, self.generation)

    @property
    def path(self) -> Location:
        """The folder of its table."""
        return self.target.path(self.game_key)

    @property
    def position(self) -> Position:
        """The table's position as last read."""
        return Position(self.generation, self.cursor)

    def is_held(self, schemas: SchemaSet) -> bool:
        """Return whether its next row needs what a schema set still lacks: reading it would land nothing.

        It is read for nothing, but once, where an answer has many messages: its rows say which of them they need.
        """
        waits = self.waits
        if waits is None or not waits.after <= self.cursor < waits.first.seq:
            return False
        return is_open(waits.first, self.game_key, schemas) and not any(
            is_indexed(each, schemas) for each in waits.needs
        )

    def open(self) -> None:
        """Read the cursor from the table; a table that does not exist yet has cursor 0."""
        self.table = self.target.writer.open(self.path, self.app_id)
        if self.table is None:
            self.generation = 1  # whatever the control store knows of one that was removed
        self._read_cursor()

    def is_before(self, generation: int) -> bool:
        """Return whether the table was opened before the control store had this generation, and lacks it."""
        return max(self.stored_generation, self.generation) < generation

    def reopen(self) -> None:
        """Read the cursor again, as another process may have moved it."""
        if self.table is None:
            self.open()
        else:
            with self._removal_noticed():
                self.table.refresh()
                self._read_cursor()

    def commit(self, files: list[DataFile], expected: Position, cursor: int, columns: pa.Schema) -> None:
        """Add the files to the table and move the cursor, creating the table or adding columns first.

        `expected` is the position from which the files' rows were split. The stream's present position does not count:
        a commit that compared with it would repeat rows that another writer added meanwhile.

        Raises:
            TableConflict: the table is not at `expected`; nothing was added, and the stream has the table's position.
            ForeignChange: another writer has changed the table; nothing was added.
            TableGone: the table was removed, as bronze is there.
            Transient: neither the table nor bronze is there.
        """
        table = self.table or self._create(columns)
        if self.position != expected:
            raise TableConflict(
                f"{self.game_key}: the table is at {self.position}, the rows were split from {expected}"
            )
        try:
            with self._removal_noticed():
                table.add_missing_columns(columns)
                table.commit(files, expected.cursor or None, cursor, target=columns)
        except (TableConflict, ForeignChange):
            self._read_cursor()
            raise
        self.cursor = self.complete_through = cursor
        self.waits, self.other_columns = None, frozenset()

    def has_lost(self, through: int | None) -> bool:
        """Return whether the rows behind the cursor up to this seq are lost: they were in a table that was removed."""
        return through is not None and self.cursor < through <= self.removed_at

    def skip_lost(self, through: int, columns: pa.Schema) -> None:
        """Move the cursor over rows that bronze no longer holds, see `has_lost`; the table's log keeps the gap.

        Raises:
            TableConflict: another process moved it.
        """
        if self.table is None:
            self._create(columns)
        key, above = self.game_key, self.cursor
        remade.record_lost(self.path, self.target.environment, key, self.app_id, above, through, cursor=through)
        self.open()
        self.complete_through = max(self.complete_through, self.cursor)

    def _create(self, columns: pa.Schema) -> GameTable:
        target = self.target
        target.before_create(self.game_key, self.game, self.removed_at)
        made = self.table = target.writer.create(self.path, columns, self.app_id, target.description(self.game))
        if self.removed_at:
            remade.record(self.path, target.environment, self.game_key, self.removed_at)
            made.refresh()
        self._read_cursor()
        return self.table

    @contextmanager
    def _removal_noticed(self) -> Iterator[None]:
        """Find out whether what fails in the block fails because the table is gone."""
        try:
            yield
        except (TableNotFoundError, FileNotFoundError, Transient) as error:
            if exists(self.path):
                raise
            raise self.target.removal(self.game_key) from error

    def accept_foreign(self) -> None:
        """Go on behind what other writers have committed: a person has let the parked stream run again.

        Raises:
            ForeignChange: see `CursorTable.accept_foreign`.
        """
        if self.table is not None:
            self.table.accept_foreign()

    def resumed(self, now: float) -> None:
        """Note that rows have landed: where the stream was held up, that has ended now."""
        if self.held_up:
            self.read_since, self.held_up = now, False

    def _read_cursor(self) -> None:
        if self.table is not None:
            self._follow_rebuild(self.table)
            # Another process may have made it again.
            app_id = names.remade_app_id(self.target.environment, self.game_key)
            self.removed_at = max(self.removed_at, self.table.transaction_version(app_id) or 0)
        before, self.cursor = self.cursor, (self.table.cursor if self.table else None) or 0
        if self.table is not None and 0 <= self.cursor < before:
            remade.warn_of_older(self.path, self.cursor, before)
        self.complete_through = max(self.complete_through, self.cursor)

    def _follow_rebuild(self, table: GameTable) -> None:
        """Read the current generation from the table's own log: a rebuild may have switched it (law L12)."""
        current = generation.newest(table.transaction_version, self.target.environment, self.game_key, self.generation)
        if current != self.generation:
            self.generation = current
            self.table = self.target.writer.open(self.path, self.app_id)


def stream_of(assignment: Assignment, target: StreamTarget) -> Stream:
    """Return the stream of an assigned game; its cursor is unknown before `open`."""
    return Stream(
        game_key=assignment.game_key,
        game=assignment.game,
        target=target,
        generation=assignment.generation,
        last_seq=assignment.last_seq,
        stored_generation=assignment.generation,
    )


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """All rows of one game in one bronze commit."""

    seq: int
    prev_seq: int  # the seq before this one in which the game had rows, 0 for none


def connects(cursor: int, links: Sequence[Link]) -> bool:
    """Return whether the links continue from the cursor without a gap.

    The links are one game's, above its cursor, ordered by seq: the first must follow a seq at or below the cursor, each
    other one the seq before it. The cursor alone does not distinguish an idle game from one that is behind.
    """
    return not links or cursor < links[-1].seq == reach(cursor, links)


def reach(cursor: int, links: Sequence[Link]) -> int:
    """Return the last seq that the links reach from the cursor without a gap, the cursor itself without links."""
    if not links or links[0].seq <= cursor or links[0].prev_seq > cursor:
        return cursor
    for before, after in itertools.pairwise(links):
        if after.prev_seq != before.seq:
            return before.seq
    return links[-1].seq


def merged(links: Sequence[Link]) -> list[Link]:
    """Return the links in order, each once: one bronze file may have been read by two tasks."""
    return sorted(set(links))
