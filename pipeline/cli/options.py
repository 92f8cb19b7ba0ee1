"""What several commands have in common: options that go together, and a setting that an option overrides."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import click

from pipeline.names import is_said
from pipeline.settings import Paths, Settings, load

LISTED: Final = click.IntRange(1, 1_000_000)
"""The most lines that a list prints; a database takes no number of any length."""

_F = TypeVar("_F", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[_F], _F]


class Finite(click.FloatRange):
    """A number with or without bounds that is neither infinite nor nan: each comparison with nan is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail as click's own types do."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def combine_options(*parameters: Decorator[Any]) -> Decorator[Any]:
    """Return one decorator for these options and arguments of click, which help then shows in this order."""

    def add(command: _F) -> _F:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return add


def required_reason(help_text: str) -> Decorator[Any]:
    """Return the option --reason for what is not done without one.

    A reason that nobody can see is wrong use, as none at all is.
    """

    def checked(_context: click.Context, _option: click.Parameter, reason: str) -> str:
        if not is_said(reason):
            raise click.BadParameter("It must not be empty: it is kept in the audit log.")
        return reason

    return click.option("--reason", required=True, callback=checked, help=help_text)


def load_with_source(env_dir: Path, source: str | None) -> tuple[Settings, Paths]:
    """Read the settings, with the source kind of the command line laid over them."""
    environ = dict(os.environ)
    if source is not None:
        environ["TURNOUT_SOURCE__KIND"] = source
    return load(env_dir, environ)
