"""A further kind of process needs one object: judged, shown, alerted, kept running and stopped as any other."""

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import update

from app.fleet import incidents, timeline
from app.fleet.signals import Signals
from pipeline.cli.main import cli
from pipeline.control import kinds
from pipeline.control.backends.local import Local
from pipeline.control.present import with_lease
from pipeline.control.supervision import hung
from pipeline.control.supervision.supervisor import Supervisor
from pipeline.health.alerting.alerts import alerts
from pipeline.health.facts.fleet import Fleet, read_fleet
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.kinds import registry
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import leased
from pipeline.store.processes.runs import open_runs
from tests.unit.control.door_world import KIND, NAME, install

KEYS = (KIND, NAME)
SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture(autouse=True)
def _door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the kind, as pip would."""
    (tmp_path / "site").mkdir()
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    caches = (registry.registered, kinds.registered)
    for each in caches:
        each.cache_clear()
    yield
    monkeypatch.undo()
    for each in caches:
        each.cache_clear()


def silent(env: Path) -> Fleet:
    """Return the fleet after its door has been silent for ten minutes."""
    engine = open_store(*load(env, {}))
    start_driver(engine, *KEYS, None)
    heartbeat(engine, *KEYS, "running", None)
    now = read_fleet(engine).read_at
    with engine.begin() as connection:
        connection.execute(update(drivers).values(heartbeat_at=now - 600))
    return read_fleet(engine, now)


def test_it_is_judged_and_named_by_headline_page_and_command(tmp_path: Path) -> None:
    """A silent process of a kind that no module knows is a problem everywhere, with its runbook and its next step."""
    fleet = silent(tmp_path)
    assert [each.text for each in fleet.judgement.problems if each.kind == KIND] == ["door is silent for 600 s"]
    assert "door silent" in fleet.judgement.headline.split("; ")
    assert fleet.judgement.count_problems()[KIND] == 1
    (row,) = (each for each in incidents.rows(Signals(fleet, 60.0)) if each.row_id == f"problem_{KIND}_{NAME}")
    assert (row.title, row.tone, row.runbook) == ("Door is silent for 600 s", "late", "turnoutdoorshut")
    assert row.action is not None
    assert row.action.label == f"Open the door {NAME}"
    result = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path)])
    assert "door main: unknown (is silent for" in result.output


def test_it_has_its_alert_and_its_mark_in_charts(tmp_path: Path) -> None:
    """Rules and charts iterate over the kinds."""
    fleet = silent(tmp_path)
    assert "TurnoutDoorShut" in [each.name for each in alerts()]
    marks = timeline.events(fleet, [], [], fleet.read_at - 60)
    assert [each.label for each in marks] == ["door starts"]


def test_a_kind_that_nobody_knows_is_judged_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may have processes of a newer version: silent ones are a problem, and nobody ends them."""
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path / "site")])
    registry.registered.cache_clear()
    kinds.registered.cache_clear()
    fleet = silent(tmp_path)
    assert KIND not in [each.name for each in registry.registered()]
    assert [each.text for each in fleet.judgement.problems if each.kind == KIND] == ["door is silent for 600 s"]
    facts = read_drivers(open_store(*load(tmp_path, {})), now=fleet.read_at)
    assert hung.find(facts, 0.0, 60.0) == []


def test_the_controller_keeps_it_running_and_commands_find_it(tmp_path: Path) -> None:
    """It is started with its command and found by its lease; a hung process is ended."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    (duty,) = (each for each in kinds.duties_of(engine, settings) if each.kind == KIND)
    assert kinds.arguments(duty, 7) == ("door", "run", "--run-id", "7")
    local = Local(tmp_path / "logs", lambda _duty, _run_id: SLEEPER, os.environ)
    duties = partial(kinds.duties_of, settings=settings)
    supervisor = Supervisor(engine, {"local": local}, lambda _: [], duties)
    supervisor.tick()
    try:
        assert open_runs(engine, KIND).keys() == {NAME}
        (present,) = (each for each in with_lease(engine) if each.kind == KIND)
        assert str(present).startswith("door (process ")
    finally:
        while not supervisor.stop_all():
            time.sleep(0.02)
    with leased(engine, settings.store, *KEYS):
        start_driver(engine, *KEYS, None)
        now = read_fleet(engine).read_at
        assert [each.kind for each in hung.find(read_drivers(engine, now=now + 600), 0.0, 60.0)] == [KIND]
