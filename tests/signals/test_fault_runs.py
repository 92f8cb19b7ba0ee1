"""Faults of a real demo: what is shown is right, soon, on each surface; see docs/causes.md for a run's table."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.demo.breaking.faults import FAULTS
from pipeline.store.database.states import Cause
from tests.signals.fault_runs import CALM_SECONDS, Run, carry_out, newly_open, plan, report
from tests.signals.fault_signs import SLOW_SINK, Opened, Sample, View, is_about, signs_of

GAMES = ("chess", "go", "ludo", "gem garden")
WELL = View(
    {("ingest", "main"): "running", ("group", "a"): "running", ("group", "b"): "running"},
    {"chess": ("a", "RUNNING"), "go": ("b", "RUNNING")},
    is_well=True,
    text="2 streams healthy",
)


def test_every_fault_is_done_once() -> None:
    """A fault without signs would be nobody's to see; the same seed is the same order."""
    faults = plan(3, GAMES)
    assert {name for name, _ in faults} == {*FAULTS, SLOW_SINK} - {"late"}
    assert plan(3, GAMES) == faults != plan(4, GAMES)
    games = [target for name, target in faults if name in FAULTS and FAULTS[name].target == "game"]
    assert len({*games}) == len(games) == 3
    assert all(signs_of(name, target).limit_seconds > 0 for name, target in faults)


def test_a_healthy_fleet_shows_no_fault() -> None:
    """No sign is seen where nothing is wrong."""
    metrics = {"group-a": [], "group-b": [], "ingest-main": [
        Sample("turnout_fleet_judged_timestamp_seconds", {}, 99.0),
        Sample("turnout_ingest_last_commit_timestamp_seconds", {}, 99.0),
    ]}  # fmt: skip
    for name, target in plan(1, GAMES):
        signs = signs_of(name, target)
        assert not signs.view(WELL, target), name
        assert not signs.metrics(metrics, metrics, target, 100.0), name


def test_a_dead_group_is_seen_whatever_its_neighbours_are() -> None:
    """A status is right of the group that was killed, not of any."""
    dead = replace(
        WELL, drivers={**WELL.drivers, ("group", "a"): "dead"}, games={**WELL.games, "chess": ("a", "UNKNOWN")},
        is_well=False,
    )  # fmt: skip
    assert signs_of("kill", "a").view(dead, "a")
    assert not signs_of("kill", "b").view(dead, "b")
    found = Opened("i1", str(Cause.DRIVER_GONE), "Group a lost its driver", "a", ("chess",), "bad")
    assert is_about(found, signs_of("kill", "a"), "a", {"chess": "a"})
    assert not is_about(found, signs_of("kill", "b"), "b", {"chess": "a"})


def test_a_game_that_joins_an_incident_is_seen() -> None:
    """A second poisoned game makes no second incident; one that was there before says nothing of this fault."""
    first = Opened("i1", str(Cause.POISON), "Rows of Chess refused as damaged", "a", ("chess",), "late")
    joined = replace(first, games=("chess", "go"))
    assert newly_open([], [first]) == [first]
    assert newly_open([first], [first]) == []
    assert newly_open([first], [joined]) == [joined]


def test_a_wrong_or_late_run_is_counted_as_one() -> None:
    """A late status or another cause at the end is a no in the table."""
    good = Run(
        "kill", "a", 10.0, "driver gone", dict.fromkeys(("command", "metrics", "page"), 3.0), cause="driver gone"
    )
    late = replace(good, seconds={**good.seconds, "page": 11.0})
    unseen, wrong = replace(good, seconds={**good.seconds, "page": None}), replace(good, cause="storage")
    assert [each.in_time for each in (good, late, unseen, wrong)] == [True, False, False, True]
    assert [each.is_right for each in (good, late, unseen, wrong)] == [True, True, True, False]
    assert "status in time: 2 of 4; right cause: 3 of 4" in report([good, late, unseen, wrong])


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_faults_of_a_real_demo_are_seen_and_explained(tmp_path: Path) -> None:
    """Nothing is raised while it is calm; then each status is right in time, and nine of ten causes are right."""
    options = argparse.Namespace(seed=1, games=8, rate=200.0, calm=CALM_SECONDS, only=())
    result = carry_out(tmp_path, options)
    assert result["raised_while_calm"] == []
    assert [run for run in result["runs"] if not run["in_time"]] == []
    right = [run["is_right"] for run in result["runs"]]
    assert sum(right) >= 0.9 * len(right), result["runs"]
