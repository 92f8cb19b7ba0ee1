"""Starts and deaths of drivers are read over hours, and what a person does later changes none of them."""

import time
from pathlib import Path

from sqlalchemy import Engine, update

from pipeline.api.environment import OpenEnvironment
from pipeline.api.runs import DriverEvent, driver_events, runs
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.tables import group_runs
from pipeline.store.processes.runs import RELEASED, begin_run, end_run, reset_restart_budget, runs_since
from pipeline.store.rows import Driver

NOW = 1_800_000_000.0


def lived(engine: Engine, name: str, began: float, ended: float | None, message: str = "killed", **more: object) -> int:
    """Write a run of a group with its times, and return its id."""
    run_id = begin_run(engine, name)
    assert run_id is not None
    if ended is not None:
        end_run(engine, run_id, message, died=message == "killed")
    with engine.begin() as connection:
        own = update(group_runs).where(group_runs.c.run_id == run_id)
        connection.execute(own.values(started_at=began, ended_at=ended, **more))
    return run_id


def test_a_death_stays_after_a_person_has_dealt_with_it(engine: Engine, tmp_path: Path) -> None:
    """A reset budget, a requested stop and a release: only an end that nobody requested is a death."""
    now = time.time()
    lived(engine, "a", now - 7000, now - 6000)
    lived(engine, "a", now - 5000, now - 4000, "exit code 0", stop_requested_at=now - 4001)
    lived(engine, "a", now - 3000, now - 2000, RELEASED)
    newest = lived(engine, "a", now - 1000, None)
    reset_restart_budget(engine, "a")
    environment = OpenEnvironment(Settings(), Paths(tmp_path), engine)
    known = runs(environment, 86_400.0)
    assert [each.died for each in known] == [False] * 4
    driver = Driver("group", "a", "host", 7, now - 990, now, "running", None, None, newest)
    alone = Driver("group", "b", "host", 8, now - 500, now, "running", None, None)
    found = [(each.name, round(each.at - now), each.what) for each in driver_events([driver, alone], known, 0.0)]
    starts = [("a", -at, "starts") for at in (7000, 5000, 3000, 1000)]
    assert sorted(found) == sorted([*starts, ("a", -6000, "died"), ("b", -500, "starts")])
    assert driver_events([], known, now - 2500) == (DriverEvent("group", "a", known[0].started_at, "starts"),)


def test_a_range_has_the_runs_that_touch_it(engine: Engine) -> None:
    """A run counts if it began or ended within the range, and of very many the newest are read."""
    lived(engine, "a", NOW - 9000, NOW - 8000)
    ended = lived(engine, "b", NOW - 9000, NOW - 100)
    begun = lived(engine, "c", NOW - 50, None)
    assert [each.run_id for each in runs_since(engine, NOW - 200, 10)] == [begun, ended]
    assert [each.run_id for each in runs_since(engine, NOW - 200, 1)] == [begun]
