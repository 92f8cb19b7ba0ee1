"""A page shows the very operation that a command submits: both are planned in one place."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.state import previews
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.cli.main import cli
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store import stream_control
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.games import record_seen, register_group
from pipeline.store.groups import change, read_groups
from pipeline.store.operations import change as change_operation
from pipeline.store.operations import submit
from pipeline.store.processes.drivers import start_driver
from tests.unit.app.app_world import is_shown, sign_in


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Return two groups, of which one carries two games."""
    settings, paths = load(tmp_path)
    store = open_store(settings, paths)
    register_group(store, "a", placing())
    record_seen(store, {"chess_1": "Chess", "go_1": "Go"}, 3, placing())
    register_group(store, "b", placing())
    for name in "ab":
        start_driver(store, "group", name, None)
    group = read_groups(store)["a"]
    change(store, group, replace(group, backend="local"), "ann", "")
    sign_in(monkeypatch, "ann")
    return Environment(settings, paths, str(paths.control_db))


def shown(environment: Environment, kind: str) -> Preview:
    """Return what a page shows of a kind of operation on the same targets as `COMMANDS`."""
    if kind == "move":
        return previews.preview_move(environment, ["chess_1"], "b")
    if kind == "drain":
        return previews.preview_drain(environment, "a")
    if kind in {"stop", "restart"}:
        return previews.preview_named(environment, kind, ["a"])
    return previews.preview_named(environment, kind, ["chess_1", "go_1"])


def undone(environment: Environment, kind: str) -> str:
    """Return an operation that has paused a game, or stopped a group."""
    store = open_store(environment.settings, environment.paths)
    if kind == "pause":
        done = submit(store, previews.preview_named(environment, kind, ["chess_1"]).intent)
        stream_control.submit_control(store, "chess_1", "ann", desired="paused")
    else:
        done = submit(store, previews.preview_named(environment, kind, ["a"]).intent)
        group = read_groups(store)["a"]
        change(store, group, replace(group, desired="stopped"), "ann", "")
    return change_operation(store, done, OperationState.SUCCEEDED).operation_id


COMMANDS = {
    "move": ("move", "Chess", "--to", "b"), "drain": ("groups", "drain", "a"), "pause": ("pause", "Chess", "Go"),
    "retire": ("games", "retire", "Chess", "Go"), "stop": ("groups", "stop", "a"),
    "restart": ("groups", "restart", "a"),
}  # fmt: skip


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_page_shows_what_the_command_would_submit(kind: str, environment: Environment) -> None:
    """Kind, targets and facts are the same, and the page has each line of the command, or shows what it changes."""
    compare(environment, COMMANDS[kind], shown(environment, kind))


@pytest.mark.parametrize(("kind", "inverse"), [("pause", "resume"), ("stop", "start")])
def test_an_undo_is_planned_once(kind: str, inverse: str, environment: Environment) -> None:
    """The page that undoes an operation shows what `turnout ops undo` would submit."""
    operation_id = undone(environment, kind)
    preview = previews.preview_undo(environment, operation_id)
    assert (preview.intent.kind, preview.intent.undoes) == (inverse, operation_id)
    compare(environment, ("ops", "undo", operation_id), preview)


def compare(environment: Environment, command: Sequence[str], preview: Preview) -> None:
    """Compare what a command prints of an operation with what a page shows of it."""
    arguments = [*command, "--dry-run", "--json", "--env-dir", str(environment.paths.root)]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert json.loads(done.stdout) == {
        "kind": preview.intent.kind, "targets": list(preview.intent.targets), "preview": preview.intent.preview,
        "left_out": [],
    }  # fmt: skip
    assert [line for line in done.stderr.splitlines() if not is_shown(line, preview)] == []
