"""How a process of an environment says which others run, and how commands stop them: real processes and leases."""

import json
import logging
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text, update
from sqlalchemy.exc import SQLAlchemyError

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control import stopping
from pipeline.control.backends.local import reference_of
from pipeline.control.controller import run
from pipeline.control.operations.definition import ControlContext
from pipeline.control.present import STOP, folder, goes_on, noted_without_leases
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.audit import entries
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.database.tables import drivers, groups
from pipeline.store.games import register_group
from pipeline.store.groups import read_groups
from pipeline.store.operations import list_operations
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease, Process, held_by
from pipeline.store.processes.runs import begin_run, ended_runs, open_runs, record_process
from tests.unit.store.leases_world import elsewhere


class World:
    """An environment with two local groups, whose processes only sleep."""

    def __init__(self, env: Path) -> None:
        self.env = env
        self.settings, self.paths = load(env, {"TURNOUT_MAINTENANCE__BACKEND": "none"})
        self.engine = open_store(self.settings, self.paths)
        for name in "ab":
            register_group(self.engine, name, placing())
        with self.engine.begin() as connection:
            connection.execute(update(groups).values(backend="local"))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: str, name: str = "main", command: tuple[str, ...] = ("sleep", "600")) -> Process:
        """Start a process that holds a lease, and has a run where a controller starts what it does."""
        process = self.start_without_lease(f"{kind} {name}", command)
        run_id = None
        if kind in {"group", "maintenance"}:
            run_id = begin_run(self.engine, name, kind)
            assert run_id is not None
            record_process(self.engine, run_id, reference_of(process))
        Lease(self.engine, kind, name, 30, process, run_id).acquire()
        return process

    def start_without_lease(self, what: str, command: tuple[str, ...] = ("sleep", "600")) -> Process:
        child = self.processes[what] = subprocess.Popen(command, start_new_session=True)
        return Process.of(child.pid)

    def note(self, kind: str, about: str, name: str = "main") -> None:
        self.note_process(kind, about, self.start_without_lease(kind), name)

    def note_process(self, kind: str, about: str, process: Process, name: str = "main") -> None:
        note = {"kind": kind, "name": name, "about": about, "process": asdict(process)}
        folder(self.paths).mkdir(exist_ok=True)
        (folder(self.paths) / f"{kind}.json").write_text(json.dumps(note))

    def alive(self) -> list[str]:
        return [name for name, child in self.processes.items() if child.poll() is None]

    def turnout(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--env-dir", str(self.env)], catch_exceptions=False)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for child in made.processes.values():
        child.kill()
        child.wait()


@pytest.mark.proves("G276")
def test_stop_ends_all_that_runs_on_this_machine(world: World) -> None:
    """One command ends each process of an environment, names it, and leaves the desired state of groups."""
    for kind in ("controller", "ingest", "maintenance"):
        world.start(kind)
    world.start("group", "a")
    world.note("dashboard", "http://127.0.0.1:8501")
    Lease(world.engine, "group", "b", 30, elsewhere(7)).acquire()

    ended = world.turnout("stop", "--reason", "weekend")

    assert (ended.exit_code, world.alive()) == (0, [])
    named = ("controller", "ingest", "maintenance", "group a", "dashboard at http://127.0.0.1:8501")
    assert all(f"stopped: {each} (process " in ended.output for each in named)
    assert "group b (process 7) on host-7 goes on: stop it there" in ended.output
    assert (open_runs(world.engine), open_runs(world.engine, "maintenance")) == ({}, {})
    assert [each.died for each in ended_runs(world.engine, 0)["a"]] == [False]
    assert read_groups(world.engine)["a"].desired == "running"
    logged = [(each.action, each.phase, each.detail["reason"]) for each in entries(world.engine)]
    assert logged[-2:] == [("stop the environment", phase, "weekend") for phase in ("begun", "ended")]
    assert "Nothing of" in world.turnout("stop").output


@pytest.mark.proves("G276")
def test_stop_kills_what_does_not_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ignores the request is killed after its time, and named."""
    monkeypatch.setattr(stopping, "STOP_SECONDS", 0.2)
    world.start("ingest", command=("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"))
    ended = world.turnout("stop")
    assert (ended.exit_code, world.alive(), "so it is killed" in ended.output) == (0, [], True)


@pytest.mark.proves("G276")
def test_stop_finds_processes_without_leases(world: World) -> None:
    """Without `store.leases` each process notes itself, so that one command still ends all of them by their names."""
    wanted = replace(world.settings.store, leases=False)
    for kind, name in (("controller", "main"), ("ingest", "main"), ("group", "a")):
        with noted_without_leases(wanted, world.paths, kind, name):
            (file,) = folder(world.paths).glob(f"{kind}-*.json")
            world.note(kind, "", json.loads(file.read_text())["name"])
    with noted_without_leases(world.settings.store, world.paths, "maintenance"):
        assert not list(folder(world.paths).glob("maintenance-*.json"))
    (world.env / "turnout.toml").write_text("[store]\nleases = false\n")

    ended = world.turnout("stop")

    assert (ended.exit_code, world.alive()) == (0, [])
    assert all(f"stopped: {each} (process " in ended.output for each in ("controller", "ingest", "group a"))


@pytest.mark.proves("G276")
def test_stop_names_what_it_cannot_find(world: World) -> None:
    """A process without lease and note that beats from this machine is named, and nobody reads that nothing runs."""
    (world.env / "turnout.toml").write_text("[store]\nleases = false\n")
    process = world.start_without_lease("ingest")
    start_driver(world.engine, "ingest", "main", None)
    with world.engine.begin() as connection:
        connection.execute(update(drivers).values(pid=process.pid))

    ended = world.turnout("stop")

    assert (ended.exit_code, world.alive(), "Nothing of" in ended.output) == (1, ["ingest"], False)
    assert f"ingest goes on as process {process.pid}" in ended.output
    assert f"End it with `kill {process.pid}`." in ended.output


@pytest.mark.proves("G276")
def test_a_stop_without_its_entry_says_that_nothing_was_stopped(world: World) -> None:
    """Where the control store takes no writes, a stop begins nothing and says so."""
    world.start("ingest")
    with world.engine.begin() as connection:
        refused = "BEGIN SELECT RAISE(ABORT, 'away'); END"
        connection.execute(text(f"CREATE TRIGGER away BEFORE INSERT ON audit {refused}"))
    ended = CliRunner().invoke(cli, ["stop", "--env-dir", str(world.env)])
    assert (isinstance(ended.exception, SQLAlchemyError), world.alive()) == (True, ["ingest main"])
    assert "Nothing was stopped" in ended.output


@pytest.mark.proves("G276")
def test_a_second_stop_is_refused(world: World) -> None:
    """A command that stops processes holds the controller's lease, and is none: another stop never kills it."""
    stop = world.start("controller")
    world.note_process(STOP, "", stop)
    world.start("ingest")

    with pytest.raises(Refused, match=rf"Another stop of {world.env} runs, process {stop.pid}\. Wait for its end"):
        world.turnout("stop")

    assert world.alive() == ["controller main", "ingest main"]
    assert "controller" not in (goes_on(world.engine, world.paths) or "")


@pytest.mark.proves("G276")
def test_a_stop_of_groups_waits_for_another_stop(world: World) -> None:
    """A stop of groups beside another stop neither ends it nor waits for a controller: it follows it."""
    world.note_process(STOP, "", world.start("controller", command=("sleep", "0.5")))
    world.start("group", "a")
    world.turnout("groups", "stop", "a", "--reason", "r", "--no-wait")
    (operation,) = list_operations(world.engine)
    assert stopping.stop_groups(ControlContext(world.settings, world.engine, world.paths), operation)
    assert (world.processes["controller main"].wait(), world.alive()) == (0, [])


@pytest.mark.proves("G276")
def test_without_a_controller_a_stop_of_groups_is_done_by_its_command(world: World) -> None:
    """Where no controller runs and the drivers are of this machine, nothing waits for one: others go on."""
    world.start("group", "a")
    world.start("group", "b")
    ended = world.turnout("groups", "stop", "a", "--reason", "holiday")
    assert (ended.exit_code, world.alive()) == (0, ["group b"])
    (operation,) = list_operations(world.engine)
    assert (operation.state, read_groups(world.engine)["a"].desired) == (OperationState.SUCCEEDED, "stopped")
    assert ended_runs(world.engine, 0)["a"][0].died is False
    holder = held_by(world.engine, "controller", "main")
    assert holder == Process.this()
    Lease(world.engine, "controller", "main", 30, elsewhere(9)).acquire()  # it was given back


@pytest.mark.proves("G276")
def test_a_stop_that_another_machine_must_do_waits_for_its_controller(world: World) -> None:
    """A command stops no group half: where one driver is elsewhere, or a controller runs, it begins nothing."""
    context = ControlContext(world.settings, world.engine, world.paths)
    Lease(world.engine, "group", "a", 30, elsewhere(7)).acquire()
    world.turnout("groups", "stop", "a", "--reason", "r", "--no-wait")
    world.turnout("groups", "stop", "b", "--reason", "r", "--no-wait")
    by_group = {each.targets: each for each in list_operations(world.engine)}
    assert not stopping.stop_groups(context, by_group["group:a",])
    world.start("controller")
    assert not stopping.stop_groups(context, by_group["group:b",])
    assert {each.state for each in list_operations(world.engine)} == {OperationState.PLANNED}


@pytest.mark.proves("G276")
def test_a_run_whose_process_nobody_knows_does_not_keep_a_stop_open(world: World) -> None:
    """A controller that was killed while it started a driver leaves a run without a process: a stop gives it up."""
    assert begin_run(world.engine, "a") is not None
    assert world.turnout("groups", "stop", "a", "--reason", "r").exit_code == 0
    assert open_runs(world.engine) == {}


@pytest.mark.proves("G276")
def test_a_controller_says_at_its_end_what_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Ctrl-C of one process names the others and the command that stops them; a demo says it of all at once."""
    driver = world.start("group", "a")
    start_driver(world.engine, "group", "a", None)
    heartbeat(world.engine, "group", "a", "running", None)
    world.note("dashboard", "http://127.0.0.1:8501")
    with world.engine.begin() as connection:
        connection.execute(update(groups).where(groups.c.name == "b").values(desired="stopped"))
    stop = threading.Event()
    stop.set()
    with caplog.at_level(logging.INFO, "turnout"):
        run(world.settings, world.paths, stop)
    (line,) = [each.message for each in caplog.records if "has ended" in each.message]
    assert f"Still running: group a (process {driver.pid})" in line
    assert "dashboard at http://127.0.0.1:8501" in line
    assert f"`turnout stop --env-dir {world.env}` stops all of them." in line
    world.note("demo", "")
    caplog.clear()
    run(world.settings, world.paths, stop)
    assert not [each for each in caplog.records if "has ended" in each.message]
