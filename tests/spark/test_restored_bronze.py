"""Bronze put back from an older copy: nothing goes on in silence, and after the way out each row is there once."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.base.errors import Refused
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest import adopt as adoption
from pipeline.data.ingest.adopt import Adopted
from pipeline.data.repair.rebuild import rebuild
from pipeline.store.games import Game, known_games
from pipeline.store.stream_control import submit_retry
from tests.spark.conftest import World

GAMES = 6
OLDER = r"Bronze was restored from an older copy"


def flow(world: World, group: Any = None, events: int = 100) -> None:
    world.simulate(events, games=GAMES)
    world.ingest()
    if group is not None:
        world.split(group)


def keep(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name(f"{folder.name}-older"))


def put_back(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name(f"{folder.name}-older"), folder)


def adopt(world: World) -> Adopted:
    return adoption.adopt(world.settings, world.paths, world.engine, accept_loss=False)


def rebuild_all(world: World, keys: Any) -> None:
    schemas, known = LocalRegistry(world.engine).snapshot, known_games(world.engine)
    for key in keys:
        rebuild(world.paths, world.settings.environment, world.engine, schemas, Game(key, known[key]))


def sources_in_bronze(world: World) -> Counter[tuple[str, int]]:
    rows = DeltaTable(world.paths.bronze).to_pyarrow_table(columns=["topic", "offset"])
    return Counter(zip(rows["topic"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def require_complete(world: World, rows: int) -> None:
    balance = world.verify()
    assert balance.complete, balance.problems
    assert balance.totals.bronze_rows == rows
    assert set(sources_in_bronze(world).values()) == {1}
    refused = DeltaTable(world.paths.quarantine).to_pyarrow_table(columns=["game_key", "seq", "pos"])
    assert refused.num_rows == balance.totals.quarantined


def recover(world: World) -> None:
    """The steps of docs/repair.md: adopt, ingest, rebuild the named games, start the groups."""
    adopted = adopt(world)
    assert adopt(world).rebuild == adopted.rebuild
    world.ingest()
    group = world.group("a")
    world.split(group)
    assert {key for key, stream in group.streams.items() if stream.error} == set(adopted.rebuild)
    rebuild_all(world, adopted.rebuild)
    for key in adopted.rebuild:
        submit_retry(world.engine, key, "test")
    group.stop()
    again = world.group("a")
    flow(world, again)
    again.stop()


@pytest.mark.long
@pytest.mark.proves("G26")
def test_an_older_bronze_is_refused_and_comes_back_complete(world: World) -> None:
    """Law L1: neither ingest nor a group goes on with it in silence; adopted and rebuilt, each row is there once."""
    group = world.group("a")
    for _ in range(2):
        flow(world, group)
    keep(Path(world.paths.bronze))
    flow(world, group)
    flow(world)
    group.stop()
    put_back(Path(world.paths.bronze))
    flow_refused(world)
    stopped = world.group("a")
    world.split(stopped)
    ahead = {key for key, stream in stopped.streams.items() if stream.cursor > 2}
    assert ahead
    assert ahead == {key for key, stream in stopped.streams.items() if stream.error and OLDER[7:] in stream.error}
    stopped.stop()
    recover(world)
    require_complete(world, 600)


def flow_refused(world: World) -> None:
    world.simulate(100, games=GAMES)
    for _ in range(2):
        with pytest.raises(Refused, match=rf"{OLDER}.*turnout ingest adopt.*games to rebuild"):
            world.ingest()


@pytest.mark.long
@pytest.mark.parametrize("also", ["store and checkpoint", "store", "checkpoint"])
@pytest.mark.proves("G23")
def test_each_witness_of_the_lost_rows_is_enough(world: World, also: str) -> None:
    """Law L1: also with the store or the checkpoint restored with it, as far as something newer is left to tell."""
    group = world.group("a")
    flow(world, group)
    keep(Path(world.paths.bronze))
    checkpoint = world.paths.checkpoints / "ingest"
    keep(checkpoint)
    flow(world, group)
    group.stop()
    put_back(Path(world.paths.bronze))
    if "checkpoint" in also:
        put_back(checkpoint)
    if "store" in also:
        with world.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM bronze_commits WHERE seq > 1")
    flow_refused(world)
    recover(world)
    require_complete(world, 400)


@pytest.mark.proves("G23")
def test_the_checkpoint_alone_tells_of_lost_batches(world: World) -> None:
    """Law L1: nothing was split and the store forgot, but the checkpoint has batches that bronze lacks."""
    flow(world)
    keep(Path(world.paths.bronze))
    flow(world)
    put_back(Path(world.paths.bronze))
    (world.paths.checkpoints / "ingest" / "last_seqs.json").unlink()
    with world.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM bronze_commits WHERE seq > 1")
    with pytest.raises(Refused, match=rf"{OLDER}: the checkpoint .* lacks those from 1 on"):
        world.ingest()
    adopt(world)
    world.ingest()
    group = world.group("a")
    world.split(group)
    group.stop()
    require_complete(world, 200)


@pytest.mark.long
@pytest.mark.proves("G26")
def test_bronze_from_before_an_adoption_is_read_again_from_there(world: World) -> None:
    """Law L1: what was read by the generation before the last is read again, too, when bronze has lost it."""
    group = world.group("a")
    flow(world, group)
    keep(Path(world.paths.bronze))
    flow(world, group)
    shutil.rmtree(world.paths.checkpoints / "ingest" / "1")
    adopt(world)
    flow(world, group)
    group.stop()
    put_back(Path(world.paths.bronze))
    flow_refused(world)
    recover(world)
    require_complete(world, 500)


@pytest.mark.long
@pytest.mark.proves("G26")
def test_an_adoption_of_an_older_bronze_can_be_killed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L1: killed between any two steps and run again, adoption records the loss once and nothing is missing."""
    group = world.group("a")
    flow(world, group)
    keep(Path(world.paths.bronze))
    flow(world, group)
    group.stop()
    put_back(Path(world.paths.bronze))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("source_checks.forget_refused", "reset_last_seqs", "forget_commits", "_replace"):
        with monkeypatch.context() as patch:
            patch.setattr(f"pipeline.data.ingest.adopt.{step}", die)
            with pytest.raises(KeyboardInterrupt):
                adopt(world)
        with pytest.raises(Refused, match="has closed ingest generation 1"):
            world.ingest()
    recover(world)
    require_complete(world, 300)
