"""The commands that steer: one sentence for wrong use, JSON for scripts, and nothing done where nothing was asked."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.cli import cli
from pipeline.control.controller import KINDS
from pipeline.control.engine import World, tick
from pipeline.errors import Refused
from pipeline.settings import load
from pipeline.store.drivers import start_driver
from pipeline.store.engine import open_store
from pipeline.store.games import record_seen, register_group
from pipeline.store.operations import change, listed
from pipeline.store.seats import seats


@pytest.fixture
def world(tmp_path: Path) -> World:
    settings, paths = load(tmp_path, {})
    store = open_store(settings, paths)
    register_group(store, "a")
    record_seen(store, {"chess_1": "Chess", "go_1": "Go"}, 3)
    register_group(store, "b")
    for name in "ab":
        start_driver(store, "group", name, None)
    return World(settings, store, paths)


def turnout(env: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--env-dir", str(env)], catch_exceptions=False)


def test_a_dry_run_shows_the_very_move_and_asks_for_nothing(world: World, tmp_path: Path) -> None:
    """`--dry-run` prints what would be done; afterwards no operation is there and no game has moved."""
    shown = turnout(tmp_path, "move", "Chess", "--to", "b", "--dry-run")
    assert (shown.exit_code, "chess_1: a → b, cursor unknown" in shown.output) == (0, True)
    as_json = turnout(tmp_path, "move", "chess_1", "Chess", "--to", "b", "--dry-run", "--json")
    assert json.loads(as_json.stdout) == {
        "kind": "move", "targets": ["game:chess_1"], "preview": {"chess_1": ["a", "b", 1]},
    }  # fmt: skip
    shown = turnout(tmp_path, "pause", "Go", "--dry-run")
    assert (shown.exit_code, "go_1: nothing told in group a\n1 to pause" in shown.output) == (0, True)
    assert "0 to resume" in turnout(tmp_path, "resume", "Go", "Chess").output
    assert "0 to retry" in turnout(tmp_path, "repair", "retry", "Go").output
    assert listed(world.engine) == []
    assert seats(world.engine)["chess_1"].group == "a"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("move", "Tetris", "--to", "b"), "No such game: 'Tetris'"),
        (("move", "Chess", "--to", "z"), "no cluster group 'z'. Groups: a, b"),
        (("pause", "Chess", "Tetris"), "No such game: 'Tetris'"),
        (("ops", "show", "nothing"), "no operation 'nothing'"),
        (("ops", "resume", "nothing"), "no operation"),
        (("ops", "undo", "nothing"), "no operation"),
    ],
)
def test_wrong_use_is_one_sentence(world: World, tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    """What cannot be is refused before anything is written."""
    with pytest.raises(Refused, match=sentence):
        turnout(tmp_path, *arguments)
    assert listed(world.engine) == []


def test_an_operation_can_be_followed_looked_after_and_proven(world: World, tmp_path: Path) -> None:
    """From asking to the audit log: each command tells what is so, by the beginning of the operation's id."""
    asked = turnout(tmp_path, "move", "Chess", "--to", "b", "--reason", "hot", "--no-wait", "--json")
    operation = json.loads(asked.stdout)
    assert (asked.exit_code, operation["state"], operation["reason"]) == (0, "planned", "hot")
    tick(world, KINDS)
    name = operation["operation_id"][:8]
    shown = turnout(tmp_path, "ops", "show", name).output
    assert "reason: hot" in shown
    assert "1 assign   done     1 assigned." in shown
    assert "3 take     running  Group b has not taken 1 yet: chess_1." in shown
    (only,) = json.loads(turnout(tmp_path, "ops", "list", "--open", "--json").stdout)
    assert only["operation_id"] == operation["operation_id"]
    with pytest.raises(Refused, match="does not wait for a person: it is running"):
        turnout(tmp_path, "ops", "close", name, "--reason", "x")
    with pytest.raises(Refused, match="is running: only one that has succeeded can be undone"):
        turnout(tmp_path, "ops", "undo", name)
    change(world.engine, listed(world.engine)[0], "needs_human", "b is stuck")
    assert "running" in turnout(tmp_path, "ops", "resume", name).output
    change(world.engine, listed(world.engine)[0], "needs_human", "b is stuck")
    unended = turnout(tmp_path, "audit", "verify")
    assert (unended.exit_code, "no end is told" in unended.output) == (0, True)
    assert "failed: Closed by" in turnout(tmp_path, "ops", "close", name, "--reason", "b restarted").output
    verdict = json.loads(turnout(tmp_path, "audit", "verify", "--json").stdout)
    assert (verdict["intact"], verdict["entries"], verdict["unended"]) == (True, 2, [])
    log = turnout(tmp_path, "audit", "list").output
    assert "move begun  game:chess_1" in log
    assert "move ended failed  game:chess_1" in log
    assert turnout(tmp_path, "audit", "verify", "--expect", "0" * 64).exit_code == 1


def test_groups_are_made_changed_and_listed(world: World, tmp_path: Path) -> None:
    """What is wanted of a group can be said on the command line, and the list tells it to scripts."""
    assert turnout(tmp_path, "groups", "create", "c", "--backend", "local", "--cores", "2").exit_code == 0
    assert turnout(tmp_path, "groups", "set", "c", "--priority", "high", "--unlimited").exit_code == 0
    rows = {row["name"]: row for row in json.loads(turnout(tmp_path, "groups", "list", "--json").stdout)}
    assert set(rows) == {"a", "b", "c"}
    expected = {"backend": "local", "capacity_cores": None, "priority": "high", "desired": "running", "driver": None}
    assert expected.items() <= rows["c"].items()
    assert "started by somebody else" in turnout(tmp_path, "groups", "list").output
    shown = turnout(tmp_path, "groups", "stop", "c", "--dry-run")
    assert "0 games stand still until it is started again" in shown.output
    with pytest.raises(Refused, match="Somebody else starts group a"):
        turnout(tmp_path, "groups", "restart", "a")
    with pytest.raises(Refused, match="Nothing to change is named"):
        turnout(tmp_path, "groups", "set", "c")
    with pytest.raises(Refused, match="--cores and --unlimited cannot both be true"):
        turnout(tmp_path, "groups", "set", "c", "--cores", "1", "--unlimited")


def test_status_is_a_verdict_for_scripts(world: World, tmp_path: Path) -> None:
    """`turnout status` ends with 1 where a person should look, unknown included, and names where."""
    told = turnout(tmp_path, "status")
    assert told.exit_code == 1
    assert told.output.splitlines()[:2] == ["a person should look", "ingest was never started"]
    assert "STARTING     chess_1" not in told.output
    assert "STARTING     chess_1" in turnout(tmp_path, "status", "--all").output
    start_driver(world.engine, "ingest", "main", None)
    well = turnout(tmp_path, "status", "--json")
    assert (well.exit_code, json.loads(well.stdout)["well"]) == (0, True)
    turnout(tmp_path, "pause", "Chess", "--no-wait")
    change(world.engine, listed(world.engine)[0], "needs_human", "look at it")
    asked = turnout(tmp_path, "status")
    assert (asked.exit_code, "pause: look at it" in asked.output) == (1, True)
