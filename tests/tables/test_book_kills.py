"""A closer that is killed at each hit of a fail-point, each time in a world of its own."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from pipeline.data.books.days import newest_revisions
from tests.tables.books_world import BEGIN, BooksWorld, books_of, row
from tests.tables.repair_world import CHESS, World, make_world
from tests.tables.silver_world import killed

_BEGIN: Final = BEGIN * 1_000_000


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("kills"))


def first(world: BooksWorld) -> None:
    """The first closing of a game, which makes both tables."""
    world.ingest(row(5.0, name="a"), row(6.0, name="a"), row(7.0, kind="broken"))
    world.split()
    world.silver()
    world.complete(120.0)


def later(world: BooksWorld) -> None:
    """A closing with an entry for an earlier day, and a column that the earlier one did not have."""
    first(world)
    world.close()
    world.promise()
    world.replay()
    world.ingest(row(10.0), row(150.0, kind="early"))
    world.split()
    world.silver()
    world.complete(240.0)


def again(world: BooksWorld) -> None:
    """A closing of a reopened day."""
    first(world)
    world.close()
    world.promise()
    world.reopen(_BEGIN, 130.0)
    world.ingest(row(10.0))
    world.split()
    world.silver()
    world.complete(140.0)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_closing_survives_a_kill_at_each_effect(tmp_path: Path, empty: World) -> None:
    """Whatever effect was the last, each day closes once, with all rows, and earlier revisions stay."""
    kills = 0
    scenes: dict[Callable[[BooksWorld], None], list[tuple[int, int]]] = {
        first: [(0, 1)], later: [(0, 1), (100, 1)], again: [(0, 1), (0, 2)],
    }  # fmt: skip
    for scene, expected in scenes.items():
        for at in count(1):
            with books_of(tmp_path / f"{scene.__name__}-{at}", empty) as world:
                scene(world)
                was_killed = killed(world.close, at)
                states = {each.state for each in world.books().look(CHESS).days}
                assert states <= {"open", "reopened", "closing", "closed"}
                assert world.books().look(CHESS).obstacle is None
                world.close()
                world.promise()
                known = world.books().settle(CHESS)
                found = [((each.day - _BEGIN) // 1_000_000, each.revision) for each in known]
                assert (found, [each.number for each in known]) == (expected, list(range(1, len(expected) + 1))), at
                assert set(newest_revisions(known)) == {each.day for each in world.books().look(CHESS).days}
                world.check()
            if not was_killed:
                break
            kills += 1
    assert kills >= 20
