"""Planted bugs, and lives that lead past the places where they would do their harm."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import Refused
from pipeline.base.failpoints import hit
from pipeline.data.ingest.query import Ingest
from pipeline.data.streams import passes
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.group import Group
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.stream import Position, Stream
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from tests.faults import figures
from tests.faults.faults import Faults
from tests.faults.life import Life
from tests.faults.oracle import judge

Plant = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[Life], None]
EVENTS = 500


def replays_a_pass(life: Life) -> None:
    life.produce(EVENTS)
    assert life.attempt()
    life.produce(EVENTS)
    life.faults.arm("after_table_commits", "raise")
    assert not life.attempt()


def replays_an_ingest(life: Life) -> None:
    life.produce(EVENTS)
    life.faults.arm("after_bronze_write", "raise")
    assert not life.attempt()


def misses_a_pass(life: Life) -> None:
    """A game's files cannot be written in one pass; the driver ends and the next one knows nothing of it."""
    life.produce(EVENTS)
    assert life.attempt()
    life.produce(EVENTS)
    life.world.ingest()
    life.faults.arm("mid_data_files", "raise")
    life.group.start(once=True).awaitTermination()
    life.restart()
    life.retry_all()  # so that nothing but the chain keeps the game from the next pass
    life.produce(EVENTS)


def has_two_owners(life: Life) -> None:
    """Two drivers split the same seqs; the second never hears of the first."""
    life.produce(EVENTS)
    assert life.attempt()
    life.produce(EVENTS)
    life.world.ingest()
    zombie: Group = life.world.group("a")
    zombie.roster.sync = lambda: None  # type: ignore[method-assign]
    life.world.split(life.group)
    for file in (life.world.paths.checkpoints / "demux" / "a" / "query" / "commits").iterdir():
        if file.name.isdigit() and int(file.name) == max(_numbers(file.parent)):
            file.unlink()  # so that the zombie gets the very same batch
    zombie.start(once=True).awaitTermination()
    zombie.stop()
    life.restart()


def _numbers(folder: Any) -> list[int]:
    return [int(file.name) for file in folder.iterdir() if file.name.isdigit()]


def breaks_between_commits(life: Life) -> None:
    life.produce(EVENTS)
    life.faults.arm("between_table_commits", "raise")
    life.attempt()  # a bug may have the point within one game's commit, which then fails alone
    assert life.faults.fired()["between_table_commits"] == 1


def catches_up_in_chunks(life: Life) -> None:
    for _ in range(5):
        life.produce(EVENTS // 5)
        life.world.ingest()


def no_txn(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = CursorTable._publish

    def without(self: CursorTable, files: Sequence[DataFile], note: Any, transactions: Any, *more: Any) -> None:
        publish(self, files, note, {} if self.path.parent.name == "tables" else transactions, *more)

    monkeypatch.setattr(CursorTable, "_publish", without)


def constant_version(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = CursorTable._publish

    def constant(self: CursorTable, files: Sequence[DataFile], note: Any, transactions: Any, *more: Any) -> None:
        game = self.path.parent.name == "tables"
        publish(self, files, note, dict.fromkeys(transactions, 1) if game else transactions, *more)

    monkeypatch.setattr(CursorTable, "_publish", constant)


def no_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "connects", lambda _cursor, _links: True)


def no_compare_and_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CursorTable, "_require", lambda _self, _expected: None)


def no_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Passes, "_write_quarantine", lambda *_args, **_more: None)


def commit_before_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(self: Stream, files: list[DataFile], expected: Position, cursor: int, target: Any) -> None:
        if self.table is None:
            self.table = self.target.writer.create(self.path, target, self.app_id, self.game)
        assert isinstance(self.table, CursorTable)
        self.table.commit([], expected.cursor or None, cursor)
        self.cursor = self.complete_through = cursor
        hit("between_table_commits")
        self.table.append(files)

    monkeypatch.setattr(Stream, "commit", early)


def swallowed_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Ingest._batch

    def quiet(self: Ingest, frame: Any, batch_id: int) -> None:
        try:
            batch(self, frame, batch_id)
        except Exception:  # noqa: BLE001 - the bug
            return

    def failing(_self: Ingest, *_args: Any) -> None:
        monkeypatch.setattr(Ingest, "_commit", commit)
        raise OSError(28, "No space left on device")

    commit = Ingest._commit
    monkeypatch.setattr(Ingest, "_batch", quiet)
    monkeypatch.setattr(Ingest, "_commit", failing)


def chunk_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    following = CatchUp._next

    def skipping(self: CatchUp, behind: Sequence[Stream], head: int) -> Any:
        chunk, low, high, version = following(self, behind, head)
        return chunk, low + 1, high, version

    monkeypatch.setattr(CatchUp, "_next", skipping)


def ingest_forgets_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    version = CursorTable.transaction_version

    def forgetful(self: CursorTable, app_id: str) -> int | None:
        return None if "/ingest/" in app_id and "/quarantine" not in app_id else version(self, app_id)

    monkeypatch.setattr(CursorTable, "transaction_version", forgetful)


def a_changed_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is in its place, and one of its columns holds something else."""
    publish = CursorTable._publish

    def changing(self: CursorTable, files: Sequence[DataFile], note: Any, transactions: Any, *more: Any) -> None:
        if self.path.parent.name == "tables":
            files = [_with_a_changed_value(self.path, file) for file in files]
        publish(self, files, note, transactions, *more)

    monkeypatch.setattr(CursorTable, "_publish", changing)


def _with_a_changed_value(folder: Location, file: DataFile) -> DataFile:
    rows = pq.read_table(folder / file.path)
    at = next(
        number
        for number, column in enumerate(rows.schema)
        if pa.types.is_string(column.type) and not column.name.startswith("_")
    )
    changed = pc.binary_join_element_wise(rows.column(at), "!", "")
    pq.write_table(rows.set_column(at, rows.schema[at], changed), folder / file.path)
    return replace(file, size=(folder / file.path).size())


MUTANTS: dict[str, tuple[Plant, Story]] = {
    "no txn": (no_txn, replays_a_pass),
    "constant version": (constant_version, replays_a_pass),
    "chain check removed": (no_chain, misses_a_pass),
    "compare-and-set removed": (no_compare_and_set, has_two_owners),
    "quarantine write skipped": (no_quarantine, replays_a_pass),
    "commit before write": (commit_before_write, breaks_between_commits),
    "swallowed batch exception": (swallowed_exception, replays_a_pass),
    "off by one in a catch-up chunk": (chunk_off_by_one, catches_up_in_chunks),
    "ingest forgets its batches": (ingest_forgets_its_batches, replays_an_ingest),
    "a changed value": (a_changed_value, replays_a_pass),
}


def require_a_planted_bug_is_seen(world: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Refuse an oracle that calls the tables clean with this bug in place."""
    plant, story = MUTANTS[name]
    plant(monkeypatch)
    life = Life(world, faults, events=EVENTS * 4)
    _live(life, story)
    verdict = judge(world.paths.root, life.log)
    figures.discard()
    assert not verdict.clean


def _live(life: Life, story: Story) -> None:
    try:
        story(life)
    except Refused:
        return  # the software has seen the bug itself; the oracle tells of what did not land
    try:
        life.rest()
    except AssertionError:
        return  # a bug may keep it from coming to rest; the oracle tells of what waits
