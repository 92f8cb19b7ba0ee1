"""Hung processes are ended and started again: real processes that a signal stops, only no Spark is in them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from pipeline.control.backends.duties import Duty
from pipeline.control.backends.local import Local, process_of
from pipeline.control.kinds import groups, upkeep
from pipeline.control.supervision.supervisor import Supervisor
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.facts.placing import placing
from pipeline.platforms.local.child_processes import turnout
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers
from pipeline.store.groups import Group, create
from pipeline.store.processes.runs import active_drivers, ended_runs, open_runs

DRIVER = """
import pathlib, sys, time
from pipeline.settings.tree import load
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.database.engine import open_store
from pipeline.store.processes.leases import leased

kind, name, env = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
run_id = int(sys.argv[4]) if sys.argv[4:] else None
settings, paths = load(env)
engine = open_store(settings, paths)
with leased(engine, settings.store, kind, name, run_id):
    start_driver(engine, kind, name, None, run_id)
    while not (env / "stuck").exists():
        heartbeat(engine, kind, name, "running", None)
        time.sleep(0.05)
    (env / "hangs").touch()
    time.sleep(600)  # its lease is renewed all the time
"""
"""A driver that holds its lease and beats, as the real one does, and carries nothing."""

PATIENCE = 2.0
WAIT = 0.05


@pytest.fixture
def world(tmp_path: Path) -> Iterator["World"]:
    made = World(tmp_path)
    yield made
    for child in made.children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    made.engine.dispose()


class World:
    """A store with a supervisor that has little patience."""

    def __init__(self, env: Path) -> None:
        self.env = env
        self.engine: Engine = open_store(*load(env, {}))
        self.wanted = Maintenance(backend="none")
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.local = Local(env / "logs", self.command, self.environ)
        self.by_hand: list[subprocess.Popen[bytes]] = []
        self.supervisor = self.another()

    def another(self, max_silent: float = PATIENCE) -> Supervisor:
        return Supervisor(self.engine, {"local": self.local}, lambda _: [], self.duties, max_silent)

    def duties(self, engine: Engine) -> list[Duty]:
        return [*groups(engine), *upkeep(engine, self.wanted)]

    @property
    def children(self) -> list[subprocess.Popen[bytes]]:
        return [*self.local._children.values(), *self.by_hand]

    def command(self, duty: Duty, run_id: int) -> list[str]:
        if duty.kind == "maintenance":
            return turnout("maintain", "--env-dir", str(self.env), "--run-id", str(run_id))
        return [sys.executable, "-c", DRIVER, duty.kind, duty.name, str(self.env), str(run_id)]

    def start(self, kind: str, name: str) -> subprocess.Popen[bytes]:
        """Start a driver as a person does, or a service manager."""
        command = [sys.executable, "-c", DRIVER, kind, name, str(self.env)]
        self.by_hand.append(subprocess.Popen(command, env=self.environ, start_new_session=True))
        return self.by_hand[-1]

    def tick_until(self, seen: Callable[[], object]) -> None:
        """Let the supervisor act until something is so; the test's time limit ends it where that never is."""
        while not seen():
            self.supervisor.tick()
            time.sleep(WAIT)

    def heartbeats(self, kind: str, name: str) -> bool:
        found = active_drivers(self.engine, kind).get(name)
        return found is not None and found.state == "running"

    def freeze(self, *pids: int) -> None:
        """Stop processes outside of their transactions: within one they would lock all others out."""
        with self.engine.begin() as connection:
            connection.execute(update(drivers).values(heartbeat_at=drivers.c.heartbeat_at))
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)

    def pid(self, kind: str = "group", name: str = "a") -> int:
        run = open_runs(self.engine, kind).get(name)
        process = None if run is None else process_of(run.reference or "")
        return -1 if process is None else process.pid


@pytest.mark.parametrize("how", ["stopped", "stuck"])
@pytest.mark.proves("G95")
def test_a_driver_that_hangs_is_killed_and_started_again(world: World, how: str) -> None:
    """A process that lives and does not beat carries nothing: it ends, the run says why, and the next one begins."""
    create(world.engine, Group("a", "local"), "ann", "", placing())
    world.tick_until(lambda: world.heartbeats("group", "a"))
    first = world.pid()
    if how == "stopped":
        world.freeze(first)
    else:
        (world.env / "stuck").touch()
        world.tick_until((world.env / "hangs").exists)
        (world.env / "stuck").unlink()
    world.tick_until(lambda: ended_runs(world.engine, 0.0).get("a"))
    (ended,) = ended_runs(world.engine, 0.0)["a"]
    assert ended.died, "it counts for the restart policy as any death"
    assert str(ended.exit_message).startswith("killed, as it hung: it was silent for ")
    assert [each.what for each in world.supervisor.tick()] == ["wait"], "it rests as after any death"
    judged = read_drivers(world.engine).judge("group", "a")
    assert (judged.state, "killed, as it hung" in str(judged.reason)) == ("dead", True)
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE group_runs SET ended_at = ended_at - 60")
    world.tick_until(lambda: world.pid() not in {-1, first} and world.heartbeats("group", "a"))


@pytest.mark.proves("G95")
def test_ingest_that_hangs_is_killed_for_what_started_it(world: World) -> None:
    """A service manager and the demo see only whether a process lives: it ends, and how is told until the next one."""
    ingest = world.start("ingest", "main")
    world.tick_until(lambda: world.heartbeats("ingest", "main"))
    world.freeze(ingest.pid)
    world.tick_until(lambda: ingest.poll() is not None)
    assert ingest.returncode == -signal.SIGKILL
    judged = read_drivers(world.engine).judge("ingest", "main")
    assert judged.state == "failed"
    assert "killed, as it hung: it was silent for" in str(judged.reason)
    world.start("ingest", "main")
    world.tick_until(lambda: read_drivers(world.engine).judge("ingest", "main").state == "running")


@pytest.mark.proves("G95")
def test_a_driver_that_was_silent_while_nobody_watched_has_its_time(world: World) -> None:
    """After the store was away, or the machine asleep, all are silent at once: they beat again before any is judged."""
    ingest = world.start("ingest", "main")
    create(world.engine, Group("a", "local"), "ann", "", placing())
    world.tick_until(lambda: world.heartbeats("group", "a") and world.heartbeats("ingest", "main"))
    world.freeze(ingest.pid, world.pid())
    with world.engine.begin() as connection:
        connection.execute(update(drivers).values(heartbeat_at=1.0))
    assert {each.heartbeat_at for each in read_drivers(world.engine).drivers.values()} == {1.0}
    world.supervisor = world.another(max_silent=25.0)
    assert world.supervisor.tick() == []
    for pid in (ingest.pid, world.pid()):
        os.kill(pid, signal.SIGCONT)
    world.tick_until(lambda: min(each.heartbeat_at for each in read_drivers(world.engine).drivers.values()) > 1.0)
    assert world.supervisor.tick() == []
    assert ingest.poll() is None


@pytest.mark.proves("G149")
def test_the_controller_runs_maintenance_as_it_runs_groups(world: World) -> None:
    """It is started, restarted when it has died, adopted by the next controller, and ended where it is turned off."""
    world.wanted, world.supervisor = Maintenance(), world.another(max_silent=600.0)
    world.tick_until(lambda: world.heartbeats("maintenance", "main"))
    first = world.pid("maintenance", "main")
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, first) == min(19, ours + 10), "it yields to all others"
    os.kill(first, signal.SIGKILL)
    world.tick_until(lambda: ended_runs(world.engine, 0.0, "maintenance"))
    assert [each.exit_message for each in ended_runs(world.engine, 0.0, "maintenance")["main"]] == ["killed by SIGKILL"]
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE group_runs SET ended_at = ended_at - 60")
    world.tick_until(
        lambda: world.heartbeats("maintenance", "main") and world.pid("maintenance", "main") not in {-1, first}
    )
    second = world.pid("maintenance", "main")
    world.supervisor = world.another(max_silent=600.0)
    assert world.supervisor.tick() == [], "the next controller finds it"
    world.wanted = Maintenance(backend="none")
    world.tick_until(lambda: not open_runs(world.engine, "maintenance"))
    assert world.supervisor.tick() == []
    newest = ended_runs(world.engine, 0.0, "maintenance")["main"][0]
    process = process_of(newest.reference or "")
    assert process is not None
    assert (process.pid, newest.died, newest.exit_message) == (second, False, "exit code 0")


@pytest.mark.proves("G150")
def test_maintenance_of_somebody_else_is_never_ended(world: World) -> None:
    """A person's or a service's process goes on with the controller and without; killed where it hangs, as others."""
    own = world.start("maintenance", "main")
    # No maintenance is set up here, so the controller starts none before it.
    world.tick_until(lambda: world.heartbeats("maintenance", "main"))
    world.wanted, world.supervisor = Maintenance(), world.another(max_silent=600.0)
    assert [each.what for each in world.supervisor.tick()] == ["wait"]
    assert world.supervisor.stop_all(), "--stop-groups has nothing of it to end"
    world.wanted, world.supervisor = Maintenance(backend="none"), world.another(max_silent=600.0)
    assert world.supervisor.tick() == []
    assert (open_runs(world.engine, "maintenance"), own.poll()) == ({}, None)
    world.wanted, world.supervisor = Maintenance(), world.another()
    world.freeze(own.pid)
    world.tick_until(lambda: own.poll() is not None)
    assert own.returncode == -signal.SIGKILL
    world.tick_until(lambda: world.pid("maintenance", "main") not in {-1, own.pid})
