"""Every command is known as one that reads, one that runs a process, or an act with a role and an audit entry."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.errors import Refused
from pipeline.settings import load
from pipeline.store import audit
from pipeline.store.engine import open_store
from pipeline.store.games import record_seen
from pipeline.store.operations import Intent, ask, change, operation
from tests.unit.test_docs import commands

ROOT = Path(__file__).parents[2]
READS = {
    "doctor", "schemas plan", "schemas list", "games list", "games pending", "ingest gaps", "verify", "paths",
    "status", "quarantine list", "quarantine show", "groups list", "repair actions", "ops list", "ops show",
    "audit list", "audit verify", "grants matrix", "grants why", "grants plan", "grants export", "grants requests",
    "read",
}  # fmt: skip
RUNS = {  # who may start a process on the machine may do what it does
    "simulate", "ingest run", "dashboard", "maintain", "demo", "controller run", "groups run", "catalog serve",
}  # fmt: skip
OPERATIONS = {  # their role is checked where they are submitted, and again by the controller
    "groups create", "groups set", "groups start", "groups stop", "groups restart", "groups propose", "groups drain",
    "move", "pause", "resume", "repair retry", "repair replay", "repair dedupe", "repair rebuild", "games retire",
    "games restore", "ops resume", "ops close", "ops cancel", "ops undo",
    "grants apply", "grants undo", "grants expire",
    "grants import", "grants drift", "grants approve", "grants reject", "grants withdraw",
}  # fmt: skip
ACTS = {
    "games approve": (("Chess",), "approve a game"),
    "games reject": (("Chess",), "reject a game"),
    "games priority": (("Go", "high", "--reason", "new"), "set a priority"),
    "groups remove": (("a", "--reason", "old"), "remove a group"),
    "schemas register": (("--game", "Go", "--message", "m.M", __file__), "register a schema"),
    "ingest adopt": ((), "adopt a source"),
    "stream own-query": (("Go", "on"), "set an own query"),
    "stream accept-gap": (("Go", "--reason", "gone"), "accept a gap"),
    "catalog add-user": (("zoe@example.com",), "add a user"),
}


def test_every_command_is_sorted() -> None:
    """A new command does not act before somebody has said which role it takes."""
    names = [name.removeprefix("turnout ") for name, _ in commands()]
    kinds = [READS, RUNS, OPERATIONS, set(ACTS)]
    assert sorted(names) == sorted(name for kind in kinds for name in kind)


def test_no_command_has_a_gate_of_its_own() -> None:
    """Commands open an environment, check a role and write an audit entry through their context; pages submit alike."""
    alone = re.compile(r"\b(current_user|audit\.acting|operations\.ask|open_store|roles\.\w*)\(|control\.roles import")
    files = [*ROOT.glob("pipeline/cli/*.py"), *ROOT.glob("grants/cli/*.py")]
    found = {path.name for path in files if alone.search(path.read_text("utf-8"))}
    assert found == {"context.py", "tables.py"}  # verify opens no store where there is nothing to look for in it
    pages = [path for folder in ("app", "grants/applying") for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in pages if re.search(r"operations\.ask\(|import .*\bask\b", path.read_text("utf-8"))] == []


@pytest.mark.parametrize("name", ACTS)
def test_an_act_needs_its_role(name: str, tmp_path: Path) -> None:
    """Who is not named in the roles is refused with the role that is missing, and nothing is written."""
    (tmp_path / "turnout.toml").write_text('[roles]\nmovers = ["max"]\n')
    record_seen(open_store(*load(tmp_path)), {"go": "Go"}, 1)
    arguments, kind = ACTS[name]
    done = CliRunner().invoke(cli, [*name.split(), *arguments, "--env-dir", str(tmp_path)])
    assert isinstance(done.exception, Refused)
    assert f"may not {kind}: it needs the role" in str(done.exception)
    assert list(audit.entries(open_store(*load(tmp_path)))) == []


@pytest.mark.parametrize("name", ["games approve", "games reject", "games priority", "stream own-query"])
def test_an_act_is_audited(name: str, tmp_path: Path) -> None:
    """What a person does is in the audit log, begun and ended, also where it is no operation."""
    record_seen(open_store(*load(tmp_path)), {"go": "Go"}, 1)
    done = CliRunner().invoke(cli, [*name.split(), *ACTS[name][0], "--env-dir", str(tmp_path)])
    assert done.exception is None, done.exception
    phases = [(each.phase, each.outcome, bool(each.targets)) for each in audit.entries(open_store(*load(tmp_path)))]
    assert phases == [("begun", None, True), ("ended", "succeeded", True)]


@pytest.mark.parametrize("name", ["schemas register", "ingest adopt"])
def test_an_act_that_fails_is_audited_as_failed(name: str, tmp_path: Path) -> None:
    """An attempt that was refused by what it is about is in the log, too."""
    open_store(*load(tmp_path))
    done = CliRunner().invoke(cli, [*name.split(), *ACTS[name][0], "--env-dir", str(tmp_path)])
    assert done.exception is not None
    assert [each.outcome for each in audit.entries(open_store(*load(tmp_path)))] == [None, "failed"]


@pytest.mark.parametrize(("kind", "role"), [("move", "mover"), ("access", "access_admin"), ("pause", "operator")])
def test_who_acts_on_an_operation_needs_the_role_of_its_kind(kind: str, role: str, tmp_path: Path) -> None:
    """Nobody brings on, closes or cancels what they might not have asked for."""
    (tmp_path / "turnout.toml").write_text('[roles]\nmovers = ["max"]\n')
    engine = open_store(*load(tmp_path))
    asked = ask(engine, Intent(kind, ("game:go",), "max", "r", {"games": ["go"]}, {}))
    change(engine, change(engine, asked, "running"), "needs_human", "stuck")
    for act in ("resume", "close", "cancel"):
        words = ["ops", act, asked.operation_id, "--reason", "r", "--env-dir", str(tmp_path)]
        refused = CliRunner().invoke(cli, words).exception
        assert f"may not {kind}: it needs the role {role}" in str(refused)
    assert operation(engine, asked.operation_id).state == "needs_human"


def test_an_undo_needs_the_role_before_it_is_planned(tmp_path: Path) -> None:
    """Who may not is told that, whatever is in the row of the operation."""
    (tmp_path / "turnout.toml").write_text('[roles]\nmovers = ["max"]\n')
    engine = open_store(*load(tmp_path))
    done = change(engine, ask(engine, Intent("pause", ("game:go",), "max", "r", {}, {})), "succeeded")
    refused = CliRunner().invoke(cli, ["ops", "undo", done.operation_id, "--env-dir", str(tmp_path)])
    assert isinstance(refused.exception, Refused)
    assert "may not resume: it needs the role operator" in str(refused.exception)
