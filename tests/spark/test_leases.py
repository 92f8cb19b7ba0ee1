"""Leases where drivers are real: processes that are refused and stopped, and passes that end first."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select, update

from pipeline.base.names import game_key
from pipeline.data.streams.group import Group
from pipeline.demo.simulator import game_names
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers, games, leases
from pipeline.store.games import register_group
from pipeline.store.processes.drivers import bronze_readers
from pipeline.store.processes.leases import Lease, store_now
from tests.spark.demo_world import turnout

GAMES = [game_key(name) for name in game_names(12, 7, hostile=True)]
_READY_SECONDS = 120.0

pytestmark = pytest.mark.timeout(420)  # cold sessions in other processes


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    store = open_store(*load(tmp_path / "env", {}))
    yield store
    store.dispose()


@contextmanager
def driver(env: Path, lease_seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run the driver of group a in a session of its own; it is killed with its JVM when the block ends."""
    command = [sys.executable, "-m", "pipeline", "groups", "run", "a", "--env-dir", str(env)]
    environ = {**os.environ, "TURNOUT_STORE__LEASE_SECONDS": str(lease_seconds)}
    with (env / f"{lease_seconds:g}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(what: Callable[[], bool], sentence: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not what():
        assert time.monotonic() < deadline, sentence
        time.sleep(0.1)


def runs(engine: Engine, process: subprocess.Popen[bytes]) -> bool:
    """Return whether the control store says that this process's query runs."""
    assert process.poll() is None, "the driver has ended"
    mine = (drivers.c.pid == process.pid) & (drivers.c.state == "running")
    with engine.connect() as connection:
        return connection.scalar(select(drivers.c.pid).where(mine)) is not None


def ran_out(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.scalar(select(leases.c.expires_at <= store_now())))


@pytest.mark.parametrize(("kind", "name"), [("ingest", "main"), ("group", "a")])
@pytest.mark.proves("G89")
def test_a27_a_second_driver_is_refused_before_it_starts_anything(
    kind: Any, name: str, engine: Engine, tmp_path: Path
) -> None:
    """A27: two processes cannot be the same driver; the second ends with one sentence before it starts a session."""
    Lease(engine, kind, name, 60).acquire()
    words = ("ingest", "run") if kind == "ingest" else ("groups", "run", name)
    done = turnout(*words, "--once", "--env-dir", str(tmp_path / "env"))
    assert done.returncode == 2
    assert f"process {os.getpid()} on " in done.stderr
    assert "Stop that process first" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "env" / "targets").exists(), "it began to tell of itself"


@pytest.mark.long
@pytest.mark.proves("G90")
def test_a_stopped_driver_is_replaced_and_ends_when_it_comes_back(engine: Engine, tmp_path: Path) -> None:
    """Group a: taken over after a stop too long; each other driver ends, and leaves the heir alone."""
    env = tmp_path / "env"
    register_group(engine, "a", placing())
    with driver(env, 3) as stopped:
        until(lambda: runs(engine, stopped), "the first driver does not run")
        os.killpg(stopped.pid, signal.SIGSTOP)
        until(lambda: ran_out(engine), "the lease of a stopped driver does not run out")
        with driver(env, 30) as heir:
            until(lambda: runs(engine, heir), "the heir does not run")
            os.killpg(stopped.pid, signal.SIGCONT)
            assert stopped.wait(60) == 2
            reported = (env / "3.log").read_text("utf-8")
            assert "turnout: This process no longer drives group a" in reported
            assert f"process {heir.pid} on " in reported
            # A library writes about its own objects at the end, now and then.
            ours = reported.partition("nanobind: ")[0]
            assert ours.splitlines()[-1].startswith("turnout: "), "its last word is no sentence"
            refused = turnout("groups", "run", "a", "--env-dir", str(env))
            assert refused.returncode == 2
            assert f"drives group a: process {heir.pid} on " in refused.stderr
            # The other one may have written its batch's offsets first: the heir's query then fails once and restarts.
            until(lambda: runs(engine, heir), "the heir does not go on")
            heir.send_signal(signal.SIGTERM)
            assert heir.wait(60) == 0
            assert all(each.reads_from is not None for each in bronze_readers(engine)), "maintenance must know it"
    assert ran_out(engine), "a clean end did not give the lease back"


def _leased(world: Any, name: str, publish: Callable[[Any], None] | None = None) -> Group:
    register_group(world.engine, name, placing())
    lease = Lease(world.engine, "group", name, 600)
    lease.acquire()
    return Group(world.spark, world.settings, world.paths, world.engine, name, publish or world.passes.append, lease)


def _move(world: Any, group: str, *keys: str) -> None:
    with world.engine.begin() as connection:
        moved = update(games).where(games.c.game_key.in_(keys))
        connection.execute(moved.values(group_name=group, epoch=games.c.epoch + 1))


@pytest.mark.proves("G92")
def test_a_game_moves_between_two_drivers_without_ever_having_two(world: Any) -> None:
    """A move under leases: b gets the game when a's pass has ended and a let it go, and no row is lost or doubled."""
    moved = GAMES[:3]
    during: list[set[str]] = []

    def in_the_pass(result: Any) -> None:
        if result.batch_id < 0 or during:
            return
        _move(world, "b", *moved)
        a.roster.sync()
        b.roster.sync()
        during.append(set(b.streams))

    a, b = _leased(world, "a", in_the_pass), _leased(world, "b")
    world.simulate(600)
    with world.engine.begin() as connection:
        connection.execute(update(games).values(group_name="a"))
    world.ingest()
    _move(world, "a", *GAMES)
    world.split(a)
    world.simulate(600)
    world.ingest()
    world.split(a)
    assert during == [set()]
    assert not set(moved) & set(a.streams)
    world.split(b)
    assert set(moved) == set(b.streams)
    world.simulate(600)
    world.ingest()
    for group in (a, b):
        world.split(group)
    assert world.verify().complete
    assert all(b.roster.holds(key) and not a.roster.holds(key) for key in moved)
