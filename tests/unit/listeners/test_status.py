"""What each status of a stream means, which the judgement, pages, causes and alerts all take from here."""

import re
from pathlib import Path

import pytest

from listeners.sample import Lane
from listeners.status import STATUSES, Status

ROOT = Path(__file__).resolve().parents[3]
ROOMS = (
    "app",
    "listeners",
    "pipeline/cli",
    "pipeline/control",
    "pipeline/data",
    "pipeline/health",
    "pipeline/store",
    "pipeline/telemetry",
)


def test_each_status_is_of_one_class_and_worse_ones_follow() -> None:
    """Unknown is trouble and never well; from good to bad a stream is well, recovering, late, then bad."""
    classes = [(each.is_well, each.is_recovering, each.is_late, each.is_bad) for each in Status]
    assert all(sum(each) == 1 for each in classes)
    assert classes == sorted(classes, reverse=True)
    assert {each for each in Status if each.is_well} == {Status.RUNNING, Status.PAUSED}
    assert {each for each in Status if each.is_late} == {Status.AT_RISK, Status.LAGGING, Status.UNKNOWN}
    assert {each for each in Status if each.is_trouble} == {each for each in Status if each.is_late or each.is_bad}


@pytest.mark.parametrize("status", Status)
def test_a_status_is_held_by_its_severity(status: Status) -> None:
    """What a series holds as a number is the status again, and its word is its name in the store."""
    assert STATUSES[status.severity] is status
    assert status == status.name == str(status)


def test_a_status_is_spelled_once() -> None:
    """Judgement, incidents, pages and telemetry name a status by the enum: a set of bare words would not follow it."""
    spelled = re.compile("|".join(f'"{each}"' for each in Status if str(each) not in set(map(str, Lane))))
    found = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path != ROOT / "listeners/status.py" and spelled.search(path.read_text())
    ]
    assert found == []
