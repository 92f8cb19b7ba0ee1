"""When a stream that was behind is the pass's again."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from pipeline.base.names import GameKey, stream_app_id
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.stream import Stream
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.generation import RETIRED
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_generation, record_seen, register_group
from tests.game_streams import roster_of


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    store = open_store(*load(tmp_path, {}))
    yield store
    store.dispose()


@pytest.fixture
def roster(engine: Engine, tmp_path: Path) -> Roster:
    register_group(engine, "a", placing())
    record_seen(engine, {"chess": "Chess"}, 9, placing())
    return roster_of(Settings(), Paths(tmp_path), engine)


@pytest.fixture
def chess(roster: Roster) -> Stream:
    stream = roster.streams["chess"]
    stream.complete_through, stream.behind = 5, True
    return stream


def behind(roster: Roster, frontier: int, reach: int) -> list[Stream]:
    return roster.behind(lambda _stream: frontier, lambda _stream: reach)


def test_a_stream_that_is_as_far_as_the_pass_is_left_to_it(roster: Roster, chess: Stream) -> None:
    """Law L7: catch-up brings a stream as far as the running pass reaches and no further, so that it can rejoin."""
    assert behind(roster, frontier=5, reach=7) == [chess]
    chess.complete_through = 7
    assert behind(roster, frontier=5, reach=7) == []
    assert roster.for_pass(7) == {"chess": chess}
    assert not chess.behind


@pytest.mark.proves("G68")
def test_a_stream_rejoins_though_every_pass_finds_new_rows(roster: Roster, chess: Stream) -> None:
    """Law L7: what is caught up during one pass is the next one's, though it begins with bronze already further."""
    frontier, head = 9, 12
    assert not roster.for_pass(frontier)
    while ready := behind(roster, frontier, reach=head):
        (stream,) = ready
        stream.cursor = stream.complete_through = min(stream.complete_through + 2, head)  # one chunk
    assert chess.complete_through >= head
    assert roster.for_pass(head) == {"chess": chess}


def test_a_generation_that_a_table_lacks_is_looked_for_once(engine: Engine, roster: Roster, chess: Stream) -> None:
    """Law L7: the control store may tell of more than an older copy of a table has; its stream goes on as it is."""
    app_id = stream_app_id("local", GameKey("chess"), 1)
    CursorTable.create(chess.path, pa.schema([("_seq", pa.int64())]), app_id).commit([], None, 4)
    record_generation(engine, "chess", 3)
    roster.sync()
    opened = roster.streams["chess"]
    roster.sync()
    assert (opened.generation, opened.cursor) == (1, 4)
    assert roster.streams["chess"] is opened


def test_a_generation_that_a_rebuild_replaces_meanwhile_is_opened(
    engine: Engine, roster: Roster, chess: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """Law L12: a driver that opens a generation between two rebuilds moves on later, and warns of no older table."""
    app_id = stream_app_id("local", GameKey("chess"), 2)
    CursorTable.create(chess.path, pa.schema([("_seq", pa.int64())]), app_id).commit([], None, RETIRED)
    record_generation(engine, "chess", 2)
    with caplog.at_level(logging.WARNING, "turnout"):
        roster.sync()
    assert (roster.streams["chess"].cursor, caplog.messages) == (RETIRED, [])


def test_a_stream_that_lacks_rows_is_found_among_idle_ones(roster: Roster, chess: Stream) -> None:
    """Law L7: a stream whose rows no pass will read is behind from then on, and neither an idle nor a busy one is."""
    chess.behind = False
    assert behind(roster, frontier=5, reach=9) == []  # the pass has not been there yet
    assert behind(roster, frontier=6, reach=9) == [chess]
    assert chess.behind
    chess.complete_through, chess.behind = 9, False
    assert behind(roster, frontier=12, reach=12) == []
    chess.complete_through = 5
    assert roster.for_pass(5) == {"chess": chess}
    assert behind(roster, frontier=6, reach=9) == []  # a pass has it in hand
    assert not chess.behind
