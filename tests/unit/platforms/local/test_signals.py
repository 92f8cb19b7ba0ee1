"""How a process hears that it must stop."""

import os
import queue
import signal
import subprocess
import sys
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


HANGS = """
import threading
from pipeline.platforms.local.signals import stop_on_signals

def never_ends():
    threading.Event().wait()

stop = stop_on_signals(0.2)
threading.Thread(target=never_ends).start()
print("ready", flush=True)
stop.wait()
"""
"""A process whose main thread ends in order, and which Python keeps for a thread."""


def test_a_process_that_does_not_end_shows_why_and_ends() -> None:
    """A driver that has heard SIGTERM ends within its limit, whatever one of its threads waits for, and names it."""
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        try:
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 1
    assert b"in never_ends" in said


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
