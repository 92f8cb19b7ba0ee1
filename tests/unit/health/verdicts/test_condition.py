"""How a group is, judged once: every predicate of each case, so that no two readers can differ about it."""

from dataclasses import replace

import pytest

from pipeline.health.verdicts.condition import GroupCondition
from tests.unit.health.verdicts.condition_world import (
    DIED_AT,
    NOW,
    GroupCase,
    begun,
    condition,
    died,
    driver,
    lease,
    lives,
    look,
    tries,
)

LOCAL = GroupCase(backend="local")
PREDICATES = ("has_process", "is_trying", "may_live", "may_return", "is_lost", "is_gone")


def holding(judged: GroupCondition) -> set[str]:
    return {each for each in PREDICATES if each != "is_gone" and getattr(judged, each)} | (
        {"is_gone"} if judged.gone_since is not None else set()
    )


CASES: dict[str, tuple[GroupCase, str, str]] = {
    "a driver that beats lives": (GroupCase(driver=driver(ago=1.0)), "running", "may_live"),
    "one that was heard of a minute ago may live": (
        GroupCase(driver=driver(ago=40.0)),
        "unknown",
        "may_live may_return",
    ),
    "one that is silent for longer is lost": (
        GroupCase(driver=driver(ago=61.0)),
        "unknown",
        "may_return is_lost is_gone",
    ),
    "after two minutes nobody waits for it": (GroupCase(driver=driver(ago=121.0)), "unknown", "is_lost is_gone"),
    "one that has failed tries again for a minute": (
        GroupCase(driver=driver("failed", 59.0)),
        "failed",
        "may_live may_return",
    ),
    "one that has failed long ago is gone": (GroupCase(driver=driver("failed")), "failed", "is_lost is_gone"),
    "one that ended in order was stopped on purpose": (GroupCase(driver=driver("stopped")), "stopped", ""),
    "one whose clock is wrong lives": (GroupCase(driver=driver("skewed", 1.0)), "unknown", "may_live may_return"),
    "one that never was is not missed": (GroupCase(), "not_started", ""),
    "one that holds its lease may live, however silent it is": (
        GroupCase(driver=driver(), lease=lease()),
        "unknown",
        "has_process may_live",
    ),
    "one that lost its lease does not live": (
        GroupCase(driver=driver(ago=2.0), lease=lease(-1.0)),
        "unknown",
        "may_return is_lost is_gone",
    ),
    "one that the controller runs lives": (
        replace(LOCAL, driver=driver(ago=1.0), lease=lease(), run=begun(900.0, pid=7)),
        "running",
        "has_process may_live",
    ),
    "the same without leases": (
        replace(LOCAL, driver=driver(ago=1.0, pid=8), run=begun(100.0), ended=tries()),
        "running",
        "has_process may_live",
    ),
    "a first start is nothing that was lost": (
        replace(LOCAL, run=begun(5.0), lived=None),
        "starting",
        "has_process may_live",
    ),
    "a start after an end in order is none either": (
        replace(LOCAL, run=begun(5.0), ended=(replace(died(9.0), died=False),)),
        "starting",
        "has_process may_live",
    ),
    "a start after a death is a try": (
        replace(LOCAL, run=begun(5.0), ended=tries()),
        "starting",
        "has_process is_trying may_live is_lost",
    ),
    "a try whose process is not known yet is one": (
        replace(LOCAL, run=begun(5.0, pid=None), ended=tries()),
        "starting",
        "has_process is_trying may_live is_lost",
    ),
    "a start beside a driver that holds the lease is none": (
        replace(LOCAL, run=begun(5.0), ended=tries(), lease=lease()),
        "starting",
        "has_process may_live",
    ),
    "a start that hangs is no try, and has a process": (
        replace(LOCAL, run=begun(130.0), ended=tries()),
        "unknown",
        "has_process is_lost",
    ),
    "a driver that hangs without its lease is lost, and has a process": (
        replace(LOCAL, driver=driver(ago=2.0), lease=lease(-1.0), run=begun(900.0, pid=7)),
        "unknown",
        "has_process may_return is_lost",
    ),
    "a death on record counts at once": (replace(LOCAL, ended=(died(1.0),)), "dead", "may_return is_lost"),
    "so it does where the driver said that it failed": (
        replace(LOCAL, driver=driver("failed", 2.0, pid=8), ended=(died(1.0),)),
        "failed",
        "may_return is_lost",
    ),
    "an end in order is nothing that was lost": (
        replace(LOCAL, ended=(replace(died(200.0), died=False),)),
        "stopped",
        "",
    ),
    "three starts that failed since one lived: it cannot be started": (
        replace(LOCAL, driver=driver(), ended=tries()),
        "dead",
        "may_return is_lost is_gone",
    ),
    "the same where no driver ever reported": (replace(LOCAL, ended=tries()), "dead", "may_return is_lost is_gone"),
    "the same where each says that it failed": (
        replace(LOCAL, driver=driver("failed", 100.0), ended=tries(pid=7)),
        "failed",
        "may_return is_lost is_gone",
    ),
    "two tries are too few": (replace(LOCAL, ended=tries(2)), "dead", "may_return is_lost"),
    "starts before it lived are none": (replace(LOCAL, ended=tries(), lived=NOW - 250), "dead", "may_return is_lost"),
    "a driver that starts and dies of its work can be started": (
        replace(LOCAL, driver=driver(ago=100.0), ended=tries(pid=7)),
        "dead",
        "may_return is_lost",
    ),
    "a driver that beats after the end on record is another process": (
        replace(LOCAL, driver=driver(ago=2.0), ended=tries()),
        "running",
        "may_live",
    ),
    "a death before the clock was set back is waited for by nobody": (
        replace(LOCAL, ended=(died(-3600.0),)),
        "dead",
        "is_lost",
    ),
}


@pytest.mark.parametrize(("group", "state", "holds"), CASES.values(), ids=CASES.keys())
def test_what_holds_of_a_group(group: GroupCase, state: str, holds: str) -> None:
    """Each case is its own sentence; what is wanted of the group changes nothing of how its driver is."""
    for desired in ("running", "drained", "stopped"):
        judged = condition(replace(group, desired=desired))
        assert (judged.desired, judged.liveness.state, holding(judged)) == (desired, state, set(holds.split()))


def test_since_when_no_driver_lives_and_why_none_can_be_started() -> None:
    """Of what another tool starts the last heartbeat says it, of our own the end of the last run that lived."""
    foreign, local = condition(GroupCase(driver=driver())), condition(replace(LOCAL, ended=tries()))
    assert (foreign.gone_since, local.gone_since) == (NOW - 700, DIED_AT)
    assert foreign.why_gone == "turnout does not start it: its driver is silent for 700 s"
    assert local.why_gone == "the last start ended with: exit code 3"
    ahead = condition(replace(LOCAL, ended=tries(), lived=NOW + 3600))
    assert ahead.gone_since == NOW + 3600, "the clock was set back; who reads it knows since when it was watched"


def test_deaths_of_the_last_hour_are_counted() -> None:
    """An end that was asked for is none, nor is one of more than an hour ago or ahead, where the clock was set back."""
    in_order, old, ahead = replace(died(50.0), died=False), died(3601.0), died(-3601.0)
    judged = condition(replace(LOCAL, ended=(died(9.0), in_order, died(3599.0), old, ahead)))
    assert [NOW - (each.ended_at or 0.0) for each in judged.deaths] == [9.0, 3599.0]


DEAD = replace(LOCAL, ended=(died(1.0),))


def fleet(*kinds: GroupCase, living: int) -> str | None:
    groups = [replace(each, name=f"dead-{number}") for number, each in enumerate(kinds)]
    return look(*groups, *(lives(f"live-{number}") for number in range(living))).mass_failure


@pytest.mark.parametrize(
    ("lost", "living", "is_mass"),
    [
        ((DEAD,), 0, False), ((DEAD,), 1, False), ((DEAD,) * 2, 0, True), ((DEAD,) * 2, 1, True),
        ((DEAD,) * 2, 2, False), ((DEAD,) * 3, 3, False), ((DEAD,) * 4, 3, True), ((DEAD,) * 3, 7, False),
        ((DEAD, GroupCase(driver=driver())), 1, True),
        ((DEAD, replace(LOCAL, run=begun(5.0), ended=tries())), 1, True),
        ((DEAD, replace(LOCAL, desired="drained", run=begun(5.0), ended=tries())), 1, True),
        ((DEAD, replace(LOCAL, run=begun(5.0))), 1, False),
        ((DEAD, GroupCase(driver=driver("stopped"))), 1, False),
        ((DEAD, GroupCase(driver=driver("failed", 1.0))), 1, False),
        ((DEAD, GroupCase()), 1, False),
        ((DEAD, replace(DEAD, desired="stopped")), 1, False),
        ((DEAD, DEAD, replace(DEAD, desired="stopped")), 2, False),
        ((DEAD, DEAD, GroupCase(desired="stopped")), 1, True),
    ],
)  # fmt: skip
@pytest.mark.proves("D16")
def test_more_than_half_without_a_driver_is_a_mass_failure(
    lost: tuple[GroupCase, ...], living: int, is_mass: bool
) -> None:
    """D16, D22: one rule for restarts and for moves; a try hides none, and who need not run is not counted."""
    assert (fleet(*lost, living=living) is not None) is is_mass


def test_a_mass_failure_names_the_groups() -> None:
    """A person reads how many and which; of many the first five."""
    said = fleet(*(DEAD,) * 6, living=1)
    assert said is not None
    assert said.startswith(
        "6 of 7 groups that should run have lost their driver (dead-0, dead-1, dead-2, dead-3, dead-4 and 1 more):"
    )
