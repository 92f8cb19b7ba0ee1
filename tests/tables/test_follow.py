"""Followers of an edge learn exactly what tables and quarantine have."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pipeline.base.names import game_key
from pipeline.data.ingest.source_checks import forget_refused
from pipeline.edge.following import landed
from pipeline.edge.statuses import EdgeStatus
from pipeline.lake.delta.log import commit_file
from pipeline.lake.delta.opening import open_table
from pipeline.store import sources
from pipeline.store.games import Game
from pipeline.store.sources import AcceptedGap, Identity
from tests.tables.follow_world import ALL, FollowPosition, Tail, replayed
from tests.tables.repair_world import CHESS, GO, SECOND, Event, World, broken, early, good, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    made.register(GO)
    yield made
    made.engine.dispose()


def test_a_refused_row_comes_once_its_table_has_passed_it_and_then_the_offset(world: World) -> None:
    """A refusal is not told before it is decided, and no offset behind it is."""
    text_for_points = Event(CHESS, 1, b"\x0a\x01a", event_id="text")
    world.ingest(good(1), Event(CHESS, 1, b"\xff", event_id="bad"), good(2), text_for_points)
    tail = Tail(world)
    follower = tail.follower()
    assert tail.said(follower).refused == []
    world.split()
    said = tail.said(follower)
    assert said.refused == [("malformed_payload", 1001), ("malformed_payload", 1003)]
    rows = [row for message in said.messages for row in message.refused]
    assert [(row.event_id, row.game, row.field) for row in rows] == [
        ("bad", CHESS.name, "payload"), ("text", CHESS.name, "payload.points"),
    ]  # fmt: skip
    assert said.landed == {CHESS.name: 1004}
    assert not tail.said(follower).messages, "nothing is told twice"


def test_a_token_of_one_edge_goes_on_at_another(world: World) -> None:
    """Positions are all that an edge needs: nothing is left out, and rows that were told may come again."""
    world.ingest(good(1), broken())
    world.split()
    first = Tail(world)
    said = first.said(first.follower(since=0))
    assert said.refused == [("malformed_payload", 1001)]
    world.ingest(broken(), good(2))
    world.split()
    world.ingest(broken())
    second = Tail(world)
    follower = second.follower(said.token)
    again = second.said(follower)
    assert (again.refused, again.landed) == ([("malformed_payload", 2000)], {CHESS.name: 2002})
    world.split()
    assert second.said(second.follower(again.token)).refused == [("malformed_payload", 3000)]


def test_offsets_begin_where_a_token_is_lost(world: World) -> None:
    """Without a token the rows at and behind an offset come, and no earlier ones."""
    for _ in range(3):
        world.ingest(broken(), good(1))
        world.split()
    tail = Tail(world)
    assert tail.said(tail.follower(since=2000)).refused == [("malformed_payload", 2000), ("malformed_payload", 3000)]
    assert tail.said(tail.follower(since=2001)).refused == [("malformed_payload", 3000)]
    assert tail.said(tail.follower()).refused == []


def test_a_row_that_a_replay_lands_comes_again(world: World) -> None:
    """A follower that had a refusal learns when a replay has landed the row."""
    world.ingest(early(1), good(2))
    world.split()
    tail = Tail(world)
    follower = tail.follower(since=0)
    assert tail.said(follower).refused == [("unknown_schema", 1000)]
    world.register(message=SECOND)
    assert [each.done.landed for each in replayed(world)] == [1]
    assert tail.said(follower).replayed == [1000]
    assert tail.said(tail.follower(since=0)).refused == []


def test_a_refusal_that_another_owner_overruled_is_not_told(world: World) -> None:
    """L5: the table wins: a row that it holds was not refused, whatever quarantine still has."""
    world.ingest(good(1), good(2))
    world.quarantine([{"game_key": str(CHESS.key), "game": CHESS.name, "seq": 1, "pos": 0, "reason": "contract",
                       "partition": 0, "offset": 1000}])  # fmt: skip
    tail = Tail(world)
    follower = tail.follower(since=0)
    world.split()
    said = tail.said(follower)
    assert (said.refused, said.landed) == ([], {CHESS.name: 1002})


def test_a_caller_sees_its_own_games_alone(world: World) -> None:
    """Neither rows nor offsets of another game are told."""
    world.ingest(broken(), broken(GO), good(1, GO))
    world.split()
    world.split(GO)
    tail = Tail(world)
    said = tail.said(tail.follower(since=0))
    assert said.refused == [("malformed_payload", 1000)]
    assert said.landed == {CHESS.name: 1003}


def test_an_event_of_a_name_that_is_no_game_is_refused_once_bronze_has_it(world: World) -> None:
    """Ingest refuses such rows before bronze has them; there is no table that could pass them."""
    unknown = Game(game_key("Unknown"), "Unknown")
    tail = Tail(world)
    follower = tail.follower()
    world.ingest(good(1, unknown), good(2))
    assert tail.said(follower).refused == [("unknown_game", 1000)]


def test_a_game_that_is_behind_is_landed_through_what_its_table_has(world: World) -> None:
    """A quiet game goes on with bronze; a game that lacks rows stops before the first of them."""
    world.ingest(good(1), good(1, GO))
    world.split()
    world.ingest(good(2, GO))
    tail = Tail(world)
    both = tail.follower(caller=ALL)
    assert tail.said(both).landed == {CHESS.name: 2001}
    world.split(GO, 1)
    assert tail.said(both).landed == {GO.name: 1002}
    world.split(GO)
    assert tail.said(both).landed == {GO.name: 2001}


def test_a_commit_whose_file_could_not_be_read_once_is_not_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A game is not landed through rows that a failed read kept from its follower, whatever bronze gets next."""
    world.ingest(good(1))
    world.split()
    tail = Tail(world)
    follower = tail.follower()
    assert tail.said(follower).landed == {CHESS.name: 1001}
    world.ingest(good(2), broken())
    with monkeypatch.context() as patch:
        patch.setattr(landed, "read_file", failing)
        with pytest.raises(OSError, match="timeout"):
            tail.look()
    world.ingest()
    assert tail.said(follower).landed == {}
    world.split()
    said = tail.said(follower)
    assert (said.refused, said.landed) == ([("malformed_payload", 2001)], {CHESS.name: 3000})


def test_a_table_made_again_that_could_not_be_opened_once_is_opened_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed read of a table's new log leaves its follower no cursor of the table of before."""
    world.ingest(good(1))
    world.split()
    table = landed._Table(world.paths.table(CHESS.key), world.environment, CHESS.key)
    with monkeypatch.context() as patch:
        patch.setattr(landed, "open_table", failing)
        with pytest.raises(OSError, match="timeout"):
            table.look()
    assert table.is_new
    table.look()
    assert (table.is_new, table.cursor) == (False, 1)
    world.register(message=SECOND)
    world.ingest(early(2))
    world.split()
    with monkeypatch.context() as patch:
        patch.setattr(landed, "open_table", failing)
        with pytest.raises(OSError, match="timeout"):
            table.look()
    table.look()
    assert table.cursor == 2


def failing(*_: object) -> None:
    raise OSError("timeout")


def read_topic(world: World, topic_id: str, *gaps: tuple[int, int | None], onward: int = 0) -> None:
    """Let ingest go on with a topic of this id from an offset, in a new generation, without some offsets."""
    before = sources.open_generation(world.engine, "topic")
    made = Identity(0, topic_id, 1, "bronze", world.seq, f'{{"offsets": {{"0": {onward}}}}}')
    lost = [AcceptedGap(0, "topic", 0, first, last, "lost", "me", 1.0) for first, last in gaps]
    sources.replace_generation(world.engine, "topic", before, made, lost)


def test_offsets_name_the_topic_that_they_are_of(world: World) -> None:
    """A topic that was made again begins its offsets anew: a follower learns it with them, and which one is gone."""
    read_topic(world, "first")
    world.ingest(good(1))
    world.split()
    tail = Tail(world)
    follower = tail.follower()
    (before,) = tail.said(follower).messages[-1].landed
    read_topic(world, "second", (1001, None), onward=0)
    assert not tail.said(follower).messages
    world.offset_base = 1_990
    world.ingest(good(2))
    world.split()
    (after,) = tail.said(follower).messages[-1].landed
    assert (before.topic_id, [*before.former_topic_ids], before.through[0].offset) == ("first", [], 1001)
    assert (after.topic_id, [*after.former_topic_ids], after.through[0].offset) == ("second", ["first"], 11)


def test_offsets_that_ingest_skipped_are_told_no_later_than_those_behind_them(world: World) -> None:
    """Records that retention removed unread are landed nowhere; those that bronze has are told as before."""
    read_topic(world, "topic")
    world.ingest(good(1))
    world.split()
    tail = Tail(world)
    follower = tail.follower()
    assert tail.said(follower).landed == {CHESS.name: 1001}
    read_topic(world, "topic", (1001, 1999), onward=2000)
    world.ingest(good(2))
    world.split()
    message = tail.said(follower).messages[-1]
    assert [(each.topic_id, each.partition, each.first, each.last) for each in message.skipped] == [
        ("topic", 0, 1001, 1999)
    ]
    assert message.landed[0].through[0].offset == 2001
    read_topic(world, "topic", (2000, 2000), onward=2000)
    assert not tail.said(follower).messages
    assert len(tail.said(tail.follower()).messages[-1].skipped) == 1


def test_rows_of_a_landing_table_are_named_by_file_and_landed_by_commit(world: World) -> None:
    """Behind a landing table a refused row has its file, and games are landed through a version of the table."""
    world.reads_landing = True
    world.ingest(good(1), Event(CHESS, 1, b"\xff", event_id="bad"))
    world.split()
    tail = Tail(world)
    said = tail.said(tail.follower(since=1))
    (row,) = (row for message in said.messages for row in message.refused)
    assert (row.file, row.offset, row.event_id) == ("1.parquet", 1, "bad")
    assert said.landed == {CHESS.name: 2}  # commits from 2 on are not settled
    world.ingest(good(2))
    assert tail.said(tail.follower(said.token)).landed == {CHESS.name: 2}
    world.split()
    assert tail.said(tail.follower(said.token)).landed == {CHESS.name: 3}


def test_rows_of_an_attempt_that_ingest_gave_up_are_not_told(world: World) -> None:
    """A killed ingest leaves refused rows of a seq that bronze never gets, and takes them away before it goes on."""
    tail = Tail(world)
    follower = tail.follower()
    world.ingest(good(1))
    world.quarantine([{"game_key": "malformed_wrapper", "game": CHESS.name, "seq": 2, "pos": 0, "partition": 0,
                       "offset": 2000, "reason": "unknown_game"}])  # fmt: skip
    assert tail.said(follower).refused == []
    forget_refused(world.paths.quarantine, 2, 2)
    world.seq = 2
    world.ingest(broken(), good(3))
    world.split()
    said = tail.said(follower)
    assert (said.refused, said.replayed, said.landed) == ([("malformed_payload", 3000)], [], {CHESS.name: 3002})


def test_a_token_whose_log_is_gone_is_out_of_range(world: World) -> None:
    """A follower never goes on behind a gap that it cannot see."""
    world.ingest(broken())
    world.split()
    tail = Tail(world)
    said = tail.said(tail.follower(since=0))
    world.ingest(broken())
    world.split()
    view, follower = tail.look(), tail.follower(said.token)
    commit_file(world.paths.quarantine, view.version).delete()
    with pytest.raises(EdgeStatus, match="begin at offsets") as raised:
        list(follower.step(view))
    assert raised.value.code_name == "OUT_OF_RANGE"
    for position in (FollowPosition(b"othertab", 0), FollowPosition(tail.quarantine.mark, 1_000)):
        with pytest.raises(EdgeStatus, match="begin at offsets"):
            tail.follower(position.token)


def test_many_refused_rows_come_in_bounded_messages(world: World) -> None:
    """A flood of refusals is cut, and its last message alone has the token."""
    world.ingest(*(broken() for _ in range(1_201)))
    world.split()
    tail = Tail(world)
    said = tail.said(tail.follower(since=0))
    assert [len(each.refused) for each in said.messages] == [500, 500, 201, 0]
    assert [bool(each.token) for each in said.messages] == [False, False, False, True]
    assert len(set(said.refused)) == 1_201


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_passes_replays_and_edges_adds_up(tmp_path: Path, seed: int) -> None:
    """Below a sent offset each event is in its table or was refused, and at rest refusals are what quarantine has."""
    draw, world = Random(seed), make_world(tmp_path)
    tail, token = Tail(world), b""
    follower = tail.follower(since=0)
    refused, through = set[int](), 0
    for step in range(40):
        match draw.randrange(6):
            case 0 | 1:
                events = [draw.choice((good, early))(step) for _ in range(draw.randrange(1, 4))]
                world.ingest(*events, *([broken()] if draw.random() < 0.5 else []))
            case 2:
                world.split(through=draw.randint(0, world.seq))
            case 3 if step > 20:
                world.register(message=SECOND)
                world.split(through=draw.randint(0, world.seq))
                replayed(world)
            case 4:
                tail = Tail(world)
                follower = tail.follower(token) if token else tail.follower(since=0)
            case _:
                said = tail.said(follower)
                refused |= {offset for _, offset in said.refused}
                refused -= {*said.replayed}
                token, through = said.token or token, max(through, *said.landed.values(), 0)
                require_told(world, refused, through)
    world.split()
    said = tail.said(follower)
    refused = (refused | {offset for _, offset in said.refused}) - {*said.replayed}
    require_told(world, refused, max(through, *said.landed.values(), 0))
    landed = set(world.rows())
    assert refused == {seq * 1000 + pos for seq, pos in world.refused() if (seq, pos) not in landed}
    world.engine.dispose()


def require_told(world: World, refused: set[int], through: int) -> None:
    """Require that each event below an offset is in its table, or was refused."""
    if not through:
        return
    rows = open_table(world.paths.bronze).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    landed = {seq * 1000 + pos for seq, pos in world.rows()}
    assert {offset for offset in rows if offset < through} <= landed | refused


def test_a_token_waits_for_rows_that_are_not_decided(world: World) -> None:
    """A driver killed between quarantine and its commit leaves a row that another edge sends once it is decided."""
    world.ingest(broken(), good(2))
    tail = Tail(world)
    follower = tail.follower()
    world.quarantine([{"game_key": str(CHESS.key), "game": CHESS.name, "seq": 1, "pos": 0, "partition": 0,
                       "offset": 1000, "reason": "malformed_payload"}])  # fmt: skip
    said = tail.said(follower)
    assert said.refused == []
    other = Tail(world)
    follower = other.follower(said.token)
    assert other.said(follower).refused == []
    world.split()
    assert other.said(follower).refused == [("malformed_payload", 1000)]
