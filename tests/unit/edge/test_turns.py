"""Judgements take turns by producer, so that one whose events are dear to judge delays no other."""

import asyncio
import threading
import time

import pytest

from pipeline.edge.turns import Turns
from tests.unit.edge.edge_world import in_own_loop


def busy(seconds: float = 0.002) -> None:
    """Use the processor for a while."""
    since = time.thread_time()
    while time.thread_time() - since < seconds:
        pass


def test_a_producer_with_little_to_judge_is_next() -> None:
    """The producer that has cost less CPU time comes first, however much another one has queued before."""
    order: list[str] = []
    held = threading.Event()

    async def body() -> None:
        turns = Turns()

        def work(name: str, *, waits: bool = False) -> None:
            if waits:
                held.wait(20)
            busy()
            order.append(name)

        first = asyncio.ensure_future(turns.take("greedy", lambda: work("greedy", waits=True)))
        others = [asyncio.ensure_future(turns.take("greedy", lambda: work("greedy"))) for _ in range(3)]
        others += [asyncio.ensure_future(turns.take("modest", lambda: work("modest")))]
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(first, *others)
        turns.close()

    in_own_loop(body())
    assert order == ["greedy", "modest", "greedy", "greedy", "greedy"]


def test_an_idle_producer_saves_nothing_up() -> None:
    """A producer that comes late shares from then on, and does not go first until it has cost as much as others."""
    order: list[str] = []
    held = threading.Event()

    async def body() -> None:
        turns = Turns()

        def work(name: str, seconds: float, *, waits: bool = False) -> None:
            if waits:
                held.wait(20)
            busy(seconds)
            order.append(name)

        tasks = [asyncio.ensure_future(turns.take("early", lambda: work("early", 0.03)))]
        tasks += [asyncio.ensure_future(turns.take("early", lambda: work("early", 0.03, waits=True)))]
        tasks += [asyncio.ensure_future(turns.take("early", lambda: work("early", 0.03))) for _ in range(2)]
        await tasks[0]
        await asyncio.sleep(0)
        tasks += [asyncio.ensure_future(turns.take("late", lambda: work("late", 0.02))) for _ in range(4)]
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*tasks)
        turns.close()

    in_own_loop(body())
    assert order[:2] == ["early", "early"]
    assert order[2:5] == ["late", "late", "early"]


def test_the_work_of_ended_calls_is_not_done() -> None:
    """A call that its client has given up costs nothing more, and a failure ends its own call alone."""
    done: list[int] = []
    held = threading.Event()

    def wait() -> None:
        held.wait(20)

    def fail() -> None:
        raise ValueError("of this call")

    async def body() -> None:
        turns = Turns()
        first = asyncio.ensure_future(turns.take("a", wait))
        given_up = asyncio.ensure_future(turns.take("a", lambda: done.append(1)))
        failing = asyncio.ensure_future(turns.take("a", fail))
        last = asyncio.ensure_future(turns.take("a", lambda: done.append(2)))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(first, last)
        with pytest.raises(ValueError, match="of this call"):
            await failing
        turns.close()

    in_own_loop(body())
    assert done == [2]
