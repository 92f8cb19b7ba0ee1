"""Help, completion and commands that only look are quick: what they import is counted, never the time it takes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from pipeline.cli.lazy import LazyCommand
from pipeline.cli.main import cli
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.checkout import ROOT
from tests.processes.heavy_modules import HEAVY

START = {
    "grants", "grants.cli", "grants.cli.main", "pipeline", "pipeline.base", "pipeline.cli", "pipeline.cli.environments",
    "pipeline.cli.lazy", "pipeline.cli.main", "pipeline.base.errors", "pipeline.base.extensions", "pipeline.base.names",
    "pipeline.base.terminal",
}  # fmt: skip
GROUPS = sorted(name for name, command in cli.commands.items() if isinstance(command, click.Group))
_RUN = """
import sys
from pipeline.cli.main import cli
try:
    cli(sys.argv[1:], prog_name="turnout")
finally:
    print("\\n" + " ".join(sys.modules))
"""


def imported(*arguments: str) -> set[str]:
    """Return the modules that are loaded after a command has run."""
    done = subprocess.run([sys.executable, "-c", _RUN, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert "pipeline.cli.main" in done.stdout, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def lazy(commands: Mapping[str, click.Command]) -> Iterator[LazyCommand]:
    for command in commands.values():
        if isinstance(command, click.Group):
            yield from lazy(command.commands)
        else:
            assert isinstance(command, LazyCommand), f"{command.name} is imported with the help of all"
            yield command


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in GROUPS)], ids=" ".join)
def test_help_imports_no_command(arguments: list[str]) -> None:
    """The help of all, and of a group, knows the commands without importing one, or a library for one."""
    modules = imported(*arguments)
    assert {name for name in modules if name.partition(".")[0] in {"app", "grants", "listeners", "pipeline"}} == START
    assert modules & (HEAVY | {"sqlalchemy", "yaml"}) == set()


@pytest.mark.parametrize(
    "name", ["status", "games list", "groups list", "ops list", "audit list", "schemas list", "ingest gaps"]
)
def test_a_command_that_reads_the_store_imports_no_library_of_tables(name: str, tmp_path: Path) -> None:
    """A list waits for the control store, not for libraries that read tables."""
    open_store(*load(tmp_path))
    modules = imported(*name.split(), "--env-dir", str(tmp_path))
    assert "sqlalchemy" in modules
    assert modules & HEAVY == set()


@pytest.mark.parametrize("command", list(lazy(cli.commands)), ids=lambda command: str(command.place))
def test_the_help_of_a_group_says_what_the_command_says(command: LazyCommand) -> None:
    """A group reads the name and first sentence of a command from its source; the imported command has the same."""
    for width in (45, 1_000):
        assert command.get_short_help_str(width) == command.command.get_short_help_str(width)
    assert command.command.name == command.name


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("turnout gr", {"grants", "groups"}),
        ("turnout groups re", {"remove", "restart"}),
        ("turnout groups create --pri", {"--priority"}),
        ("turnout groups create --priority n", {"normal"}),
        ("turnout grants export --format t", {"terraform"}),
    ],
)
def test_the_shell_completes(words: str, completed: set[str]) -> None:
    """Commands, options and choices are completed, also of what is not imported yet and of packages above."""
    submitted = {"_TURNOUT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    run = "from pipeline.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, env={**os.environ, **submitted}
    )
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == completed, done.stderr
