"""What is known of cluster groups, made up: drivers, leases and runs around one moment."""

from dataclasses import dataclass, replace

from pipeline.health.verdicts.condition import Conditions, GroupCondition, judge_groups
from pipeline.health.verdicts.liveness import DriverFacts, HeldLease, ProcessRun
from pipeline.health.verdicts.reported import GroupIntent
from pipeline.store.rows import Driver

NOW = 1_000_000.0
DIED_AT = NOW - 700


@dataclass(frozen=True)
class GroupCase:
    """All that is known of one group; by default another tool starts it, and it was never started."""

    name: str = "a"
    desired: str = "running"
    backend: str = "none"
    driver: Driver | None = None
    lease: HeldLease | None = None
    run: ProcessRun | None = None  # that has not ended
    ended: tuple[ProcessRun, ...] = ()
    lived: float | None = DIED_AT


def facts(*groups: GroupCase, now: float = NOW) -> DriverFacts:
    keys = {each.name: ("group", each.name) for each in groups}
    runs = {keys[each.name]: each.run or next(iter(each.ended), None) for each in groups}
    return DriverFacts(
        now,
        {keys[each.name]: replace(each.driver, name=each.name) for each in groups if each.driver is not None},
        {keys[each.name]: each.lease for each in groups if each.lease is not None},
        {key: run for key, run in runs.items() if run is not None},
        ended={keys[each.name]: each.ended for each in groups},
        lived={keys[each.name]: each.lived for each in groups if each.lived is not None},
        groups={each.name: GroupIntent(each.desired, each.backend) for each in groups},
    )


def look(*groups: GroupCase, now: float = NOW) -> Conditions:
    return judge_groups(facts(*groups, now=now))


def condition(group: GroupCase) -> GroupCondition:
    return look(group).groups[group.name]


def driver(state: str = "running", ago: float = 700.0, pid: int = 7) -> Driver:
    error = "it broke" if state == "failed" else None
    return Driver("group", "a", "h", pid, NOW - ago - 50, NOW - ago, state, error, None, run_id=pid)


def lease(left: float = 20.0, pid: int = 7) -> HeldLease:
    return HeldLease(("h", pid), NOW - 900, NOW + left, run_id=pid)


def begun(ago: float, pid: int | None = 8) -> ProcessRun:
    return ProcessRun(pid or 0, NOW - ago, None, died=False, message=None, is_known=pid is not None)


def died(ago: float, lived: float = 5.0, pid: int = 8) -> ProcessRun:
    return ProcessRun(pid, NOW - ago - lived, NOW - ago, died=True, message="exit code 3")


def tries(count: int = 3, pid: int = 8) -> tuple[ProcessRun, ...]:
    """Return runs that died soon after they began, the newest first."""
    return tuple(died(100.0 * number, pid=pid) for number in range(1, count + 1))


def lives(name: str) -> GroupCase:
    return GroupCase(name, driver=driver(ago=1.0), lease=lease())
