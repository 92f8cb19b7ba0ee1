"""Guards the outbox: offering never waits, the newest items survive, and nothing ends the draining thread."""

import threading

from listeners.outbox import Outbox

PATIENCE_SECONDS = 10.0


class Gate:
    """A sink that holds its first item until it is opened, so that a test knows what waits behind it."""

    def __init__(self) -> None:
        self.published: list[int] = []
        self.entered = threading.Event()
        self.opened = threading.Event()

    def publish(self, item: int) -> None:
        self.entered.set()
        assert self.opened.wait(PATIENCE_SECONDS)
        self.published.append(item)


def test_items_are_published_in_order() -> None:
    """Closing publishes all that waits, in the order it was offered."""
    published: list[int] = []
    outbox = Outbox(100, published.append)
    for item in range(50):
        outbox.offer(item)
    assert outbox.close(PATIENCE_SECONDS)
    assert (list(range(50)), 0, 0) == (published, outbox.dropped, outbox.failures)


def test_the_oldest_items_are_dropped_and_counted() -> None:
    """Behind a slow sink offering does not wait: the newest items stay, and every lost one is counted."""
    gate = Gate()
    outbox = Outbox(3, gate.publish)
    outbox.offer(0)
    assert gate.entered.wait(PATIENCE_SECONDS)
    for item in range(1, 11):
        outbox.offer(item)
    assert (len(outbox), outbox.dropped) == (3, 7)
    gate.opened.set()
    assert outbox.close(PATIENCE_SECONDS)
    assert gate.published == [0, 8, 9, 10]


def test_a_failing_sink_is_counted_and_survived() -> None:
    """One item that cannot be published costs itself only."""
    published: list[int] = []

    def publish(item: int) -> None:
        if item % 2:
            raise RuntimeError("odd")
        published.append(item)

    outbox = Outbox(10, publish)
    for item in range(6):
        outbox.offer(item)
    assert outbox.close(PATIENCE_SECONDS)
    assert (published, outbox.failures) == ([0, 2, 4], 3)


def test_closing_keeps_its_deadline() -> None:
    """A hanging sink cannot delay the end of a process; the remaining items count as dropped."""
    gate = Gate()
    outbox = Outbox(10, gate.publish)
    outbox.offer(0)
    assert gate.entered.wait(PATIENCE_SECONDS)
    outbox.offer(1)
    assert not outbox.close(0.05)
    assert outbox.dropped == 1
    gate.opened.set()


def test_an_item_offered_after_closing_is_counted() -> None:
    """A late event is not lost in silence."""
    outbox = Outbox[int](10, lambda _: None)
    assert outbox.close(PATIENCE_SECONDS)
    outbox.offer(1)
    assert outbox.dropped == 1
