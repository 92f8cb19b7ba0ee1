"""A pass that refuses rows anew is reported at once, and causes are judged then."""

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine

from listeners.sample import GameResult, Lane, PassResult
from pipeline.base.names import GameKey
from pipeline.data.streams.stream import Stream
from pipeline.data.streams.watchdog import Watchdog, refuses_anew
from pipeline.settings.tree import Settings
from pipeline.store.processes.drivers import newest_news, start_driver

NOW = 1_800_000_000.0


def result(bad: int, good: int, error: str | None = None) -> GameResult:
    return GameResult("g", Lane.RUN, 1, 2, good, {"malformed_payload": bad}, 1, 9, NOW, 0.1, (), error)


@pytest.mark.parametrize(
    ("bad", "good", "known", "error", "is_news"),
    [
        (300, 100, 0, None, True),
        (300, 100, 299, None, True),
        (300, 100, 300, None, False),  # it goes on as before
        (2, 0, 0, None, False),
        (3, 0, 0, None, True),
        (19, 981, 0, None, False),  # a trickle
        (0, 100, 0, None, False),
        (300, 100, 0, "OSError", False),  # they come again
    ],
)
def test_news_is_more_than_five_minutes_have_shown(
    bad: int, good: int, known: int, error: str | None, is_news: bool
) -> None:
    """Rows that go on as before, single rows and small shares wait for the heartbeat."""
    assert refuses_anew(result(bad, good, error), known) is is_news


def test_a_watchdog_tells_news_once_and_writes_it_with_the_states(engine: Engine) -> None:
    """A reader that sees that there is news reads the states that it is about; the next pass as bad is no news."""
    start_driver(engine, "group", "a", None)
    target: Any = None
    streams = {"g": Stream(GameKey("g"), "g", target, 1, 2, cursor=2, complete_through=2)}
    group: Any = SimpleNamespace(name="a", streams=streams, frontier_seq=2, pass_since=None, schema_sets=dict)
    watchdog = Watchdog(Settings(), engine, group, lambda *_: None)
    watchdog.passed(PassResult("a", "r", 1, NOW, NOW, 2, (result(0, 100),)))
    assert not watchdog.has_news
    watchdog.evaluate(active=True)
    assert newest_news(engine) is None
    for number, is_news in ((2, True), (3, False)):
        watchdog.passed(PassResult("a", "r", number, NOW, NOW, 2, (result(30, 100),)))
        assert watchdog.has_news is is_news
        watchdog.evaluate(active=True)
        assert not watchdog.has_news
    assert newest_news(engine) is not None
