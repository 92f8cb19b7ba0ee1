"""The contract of every backend, and the supervisor over a real one: real processes, only no Spark is in them."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, update

from pipeline.cli.main import cli
from pipeline.control.backends.backend import Backend
from pipeline.control.backends.duties import Duty
from pipeline.control.backends.local import Local, process_of
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext as Steered
from pipeline.control.operations.executor import tick
from pipeline.control.supervision.evacuation import Dead, dead
from pipeline.control.supervision.supervisor import Supervisor
from pipeline.data.streams.active_games import read_leftover
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.condition import judge_groups
from pipeline.settings.tree import load
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import group_runs
from pipeline.store.games import record_seen
from pipeline.store.groups import Group, create, read_groups
from pipeline.store.operations import list_operations
from pipeline.store.processes import runs as run_store
from pipeline.store.processes.drivers import start_driver
from pipeline.store.processes.leases import store_time
from pipeline.store.processes.runs import open_runs
from pipeline.store.reports import write_backlog

DRIVER = """
import pathlib, signal, sys, threading
from pipeline.health.verdicts.condition import judge_groups
from pipeline.settings.tree import load
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.database.engine import open_store
from pipeline.store.processes.leases import leased

name, env, run_id, stubborn = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]) or None, "stubborn" in sys.argv
stop = threading.Event()
signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else lambda *_: stop.set())
settings, paths = load(env)
engine = open_store(settings, paths)
with leased(engine, settings.store, "group", name, run_id):
    start_driver(engine, "group", name, None, run_id)
    heartbeat(engine, "group", name, "running", None)
    stop.wait()
"""
"""A driver that holds its lease and tells, as the real one does, and carries nothing."""


CARRIER = """
import os, pathlib, signal, sys, time
from pipeline.health.verdicts.condition import judge_groups
from pipeline.settings.tree import load
from pipeline.store.processes.drivers import heartbeat, start_driver
from tests.unit.store.reports_world import write_streams
from pipeline.store.database.engine import open_store
from pipeline.store.games import carried, let_go
from pipeline.store.processes.leases import leased
from pipeline.data.streams.active_games import ActiveGames
from listeners.sample import Lane, StreamState

name, env, run_id = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]) or None
settings, paths = load(env)
engine = open_store(settings, paths)
active = ActiveGames(paths.checkpoints / "demux" / name, "shared")
with leased(engine, settings.store, "group", name, run_id) as lease:
    start_driver(engine, "group", name, None, run_id)
    held = set()
    while True:
        heartbeat(engine, "group", name, "running", None)
        games = {each.game_key for each in carried(engine, lease)}
        if held - games:
            let_go(engine, lease, held - games)
        held = games
        with active.track(sorted(games)):
            if "killer_1" in games:
                os.kill(os.getpid(), signal.SIGKILL)
        rest = (None, None, None, None, 0, 0, None, time.time())
        write_streams(engine, [StreamState(key, name, Lane.RUN, "RUNNING", 0.0, 3, *rest) for key in sorted(games)])
        time.sleep(0.05)
"""
"""A driver that carries games and tells of them, as the real one does; one of the games kills it."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator["World"]:
    made = World(tmp_path)
    yield made
    for backend in made.backends:
        for child in backend._children.values():
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    made.engine.dispose()


class World:
    """A store with a supervisor whose groups are small real processes."""

    def __init__(self, env: Path) -> None:
        self.env, self.mode = env, ""
        self.backends: list[Local] = []  # kept, so that no process is left behind
        settings, paths = load(env, {})
        self.engine: Engine = open_store(settings, paths)
        self.supervisor = self.another()

    def another(self) -> Supervisor:
        """Return a controller's supervisor that remembers nothing."""
        return Supervisor(self.engine, {"local": self.backend()}, self.active_games)

    def active_games(self, group: str) -> list[str]:
        return read_leftover(self.env / "checkpoints" / "demux" / group)

    def backend(self) -> Local:
        def command(duty: Duty, run_id: int) -> list[str]:
            if self.mode == "dies":
                return [sys.executable, "-c", "raise SystemExit(3)"]
            driver = CARRIER if self.mode == "carries" else DRIVER
            return [sys.executable, "-c", driver, duty.name, str(self.env), str(run_id), self.mode]

        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.backends.append(Local(self.env / "logs", command, environ))
        return self.backends[-1]

    def tick_until(self, seen: Callable[[], object], supervisor: Supervisor | None = None) -> None:
        """Let a supervisor act until something is so; the test's time limit ends it where that never is."""
        while not seen():
            (supervisor or self.supervisor).tick()
            time.sleep(0.05)

    def let_rest(self) -> None:
        """Let what has died have rested: as if it had been a minute ago."""
        new = group_runs.c.ended_at > group_runs.c.started_at
        with self.engine.begin() as connection:
            connection.execute(update(group_runs).where(new).values(ended_at=group_runs.c.ended_at - 60))

    def is_reported(self) -> bool:
        driving = run_store.active_drivers(self.engine).get("a")
        return driving is not None and driving.state == "running"

    def pid(self) -> int:
        process = process_of(open_runs(self.engine)["a"].reference or "")
        assert process is not None
        return process.pid


BY_HAND = 0
"""The run of a driver that no controller has started."""


def alive(backend: Backend, reference: str) -> bool | None:
    return backend.observe([reference])[reference].is_alive


def test_a_process_of_another_machine_is_unknown(world: World) -> None:
    """Nobody here can know of it, so it is neither alive nor dead: its lease decides."""
    later = world.backend()
    reference = later.start(Group("a", backend="local"), 1, "t")
    elsewhere = json.dumps({**json.loads(reference), "pid_namespace": "another machine"})
    assert alive(later, elsewhere) is None
    assert alive(later, "purple") is None
    later.kill("purple")


@pytest.mark.proves("G133")
def test_a_killed_driver_is_dead_in_status_after_the_next_look(world: World) -> None:
    """What the controller knows counts at once: after one look the command says how the driver ended, not `running`."""
    world.mode = "carries"
    create(world.engine, Group("a", backend="local"), "ann", "", placing())
    record_seen(world.engine, {"calm_0": "CALM_0"}, 3, placing())

    start_driver(world.engine, "ingest", "main", None)

    def status() -> tuple[int, tuple[str, str | None], str]:
        write_backlog(world.engine, age_seconds=0.0, peak_seconds=0.0, rows=0, limit_seconds=60.0, reason=None)
        shown = CliRunner().invoke(cli, ["status", "--json", "--env-dir", str(world.env)], catch_exceptions=False)
        answer = json.loads(shown.stdout)
        (group,) = (each for each in answer["drivers"] if each["kind"] == "group")
        (game,) = answer["games"]
        return shown.exit_code, (group["state"], group["reason"]), game["status"]

    world.tick_until(lambda: status()[1:] == (("running", None), "RUNNING"))
    reference = open_runs(world.engine)["a"].reference or ""
    os.kill(world.pid(), signal.SIGKILL)
    world.backends[0]._children[reference].wait()
    world.supervisor.tick()
    code, (state, reason), game = status()
    assert (code, state, game) == (1, "dead", "UNKNOWN")
    assert str(reason).endswith("killed by SIGKILL")


def test_a_run_that_was_never_written_down_is_adopted_by_its_lease(world: World) -> None:
    """A controller killed between start and note leaves a driver that is found by its lease, not a second one."""
    create(world.engine, Group("a", backend="local"), "ann", "", placing())
    run_id = run_store.begin_run(world.engine, "a")
    assert run_id is not None
    reference = world.backend().start(read_groups(world.engine)["a"], run_id, "t")
    while not world.is_reported():
        time.sleep(0.05)
    assert [action.what for action in world.supervisor.tick()] == ["adopt"]
    assert world.supervisor.tick() == []
    assert [(each.run_id, each.reference) for each in open_runs(world.engine).values()] == [(run_id, reference)]


@pytest.mark.proves("D15", "G93")
def test_an_orphan_is_stopped_within_two_looks(world: World) -> None:
    """D15: a driver that runs though its group shall not is found by its lease and stopped."""
    create(world.engine, Group("a", backend="local", desired="stopped"), "ann", "", placing())
    reference = world.backend().start(read_groups(world.engine)["a"], BY_HAND, "t")
    while not world.is_reported():
        time.sleep(0.05)
    assert [action.what for action in world.supervisor.tick()] == ["adopt"]
    assert [action.what for action in world.supervisor.tick()] == ["stop"]
    world.tick_until(lambda: "a" not in open_runs(world.engine))
    process = process_of(reference)
    assert process is not None
    assert process.is_dead()


def test_what_dies_at_once_is_not_started_in_a_storm(world: World) -> None:
    """A driver that cannot start costs one attempt and a pause, and how it ended is kept."""
    world.mode = "dies"
    create(world.engine, Group("a", backend="local"), "ann", "", placing())
    world.tick_until(lambda: run_store.ended_runs(world.engine, 0))
    said = [(action.what, action.about) for action in world.supervisor.tick()]
    assert said == [("wait", "it died: exit code 3")]


@pytest.mark.proves("D22")
def test_a_group_whose_starts_come_to_nothing_is_dead_and_one_that_dies_of_its_work_is_not(world: World) -> None:
    """D22: what the supervisor has written down tells the two apart; only the first is evacuated."""
    create(world.engine, Group("a", backend="local"), "ann", "", placing())
    for name in "bc":
        create(world.engine, Group(name), "ann", "", placing())

    def dies() -> list[Dead]:
        """Let three more drivers of it die, and ten minutes go by."""
        ended = len(run_store.ended_runs(world.engine, 0).get("a", []))

        def three_more() -> bool:
            if world.mode != "dies" and world.is_reported() and "a" in open_runs(world.engine):
                os.kill(world.pid(), signal.SIGKILL)
            world.let_rest()
            return len(run_store.ended_runs(world.engine, 0).get("a", [])) >= ended + 3

        world.tick_until(three_more)
        with world.engine.begin() as connection:  # a rest was written as an end before the beginning
            connection.execute(update(group_runs).values(ended_at=group_runs.c.started_at + 1))
        return dead(judge_groups(read_drivers(world.engine, now=store_time(world.engine) + 600)), 10.0)

    assert dies() == [], "its drivers run and are killed"
    world.mode = "dies"
    assert [each.group for each in dies()] == ["a"]


def test_two_controllers_start_one_driver(world: World) -> None:
    """D7: of two controllers that start a group at the same moment, the second finds it begun."""
    create(world.engine, Group("a", backend="local"), "ann", "", placing())
    other = world.another()
    world.supervisor.tick()
    other.tick()
    assert len(open_runs(world.engine)) == 1
    assert run_store.begin_run(world.engine, "a") is None


@pytest.mark.long
@pytest.mark.proves("D14", "G94")
def test_a_game_that_kills_its_group_gets_one_of_its_own(world: World) -> None:
    """D14: those in hand at two deaths are halved between the group and new ones until the killer is alone."""
    world.mode = "carries"
    create(world.engine, Group("a", backend="local"), "ann", "", placing())
    names = [*(f"calm_{number}" for number in range(5)), "killer_1"]
    record_seen(world.engine, {name: name.upper() for name in names}, 3, placing())
    settings, paths = load(world.env, {})
    controller = Steered(settings, world.engine, paths)

    def others_run() -> bool:
        tick(controller, KINDS)
        world.let_rest()
        there = read_assignments(world.engine)
        of_killer = there["killer_1"].group
        alone = sum(assignment.group == of_killer for assignment in there.values()) == 1
        return alone and all(
            assignment.reported_group == assignment.group for key, assignment in there.items() if key != "killer_1"
        )

    world.tick_until(others_run)
    submitted, made = list_operations(world.engine), read_groups(world.engine)
    assert {each.kind for each in submitted} == {"isolate"}
    assert all("with these games in hand" in each.reason for each in submitted)
    assert all(made[name].desired == "drained" for name in made if name != "a"), "nothing new is placed there"


def test_stopping_all_leaves_no_driver(world: World) -> None:
    """A controller that is to end with its groups waits until all have ended."""
    create(world.engine, Group("a", backend="local"), "ann", "", placing())
    world.tick_until(world.is_reported)
    pid = world.pid()
    while not world.supervisor.stop_all():
        time.sleep(0.05)
    assert process_dead(pid)


def process_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
