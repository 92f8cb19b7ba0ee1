"""Commands whose modules are imported when they run: help, completion and other commands do without them."""

from functools import cache, cached_property
from pkgutil import resolve_name
from typing import Any

import click

from pipeline.cli.environments import environment
from pipeline.terminal import say


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
    return environment(command)


class OldName(LazyCommand):
    """A command under its name of version 0.1: it is not listed, does the same, and says what it is called now."""

    def __init__(self, name: str, place: str, called: str) -> None:
        super().__init__(name, place, f"Called `turnout {called}` now.")
        self.hidden, self.called = True, called

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command itself, after the sentence that says its name."""
        if not extra.get("resilient_parsing"):  # of completion
            say(f"turnout: this command is called `turnout {self.called}` now.", err=True)
        return super().make_context(info_name, args, parent, **extra)


def group(name: str, help_text: str, *commands: click.Command) -> click.Group:
    """Return a group of commands, most of them lazy."""
    return click.Group(name, help=help_text, commands=commands)
