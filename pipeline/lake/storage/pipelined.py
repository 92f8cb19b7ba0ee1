"""Many requests to a bucket, each of which takes a round trip: a bounded number at once, their answers in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

_AT_ONCE: Final = 16
_AHEAD: Final = 4 * _AT_ONCE  # items that are asked for before their answers are taken

T = TypeVar("T")
R = TypeVar("R")


def pipelined(ask: Callable[[T], R], items: Iterable[T], *, is_far: bool) -> Iterator[tuple[T, R]]:
    """Yield each item with its answer, in order; with `is_far` 16 requests run at once, and few in advance.

    What `ask` raises is raised where its item's answer is due.
    """
    if not is_far:
        yield from ((item, ask(item)) for item in items)
        return
    waiting: deque[tuple[T, Future[R]]] = deque()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(ask, item)))
                if len(waiting) >= _AHEAD:
                    first, answer = waiting.popleft()
                    yield first, answer.result()
            while waiting:
                first, answer = waiting.popleft()
                yield first, answer.result()
        finally:
            for _, unasked in waiting:
                unasked.cancel()
