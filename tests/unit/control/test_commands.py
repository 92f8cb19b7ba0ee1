"""The commands that steer: one sentence for wrong use, JSON for scripts, and nothing done where nothing was asked."""

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, update

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control.controller import KINDS, run
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import cancel, close, tick
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.database.tables import groups
from pipeline.store.games import record_seen, register_group
from pipeline.store.operations import Intent, change, list_operations, submit
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.reports import write_backlog
from pipeline.store.sources import Identity, record_identity

NO_MAINTENANCE = {"TURNOUT_MAINTENANCE__BACKEND": "none"}  # its process would outlive the test


@pytest.fixture
def world(tmp_path: Path) -> ControlContext:
    settings, paths = load(tmp_path, {})
    store = open_store(settings, paths)
    register_group(store, "a", placing())
    record_seen(store, {"chess_1": "Chess", "go_1": "Go"}, 3, placing())
    register_group(store, "b", placing())
    for name in "ab":
        start_driver(store, "group", name, None)
    return ControlContext(settings, store, paths)


def turnout(env: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--env-dir", str(env)], catch_exceptions=False)


def test_a_dry_run_shows_the_very_move_and_asks_for_nothing(world: ControlContext, tmp_path: Path) -> None:
    """`--dry-run` prints what would be done; afterwards no operation is there and no game has moved."""
    shown = turnout(tmp_path, "move", "Chess", "--to", "b", "--dry-run")
    assert (shown.exit_code, "chess_1: a → b, cursor unknown" in shown.output) == (0, True)
    as_json = turnout(tmp_path, "move", "chess_1", "Chess", "--to", "b", "--dry-run", "--json")
    assert json.loads(as_json.stdout) == {
        "kind": "move", "targets": ["game:chess_1"], "preview": {"chess_1": ["a", "b", 1]}, "left_out": [],
    }  # fmt: skip
    shown = turnout(tmp_path, "pause", "Go", "--dry-run")
    assert (shown.exit_code, "go_1: nothing reported in group a\n1 to pause" in shown.output) == (0, True)
    assert "0 to resume" in turnout(tmp_path, "resume", "Go", "Chess").output
    with pytest.raises(Refused, match=r"Nothing to retry\.\ngo_1: There is no failure to try again after"):
        turnout(tmp_path, "repair", "retry", "Go")
    assert list_operations(world.engine) == []
    assert read_assignments(world.engine)["chess_1"].group == "a"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("move", "Tetris", "--to", "b"), "No such game: 'Tetris'"),
        (("move", "Chess", "--to", "z"), "no cluster group 'z'. Groups: a, b"),
        (("groups", "drain", "z"), "no cluster group 'z'. Groups: a, b"),
        (("pause", "Chess", "Tetris"), "No such game: 'Tetris'"),
        (("ops", "show", "nothing"), "No operation has the id 'nothing'"),
        (("ops", "resume", "nothing"), "No operation has the id"),
        (("ops", "undo", "nothing"), "No operation has the id"),
    ],
)
def test_wrong_use_is_one_sentence(
    world: ControlContext, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    """What cannot be is refused before anything is written."""
    with pytest.raises(Refused, match=sentence):
        turnout(tmp_path, *arguments)
    assert list_operations(world.engine) == []


def test_an_operation_can_be_followed_looked_after_and_proven(world: ControlContext, tmp_path: Path) -> None:
    """From asking to the audit log: each command tells what is so, by the beginning of the operation's id."""
    submitted = turnout(tmp_path, "move", "Chess", "--to", "b", "--reason", "hot", "--no-wait", "--json")
    operation = json.loads(submitted.stdout)
    assert (submitted.exit_code, operation["state"], operation["reason"]) == (0, "planned", "hot")
    tick(world, KINDS)
    name = operation["operation_id"][:8]
    shown = turnout(tmp_path, "ops", "show", name).output
    assert "reason: hot" in shown
    assert "1 assign   done     1 assigned." in shown
    assert "3 acquire  running  Group b has not taken 1 yet: chess_1." in shown
    (only,) = json.loads(turnout(tmp_path, "ops", "list", "--open", "--json").stdout)
    assert only["operation_id"] == operation["operation_id"]
    with pytest.raises(Refused, match="does not wait for a person: it is running"):
        turnout(tmp_path, "ops", "close", name, "--reason", "x")
    with pytest.raises(Refused, match="is running: only one that has ended can be undone"):
        turnout(tmp_path, "ops", "undo", name)
    change(world.engine, list_operations(world.engine)[0], OperationState.NEEDS_HUMAN, "b is stuck")
    assert "running" in turnout(tmp_path, "ops", "resume", name).output
    change(world.engine, list_operations(world.engine)[0], OperationState.NEEDS_HUMAN, "b is stuck")
    unended = turnout(tmp_path, "audit", "verify")
    assert (unended.exit_code, "no end recorded" in unended.output) == (0, True)
    assert "failed: Closed by" in turnout(tmp_path, "ops", "close", name, "--reason", "b restarted").output
    verdict = json.loads(turnout(tmp_path, "audit", "verify", "--json").stdout)
    assert (verdict["intact"], verdict["entries"], verdict["unended"]) == (True, 6, [])
    log = turnout(tmp_path, "audit", "list").output
    assert "move begun  game:chess_1" in log
    assert "move ended failed  game:chess_1" in log
    assert turnout(tmp_path, "audit", "verify", "--expect", "0" * 64).exit_code == 1


@pytest.mark.parametrize("reason", ["", "   ", "\u200b", "\u202e", "\u3164", "\U0001d159"])
def test_a_reason_that_nobody_can_see_is_none(world: ControlContext, tmp_path: Path, reason: str) -> None:
    """Where a reason must be given, one without a visible character is refused, and nothing is done."""
    planned, stuck = (submit(world.engine, Intent("pause", (f"game:{each}",), "ann")) for each in "ab")
    stuck = change(world.engine, stuck, OperationState.NEEDS_HUMAN, "look")
    for words in (
        ("ops", "close", stuck.operation_id), ("ops", "cancel", planned.operation_id),
        ("games", "priority", "Go", "high"), ("groups", "remove", "b"), ("stream", "accept-gap", "Go"),
    ):  # fmt: skip
        refused = turnout(tmp_path, *words, "--reason", reason)
        assert (refused.exit_code, "must not be empty" in refused.output) == (2, True), words
    with pytest.raises(Refused, match="Say why you move"):
        turnout(tmp_path, "move", "Chess", "--to", "b", "--reason", reason, "--no-wait")
    with pytest.raises(Refused, match="Enter a reason"):
        close(world.engine, stuck, "ann", reason)
    with pytest.raises(Refused, match="Enter a reason"):
        cancel(world.engine, planned, "ann", reason)
    assert {each.state for each in list_operations(world.engine)} == {"planned", "needs_human"}


@pytest.mark.parametrize(
    "words",
    [("move", "Chess", "--to", "b"), ("groups", "drain", "a"), ("pause", "Chess", "Go"), ("games", "retire", "Go")],
)
def test_what_disturbs_needs_a_reason(world: ControlContext, tmp_path: Path, words: tuple[str, ...]) -> None:
    """As on pages, nothing that disturbs others is asked for without a reason; looking at it needs none."""
    assert turnout(tmp_path, *words, "--dry-run").exit_code == 0
    for reason in ((), ("--reason", " ")):
        with pytest.raises(Refused, match=r"Say why you .*: --reason TEXT"):
            turnout(tmp_path, *words, *reason, "--no-wait")
    assert list_operations(world.engine) == []
    assert turnout(tmp_path, "pause", "Chess", "--no-wait").exit_code == 0


def test_what_people_have_written_is_escaped_for_the_terminal(world: ControlContext, tmp_path: Path) -> None:
    """Reasons, outcomes and names turn no text around and add no line; JSON has them as they are."""
    hostile = "calm\u202e\u0085\rfailed"
    turnout(tmp_path, "pause", "Go", "--no-wait", "--reason", hostile)
    turnout(tmp_path, "games", "reject", hostile, "--reason", hostile)
    (submitted,) = list_operations(world.engine)
    waiting = change(world.engine, submitted, OperationState.NEEDS_HUMAN, hostile)
    printed = [
        *(turnout(tmp_path, "ops", "show", waiting.operation_id), turnout(tmp_path, "ops", "list")),
        turnout(tmp_path, "ops", "close", waiting.operation_id, "--reason", hostile),
        *(turnout(tmp_path, "ops", "list"), turnout(tmp_path, "audit", "list"), turnout(tmp_path, "games", "pending")),
    ]
    for each in printed:
        assert (each.exit_code, set(each.output) & set("\u202e\u0085\r")) == (0, set())
    assert "calm\\u202e" in printed[0].output
    assert json.loads(turnout(tmp_path, "ops", "show", waiting.operation_id, "--json").stdout)["reason"] == hostile


def test_groups_are_made_changed_and_listed(world: ControlContext, tmp_path: Path) -> None:
    """What is wanted of a group can be said on the command line, and the list tells it to scripts."""
    assert turnout(tmp_path, "groups", "create", "c", "--backend", "local", "--cores", "2").exit_code == 0
    with pytest.raises(Refused, match=r"counts from its driver's next start.* Enter a reason\."):
        turnout(tmp_path, "groups", "set", "c", "--spark-master", "local[2]", "--reason", " ")
    changed = turnout(tmp_path, "groups", "set", "c", "--priority", "high", "--unlimited")
    assert (changed.exit_code, "capacity: 2 cores → no limit" in changed.output) == (0, True)
    rows = {row["name"]: row for row in json.loads(turnout(tmp_path, "groups", "list", "--json").stdout)}
    assert set(rows) == {"a", "b", "c"}
    expected = {"backend": "local", "capacity_cores": None, "priority": "high", "desired": "running", "driver": None}
    assert expected.items() <= rows["c"].items()
    assert "not started by turnout" in turnout(tmp_path, "groups", "list").output
    shown = turnout(tmp_path, "groups", "stop", "c", "--dry-run")
    assert "0 games stand still until it is started again" in shown.output
    with pytest.raises(Refused, match="turnout does not start group a"):
        turnout(tmp_path, "groups", "restart", "a")
    with pytest.raises(Refused, match="Nothing to change: group c is already in that state"):
        turnout(tmp_path, "groups", "set", "c")
    with pytest.raises(Refused, match="--cores and --unlimited cannot both be true"):
        turnout(tmp_path, "groups", "set", "c", "--cores", "1", "--unlimited")


def start_measured(engine: Engine) -> None:
    """Let ingest start, and measure that nothing waits in its source."""
    start_driver(engine, "ingest", "main", None)
    write_backlog(engine, age_seconds=0.0, peak_seconds=0.0, rows=0, limit_seconds=60.0, reason=None)


def test_status_is_a_verdict_for_scripts(world: ControlContext, tmp_path: Path) -> None:
    """`turnout status` ends with 1 where a person should look, unknown included, and names where."""
    reported = turnout(tmp_path, "status")
    assert reported.exit_code == 1
    assert reported.output.splitlines()[:2] == [
        "Ingest was never started; 2 streams starting",
        "ingest main: not started (was never started)",
    ]
    assert "STARTING     chess_1" not in reported.output
    assert "STARTING     chess_1" in turnout(tmp_path, "status", "--all").output
    assert "latency is measured from a source time of an unknown clock" in reported.output
    record_identity(world.engine, Identity(1, None, None, "bronze", 0, None, source_clock="producer"))
    start_measured(world.engine)
    well = turnout(tmp_path, "status", "--json")
    answer = json.loads(well.stdout)
    assert (well.exit_code, answer["healthy"], "well" in answer) == (0, True, False), "each thing has one key"
    assert all({"kind", "name", "state", "reason"} == each.keys() for each in answer["drivers"])
    assert all({"game_key", "status", "cause"} <= each.keys() and "why" not in each for each in answer["games"])
    assert all(set(each["latency_seconds"]) == {"p50", "p95", "p99", "p99_last_minute"} for each in answer["games"])
    assert all(set(each["segments_seconds"].values()) == {None} for each in answer["games"]), "nobody has reported"
    turnout(tmp_path, "pause", "Chess", "--no-wait")
    waits = turnout(tmp_path, "status")
    assert (waits.exit_code, waits.output.splitlines()[0]) == (
        1,
        "1 operation waits and no controller runs; 2 streams starting",
    )
    assert "Start `turnout controller run`." in waits.output
    change(world.engine, list_operations(world.engine)[0], OperationState.NEEDS_HUMAN, "look at it")
    submitted = turnout(tmp_path, "status")
    assert (submitted.exit_code, "pause: look at it" in submitted.output) == (1, True)
    assert "latency is measured from the producer's clock" in submitted.output


def test_status_of_a_group_that_was_stopped_on_purpose_is_healthy(world: ControlContext, tmp_path: Path) -> None:
    """A group that somebody has stopped is no reason for exit code 1, with games or without; its games are paused."""
    start_measured(world.engine)
    for name in "ab":
        heartbeat(world.engine, "group", name, "stopped", None)
    heartbeat(world.engine, "ingest", "main", "running", None)
    assert turnout(tmp_path, "status").exit_code == 1, "both games of a stand still, and nobody wanted that"
    want(world, "a", desired="stopped")
    stopped = turnout(tmp_path, "status", "--json")
    answer = json.loads(stopped.stdout)
    assert (stopped.exit_code, answer["headline"]) == (
        0,
        "2 streams level with bronze (2 paused); causes are not known",
    )
    assert [(each["name"], each["state"]) for each in answer["drivers"]] == [
        ("main", "running"), ("a", "stopped"), ("b", "stopped"),
    ]  # fmt: skip


def test_status_of_no_environment_is_refused(tmp_path: Path) -> None:
    """A folder that is no environment is wrong use (exit code 2), never unhealthy, and none is made there."""
    with pytest.raises(Refused, match="There is no environment at"):
        turnout(tmp_path / "nowhere", "status", "--json")
    assert not (tmp_path / "nowhere").exists()


def test_a_proposal_shows_its_moves_and_asks_only_when_told_to(world: ControlContext, tmp_path: Path) -> None:
    """`groups propose` names moves, load before and after, and cost; `--apply` asks for all as one operation."""
    assert "0 to move" in turnout(tmp_path, "groups", "propose").output, "hardly any load is not worth a move"
    for name in "ab":
        want(world, name, capacity_cores=0.005)
    shown = turnout(tmp_path, "groups", "propose").output
    assert "chess_1: a → b, evens out the load: a is the fullest group" in shown
    assert "0 restarts, catch-up time unknown." in shown
    assert "1 to move, 0 fit nowhere. Highest load:" in shown
    reported = json.loads(turnout(tmp_path, "groups", "propose", "--json").stdout)
    (move,) = reported["moves"]
    assert (move["game_key"], move["from"], move["to"], move["cores_known"]) == ("chess_1", "a", "b", False)
    assert (move["catch_up_seconds"], move["needed"], reported["restarts"], reported["unplaced"]) == (
        None,
        False,
        0,
        [],
    )
    assert [reported[when]["a"]["games"] for when in ("before", "after")] == [2, 1]
    assert json.loads(turnout(tmp_path, "groups", "propose", "--json", "--most", "0").stdout)["moves"] == []
    assert list_operations(world.engine) == []
    submitted = turnout(tmp_path, "groups", "propose", "--apply", "--no-wait", "--json", "--reason", "hot")
    assert (json.loads(submitted.stdout)["kind"], json.loads(submitted.stdout)["targets"]) == ("move", ["game:chess_1"])
    tick(world, KINDS)
    assert {key: assignment.group for key, assignment in read_assignments(world.engine).items()} == {
        "chess_1": "b",
        "go_1": "a",
    }
    assert "0 to move" in turnout(tmp_path, "groups", "propose").output


def test_games_that_cannot_stay_come_first_in_a_proposal(world: ControlContext, tmp_path: Path) -> None:
    """Who is in a group that is stopped is proposed to move; a game is named once, and what fits nowhere is told of."""
    want(world, "a", desired="stopped")
    reported = json.loads(turnout(tmp_path, "groups", "propose", "--json").stdout)
    assert [(move["game_key"], move["to"], move["needed"]) for move in reported["moves"]] == [
        ("chess_1", "b", True), ("go_1", "b", True),
    ]  # fmt: skip
    want(world, "b", capacity_cores=0.002)
    reported = json.loads(turnout(tmp_path, "groups", "propose", "--json").stdout)
    assert [each["game_key"] for each in reported["unplaced"]] == ["go_1"]
    assert "go_1: nowhere: group a is stopped; it stays" in turnout(tmp_path, "groups", "propose").output


def test_a_group_is_drained_as_shown(world: ControlContext, tmp_path: Path) -> None:
    """`groups drain` shows the moves, asks for them with the group's new state, or refuses what does not fit."""
    shown = turnout(tmp_path, "groups", "drain", "a", "--dry-run")
    assert (shown.exit_code, "a: running → drained\nchess_1: a → b" in shown.output) == (0, True)
    assert list_operations(world.engine) == []
    submitted = json.loads(turnout(tmp_path, "groups", "drain", "a", "--reason", "old", "--no-wait", "--json").stdout)
    assert (submitted["kind"], submitted["targets"]) == ("move", ["game:chess_1", "game:go_1", "group:a"])
    assert submitted["parameters"]["desired"] == {"a": ["running", "drained"]}
    tick(world, KINDS)
    assert {assignment.group for assignment in read_assignments(world.engine).values()} == {"b"}
    with pytest.raises(Refused, match=r"Group b cannot be drained: 2 of its 2 games .* no other group takes games"):
        turnout(tmp_path, "groups", "drain", "b")
    with pytest.raises(Refused, match="Group a takes no games: it is drained"):
        turnout(tmp_path, "move", "Chess", "--to", "a")


def test_the_controller_gives_waiting_games_a_group_when_there_is_room(world: ControlContext, tmp_path: Path) -> None:
    """A game that fitted nowhere when it came is not forgotten: the next look of a controller places it."""
    for name in "ab":
        want(world, name, capacity_cores=0.0001)
    record_seen(world.engine, {"tetris_1": "Tetris"}, 4, placing())
    assert read_assignments(world.engine)["tetris_1"].group is None
    assert "tetris_1: nowhere: it has no group; it waits" in turnout(tmp_path, "groups", "propose").output
    want(world, "b", capacity_cores=1.0)
    once = threading.Event()
    once.set()
    assert run(*load(tmp_path, NO_MAINTENANCE), once) == 0
    assert read_assignments(world.engine)["tetris_1"].group == "b"


class StoreGoesAway(threading.Event):
    """Asks a controller to end at its first pause, when its store has just gone away."""

    def __init__(self, world: ControlContext) -> None:
        super().__init__()
        self._engine = world.engine

    def wait(self, timeout: float | None = None) -> bool:
        with self._engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE drivers RENAME TO gone")
        self.set()
        return super().wait(timeout)


def test_a_controller_ends_in_order_while_its_store_is_away(
    world: ControlContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says what becomes of its groups and of itself; the exit code tells that groups go on which should not."""
    assert run(*load(tmp_path, NO_MAINTENANCE), StoreGoesAway(world), stop_groups=True) == 1
    said = [each.getMessage() for each in caplog.records if "does not answer" in each.getMessage()]
    assert [each.rpartition(": ")[2] for each in said] == [
        "the groups that this controller runs go on",
        "the controller ends, and will be reported as silent",
    ]


def want(world: ControlContext, group: str, **wanted: object) -> None:
    with world.engine.begin() as connection:
        connection.execute(update(groups).where(groups.c.name == group).values(wanted))
