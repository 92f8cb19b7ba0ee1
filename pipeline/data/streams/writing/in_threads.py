"""How many tables a driver commits to at one time, and the threads that do it."""

from collections.abc import Callable, Collection
from concurrent.futures import Executor
from typing import Final, TypeVar

from pipeline.lake.storage.location import Location

_T = TypeVar("_T")
_THREADS: Final = 4  # commits wait for storage, not for processors
_BUCKET_THREADS: Final = 16  # there each takes three requests, one after the other


def commit_threads(tables: Location) -> int:
    """Return how many tables a driver commits to at one time."""
    return _BUCKET_THREADS if tables.is_far else _THREADS


def for_each(pool: Executor, keys: Collection[str], work: Callable[[str], _T], threads: int) -> list[_T]:
    """Return what the work returns for each key, in the order of the keys.

    Each thread takes one key after another: to hand over each by itself costs a tenth of a commit. The first error is
    raised, and no thread takes another key then.
    """
    waiting, done = iter(list(keys)), dict[str, _T]()

    def take(_thread: int) -> None:
        try:
            for key in waiting:
                done[key] = work(key)
        except BaseException:  # also a fail-point that ends the process: the other threads take no further key
            list(waiting)  # leaves none
            raise

    list(pool.map(take, range(min(threads, len(keys)))))
    return [done[key] for key in keys]
