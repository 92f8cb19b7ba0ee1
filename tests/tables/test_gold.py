"""A gold table has each window of event time once, by the rows up to its closing seq, however its driver fares."""

import tempfile
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.base.names import generation_id
from pipeline.data.derived.definitions import Aggregate
from pipeline.data.derived.gold import Gold
from pipeline.data.derived.gold_columns import gold_schema
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import TableConflict
from tests.tables.gold_world import SALES, GoldWorld
from tests.tables.maintenance_world import LATER, maintain
from tests.tables.silver_world import Row, hooked, killed

OTHERS: Final = (SALES, replace(SALES, window=120), replace(SALES, lateness=90), replace(SALES, by=()))


@pytest.fixture
def world(tmp_path: Path) -> GoldWorld:
    return GoldWorld(tmp_path)


ROWS = st.lists(
    st.builds(
        Row,
        id=st.sampled_from(["a", "b", None]),
        at=st.sampled_from([0.0, 3.0, 6.0, 9.0, None]),
        event=st.sampled_from([-70.0, 0.0, 10.0, 59.999999, 60.0, 61.0, 130.0, 5000.0, None]),
    ),
    max_size=5,
)
CHANGES = st.one_of(
    st.tuples(st.just("commit"), ROWS),
    st.tuples(st.just("beat"), st.sampled_from([10, 35, 70, 400])),
    st.tuples(st.just("beat"), st.sampled_from([10, 35, 70, 400])),
    st.tuples(st.just("replay"), ROWS),
    st.tuples(st.sampled_from(["carry", "close", "close", "thin", "rebuild"]), st.none()),
    st.tuples(st.sampled_from(["compact", "compact_silver", "compact_gold", "step"]), st.none()),
    st.tuples(st.just("kill"), st.integers(1, 24)),
    st.tuples(st.just("kill_gold"), st.integers(1, 40)),
    st.tuples(st.just("define"), st.integers(0, len(OTHERS) - 1)),
)


def do(world: GoldWorld, change: str, what: Any) -> None:
    match change:
        case "commit":
            world.commit(*what)
        case "beat" | "kill_gold":
            getattr(world, change)(what)
        case "replay":
            world.commit(*what, seq=1)
        case "kill":
            killed(world.step, what)
        case "define":
            world.gold = OTHERS[what]
        case _:
            getattr(world, change)()


def run(changes: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = GoldWorld(Path(folder))
        world.commit(Row("a", 0.0))
        for change, what in changes:
            do(world, change, what)
        world.check_gold()
        world.carry()
        world.beat(300)
        world.close()
        world.check_gold()


@given(st.lists(CHANGES, max_size=10))
@settings(max_examples=12)
def test_gold_is_what_a_batch_computation_gives(changes: list[tuple[str, Any]]) -> None:
    """Law L5 for gold: over orders, lateness, duplicates and kills each window has its numbers once, value by value."""
    run(changes)


@pytest.mark.long
@pytest.mark.timeout(900)
@given(st.lists(CHANGES, max_size=25))
@settings(max_examples=300)
def test_gold_is_what_a_batch_computation_gives_in_many_orders(changes: list[tuple[str, Any]]) -> None:
    """Law L5 for gold: as the short one, over many more orders."""
    run(changes)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_driver_killed_between_any_two_effects_computes_each_window_once(tmp_path: Path, step: int) -> None:
    """Laws L3 and L4: windows and position are one commit, of a step as of a new generation.

    Each kill has a world of its own, as a new generation has an effect more with each window.
    """
    reached = 0
    for at in count(1, step):
        world = GoldWorld(tmp_path / str(at))
        was_killed = False
        for is_rebuilt in (False, True):
            world.commit(Row("a", 0.0, event=world.elapsed), Row("b", 1.0, event=0.0))
            if is_rebuilt:
                world.rebuild()
            world.carry()
            world.beat(100)
            was_killed |= world.kill_gold(at)
            world.close()
            world.check_gold()
        if not was_killed:
            break
        reached = at
    assert reached > 5, "there are fewer effects than a commit has"


@pytest.mark.parametrize("is_rebuilt", [False, True])
@pytest.mark.parametrize("point", ["before_draft_commit", "before_write_data_file", "before_switch_generation"])
def test_of_two_owners_one_computes_a_window(world: GoldWorld, point: str, is_rebuilt: bool) -> None:
    """Law L4: an owner whose position another one has moved adds nothing, be it a window or a new generation."""
    world.commit(Row("a", 0.0))
    if not is_rebuilt and point != "before_switch_generation":  # a first generation is begun by a switch
        world.carry()
        world.beat(100)
        world.close()
    world.commit(Row("b", 0.0, event=world.elapsed))
    if is_rebuilt:
        world.rebuild()
    world.carry()
    world.beat(100)
    rivals = iter([world.gold_driver()])

    def overtake(reached: str) -> None:
        if reached == point:
            for rival in rivals:
                rival.step()

    with hooked(overtake), pytest.raises(TableConflict):
        world.gold_driver().step()
    world.account()
    world.check_gold()


def test_an_owner_of_a_generation_that_was_replaced_adds_nothing(world: GoldWorld) -> None:
    """Laws L4 and L12: a window that was computed of the former generation of silver reaches no newer one of gold."""
    world.commit(Row("a", 0.0))
    world.carry()
    world.beat(100)
    world.close()
    world.commit(Row("b", 0.0, event=world.elapsed))
    world.carry()
    world.beat(100)
    commits = count(1)

    def begin_first(reached: str) -> None:
        if reached == "before_draft_commit" and next(commits) == 2:  # the first is that of the closing seqs
            world.rebuild()
            world.carry()
            world.gold_driver().step()

    with hooked(begin_first), pytest.raises(TableConflict):
        world.gold_driver().step()
    world.account()
    assert world.generation_of_gold() == 2
    world.check_gold()


def test_a_repair_computes_all_windows_again_at_the_same_closing_seqs(world: GoldWorld) -> None:
    """Late rows stay late, the killed step leaves the old generation or the next one, and what is there is left."""
    world.commit(Row("a", 0.0), Row("c", 0.0, event=70.0))
    world.carry()
    world.beat(100)
    world.close()
    world.commit(Row("b", 0.0, event=1.0))  # too late
    world.carry()
    world.beat(100)
    world.thin()
    world.close()
    for at in range(1, 100):
        before, number = world.gold_contents(), world.generation_of_gold()
        asked = generation_id(str(open_table(world.table_of_gold).metadata().id), number)
        was_killed = killed(lambda asked=asked: world.gold_driver().step(asked), at)  # type: ignore[misc]
        assert world.gold_contents() == before
        for _ in range(2):
            world.gold_driver().step(asked)
            world.account()
            assert world.generation_of_gold() == number + 1
        world.check_gold()
        assert world.gold_contents() == before
        if not was_killed:
            break
    assert at > 3, "there are fewer effects than a generation has"


def test_a_window_is_computed_once_and_late_rows_are_counted(world: GoldWorld) -> None:
    """A row above the closing seq, or one replayed below it, changes no number, and the account says how many are."""
    world.commit(Row("a", 0.0), Row("b", 0.0, event=None), Row("c", 0.0, event=70.0))
    world.carry()
    world.beat(80)
    world.close()
    assert world.gold_contents() == [], "a window is open until its lateness has passed"
    world.beat(10)
    world.close()
    (before,) = world.gold_contents()
    assert (before["_event_id"], before["_rows"], before["_closing_seq"]) == ("a", 1, 1)
    world.commit(Row("d", 0.0), Row("e", 0.0))
    world.commit(Row("f", 0.0), seq=1)
    world.carry()
    world.beat(30)
    world.close()
    assert world.gold_contents() == [before]
    world.check_gold()
    found = world.found_account()
    assert found is not None
    assert (found.counted, found.late, found.open, found.undated) == (1, 3, 1, 1)
    world.beat(60)
    world.close()
    assert [row["_event_id"] for row in world.gold_contents()] == ["a", "c"], "one file has rows of both windows"


def test_a_new_silver_generation_has_the_same_closing_seqs(world: GoldWorld) -> None:
    """Law L12 for gold: windows close where they closed before, also one without rows, though its pairs are gone."""
    world.commit(Row("a", 0.0))
    world.carry()
    for _ in range(4):
        world.beat(60)
        world.commit(Row(None, 0.0, event=5000.0))
        world.carry()
        world.close()
    world.commit(Row("late", 0.0, event=70.0), Row("later", 0.0))
    world.beat(60)
    world.thin()
    before = world.gold_contents()
    assert [row["_event_id"] for row in before] == ["a"]
    world.rebuild()
    world.carry()
    world.close()
    assert world.generation_of_gold() == 2
    assert world.gold_contents() == before
    world.check_gold()
    found = world.found_account()
    assert found is not None
    assert found.late == 2


@pytest.mark.long
def test_rounds_of_maintenance_keep_windows_and_closing_seqs(world: GoldWorld) -> None:
    """Merged files, a checkpoint and a vacuum change no number, and windows close where they closed before."""
    for at in range(12):
        world.commit(Row(f"a{at}", 0.0, event=world.elapsed))
        world.carry()
        world.beat(60)
        world.close()
    before = world.gold_contents()
    touched = {report.table for report in maintain(world.paths).tables if report.touched}
    assert {"gold/sales", "closings/sales", "silver/sold"} <= touched
    maintain(world.paths, after=LATER)
    assert len(open_table(world.table_of_gold).file_uris()) < len(before)
    world.check_gold()
    world.thin()
    world.rebuild()
    world.carry()
    world.close()
    assert (world.generation_of_gold(), world.gold_contents()) == (2, before)
    world.check_gold()


def test_a_row_that_a_repair_brings_counts_in_the_next_generation(world: GoldWorld) -> None:
    """A replayed row up to the closing seq is late until silver is made again, and then it is in its window."""
    world.commit(Row("a", 0.0))
    world.carry()
    world.beat(100)
    world.close()
    world.commit(Row("b", 0.0), seq=1)
    world.carry()
    world.beat(100)
    world.close()
    assert [row["_event_id"] for row in world.gold_contents()] == ["a"]
    world.rebuild()
    world.carry()
    world.close()
    assert [row["_event_id"] for row in world.gold_contents()] == ["a", "b"]
    world.check_gold()


def test_windows_stay_until_a_new_generation_has_all_of_them(world: GoldWorld) -> None:
    """Readers see no window vanish: where silver is complete through an earlier time than before, gold waits."""
    world.beat(35)
    world.commit(Row("a", 0.0))
    world.carry()
    world.beat(65)
    world.close()
    before = world.gold_contents()
    world.rebuild()
    world.carry()
    world.now -= 50  # a clock that goes back voids the newest pair
    world.close()
    assert (world.gold_contents(), world.generation_of_gold()) == (before, 1)
    world.now += 50
    world.close()
    assert world.generation_of_gold() == 2
    world.check_gold()


def test_a_silver_that_is_behind_keeps_windows_open(world: GoldWorld) -> None:
    """L8: no window closes before silver has each row that the source had taken by then."""
    world.commit(Row("a", 0.0))
    world.carry()
    world.commit(Row("b", 0.0))
    world.beat(100)
    world.close()
    assert world.cursor() is None
    world.carry()
    world.close()
    assert [row["_event_id"] for row in world.gold_contents()] == ["a", "b"]
    world.check_gold()


def test_an_older_definition_makes_no_generation_of_gold_visible(world: GoldWorld) -> None:
    """Law L15: a driver that has missed a change of its definition asks before the commit of a generation."""
    world.commit(Row("a", 0.0))
    world.carry()
    world.beat(100)
    world.close()
    older = replace(SALES, lateness=1)
    driver = Gold(world.paths, "test", older, lambda: world.now, file_rows=9, holds=lambda: False)
    with pytest.raises(TableConflict):
        driver.step()
    world.check_gold()


def test_a_gold_table_with_nothing_due_opens_no_table(world: GoldWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L8: commits of silver, and time alone, cost a look at names; a closing window and other rows are seen."""
    monkeypatch.setattr("pipeline.data.derived.gold.time", SimpleNamespace(time=lambda: world.now))
    world.commit(Row("a", 0.0))
    world.carry()
    world.beat(95)
    driver = world.gold_driver()
    at = driver.step()
    assert at is not None
    assert not driver.has_next(at.version)
    world.commit(Row("b", 0.0))
    world.carry()
    opened = list[object]()
    monkeypatch.setattr("pipeline.data.derived.gold.open_table", opened.append)
    assert not driver.has_next(at.version), "silver got further rows alone"
    world.now += 60
    assert not driver.has_next(at.version), "bronze is not complete through the next window"
    assert not opened
    world.beat(1)
    assert driver.has_next(at.version), "the next window has closed"


def test_a_gold_table_sees_another_generation_of_silver_at_once(
    world: GoldWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gold begins a new generation with silver's, and does not wait until its next window is due."""
    monkeypatch.setattr("pipeline.data.derived.gold.time", SimpleNamespace(time=lambda: world.now))
    world.commit(Row("a", 0.0), Row("b", 0.0))
    world.carry()
    world.beat(95)
    driver = world.gold_driver()
    at = driver.step()
    assert at is not None
    world.remove(0)
    world.carry()
    assert driver.has_next(at.version)
    assert driver.has_next(at.version), "until it has taken a step"


def test_a_vanished_column_stops_gold_with_the_reason(world: GoldWorld) -> None:
    """A definition that names a column which silver has not is refused; the table stays as it was."""
    world.commit(Row("a", 0.0))
    world.carry()
    world.beat(100)
    world.close()
    before = world.gold_contents()
    world.gold = replace(SALES, by=("nope",))
    with pytest.raises(Refused, match=r"Silver sold has no column 'nope', which gold sales needs"):
        world.gold_driver().step()
    assert world.gold_contents() == before


def test_columns_that_do_not_suit_are_refused_at_once() -> None:
    """No number is made of what is none, and no sum of floating-point numbers is a key."""
    silver = pa.schema(
        [("_event_time", pa.timestamp("us", "UTC")), ("text", pa.string()), ("list", pa.list_(pa.int64())),
         ("float", pa.float64())]
    )  # fmt: skip
    wanted = replace(SALES, by=("float",), aggregates=(Aggregate("a", "sum", "text"), Aggregate("b", "max", "list")))
    with pytest.raises(Refused) as refused:
        gold_schema(silver, wanted)
    assert str(refused.value) == (
        "Gold sales: it cannot group by float, which is double; a cannot be the sum of text, which is string; b cannot "
        "be the max of list, which is list<item: int64>."
    )


@pytest.mark.parametrize("digits", [[9 * 10**37, 9 * 10**37], [6 * 10**37, 6 * 10**37]])
def test_a_sum_that_its_column_cannot_hold_is_refused(world: GoldWorld, digits: list[int]) -> None:
    """No sum overflows in silence: gold stands still, with the reason."""
    at = world.columns.get_field_index("points")
    world.columns = world.columns.set(at, pa.field("points", pa.decimal128(38, 0)))
    world.points = iter(digits)
    world.gold = replace(SALES, by=())
    world.commit(Row("a", 0.0), Row("b", 0.0))
    world.carry()
    world.beat(100)
    with pytest.raises((duckdb.Error, Refused), match=r"Overflow|out of range|does not fit|precision"):
        world.gold_driver().step()
    assert not open_table(world.table_of_gold).to_pyarrow_table().num_rows
