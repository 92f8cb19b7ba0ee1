"""A page shows the very operation that a command submits: both are planned in one place."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.state import previews
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.cli.main import cli
from pipeline.settings import load
from pipeline.store.drivers import start_driver
from pipeline.store.engine import open_store
from pipeline.store.games import record_seen, register_group
from pipeline.store.groups import change, read_groups
from tests.unit.app_world import sign_in


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Return two groups, of which one carries two games."""
    settings, paths = load(tmp_path)
    store = open_store(settings, paths)
    register_group(store, "a")
    record_seen(store, {"chess_1": "Chess", "go_1": "Go"}, 3)
    register_group(store, "b")
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
        return previews.preview_groups(environment, kind, ["a"])
    return previews.preview_decision(environment, kind, ["chess_1", "go_1"])


COMMANDS = {
    "move": ("move", "Chess", "--to", "b"), "drain": ("groups", "drain", "a"), "pause": ("pause", "Chess", "Go"),
    "retire": ("games", "retire", "Chess", "Go"), "stop": ("groups", "stop", "a"),
    "restart": ("groups", "restart", "a"),
}  # fmt: skip


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_page_shows_what_the_command_would_submit(kind: str, environment: Environment) -> None:
    """Kind, targets and facts are the same, and each line of the command is among those of the page."""
    arguments = [*COMMANDS[kind], "--dry-run", "--json", "--env-dir", str(environment.paths.root)]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    preview = shown(environment, kind)
    assert json.loads(done.stdout) == {
        "kind": preview.intent.kind, "targets": list(preview.intent.targets), "preview": preview.intent.preview,
    }  # fmt: skip
    assert all(any(line in drawn for drawn in preview.lines) for line in done.stderr.splitlines())
