"""Slips at the command line: what a person forgets, mistypes or asks for twice gets one sentence that helps."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.games import record_seen, register_group
from pipeline.store.operations import Intent, change, list_operations, submit
from pipeline.store.processes.drivers import start_driver


@pytest.fixture
def env(tmp_path: Path) -> Path:
    store = open_store(*load(tmp_path, {}))
    register_group(store, "a", placing())
    record_seen(store, {"chess_1": "Chess", "go_1": "Go"}, 3, placing())
    register_group(store, "b", placing())
    for name in "ab":
        start_driver(store, "group", name, None)
    return tmp_path


def turnout(env: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--env-dir", str(env)])


def test_a_game_that_is_there_already_is_named(env: Path) -> None:
    """A move, pause or stop that changes nothing says of each game or group why."""
    assert "chess_1 is in group a already" in turnout(env, "move", "Chess", "--to", "a").output
    same = turnout(env, "resume", "Go")
    assert (same.exit_code, "go_1 is not paused" in same.output) == (0, True), "what is asked for holds already"


def test_a_restore_of_a_live_game_is_refused(env: Path) -> None:
    """A restore names retired games alone: of a live one it restores nothing, also no other game beside it."""
    refused = turnout(env, "games", "restore", "Go", "--reason", "it is back")
    assert refused.exit_code == 1
    assert str(refused.exception) == "Not retired, so nothing was restored: go_1."
    assert list_operations(open_store(*load(env, {}))) == []


def test_fleet_is_no_command(env: Path) -> None:
    """A fleet is all games and their page; what brings an environment to a workspace is `turnout deploy`."""
    refused = turnout(env, "fleet", "plan")
    assert refused.exit_code == 2
    assert "No such command 'fleet'" in refused.output


def test_a_missing_reason_comes_before_the_plan(env: Path) -> None:
    """A person reads no plan that is then refused."""
    refused = turnout(env, "move", "Chess", "Go", "--to", "b")
    assert "Say why you move: --reason TEXT" in str(refused.exception)
    assert refused.output == ""
    assert "2 to move" in turnout(env, "move", "Chess", "Go", "--to", "b", "--dry-run").output


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("move", "chess", "--to", "b"), "'Chess'"),
        (("move", "ches_1", "--to", "b"), "'chess_1'"),
        (("groups", "set", "A", "--cores", "2"), "'a'"),
    ],
)
def test_the_nearest_name_is_offered(env: Path, words: tuple[str, ...], near: str) -> None:
    """A game, key or group that is almost right is answered with the right one."""
    assert f"Did you mean {near}?" in str(turnout(env, *words).exception)


def test_the_nearest_setting_is_offered(env: Path) -> None:
    """A mistyped key of turnout.toml is answered with the right one, before all that are known."""
    (env / "turnout.toml").write_text("[sourc]\nkind = 'kafka'\n[demux]\ntriger_seconds = 1\n")
    with pytest.raises(Refused) as refused:
        load(env, {})
    assert "sourc: no such setting. Did you mean 'source'?" in str(refused.value)
    assert "demux.triger_seconds: no such setting. Did you mean 'trigger_seconds'?" in str(refused.value)


def test_undo_takes_the_newest_of_ones_own(env: Path) -> None:
    """`ops undo` without an id undoes the person's newest operation that has an inverse, and none twice."""
    store = open_store(*load(env, {}))
    assert "You submitted nothing lately" in str(turnout(env, "ops", "undo", "--dry-run").exception)
    for actor, kind, key in ((current_user(), "pause", "go_1"), ("somebody", "pause", "chess_1")):
        begun = submit(store, Intent(kind, (f"game:{key}",), actor, "", {"games": [key]}, {key: ["running"]}))
        begun = change(store, begun, OperationState.RUNNING)
        change(store, begun, OperationState.SUCCEEDED, "done")
    own = next(each for each in list_operations(store) if each.targets == ("game:go_1",))
    shown = turnout(env, "ops", "undo", "--dry-run")
    assert shown.output.startswith(f"of {own.operation_id[:8]}")
    submit(
        store, Intent("resume", ("game:go_1",), current_user(), "", {"games": ["go_1"]}, {}, undoes=own.operation_id)
    )
    assert "You submitted nothing lately" in str(turnout(env, "ops", "undo", "--dry-run").exception)


def test_an_undo_that_was_cancelled_has_undone_nothing(env: Path) -> None:
    """`ops undo` after an undo that did nothing takes the same operation again, never an older one."""
    store = open_store(*load(env, {}))
    for key in ("chess_1", "go_1"):
        begun = submit(
            store, Intent("pause", (f"game:{key}",), current_user(), "", {"games": [key]}, {key: ["running"]})
        )
        change(store, change(store, begun, OperationState.RUNNING), OperationState.SUCCEEDED, "done")
    newest = turnout(env, "ops", "undo", "--dry-run").output
    undone = next(each for each in list_operations(store) if each.operation_id[:8] in newest)
    inverse = Intent("resume", undone.targets, current_user(), "", {"games": []}, {}, undoes=undone.operation_id)
    undo = submit(store, inverse)
    assert undone.operation_id[:8] not in turnout(env, "ops", "undo", "--dry-run").output
    change(store, undo, OperationState.CANCELLED, "not now")
    assert turnout(env, "ops", "undo", "--dry-run").output == newest
