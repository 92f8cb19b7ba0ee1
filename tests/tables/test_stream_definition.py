"""The protocol is the same for any kind of stream: a second definition has its laws without a line of its own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pipeline.base import failpoints
from tests.tables.toy_world import ToyDriver, ToyWorld


class Killed(BaseException):
    """The driver's process ends here."""


@pytest.fixture
def world(tmp_path: Path, engine: Engine) -> Iterator[ToyWorld]:
    with ThreadPoolExecutor(1) as pool:
        yield ToyWorld(tmp_path / "toy", engine, pool)


def killed(work: Callable[[], object], at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do the work of a driver that is killed at this hit of a fail-point; return whether it was."""
    hits = count(1)

    def on_hit(_point: str) -> None:
        if next(hits) == at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "on_hit", on_hit)
        try:
            work()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.long)])
def test_a_driver_killed_between_any_two_effects_lands_each_row_once(
    world: ToyWorld, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Laws L4 and L5: whichever effect was the last one, the next driver goes on from the target's own cursor."""
    for at in count(1, step):
        new = f"k{at}"  # its table is made in this round
        world.add({"old": ["a", "bcd"], new: ["ef"]})
        world.add({new: ["g"]})
        was_killed = killed(lambda: ToyDriver(world).catch_up(), at, monkeypatch)
        ToyDriver(world).catch_up()
        assert world.lengths("old") == world.words["old"]
        assert world.lengths(new) == world.words[new]
        if not was_killed:
            break
    assert at > 20, "there are fewer effects than a commit has"


def test_of_two_owners_one_commits(world: ToyWorld) -> None:
    """Law L4: an owner whose rows were split from a cursor that another one has moved adds nothing."""
    world.add({"old": ["a"]})
    rivals = iter([ToyDriver(world)])

    def overtake() -> None:
        for rival in rivals:
            rival.catch_up()

    first = ToyDriver(world, overtake)
    first.catch_up()
    assert world.lengths("old") == world.words["old"]
    assert first.roster.streams["old"].cursor == 1


def test_a_batch_that_does_not_connect_lands_nothing_until_catch_up_has_the_rows_before(world: ToyWorld) -> None:
    """Laws L4 and L7: a query that has begun behind rows leaves no gap in the target."""
    for _ in range(3):
        world.add({"old": ["a"]})
    driver = ToyDriver(world)
    driver.roster.streams["old"].complete_through = world.seq
    driver.run_pass(0, low=1, high=2)
    assert (driver.roster.streams["old"].cursor, driver.roster.streams["old"].behind) == (0, True)
    driver.catch_up()
    assert world.lengths("old") == world.words["old"]
    world.add({"old": ["bc"]})
    driver.run_pass(1, low=2, high=4)
    driver.run_pass(1, low=2, high=4)
    assert world.lengths("old") == world.words["old"]


def test_a_chunk_that_was_cut_short_is_repeated_with_its_rules(
    world: ToyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L5: what becomes of rows follows from them and the pinned set alone, also after a newer one has come."""
    world.chunk = 2
    for _ in range(4):
        world.add({"old": ["a"]})

    def dying(point: str) -> None:
        if point == "in_catch_up":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "on_hit", dying)
        with pytest.raises(Killed):
            ToyDriver(world).catch_up()
    world.rules = 2
    ToyDriver(world).catch_up()
    assert world.rules_of("old") == [1, 1, 2, 2]
