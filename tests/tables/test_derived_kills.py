"""A driver of silver and gold is killed between every two effects, again and again, each time in a world of its own."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.tables.gold_world import GoldWorld
from tests.tables.silver_world import Row, SilverWorld, hooked, killed

KILLS: Final = 20  # between each two effects
Gap = tuple[str, str]
"""Two fail-points that follow each other."""


def rows(random: Random) -> list[Row]:
    """Some rows, of which some are second ones of an event."""
    return [
        Row(random.choice(["a", "b", "c"]), random.choice([0.0, 1.0, 3.0]), event=random.choice([0.0, 30.0]))
        for _ in range(random.choice([2, 3, 4]))
    ]


def gaps_of(work: Callable[[], object]) -> list[Gap]:
    """Do some work, and return between which points it can be killed, in order."""
    reached = ["begin"]
    with hooked(reached.append):
        work()
    return list(pairwise(reached))


def chosen(gaps: Sequence[Gap], kills: Counter[Gap]) -> Iterator[tuple[int, Gap]]:
    """Yield at which hit to kill next, of each gap that was not killed often enough."""
    taken: set[Gap] = set()
    for at, gap in enumerate(gaps, 1):
        if gap not in taken and kills[gap] < KILLS:
            taken.add(gap)
            yield at, gap


def silver_world(root: Path, kind: str, seed: int) -> SilverWorld:
    """A world whose silver driver has a first generation, a step, or a new generation to do."""
    random, world = Random(seed), SilverWorld(root)
    world.commit(*rows(random))
    if kind != "first":
        world.carry()
        world.commit(*rows(random))
        world.commit(*rows(random))
    if kind == "generation":
        world.rebuild()
    return world


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["first", "step", "generation"])
def test_silver_is_killed_twenty_times_between_every_two_effects(tmp_path: Path, kind: str) -> None:
    """Laws L3, L4 and L12: wherever a driver of silver dies, the next one lands each event once."""
    kills: Counter[Gap] = Counter()
    for seed in count():
        gaps = gaps_of(silver_world(tmp_path / "whole", kind, seed).carry)
        shutil.rmtree(tmp_path / "whole")
        for at, gap in chosen(gaps, kills):
            world = silver_world(tmp_path / "killed", kind, seed)
            assert killed(world.carry, at)
            kills[gap] += 1
            world.carry()
            world.check()
            shutil.rmtree(tmp_path / "killed")
        if not list(chosen(gaps, kills)):
            break
    assert len(kills) > 5, "there are fewer effects than a commit has"


def gold_world(root: Path, kind: str, seed: int) -> GoldWorld:
    """A world whose gold driver has a first generation, a window, or a new generation to compute."""
    random, world = Random(seed), GoldWorld(root)
    world.commit(*rows(random))
    world.carry()
    world.beat(100)
    if kind != "first":
        world.close()
        world.commit(*(Row(each.id, each.at, event=world.elapsed) for each in rows(random)))
        if kind == "generation":
            world.rebuild()
        world.carry()
        world.beat(100)
    return world


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["first", "step", "generation"])
def test_gold_is_killed_twenty_times_between_every_two_effects(tmp_path: Path, kind: str) -> None:
    """Laws L3, L4 and L12: wherever a driver of gold dies, the next one computes each window once."""
    kills: Counter[Gap] = Counter()
    for seed in count():
        gaps = gaps_of(partial(GoldWorld.close, gold_world(tmp_path / "whole", kind, seed)))
        shutil.rmtree(tmp_path / "whole")
        for at, gap in chosen(gaps, kills):
            world = gold_world(tmp_path / "killed", kind, seed)
            assert world.kill_gold(at)
            kills[gap] += 1
            world.close()
            world.check_gold()
            shutil.rmtree(tmp_path / "killed")
        if not list(chosen(gaps, kills)):
            break
    assert len(kills) > 5, "there are fewer effects than a commit has"
