"""Whoever reads a stream reads it alone, and commits only onto the position its rows were split from."""

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from listeners.sample import Lane
from pipeline.base import failpoints
from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.pins import SetPin
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import DemuxContext
from pipeline.data.streams.passes import Outcome, Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.stream import Stream
from pipeline.data.streams.writing.rows import Rows
from pipeline.health.facts.placing import placing
from pipeline.lake.delta import table as delta_table
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.log import publish_commit
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Demux, Settings
from pipeline.store.games import last_seq, record_seen, register_group
from pipeline.store.stream_control import StreamControl, submit_control
from tests.game_streams import LocalBronze, roster_of
from tests.tables.bronze_rows import BronzeRows
from tests.tables.repair_world import CHESS, GO, World, broken, good, make_world

KEY = str(CHESS.key)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    return made


@pytest.fixture
def passes(world: World) -> Iterator[Callable[[str], Passes]]:
    """The objects with which two readers of one driver apply rows: each has its own, and they share a pool."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))

        def made(name: str) -> Passes:
            quarantine = CursorTable.create(world.paths.quarantine, QUARANTINE, "test")
            return Passes(world.paths.tables, quarantine, pool, ActiveGames(world.paths.root / "checkpoint", name))

        yield made


def apply(world: World, passes: Passes, rows: Rows, stream: Stream) -> Outcome:
    return passes.apply(rows, {KEY: stream}, world.registry.snapshot(), Lane.RUN, repeated=True)


@pytest.mark.proves("G32")
def test_rows_are_committed_only_onto_the_cursor_they_were_split_from(
    world: World, passes: Callable[[str], Passes]
) -> None:
    """Law L4: of two readers that split the same rows of one stream, the second to commit adds nothing."""
    world.ingest(good(1), good(2), broken())
    stream = world.stream(CHESS)
    first, second = passes("shared"), passes("catch-up")
    rows = BronzeRows(world, after_split=lambda: apply(world, second, BronzeRows(world), stream))
    outcome = apply(world, first, rows, stream)
    assert world.rows() == [(1, 0), (1, 1)]
    assert outcome.failures[KEY].kind == "expected"
    assert stream.cursor == 1
    assert world.verify().ok


@pytest.mark.proves("G32")
def test_rows_split_before_a_rebuild_are_not_added_after_it(world: World, passes: Callable[[str], Passes]) -> None:
    """Laws L4 and L12: a stream that has followed a rebuild meanwhile takes no rows of before it."""
    world.ingest(good(1))
    world.split()
    world.ingest(good(2))
    stream = world.stream(CHESS)

    def rebuild_and_follow() -> None:
        rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
        stream.reopen()

    outcome = apply(world, passes("shared"), BronzeRows(world, after_split=rebuild_and_follow), stream)
    assert outcome.failures[KEY].kind == "expected"
    assert (stream.generation, stream.cursor) == (2, 2)
    assert world.rows() == [(1, 0), (2, 0)]


def roster_over(world: World, *events: Any) -> Roster:
    """A roster, and bronze with a commit for each event."""
    for event in events:
        world.ingest(event)
    return roster_of(Settings(), world.paths, world.engine)


@pytest.fixture
def roster(world: World) -> Roster:
    world.ingest(good(1))
    return roster_of(Settings(), world.paths, world.engine)


def behind(roster: Roster, frontier: int, reach: int) -> list[Stream]:
    return roster.behind(lambda _stream: frontier, lambda _stream: reach)


@pytest.mark.proves("G33")
def test_a_stream_in_a_pass_is_in_no_chunk(roster: Roster) -> None:
    """Law L4: a stream that turns out to be behind while a pass has it is catch-up's only when the pass has ended."""
    stream = roster.for_pass(0)[KEY]
    stream.last_seq = 5
    assert behind(roster, frontier=4, reach=9) == []
    assert roster.for_chunk({KEY: stream}) == {}
    roster.end_pass()
    assert behind(roster, frontier=4, reach=9) == [stream]
    assert roster.for_chunk({KEY: stream}) == {KEY: stream}


@pytest.mark.proves("G33")
def test_a_stream_in_a_chunk_is_in_no_pass(roster: Roster) -> None:
    """Law L4: a stream that a chunk has is in no pass, however far it has come, until the chunk has ended."""
    stream = roster.streams[KEY]
    stream.behind = True
    assert roster.for_chunk({KEY: stream}) == {KEY: stream}
    stream.complete_through = 9
    for query in (None, KEY):
        assert roster.for_pass(9, query) == {}
    roster.end_pass()  # of a pass that did not have it
    assert roster.for_pass(9) == {}
    roster.end_chunk()
    assert roster.for_pass(9) == {KEY: stream}


def test_a_stream_that_no_longer_is_behind_gets_no_chunk(roster: Roster) -> None:
    """Law L7: between the choice of a chunk and its beginning a pass may have taken a stream back."""
    stream = roster.streams[KEY]
    stream.behind, stream.complete_through = True, 5
    roster.for_pass(5)
    roster.end_pass()
    assert roster.for_chunk({KEY: stream}) == {}


@pytest.mark.proves("G33")
def test_two_queries_never_read_one_stream(world: World, roster: Roster) -> None:
    """Law L11: a game that changes to a query of its own, or back, is read there when the other's pass has ended."""
    shared = roster.for_pass(0)
    assert set(shared) == {KEY}
    submit_control(world.engine, KEY, "test", own_query=True)
    roster.sync()
    assert roster.for_pass(0, KEY) == {}
    roster.end_pass()
    assert roster.for_pass(0, KEY) == shared
    submit_control(world.engine, KEY, "test", own_query=False)
    roster.sync()
    assert roster.for_pass(0) == {}
    roster.end_pass(KEY)
    assert roster.for_pass(0) == shared


@pytest.mark.proves("G36")
def test_two_threads_of_one_table_leave_no_hole_in_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L1: a log that lacks a version cannot be read, so commits through one object are numbered one by one."""
    schema = pa.schema([("_seq", pa.int64())])
    table = CursorTable.create(located(tmp_path / "t"), schema, "app", checkpoint_interval=1000)
    publish, meanwhile = publish_commit, threading.Event()
    others: list[threading.Thread] = []

    def published(*arguments: Any, **more: Any) -> bool:
        done = publish(*arguments, **more)
        if done and not others:  # another thread commits before this one has noted its version
            other = threading.Thread(target=append)
            others.append(other)
            other.start()
            meanwhile.wait(1.0)  # in vain where threads take turns
        return done

    def append() -> None:
        table.append([write_file(pa.table({"_seq": [1]}, schema=schema), located(tmp_path / "t"), ["_seq"])])
        meanwhile.set()

    monkeypatch.setattr(delta_table, "publish_commit", published)
    append()
    others[0].join()
    assert meanwhile.is_set()
    append()
    logs = sorted(int(file.stem) for file in (tmp_path / "t" / "_delta_log").glob("*.json"))
    assert logs == list(range(4))
    assert table.version == 3
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 3


def test_a_late_word_of_ingest_takes_nothing_back(world: World) -> None:
    """Law L7: what a stalled ingest tells late does not make a game look complete that is not."""
    record_seen(world.engine, {KEY: CHESS.name}, 7, placing())
    record_seen(world.engine, {KEY: CHESS.name}, 3, placing())
    assert last_seq(world.engine, KEY) == 7


_BETWEEN = LocalBronze.between


def unreadable(self: LocalBronze, low: int, high: int, keys: Collection[GameKey]) -> Rows:
    """Read a chunk where the beginning of bronze cannot be read."""
    if low == 0:
        raise OSError(5, "Input/output error", "bronze")
    return _BETWEEN(self, low, high, keys)


def local_catch_up(
    world: World, roster: Roster, passes: Callable[[str], Passes], used: list[int], seqs: int = 100
) -> CatchUp:
    """Return catch-up as a driver has it that starts now; `used` gets the schema set of each chunk."""

    def snapshot(pinned: SetPin) -> SchemaSet:
        used.append(pinned.version)
        return world.registry.snapshot()

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    schemas: Any = SimpleNamespace(latest=lambda: SetPin(len(used) + 1), snapshot=snapshot)
    settings = Settings(demux=Demux(catchup_seqs=seqs))
    driver = DemuxContext(spark, settings, roster, schemas, lambda _: None)
    bronze = LocalBronze(
        settings, world.paths, world.engine, lambda low, high, _keys: BronzeRows(world, low=low, high=high)
    )
    return CatchUp(driver, world.paths.root / "checkpoint", bronze, passes("catch-up"))


def cut_short(catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a chunk end as with its process, after its refused rows are in quarantine."""

    def on_hit(point: str) -> None:
        if point == "after_quarantine_write":
            raise failpoints.Injected(point)

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "on_hit", on_hit)
        with pytest.raises(failpoints.Injected):
            catch_up.step(lambda _: 9, lambda _: 9)


def test_another_chunk_does_not_take_the_pin_of_one_that_was_cut_short(
    world: World, passes: Callable[[str], Passes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L5: a game is classified as in the chunk that was cut short, also when others' chunks come in between."""
    world.register(GO)
    world.ingest(good(1), broken(), good(2, game=GO))
    world.ingest(good(3), good(4, game=GO))
    roster = roster_over(world)
    used: list[int] = []
    for stream in roster.streams.values():
        stream.behind = True
    cut_short(local_catch_up(world, roster, passes, used), monkeypatch)
    roster = roster_over(world)
    chess, go = roster.streams[KEY], roster.streams[str(GO.key)]
    go.behind = True
    again = local_catch_up(world, roster, passes, used)
    assert again.step(lambda _: 0, lambda _: 9)  # without chess, which another reader has
    chess.behind = True
    assert again.step(lambda _: 0, lambda _: 9)
    assert used == [1, 1, 1]
    chess.behind, chess.complete_through = True, 0
    assert again.step(lambda _: 0, lambda _: 9)
    assert used == [1, 1, 1, 4]  # what ended is judged anew
    assert world.verify().ok


def test_a_pass_takes_no_rows_of_a_chunk_that_was_cut_short(
    world: World, passes: Callable[[str], Passes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L5: after a crash a pass has another schema set for them, so catch-up repeats the chunk first."""
    world.ingest(good(1), broken())
    roster = roster_over(world)
    used: list[int] = []
    roster.streams[KEY].behind = True
    cut_short(local_catch_up(world, roster, passes, used), monkeypatch)
    roster = roster_over(world)
    again = local_catch_up(world, roster, passes, used)
    assert roster.for_pass(0) == {}
    roster.end_pass()
    assert again.oldest_set(roster.streams[KEY], 9) == 1, "what will be repeated counts as in use"
    assert again.step(lambda _: 0, lambda _: 9)
    assert again.oldest_set(roster.streams[KEY], 9) == 9
    assert used == [1, 1]
    assert roster.for_pass(0) == {KEY: roster.streams[KEY]}


def test_a_chunk_that_is_repeated_in_parts_keeps_its_pin_to_its_end(
    world: World, passes: Callable[[str], Passes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L5: what was pinned as one chunk is classified alike, also when its repetition comes to fewer seqs."""
    for number in (1, 3, 5):
        world.ingest(good(number), broken())
    roster = roster_over(world)
    used: list[int] = []
    roster.streams[KEY].behind = True
    cut_short(local_catch_up(world, roster, passes, used), monkeypatch)
    roster = roster_over(world)
    roster.streams[KEY].behind = True
    again = local_catch_up(world, roster, passes, used, seqs=1)
    for _ in range(3):
        assert again.step(lambda _: 0, lambda _: 9)
    assert used == [1, 1, 1, 1]
    assert world.rows() == [(1, 0), (2, 0), (3, 0)]
    assert world.verify().ok


def test_bronze_is_blamed_only_for_what_was_read_of_it(
    world: World, roster: Roster, passes: Callable[[str], Passes]
) -> None:
    """Law L7: a stream that was told to be complete further than it is reads on from its cursor, and is not parked."""
    stream = roster.streams[KEY]
    world.register(GO)
    for number in (2, 3):
        world.ingest(good(number, game=GO))
    catch_up = local_catch_up(world, roster, passes, [])
    stream.behind, stream.complete_through = True, 2  # but the row of seq 1 is not in its table
    stream.last_seq = 3  # a late word of what came since
    assert catch_up.step(lambda _: 3, lambda _: 3)
    assert world.rows() == [(1, 0)]
    assert stream.error is not None  # read whole, it lacks seq 3
    stream.last_seq, stream.decision = 1, StreamControl()
    catch_up.step(lambda _: 3, lambda _: 3)
    assert stream.complete_through == 3


@pytest.mark.proves("G69")
def test_a_nearly_level_game_does_not_wait_for_one_that_is_far_behind(
    world: World, passes: Callable[[str], Passes]
) -> None:
    """Law L16: the level game's row lands in the next chunk, and the far one's rows go on landing in every other."""
    world.register(GO)
    for number in range(1, 9):
        world.ingest(good(number))
    world.ingest(good(9), good(1, game=GO))
    roster = roster_over(world)
    chess, go = roster.streams[KEY], roster.streams[str(GO.key)]
    catch_up = local_catch_up(world, roster, passes, [], seqs=2)
    chess.behind = go.behind = True
    go.complete_through = 8
    assert catch_up.step(lambda _: 9, lambda _: 9)
    assert (chess.cursor, go.cursor) == (0, 9)
    assert catch_up.step(lambda _: 9, lambda _: 9)
    assert chess.cursor == 2
    go.complete_through = go.last_seq = 8  # it is behind again and again
    assert catch_up.step(lambda _: 9, lambda _: 9)
    assert (chess.cursor, go.complete_through) == (2, 9)
    for cursor in (4, 6, 8, 9):
        assert catch_up.step(lambda _: 9, lambda _: 9)
        assert chess.cursor == cursor
    assert not catch_up.step(lambda _: 9, lambda _: 9)
    assert world.verify().ok


@pytest.mark.proves("G69")
def test_a_chunk_that_cannot_be_read_keeps_no_other_game(
    world: World, passes: Callable[[str], Passes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L16: a game slightly behind lands though the chunk of a game far behind fails as a whole each time."""
    world.register(GO)
    for number in range(1, 9):
        world.ingest(good(number))
    world.ingest(good(9), good(1, game=GO))
    roster = roster_over(world)
    chess, go = roster.streams[KEY], roster.streams[str(GO.key)]
    catch_up = local_catch_up(world, roster, passes, [], seqs=2)
    monkeypatch.setattr(LocalBronze, "between", unreadable)
    chess.behind = True
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            catch_up.step(lambda _: 9, lambda _: 9)
    go.behind, go.complete_through = True, 8
    assert catch_up.step(lambda _: 9, lambda _: 9)
    assert go.cursor == 9
    with pytest.raises(OSError, match="Input/output error"):
        catch_up.step(lambda _: 9, lambda _: 9)
    monkeypatch.setattr(LocalBronze, "between", _BETWEEN)
    while catch_up.step(lambda _: 9, lambda _: 9):
        pass
    assert chess.cursor == 9
    assert world.verify().ok


@pytest.mark.proves("G69")
def test_of_two_chunks_that_were_cut_short_one_cannot_keep_the_other(
    world: World, passes: Callable[[str], Passes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L16: each is repeated with its own seqs, so one whose part of bronze cannot be read waits alone."""
    world.register(GO)
    for number in range(1, 9):
        world.ingest(good(number))
    world.ingest(good(9), good(1, game=GO))

    def killed(*_: object) -> Rows:
        raise KeyboardInterrupt

    def begun() -> tuple[CatchUp, Stream, Stream]:
        roster = roster_over(world)
        chess, go = roster.streams[KEY], roster.streams[str(GO.key)]
        chess.behind, go.behind, go.complete_through = True, True, 8
        return local_catch_up(world, roster, passes, [], seqs=2), chess, go

    catch_up, _, go = begun()
    monkeypatch.setattr(LocalBronze, "between", killed)
    with pytest.raises(KeyboardInterrupt):  # in the chunk of the game that is nearly level
        catch_up.step(lambda _: 9, lambda _: 9)
    catch_up, _, go = begun()
    go.behind, go.complete_through = False, 9  # its turn is not yet
    monkeypatch.setattr(LocalBronze, "between", unreadable)
    with pytest.raises(OSError, match="Input/output error"):
        catch_up.step(lambda _: 9, lambda _: 9)
    catch_up, chess, go = begun()  # now both have a chunk to repeat
    tries = 0
    while go.cursor != 9 and tries < 3:
        tries += 1
        with suppress(OSError):
            catch_up.step(lambda _: 9, lambda _: 9)
    assert go.cursor == 9
    monkeypatch.setattr(LocalBronze, "between", _BETWEEN)
    while catch_up.step(lambda _: 9, lambda _: 9):
        pass
    assert chess.cursor == 9
    assert world.verify().ok
