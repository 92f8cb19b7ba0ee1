"""A start of a whole environment is neither trouble nor well: what has not started yet is awaited, for two minutes."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.health.headlines.pages import of_fleet, of_groups
from pipeline.health.headlines.standings import Situation
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.judgement import Judgement, judge_fleet
from pipeline.health.verdicts.liveness import Liveness, ProcessRun, storage_wait
from pipeline.health.verdicts.processes import FleetFacts
from pipeline.health.verdicts.reported import AssignedGame, GroupIntent
from pipeline.health.verdicts.starting import since_when
from pipeline.store.rows import START_LIMIT_SECONDS, Driver
from tests.unit.health.verdicts.judgement_world import CONTROLLER, DRIVER, INGEST, LEVEL, NOW, REPORTED

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


KILLED_AT = NOW - 30
KILLED = ProcessRun(1, NOW - 900, KILLED_AT, died=True, message="killed by SIGKILL")


def restarted(*ended: ProcessRun, seconds: float, state: str, said: str = "STARTING") -> Judgement:
    """Return the judgement of a group whose driver was started again some seconds before now; none: not registered."""
    known = replace(DRIVER, pid=2, run_id=9, started_at=NOW - seconds, heartbeat_at=NOW - 1, state=state)
    at = NOW - seconds + 5 if state == "running" else NOW - 40
    reported = replace(REPORTED, status=said, status_since=at, updated_at=NOW - 1 if state == "running" else at)
    run = ProcessRun(9, NOW - seconds - 10, None, died=False, message=None)
    drivers = (INGEST, CONTROLLER, DRIVER if state == "none" else known)
    key, known_games = ("group", "a"), [AssignedGame("g", "a", reported)]
    found = {(each.kind, each.name): each for each in drivers}
    facts = FleetFacts(
        NOW, found, {}, {key: run}, known_games, source=LEVEL, groups={"a": GROUPS["a"]}, ended={key: ended}
    )
    return judge_fleet(facts, registered())


def test_a_start_after_a_death_has_one_beginning() -> None:
    """A group starts since its driver was gone until its games land: no step of the new process begins it again."""
    steps = [
        restarted(KILLED, seconds=5.0, state="none"),
        restarted(KILLED, seconds=5.0, state="starting"),
        restarted(KILLED, seconds=10.0, state="running"),
    ]
    for found in steps:
        assert (found.games["g"].status, found.games["g"].since) == ("STARTING", KILLED_AT)
    for found in steps[:2]:
        said = of_groups(Situation(found, (), ()))
        assert (said.text, said.since) == ("1 of 1 groups' drivers starting: a", KILLED_AT)
    state = steps[1].driver("group", "a")
    assert state is not None
    assert state.liveness.reason == "is starting, for 30 s"
    dead = replace(DRIVER, heartbeat_at=KILLED_AT - 3)
    gone = judged(INGEST, CONTROLLER, dead, groups={"a": GROUPS["a"]}, runs={("group", "a"): KILLED},
                  ended={("group", "a"): (KILLED,)}).driver("group", "a")  # fmt: skip
    assert gone is not None
    assert (gone.liveness.state, gone.liveness.gone_since) == ("dead", KILLED_AT)


@pytest.mark.parametrize(
    ("ended", "since"),
    [
        ((), NOW - 15),
        ((replace(KILLED, run_id=8, started_at=NOW - 24, ended_at=NOW - 23, is_known=False), KILLED), KILLED_AT),
        ((replace(KILLED, started_at=NOW - 100),), KILLED_AT),
        ((replace(KILLED, died=False),), KILLED_AT),
        ((replace(KILLED, died=False, ended_at=NOW - 400),), NOW - 15),
        ((replace(KILLED, ended_at=NOW - 400),), NOW - 400),
    ],
    ids=["the first", "after a start that failed", "lived shortly", "restarted", "stopped for long", "dead for long"],
)
def test_a_start_begins_when_its_group_had_no_driver(ended: tuple[ProcessRun, ...], since: float) -> None:
    """Failed starts prolong one absence, a short life ends it; after a long stop on purpose the start begins it."""
    found = restarted(*ended, seconds=5.0, state="starting").driver("group", "a")
    assert found is not None
    assert (found.liveness.since, found.liveness.gone_since) == (NOW - 5, since)


def test_a_game_that_starts_later_has_its_own_beginning() -> None:
    """A driver that has run for long starts a game that came to it: that is no start of the group."""
    reported = replace(REPORTED, status="STARTING", status_since=NOW - 3)
    assert since_when(reported, Liveness("running", NOW - 600, None, gone_since=NOW - 700), DRIVER) == NOW - 3
    assert since_when(replace(reported, status="RUNNING"), Liveness("running", NOW - 9, None, gone_since=NOW - 30),
                      replace(DRIVER, started_at=NOW - 9)) == NOW - 3  # fmt: skip


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


def test_a_driver_that_waits_for_its_disk_in_a_start_is_no_trouble() -> None:
    """All tables are opened at once then: it is a part of the start, and trouble only after it."""
    wait = storage_wait(15.0, "for its disk or its processor")
    group = replace(DRIVER, error=wait, run_id=None)
    known = (young(INGEST, 69), young(CONTROLLER, 69), young(group, 60))
    found = judged(*known, groups={"a": GROUPS["a"]})
    assert found.problems == ()
    said = of_groups(Situation(found, (), ()))
    assert (said.text, said.tone, said.since) == ("1 of 1 groups' drivers starting: a", "busy", NOW - 60)
    assert of_fleet(Situation(found, (), ())).tone == "busy"
    for later in (
        (INGEST, CONTROLLER, group),
        (young(INGEST, 69), young(CONTROLLER, 69), replace(group, error="broke")),
    ):
        problems = judged(*later, groups={"a": GROUPS["a"]}).problems
        assert ("group", "a") in {(each.kind, each.name) for each in problems}


def test_an_operation_that_waits_needs_its_controller_also_in_a_start() -> None:
    """Somebody has submitted an operation, and nobody carries it out: that is trouble at once."""
    assert [each.kind for each in judged(young(INGEST), waiting_operations=1).problems] == ["controller"]
