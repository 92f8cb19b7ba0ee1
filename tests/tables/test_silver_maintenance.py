"""Rounds of maintenance over a silver table and its game's table move rows, drop what is old, and lose nothing."""

from pathlib import Path

import pytest

from pipeline.base.names import silver_key, stream_app_id
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import Paths
from tests.tables.maintenance_world import DAY, LATER, live, maintain, on_disk
from tests.tables.silver_world import Row, SilverWorld

AFTER_LOG: float = 40 * DAY
"""After the retention of logs, from now."""


@pytest.fixture
def world(tmp_path: Path) -> SilverWorld:
    return SilverWorld(tmp_path)


def round_of(world: SilverWorld, after: float = 0.0) -> set[str]:
    """Do a round; return the tables that it touched."""
    return {report.table for report in maintain(Paths(world.root), after=after).tables if report.touched}


def position(world: SilverWorld) -> list[int | None]:
    """Return all that silver's log says of where it is."""
    app = stream_app_id("test", silver_key(world.definition.name), 1)
    table = open_table(world.silver)
    return [table.transaction_version(each) for each in (app, f"{app}/source", f"{app}/commit")]


def first_of_log(world: SilverWorld) -> int:
    return min(int(each.stem) for each in Path(str(world.silver), "_delta_log").glob("*.json"))


def test_rounds_keep_rows_position_and_generation_of_silver(world: SilverWorld) -> None:
    """Merged files, a checkpoint, a vacuum and a cut log say of silver what they replace, and duplicates stay known."""
    for at in range(12):
        world.commit(Row(f"a{at}", float(3 * at)), Row("twice", 0.0))
        world.carry()
    before, were = world.contents(), position(world)
    assert "silver/sold" in round_of(world)
    assert len(live(Path(str(world.silver)))) < 12
    world.carry()  # the game's table was merged, too
    assert "silver/sold" in round_of(world, after=LATER)
    assert on_disk(Path(str(world.silver))) == live(Path(str(world.silver)))
    for _ in range(20):  # the position is in checkpoints alone
        world.commit()
        world.carry()
    round_of(world, after=AFTER_LOG)
    assert first_of_log(world) > 12
    assert (world.contents(), position(world)[1]) == (before, were[1])
    world.commit(Row("a7", 22.5), Row("twice", 1.0), Row("new", 2.0))
    now = world.carry()
    assert (now.generation, now.rows) == (1, len(before) + 1)
    world.check()


@pytest.mark.parametrize("after", [LATER, AFTER_LOG])
def test_silver_behind_what_a_round_took_begins_a_generation(world: SilverWorld, after: float) -> None:
    """Files or versions of the game's table that silver has not read may go: its rows are all there the same."""
    for at in range(4):
        world.commit(Row(f"a{at}", 0.0), Row("twice", 0.0))
    world.carry()
    for at in range(12):
        world.commit(Row(f"b{at}", 0.0), Row("twice", 1.0))
    round_of(world)
    round_of(world, after=after)
    assert world.carry().generation == 2
    world.check()
    world.commit(Row("b3", 1.0), Row("c", 0.0))
    assert world.carry().generation == 2
    world.check()
