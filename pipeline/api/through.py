"""How far games are complete by the source's time: read once, or waited for.

`wait` raises `Refused` where the control store cannot be read.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused, first_line
from pipeline.base.texts import in_utc
from pipeline.data.ingest.through.through_time import GameThrough, through_time
from pipeline.lake.delta.errors import DeltaError
from pipeline.store.database.engine import reading
from pipeline.store.games import Game, generations
from pipeline.store.processes.leases import store_time

__all__ = ["GameThrough", "WaitReport", "read", "wait"]

_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WaitReport:
    """Whether a game is complete through a time, and how far it is."""

    ok: bool
    game_key: str
    through: float  # the time that was waited for; all times are Unix seconds by the control store's clock
    through_time: float | None  # up to which the game is complete; None: unknown
    bronze_through_time: float | None  # the same of bronze
    cursor_seq: int | None  # of the game's table; None where it has none yet
    next_seq: int | None  # the first seq with a row that its table lacks; None: it has all of bronze

    @property
    def sentence(self) -> str:
        """The outcome in one sentence."""
        known = "through no known time" if self.through_time is None else f"through {_moment(self.through_time)}"
        if self.ok:
            return f"{self.game_key} is complete {known}."
        return f"{self.game_key} is complete {known}, not through {_moment(self.through)}: {self._obstacle}."

    @property
    def _obstacle(self) -> str:
        if self.bronze_through_time is None:
            return "ingest has recorded no time up to which bronze has all of its source"
        if self.bronze_through_time < self.through:
            return f"bronze has all of its source through {_moment(self.bronze_through_time)}"
        cursor = "does not exist" if self.cursor_seq is None else f"is at seq {self.cursor_seq}"
        return f"its table {cursor} and lacks its rows of seq {self.next_seq}"


@reading()
def read(environment: OpenEnvironment, game: Game) -> GameThrough:
    """Return how far a game is complete now.

    Raises:
        Refused: the control store or a table cannot be read.
    """
    known = generations(environment.engine).get(game.key, 1)
    now = store_time(environment.engine)
    try:
        return through_time(environment.paths, environment.settings.environment, game.key, known, now)
    except (DeltaError, OSError) as error:
        raise Refused(f"How far {game.key} is complete cannot be read: {first_line(error)}.") from error


def wait(
    environment: OpenEnvironment,
    game: Game,
    through: float,
    timeout_seconds: float | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> WaitReport:
    """Wait until a game is complete through a time (Unix seconds), or until the timeout; None: without an end."""
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while True:
        found = read(environment, game)
        ok = found.at is not None and found.at >= through
        if ok or (until is not None and time.monotonic() >= until):
            return WaitReport(
                ok, game.key, through, found.at, found.bronze_at, found.cursor, found.next_seq
            )  # fmt: skip
        pause(_LOOK_SECONDS if until is None else min(_LOOK_SECONDS, max(0.0, until - time.monotonic())))


def _moment(at: float) -> str:
    return f"{in_utc(at)} UTC"
