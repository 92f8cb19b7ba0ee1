"""One stream as its group's driver holds it: the game's table, its cursor, and how far it was seen to be complete."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from listeners.sample import Lane
from pipeline import names
from pipeline.delta_table import Conflict, CursorTable, DataFile
from pipeline.names import GameKey
from pipeline.store.games import Assignment

_BACKOFF_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0)


@dataclass
class Stream:
    """A game's stream. The lane follows from the chain alone: a stream that does not connect is behind (law L7)."""

    game_key: GameKey
    game: str
    generation: int
    app_id: str
    path: Path
    checkpoint_interval: int
    last_seq: int  # the game's last seq in bronze as the control store tells it
    table: CursorTable | None = None
    cursor: int = 0  # the last seq wholly applied, 0 before the first commit
    complete_through: int = 0  # the last seq up to which bronze was seen to hold nothing more for this game
    behind: bool = False
    error: str | None = None
    failures: int = 0  # in a row
    retry_at: float = 0.0

    @property
    def lane(self) -> Lane:
        """How the stream is read now."""
        return "CATCHUP" if self.behind else "RUN"

    def open(self) -> None:
        """Read the cursor from the table; a table that does not exist yet has cursor 0."""
        self.table = CursorTable.open(self.path, self.app_id, self.checkpoint_interval)
        self._read_cursor()

    def reopen(self) -> None:
        """Read the cursor again after somebody else may have moved it."""
        if self.table is None:
            self.open()
        else:
            self.table.refresh()
            self._read_cursor()

    def commit(self, files: list[DataFile], cursor: int, target: pa.Schema) -> None:
        """Put the files into the table and move the cursor, creating the table or adding columns first.

        Raises:
            Conflict: another owner moved the cursor; the stream has its new value.
        """
        if self.table is None:
            self.table = CursorTable.create(
                self.path, target, self.app_id, self.checkpoint_interval, description=f"turnout game {self.game}"
            )
            if (self.table.cursor or 0) != self.cursor:
                self._read_cursor()
                raise Conflict(f"{self.game_key}: another owner created the table")
        self.table.add_missing_columns(target)
        try:
            self.table.commit(files, self.cursor or None, cursor)
        except Conflict:
            self._read_cursor()
            raise
        self.cursor = self.complete_through = cursor
        self.error, self.failures, self.retry_at = None, 0, 0.0

    def fail(self, error: str, now: float) -> None:
        """Park the stream until a later catch-up: only its cursor stalls (law L6)."""
        self.behind = True
        self.error = error
        self.retry_at = now + _BACKOFF_SECONDS[min(self.failures, len(_BACKOFF_SECONDS) - 1)]
        self.failures += 1

    def _read_cursor(self) -> None:
        self.cursor = (self.table.cursor if self.table else None) or 0
        self.complete_through = max(self.complete_through, self.cursor)


def stream_of(assignment: Assignment, environment: str, table_path: Path, checkpoint_interval: int) -> Stream:
    """Return the stream of an assigned game, with the cursor its table holds."""
    stream = Stream(
        game_key=assignment.game_key,
        game=assignment.game,
        generation=assignment.generation,
        app_id=names.stream_app_id(environment, assignment.game_key, assignment.generation),
        path=table_path,
        checkpoint_interval=checkpoint_interval,
        last_seq=assignment.last_seq,
    )
    stream.open()
    return stream
