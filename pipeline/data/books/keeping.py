"""Closes the days of a driver's games by itself, where `books.games` names them: in a thread of its own.

A look reads the control store. Only where the source has become complete through the end of another day are the rows
of a game classified; where a day cannot close then, it is tried again, later each time.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from pipeline.base.errors import first_line
from pipeline.base.names import GameKey
from pipeline.data.books import ledger
from pipeline.data.books.book_days import GameBooks
from pipeline.data.books.closing import Books
from pipeline.data.books.days import MICROS
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.data.streams.ticking import Ticking
from pipeline.settings.tree import Paths, Settings
from pipeline.store import reopenings
from pipeline.store.books import read_report
from pipeline.store.games import Game, known_names
from pipeline.store.reopenings import Reopening
from pipeline.store.through import through_in

_log: Final = logging.getLogger("turnout")
_LOOK_SECONDS: Final = 10.0
_FIRST_SECONDS: Final = 30.0
_LONGEST_SECONDS: Final = 1800.0
_ALL: Final = "*"


@dataclass(slots=True)
class _Kept:
    """One game in this process."""

    ended: int | None = None  # the number of the newest day that had ended when no other could close; None: not known
    reopened: frozenset[Reopening] = frozenset()  # what was approved by then
    failures: int = 0  # in a row
    retry_at: float = 0.0  # monotonic seconds


class BookKeeper:
    """The books that one driver keeps."""

    def __init__(
        self, settings: Settings, paths: Paths, engine: Engine, group: str, holds: Callable[[str], bool]
    ) -> None:
        """Keep the books of the games that the driver holds, as `holds` says by their keys."""
        self._settings, self._paths, self._engine, self._holds = settings, paths, engine, holds
        self._actor, self._books = f"group {group}", Books(settings, paths, engine)
        self._kept: dict[str, _Kept] = {}
        self._ticking = Ticking("books", _LOOK_SECONDS, self.look, "no day was closed")

    def start(self) -> None:
        """Keep them until `stop`, where the settings name a game."""
        if self._settings.books.games:
            self._ticking.start()

    def stop(self) -> None:
        """Let the running closing end, and begin no other."""
        self._ticking.stop()

    def finish(self) -> None:
        """Close what can close, after a bounded run."""
        self.look()

    def look(self) -> None:
        """Close what can close now."""
        with tolerate_store_outage("days close later"):
            newest = self._newest()
            approved = reopenings.approved(self._engine)
            for game in self._games() if newest is not None else ():
                if self._ticking.is_stopping:
                    return
                if self._holds(game.key):
                    again = frozenset(each for each in approved if each.game_key == game.key)
                    self._close(game, newest or 0.0, again)

    def _newest(self) -> float | None:
        """Return the newest time of the source that is known, Unix seconds."""
        with self._engine.connect() as connection:
            reading = through_in(connection)
        return None if reading is None else max((at for _, at in reading.pairs), default=None)

    def _games(self) -> list[Game]:
        named = self._settings.books.games
        known: Mapping[str, str] = known_names(self._engine) if named else {}
        return [Game(GameKey(key), name) for key, name in known.items() if _ALL in named or name in named]

    def _close(self, game: Game, newest: float, again: frozenset[Reopening]) -> None:
        kept = self._kept.setdefault(game.key, _Kept())
        if time.monotonic() < kept.retry_at:
            return
        try:
            last = max(ledger.read(self._paths.books, game.key), key=lambda each: each.day, default=None)
            seconds = self._settings.books.day_seconds if last is None else last.day_seconds
            ended = int((newest - self._settings.books.lateness_seconds) // seconds) - 1
            if kept.ended is None and not again and last is not None and last.day >= ended * seconds * MICROS:
                kept.ended = ended if self._needs_only_people(game) else None  # another driver has closed the others
            if (kept.ended, kept.reopened) == (ended, again):
                return
            found = self._books.close_due(game, self._actor)
            waiting = _waiting(found, ended * seconds * MICROS)
        except Exception as error:  # noqa: BLE001 - law L6: one game's books must not stop the others
            waiting = f"{type(error).__name__}: {first_line(error)}"
        if waiting is None:
            kept.ended, kept.reopened, kept.failures = ended, again, 0
            return
        kept.failures += 1
        wait = min(_FIRST_SECONDS * 2.0 ** (kept.failures - 1), _LONGEST_SECONDS)
        kept.retry_at = time.monotonic() + wait
        _log.warning("a day of %s does not close, trying again in %.0f s: %s", game.key, wait, waiting)

    def _needs_only_people(self, game: Game) -> bool:
        """Return whether the last closer left no ended day open that needs no person's reason."""
        found = read_report(self._engine, game.key)
        if found is None or found.obstacle is not None:
            return False
        return all(day["needs"] or day["due"] > (found.through or 0.0) for day in found.days)


def _waiting(found: GameBooks, newest: int) -> str | None:
    """Return why a day up to this one did not close, though nobody has to give a reason; None: there is none."""
    if found.obstacle is not None:
        return found.obstacle
    for each in found.days:
        if each.state == "open" and each.day <= newest and each.reasons:
            return each.reasons[0]
    return None
