"""Replies are lost between turnout and a bucket: at any request, in any order, no row is lost, doubled or changed."""

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import Conflict
from pipeline.data.maintenance import run as maintenance
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Settings
from tests.storage.buckets import FAULTS, Fault, bucket, proxied_apart
from tests.tables.repair_world import CHESS, GO, SECOND, World, broken, early, good, make_world

_SHARES = {"GET": 0.005, "HEAD": 0.02}
_SHARE = 0.5  # of the replies to all other requests, which change something
_IN_A_ROW = 4  # replies to one request: its client tries six times
_TRIES = 8
_SETTINGS = Settings(maintenance=Maintenance(small_files=2, bronze_commits=2, bronze_age_minutes=0.0))


class Losing:
    """Loses replies by chance, but not all to one request."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._lost: Counter[tuple[str, str]] = Counter()

    def __call__(self, method: str, path: str) -> Fault | None:
        if self._lost[method, path] == _IN_A_ROW or self._chance.random() >= _SHARES.get(method, _SHARE):
            del self._lost[method, path]
            return None
        self._lost[method, path] += 1
        return self._chance.choice(FAULTS)


def day(world: World) -> None:
    """Ingest, split, replay, compact and rebuild as drivers and operators do, again after each conflict."""
    for number in range(4):
        world.ingest(good(number), broken(), early(number), good(number, GO))
        _again(world.split)
    world.register(CHESS, SECOND)
    _again(lambda: _replay(world))
    _maintain(world)
    world.ingest(good(10), early(11))
    _again(world.split)
    _again(lambda: rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS))
    world.ingest(good(12))
    _again(world.split)
    _maintain(world)


def _again(act: Any) -> None:
    for _ in range(_TRIES):
        try:
            act()
        except (Conflict, OSError):  # a driver or an operator comes again
            continue
        return
    act()


def _replay(world: World) -> None:
    replay_all(
        world.paths, world.environment, world.registry.snapshot, world.known(), Selection(), dry_run=False
    )  # fmt: skip


def _maintain(world: World) -> None:
    for _ in range(_TRIES):
        done = maintenance.one_round(_SETTINGS, world.paths, 2e9, thorough=True)
        if all(report.error is None for report in done.tables):
            return
    assert [report.error for report in done.tables if report.error] == []


def expected(root: Path) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """Return the rows and refusals of a day in a folder, where no reply is lost."""
    world = make_world(root)
    day(world)
    return world.contents(), world.refused()


@pytest.mark.proves("G230")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_a_day_of_lost_replies_gives_the_same_rows(seed: int, tmp_path: Path) -> None:
    """Law L4: a commit whose reply was lost is no lost race; values, refusals and verify's counts are a folder's."""
    wanted = expected(tmp_path / "folder")
    with bucket() as url, proxied_apart(os.environ["AWS_ENDPOINT_URL"], Losing(seed)) as between:
        world = make_world(tmp_path / "bucket", f"{url}/prod")
        between.loses.set()
        day(world)
        between.loses.clear()
        assert (world.contents(), world.refused()) == wanted
        balance = world.verify()
        assert balance.problems == ()
        assert balance.ok
        assert sum(between.lost.values()) > 100, "the proxy lost nothing"
