"""One thread for judgements that are too slow for the event loop; producers take turns by the CPU time they have cost.

So a producer whose events all need the decoder delays others by one judgement at most. Used in the event loop only.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple


class _Turn(NamedTuple):
    work: Callable[[], None]
    done: "asyncio.Future[None]"


class Turns:
    """Judgements that wait for the thread, by producer."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._pool = ThreadPoolExecutor(1, "edge suspects")
        self._waiting: dict[str, deque[_Turn]] = {}
        self._spent: dict[str, float] = {}  # CPU seconds since the thread was last idle
        self._least = 0.0  # of the producer whose turn is now: an idle one saves nothing up
        self._runs = False

    async def take(self, producer: str, work: Callable[[], None]) -> None:
        """Run work of a producer in the thread when it is its turn; raises what the work raises."""
        self._spent[producer] = max(self._least, self._spent.get(producer, 0.0))
        turn = _Turn(work, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(producer, deque()).append(turn)
        if not self._runs:
            self._next()
        await turn.done

    def close(self) -> None:
        """End the thread; what waits is not run."""
        self._pool.shutdown(cancel_futures=True)

    def _next(self) -> None:
        self._runs = False
        while self._waiting:
            producer = min(self._waiting, key=self._spent.__getitem__)
            turn = self._waiting[producer].popleft()
            if not self._waiting[producer]:
                del self._waiting[producer]
            if turn.done.done():  # its call has ended
                continue
            self._least, self._runs = self._spent[producer], True
            ran = asyncio.get_running_loop().run_in_executor(self._pool, _timed, turn.work)
            ran.add_done_callback(partial(self._ended, producer, turn))
            return
        self._spent.clear()
        self._least = 0.0

    def _ended(self, producer: str, turn: _Turn, ran: "asyncio.Future[tuple[float, BaseException | None]]") -> None:
        if ran.cancelled():  # the edge has closed
            turn.done.cancel()
            return
        seconds, error = ran.result()
        self._spent[producer] += seconds
        if not turn.done.done():
            if error is None:
                turn.done.set_result(None)
            else:
                turn.done.set_exception(error)
        self._next()


def _timed(work: Callable[[], None]) -> tuple[float, BaseException | None]:
    """Return the CPU seconds of work, and what it raised."""
    since = time.thread_time()
    try:
        work()
    except Exception as error:  # noqa: BLE001 -- it is raised where the work was asked for
        return time.thread_time() - since, error
    return time.thread_time() - since, None
