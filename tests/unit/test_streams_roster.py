"""When a stream that was behind is the pass's again."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from pipeline.delta.table import CursorTable
from pipeline.names import GameKey, stream_app_id
from pipeline.settings import Paths, Settings, load
from pipeline.store.engine import open_store
from pipeline.store.games import record_generation, record_seen, register_group
from pipeline.store.leases import leased
from pipeline.store.stream_control import ask, ask_retry
from pipeline.streams.roster import Roster
from pipeline.streams.stream import Stream


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    store = open_store(*load(tmp_path, {}))
    yield store
    store.dispose()


@pytest.fixture
def roster(engine: Engine, tmp_path: Path) -> Roster:
    register_group(engine, "a")
    record_seen(engine, {"chess": "Chess"}, 9)
    return Roster(Settings(), Paths(tmp_path), engine, "a", lease=None)


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


def edit(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize("value", ["'purple'", "x'ff'", "9e999", "1.5"])
@pytest.mark.parametrize("column", ["last_seq", "generation", "epoch", "game_key"])
@pytest.mark.parametrize("under_lease", [False, True])
def test_a_game_whose_row_is_spoilt_stands_still_and_the_others_of_its_group_go_on(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture, column: str, value: str, under_lease: bool
) -> None:
    """Law L6: a driver starts and syncs with such a row, says once which game it leaves out, and takes it again."""
    if column == "game_key" and value != "x'ff'":
        return  # SQLite makes a text of all else
    register_group(engine, "a")
    record_seen(engine, {"chess": "Chess", "go": "Go"}, 9)
    with leased(engine, Settings().store, "group", "a") as lease:
        roster = Roster(Settings(), Paths(tmp_path), engine, "a", lease if under_lease else None)
        assert sorted(roster.streams) == ["chess", "go"]
        was = "'go'" if column == "game_key" else "1"
        edit(engine, f"UPDATE games SET {column} = {value} WHERE game = 'Go'")
        for _ in range(2):
            roster.sync()
        again = Roster(Settings(), Paths(tmp_path), engine, "a", lease if under_lease else None)
        assert sorted(roster.streams) == sorted(again.streams) == sorted(roster.for_pass(9)) == ["chess"]
        said = [each.getMessage() for each in caplog.records if "stands still" in each.getMessage()]
        assert len(said) == 2  # one of each
        assert f"table games of the control store is invalid: {column}" in said[0]
        edit(engine, f"UPDATE games SET {column} = {was} WHERE game = 'Go'")
        roster.sync()
        assert sorted(roster.streams) == ["chess", "go"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("retry_at", "'purple'"), ("retry_at", "9e999"), ("retry_at", "x'ff'"), ("parked_at", "'purple'"),
        ("failed_at", "'purple'"), ("failures", "'purple'"), ("failures", "9223372036854775807"),
        ("desired", "'purple'"), ("own_query", "'purple'"), ("evidence", "x'ff'"),
    ],
)  # fmt: skip
def test_a_stream_of_which_nobody_knows_what_was_decided_is_parked_and_says_so(
    engine: Engine, tmp_path: Path, column: str, value: str
) -> None:
    """Law L6: it may be paused, so it does not run; the others do. `turnout repair retry` or a correction ends it."""
    register_group(engine, "a")
    record_seen(engine, {"chess": "Chess", "go": "Go"}, 9)
    ask(engine, "go", "ann", desired="running")
    edit(engine, f"UPDATE stream_control SET {column} = {value}")
    roster = Roster(Settings(), Paths(tmp_path), engine, "a", None)
    assert sorted(roster.for_pass(9)) == ["chess"]
    go = roster.streams["go"]
    assert go.lane == "QUARANTINED"
    assert f"table stream_control of the control store is invalid: {column}" in (go.error or "")
    if column not in ("desired", "own_query"):
        ask_retry(engine, "go", "ann")
        roster.sync()
        roster.end_pass()
        assert sorted(roster.for_pass(9)) == ["chess", "go"]


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
