"""A calm day compressed: what people do in order and what machines do by themselves raises no incident."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from listeners.status import Status
from pipeline.health.incidents.drivers import RESTART_SECONDS
from pipeline.health.incidents.evidence import NewestSchema, OpenOperation
from pipeline.health.verdicts.liveness import Liveness
from pipeline.store.database.states import Cause
from tests.unit.health.incidents.queue_world import OBJECTIVE, Fleet, Keeper

LOOK = 5.0
HOUR = 3600.0


class Day:
    """A fleet, looked at every minute, and every five seconds while something is done."""

    def __init__(self, seed: int) -> None:
        self.fleet, self.keeper, self.random = Fleet.made(f"calm {seed}"), Keeper(), Random(seed)
        self.raised: list[str] = []

    def passes(self, seconds: float, step: float = LOOK) -> None:
        for _ in range(max(1, round(seconds / step))):
            found = self.keeper.see(self.fleet.look(step))
            self.raised += [each.finding.title for each in found]

    @property
    def now(self) -> float:
        return self.fleet.now


def deploy(day: Day) -> None:
    """A release registers its schema first; its rows land, with the usual bad ones."""
    each = day.random.choice(list(day.fleet.games.values()))
    each.seen = {"schema": NewestSchema(day.random.randint(2, 9), day.now, "ann", first_at=day.now - 1e6)}
    day.passes(600)


def restart(day: Day, *, by_operation: bool = True) -> None:
    """A driver ends in order, is started again, and works off what came meanwhile."""
    group = day.fleet.groups[day.random.choice(sorted(day.fleet.groups))]
    if by_operation:
        group.seen = {"operation": OpenOperation("0af4" * 8, "restart", "ann", day.now - 1)}
    group.liveness = Liveness("stopped", day.now, "is stopped")
    day.passes(day.random.uniform(5, 20))
    group.liveness = Liveness("starting", day.now, "is starting")
    day.passes(day.random.uniform(10, 30))
    group.liveness, group.seen, group.started_at = Liveness("running", day.now, None), {}, day.now
    for each in day.fleet.members(group.name):
        each.settled = None
        each.window.clear()
    day.passes(300)


def restart_by_hand(day: Day) -> None:
    """Likewise where a service manager does it, of which turnout knows nothing."""
    restart(day, by_operation=False)


def restart_ingest(day: Day) -> None:
    """Ingest ends in order and is started again; rows of these seconds wait in the source."""
    day.fleet.ingest, day.fleet.arriving = Liveness("stopped", day.now, "is stopped"), False
    day.passes(day.random.uniform(5, 20))
    day.fleet.ingest = Liveness("starting", day.now, "is starting")
    day.passes(day.random.uniform(10, 30))
    day.fleet.ingest, day.fleet.arriving = Liveness("running", day.now, None), True
    day.fleet.source_age = 0.6 * OBJECTIVE
    day.passes(15)
    day.fleet.source_age = 0.0
    day.passes(120)


def move(day: Day) -> None:
    """A game goes to another group, which reports it some seconds later."""
    each = day.random.choice(list(day.fleet.games.values()))
    where = day.random.choice([name for name in day.fleet.groups if name != each.group])
    each.seen = {"operation": OpenOperation("0af3" * 8, "move", "ann", day.now)}
    day.passes(10)
    day.fleet.groups[where].speed += 2 * each.rate
    each.group, each.seen = where, {**each.seen, "status": Status.STARTING, "reason": "assigned to another group"}
    day.passes(10)
    each.seen, each.settled = {}, None
    each.window.clear()
    day.passes(120)


def maintain(day: Day) -> None:
    """A round of maintenance makes commits slower for minutes, and takes a part of the machine."""
    before = {name: (group.commit_seconds, group.speed) for name, group in day.fleet.groups.items()}
    for group in day.fleet.groups.values():
        group.commit_seconds, group.speed = 2 * group.commit_seconds, 0.75 * group.speed
    day.passes(600)
    for name, (commit_seconds, speed) in before.items():
        day.fleet.groups[name].commit_seconds = commit_seconds
        day.fleet.groups[name].speed = max(speed, day.fleet.groups[name].speed)


ACTS: tuple[Callable[[Day], None], ...] = (deploy, restart, restart_by_hand, restart_ingest, move, maintain)


def a_day(seed: int) -> list[str]:
    """Return what was raised in a day whose hours each have an act, after a quiet night and before one."""
    day = Day(seed)
    for hour in range(24):
        is_night = hour < 6 or hour >= 22
        day.fleet.factor, day.fleet.gap = (0.1, 100.0) if is_night else (1.0, 40.0)
        until = day.now + HOUR
        day.passes(600, 60.0)
        if not is_night:
            day.random.choice(ACTS)(day)
        quiet = 0
        while day.now < until:
            quiet = quiet + 1 if is_night and quiet < 3 and day.random.random() < 0.5 else 0
            day.fleet.arriving = quiet == 0
            day.fleet.factor = (0.1 if is_night else 1.0) * (1.5 if day.random.random() < 0.05 else 1.0)
            day.passes(60, 60.0)
        day.fleet.arriving = True
    assert day.keeper.kept == {} or day.raised
    return day.raised


@pytest.mark.proves("G210")
@pytest.mark.parametrize("act", ACTS)
def test_acts_that_go_well_raise_nothing(act: Callable[[Day], None]) -> None:
    """Deployments, restarts, moves and maintenance that go well are nobody's trouble."""
    day = Day(1)
    day.passes(200)
    act(day)
    assert day.raised == []


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_calm_days_raise_nothing() -> None:
    """Twenty days of quiet nights and of an act in each hour of work have no incident."""
    raised = {seed: found for seed in range(20) if (found := a_day(seed))}
    assert raised == {}


def test_a_restart_that_does_not_end_is_raised() -> None:
    """A driver that ended in order and does not come back is an incident after a minute, with its operation's actor."""
    for operation, cause in (
        (OpenOperation("0af4" * 8, "restart", "ann", 0.0), Cause.OPERATOR),
        (None, Cause.DRIVER_GONE),
    ):
        day = Day(5)
        day.passes(120)
        group = day.fleet.groups["a"]
        group.liveness = Liveness("stopped", day.now, "is stopped")
        if operation is not None:
            group.seen = {"operation": replace(operation, requested_at=day.now)}
        day.passes(RESTART_SECONDS - 10)
        assert day.raised == []
        day.passes(30)
        assert {each.finding.cause for each in day.keeper.kept.values()} == {cause}


def test_ingest_that_does_not_come_back_is_raised() -> None:
    """Likewise of ingest."""
    day = Day(6)
    day.passes(120)
    day.fleet.ingest = Liveness("stopped", day.now, "is stopped")
    day.passes(RESTART_SECONDS - 10)
    assert day.raised == []
    day.passes(30)
    assert {each.finding.cause for each in day.keeper.kept.values()} == {Cause.INGEST_BEHIND}
