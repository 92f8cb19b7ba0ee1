"""What cannot be supervised freezes its own group, with an alarm; all others are looked after, start after start."""

import json
import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from listeners.sample import StreamState
from pipeline.control import controller
from pipeline.control.backends import starting
from pipeline.control.backends.backend import RunState
from pipeline.control.backends.duties import Duty
from pipeline.control.backends.local import Local, process_of, reference_of
from pipeline.control.incident_keeper import IncidentKeeper
from pipeline.control.supervision.evacuation import Evacuator
from pipeline.control.supervision.supervisor import Supervisor
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import PlacementSettings, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.games import assigned, record_seen
from pipeline.store.groups import Group, create
from pipeline.store.incidents import read_last_look
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Process
from pipeline.store.processes.runs import adopt, ended_runs, open_runs
from tests.unit.store.leases_world import StoreClock
from tests.unit.store.reports_world import write_streams


class Started:
    """A backend without processes: what was started lives for ever, and one group cannot be started."""

    def __init__(self, broken: str) -> None:
        self.groups: list[str] = []
        self.broken = broken

    limits, starts_once = Local.limits, False

    def start(self, duty: Duty, _run_id: int, _token: str) -> str:
        if duty.name == self.broken:
            raise ValueError("no such master")
        self.groups.append(duty.name)
        return reference_of(Process("h", "elsewhere", 7, 7))

    def observe(self, references: Collection[str]) -> dict[str, RunState]:
        return {each: RunState(is_alive=True) for each in references}

    def stop(self, _reference: str) -> None:
        """Does not listen."""

    kill = stop

    def find(self, process: Process) -> str | None:
        return reference_of(process)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    made = open_store(*load(tmp_path))
    for name in "ab":
        create(made, Group(name, backend="local"), "ann", "", placing())
    yield made
    made.dispose()


def write(store: Engine, statement: str, **values: object) -> None:
    with store.begin() as connection:
        connection.execute(text(statement), values)


@pytest.mark.proves("D18", "G101")
def test_a_process_of_another_user_freezes_its_group_alone(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D18: a driver that we may not signal is an alarm that says so, also when the controller ends with its groups."""

    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError

    adopt(store, Group("a", "local"), None, reference_of(Process.this()))
    write(store, "UPDATE groups SET desired = 'stopped' WHERE name = 'a'")
    backend = Local(tmp_path, lambda *_: ["true"], os.environ)
    supervisor = Supervisor(store, {"local": backend}, lambda _: [])
    with monkeypatch.context() as patched:
        patched.setattr("os.kill", refuse)
        patched.setattr("os.killpg", refuse)
        for _ in range(2):
            supervisor.tick()
            said = f"its process {os.getpid()} belongs to another user, so it cannot be sent SIGTERM"
            assert said in supervisor.alarms[0]
        while not supervisor.stop_all():
            time.sleep(0.05)
        assert set(supervisor.frozen) == {("group", "a")}
    assert "b" in ended_runs(store, 0.0)


def _keeper(store: Engine) -> IncidentKeeper:
    return IncidentKeeper(store, Settings(), "controller")


def test_a_look_that_breaks_leaves_nothing_to_judge_by(store: Engine) -> None:
    """What was seen before it is no reason to move games: evacuation does nothing until a look is whole again."""

    def duties(_engine: Engine) -> Sequence[Duty]:
        raise ValueError("no such setting")

    supervisor = Supervisor(store, {}, lambda _: [])
    evacuator = Evacuator(store, PlacementSettings())
    evacuate = controller._parts(store, Settings(), supervisor, evacuator, _keeper(store), [])["Evacuation"]
    supervisor.tick()
    assert evacuate() == ()
    looked_at = evacuator._looked_at
    supervisor.duties = duties
    with pytest.raises(ValueError, match="no such setting"):
        supervisor.tick()
    evacuator.alarms = ("group a is dead",)
    assert evacuate() == ()
    assert evacuator._looked_at == looked_at


def test_the_controller_judges_causes_at_each_heartbeat(store: Engine) -> None:
    """A look of the controller a second later judges nothing again, unless a driver has reported what is new."""
    judge = controller._parts(
        store,
        Settings(),
        Supervisor(store, {}, lambda _: []),
        Evacuator(store, PlacementSettings()),
        _keeper(store),
        [],
    )["Incidents"]
    assert judge() == ()
    first = read_last_look(store)
    assert judge() == ()
    second = read_last_look(store)
    assert first is not None
    assert second is not None
    assert (first.kept_by, second.looked_at) == ("controller", first.looked_at)
    start_driver(store, "group", "a", None)
    state = StreamState("g", "a", "RUN", "RUNNING", 0.0, 1, None, 0.0, 1.0, None, 9, 0, None, 0.0)
    write_streams(store, [state])
    judge()
    third = read_last_look(store)
    assert third is not None
    assert third.looked_at == second.looked_at, "a report in its time is no news"
    write_streams(store, [state], is_news=True)
    judge()
    last = read_last_look(store)
    assert last is not None
    assert last.looked_at > second.looked_at, "rows are refused anew"


def test_a_driver_that_cannot_even_be_started_rests_like_one_that_died(store: Engine, tmp_path: Path) -> None:
    """What the system refuses is kept as an end of that run, so it is tried again later and later, not each second."""
    write(store, "UPDATE groups SET backend = 'none' WHERE name = 'b'")

    def command(_duty: Duty, _run_id: int) -> Sequence[str]:
        return ["true", "\0"]

    supervisor = Supervisor(store, {"local": Local(tmp_path, command, os.environ)}, lambda _: [])
    assert [each.what for each in supervisor.tick()] == ["start"]
    assert "ValueError: embedded null byte" in supervisor.alarms[0]
    assert [each.what for each in supervisor.tick()] == ["wait"]
    assert [(each.died, each.exit_message) for each in ended_runs(store, 0.0)["a"]] == [
        (True, "ValueError: embedded null byte")
    ]
    assert open_runs(store) == {}


def test_a_signal_without_a_name_is_an_ending_too(tmp_path: Path) -> None:
    """Those between SIGRTMIN and SIGRTMAX have none in Python; asking for it ended the controller."""
    backend = Local(tmp_path, lambda *_: ["sh", "-c", "kill -35 $$"], os.environ)
    reference = backend.start(Group("a"), 1, "t")
    backend._children[reference].wait()
    assert backend.observe([reference])[reference] == RunState(is_alive=False, about="killed by signal 35")


@pytest.mark.parametrize("pid", [0, -1, "7", None, 1 << 40])
def test_a_reference_of_no_process_is_of_none(pid: object) -> None:
    """A signal to pid 0 or below would reach many processes, the controller among them."""
    assert process_of(json.dumps({"host": "h", "place": "p", "pid": pid, "started": 1})) is None


@pytest.mark.proves("D18", "G101")
def test_a_controller_looks_after_the_others_where_one_group_cannot_be_started(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole loop: games are placed, the other group and maintenance are started, and the alarm is logged."""
    write(store, "UPDATE groups SET desired = 'drained' WHERE name = 'a'")
    record_seen(store, {"g1": "One"}, 9, placing())
    once, backend = threading.Event(), Started("a")
    once.set()
    monkeypatch.setattr(starting, "Local", lambda *_: backend)
    assert controller.run(*load(tmp_path), once) == 0
    assert backend.groups == ["b", "main"]
    assert [each.game_key for each in assigned(store, "b")] == ["g1"]
    alarms = [each for each in caplog.messages if "frozen" in each]
    assert alarms == ["Group a is frozen: ValueError: no such master. The controller's log has the traceback."]


def test_drivers_may_renew_their_leases_after_an_outage_before_it_is_a_mass_failure(store: Engine) -> None:
    """Nobody could reach the store: that all are silent at the first look says nothing of them."""
    write(store, "UPDATE groups SET backend = 'none'")
    clock = StoreClock(store)
    for name in "ab":
        start_driver(store, "group", name, None)
        heartbeat(store, "group", name, "running", 1)
    supervisor = Supervisor(store, {}, lambda _: [])
    supervisor.tick()
    clock.now += 65.0
    supervisor.tick()
    assert list(supervisor.alarms) == []
    clock.now += 16.0
    supervisor.tick()
    (alarm,) = supervisor.alarms
    assert alarm.startswith("2 of 2 groups that should run have lost their driver")
