"""A failure ends in one sentence and an exit code, never in a traceback; no option takes what is no number."""

import json
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from grants.applying.requests import request as find_request
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.cli.lazy import LazyCommand
from pipeline.cli.main import cli, main
from pipeline.data.ingest import pending
from pipeline.health.facts.placing import placing
from pipeline.lake.storage import cloud
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.games import assign_waiting, record_seen
from pipeline.store.operations import Intent, change, list_operations, operation, submit


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run the command line as a shell does; return exit code and stderr."""
    monkeypatch.setattr(sys, "argv", ["turnout", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return int(str(ended.value.code)), said


def floats(group: click.Group, context: click.Context, words: tuple[str, ...]) -> Iterator[tuple[str, click.Option]]:
    """Yield command and option of every option that is a number."""
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from floats(found, context, (*words, name))
            continue
        command = found.command if isinstance(found, LazyCommand) else found
        for option in command.params:
            if isinstance(option, click.Option) and "float" in option.type.name:
                yield " ".join((*words, name)), option


FLOATS = list(floats(cli, click.Context(cli), ()))


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize(("command", "option"), FLOATS, ids=lambda each: getattr(each, "name", each))
def test_no_option_takes_what_is_no_number(command: str, option: click.Option, text: str) -> None:
    """Comparisons with nan are false: a wait until then never ends."""
    with pytest.raises(click.BadParameter):
        option.type.convert(text, option, None)


def test_the_options_that_are_numbers_are_found() -> None:
    """The search above does not come back with nothing."""
    assert {"catalog add-user", "groups set", "demo", "simulate"} <= {command for command, _ in FLOATS}


def test_a_store_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store's message is shown, without the statement and its parameters, and may be tried again."""
    open_store(*load(tmp_path, {}))
    with sqlite3.connect(tmp_path / "control.db") as connection:
        connection.execute("DROP TABLE groups")
    code, said = run(monkeypatch, capsys, "groups", "list", "--env-dir", str(tmp_path))
    assert code == 1
    assert "no such table: groups. Try again" in said
    assert "SELECT" not in said


@pytest.mark.parametrize("words", [["games", "approve", "\udcff"], ["ops", "show", "a\udc80"],
    ["groups", "create", "a", "--reason", "\udcff"], ["status", "--env-dir", "\udcff"]])  # fmt: skip
def test_an_argument_that_is_no_text_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes that are no UTF-8 cannot stand in the store or the log, so nothing begins with them."""
    monkeypatch.chdir(tmp_path)
    code, said = run(monkeypatch, capsys, *words)
    assert code == 2
    assert "is no UTF-8 text" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["status"], ["doctor"], ["paths"], ["groups", "create", "a"]])
@pytest.mark.parametrize("folder", ["A" * 300, "x/" + "A" * 5000], ids=["name", "path"])
def test_a_folder_that_cannot_be_is_refused(
    words: list[str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is too long for the file system is a wrong argument."""
    monkeypatch.chdir(tmp_path)
    code, said = run(monkeypatch, capsys, *words, "--env-dir", folder)
    assert code == 2
    assert "cannot be used: File name too long" in said


@pytest.mark.parametrize("words", [["status"], ["doctor"], ["groups", "create", "a"]])
def test_a_working_folder_that_is_gone_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below a deleted folder there is no environment."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, said = run(monkeypatch, capsys, *words)
    assert code == 2
    assert "var cannot be used: No such file or directory" in said


def test_an_operation_that_another_has_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two people who close one operation the second is told that it was changed."""
    engine = open_store(*load(tmp_path, {}))
    submitted = submit(engine, Intent("pause", ("game:a",), "ann", "r", {"games": ["a"]}, {}))
    waiting = change(engine, change(engine, submitted, OperationState.RUNNING), OperationState.NEEDS_HUMAN, "stuck")
    change(engine, waiting, OperationState.FAILED, "closed by another")
    monkeypatch.setattr("pipeline.store.operations.operation", lambda *_: waiting)
    words = ["ops", "close", waiting.operation_id, "--reason", "x", "--env-dir", str(tmp_path)]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, Refused)
    assert "was changed meanwhile" in str(done.exception)


def test_an_id_of_any_length_is_looked_for(tmp_path: Path) -> None:
    """No database takes a pattern of any length, and nobody reads a refusal of one."""
    engine = open_store(*load(tmp_path, {}))
    for find in (operation, find_request):
        with pytest.raises(Refused, match="has the id") as refused:
            find(engine, "a" * 100_000)
        assert len(str(refused.value)) < 200


def test_who_stops_waiting_is_told_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends the command and not the operation."""
    engine = open_store(*load(tmp_path, {}))
    record_seen(engine, {game_key("Go"): "Go"}, 1, placing())
    assign_waiting(engine, placing(100))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    # Only the module's own: py4j's threads of earlier tests sleep as well, and would be interrupted.
    monkeypatch.setattr("pipeline.cli.options.time", SimpleNamespace(sleep=interrupt))
    monkeypatch.setattr(sys, "argv", ["turnout", "pause", "Go", "--env-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    (waiting,) = list_operations(engine)
    assert ended.value.code == 1
    assert f"`turnout ops show {waiting.operation_id[:8]}`" in capsys.readouterr().err
    assert waiting.is_open


def test_an_empty_hash_proves_nothing(tmp_path: Path) -> None:
    """A script whose variable is empty must not read that the log is intact."""
    open_store(*load(tmp_path, {}))
    done = CliRunner().invoke(cli, ["audit", "verify", "--expect", "", "--env-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "NOT intact" in done.output


def start(tmp_path: Path, stdout: str, *words: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "pipeline", *words, "--env-dir", str(tmp_path)]
    with Path(stdout).open("wb") as out:
        return subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, env={**os.environ, **variables}, check=False, timeout=60
        )


def test_an_output_that_is_full_is_one_sentence(tmp_path: Path) -> None:
    """A full disk is no bug: exit code 1, and nothing more when Python ends."""
    done = start(tmp_path, "/dev/full", "paths")
    assert done.returncode == 1
    assert done.stderr == b"turnout: The output cannot be written: No space left on device. Send it to another place.\n"


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("status", "--help"), ("ops", "list", "--help")])
def test_help_for_an_output_that_is_full_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Click prints help itself: it fails as what we print does."""
    done = start(tmp_path, "/dev/full", *words)
    assert done.returncode == 1
    assert done.stderr == b"turnout: The output cannot be written: No space left on device. Send it to another place.\n"


def test_an_output_that_is_not_utf_8_does_not_end_a_command(tmp_path: Path) -> None:
    """A change is made before it is printed, so printing it must not fail: what cannot be written is escaped."""
    output = tmp_path / "out"
    done = start(tmp_path, str(output), "games", "approve", "日本", "--no-wait", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert rb"\u65e5\u672c" in output.read_bytes()


@pytest.mark.parametrize("words", [("doctor",), ("paths",), ("groups", "create", "a"), ("catalog", "add-user", "ann")])
def test_a_folder_whose_links_go_in_a_circle_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Commands that need no environment yet look where it would be, too."""
    (tmp_path / "loop").symlink_to("loop")
    code, said = run(monkeypatch, capsys, *words, "--env-dir", str(tmp_path / "loop"))
    assert (code, "its links go in a circle" in said) == (2, True)


def test_a_list_of_any_length_is_wrong_use(tmp_path: Path) -> None:
    """A number that no database takes is refused before it is asked."""
    open_store(*load(tmp_path, {}))
    for words in (("ops", "list"), ("games", "pending"), ("quarantine", "list")):
        refused = CliRunner().invoke(cli, [*words, "--limit", "9" * 20, "--env-dir", str(tmp_path)])
        assert (refused.exit_code, "not in the range" in refused.output) == (2, True), words


def test_wrong_use_acts_on_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What click says quotes the arguments, and is escaped as all that is printed; its exit codes stand."""
    for words in (("grants", "\x1b[2J\u202e"), ("ops\u202e",)):
        monkeypatch.setattr(sys, "argv", ["turnout", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = "".join(capsys.readouterr())
        assert ended.value.code == 2
        assert printed
        assert not set(printed) & {"\x1b", "\u202e"}


@pytest.mark.parametrize(
    "words",
    [("--help",), ("--version",), ("paths",), ("verify", "--help"), ("groups", "create", "a"), ("audit", "list")],
)
def test_success_returns_to_whoever_called(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform that calls the entry point takes SystemExit for a failure, even with code 0: success raises none."""
    open_store(*load(tmp_path, {})).dispose()
    place = () if words[-1].startswith("--") else ("--env-dir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["turnout", *words, *place])
    main()


@pytest.mark.parametrize(("code", "raised"), [(0, None), (None, None), (1, 1), (2, 2)])
def test_a_command_that_ends_by_itself_fails_by_its_code(
    code: int | None, raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drivers end by `sys.exit`: code 0 is a return of the entry point, and another code goes on."""

    def end(**_: object) -> None:
        sys.exit(code)

    monkeypatch.setattr("pipeline.cli.main.cli", end)
    monkeypatch.setattr(sys, "argv", ["turnout"])
    if raised is None:
        main()
        return
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == raised


def test_games_as_json_are_read_by_every_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`games list --json` and `games pending --json` have no bare infinities, as JSON has none."""
    open_store(*load(tmp_path, {}))
    endless = pending.Game("k", "n", "name", math.inf, None, (), None, None, "normal", None)
    monkeypatch.setattr(pending, "games", lambda _: [endless])
    monkeypatch.setattr(pending, "pending_for_json", lambda *_: {"names": [{"first_seen": -math.inf}]})
    for words in (("games", "list"), ("games", "pending")):
        monkeypatch.setattr(sys, "argv", ["turnout", *words, "--json", "--env-dir", str(tmp_path)])
        main()
        assert "Infinity" in str(json.loads(capsys.readouterr().out, parse_constant=pytest.fail))


def test_tables_that_cannot_be_reached_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store that is away ends a command with the place, the reason and what to try, and code 1: it may pass."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TURNOUT_STORAGE__ROOT", "s3://bucket/prod")
    monkeypatch.setattr(cloud, "RETRY", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    open_store(*load(tmp_path)).dispose()
    code, said = run(monkeypatch, capsys, "verify", "--env-dir", str(tmp_path))
    assert code == 1
    assert "The tables cannot be reached. s3://bucket/prod/bronze: the store cannot be reached." in said
    assert "turnout doctor" in said
