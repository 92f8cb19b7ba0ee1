"""Whether maintenance is done: judged from its process and its rounds, shown and exported alike."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, insert, update

from pipeline.cli.main import cli
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.judgement import Judgement, judge_fleet
from pipeline.health.verdicts.liveness import HeldLease
from pipeline.health.verdicts.processes import FleetFacts
from pipeline.health.verdicts.upkeep import UpkeepFacts, in_hours, limit_seconds
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.report_tables import maintenance_rounds
from pipeline.store.database.tables import ingest_generations
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.reports import record_round, write_backlog
from pipeline.store.rows import Driver, RoundFacts, SourceReading

NOW = 1_000_000.0
HOUR = 3600.0
LIMIT = 2 * HOUR
GOOD = RoundFacts(NOW - 400, NOW - 300, 1, 302, 0, 9_120, 640, None)
BAD = RoundFacts(NOW - 100, NOW - 60, 0, 302, 1, 640, 640, "tables/chess: OSError: no space")
ALIVE = Driver("maintenance", "main", "h", 7, NOW - 900, NOW - 1, "running", None, None)
INGEST = Driver("ingest", "main", "h", 8, NOW - 900, NOW - 1, "running", None, None)
SINCE = NOW - 9 * HOUR
LEVEL = SourceReading(NOW - 1, 0.0, 0.0, 0, 60.0)


def judged(upkeep: UpkeepFacts, driver: Driver | None = ALIVE, *, lease_ago: float = -20.0) -> Judgement:
    known = {(each.kind, each.name): each for each in (INGEST, driver) if each is not None}
    leases = {} if driver is None else {("maintenance", "main"): HeldLease(("h", 7), NOW - 900, NOW - lease_ago)}
    facts = FleetFacts(NOW, known, leases, {}, groups={}, games=[], upkeep=upkeep, source=LEVEL)
    return judge_fleet(facts, registered())


def texts(found: Judgement) -> list[str]:
    return [each.text for each in found.problems if each.kind == "maintenance"]


def test_what_runs_and_was_done_lately_is_healthy_and_says_how_its_last_round_went() -> None:
    """Its line has the last round; one that failed is said at once, and is a problem when none ended well for long."""
    well = judged(UpkeepFacts(LIMIT, SINCE, GOOD, GOOD))
    state = well.driver("maintenance", "main")
    assert state is not None
    assert well.healthy
    assert state.liveness.reason == "the last round ended 5 min ago: 9,120 files became 640 in 302 tables"
    failed = judged(UpkeepFacts(LIMIT, SINCE, BAD, GOOD)).driver("maintenance", "main")
    assert failed is not None
    assert not failed.is_problem
    assert failed.liveness.reason == (
        "the last round ended 1 min ago and failed in 1 of 302 tables (tables/chess: OSError: no space)"
    )


OLD = RoundFacts(NOW - 4 * HOUR, NOW - 3 * HOUR, 1, 2, 0, 5, 1, None)
RUNS_IT = ". `turnout controller run` runs it"
PROBLEMS = {
    "each round fails": (
        UpkeepFacts(LIMIT, SINCE, BAD, OLD), ALIVE,
        "no round of maintenance has ended well for 3 h; maintenance the last",
    ),
    "none ever ended": (
        UpkeepFacts(LIMIT, SINCE), ALIVE, "no round of maintenance has ever ended well; maintenance running"
    ),
    "nothing ever did it": (
        UpkeepFacts(LIMIT, SINCE), None,
        f"no round of maintenance has ever ended well; maintenance was never started{RUNS_IT}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("upkeep", "driver", "said"), PROBLEMS.values(), ids=PROBLEMS.keys())
@pytest.mark.proves("G137")
def test_what_is_overdue_is_a_problem(upkeep: UpkeepFacts, driver: Driver | None, said: str) -> None:
    """No round that ended well within the limit, counted from ingest's first start: unhealthy, with the way out."""
    found = judged(upkeep, driver)
    (text,) = texts(found)
    assert text.startswith(said)
    assert found.count_problems()["maintenance"] == 1
    assert "no round of maintenance has e" in found.headline
    assert not judged(UpkeepFacts(LIMIT, NOW - HOUR), driver).problems, "in a young environment none is due yet"


def test_a_process_that_lost_its_lease_is_a_problem_before_a_round_is_due() -> None:
    """Its lease ran out: it has ended or hangs; the headline says so."""
    found = judged(UpkeepFacts(LIMIT, SINCE, GOOD, GOOD), lease_ago=5.0)
    assert texts(found)[0].startswith("maintenance lost its lease 5 s ago")
    assert found.headline.endswith("maintenance silent")


def test_where_it_is_left_to_others_nothing_is_missed() -> None:
    """`maintenance.backend = none`: none is shown where none ever ran, and none is overdue."""
    assert limit_seconds(Maintenance(backend="none")) is None
    assert judged(UpkeepFacts(None, SINCE), None).driver("maintenance", "main") is None
    assert judged(UpkeepFacts(None, SINCE, OLD, OLD)).healthy
    assert judged(UpkeepFacts(LIMIT, None), None).healthy, "nothing was ever ingested"


def test_hours_and_the_time_until_a_round_is_missed() -> None:
    """The time outside the hours is added to the limit, so a night's round is not missed by day."""
    assert limit_seconds(Maintenance()) == 2 * HOUR
    assert limit_seconds(Maintenance(interval_minutes=60)) == 4 * HOUR
    assert limit_seconds(Maintenance(hours="22-6")) == 18 * HOUR
    assert limit_seconds(Maintenance(hours="0-24")) == 2 * HOUR
    open_hours = {hours: [at for at in range(24) if in_hours(hours, at * HOUR)] for hours in ((22, 6), (1, 3), (0, 24))}
    assert open_hours == {(22, 6): [*range(6), 22, 23], (1, 3): [1, 2], (0, 24): [*range(24)]}


def test_what_is_shown_is_what_is_exported(engine: Engine, tmp_path: Path) -> None:
    """The fleet, the exported numbers and the store's rows agree, on both databases; unknown is no number."""
    begun(engine)
    found = read_controller_metrics(engine, read_fleet(engine))
    assert (found.last_round, found.last_good_round_at) == (None, None)
    assert found.maintenance_overdue_seconds is not None
    assert found.maintenance_overdue_seconds > 6 * HOUR
    record_round(engine, 2.0, [], tables=3, files_before=9, files_after=4)
    record_round(engine, 2.0, ["bronze: E: x"], tables=3, files_before=4, files_after=4)
    found = read_controller_metrics(engine, read_fleet(engine))
    assert found.maintenance_overdue_seconds == 0
    assert found.last_round is not None
    assert found.last_good_round_at is not None
    assert (found.last_round[1], found.last_round[0] >= found.last_good_round_at) == (False, True)
    with engine.begin() as connection:
        connection.execute(update(maintenance_rounds).values(ended_at=maintenance_rounds.c.ended_at - 100 * 86_400))
    record_round(engine, 2.0, [], tables=3, files_before=9, files_after=4)
    with engine.connect() as connection:
        assert len(connection.execute(maintenance_rounds.select()).all()) == 1, "old rows go"


def test_status_says_how_maintenance_is(tmp_path: Path) -> None:
    """A line for people, an object for scripts; overdue, it is a problem and the exit code is 1."""
    store = open_store(*load(tmp_path, {}))
    begun(store)
    start_driver(store, "ingest", "main", None)
    heartbeat(store, "ingest", "main", "running", None)
    write_backlog(store, age_seconds=0.0, peak_seconds=0.0, rows=0, limit_seconds=60.0, reason=None)
    missed = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path)])
    assert missed.exit_code == 1
    assert "maintenance main: not started (was never started)\n  no round of maintenance has ever" in missed.output
    start_driver(store, "maintenance", "main", None)
    heartbeat(store, "maintenance", "main", "running", None)
    record_round(store, 2.0, [], tables=3, files_before=9, files_after=4)
    well = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path)])
    assert well.exit_code == 0, well.output
    assert "maintenance main: running (the last round ended 0 s ago: 9 files became 4 in 3 tables)" in well.output
    found = json.loads(CliRunner().invoke(cli, ["status", "--json", "--env-dir", str(tmp_path)]).output)["maintenance"]
    assert (found["last_round"]["files_after"], found["overdue_seconds"]) == (4, 0)
    assert found["last_good_round_at"] == found["last_round"]["ended_at"]


def begun(store: Engine) -> None:
    """Let ingest have begun nine hours ago."""
    with store.begin() as connection:
        at = read_fleet(store).read_at - 9 * HOUR
        connection.execute(insert(ingest_generations).values(generation=1, source="s", created_at=at))
