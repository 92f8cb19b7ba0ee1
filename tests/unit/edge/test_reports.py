"""Reports of the log reach the event loop, each once and in order."""

import asyncio
import threading
from functools import partial

from pipeline.edge.reports import Reports
from tests.unit.edge.edge_world import in_own_loop, until


def test_every_report_arrives_once_and_in_order_whatever_another_one_does() -> None:
    """An acknowledgement is lost neither between two wake-ups nor by a report that fails before it."""
    taken, failures = list[tuple[int, int]](), list[str]()

    def fail() -> None:
        raise ValueError("a report")

    async def run() -> None:
        loop, reports = asyncio.get_running_loop(), Reports()
        loop.set_exception_handler(lambda _, context: failures.append(str(context["exception"])))

        def hand(thread: int) -> None:
            for number in range(2_000):
                reports.hand(loop, partial(taken.append, (thread, number)))
                if number % 500 == 0:
                    reports.hand(loop, fail)

        threads = [threading.Thread(target=hand, args=(each,)) for each in range(3)]
        for each in threads:
            each.start()
        await until(lambda: len(taken) + len(failures) == 3 * 2_004)
        for each in threads:
            each.join()

    in_own_loop(run())
    for thread in range(3):
        assert [number for of, number in taken if of == thread] == list(range(2_000))
    assert failures == ["a report"] * 12


def test_a_burst_wakes_the_loop_once() -> None:
    """A wake-up is a system call: reports that come while the loop is busy share one."""
    woken, taken = list[object](), list[int]()

    async def run() -> None:
        loop, reports = asyncio.get_running_loop(), Reports()
        wake = loop.call_soon_threadsafe

        def counted(*arguments: object) -> object:
            woken.append(arguments)
            return wake(*arguments)  # type: ignore[arg-type]  # as it was called

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        for number in range(100):
            reports.hand(loop, partial(taken.append, number))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    in_own_loop(run())
    assert (taken, len(woken)) == (list(range(100)), 1)


def test_a_report_after_the_loop_has_ended_is_nobodys() -> None:
    """A log that is closed after its edge raises no error in its own thread."""
    reports, loops = Reports(), list[asyncio.AbstractEventLoop]()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())

    in_own_loop(run())
    reports.hand(loops[0], lambda: None)
