"""A move between real drivers under real traffic, asked for on the command line."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from pipeline.cli.main import cli
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.health.facts.placing import placing
from pipeline.platforms.local.child_processes import Children, turnout
from pipeline.settings.tree import load
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import open_store
from pipeline.store.games import register_group

QUICK_START = """[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

[maintenance]
backend = "none"

[metrics]
heartbeat_seconds = 1
"""  # a JVM that lives for a minute is not worth compiling well, and steps wait for the word of drivers

pytestmark = pytest.mark.timeout(420)


def run(env: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--env-dir", str(env)])


def until(children: Children, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 150
    while not condition():
        assert not children.dead(), children.tail(children.dead()[0].name)
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.5)


def all_run(store: Engine) -> bool:
    lanes = [assignment.lane for assignment in read_assignments(store).values()]
    return lanes == ["RUN"] * 12 and {group.liveness.state for group in read_group_liveness(store).values()} == {
        "running"
    }


def is_in(store: Engine, key: str, lane: str) -> bool:
    return read_assignments(store)[key].lane == lane


@pytest.mark.long
@pytest.mark.proves("G98")
def test_a_group_is_emptied_while_events_flow_and_every_row_is_accounted_for(tmp_path: Path) -> None:
    """Laws L4 and L7: games go to another driver and back, one is paused, and no row is lost, doubled or misrouted."""
    env = tmp_path / "env"
    env.mkdir()
    (env / "turnout.toml").write_text(QUICK_START)
    settings, paths = load(env, {})
    store = open_store(settings, paths)
    for name in "ab":
        register_group(store, name, placing())
    at = ("--env-dir", str(env))
    with Children(paths.logs) as children:
        with Children(paths.logs) as traffic:
            traffic.start("simulate", turnout("simulate", *at, "--games", "12", "--hostile", "--rate", "500"))
            children.start("ingest", turnout("ingest", "run", *at))
            children.start("controller", turnout("controller", "run", *at))
            for name in "ab":
                children.start(f"group-{name}", turnout("groups", "run", name, *at))
            until(children, lambda: all_run(store), "two groups that run twelve games")
            mine = sorted(key for key, assignment in read_assignments(store).items() if assignment.group == "a")
            moved = run(env, "move", *mine, "--to", "b", "--reason", "a test", "--json")
            assert moved.exit_code == 0, moved.output
            result = json.loads(moved.stdout)
            assert (result["state"], len(result["targets"])) == ("succeeded", 6)
            assert [step["name"] for step in result["steps"]] == ["assign", "release", "acquire", "verify"]
            assert {assignment.held_by for assignment in read_assignments(store).values()} == {"b"}
            back = run(env, "ops", "undo", result["operation_id"], "--reason", "a test")
            assert back.exit_code == 0, back.output
            assert (
                sorted(key for key, assignment in read_assignments(store).items() if assignment.held_by == "a") == mine
            )
            for command, lane in (("pause", "PAUSED"), ("resume", "RUN")):
                decided = run(env, command, mine[0])
                assert decided.exit_code == 0, decided.output
                until(children, partial(is_in, store, mine[0], lane), f"{lane} of {mine[0]}")
        again = run(env, "move", *mine, "--to", "a", "--reason", "a test")
        assert (again.exit_code, "0 to move" in again.stdout) == (0, True)
        until(children, lambda: run(env, "verify", "--complete").exit_code == 0, "completeness")
    audit = run(env, "audit", "verify")
    assert (audit.exit_code, "8 entries, intact" in audit.stdout) == (0, True)
    store.dispose()
