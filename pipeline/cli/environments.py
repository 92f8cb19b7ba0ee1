"""Which folder is an environment: commands that only look at one refuse a folder that is none, and make nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from pipeline.errors import Refused

_BEGIN: Final = frozenset(
    {
        "catalog add-user", "catalog serve", "controller run", "dashboard", "demo", "games approve", "groups create",
        "groups run", "ingest run", "schemas register", "simulate",
    }
)  # fmt: skip
"""Commands with which an environment may begin."""

_MAKE_NOTHING: Final = frozenset({"doctor", "paths"})
"""Commands that say where things would be."""

_MARKS: Final = ("turnout.toml", "control.db", "bronze")
_STORE: Final = "TURNOUT_STORE__URL"
_SHOWN: Final = 5


def existing(context: click.Context, _: click.Parameter, folder: Path) -> Path:
    """Return the folder of `--env-dir`; a click callback.

    Raises:
        Refused: the command needs an environment, and the folder is none.
    """
    name = context.command_path.partition(" ")[2]
    if name in _BEGIN | _MAKE_NOTHING or _is_environment(folder) or _STORE in os.environ:
        return folder
    near = sorted({str(each) for each in _nearby(folder)})
    named = f"Environments nearby: {', '.join(near[:_SHOWN])}. " if near else ""
    raise Refused(f"There is no environment at {folder}. {named}Name one with --env-dir.")


def _is_environment(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in _MARKS)


def _nearby(folder: Path) -> Iterator[Path]:
    """Yield environments beside the folder, and in the folder where one was expected."""
    for parent in (folder.parent, folder):
        try:
            yield from (each for each in parent.iterdir() if each.is_dir() and _is_environment(each))
        except OSError:
            continue
