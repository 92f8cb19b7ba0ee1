"""A silver table has each event of its type once, flat and masked, however its driver and its game's table fare."""

import tempfile
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused, Transient
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.held_ids import SilverMemory
from pipeline.data.derived.silver import Silver
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import TableConflict
from tests.tables.silver_world import (
    CHESS,
    SCHEMAS,
    SOLD,
    Row,
    SilverWorld,
    change_commit,
    cut_log,
    hooked,
    killed,
)


@pytest.fixture
def world(tmp_path: Path) -> SilverWorld:
    return SilverWorld(tmp_path)


ROWS = st.lists(
    st.builds(
        Row,
        id=st.sampled_from(["a", "b", None]),
        at=st.sampled_from([0.0, 1.5, 2.0, 3.0, 3.5, 5.0, 6.0, None]),
        left=st.integers(0, 9).map(lambda number: number == 0),
    ),
    max_size=7,
)
CHANGES = st.one_of(
    st.tuples(st.just("commit"), ROWS),
    st.tuples(st.just("replay"), ROWS),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.sampled_from(["compact", "compact_silver", "rebuild", "step", "carry"]), st.none()),
    st.tuples(st.just("kill"), st.integers(1, 24)),
)


def do(world: SilverWorld, change: str, what: Any) -> None:
    match change:
        case "commit":
            world.commit(*what)
        case "replay":
            world.commit(*what, seq=1)
        case "remove":
            world.remove(what)
        case "kill":
            killed(world.step, what)
        case _:
            getattr(world, change)()


def run(step_rows: int, changes: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = SilverWorld(Path(folder), step_rows=step_rows)
        world.commit(Row("a", 0.0))
        for change, what in changes:
            do(world, change, what)
        world.carry()
        world.check()


@given(st.integers(1, 5), st.lists(CHANGES, max_size=8))
@settings(max_examples=15)
def test_silver_is_what_a_batch_computation_gives(step_rows: int, changes: list[tuple[str, Any]]) -> None:
    """Law L5 for silver: over orders, duplicates, cuts and kills each event is there once, with its values."""
    run(step_rows, changes)


@pytest.mark.long
@pytest.mark.timeout(900)
@given(st.integers(1, 5), st.lists(CHANGES, max_size=14))
@settings(max_examples=400)
def test_silver_is_what_a_batch_computation_gives_in_many_orders(
    step_rows: int, changes: list[tuple[str, Any]]
) -> None:
    """Law L5 for silver: as the short one, over many more orders."""
    run(step_rows, changes)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_driver_killed_between_any_two_effects_lands_each_event_once(tmp_path: Path, step: int) -> None:
    """Laws L3 and L4: rows and position are one commit, of a step as of a new generation.

    Each kill has a world of its own, as a new generation has an effect more with each file.
    """
    reached = 0
    for at in count(1, step):
        world = SilverWorld(tmp_path / str(at))
        world.commit(Row("a", 0.0), Row("b", 1.0), Row("b", 2.0))
        was_killed = killed(world.carry, at)
        world.carry()
        world.check()
        world.rebuild()
        was_killed |= killed(world.carry, at)
        world.carry()
        world.check()
        if not was_killed:
            break
        reached = at
    assert reached > 5, "there are fewer effects than a commit has"


def test_of_two_owners_one_commits(world: SilverWorld) -> None:
    """Law L4: an owner whose rows follow a position that another one has moved adds nothing."""
    world.commit(Row("a", 0.0))
    world.carry()
    world.commit(Row("b", 0.0))
    rivals = iter([world.driver()])

    def overtake(point: str) -> None:
        if point == "before_draft_commit":
            for rival in rivals:
                rival.step()

    with hooked(overtake), pytest.raises(TableConflict):
        world.step()
    world.check()
    world.rebuild()
    rivals = iter([world.driver()])

    def begin_first(point: str) -> None:
        if point == "before_switch_generation":
            for rival in rivals:
                rival.step()

    with hooked(begin_first), pytest.raises(TableConflict):
        world.step()
    world.check()


def test_commits_that_change_no_row_begin_no_generation(world: SilverWorld) -> None:
    """A compaction of the game's table costs silver an empty commit, and a removed row a new generation."""
    for at in range(4):
        world.commit(Row(f"a{at}", 0.0))
    first = world.carry()
    world.compact()
    second = world.carry()
    assert (first.generation, second.generation, second.version) == (1, 1, first.version + 1)
    world.remove(0)
    assert world.carry().generation == 2
    world.check()


def test_another_table_in_the_place_begins_a_generation(world: SilverWorld) -> None:
    """The position counts in a table by its id: the versions of another one are not those that follow."""
    for at in range(3):
        world.commit(Row(f"a{at}", 0.0), Row(f"b{at}", 0.0))
    world.carry()
    world.make_again()
    assert world.carry().generation == 2
    world.check()


def test_another_commit_of_the_same_number_begins_a_generation(world: SilverWorld) -> None:
    """The position knows its commit: after a power cut, or in an older copy, the number may be another one's."""
    world.commit(Row("a", 0.0))
    world.carry()
    change_commit(world.table, 1)
    world.commit(Row("b", 0.0))
    assert world.carry().generation == 2
    world.check()


def test_versions_that_the_log_has_lost_begin_a_generation(world: SilverWorld) -> None:
    """The position is contiguous: rows of a version that nobody can read are taken from the table as it is."""
    world.commit(Row("a", 0.0))
    world.carry()
    for at in range(12):
        world.commit(Row(f"b{at}", 0.0), Row("a", 1.0))
    cut_log(world.table)
    assert world.carry().generation == 2
    world.check()


def test_a_level_silver_outlives_a_cut_of_the_log(world: SilverWorld) -> None:
    """An idle game is not read again when its log is cut up to silver's position."""
    for at in range(12):
        world.commit(Row(f"b{at}", 0.0))
        world.carry()
    cut_log(world.table)
    world.commit(Row("c", 0.0))
    assert world.carry().generation == 1
    world.check()


def test_another_definition_begins_a_generation(world: SilverWorld) -> None:
    """The definition is part of the position: no table has rows by two definitions."""
    world.commit(Row("a", 0.0), Row("a", 3.0), Row("a", 5.5))
    world.carry()
    world.definition = replace(SOLD, within=4)
    assert world.carry().generation == 2
    world.check()
    assert [row["_pos"] for row in world.contents()] == [0, 2]


def test_an_older_definition_makes_no_generation_visible(world: SilverWorld) -> None:
    """Law L15: a driver that has missed a change of its definition asks before the commit of a generation."""
    world.commit(Row("a", 0.0))
    world.carry()
    older = replace(SOLD, within=4)
    driver = Silver(
        world.table, world.silver, "test", older, lambda: SCHEMAS, memory=SilverMemory(9), holds=lambda: False
    )
    with pytest.raises(TableConflict):
        driver.step()
    world.check()


def test_a_vanished_column_stops_silver_with_the_reason(world: SilverWorld) -> None:
    """A definition that names a column which a rebuild took away is refused; the table stays as it was."""
    world.commit(Row("a", 0.0))
    world.carry()
    before = world.contents()
    at = world.columns.get_field_index("email")
    world.columns = world.columns.remove(at)
    for row in world.rows:
        del row["email"]
    world.rebuild()
    with pytest.raises(Refused, match=r"has no column 'email', which silver sold names"):
        world.step()
    assert world.contents() == before


def test_rows_of_an_unknown_event_type_wait(world: SilverWorld) -> None:
    """Rows whose type the schema set lacks may be silver's under a new name: they are not passed by."""
    full = world.columns
    world.columns = full.remove(full.get_field_index("left"))
    world.commit(Row("a", 0.0))
    one = SchemaSet(1, {CHESS: (1,)}, {1: SCHEMAS.schemas[1]})
    driver = Silver(world.table, world.silver, "test", SOLD, lambda: one, memory=SilverMemory(9))
    driver.step()
    world.columns = full
    world.commit(Row("a", 0.0, left=True), Row("b", 1.0))
    with pytest.raises(Transient, match=r"(?i)left"):
        driver.step()
    world.carry()
    world.check()


def test_a_new_column_is_added_to_silver(world: SilverWorld) -> None:
    """A schema that evolves reaches silver with its first row, in the same generation."""
    full = world.columns
    world.columns = full.remove(full.get_field_index("tags"))
    world.commit(Row("a", 0.0))
    world.carry()
    world.columns = full
    world.commit(Row("b", 0.0))
    assert world.carry().generation == 1
    world.check()
    assert "tags" in open_table(world.silver).schema().to_json()
