"""Posts to an address of the settings, once for each game and interval, that the game's table is complete through it.

At least once: what was posted is noted after the receiver took it. On a thread of its own; losing it touches no stream.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from itertools import islice
from typing import Final
from urllib.error import HTTPError

from sqlalchemy import Engine

from listeners.periodic import NoRedirect, PeriodicSender
from pipeline.base.errors import Transient, first_line
from pipeline.base.names import GameKey
from pipeline.data.ingest.through.through_time import through_time
from pipeline.health.verdicts.through import game_time
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import Paths, Settings
from pipeline.store.processes.leases import store_time
from pipeline.store.through import GamePosted, note_posted, posted_in, through_in

EVERY_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 5.0
_MOST_IN_A_ROUND: Final = 1_000
_BODY_BYTES: Final = 65_536

Count = Callable[[int, int], None]
"""Takes how many posts were taken and how many failed since the start."""


def ends_due(through_at: float, posted: float | None, seconds: float) -> Iterator[float]:
    """Yield the ends of intervals through which a game is complete and that were not posted, the oldest first.

    Of a game of which nothing was posted yet only the newest.
    """
    newest = through_at // seconds
    first = newest if posted is None else posted // seconds + 1
    while first <= newest:
        yield first * seconds
        first += 1


class _Unread(Transient):
    """How far one game is complete cannot be read."""


class ThroughPosts:
    """The posts of one process."""

    def __init__(
        self, settings: Settings, paths: Paths, engine: Engine, count: Count = lambda _sent, _failed: None
    ) -> None:
        """Prepare; posts nothing yet."""
        self._settings, self._paths, self._engine, self._count = settings, paths, engine, count
        self._seconds = 60.0 * settings.through.webhook_minutes
        self._opener = urllib.request.build_opener(NoRedirect)  # a redirect would carry a token to another server
        self._sent, self._failed = 0, 0

    def round(self) -> None:
        """Post what is due; the first post that fails ends the round, and the next one begins with it.

        A game whose table cannot be read is passed over: the others have their posts (law L6).

        Raises:
            OSError: the receiver did not take a post.
            Transient: a table could not be read; the posts of the other games were taken.
        """
        with self._engine.connect() as connection:
            reading = through_in(connection)
            games = posted_in(connection)
        now, left = store_time(self._engine), _MOST_IN_A_ROUND
        unread: list[_Unread] = []
        try:
            for game in games:
                shown = game_time(reading, game.last_seq, game.cursor, now)
                if shown is None or not any(ends_due(shown, game.posted, self._seconds)):
                    continue
                try:
                    found = self._complete(game, now)
                except _Unread as error:
                    unread.append(error)
                    continue
                left -= 0 if found is None else self._post_game(game, *found, left)
                if left <= 0:
                    break
            if unread:
                more = f" So it is with {len(unread) - 1} more." if len(unread) > 1 else ""
                raise Transient(f"{unread[0]}{more}") from unread[0]
        except Exception:
            self._failed += 1
            raise
        finally:
            self._count(self._sent, self._failed)

    def _complete(self, game: GamePosted, now: float) -> tuple[float, int] | None:
        """Return how far a game is complete by the logs, which are what counts, and a version that has all of it.

        Raises:
            _Unread: its table, or another one that says so, cannot be read.
        """
        key = GameKey(game.game_key)
        try:
            found = through_time(self._paths, self._settings.environment, key, game.generation, now)
            if found.at is None or found.cursor is None:
                return None
            return found.at, open_table(self._paths.table(key)).version()  # read after the time
        except (DeltaError, OSError, Transient) as error:
            raise _Unread(f"How far {key} is complete cannot be read: {first_line(error)}.") from error

    def _post_game(self, game: GamePosted, at: float, version: int, most: int) -> int:
        """Post what is due for one game; return how many posts were taken."""
        table, sent = self._paths.table(game.game_key), 0
        for end in islice(ends_due(at, game.posted, self._seconds), most):
            self._post(
                {
                    "game": game.game, "game_key": game.game_key, "through_time": end, "table": str(table),
                    "version": version,
                }
            )  # fmt: skip
            note_posted(self._engine, game.game_key, end)
            sent += 1
            self._sent += 1
        return sent

    def _post(self, body: dict[str, object]) -> None:
        request = urllib.request.Request(  # noqa: S310 - settings check it
            self._settings.through.webhook,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="POST",
        )
        with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read(_BODY_BYTES)


@contextmanager
def posting(settings: Settings, paths: Paths, engine: Engine, count: Count) -> Iterator[None]:
    """Post while the block runs, and once more at its end; nothing without an address."""
    if not settings.through.webhook:
        yield
        return
    posts = ThroughPosts(settings, paths, engine, count)
    sender = PeriodicSender(
        "posting complete times", settings.through.webhook, posts.round, posts.round, _reason, EVERY_SECONDS,
        TIMEOUT_SECONDS,
    )  # fmt: skip
    try:
        yield
    finally:
        sender.stop()


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"status {error.code}"
    is_plain = isinstance(error, OSError | Transient) and not isinstance(error, HTTPException)
    return str(error) if is_plain else type(error).__name__  # other errors may quote the address
