"""A mistyped --env-dir is refused and makes nothing; commands that begin an environment still do."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from docs.generate import commands
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.unit.cli.role_commands import READS

FREE = {"doctor", "edge producers token", "paths", "source probe"}
OF_NONE = {"deploy build", "setup"}  # they make files, of no environment
OF_A_WORKSPACE = {f"deploy {each}" for each in ("adopt", "apply", "diff", "drift", "plan", "uninstall")}
ARGUMENTS = {
    "schemas plan": f"--game Go --message m.M {__file__}",
    "quarantine show": "Go",
    "ops show": "abc",
    "grants why": "Go ann@example.com",
    "grants plan": "",
    "read": "Go --as ann@example.com",
    "repair actions": "Go",
}


@pytest.mark.parametrize("name", sorted(READS - FREE))
@pytest.mark.proves("G180")
def test_a_command_that_reads_makes_no_environment(name: str, tmp_path: Path) -> None:
    """A typo is one sentence with what is nearby, not an empty environment that is well."""
    open_store(*load(tmp_path / "prod"))
    there = tmp_path / "prdo"
    done = CliRunner().invoke(cli, [*name.split(), *shlex.split(ARGUMENTS.get(name, "")), "--env-dir", str(there)])
    assert isinstance(done.exception, Refused), done.output
    assert str(done.exception) == (
        f"There is no environment at {there}. Environments nearby: {tmp_path / 'prod'}. Name one with --env-dir."
    )
    assert not there.exists()


@pytest.mark.parametrize(("name", "url"), [
    *((name, "") for name in sorted(READS - FREE)),
    *((name, "sqlite:///{folder}/of-another.db") for name in ("quarantine list", "quarantine show", "verify")),
])  # fmt: skip
def test_a_typo_is_refused_whatever_is_set_of_the_store(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty variable names no store, and a store elsewhere has no tables: no rows would look like none at all."""
    monkeypatch.setenv("TURNOUT_STORE__URL", url.format(folder=tmp_path))
    there = tmp_path / "typo"
    done = CliRunner().invoke(cli, [*name.split(), *shlex.split(ARGUMENTS.get(name, "")), "--env-dir", str(there)])
    assert isinstance(done.exception, Refused), done.output
    assert str(done.exception).startswith(f"There is no environment at {there}.")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("group", ["games", "groups", "ops"])
@pytest.mark.parametrize("place", ["first", "before the verb", "last", "instead of another"])
def test_the_folder_may_stand_anywhere_and_the_verb_be_left_out(group: str, place: str, tmp_path: Path) -> None:
    """`turnout games` lists, as people expect, and `--env-dir` counts wherever it stands; after the command it wins."""
    open_store(*load(tmp_path))
    there, nowhere = ("--env-dir", str(tmp_path)), ("--env-dir", str(tmp_path / "nowhere"))
    listed = CliRunner().invoke(cli, [group, "list", *there]).output
    lines = {
        "first": [[*there, group], [*there, group, "list"]],
        "before the verb": [[group, *there], [group, *there, "list"]],
        "last": [[group, "list", *there]],
        "instead of another": [[*nowhere, group, *there], [*nowhere, group, "list", *there]],
    }[place]
    assert [CliRunner().invoke(cli, line).output for line in lines] == [listed] * len(lines)


def test_the_version_is_one_line() -> None:
    """Scripts and bug reports ask for it."""
    done = CliRunner().invoke(cli, ["--version"])
    assert re.fullmatch(r"turnout \d+\.\d+\.\d+\n", done.output), done.output


def test_every_command_is_refused_or_may_begin(tmp_path: Path) -> None:
    """Which commands may begin an environment is written down once; every other one is refused."""
    from pipeline.cli import environments

    names = {name.removeprefix("turnout ") for name, _ in commands()}
    assert names > environments._BEGIN
    assert environments._MAKE_NOTHING == FREE | OF_NONE | OF_A_WORKSPACE
    assert not READS & environments._BEGIN


@pytest.mark.parametrize("first", [
    "groups create a",
    f"games rules apply {Path(__file__).with_name('rules.yaml')} --reason new",
    "games propose Go --reason soon",
])  # fmt: skip
def test_a_folder_with_settings_is_an_environment(first: str, tmp_path: Path) -> None:
    """README, docs/existing-topic.md: a new environment needs a turnout.toml, and may begin with rules for names."""
    (tmp_path / "turnout.toml").write_text('environment = "prod"\n')
    begun = CliRunner().invoke(cli, [*shlex.split(first), "--env-dir", str(tmp_path)])
    assert begun.exit_code == 0, begun.output
    done = CliRunner().invoke(cli, ["games", "list", "--env-dir", str(tmp_path)])
    assert (done.exit_code, done.output) == (0, "0 game(s)\n")


@pytest.mark.parametrize("mark", ["turnout.toml", "bronze"])
@pytest.mark.parametrize("name", sorted((READS - FREE) | {"groups propose"}))
def test_a_lost_control_store_is_not_made_anew(name: str, mark: str, tmp_path: Path) -> None:
    """An empty store in the place of a lost one would be well and its audit log intact: exit 2, and nothing is made."""
    (tmp_path / mark).write_text("") if "." in mark else (tmp_path / mark).mkdir()
    done = CliRunner().invoke(cli, [*name.split(), *shlex.split(ARGUMENTS.get(name, "")), "--env-dir", str(tmp_path)])
    assert isinstance(done.exception, Refused), done.output
    assert str(done.exception).startswith(f"The control store is missing: {tmp_path / 'control.db'} does not exist.")
    assert [each.name for each in tmp_path.iterdir()] == [mark]


def test_an_emptied_control_store_is_lost(tmp_path: Path) -> None:
    """A full disk, or `>`, leaves a file without a byte: to fill it with an empty store would say that all is well."""
    (tmp_path / "bronze").mkdir()
    (tmp_path / "control.db").write_bytes(b"")
    done = CliRunner().invoke(cli, ["audit", "verify", "--env-dir", str(tmp_path)])
    assert isinstance(done.exception, Refused), done.output
    assert (tmp_path / "control.db").read_bytes() == b""


@pytest.mark.parametrize("where", ["settings", "variable"])
def test_a_control_store_elsewhere_is_not_looked_for_in_the_folder(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment whose settings name another store, such as PostgreSQL, has no control.db."""
    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    (tmp_path / "turnout.toml").write_text(f'[store]\nurl = "{url}"\n' if where == "settings" else "")
    if where == "variable":
        monkeypatch.setenv("TURNOUT_STORE__URL", url)
    open_store(*load(tmp_path)).dispose()
    done = CliRunner().invoke(cli, ["audit", "verify", "--env-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "control.db").exists()


@pytest.mark.parametrize("where", ["settings", "variable"])
@pytest.mark.parametrize("left", [None, b""])
def test_a_lost_control_store_elsewhere_is_not_made_by_what_looks(
    where: str, left: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be healthy, its audit log intact: exit code 2 for what looks; what begins an environment makes it."""
    store = tmp_path / "elsewhere.db"
    url = f"sqlite:///{store}"
    (tmp_path / "turnout.toml").write_text(f'[store]\nurl = "{url}"\n' if where == "settings" else "")
    if where == "variable":
        monkeypatch.setenv("TURNOUT_STORE__URL", url)
    if left is not None:
        store.write_bytes(left)
    for words in (["status"], ["audit", "verify"], ["pause", "Go"]):
        done = CliRunner().invoke(cli, [*words, "--env-dir", str(tmp_path)])
        assert isinstance(done.exception, Refused), done.output
        assert str(done.exception).startswith(f"The control store is missing: {store} ")
        assert (store.read_bytes() if store.exists() else None) == left
    begun = CliRunner().invoke(cli, ["groups", "create", "a", "--env-dir", str(tmp_path)])
    assert begun.exit_code == 0, begun.output


def test_what_begins_an_environment_begins_its_store_too(tmp_path: Path) -> None:
    """A folder with settings alone gets its store from commands that may begin an environment only."""
    for name in sorted(FREE):
        done = CliRunner().invoke(cli, [*name.split(), "--env-dir", str(tmp_path)])
        assert "control store" not in f"{done.exception}"
    assert not list(tmp_path.iterdir())
    (tmp_path / "turnout.toml").write_text("")
    done = CliRunner().invoke(cli, ["games", "approve", "Chess", "--no-wait", "--env-dir", str(tmp_path)])
    assert "not there" not in f"{done.output}{done.exception}"
    assert (tmp_path / "control.db").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "list", "--since", "yesterday"),
        ("groups", "create", "c", "--cores", "inf"),
        ("catalog", "add-user", "zoe@example.com", "--wait", "inf"),
    ],
    ids=" ".join,
)
def test_a_value_without_meaning_is_wrong_use(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A day that is none, or no finite number, is refused, not taken for nothing found or no limit."""
    open_store(*load(tmp_path))
    done = CliRunner().invoke(cli, [*arguments, "--env-dir", str(tmp_path)])
    assert done.exit_code == 2, done.output
    assert "Invalid value" in done.output
