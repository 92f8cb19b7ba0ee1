"""Four ways in which a sink of the field lost or doubled rows within a year, tried here on a folder and on a bucket.

They are from Flink's dynamic Iceberg sink: apache/iceberg 16008, 14425, 14090 and 16249.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.lake.delta.log import LOG
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from tests.storage.buckets import bucket
from tests.tables.repair_world import CHESS, FIRST, SECOND, Event, Message, World, good, make_world

Put = Callable[..., bool]


@pytest.fixture(params=["folder", "bucket"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "folder":
        yield make_world(tmp_path)
        return
    with bucket() as url:
        yield make_world(tmp_path, f"{url}/prod")


def of_chess(file: Location) -> bool:
    """Whether a file is a commit to the table of Chess."""
    return f"{CHESS.key}/{LOG}" in file.path and file.name.endswith(".json")


def is_right(world: World, rows: int) -> None:
    balance = world.verify()
    assert (balance.problems, balance.ok, balance.totals.landed) == ((), True, rows)


def restarted(world: World) -> None:
    """Let another driver own the stream: it knows only what is in the table."""
    world.streams.clear()


@pytest.mark.proves("G230")
def test_a_lost_reply_and_then_another_owner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L4: the reply to a commit is lost and its driver dies; the next owner finds the rows and adds none again."""
    world.ingest(good(1))
    world.split()
    world.ingest(good(2), good(3))
    real: Put = Location.put_if_absent

    def lost(self: Location, content: bytes, **names: Any) -> bool:
        done = real(self, content, **names)
        if of_chess(self):
            raise OSError("the reply is lost")
        return done

    monkeypatch.setattr(Location, "put_if_absent", lost)
    with pytest.raises(OSError, match="the reply is lost"):
        world.split()
    monkeypatch.setattr(Location, "put_if_absent", real)
    restarted(world)
    world.split()
    assert world.rows() == [(1, 0), (2, 0), (2, 1)]
    is_right(world, 3)


@pytest.mark.proves("G230")
def test_a_request_that_arrives_after_the_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L4: a commit that was given up reaches the table while it is tried again: one of the two counts."""
    world.ingest(good(1))
    world.split()
    world.ingest(good(2))
    real: Put = Location.put_if_absent
    late: list[tuple[Location, bytes, dict[str, Any]]] = []

    def slow(self: Location, content: bytes, **names: Any) -> bool:
        if not of_chess(self):
            return real(self, content, **names)
        if not late:
            late.append((self, content, names))
            raise OSError("no reply in time")
        first, earlier, its = late[0]
        real(first, earlier, **its)  # between the second writer's check and its write
        return real(self, content, **names)

    monkeypatch.setattr(Location, "put_if_absent", slow)
    with pytest.raises(OSError, match="no reply in time"):
        world.split()
    restarted(world)
    world.split()
    monkeypatch.setattr(Location, "put_if_absent", real)
    assert world.rows() == [(1, 0), (2, 0)]
    is_right(world, 2)


@pytest.mark.proves("G230")
def test_two_schemas_in_one_pass_with_a_crash_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L4: a driver dies after it has added a column and before it commits rows of both schemas: all come once."""
    world.ingest(good(1))
    world.split()
    assert world.register(CHESS, SECOND) == 2
    world.ingest(good(2), Event(CHESS, 2, SECOND.payload(points=3, player="ada")), good(4))
    real = CursorTable.commit

    def dies(self: CursorTable, *arguments: Any, **more: Any) -> None:
        raise OSError("the driver dies here")

    monkeypatch.setattr(CursorTable, "commit", dies)
    with pytest.raises(OSError, match="the driver dies here"):
        world.split()
    monkeypatch.setattr(CursorTable, "commit", real)
    restarted(world)
    world.split()
    assert [(row["points"], row["player"] or "") for row in world.contents()] == [(1, ""), (2, ""), (3, "ada"), (4, "")]
    is_right(world, 4)


@pytest.mark.proves("G230")
def test_a_field_that_is_removed_and_added_again(world: World) -> None:
    """Law L5: rows of before, between and after keep their own values of a field that a schema dropped for a while."""
    again = Message({"points": (1, "int64"), "player": (2, "string"), "level": (3, "int64")})
    for message in (SECOND, FIRST, again):
        world.register(CHESS, message)
    numbers = {schema.schema_id for schema, _ in world.registry.snapshot().placed(CHESS.key)}
    last = max(numbers)
    world.ingest(good(1), Event(CHESS, 2, SECOND.payload(points=2, player="before")))
    world.split()
    world.ingest(good(3))
    world.split()
    world.ingest(Event(CHESS, last, again.payload(points=4, player="after")), good(5))
    world.split()
    kept = {
        row["points"]: [value for name, value in row.items() if value in ("before", "after")]
        for row in world.contents()
    }
    assert kept == {1: [], 2: ["before"], 3: [], 4: ["after"], 5: []}
    is_right(world, 5)
