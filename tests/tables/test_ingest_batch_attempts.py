"""Quarantined rows of a killed attempt at a micro-batch: kept if the repetition matches them, else abandoned."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.data.ingest.batch_attempts import BatchAttempts, give_up_open, left_behind
from pipeline.data.ingest.source_checks import forget_refused
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.places import located

APP = "turnout/test/ingest/1"


class World:
    """Bronze that ends at seq 3, and quarantine with refused rows of seq 2."""

    def __init__(self, folder: Path) -> None:
        self.bronze = CursorTable.create(located(folder / "bronze"), BRONZE, "turnout/test/bronze")
        self.quarantine = CursorTable.create(located(folder / "quarantine"), QUARANTINE, f"{APP}/quarantine")
        self.bronze.commit([], None, 3, also={APP: 6})
        self.attempts().write(self.refused(2), 5, 2, 2)

    def attempts(self) -> BatchAttempts:
        """The attempts as a process that starts now sees them."""
        bronze = CursorTable.open(self.bronze.path, "turnout/test/bronze")
        quarantine = CursorTable.open(self.quarantine.path, f"{APP}/quarantine")
        assert bronze is not None
        assert quarantine is not None
        return BatchAttempts(quarantine, bronze, APP)

    def refused(self, *seqs: int) -> list[DataFile]:
        rows = pa.Table.from_pylist([{"game_key": "g", "seq": seq, "pos": 0} for seq in seqs], schema=QUARANTINE)
        return [write_file(rows, self.quarantine.path, ["seq", "game_key"])]

    def seqs(self) -> list[int]:
        return sorted(DeltaTable(self.quarantine.path).to_pyarrow_table(columns=["seq"])["seq"].to_pylist())

    def head(self) -> int:
        self.bronze.refresh()
        return self.bronze.cursor or 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.proves("G21")
def test_a_batch_of_one_slice_may_have_other_places_when_it_is_repeated(world: World) -> None:
    """Law L5: files of a landing table that was merged meanwhile come in another order; no refused row is left."""
    assert world.attempts().write(world.refused(4), 7, 4, 4)
    again = world.attempts()
    again.clear(7)
    assert (world.seqs(), world.head()) == ([2], 4)
    assert again.write(world.refused(5), 7, 5, 5)
    assert (world.seqs(), world.head()) == ([2, 5], 4)


def test_places_of_a_cut_batch_are_given_up(world: World) -> None:
    """Law L5: what a repetition may not meet again leaves quarantine, and its seqs are not given a second time."""
    assert world.attempts().write(world.refused(4, 6), 7, 4, 7)
    again = world.attempts()
    again.clear(7)
    assert (world.seqs(), world.head()) == ([2], 7)
    assert again.write(world.refused(8, 9), 7, 8, 9)
    assert world.seqs() == [2, 8, 9]


def test_an_attempt_beside_another_one_writes_nothing(world: World) -> None:
    """Law L5: the refused rows of two attempts never mix; whoever is later lands the batch again."""
    late = world.attempts()
    late.clear(7)
    assert world.attempts().write(world.refused(4), 7, 4, 4)
    assert not late.write(world.refused(4, 5), 7, 4, 5)
    late.give_up(7)
    assert (world.seqs(), world.head()) == ([2], 4)
    third = world.attempts()
    third.clear(7)
    assert third.write(world.refused(5, 6), 7, 5, 6)
    assert world.seqs() == [2, 5, 6]


def dying(call: Callable[..., object] | None) -> Callable[..., None]:
    def die(*arguments: object, **named: object) -> None:
        if call is not None:
            call(*arguments, **named)
        raise KeyboardInterrupt

    return die


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["bronze", "delete", "quarantine"])
@pytest.mark.proves("G21")
def test_giving_up_can_be_killed_anywhere(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """Law L5: killed before or after each of its effects and begun again, the outcome is the same."""
    assert world.attempts().write(world.refused(4, 6), 7, 4, 7)
    killed = world.attempts()
    with monkeypatch.context() as patch:
        if step == "delete":
            patch.setattr(
                "pipeline.data.ingest.batch_attempts.forget_refused", dying(forget_refused if after else None)
            )
        else:
            table = killed._bronze if step == "bronze" else killed._quarantine
            patch.setattr(table, "commit", dying(table.commit if after else None))
        with pytest.raises(KeyboardInterrupt):
            killed.clear(7)
    again = world.attempts()
    again.clear(7)
    assert (world.seqs(), world.head()) == ([2], 7)
    assert again.write(world.refused(8), 7, 8, 8)
    assert world.seqs() == [2, 8]


@pytest.mark.proves("G21")
def test_who_is_still_at_work_on_the_attempt_cannot_land_it(world: World) -> None:
    """Law L4: its refused rows are gone, so its rows must not come into bronze; it finds its seq taken."""
    late = CursorTable.open(world.bronze.path, "turnout/test/bronze")
    assert late is not None
    assert world.attempts().write(world.refused(4, 6), 7, 4, 7)
    world.attempts().clear(7)
    with pytest.raises(TableConflict):
        late.commit([], 3, 7, also={APP: 7})


def test_rows_of_others_that_have_the_seqs_stay(world: World) -> None:
    """Law L5: where an ingest that ran beside got seqs of an open attempt, refused rows of them are its own."""
    assert world.attempts().write(world.refused(4, 5), 7, 4, 5)
    world.bronze.commit([], 3, 4)
    other = CursorTable.open(world.quarantine.path, "turnout/test/ingest/2/quarantine")
    assert other is not None
    other.commit(world.refused(4), None, 0)
    again = world.attempts()
    again.clear(7)
    assert world.seqs() == [2, 4, 4, 5]
    assert again.write(world.refused(5), 7, 5, 5)


def give_up_all(world: World, *apps: str) -> None:
    """The start of another generation, as by a new process."""
    bronze = CursorTable.open(world.bronze.path, "turnout/test/bronze")
    quarantine = CursorTable.open(world.quarantine.path, "turnout/test/ingest/3/quarantine")
    assert bronze is not None
    assert quarantine is not None
    give_up_open(quarantine, bronze, apps or [APP, "turnout/test/ingest/2"])


@pytest.mark.parametrize("step", ["", "bronze", "delete", "quarantine"])
@pytest.mark.proves("G22")
def test_an_attempt_that_is_not_repeated_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Law L5: before another source gets seqs, those of an open attempt are passed over, wherever that is killed."""
    assert world.attempts().write(world.refused(4, 6), 7, 4, 7)
    with monkeypatch.context() as patch:
        if step == "delete":
            patch.setattr("pipeline.data.ingest.batch_attempts.forget_refused", dying(None))
        elif step:
            real, folder = CursorTable.commit, step

            def commit(table: CursorTable, *arguments: Any, **named: Any) -> None:
                real(table, *arguments, **named)
                if table.path.name == folder:
                    raise KeyboardInterrupt

            patch.setattr(CursorTable, "commit", commit)
        with pytest.raises(KeyboardInterrupt) if step else nullcontext():
            give_up_all(world)
    for _ in range(2):
        give_up_all(world)
        version = DeltaTable(world.quarantine.path).version()
    assert (world.seqs(), world.head()) == ([2], 7)
    give_up_all(world)
    assert version == DeltaTable(world.quarantine.path).version()
    again = world.attempts()
    again.clear(7)
    assert again.write(world.refused(8), 7, 8, 8)
    assert world.seqs() == [2, 8]


@pytest.mark.proves("G22")
def test_an_attempt_that_was_committed_is_not_given_up(world: World) -> None:
    """Law L5: refused rows whose batch is in bronze stay, also those of a generation that was closed later."""
    assert world.attempts().write(world.refused(4), 7, 4, 4)
    world.bronze.commit([], 3, 4, also={APP: 7})
    give_up_all(world)
    world.bronze.commit([], 4, 5, also={APP: 2**52 + 5})
    give_up_all(world)
    assert (world.seqs(), world.head()) == ([2, 4], 5)


def test_adoption_is_told_of_what_was_left(world: World) -> None:
    """Law L5: a generation that is closed closes above the seqs of its last attempt, too."""
    assert left_behind(world.quarantine.path, APP) == (2, 2)
    assert world.attempts().write(world.refused(4, 6), 7, 4, 7)
    assert left_behind(world.quarantine.path, APP) == (4, 7)
    assert left_behind(world.quarantine.path, "turnout/test/ingest/2") == (0, 0)
    assert left_behind(world.quarantine.path / "none", APP) == (0, 0)
