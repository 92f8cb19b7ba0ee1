"""Steering and status ask one function who lives; what steering does not decide by it alone is said why."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, update

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control.operations import moves
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.health.facts.loads import read_loads
from pipeline.health.verdicts.placement.planner import place
from pipeline.settings.tree import Metrics, Paths, Settings
from pipeline.store.assignments import read_assignments
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.processes.drivers import start_driver
from tests.browser.seed import Seeded, seed


@pytest.fixture
def store(tmp_path: Path) -> Engine:
    """Return the store of one game whose group's driver runs and has reported it just now."""
    seed(tmp_path, (Seeded("x", "a", {}),), now=time.time(), heartbeat_ages={"ingest": 0, "a": 0}, history=False)
    return open_store(Settings(), Paths(tmp_path))


def nothing(store: Engine) -> None:
    """Let the driver go on."""


def ends(store: Engine) -> None:
    """Let the controller write down that the driver's process ended a second ago."""
    now = time.time()
    row = {"group_name": "a", "reference": '{"host": "localhost", "pid": 4242}', "died": 1, "exit_message": "code 3"}
    with store.begin() as connection:
        connection.execute(insert(tables.group_runs).values(started_at=now - 60, ended_at=now - 1, **row))
        connection.execute(update(tables.drivers).where(tables.drivers.c.name == "a").values(heartbeat_at=now - 2))


def loses_its_lease(store: Engine) -> None:
    """Let the lease of a driver run out that beats all the same."""
    lease = {"kind": "group", "name": "a", "host": "localhost", "pid": 4242, "token": "t", "epoch": 1}
    with store.begin() as connection:
        connection.execute(insert(tables.leases).values(since=0.0, expires_at=time.time() - 1, **lease))


def falls_silent(store: Engine) -> None:
    """Let the driver miss three heartbeats, as they come by default."""
    with store.begin() as connection:
        theirs = tables.drivers.c.name == "a"
        connection.execute(update(tables.drivers).where(theirs).values(heartbeat_at=time.time() - 16))


@pytest.mark.parametrize(
    ("happens", "heartbeat_seconds", "state"),
    [
        (nothing, 5.0, "running"),
        (ends, 5.0, "dead"),
        (loses_its_lease, 5.0, "unknown"),
        (falls_silent, 5.0, "unknown"),
        (falls_silent, 30.0, "running"),
    ],
)
@pytest.mark.proves("G132")
def test_steering_asks_who_lives_as_status_does(
    store: Engine, happens: Callable[[Engine], None], heartbeat_seconds: float, state: str
) -> None:
    """What status says of a driver decides whether its group takes games, and is what a refusal says."""
    happens(store)
    metrics = Metrics(heartbeat_seconds=heartbeat_seconds)
    fleet = read_fleet(store, settings=Settings(metrics=metrics))
    judged = fleet.state("group", "a")
    assert judged is not None
    assignment = read_group_liveness(store, metrics, fleet.read_at)["a"]
    room = read_loads(store, fleet.read_at, metrics=metrics).groups["a"]
    assert (judged.liveness.state, assignment.liveness) == (state, judged.liveness)
    assert (room.alive, room.silence) == (judged.liveness.is_live, judged.liveness.silence)
    homeless = {key: replace(each, group=None) for key, each in read_assignments(store).items()}
    if judged.liveness.is_live:
        assert len(moves.plan({game_key("x"): "a"}, homeless, {"a": assignment}).moves) == 1
        return
    with pytest.raises(Refused, match=re.escape(f"cannot take games: its driver {judged.liveness.reason}. Start it")):
        moves.plan({game_key("x"): "a"}, homeless, {"a": assignment})


@pytest.mark.parametrize("reference", ['{"run": 7}', "7", "purple"])
def test_a_start_whose_reference_names_no_process_hides_nobody(store: Engine, reference: str) -> None:
    """A backend has a reference of its own form; all pages, `status` and evacuation read it."""
    row = {"group_name": "a", "reference": reference, "died": 1, "exit_message": "code 3"}
    with store.begin() as connection:
        connection.execute(insert(tables.group_runs).values(**row, started_at=1.0, ended_at=2.0))
    state = read_fleet(store).state("group", "a")
    assert state is not None
    assert state.liveness.state == "running"


@pytest.mark.proves("G132")
def test_nobody_leaves_a_group_whose_driver_may_be_back_in_a_moment(store: Engine) -> None:
    """It takes no games at once, but its own stay for two minutes: a driver that is restarted is back by then."""
    ends(store)
    with store.begin() as connection:
        connection.execute(insert(tables.groups).values(name="b", created_at=0.0))
    start_driver(store, "group", "b", None)
    now = time.time()
    assert not read_loads(store, now).groups["a"].alive
    assert place(read_loads(store, now)).new_groups == {}
    with store.begin() as connection:
        connection.execute(update(tables.drivers).where(tables.drivers.c.name == "b").values(heartbeat_at=now + 200))
    (only,) = place(read_loads(store, now + 200)).placements
    assert (only.target, "group a is dead: its driver ended 2" in only.why) == ("b", True)
