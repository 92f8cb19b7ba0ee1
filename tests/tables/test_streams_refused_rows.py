"""Tasks write the refused rows they find; once all tasks have ended, the driver decides which enter quarantine."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from listeners.sample import Lane
from pipeline.data.streams import passes as passing
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.passes import Outcome, Passes
from pipeline.data.streams.stream import Stream
from pipeline.data.streams.writing import split as splitting
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.quarantine import QUARANTINE, present_between
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.store.games import register_group
from tests.tables.even_odd_rows import BronzeRows
from tests.tables.repair_world import CHESS, GO, World, broken, good, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    made.register(GO)
    return made


@pytest.fixture
def passes(world: World) -> Iterator[Passes]:
    with ThreadPoolExecutor(2) as pool:
        quarantine = CursorTable.create(world.paths.quarantine, QUARANTINE, "test")
        yield Passes(world.paths.tables, quarantine, pool, ActiveGames(world.paths.root / "checkpoint", "shared"))


def apply(rows: BronzeRows, passes: Passes, streams: Mapping[str, Stream], *, repeated: bool = False) -> Outcome:
    return passes.apply(rows, streams, rows.world.registry.snapshot(), Lane.RUN, repeated=repeated)


def both(world: World) -> dict[str, Stream]:
    return {str(game.key): world.stream(game) for game in (CHESS, GO)}


def quarantined(world: World) -> list[tuple[str, int, int]]:
    """The rows of quarantine, and a look whether its folder has files that are not part of it."""
    table = DeltaTable(world.paths.quarantine)
    rows = table.to_pyarrow_table(columns=["game_key", "seq", "pos"]).to_pylist()
    assert len(list(Path(world.paths.quarantine).glob("*.parquet"))) == len(table.file_uris())
    return sorted((row["game_key"], row["seq"], row["pos"]) for row in rows)


@pytest.mark.proves("G47")
def test_refused_rows_do_not_pass_through_the_driver(world: World, passes: Passes) -> None:
    """Law L6: however many rows a pass refuses, a task's report holds none of them."""
    world.ingest(broken(), good(1))
    world.ingest(broken(GO), good(2))
    rows = BronzeRows(world)
    apply(rows, passes, both(world))
    empty = len(splitting._ipc(QUARANTINE.empty_table()))
    assert [len(each["rejects"]) for each in rows.reports] == [empty, empty]
    assert quarantined(world) == [(CHESS.key, 1, 0), (GO.key, 2, 0)]


@pytest.mark.proves("G47")
def test_refused_rows_of_a_game_that_is_left_behind_wait_with_it(world: World, passes: Passes) -> None:
    """Law L5: a task's file may have rows of games that do not connect; only the others' become part of quarantine."""
    world.ingest(good(1), good(1, GO))
    world.ingest(broken(), broken(GO))
    world.split(GO, through=1)
    streams = both(world)  # chess is still at the beginning
    apply(BronzeRows(world, low=1), passes, streams)
    assert (streams[str(CHESS.key)].behind, streams[str(GO.key)].cursor) == (True, 2)
    assert quarantined(world) == [(GO.key, 2, 1)]


@pytest.mark.parametrize("attempts", [2, 3])
@pytest.mark.proves("G47")
def test_a_repeated_batch_refuses_its_rows_once(world: World, passes: Passes, attempts: int) -> None:
    """Law L5: rows that an attempt put into quarantine before it was killed are not put there again."""
    world.ingest(broken(), good(1))
    world.ingest(broken(GO), good(2))
    for attempt in range(attempts):
        for stream in (streams := both(world)).values():
            stream.cursor = 0
        apply(BronzeRows(world), passes, streams, repeated=attempt > 0)
    assert quarantined(world) == [(CHESS.key, 1, 0), (GO.key, 2, 0)]


@pytest.mark.proves("G47")
def test_a_full_disk_leaves_only_the_games_with_refused_rows_behind(
    world: World, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L6: what cannot be put aside is tried again with its game, and no other game waits for it."""

    def full(table: Any, folder: Location, *more: Any, **options: Any) -> DataFile:
        if folder == world.paths.quarantine:
            raise OSError(28, "No space left on device")
        return write_file(table, folder, *more, **options)

    monkeypatch.setattr(splitting, "write_file", full)
    world.ingest(broken(), good(1), good(2, GO))
    streams = both(world)
    outcome = apply(BronzeRows(world), passes, streams)
    assert {key: failure.kind for key, failure in outcome.failures.items()} == {str(CHESS.key): "transient"}
    assert (streams[str(CHESS.key)].behind, streams[str(GO.key)].cursor) == (True, 1)
    assert quarantined(world) == []


@pytest.mark.proves("G47")
def test_quarantine_is_looked_through_once_for_all_tasks(
    world: World, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L6: what a repetition costs a driver does not grow with the number of tasks that refused rows."""
    world.ingest(broken(), good(1))
    world.ingest(broken(GO), good(2))
    looked: list[tuple[int, int]] = []

    def counted(quarantine: Path, low: int, high: int) -> Any:
        looked.append((low, high))
        return present_between(located(quarantine), low, high)

    monkeypatch.setattr(passing, "present_between", counted)
    apply(BronzeRows(world), passes, both(world), repeated=True)
    assert looked == [(1, 2)]
    assert quarantined(world) == [(CHESS.key, 1, 0), (GO.key, 2, 0)]
