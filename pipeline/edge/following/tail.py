"""The one tail of an edge's followers: a thread looks at the lake each second, and each stream takes the newest look.

A slow follower skips looks and holds up nobody. Without followers nothing is read.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.edge.following.follower import Follower, FollowView
from pipeline.edge.following.landed import LandedTail
from pipeline.edge.following.positions import FollowStart, parse_follow
from pipeline.edge.following.read_topics import read_topics
from pipeline.edge.following.refusals import Quarantine
from pipeline.edge.statuses import exhausted, unavailable
from pipeline.lake.delta.errors import DeltaError
from pipeline.settings.tree import Paths
from pipeline.store.edge_producers import EdgeProducer
from pipeline.store.games import known_names

LOOK_SECONDS: Final = 1.0
"""Time between two looks at the lake."""

MOST_FOLLOWERS: Final = 200
"""Most streams of one edge."""

MOST_OF_ONE: Final = 20
"""Most of them of one producer."""

_NAMES_EVERY: Final = 5  # looks
_READERS: Final = 2  # threads that read for followers
_CHECK_SECONDS: Final = 2.0  # between two looks at who calls, while a follower does not read
_AWAY: Final = (DeltaError, OSError, pa.ArrowException, SQLAlchemyError, Refused, Transient)

_log: Final = logging.getLogger("turnout")
_T = TypeVar("_T")

Caller = Callable[[], EdgeProducer]
"""Returns who calls; raises `EdgeStatus` once they may send no more."""

Say = Callable[[bytes], Awaitable[None]]
"""Sends a message to a follower; it waits while the follower does not read."""


class FollowTail:
    """Looks at the lake, and serves followers; `serve`, `drain` and `close` run in one event loop."""

    def __init__(self, engine: Engine, paths: Paths, environment: str, look_seconds: float = LOOK_SECONDS) -> None:
        """Read nothing yet."""
        self._engine, self._seconds = engine, look_seconds
        self._quarantine, self._landed = Quarantine(paths), LandedTail(paths, environment)
        self._readers = ThreadPoolExecutor(_READERS, "edge followers")
        self._thread: threading.Thread | None = None
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._followers: dict[object, EdgeProducer] = {}
        self._view: FollowView | None = None  # None: nothing was read yet
        self._news = asyncio.Event()
        self._drains = False

    async def serve(self, raw: bytes, caller: Caller, say: Say) -> None:
        """Send a follower what its request asks for, until the edge drains.

        Raises:
            EdgeStatus: the request is none, its position is gone, the lake is away, or the caller may send no more.
        """
        start, producer, mark = parse_follow(raw), caller(), object()
        if len(self._followers) >= MOST_FOLLOWERS:
            raise exhausted("TOO_MANY_FOLLOWERS", f"the edge has {MOST_FOLLOWERS} followers, the most it may", 5.0)
        if sum(each.name == producer.name for each in self._followers.values()) >= MOST_OF_ONE:
            raise exhausted("TOO_MANY_FOLLOWERS", f"the producer has {MOST_OF_ONE} followers, the most it may", 5.0)
        self._followers[mark] = producer
        self._start()
        try:
            await self._serve(start, mark, caller, say)
        finally:
            del self._followers[mark]
            if not self._followers:
                self._wanted.clear()
                self._view = None  # the next follower waits for a new look

    @property
    def followers(self) -> int:
        """The number of open streams."""
        return len(self._followers)

    def drain(self) -> None:
        """End all streams in order."""
        self._drains = True
        self._tell(self._view)

    def close(self) -> None:
        """End the threads."""
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
        self._readers.shutdown(cancel_futures=True)

    async def _serve(self, start: FollowStart, mark: object, caller: Caller, say: Say) -> None:
        view = await self._next(None, caller)
        for _ in range(2):  # another edge may have looked later: the second look from now has begun after its token
            if view is not None and start.position is not None and start.position.version > view.version:
                view = await self._next(view, caller)
        if view is None:
            return
        follower = await self._read(partial(Follower, self._quarantine, start, view, caller()))
        while view is not None:
            self._followers[mark] = follower.producer = caller()
            messages = follower.step(view)
            while (message := await self._read(partial(next, messages, None))) is not None:
                await _said(say(message.SerializeToString()), caller)
            view = await self._next(view, caller)

    async def _next(self, last: FollowView | None, caller: Caller) -> FollowView | None:
        """Wait for another look than the last one; return None where the edge drains.

        Raises:
            EdgeStatus: the caller may send no more; asked also while the lake is away.
        """
        while not self._drains:
            if self._view is not None and self._view is not last:
                return self._view
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _CHECK_SECONDS)
            caller()
        return None

    async def _read(self, work: Callable[[], _T]) -> _T:
        """Read from the lake, in a thread.

        Raises:
            EdgeStatus: it cannot be read.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, work)
        except _AWAY as error:
            _log.warning("a follower ends, as the lake cannot be read: %s", first_line(error))
            message = "the tables cannot be read now; follow again with the newest token"
            raise unavailable("LAKE_AWAY", message) from error

    # -------------------------------------------------------------------------------------------------- the thread

    def _start(self) -> None:
        self._wanted.set()
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=(loop,), name="edge tail", daemon=True)
            self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        games: dict[str, str] = {}
        looks, is_away = 0, False
        while not self._closed.is_set():
            if not self._wanted.is_set():
                self._wanted.wait()
                self._landed.forget()  # its logs may have been cut meanwhile
                looks = 0
                continue
            try:
                if looks % _NAMES_EVERY == 0:
                    games = {name: key for key, name in known_names(self._engine).items()}
                view = self._look(games)
            except _AWAY as error:
                if not is_away:
                    _log.warning("the lake cannot be read, so followers wait: %s", first_line(error))
                is_away = True
            else:
                is_away = False
                looks += 1
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._tell, view)
            self._closed.wait(self._seconds)

    def _look(self, games: dict[str, str]) -> FollowView:
        producers = set(self._followers.copy().values())
        watched = {key for name, key in games.items() if any(each.may_send(name) for each in producers)}
        landed = self._landed.look(watched)
        version = self._quarantine.look()  # after: a refused row is in quarantine before its game's cursor passes it
        topics = read_topics(self._engine)  # after bronze: what ingest reads is recorded before a row of it lands
        return FollowView(landed, version, self._quarantine.mark, games, topics)

    def _tell(self, view: FollowView | None) -> None:
        if view is not None and not self._followers:
            return  # it was read for followers that have gone: the next one waits for a new look
        self._view = view
        news, self._news = self._news, asyncio.Event()
        news.set()


async def _said(saying: Awaitable[None], caller: Caller) -> None:
    """Wait until a follower has taken a message, and end it meanwhile where it may send no more."""
    task = asyncio.ensure_future(saying)
    try:
        while not (await asyncio.wait({task}, timeout=_CHECK_SECONDS))[0]:
            caller()
        task.result()
    finally:
        task.cancel()
