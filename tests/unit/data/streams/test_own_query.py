"""A game's own query is turned off and on while its pass goes on for longer than anybody waits."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.data.streams import demux
from pipeline.data.streams.demux import Demux
from pipeline.data.streams.group import Group
from pipeline.data.streams.passes import Outcome
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen, register_group
from pipeline.store.stream_control import submit_control

CHESS = "chess"
_READY_SECONDS = 10.0


class Query:
    """As Spark's: it ends when it is told to."""

    isActive = True  # noqa: N815

    def stop(self) -> None:
        self.isActive = False


class LongPass:
    """The pass of a game's own query, which goes on until `end`."""

    def __init__(self, own: Demux) -> None:
        self._begun, self._over = threading.Event(), threading.Event()
        passes: Any = SimpleNamespace(apply=self._apply)
        own._passes = passes
        frame: Any = None
        self._thread = threading.Thread(target=own._batch, args=(frame, 0))
        self._thread.start()
        assert self._begun.wait(_READY_SECONDS)

    def _apply(self, _source: Any, streams: Any, *_more: Any, **_options: Any) -> Outcome:
        assert list(streams) == [CHESS]
        self._begun.set()
        self._over.wait()
        return Outcome(9, [], {}, {}, {})

    def end(self) -> None:
        self._over.set()
        self._thread.join(_READY_SECONDS)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """A group whose one game has an own query."""

    def start(self: Demux, *, once: bool) -> None:
        assert not once
        query: Any = Query()
        self.query = query

    monkeypatch.setattr(Demux, "start", start)
    monkeypatch.setattr(demux, "_STOP_SECONDS", 0.2)
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    register_group(engine, "a", placing())
    record_seen(engine, {CHESS: "Chess"}, 9, placing())
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda _name: None))
    made = Group(spark, settings, paths, engine, "a", lambda _result: None)
    decide(made, own_query=True)
    return made


@pytest.fixture
def own(group: Group) -> Demux:
    return group._own[CHESS]


@pytest.fixture
def running(own: Demux) -> Iterator[LongPass]:
    made = LongPass(own)
    yield made
    made.end()


def decide(group: Group, *, own_query: bool) -> None:
    """Somebody turns it on or off, and the driver hears of it and acts."""
    submit_control(group._engine, CHESS, "somebody", own_query=own_query)
    group.roster.sync()
    group.sync_queries()


def in_shared_pass(group: Group) -> bool:
    """Return whether a shared pass that begins now has the game."""
    try:
        return CHESS in group.roster.for_pass(0)
    finally:
        group.roster.end_pass()


@pytest.mark.proves("G63")
def test_a_query_that_is_turned_off_in_a_long_pass_ends_after_it(group: Group, own: Demux, running: LongPass) -> None:
    """Law L4: the driver goes on, and the game stays its own query's until that has stopped: one reader at a time."""
    for _ in range(2):
        decide(group, own_query=False)
        assert group._own == {CHESS: own}
        assert not in_shared_pass(group)
    running.end()
    group.sync_queries()
    assert group._own == {}
    assert own.query is not None
    assert not own.query.isActive
    assert in_shared_pass(group)


@pytest.mark.proves("G63")
def test_a_query_that_is_turned_on_again_in_a_long_pass_is_begun_anew(
    group: Group, own: Demux, running: LongPass
) -> None:
    """Law L11: what was told to stop begins no further pass, so another takes its place, and not beside it."""
    decide(group, own_query=False)
    decide(group, own_query=True)
    assert group._own == {CHESS: own}
    running.end()
    group.sync_queries()
    assert own.query is not None
    assert not own.query.isActive
    assert group._own[CHESS] is not own
    assert group._own[CHESS].query is not None
    assert not group._own[CHESS].is_stopping
    assert not in_shared_pass(group)


@pytest.mark.parametrize(
    ("text", "failures"),
    [("Versions (3, 5) are not contiguous. A gap was detected", 0), ("the disk is broken", 1)],
)
@pytest.mark.proves("G7")
def test_a_listing_that_lacks_a_commit_is_charged_to_no_game(
    group: Group, own: Demux, text: str, failures: int
) -> None:
    """The listing race of bronze's busy log ends a game's own query, and is not the game's failure."""
    query: Any = SimpleNamespace(isActive=False, exception=lambda: text)
    own.query = query
    group.sync_queries()
    assert group.streams[CHESS].decision.failures == failures
    group.sync_queries()
    assert (CHESS in group._own) == (failures == 0), "what failed waits for its next try"


def test_a_query_that_cannot_start_is_its_games_failure(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L6: where the start of a game's own query fails, as on a full disk, the driver of all games goes on."""
    group._own.clear()
    starts = iter([OSError(28, "No space left on device"), None])

    def start(self: Demux, *, once: bool) -> None:
        if error := next(starts):
            raise error
        query: Any = Query()
        self.query = query

    monkeypatch.setattr(Demux, "start", start)
    group.sync_queries()
    assert group._own == {}
    stream = group.streams[CHESS]
    assert "No space left on device" in str(stream.decision.evidence)
    monkeypatch.setattr(time, "time", lambda: stream.decision.retry_at + 1.0)
    group.sync_queries()
    assert group._own[CHESS].query is not None
