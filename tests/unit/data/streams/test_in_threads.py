"""Commits of a pass share a few threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.data.streams.writing.in_threads import for_each

KEYS = [f"game {number}" for number in range(40)]


def test_each_key_is_worked_on_once_and_results_keep_their_order() -> None:
    """A pass reports each game that committed once, in the order of its games, whichever thread took it."""
    begun = threading.Barrier(4)

    def work(key: str) -> tuple[str, int]:
        if key in KEYS[:4]:
            begun.wait(10.0)  # four are worked on at one time
        return key, threading.get_ident()

    with ThreadPoolExecutor(8) as pool:
        found = for_each(pool, KEYS, work, 4)
        assert for_each(pool, [], work, 4) == []
    assert [key for key, _ in found] == KEYS
    assert len({thread for _, thread in found}) == 4


def test_the_first_error_ends_the_work() -> None:
    """A failure that is not a single game's ends the pass: no thread begins a further game after it."""
    taken: list[str] = []
    begun, raised = threading.Event(), threading.Event()

    def work(key: str) -> None:
        taken.append(key)
        if key == KEYS[0]:
            assert begun.wait(10.0)
            raise SystemExit(3)
        begun.set()
        assert raised.wait(10.0)

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(SystemExit):
            for_each(pool, KEYS, work, 2)
        raised.set()
    assert taken == KEYS[:2]
