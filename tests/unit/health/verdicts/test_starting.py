"""A start of a whole environment is neither trouble nor well: what has not started yet is awaited, for two minutes."""

from dataclasses import replace
from typing import Any

from pipeline.health.headlines.pages import of_fleet, of_groups
from pipeline.health.headlines.standings import Situation
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.judgement import Judgement, judge_fleet
from pipeline.health.verdicts.liveness import ProcessRun
from pipeline.health.verdicts.processes import FleetFacts
from pipeline.health.verdicts.reported import AssignedGame, GroupIntent
from pipeline.store.rows import START_LIMIT_SECONDS, Driver
from tests.unit.health.verdicts.judgement_world import INGEST, LEVEL, NOW

GROUPS = {name: GroupIntent("running", "local", NOW - 8) for name in ("a", "b")}


def judged(*drivers: Driver, games: bool = True, groups: dict[str, GroupIntent] = GROUPS, **facts: Any) -> Judgement:
    known = {(each.kind, each.name): each for each in drivers}
    assigned = [AssignedGame("g", "a", None)] if games else []
    made = FleetFacts(NOW, known, {}, {}, assigned, source=LEVEL, groups=groups)
    return judge_fleet(replace(made, **facts), registered())


def young(driver: Driver, seconds: float = 5.0) -> Driver:
    return replace(driver, started_at=NOW - seconds)


def test_an_environment_that_was_just_made_starts() -> None:
    """Before any process has reported nothing is a problem, no game unknown, and every sentence says that it starts."""
    for drivers in ((), (young(INGEST),)):
        found = judged(*drivers)
        assert found.problems == ()
        assert found.games["g"].status == "STARTING"
        said = of_fleet(Situation(found, (), ()))
        assert (said.tone, "healthy" in said.line) == ("busy", False)
        groups = of_groups(Situation(found, (), ()))
        assert (groups.text, groups.tone, groups.since) == ("2 of 2 groups' drivers starting: a, b", "busy", NOW - 8)
        assert found.stopped_groups == (), "nobody wants them stopped"


def test_a_start_that_takes_too_long_is_trouble() -> None:
    """After two minutes what has not started is missed, by name."""
    old = {name: replace(each, created_at=NOW - START_LIMIT_SECONDS - 1) for name, each in GROUPS.items()}
    found = judged(groups=old)
    assert {(each.kind, each.name) for each in found.problems} == {
        ("ingest", "main"), ("controller", "main"), ("group", "a"), ("group", "b"), ("stream", "g"),
    }  # fmt: skip


def test_a_process_that_lived_before_makes_others_missed_at_once() -> None:
    """Ingest has run for ten minutes: a controller and drivers that are not there did not come up with it."""
    kinds = {each.kind for each in judged(INGEST).problems}
    assert kinds == {"controller", "group", "stream"}


def test_an_end_or_a_death_in_a_start_is_trouble() -> None:
    """A driver that was ended after the start began is not on its way, and neither is a dead one."""
    stopped = replace(INGEST, started_at=NOW - 60, heartbeat_at=NOW - 2, state="stopped")
    controller = young(Driver("controller", "main", "host", 5, NOW, NOW - 1, "running", None, None), 30)
    assert [each.kind for each in judged(stopped, controller).problems] == ["ingest"]
    before = replace(stopped, heartbeat_at=NOW - 900)
    assert judged(before, controller).problems == (), "it ended before, and comes up with the others"
    died = ProcessRun(1, NOW - 6, NOW - 1, died=True, message="killed by SIGKILL")
    dead = judged(young(INGEST), controller, runs={("group", "a"): died}, ended={("group", "a"): [died]})
    assert ("group", "a") in {(each.kind, each.name) for each in dead.problems}


def test_an_operation_that_waits_needs_its_controller_also_in_a_start() -> None:
    """Somebody has submitted an operation, and nobody carries it out: that is trouble at once."""
    assert [each.kind for each in judged(young(INGEST), waiting_operations=1).problems] == ["controller"]
