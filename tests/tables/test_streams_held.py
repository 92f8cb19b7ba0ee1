"""Rows of foreign registries: decoded with the schema that their writer's id means, and held until that is known."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from sqlalchemy import Engine

from listeners.sample import Lane
from pipeline.base.errors import Transient
from pipeline.data.contracts.schemas import SchemaSet, Writer
from pipeline.data.pins import SetPin
from pipeline.data.repair.asking import ask_drivers
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import DemuxContext
from pipeline.data.streams.needs import MAX_NEEDS, Need, is_open, lowest
from pipeline.data.streams.passes import Outcome, Passes
from pipeline.data.streams.stream import Stream
from pipeline.settings.tree import Demux, Settings
from pipeline.store.database.engine import writing
from pipeline.store.schema_needs import OpenNeed, end_needs, read_needs
from pipeline.store.stream_control import decided
from pipeline.store.writers import lock
from tests.game_streams import roster_of
from tests.tables.foreign_world import (
    CONFLUENT,
    EIGHT,
    PROFILES,
    SEVEN,
    BronzeRows,
    ForeignWorld,
    catch_up_by,
    foreign,
    passes,
    points,
    read_all,
    world,
)
from tests.tables.repair_world import BROKEN, CHESS, FIRST, GO, Event, World, good

__all__ = ["passes", "world"]  # fixtures


INDEXED = b"\0\0\0\0\11"


def apply(world: ForeignWorld, passes: Passes, streams: dict[str, Stream], **rows: int) -> Outcome:
    return passes.apply(BronzeRows(world, **rows), streams, world.schemas(), Lane.CATCHUP, repeated=True)


def both(world: World) -> dict[str, Stream]:
    return {str(game.key): world.stream(game) for game in (CHESS, GO)}


@pytest.mark.proves("G190")
def test_rows_land_with_the_schema_their_writer_means(world: ForeignWorld, passes: Passes) -> None:
    """Law L13: beside turnout's own rows, and with turnout's id of the schema."""
    world.writers["main", SEVEN] = Writer(1)
    world.ingest(good(1), foreign(2), foreign(3, game=GO))
    outcome = apply(world, passes, both(world))
    assert points(world) == [1, 2]
    assert points(world, GO) == [3]
    assert [row["_schema_id"] for row in world.contents()] == [1, 1]
    assert outcome.waits == {}


@pytest.mark.proves("G190")
def test_a_framed_message_may_have_no_bytes(world: ForeignWorld, passes: Passes) -> None:
    """Law L13: the id says that it is a message, whose fields have their defaults; in a wrapper it is no payload."""
    world.writers |= {("main", SEVEN): Writer(1), ("main", INDEXED): Writer(indexed=True)}
    world.writers["main", INDEXED + b"\0"] = Writer(1)
    world.ingest(foreign(1), foreign(0, payload=b""), foreign(0, INDEXED, payload=b"\0"), Event(CHESS, 1, b""))
    apply(world, passes, both(world))
    assert points(world) == [1, 0, 0]
    assert world.refused() == [(1, 3)]
    found = world.values()
    assert found.values is not None
    assert (found.ok, found.values.rows, dict(found.values.undecodable)) == (True, 3, {"empty_payload": 1})


@pytest.mark.proves("G190")
def test_one_id_of_a_registry_may_hold_many_messages(world: ForeignWorld, passes: Passes) -> None:
    """Law L13: the index path before the payload is part of the writer."""
    world.writers |= {("main", INDEXED): Writer(indexed=True), ("main", INDEXED + b"\0"): Writer(1)}
    world.ingest(foreign(1, INDEXED, payload=b"\0" + FIRST.payload(points=4)))
    world.ingest(foreign(1, INDEXED, payload=b"\2\2" + FIRST.payload(points=5)))
    outcome = apply(world, passes, both(world))
    assert [need.writer for need in outcome.waits[CHESS.key].needs] == [INDEXED + b"\2\2"]
    apply(world, passes, both(world), high=1)
    assert points(world) == [4]


@pytest.mark.proves("G191")
def test_a_game_waits_for_a_schema_and_no_other_game_does(world: ForeignWorld, passes: Passes) -> None:
    """Law L14: of its rows none lands and none is refused, and nothing has failed."""
    world.writers["main", SEVEN] = Writer(1)
    world.ingest(Event(CHESS, 1, BROKEN), foreign(1), foreign(2, EIGHT), foreign(3, game=GO))
    streams = both(world)
    outcome = apply(world, passes, streams)
    assert (outcome.failures, world.refused(), points(world, GO)) == ({}, [], [3])
    assert outcome.waits[CHESS.key].needs == (Need(1, 2, CONFLUENT, "main", EIGHT),)
    chess = streams[CHESS.key]
    assert (chess.behind, chess.cursor, chess.is_held(world.schemas())) == (True, 0, True)
    assert list(Path(world.paths.table(CHESS.key)).glob("*.parquet")) == []
    world.writers["main", EIGHT] = Writer(refused="registry main has no schema 8")
    assert not chess.is_held(world.schemas())
    apply(world, passes, streams)
    assert (points(world), world.refused(), chess.waits) == ([1], [(1, 0), (1, 2)], None)


@pytest.mark.proves("G191")
def test_a_profile_that_is_newer_than_the_set_is_waited_for(world: ForeignWorld, passes: Passes) -> None:
    """Law L14: how rows are packed is never guessed."""
    world.writers["main", SEVEN] = Writer(1)
    world.profiles = {}
    world.ingest(foreign(1), good(2))
    streams = both(world)
    outcome = apply(world, passes, streams)
    assert outcome.waits[CHESS.key].needs == (Need(1, 0, CONFLUENT),)
    world.profiles = PROFILES
    apply(world, passes, streams)
    assert points(world) == [1, 2]


@pytest.mark.proves("G191")
def test_a_game_that_waits_leaves_no_file_of_an_earlier_slice(world: ForeignWorld, passes: Passes) -> None:
    """Law L14: slices of one task write their files before the need is met."""
    world.writers["main", SEVEN] = Writer(1)
    world.ingest(foreign(1), good(2), foreign(3, EIGHT))
    outcome = apply(world, passes, both(world), slice_bytes=1)
    assert list(outcome.waits) == [CHESS.key]
    assert list(Path(world.paths.table(CHESS.key)).glob("*.parquet")) == []


@pytest.mark.proves("G191")
def test_a_schema_of_another_game_is_waited_for(world: ForeignWorld) -> None:
    """Law L14: a writer is known before its schema is registered for each game that uses it."""
    schemas = SchemaSet(3, {CHESS.key: (1,)}, {}, writers={("main", SEVEN): Writer(1)})
    need = Need(1, 0, CONFLUENT, "main", SEVEN)
    assert (is_open(need, CHESS.key, schemas), is_open(need, GO.key, schemas)) == (False, True)


def test_needs_are_bounded_and_the_first_one_is_kept() -> None:
    """Law L14: the rows before the first need may land, so that one counts."""
    needs = [Need(seq, 0, CONFLUENT, "main", b"\0%4d" % (seq % 500)) for seq in range(1000, 0, -1)]
    kept = lowest(needs)
    assert (len(kept), kept[0].seq) == (MAX_NEEDS, 1)
    assert [Need.of_json(need.as_json()) for need in kept] == list(kept)


def catch_up_of(world: ForeignWorld, passes: Passes) -> CatchUp:
    """Return catch-up as a driver has it that starts now."""
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    schemas: Any = SimpleNamespace(latest=lambda: SetPin(1), snapshot=lambda _version: world.schemas())
    roster = roster_of(Settings(), world.paths, world.engine)
    world.wanted = []
    driver = DemuxContext(
        spark, Settings(demux=Demux(catchup_seqs=100)), roster, schemas, lambda _: None, world.wanted.append
    )
    return catch_up_by(driver, world, passes)


@pytest.mark.proves("G191")
def test_rows_before_the_first_need_land_and_the_rest_is_read_once_it_is_answered(
    world: ForeignWorld, passes: Passes
) -> None:
    """Laws L14 and L16: a game that waits is not read again for nothing, is not charged, and nobody waits for it."""
    world.writers["main", SEVEN] = Writer(1)
    world.ingest(foreign(1), good(1, GO))
    world.ingest(Event(CHESS, 1, BROKEN), foreign(2))
    world.ingest(foreign(3, EIGHT), foreign(4))
    catch_up = catch_up_of(world, passes)
    read_all(catch_up)
    assert (points(world), points(world, GO), world.refused()) == ([1, 2], [1], [(2, 0)])
    reads, wanted = len(world.reads), len(world.wanted)
    world.ingest(good(2, GO))
    read_all(catch_up)
    read_all(catch_up)
    assert points(world, GO) == [1, 2]
    assert [games for _, _, games in world.reads[reads:]] == [frozenset({GO.key})]
    assert [stream.waits.first for each in world.wanted[wanted:] for stream in each if stream.waits] != []
    assert decided(world.engine) == {}
    world.writers["main", EIGHT] = Writer(1)
    read_all(catch_up)
    assert points(world) == [1, 2, 3, 4]
    assert not (world.paths.root / "checkpoint" / "chunk.json").exists()


@pytest.mark.proves("G191")
@pytest.mark.parametrize("read_from", [0, 1, 2])
def test_rows_before_a_need_that_a_pass_has_met_land(world: ForeignWorld, passes: Passes, read_from: int) -> None:
    """Law L14: a pass decides no row of a game with a need, so catch-up lands those before it, read there or not."""
    world.writers["main", SEVEN] = Writer(1)
    for number, writer in enumerate((SEVEN, SEVEN, EIGHT), 1):
        world.ingest(foreign(number, writer))
    catch_up = catch_up_of(world, passes)
    roster = catch_up._driver.roster
    outcome = apply(world, passes, roster.for_pass(0), low=read_from)
    roster.end_pass()
    assert (list(outcome.waits), world.paths.table(CHESS.key).is_folder()) == ([CHESS.key], False)
    read_all(catch_up)
    assert points(world) == [1, 2]
    assert roster.streams[CHESS.key].is_held(world.schemas())


@pytest.mark.proves("G191")
def test_a_gap_before_a_need_is_told_once_it_is_answered(world: ForeignWorld, passes: Passes) -> None:
    """Laws L4 and L14: nothing lands over the gap, and the game is not read again and again meanwhile."""
    world.writers["main", SEVEN] = Writer(1)
    for number, writer in enumerate((SEVEN, SEVEN, EIGHT), 1):
        world.ingest(foreign(number, writer))
    DeltaTable(world.paths.bronze).delete("seq = 2")
    catch_up = catch_up_of(world, passes)
    read_all(catch_up)
    assert (points(world), decided(world.engine)) == ([1], {})
    world.writers["main", EIGHT] = Writer(1)
    read_all(catch_up)
    assert (points(world), decided(world.engine)[CHESS.key].failure_class) == ([1], "poison")


@pytest.mark.proves("G191")
def test_a_chunk_that_waited_is_judged_by_the_newer_set(world: ForeignWorld, passes: Passes) -> None:
    """Law L5: with the older one nothing of it was written, so no pin holds it back."""
    world.ingest(foreign(1, EIGHT), good(1, GO))
    catch_up = catch_up_of(world, passes)
    read_all(catch_up)
    (waiting,) = [stream for stream in catch_up._driver.roster.streams.values() if stream.waits]
    assert catch_up._pin.find(waiting.game_key, 0) is None
    assert (waiting.lane, waiting.error) == (Lane.CATCHUP, None)


@pytest.mark.proves("G191")
def test_a_game_is_read_again_once_any_of_its_needs_is_an_id_of_many_messages(
    world: ForeignWorld, passes: Passes
) -> None:
    """Its rows say which message it is, also where another need is before it: else both would wait for each other."""
    world.ingest(foreign(1, EIGHT), foreign(2, INDEXED, payload=b"\x02\x02" + FIRST.payload(points=2)))
    streams = both(world)
    apply(world, passes, streams)
    held = streams[str(CHESS.key)]
    assert held.is_held(world.schemas())
    world.writers["main", INDEXED] = Writer(indexed=True)
    assert not held.is_held(world.schemas())
    apply(world, passes, streams)
    assert held.waits is not None
    assert [each.writer for each in held.waits.needs] == [EIGHT, INDEXED + b"\x02\x02"]
    assert held.is_held(world.schemas())


@pytest.mark.proves("G192")
def test_a_replay_lands_rows_whose_schema_was_found_later(world: ForeignWorld, passes: Passes) -> None:
    """Law L15: an answer is never changed; a later one decides what was refused by it."""
    world.writers["main", EIGHT] = Writer(refused="registry main has no schema 8")
    world.ingest(good(1), foreign(2, EIGHT))
    apply(world, passes, both(world))
    assert (points(world), world.refused()) == ([1], [(1, 1)])
    world.writers["main", EIGHT] = Writer(1)
    (done,) = replay_all(world.paths, world.environment, world.schemas, world.known(), Selection(CHESS), dry_run=False)
    assert (done.error, done.done.landed, points(world), world.refused()) == (None, 1, [1, 2], [])


@pytest.mark.proves("G192")
def test_a_replay_asks_for_refused_writers_first(world: ForeignWorld, passes: Passes) -> None:
    """Law L15: a schema that came late reaches a replay, which asks for it; no question is about known writers."""
    world.writers |= {("main", SEVEN): Writer(1), ("main", EIGHT): Writer(refused="registry main has no schema 8")}
    world.ingest(good(1), foreign(2, EIGHT), foreign(3), foreign(4, SEVEN, payload=b"\xff"))
    apply(world, passes, both(world))
    asked: list[OpenNeed] = []

    def answer(needs: Sequence[OpenNeed]) -> None:
        asked.extend(needs)
        world.writers["main", EIGHT] = Writer(1)

    (done,) = replay_all(
        world.paths, world.environment, world.schemas, world.known(), Selection(CHESS), dry_run=False, ask=answer
    )
    assert [(each.registry, each.writer, each.game_key, each.again) for each in asked] == [
        ("main", EIGHT, CHESS.key, True)
    ]
    assert (done.error, done.done.landed, points(world)) == (None, 1, [1, 2, 3])


def test_a_replay_waits_for_an_answer_only_so_long(world: ForeignWorld) -> None:
    """Without a driver nobody answers: a replay goes on with what is known, and the need stays for the next driver."""
    need = OpenNeed("main", EIGHT, CHESS.key, CHESS.name, 1.0, 1, 0, again=True)
    ask_drivers(world.engine, [need], seconds=0.2)
    with world.engine.connect() as connection:
        (kept,) = read_needs(connection)
    assert kept == replace(need, wanted_at=kept.wanted_at)
    Timer(0.2, forget, [world.engine]).start()
    ask_drivers(world.engine, [need], seconds=600)


def forget(engine: Engine) -> None:
    with writing(engine) as connection:
        lock(connection)
        end_needs(connection, "main", [EIGHT])


@pytest.mark.proves("G192")
def test_a_rebuild_begins_again_when_a_refused_writer_gets_a_schema(world: ForeignWorld, passes: Passes) -> None:
    """Laws L12 and L15: else the row that landed meanwhile would leave the table, for a refusal that counts no more."""
    world.writers["main", EIGHT] = Writer(refused="registry main has no schema 8")
    world.ingest(good(1), foreign(2, EIGHT))
    apply(world, passes, both(world))
    sets = [world.schemas()]
    world.writers = {("main", EIGHT): Writer(1)}
    world.ingest(foreign(3, EIGHT))
    apply(world, passes, both(world))
    assert points(world) == [1, 3]
    rebuild(world.paths, world.environment, world.engine, lambda: sets.pop() if sets else world.schemas(), CHESS)
    assert (points(world), world.refused()) == ([1, 2, 3], [])


@pytest.mark.proves("G192")
def test_repairs_stop_at_a_schema_that_is_not_known_yet(world: ForeignWorld, passes: Passes) -> None:
    """Law L14: neither a rebuild nor a replay refuses such a row, or writes a table without it."""
    world.writers["main", SEVEN] = Writer(1)
    world.ingest(good(1), foreign(2, SEVEN), Event(CHESS, 1, BROKEN))
    apply(world, passes, both(world))
    del world.writers["main", SEVEN]
    world.streams.clear()
    files = sorted(Path(world.paths.table(CHESS.key)).glob("*.parquet"))
    with pytest.raises(Transient, match="from seq 1 on wait for schema 7 of registry main"):
        rebuild(world.paths, world.environment, world.engine, world.schemas, CHESS)
    assert sorted(Path(world.paths.table(CHESS.key)).glob("*.parquet")) == files
    assert points(world) == [1, 2]


@pytest.mark.proves("G161")
def test_values_of_foreign_rows_are_compared(world: ForeignWorld, passes: Passes) -> None:
    """Law L5: the value check opens them by code of its own; rows that wait are above the cursor, and nothing lacks."""
    world.writers |= {("main", SEVEN): Writer(1), ("main", INDEXED): Writer(indexed=True)}
    world.writers |= {("main", INDEXED + b"\0"): Writer(1), ("main", EIGHT): Writer(refused="there is none")}
    world.ingest(good(1), foreign(2), foreign(3, INDEXED, payload=b"\0" + FIRST.payload(points=4)), foreign(5, EIGHT))
    apply(world, passes, both(world))
    world.ingest(foreign(6, b"\0\0\0\0\12"))
    found = world.values()
    assert found.values is not None
    assert (found.ok, found.values.rows, found.values.mismatches) == (True, 3, 0)
    assert dict(found.values.undecodable) == {"unknown_schema": 1}
    world.writers["main", SEVEN] = Writer(refused="a lie")
    assert world.values().values.mismatches == 1  # type: ignore[union-attr]
