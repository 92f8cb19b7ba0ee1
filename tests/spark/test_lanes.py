"""Lanes in real queries: paused, with a query of its own, catching up beside the pass."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming import StreamingQuery

from pipeline.base.names import game_key
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.streams.passes import Passes
from pipeline.demo.simulator import game_names
from pipeline.store.stream_control import submit_control

GAMES = [game_key(name) for name in game_names(4, 7, hostile=True)]
_READY_SECONDS = 60.0


def until(what: Callable[[], bool], sentence: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not what():
        assert time.monotonic() < deadline, sentence
        time.sleep(0.1)


def _cursor(world: Any, key: str) -> int:
    version = DeltaTable(world.paths.table(key)).transaction_version(f"turnout/local/{key}/1")
    return int(version or 0)


@pytest.mark.proves("G61")
def test_a_paused_stream_gets_nothing_and_lacks_nothing_afterwards(world: Any) -> None:
    """Lane PAUSED: the cursor stands still while others go on; resumed, the stream is merely behind (law L7)."""
    world.simulate(400, games=4)
    world.ingest()
    group = world.group("a")
    world.split(group)
    submit_control(world.engine, GAMES[0], "somebody", desired="paused")
    before = _cursor(world, GAMES[0])
    world.simulate(400, games=4)
    world.ingest()
    world.split(group)
    assert group.streams[GAMES[0]].lane == "PAUSED"
    assert _cursor(world, GAMES[0]) == before < _cursor(world, GAMES[1])
    submit_control(world.engine, GAMES[0], "somebody", desired="running")
    world.split(group)
    assert world.verify().complete


@pytest.mark.long
@pytest.mark.proves("G62")
def test_a_game_changes_between_the_pass_and_its_own_query_and_lacks_nothing(world: Any) -> None:
    """Law L11: the cursor is the table's, so which query reads a game is only a setting, changed while it runs."""
    world.simulate(400, games=4)
    world.ingest()
    group = world.group("a")
    shared: StreamingQuery = group.start(once=False)
    try:
        for wanted in (True, False):
            submit_control(world.engine, GAMES[0], "somebody", own_query=wanted)
            until(lambda wanted=wanted: _synced(group, GAMES[0]) is wanted, "the game's own query does not change")  # type: ignore[misc]
            world.simulate(400, games=4)
            world.ingest()
            head = group.bronze_head()
            until(lambda head=head: min(_cursor(world, key) for key in GAMES) == head, "a game does not get its rows")  # type: ignore[misc]
        own = {each.batch_id for each in world.passes if [game.game_key for game in each.games] == [GAMES[0]]}
        assert own - {-1}, "no pass was the game's alone"
    finally:
        group.stop()
        shared.stop()
    assert world.verify().complete


def _synced(group: Any, key: str) -> bool:
    group.sync_queries()
    own = group._own.get(key)
    return own is not None and own.query is not None and own.query.isActive


@pytest.mark.proves("G64")
def test_a_chunk_that_was_cut_short_is_repeated_with_its_own_schemas(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L5: a schema that is registered between two attempts does not change what the first one decided."""
    world.simulate(400, games=4, versions=1)
    world.ingest()
    versions: list[int] = []
    apply, write = Passes.apply, Passes._write_quarantine

    def noted(self: Passes, frame: Any, streams: Any, schemas: Any, *more: Any, **options: Any) -> Any:
        versions.append(schemas.version)
        return apply(self, frame, streams, schemas, *more, **options)

    def dying(*_arguments: Any, **_options: Any) -> None:
        monkeypatch.setattr(Passes, "_write_quarantine", write)
        raise OSError(5, "the driver dies here")

    monkeypatch.setattr(Passes, "apply", noted)
    monkeypatch.setattr(Passes, "_write_quarantine", dying)
    group = world.group("a")
    group.advance_frontier(group.bronze_head())
    with pytest.raises(OSError, match="dies here"):
        group.catch_up()
    world.simulate(10, games=4, versions=3)
    assert LocalRegistry(world.engine).latest_version() > versions[0]
    again = world.group("a")
    again.advance_frontier(again.bronze_head())
    assert again.catch_up()
    assert versions == [versions[0]] * 2
    world.ingest()
    world.split(again)
    assert world.verify().complete
    assert versions[-1] == LocalRegistry(world.engine).latest_version()
