"""A driver of silver and gold is killed between every two effects, again and again, each time in a world of its own."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import pytest

from tests.tables.gold_world import GoldWorld
from tests.tables.silver_world import Row, SilverWorld, hooked, killed

KILLS: Final = 20  # between each two effects
_MOST_SEEDS: Final = 200  # some gaps are in few worlds
KINDS: Final = ("first", "step", "generation")
Gap = tuple[str, str]
"""Two fail-points that follow each other."""
W = TypeVar("W", bound=SilverWorld)


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


def copied(world: W, root: Path) -> W:
    """Return a copy of a world in a folder of its own."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(world.root, root)
    made = deepcopy(world)
    made.root = root
    return made


def kill_all(
    made: Callable[[Path, str, int], W], work: Callable[[W], object], kill: Callable[[W, int], bool],
    check: Callable[[W], None], root: Path,
) -> Counter[Gap]:  # fmt: skip
    """Kill the work in worlds of each kind until each gap was killed often enough; return how often each was."""
    kills: Counter[Gap] = Counter()
    for seed in range(_MOST_SEEDS):
        for kind in KINDS:
            world = made(root / f"{kind}-{seed}", kind, seed)
            gaps = gaps_of(partial(work, copied(world, root / "whole")))
            for at, gap in chosen(gaps, kills):
                dying = copied(world, root / "killed")
                assert kill(dying, at)
                kills[gap] += 1
                work(dying)
                check(dying)
            shutil.rmtree(world.root)
        if min(kills.values()) >= KILLS:
            break
    return kills


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


def kill_silver(world: SilverWorld, at: int) -> bool:
    return killed(world.carry, at)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_silver_is_killed_twenty_times_between_every_two_effects(tmp_path: Path) -> None:
    """Laws L3, L4 and L12: wherever a driver of silver dies, the next one lands each event once."""
    kills = kill_all(silver_world, SilverWorld.carry, kill_silver, SilverWorld.check, tmp_path)
    assert len(kills) > 10, "there are fewer effects than a step and a generation have"
    assert min(kills.values()) >= KILLS
    print(sum(kills.values()), "kills between", len(kills), "pairs of points")  # noqa: T201 - a number of the long tier


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
def test_gold_is_killed_twenty_times_between_every_two_effects(tmp_path: Path) -> None:
    """Laws L3, L4 and L12: wherever a driver of gold dies, the next one computes each window once."""
    kills = kill_all(gold_world, GoldWorld.close, GoldWorld.kill_gold, GoldWorld.check_gold, tmp_path)
    assert len(kills) > 10, "there are fewer effects than a step and a generation have"
    assert min(kills.values()) >= KILLS
    print(sum(kills.values()), "kills between", len(kills), "pairs of points")  # noqa: T201 - a number of the long tier
