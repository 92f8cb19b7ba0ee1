"""How a process hears that it must stop."""

import os
import queue
import signal
import threading

import pytest

from pipeline.platforms.local.signals import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event(number: signal.Signals) -> None:
    """In the main thread SIGTERM and Ctrl-C end a process in order."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        stop = stop_on_signals()
        os.kill(os.getpid(), number)
        assert stop.wait(5)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_outside_the_main_thread_there_is_an_event_without_signals() -> None:
    """A platform may run us in a thread of its own, where Python takes no signals: the driver runs all the same."""
    before = signal.getsignal(signal.SIGTERM)
    made: queue.SimpleQueue[object] = queue.SimpleQueue()

    def run() -> None:
        try:
            made.put(stop_on_signals())
        except ValueError as error:
            made.put(error)

    threading.Thread(target=run).start()
    stop = made.get(timeout=5)
    assert isinstance(stop, threading.Event)
    assert not stop.is_set()
    assert signal.getsignal(signal.SIGTERM) == before
