"""Commands whose modules are imported when they run: help, completion and other commands do without them."""

import sys
from collections.abc import Callable
from functools import cache, cached_property, wraps
from pkgutil import resolve_name
from typing import Any

import click

from pipeline.cli.environments import environment
from pipeline.errors import Refused


class LazyCommand(click.Command):
    """Stands for a command in its group until it runs, with its name and the first sentence of its help.

    `place` is where the command is, as `package.module:name`. What is loaded from there gets the option `--env-dir`.
    """

    def __init__(self, name: str, place: str, short_help: str) -> None:
        super().__init__(name, help=short_help)
        self.place = place

    @cached_property
    def command(self) -> click.Command:
        """The command itself; its module is imported now."""
        return _loaded(self.place)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command itself: what click parses, invokes and completes is taken from there."""
        return self.command.make_context(info_name, args, parent, **extra)


@cache
def _loaded(place: str) -> click.Command:
    command: click.Command = resolve_name(place)
    if command.callback is not None:
        command.callback = _naming_mistyped(command.callback)
    return environment(command)


def _naming_mistyped(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command that fails of a row with a value of a wrong type name it; every other failure is a bug's."""

    @wraps(callback)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            return callback(*arguments, **options)
        except (TypeError, AttributeError, ValueError) as error:
            if isinstance(error, Refused) or "pipeline.store.engine" not in sys.modules:
                raise
            from pipeline.cli.context import CommandContext
            from pipeline.store.row_types import describe_mistyped

            sentence = describe_mistyped(CommandContext(options["env_dir"]).engine)
            if sentence is None:
                raise
            raise Refused(sentence) from error

    return called


def group(name: str, help_text: str, *commands: click.Command) -> click.Group:
    """Return a group of commands, most of them lazy."""
    return click.Group(name, help=help_text, commands=commands)
