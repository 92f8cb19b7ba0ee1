"""Which folder is an environment: most commands refuse another folder, or an environment without its control store."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from pipeline.base.errors import Refused

_F = TypeVar("_F", bound=Callable[..., Any])

_BEGIN: Final = frozenset(
    {
        "alerts write", "catalog add-user", "catalog serve", "controller run", "dashboard", "demo",
        "edge producers apply", "edge run", "games approve",
        "games propose", "games rules apply", "groups create", "groups run", "ingest run", "schemas register",
        "simulate",
    }
)  # fmt: skip
"""Commands with which an environment may begin."""

_MAKE_NOTHING: Final = frozenset(
    {
        "deploy adopt", "deploy apply", "deploy build", "deploy diff", "deploy drift", "deploy plan",
        "deploy uninstall", "doctor", "edge producers token", "paths", "setup", "source probe",
    }
)  # fmt: skip
"""Commands that need no control store: they say what is there, or where things would be."""

_READ_TABLES: Final = frozenset({"quarantine list", "quarantine show", "verify"})
"""Commands that look at tables in the folder, wherever the control store is."""

_KEEP_LOOKING: Final = frozenset({"metrics serve"})
"""Commands that run in an environment whose control store is away, and say so meanwhile."""

_MARKS: Final = ("turnout.toml", "turnout.url", "control.db", "bronze")
_STORE: Final = "TURNOUT_STORE__URL"
_SHOWN: Final = 5
_GIVEN: Final = "turnout.env_dir"
_HELP: Final = "Folder of one environment, or its URL, such as s3://bucket/prod. TURNOUT_ENV_DIR sets it too."


class _Folder(click.Path):
    """A folder; for a URL this machine's folder of that environment."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the folder."""
        if isinstance(value, str) and "://" in value:
            from pipeline.settings.storage import machine_folder

            return machine_folder(value)
        return super().convert(value, param, ctx)


_FOLDER: Final = _Folder(file_okay=False, path_type=Path)


def environment(command: _F) -> _F:
    """Add the option every command has: the folder with all state of one environment."""
    option = click.option(
        "--env-dir",
        type=_FOLDER,
        default=Path("var"),
        envvar="TURNOUT_ENV_DIR",
        show_default=True,
        callback=existing,
        help=_HELP,
    )
    return option(command)


def before(group: _F) -> _F:
    """Let `--env-dir` stand before the commands of a group, too; after the command it counts more."""
    option = click.option("--env-dir", type=_FOLDER, expose_value=False, callback=_keep, help=_HELP)
    return option(group)


def list_without_verb(group: click.Group) -> None:
    """Let a group without a verb do what its `list` does."""

    def listed() -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            with group.commands["list"].make_context("list", [], parent=context) as below:
                below.command.invoke(below)

    before(group)
    group.invoke_without_command, group.no_args_is_help, group.callback = True, False, listed


def existing(context: click.Context, _: click.Parameter, folder: Path) -> Path:
    """Return the folder of `--env-dir`; a click callback.

    Raises:
        Refused: the command needs an environment, and the folder is none or has lost its control store.
    """
    if context.get_parameter_source("env_dir") is not ParameterSource.COMMANDLINE:
        folder = context.meta.get(_GIVEN, folder)
    name = context.command_path.partition(" ")[2]
    try:
        is_environment = _is_environment(folder.absolute())  # of a working folder that was deleted nothing is known
        folder.resolve()
    except OSError as error:
        raise Refused(f"{folder} cannot be used: {error.strerror}. Name another folder with --env-dir.") from error
    except RuntimeError as error:  # so pathlib says it
        raise Refused(
            f"{folder} cannot be used: its links go in a circle. Name another folder with --env-dir."
        ) from error
    if name in _BEGIN | _MAKE_NOTHING:
        return folder
    if is_environment or (os.environ.get(_STORE) and name not in _READ_TABLES):
        if name not in _KEEP_LOOKING:
            _require_store(folder)
        return folder
    near = sorted({str(each) for each in _nearby(folder)})
    named = f"Environments nearby: {', '.join(near[:_SHOWN])}. " if near else ""
    raise Refused(f"There is no environment at {folder}. {named}Name one with --env-dir.")


def _keep(context: click.Context, _: click.Parameter, folder: Path | None) -> Path | None:
    if folder is not None:
        context.meta[_GIVEN] = folder
    return folder


def _is_environment(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in _MARKS)


def _require_store(folder: Path) -> None:
    """Go on only where the control store is there, in the folder or where the settings name one."""
    from pipeline.settings.tree import load
    from pipeline.store.database.engine import require_store

    require_store(*load(folder))


def _nearby(folder: Path) -> Iterator[Path]:
    """Yield environments beside the folder, and in the folder where one was expected."""
    for parent in (folder.parent, folder):
        try:
            yield from (each for each in parent.iterdir() if each.is_dir() and _is_environment(each))
        except OSError:
            continue
