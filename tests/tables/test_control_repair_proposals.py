"""Which games a repair is for is chosen in one place: a page shows what a command submits, and what neither can do."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.state import previews
from app.state.services import Environment
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control import repair_proposals
from pipeline.health.facts.placing import placing
from pipeline.store.assignments import read_assignments
from pipeline.store.games import register_group
from pipeline.store.operations import Intent, list_operations, submit
from pipeline.store.stream_control import StreamControl, record_failures
from tests.tables.repair_world import CHESS, GO, World, broken, early, good, make_world
from tests.unit.app.app_world import is_shown, sign_in

WHY_NOT: Mapping[str, str] = {
    "retry": "Group a cannot take it up: its driver was never started.",
    "replay": "Quarantine holds no row of it.",
    "rebuild": "It has no table yet. Its stream makes one from bronze.",
    "dedupe": "It has no table yet. Its stream makes one from bronze.",
}
KINDS = ["replay", "rebuild"]  # that something is to be done by in this world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Chess has a table and two refused rows; no stream of Go has run yet."""
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    made.register(GO)
    made.ingest(good(1), early(2), broken(), good(3, GO))
    made.split()
    sign_in(monkeypatch, "ann")
    return made


def turnout(world: World, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--env-dir", str(world.paths.root)], catch_exceptions=False)


def page(world: World, kind: str, *keys: str) -> previews.Preview:
    """Return what a page shows; without games it is about all."""
    environment = Environment(world.settings, world.paths, str(world.paths.control_db))
    return previews.preview_repair(environment, kind, list(keys) or None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_shows_what_the_command_would_submit(world: World, kind: str) -> None:
    """Of two games it is planned for the one for which it is possible, and the other is named with the same reason."""
    preview = page(world, kind, CHESS.key, GO.key)
    intent = preview.intent
    assert intent.targets == (f"game:{CHESS.key}",)
    submitted = turnout(world, "repair", kind, "Chess", GO.key, "--reason", "r", "--no-wait", "--json")
    reported = json.loads(submitted.stdout)
    assert (reported["targets"], reported["preview"], reported["parameters"]["games"]) == (
        list(intent.targets), intent.preview, [CHESS.key],
    )  # fmt: skip
    assert [line for line in lines(submitted) if not is_shown(line, preview)] == []
    assert submitted.exit_code == 1, "less is done than was named"
    assert any(line.startswith(f"left out: {GO.key}: {WHY_NOT[kind]}") for line in lines(submitted))
    (left,) = [line for line in preview.lines if line.startswith("left out: ")]
    assert f"{GO.key}: {WHY_NOT[kind]}" in left


def lines(done: Result) -> list[str]:
    """Return what a command said of its plan."""
    return [line for line in done.stderr.splitlines() if not line.startswith(("operation ", "No longer waiting"))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_says_what_is_left_out(world: World, kind: str) -> None:
    """What a script reads before it submits has the games that would not be repaired."""
    dry = turnout(world, "repair", kind, "Chess", GO.key, "--dry-run", "--json")
    assert (dry.exit_code, list_operations(world.engine)) == (1, [])
    assert f"left out: {GO.key}: {WHY_NOT[kind]}" in dry.stderr
    if kind == "rebuild":
        (left,) = json.loads(dry.stdout)["left_out"]
        assert left.startswith(f"{GO.key}: {WHY_NOT[kind]}")


@pytest.mark.parametrize("kind", WHY_NOT)
def test_what_is_possible_for_none_is_refused_with_each_reason(world: World, kind: str) -> None:
    """Command and page say the same, and nothing is submitted."""
    record_failures(world.engine, {GO.key: StreamControl(failures=1)})
    with pytest.raises(Refused) as by_command:
        turnout(world, "repair", kind, GO.key, "--reason", "r")
    with pytest.raises(Refused) as on_page:
        page(world, kind, GO.key)
    title, reason = str(by_command.value).splitlines()
    assert (title, reason.startswith(f"{GO.key}: {WHY_NOT[kind]}")) == (f"Nothing to {kind}.", True)
    named, (again, drawn) = read_assignments(world.engine)[GO.key].game, str(on_page.value).splitlines()
    assert (again, drawn.endswith(reason), drawn != reason) == (title, True, named != "")
    assert list_operations(world.engine) == []


@pytest.mark.parametrize("kind", ["replay", "dedupe"])
def test_a_table_that_cannot_be_opened_keeps_no_other_from_its_repair(world: World, kind: str) -> None:
    """The game is left out with what is wrong and what helps."""
    world.split(GO)
    world.ingest(broken(GO))
    world.split(GO)
    log = world.paths.table(CHESS.key) / "_delta_log"
    for each in Path(log).glob("*.json"):
        each.write_bytes(b"{")
    done = turnout(world, "repair", kind, "Chess", GO.key, "--dry-run")
    assert done.exit_code == 1
    assert f"left out: {CHESS.key}: The table of {CHESS.key} cannot be opened: " in done.output
    assert f"left out: {GO.key}" not in done.output


def test_a_replay_of_all_is_no_failure_where_a_game_belongs_to_another_operation(world: World) -> None:
    """Nobody named it, so it is left out with the reason, and the command ends with 0."""
    submit(world.engine, Intent("move", (f"game:{CHESS.key}",), "ann", "r"))
    done = turnout(world, "repair", "replay")
    assert (done.exit_code, f"left out: {CHESS.key}: It belongs to an open operation now" in done.output) == (0, True)
    assert [each.kind for each in list_operations(world.engine)] == ["move"]
    with pytest.raises(Refused, match=rf"Nothing to replay\.\n(.*\n)*left out: Chess · {CHESS.key}: It belongs to"):
        page(world, "replay")


def test_of_many_games_quarantine_is_not_counted_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of a few says how many rows it takes of each; one of more is planned without a look at them."""
    assert "Decodes 2 rows in quarantine" in " ".join(page(world, "replay", CHESS.key).lines)
    monkeypatch.setattr(repair_proposals, "MAX_COUNTED", 1)
    preview = page(world, "replay", CHESS.key, GO.key)
    assert set(preview.intent.preview) == {CHESS.key, GO.key}
    assert "Decodes" not in " ".join(preview.lines)


@pytest.mark.parametrize("kind", ["rebuild", "dedupe"])
def test_a_table_that_was_never_begun_keeps_no_other_game_waiting(world: World, kind: str) -> None:
    """A driver that was killed as it made a table leaves a log without commits: that game is left out, with why."""
    Path(world.paths.table(GO.key) / "_delta_log").mkdir(parents=True)
    planner = repair_proposals.RepairPlanner(world.settings, world.paths, world.engine)
    planned = planner.plan(kind, [CHESS.key, GO.key], "ann")
    assert [each.partition(":")[0] for each in planned.left_out] == [GO.key]
    assert "no table yet" in planned.left_out[0]
    with pytest.raises(Refused, match="no table yet"):
        planner.plan(kind, [GO.key], "ann")
