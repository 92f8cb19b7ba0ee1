"""The times through which games are complete, from what ingest reports to what people read."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from listeners.prometheus import Exposition
from pipeline.cli.main import cli
from pipeline.control.incident_keeper import IncidentKeeper
from pipeline.health.facts.incidents import read_incidents
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import Cause
from pipeline.store.rows import ThroughReading, Withdrawal
from pipeline.store.through import through_in, write_through
from tests.browser.seed import Seeded, seed
from tests.unit.store.through_world import fleet_at

NOW = 1_800_000_000.0


def test_a_report_of_ingest_is_read_back(engine: Engine) -> None:
    """L8: pairs and withdrawals come back as they were reported, and each report replaces the one before."""
    with engine.connect() as connection:
        assert through_in(connection) is None
    back = Withdrawal("clock", NOW, 3, NOW - 1.5, None)
    write_through(engine, [(1, NOW - 9.25), (2, NOW)], [])
    write_through(engine, [(1, NOW - 9.25)], [back])
    with engine.connect() as connection:
        found = through_in(connection)
    assert found is not None
    assert found == ThroughReading(found.noted_at, ((1, NOW - 9.25),), (back,))


def test_status_and_metrics_say_how_far_each_game_is_complete(tmp_path: Path) -> None:
    """L8: a level game has bronze's time, a game behind that of its cursor, and an unknown time is absent."""
    engine, fleet = fleet_at(tmp_path, NOW)
    assert {row.game: row.through_at for row in fleet.rows} == {"level": NOW - 7, "behind": NOW - 300, "new": None}
    assert fleet.through_at == NOW - 7
    engine.dispose()
    exposition = Exposition(CollectorRegistry())
    exposition.set_fleet({}, NOW, (), {}, (), fleet.through_times, fleet.through_at)
    said = {each.name: [(*s.labels.values(), s.value) for s in each.samples] for each in exposition.collect()}
    assert said["turnout_bronze_through_timestamp_seconds"] == [(NOW - 7,)]
    assert sorted(said["turnout_game_through_timestamp_seconds"]) == sorted(fleet.through_times.items())
    assert len(fleet.through_times) == 2, "unknown is no sample"


def test_the_command_names_the_least_complete_game(tmp_path: Path) -> None:
    """L8: `turnout status` has the time of each game, and says which is least complete and how far it is behind."""
    engine, fleet = fleet_at(tmp_path, time.time())
    engine.dispose()
    done = CliRunner().invoke(cli, ["--env-dir", str(tmp_path), "status", "--json"])
    answer = json.loads(done.output.splitlines()[-1])
    known = {row.game_key: row.through_at for row in fleet.rows}
    assert {each["game_key"]: each["through_time"] for each in answer["games"]} == pytest.approx(known)
    assert answer["source"]["through_time"] == pytest.approx(fleet.through_at)
    said = CliRunner().invoke(cli, ["--env-dir", str(tmp_path), "status"]).output
    least = next(row.game_key for row in fleet.rows if row.game == "behind")
    assert f"the least complete game is {least}: through " in said
    assert "5 min behind; of 1 no time is known" in said


def test_times_that_went_back_are_an_incident(tmp_path: Path) -> None:
    """L8: what took times back stands among the incidents, once, and ends when they are passed again."""
    now = time.time()
    seed(tmp_path, (Seeded("Chess", "a", {}),), now=now, heartbeat_ages={"ingest": 1, "a": 1}, history=False)
    fleet_store = open_store(Settings(), Paths(tmp_path))
    write_through(fleet_store, [(1, now - 90)], [Withdrawal("clock", now - 1, 2, now - 2, now - 90)])
    keeper = IncidentKeeper(fleet_store, Settings(), "controller")
    for _ in range(2):
        (found,) = [each for each in keeper.look() if each.finding.cause == Cause.TIME_WENT_BACK]
    assert (found.games, found.ended_at) == ((), None)
    write_through(fleet_store, [(1, now - 90), (2, now)], [Withdrawal("clock", now - 400, 2, now - 402, now - 490)])
    keeper.look()
    (ended,) = [each for each in read_incidents(fleet_store) if each.finding.cause == Cause.TIME_WENT_BACK]
    assert (ended.incident_id, ended.ended_at is None) == (found.incident_id, False)
    fleet_store.dispose()
