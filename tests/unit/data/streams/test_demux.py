"""How far a stream is known to be complete when a pass ends."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from listeners.stream_id import StreamId
from pipeline.data.pins import SetPin
from pipeline.data.streams.demux import Demux, DemuxContext
from pipeline.data.streams.passes import Outcome
from pipeline.data.streams.roster import Roster
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.status import PASS_LIMIT_SECONDS
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import games
from pipeline.store.games import record_seen, register_group
from pipeline.store.stream_control import StreamControl, submit_control
from tests.game_streams import roster_of

SEQ_TO = 7  # of the pass
QUERY = StreamId("demux", "a")


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    engine = open_store(*load(tmp_path, {}))
    register_group(engine, "a", placing())
    record_seen(engine, {"chess": "Chess"}, 9, placing())  # it has rows beyond this pass, and none in it
    return roster_of(Settings(), Paths(tmp_path), engine)


def demux_of(
    roster: Roster, folder: Path, *, fails: bool = False, name: StreamId = QUERY, since: list[float] | None = None
) -> Demux:
    """A query whose passes read up to SEQ_TO and find no rows; `since` gets from when on each had its readers."""

    def apply(_source: Any, streams: Any, *_more: Any, read_since: float, **_options: Any) -> Outcome:
        if since is not None:
            since.append(read_since)
        for stream in streams.values():
            stream.behind = fails
        return Outcome(SEQ_TO, [], {}, {}, {})

    known: Any = SimpleNamespace(latest=lambda: SetPin(1), snapshot=lambda _version: None)
    context = SimpleNamespace(getLocalProperty=lambda _name: None)
    spark: Any = SimpleNamespace(sparkContext=context)
    batches = SimpleNamespace(rows=lambda _frame, _batch_id: SimpleNamespace(count=None))
    source: Any = SimpleNamespace(head=lambda: 9, batches=lambda _key, _query, once: batches)
    passes: Any = SimpleNamespace(apply=apply)
    driver = DemuxContext(spark, Settings(), roster, known, lambda _result: None)
    return Demux(driver, name, folder / "checkpoint", source, passes)


@pytest.mark.parametrize(
    ("before", "complete", "fails", "after"),
    [
        (5, 5, False, SEQ_TO - 1),  # the pass had all of bronze since, but for what the next has of its last seq
        (5, 4, False, 4),  # what lies between is nobody's yet
        (0, 4, False, 4),  # a query that has just started does not know where it stands
        (0, 9, False, 9),
        (5, 5, True, 5),
    ],
)
@pytest.mark.proves("G66")
def test_a_stream_without_rows_in_a_pass_is_as_far_as_the_pass(
    roster: Roster, tmp_path: Path, before: int, complete: int, fails: bool, after: int
) -> None:
    """Law L7: a quiet game never counts as behind, and no game counts as further than it is."""
    demux, chess = demux_of(roster, tmp_path, fails=fails), roster.streams["chess"]
    demux.frontier_seq, chess.complete_through, chess.cursor = before, complete, complete
    frame: Any = None
    demux._batch(frame, 0)
    assert chess.complete_through == after
    assert demux.frontier_seq == SEQ_TO
    waiting = roster.behind(demux.due, lambda _stream: 9)
    assert (waiting == [chess]) is (after < SEQ_TO - 1)


def test_a_pass_says_by_which_schema_set_it_writes(roster: Roster, tmp_path: Path) -> None:
    """While a pass runs its pinned set is in use, before it is pinned nobody knows, and then the newest comes next."""
    seen: list[int | None] = []
    demux = demux_of(roster, tmp_path)

    def oldest() -> None:
        seen.append(demux.set_in_use.oldest(5))

    def latest() -> SetPin:
        oldest()
        return SetPin(3)

    known: Any = demux._driver.schemas
    known.latest = latest
    known.snapshot = lambda _version: oldest()
    oldest()
    frame: Any = None
    demux._batch(frame, 0)
    oldest()
    assert seen == [5, None, 3, 5]


def test_a_quiet_game_is_not_behind_when_its_next_row_is_heard_of(roster: Roster, tmp_path: Path) -> None:
    """Law L7: a query that has just started learns from the store that nothing is missing of a game without rows."""
    demux, chess = demux_of(roster, tmp_path), roster.streams["chess"]
    with roster._engine.begin() as connection:
        connection.execute(update(games).values(last_seq=3))
    chess.last_seq = chess.complete_through = chess.cursor = 3
    frame: Any = None
    demux._batch(frame, 0)
    assert chess.complete_through == SEQ_TO - 1
    chess.last_seq = SEQ_TO + 1
    assert roster.behind(demux.due, lambda _stream: SEQ_TO + 1) == []


@pytest.mark.proves("G66")
def test_a_row_that_an_older_store_did_not_know_is_caught_up(roster: Roster, tmp_path: Path) -> None:
    """Law L7: a game that an old copy of the store made look complete is behind once ingest reports."""
    demux, chess = demux_of(roster, tmp_path), roster.streams["chess"]
    with roster._engine.begin() as connection:
        connection.execute(update(games).values(last_seq=3))
    chess.last_seq = chess.complete_through = chess.cursor = 3
    frame: Any = None
    demux._batch(frame, 0)
    assert chess.complete_through == SEQ_TO - 1
    with roster._engine.begin() as connection:
        connection.execute(update(games).values(last_seq=5))
    demux._batch(frame, 1)
    assert chess.complete_through == 3
    assert roster.behind(demux.due, lambda _stream: 9) == [chess]


@pytest.mark.parametrize("missed", [True, False])
@pytest.mark.proves("G58")
def test_what_a_game_has_of_a_seq_that_the_next_batch_goes_on_with_is_not_passed(
    roster: Roster, tmp_path: Path, missed: bool
) -> None:
    """Law L7: Spark may end a batch amid the files of a seq; only a game that missed the other half is behind."""
    demux, chess = demux_of(roster, tmp_path), roster.streams["chess"]
    record_seen(roster._engine, {"go": "Go"}, 1, placing())  # it is in both passes
    roster.sync()
    roster.streams["go"].cursor = roster.streams["go"].complete_through = 1
    demux.frontier_seq = chess.complete_through = chess.cursor = 5
    frame: Any = None
    demux._batch(frame, 0)
    chess.last_seq = SEQ_TO  # in the file of that seq that this batch did not have
    assert roster.behind(demux.due, lambda _stream: SEQ_TO) == []
    if missed:
        submit_control(roster._engine, "chess", "test", desired="paused")
    demux._batch(frame, 1)  # which ends amid the same seq, and has no row of this game
    assert chess.complete_through == SEQ_TO - 1
    chess.decision = StreamControl()
    assert roster.behind(demux.due, lambda _stream: SEQ_TO) == ([chess] if missed else [])
    demux.advance(SEQ_TO)  # no other batch comes
    assert roster.behind(demux.due, lambda _stream: SEQ_TO) == [chess]


def test_a_committed_stream_is_as_far_as_its_pass(roster: Roster, tmp_path: Path) -> None:
    """Law L7: who was thought behind while its pass ran, and landed in it, needs no catch-up."""
    demux, chess = demux_of(roster, tmp_path), roster.streams["chess"]
    demux.frontier_seq, chess.complete_through = 5, 4
    result: Any = SimpleNamespace(game_key="chess", committed_at=1.0)

    def apply(*_: Any, **_options: Any) -> Outcome:
        assert roster.behind(lambda _stream: 5, lambda _stream: 9) == []  # its pass has it
        chess.cursor = chess.complete_through = 6
        return Outcome(SEQ_TO, [result], {}, {}, {})

    demux._passes = SimpleNamespace(apply=apply)  # type: ignore[assignment]
    frame: Any = None
    demux._batch(frame, 0)
    assert chess.complete_through == SEQ_TO - 1
    assert roster.for_pass(SEQ_TO) == {"chess": chess}


@pytest.mark.proves("G66")
def test_a_committed_stream_is_no_further_than_its_pass_read(roster: Roster, tmp_path: Path) -> None:
    """Law L7: bronze counted as passed before a repeated batch is not taken for read by it."""
    demux, chess = demux_of(roster, tmp_path), roster.streams["chess"]
    result: Any = SimpleNamespace(game_key="chess", committed_at=1.0)

    def apply(*_: Any, **_options: Any) -> Outcome:
        chess.cursor = chess.complete_through = 6
        return Outcome(SEQ_TO, [result], {}, {}, {})

    demux._passes = SimpleNamespace(apply=apply)  # type: ignore[assignment]
    demux.advance(9)  # bronze has not grown while the query was being started
    frame: Any = None
    demux._batch(frame, 0)  # the batch that was cut short is repeated: it ends at SEQ_TO
    assert chess.complete_through == SEQ_TO - 1
    assert roster.behind(demux.due, lambda _stream: 9) == [chess]


@pytest.mark.parametrize("name", [QUERY, StreamId("game", "chess")], ids=["shared", "own"])
def test_a_start_ends_with_the_first_pass(roster: Roster, tmp_path: Path, name: StreamId) -> None:
    """Rows that came until then waited for the query, which catch-up knows of the shared one; a restart begins anew."""
    since: list[float] = []
    demux, frame = demux_of(roster, tmp_path, name=name, since=since), None
    roster.streams["chess"].decision = StreamControl(own_query=name != QUERY)
    submit_control(roster._engine, "chess", "test", own_query=name != QUERY)
    begun = time.time()
    for start in (begun, None, begun + 5_000):
        if start is not None:
            demux._start.note(start)
        demux._batch(frame, 0)  # type: ignore[arg-type]
    first, second, third = since
    assert (first, third) == (begun + PASS_LIMIT_SECONDS, begun + 5_000 + PASS_LIMIT_SECONDS)
    assert begun <= second <= time.time()
    assert (demux._driver.start is demux._start) is (name == QUERY)
