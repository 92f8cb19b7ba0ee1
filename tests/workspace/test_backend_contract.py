"""The contract of every backend, over processes of this machine and over jobs of the stand-in, with real drivers."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.service.jobs import PythonWheelTask, Task
from sqlalchemy import Engine, select, update

from pipeline.control.backends.backend import Backend
from pipeline.control.backends.databricks import Databricks, job_name
from pipeline.control.backends.duties import Duty
from pipeline.control.backends.local import Local
from pipeline.control.supervision.restart_policy import Action
from pipeline.control.supervision.supervisor import Supervisor
from pipeline.data.streams.active_games import read_leftover
from pipeline.health.facts.placing import placing
from pipeline.platforms.databricks.workspace.client import open_workspace
from pipeline.settings.tree import load
from pipeline.store import groups as store
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers, group_runs
from pipeline.store.games import record_seen
from pipeline.store.groups import Group, create
from pipeline.store.operations import list_operations
from pipeline.store.processes import runs as run_store
from pipeline.store.processes.runs import open_runs
from tests.workspace.fixtures import client
from tests.workspace.running import StandIn

KINDS = ("local", "databricks")
ENDINGS = {"local": ("exit code 0", "killed by SIGKILL"), "databricks": ("its run succeeded", "cancelled")}


class World:
    """A store with a supervisor whose groups are small real drivers of one backend."""

    def __init__(self, env: Path, kind: str, workspace: StandIn, environment: str) -> None:
        self.env, self.kind, self.workspace, self.environment = env, kind, workspace, environment
        self.children: list[Local] = []  # kept, so that no process is left behind
        settings, paths = load(env, {})
        self.engine: Engine = open_store(settings, paths)
        self.group = Group("a", kind)
        self.job_id = 0 if kind == "local" else self._job(client(workspace))
        self.supervisor = self.another()

    def _job(self, admin: WorkspaceClient) -> int:
        wheel = PythonWheelTask("tests.workspace.driver", "main", parameters=["a", str(self.env)])
        made = admin.jobs.create(
            name=job_name(self.environment, "group", "a"), tags={"turnout_env": self.environment},
            tasks=[Task("driver", python_wheel_task=wheel)], max_concurrent_runs=1,
        )  # fmt: skip
        assert made.job_id is not None
        return made.job_id

    def backend(self) -> Backend:
        if self.kind == "databricks":
            return Databricks(self.environment, partial(open_workspace, patience_seconds=1))
        self.children.append(Local(self.env / "logs", self._command, os.environ))
        return self.children[-1]

    def _command(self, duty: Duty, run_id: int) -> list[str]:
        return [sys.executable, "-m", "tests.workspace.driver", duty.name, str(self.env), "--run-id", str(run_id)]

    def another(self) -> Supervisor:
        """Return a controller's supervisor that remembers nothing."""
        leftover = partial(read_leftover, self.env / "checkpoints" / "demux" / "a")
        return Supervisor(self.engine, {self.kind: self.backend()}, lambda _: leftover())

    def mode(self, mode: str) -> None:
        (self.env / "mode").write_text(mode, "utf-8")

    def begin(self, backend: Backend) -> tuple[int, str]:
        """Start a driver as the supervisor does; return the run's id and its reference."""
        run_id = run_store.begin_run(self.engine, "a", "group", self.kind)
        assert run_id is not None
        return run_id, backend.start(self.group, run_id, run_store.token_of(self.engine, run_id) or "")

    def tick_until(self, seen: Callable[[], object], supervisor: Supervisor | None = None) -> None:
        """Let a supervisor act until something is so; the test's time limit ends it where that never is."""
        while not seen():
            (supervisor or self.supervisor).tick()
            time.sleep(0.05)

    def is_reported(self) -> bool:
        driving = run_store.active_drivers(self.engine).get("a")
        return driving is not None and driving.state == "running"

    def pid(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(select(drivers.c.pid)).scalar_one())

    def let_rest(self) -> None:
        """Let what has died have rested: as if it had been a minute ago."""
        with self.engine.begin() as connection:
            connection.execute(update(group_runs).values(ended_at=group_runs.c.ended_at - 60))


@pytest.fixture(params=KINDS)
def world(
    request: pytest.FixtureRequest, tmp_path: Path, workspace: StandIn, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    for name, value in workspace.variables().items():
        monkeypatch.setenv(name, value)
    made = World(tmp_path, request.param, workspace, tmp_path.name.replace("_", "-")[:40])
    yield made
    for backend in made.children:
        for child in backend._children.values():
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if made.job_id:
        client(workspace).jobs.cancel_all_runs(job_id=made.job_id)
    made.engine.dispose()


def alive(backend: Backend, reference: str) -> bool | None:
    return backend.observe([reference])[reference].is_alive


def ending(backend: Backend, reference: str) -> str:
    while alive(backend, reference) is not False:
        time.sleep(0.05)
    return backend.observe([reference])[reference].about


def reported(world: World) -> None:
    while not world.is_reported():
        time.sleep(0.05)


def test_a_backend_starts_ends_and_tells(world: World) -> None:
    """The contract: a run lives until the controller wants its end, and the backend says how it ended."""
    backend = world.backend()
    run_id, reference = world.begin(backend)
    reported(world)
    assert alive(backend, reference)
    driving = run_store.active_drivers(world.engine)["a"]
    assert driving.run_id == run_id, "its driver has the run's id in its lease"
    run_store.submit_stop(world.engine, run_id)
    backend.stop(reference)
    assert ending(backend, reference) == ENDINGS[world.kind][0]
    backend.stop(reference)
    backend.kill(reference)
    assert ending(backend, reference) == ENDINGS[world.kind][0]


def test_a_backend_kills_what_does_not_listen(world: World) -> None:
    """The contract: killing ends a run that ignores being asked."""
    world.mode("stubborn")
    backend = world.backend()
    run_id, reference = world.begin(backend)
    reported(world)
    run_store.submit_stop(world.engine, run_id)
    backend.stop(reference)
    backend.kill(reference)
    assert ENDINGS[world.kind][1] in ending(backend, reference)


def test_a_backend_finds_a_run_of_another_controller_again(world: World) -> None:
    """The contract: the reference is all that a later controller needs; a foreign reference is unknown, never dead."""
    first, later = world.backend(), world.backend()
    _, reference = world.begin(first)
    assert alive(later, reference)
    later.kill(reference)
    ending(first, reference)
    assert alive(later, reference) is False
    assert alive(later, "purple") is None
    later.kill("purple")
    later.stop("purple")


def test_a_backend_answers_for_all_runs_at_once(world: World) -> None:
    """The contract: one call has a state for each reference, whatever it is of."""
    backend = world.backend()
    _, reference = world.begin(backend)
    assert backend.observe([]) == {}
    states = backend.observe([reference, "purple"])
    assert {name: state.is_alive for name, state in states.items()} == {reference: True, "purple": None}


@pytest.mark.proves("G93")
def test_a_driver_that_is_killed_is_started_again(world: World) -> None:
    """A group that shall run does so again after its driver was killed, and its death is written down."""
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(world.is_reported)
    first = world.pid()
    os.kill(first, signal.SIGKILL)
    world.tick_until(lambda: run_store.ended_runs(world.engine, 0))
    assert run_store.ended_runs(world.engine, 0)["a"][0].died
    world.let_rest()
    world.tick_until(lambda: world.is_reported() and world.pid() != first)


@pytest.mark.proves("G94")
def test_a_game_that_is_in_hand_at_each_death_is_to_leave(world: World) -> None:
    """A game that kills its driver again and again leaves the group, also where no file of the driver can be read."""
    create(world.engine, world.group, "ann", "", placing())
    record_seen(world.engine, {"a_killer": "A killer", "calm": "Calm"}, 3, placing())
    world.mode("killer")

    rested = 0

    def is_asked() -> bool:
        nonlocal rested
        if (count := len(run_store.ended_runs(world.engine, 0).get("a", ()))) > rested:
            world.let_rest()
            rested = count
        return bool(list_operations(world.engine))

    world.tick_until(is_asked)
    asked = list_operations(world.engine)[0]
    assert (asked.kind, asked.parameters["assignments"]) == ("isolate", {"a_killer": "solo-1"})
    deaths = run_store.ended_runs(world.engine, 0)["a"]
    assert len(deaths) == (2 if world.kind == "local" else 3), "a driver elsewhere writes after a first death"


@pytest.mark.proves("G93")
def test_a_later_controller_goes_on_with_what_lives(world: World) -> None:
    """A controller's restart restarts no group: its run is found by the reference that was kept."""
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(world.is_reported)
    before = world.pid()
    assert world.another().tick() == []
    assert world.pid() == before
    assert len(open_runs(world.engine)) == 1


def test_a_group_that_is_set_to_stop_ends_in_order(world: World) -> None:
    """A stop is heard without a signal, and it is no death."""
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(world.is_reported)
    group = store.read_groups(world.engine)["a"]
    store.change(world.engine, group, Group("a", world.kind, "stopped", version=group.version), "ann", "")
    world.tick_until(lambda: not open_runs(world.engine))
    ended = run_store.ended_runs(world.engine, 0)["a"][0]
    assert (ended.died, ended.exit_message) == (False, ENDINGS[world.kind][0])


def backend_is(world: World, backend: str) -> list[Action]:
    """Set who starts group a, and return what the controller does about it at its next look."""
    group = store.read_groups(world.engine)["a"]
    store.change(world.engine, group, Group("a", backend, version=group.version), "ann", "")
    return world.supervisor.tick()


def test_a_group_that_is_released_keeps_its_driver(world: World) -> None:
    """A group with backend none is left alone: its run ends in the store, and its process beats on."""
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(world.is_reported)
    reference = open_runs(world.engine)["a"].reference or ""
    assert [each.what for each in backend_is(world, "none")] == ["ended"]
    assert not open_runs(world.engine)
    assert (alive(world.backend(), reference), world.is_reported()) == (True, True)


@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_a_process_that_is_released_and_taken_back_keeps_its_run(world: World) -> None:
    """It is the run that it was started as again, so that the controller's next stop reaches it."""
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(world.is_reported)
    before, run = world.pid(), open_runs(world.engine)["a"]
    backend_is(world, "none")
    assert [each.what for each in backend_is(world, world.kind)] == ["adopt"]
    assert [each.run_id for each in open_runs(world.engine).values()] == [run.run_id]
    assert world.supervisor.tick() == []
    assert world.pid() == before


def test_a_driver_that_hangs_is_killed_before_another_one_starts(world: World) -> None:
    """D10: the controller kills a driver that hears nothing, and starts nobody else until it has ended."""
    world.mode("stubborn")
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(world.is_reported)
    run = open_runs(world.engine)["a"]
    run_store.submit_stop(world.engine, run.run_id)
    assert [action.what for action in world.supervisor.tick()] == ["stop"]
    with world.engine.begin() as connection:
        connection.execute(update(group_runs).values(stop_requested_at=group_runs.c.stop_requested_at - 301))
    assert [action.what for action in world.supervisor.tick()] == ["kill"]
    world.tick_until(lambda: open_runs(world.engine).get("a", run).run_id != run.run_id)
    ended = run_store.ended_runs(world.engine, 0)["a"][0]
    assert (ended.died, ENDINGS[world.kind][1] in str(ended.exit_message)) == (False, True)


def test_a_start_that_comes_to_nothing_rests(world: World) -> None:
    """A driver that cannot start costs one attempt and a pause, and how it ended is kept."""
    world.mode("dies")
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(lambda: run_store.ended_runs(world.engine, 0))
    (wait,) = world.supervisor.tick()
    assert wait.what == "wait"
    assert wait.about.startswith("it died: ")


@pytest.mark.parametrize("world", ["databricks"], indirect=True)
def test_a_start_whose_answer_is_lost_gives_one_run(world: World) -> None:
    """A workspace that took a start and cut the connection has one run of it, which the next tries find."""
    create(world.engine, world.group, "ann", "", placing())
    world.workspace.fault("POST", "/api/2.2/jobs/run-now", nth=1, status=504, when="after")
    world.supervisor.tick()
    (run,) = open_runs(world.engine).values()
    assert run.reference is None
    with world.engine.begin() as connection:
        connection.execute(update(group_runs).values(started_at=group_runs.c.started_at - 31))
    world.tick_until(world.is_reported)
    assert len(list(client(world.workspace).jobs.list_runs(job_id=world.job_id))) == 1
    (found,) = open_runs(world.engine).values()
    assert (found.run_id, found.reference is not None) == (run.run_id, True)


@pytest.mark.parametrize("world", ["databricks"], indirect=True)
def test_a_workspace_that_is_away_is_neither_life_nor_death(world: World) -> None:
    """While nobody can know of a run nothing is started, and nothing ends: the group waits, with the reason."""
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(world.is_reported)
    world.workspace.throttle(0, seconds=60.0, path_pattern="/runs/get")
    (wait,) = world.supervisor.tick()
    assert wait.what == "wait"
    assert "does not answer" in wait.about
    world.workspace.calm()
    world.tick_until(lambda: world.supervisor.tick() == [])
    assert len(open_runs(world.engine)) == 1


@pytest.mark.parametrize("world", ["databricks"], indirect=True)
def test_a_group_without_a_job_says_how_to_make_it(world: World) -> None:
    """A missing job is one clear sentence, and the other groups go on."""
    create(world.engine, Group("b", "databricks"), "ann", "", placing())
    create(world.engine, world.group, "ann", "", placing())
    world.tick_until(world.is_reported)
    assert "`turnout deploy apply`" in str(run_store.ended_runs(world.engine, 0)["b"][0].exit_message)


@pytest.mark.parametrize("world", ["databricks"], indirect=True)
@pytest.mark.parametrize("tags", [{}, {"turnout_env": "another"}])
def test_a_job_of_somebody_else_is_never_started(world: World, tags: dict[str, str]) -> None:
    """A job counts by its exact name together with the environment's tag, as names are not unique."""
    wheel = PythonWheelTask("tests.workspace.task", "main", parameters=["0"])
    name = job_name(world.environment, "group", "b")
    other = client(world.workspace).jobs.create(name=name, tags=tags, tasks=[Task("t", python_wheel_task=wheel)])
    create(world.engine, Group("b", "databricks"), "ann", "", placing())
    world.supervisor.tick()
    assert "has no job" in str(run_store.ended_runs(world.engine, 0)["b"][0].exit_message)
    assert list(client(world.workspace).jobs.list_runs(job_id=other.job_id)) == []
