"""Ids of kept rows that are held in memory decide nothing that silver's files would not, and are bounded."""

import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.data.derived.held_ids import HeldIds, IdRoom, SilverMemory
from pipeline.data.derived.kept import Id, KeptRows
from pipeline.data.derived.silver import Silver
from pipeline.lake.delta import parquet
from pipeline.lake.delta.errors import CommitFailedError
from pipeline.lake.delta.table import TableConflict
from tests.tables.silver_world import SCHEMAS, Row, SilverWorld, hooked, killed

BYTES: Final = 24  # of a row
MANY: Final = 10**9
_AT: Final = ("table", 1, 5, 7)
_FIVE: Final = 5 * 80 * BYTES  # room for five tables of the tests below


class Owners:
    """Two drivers of one silver table, which go on from step to step with what they hold."""

    def __init__(self, world: SilverWorld, room: IdRoom) -> None:
        self.world, self._room = world, room
        self.drivers = [self._driver(), self._driver()]

    def _driver(self) -> Silver:
        world = self.world
        memory = SilverMemory(world.step_rows, self._room)
        return Silver(world.table, world.silver, "test", world.definition, lambda: SCHEMAS, memory=memory)

    def step(self, owner: int) -> None:
        """Let one of them take a step; if the other one was first, nothing is added."""
        try:
            self.drivers[owner].step()
        except TableConflict:
            return

    def overtake(self, owner: int) -> None:
        """Let the other one take a step just before the commit of this one."""
        rivals = iter([1 - owner])

        def on_hit(point: str) -> None:
            if point in {"before_draft_commit", "before_switch_generation"}:
                for rival in rivals:
                    self.step(rival)

        with hooked(on_hit):
            self.step(owner)

    def kill(self, owner: int, at: int) -> None:
        """Kill one of them at a hit of a fail-point; another process takes its place."""
        if killed(lambda: self.step(owner), at):
            self.drivers[owner] = self._driver()

    def fail(self, owner: int, at: int) -> bool:
        """Let storage fail at a hit of a fail-point, after which the same driver goes on; return whether it did."""
        hits = count(1)

        def on_hit(_point: str) -> None:
            if next(hits) == at:
                raise OSError("storage is away")

        with hooked(on_hit):
            try:
                self.step(owner)
            except (OSError, CommitFailedError):
                return True
        return False


ROWS = st.lists(
    st.builds(
        Row,
        id=st.sampled_from(["a", "b", "c", None]),
        at=st.sampled_from([0.0, 1.5, 2.0, 3.0, 3.5, 5.0, 6.0, 9.0, 30.0, None]),
    ),
    max_size=7,
)
OWNER = st.integers(0, 1)
CHANGES = st.one_of(
    st.tuples(st.just("commit"), ROWS),
    st.tuples(st.just("commit"), ROWS),
    st.tuples(st.just("step"), OWNER),
    st.tuples(st.just("step"), OWNER),
    st.tuples(st.just("overtake"), OWNER),
    st.tuples(st.sampled_from(["kill", "fail"]), st.tuples(OWNER, st.integers(1, 24))),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.sampled_from(["compact", "compact_silver", "rebuild"]), st.none()),
)


def run(step_rows: int, room: IdRoom, changes: Sequence[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = SilverWorld(Path(folder), step_rows=step_rows)
        world.commit(Row("a", 0.0))
        owners = Owners(world, room)
        for change, what in changes:
            match change:
                case "commit":
                    world.commit(*what)
                case "remove":
                    world.remove(what)
                case "step" | "overtake":
                    getattr(owners, change)(what)
                case "kill" | "fail":
                    getattr(owners, change)(*what)
                case _:
                    getattr(world, change)()
        while not (position := world.step()) or not position.is_level:
            owners.step(0)
        world.check()


@given(st.integers(1, 5), st.sampled_from([0, 3 * BYTES, MANY]), st.lists(CHANGES, max_size=12))
@settings(max_examples=15)
def test_silver_with_held_ids_is_what_a_batch_computation_gives(
    step_rows: int, most_bytes: int, changes: list[tuple[str, Any]]
) -> None:
    """Law L5: over kills, conflicts of two owners, merges and generations, held ids change no row of silver."""
    run(step_rows, IdRoom(most_bytes), changes)


@pytest.mark.long
@pytest.mark.timeout(900)
@given(st.integers(1, 5), st.sampled_from([0, 3 * BYTES, MANY]), st.lists(CHANGES, max_size=20))
@settings(max_examples=400)
def test_silver_with_held_ids_is_what_a_batch_computation_gives_in_many_orders(
    step_rows: int, most_bytes: int, changes: list[tuple[str, Any]]
) -> None:
    """Law L5: as the short one, over many more orders."""
    run(step_rows, IdRoom(most_bytes), changes)


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_generation_that_failed_leaves_no_ids_to_the_next_try(tmp_path: Path, is_rebuilt: bool) -> None:
    """Law L5: a driver that failed to commit a generation reads its ids again, so no row counts as its own second."""
    for at in count(1):
        world = SilverWorld(tmp_path / str(at), step_rows=100)
        owners = Owners(world, IdRoom())
        world.commit(Row("a", 0.0), Row("b", 1.0), Row("a", 0.5))
        if is_rebuilt:
            owners.step(0)
            world.rebuild()
        has_failed = owners.fail(0, at)
        while not (position := owners.drivers[0].step()) or not position.is_level:
            pass
        world.check()
        if not has_failed:
            break


def test_a_step_reads_no_file_for_ids_that_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read once by a process, again after another owner's commit, and for rows far behind the others."""
    world, reads = SilverWorld(tmp_path, step_rows=100), list[str]()
    real = parquet.dataset

    def dataset(files: Sequence[str], columns: pa.Schema) -> parquet.Dataset:
        reads.append("read")
        return real(files, columns)

    monkeypatch.setattr(parquet, "dataset", dataset)
    owners = Owners(world, IdRoom())

    def step(owner: int, *rows: Row) -> int:
        world.commit(*rows)
        reads.clear()
        owners.step(owner)
        return reads.count("read") - 1  # the game's own file

    assert step(0, Row("a", 0.0)) == 0
    assert [step(0, Row("a", 1.0), Row(f"b{at}", float(at))) for at in range(3)] == [0, 0, 0]
    assert step(1, Row("b0", 1.0), Row("c", 3.0)) == 1
    assert step(1, Row("c", 4.0)) == 0
    assert step(0, Row("c", 5.0), Row("b2", 3.0)) == 1
    assert step(0, *(Row(f"d{at}", 9.0) for at in range(9)), Row("a", 0.0)) == 1
    world.check()


def held(room: IdRoom, within: int = 10) -> HeldIds:
    return HeldIds(room, within)


def turn(ids: HeldIds, at: int, rows: int = 4) -> bool:
    """Let a table take a step whose rows have this time, with new ids; return whether it needed no file for them."""
    ids.expect(_AT)
    times = [at] * rows
    ids.fill(times, lambda _: iter(()))
    names = [f"{at}-{place}" for place in range(rows)]
    others, _ = ids.find(names, times, KeptRows(10))
    ids.add(names, times)
    ids.reached(_AT)
    return not others


def test_a_room_is_never_overfull_and_tables_in_turn_do_not_drive_out_each_other() -> None:
    """The room's cap holds; of tables that are too large together, some stay in it from turn to turn."""
    room = IdRoom(_FIVE)
    tables = [held(room) for _ in range(15)]
    shares = list[int]()
    for at in range(100, 110):
        shares.append(sum(turn(each, at) for each in tables))
        assert room.bytes_held <= _FIVE
    assert min(shares[2:]) >= 4, shares
    before = room.bytes_held
    shares = [sum(turn(each, at) for each in tables[10:]) for at in range(110, 140)]  # the others are gone
    assert shares[-1] == 5, shares
    assert room.bytes_held <= max(before, _FIVE)


def test_ids_leave_with_the_time() -> None:
    """A table holds the ids of a bounded time, however long it goes on."""
    room = IdRoom()
    ids = held(room, within=100)
    for at in range(0, 3_000, 10):
        assert turn(ids, at)
    assert room.bytes_held <= 4 * 30 * BYTES


ID: Final = st.sampled_from(["a", "b", "c", "", None])


FAR_BEHIND: Final = [[("a", 74)], [*((f"b{at}", 120) for at in range(8)), ("a", 94)]]
"""The last row is compared with a row that has left the memory, though its own time is within what is held."""


@example(FAR_BEHIND)
@given(st.lists(st.lists(st.tuples(ID, st.one_of(st.integers(0, 300), st.none())), max_size=6), max_size=12))
def test_held_ids_and_files_say_the_same(chunks: list[list[tuple[Id | None, int | None]]]) -> None:
    """Memory and files together give the decisions of all kept rows, for any order of times."""
    rows, within = list[tuple[Id | None, int | None]](), 20
    ids = HeldIds(IdRoom(), within)
    ids.expect(None)
    for chunk in chunks:
        names, times = [each for each, _ in chunk], [at for _, at in chunk]
        before = list(rows)
        ids.fill(times, lambda low: iter([_from(before, low)]))  # noqa: B023 - it is called at once
        memory, whole = KeptRows(within), KeptRows(within)
        others, _ = ids.find(names, times, memory)
        for each, at in before:
            if each is not None and at is not None:
                whole.know(each, at)
                if each in others:
                    memory.know(each, at)
        keep = whole.keep(chunk)
        assert memory.keep(chunk) == keep
        new = [row for row, is_kept in zip(chunk, keep, strict=True) if is_kept]
        rows += new
        ids.add([each for each, _ in new], [at for _, at in new])


def _from(rows: Sequence[tuple[Id | None, int | None]], low: float) -> tuple[list[Id | None], list[int | None]]:
    found = [(each, at) for each, at in rows if at is not None and at >= low]
    return [each for each, _ in found], [at for _, at in found]


def test_nobody_can_make_two_ids_that_count_as_one() -> None:
    """Each table has a key of its own, so that ids which collide for one process do not for another."""
    one, other = (held(IdRoom())._digests(["a"])[0][0] for _ in range(2))
    assert one != other
