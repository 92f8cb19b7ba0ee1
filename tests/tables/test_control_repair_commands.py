"""The commands that repair: what can be done is told, what is asked for is an operation, and a dry run does nothing."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.health.facts.placing import placing
from pipeline.store.games import register_group
from pipeline.store.operations import list_operations
from tests.tables.repair_world import CHESS, GO, SECOND, World, broken, early, good, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    made.ingest(good(1), early(2), broken())
    made.split()
    return made


def turnout(world: World, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--env-dir", str(world.paths.root)], catch_exceptions=False)


def test_what_can_be_done_is_told_for_people_and_scripts(world: World) -> None:
    """Each repair has its line, by name or key, and the JSON has all there is."""
    text = turnout(world, "repair", "actions", "Chess").output
    assert "retry    not possible: Group a cannot take it up: its driver was never started." in text
    assert "replay   possible, time unknown" in text
    assert "Decodes 2 rows in quarantine" in text
    reported = json.loads(turnout(world, "repair", "actions", CHESS.key, "--json").stdout)
    assert [(each["name"], each["possible"]) for each in reported] == [
        ("retry", False), ("replay", True), ("dedupe", True), ("rebuild", True), ("restart", False),
    ]  # fmt: skip
    assert reported[4]["alternative"]["name"] == "rebuild"


def test_a_dry_run_works_out_what_a_replay_would_do(world: World) -> None:
    """It decodes with today's schemas, in its own process; nothing lands and nothing is asked for."""
    world.register(message=SECOND)
    shown = turnout(world, "repair", "replay", "--dry-run")
    assert (shown.exit_code, "1 row(s) would land" in shown.output) == (0, True)
    (game,) = json.loads(turnout(world, "repair", "replay", "Chess", "--dry-run", "--json").stdout)["games"]
    assert (game["done"]["landed"], game["done"]["refused"]) == (1, {"malformed_payload": 1})
    only = turnout(world, "repair", "replay", "Chess", "--quarantine-reason", "malformed_payload", "--dry-run").output
    assert "0 row(s) would land" in only
    assert "0 row(s) would land" in turnout(world, "repair", "replay", "--since", "2100-01-01", "--dry-run").output
    assert (world.rows(), list_operations(world.engine)) == ([(1, 0)], [])


@pytest.mark.parametrize(("group", "kind"), [("repair", "replay"), ("repair", "rebuild"), ("games", "retire")])
def test_what_is_asked_for_is_an_operation(world: World, group: str, kind: str) -> None:
    """The command shows it, writes the wish with its reason, and goes; a dry run writes nothing."""
    if kind != "replay":
        dry = turnout(world, group, kind, "Chess", "--dry-run")
        assert (dry.exit_code, f"1 to {kind}." in dry.output, list_operations(world.engine)) == (0, True, [])
    submitted = json.loads(turnout(world, group, kind, "Chess", "--reason", "late", "--no-wait", "--json").stdout)
    assert (submitted["kind"], submitted["state"], submitted["reason"]) == (kind, "planned", "late")
    assert submitted["targets"] == [f"game:{CHESS.key}"]
    (busy,) = {each["why_not"] for each in json.loads(turnout(world, "repair", "actions", "Chess", "--json").stdout)}
    assert f"an open operation now: {kind} {submitted['operation_id'][:8]} by" in busy


def test_a_replay_of_all_leaves_out_what_it_cannot_replay(world: World) -> None:
    """Without games it takes those that have such rows and a schema; where there are none, nothing is asked for."""
    world.ingest(good(1, GO))  # a name that nobody knows
    submitted = json.loads(turnout(world, "repair", "replay", "--no-wait", "--json", "--until", "2100-01-01").stdout)
    assert (list(submitted["preview"]), submitted["parameters"]["until"]) == ([CHESS.key], "2100-01-01T00:00:00+00:00")
    assert submitted["parameters"]["until"] == "2100-01-01T00:00:00+00:00"
    none = turnout(world, "repair", "replay", "--quarantine-reason", "kills_worker")
    assert "Only rows refused for kills_worker." in none.output
    assert "may kill the controller" in none.output
    assert (none.exit_code, "0 to replay" in none.output, len(list_operations(world.engine))) == (0, True, 1)
    with pytest.raises(Refused, match="Not retired, so nothing was restored"):
        turnout(world, "games", "restore", "Chess")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("repair", "rebuild", "Tetris"), "No such game: 'Tetris'"),
        (("repair", "actions", "Tetris"), "No such game: 'Tetris'"),
        (("repair", "replay", "Tetris", "--dry-run"), "No such game: 'Tetris'"),
        (("games", "retire", "Tetris"), "No such game: 'Tetris'"),
        (("repair", "replay", "--quarantine-reason", "boredom"), "'boredom' is no reason for a refusal; there are"),
        (
            ("repair", "replay", "--since", "2026-02-01", "--until", "2026-01-01"),
            "No row is first seen since 2026-02-01",
        ),
    ],
)
def test_wrong_use_is_one_sentence(world: World, arguments: tuple[str, ...], sentence: str) -> None:
    """An impossible repair is refused before anything is written."""
    with pytest.raises(Refused, match=sentence):
        turnout(world, *arguments)
    assert list_operations(world.engine) == []
