"""Commands whose modules are imported when they run: help, completion and other commands do without them."""

import ast
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from pipeline.cli.environments import environment


class LazyCommand(click.Command):
    """Stands for a command in its group until it runs.

    `place` is where the command is, as `package.module:name`. What is loaded from there gets the option `--env-dir`.
    `verbs` are further commands, which run where the first word names one.
    """

    def __init__(self, name: str, place: str, *verbs: "LazyCommand") -> None:
        super().__init__(name)
        self.place = place
        self.verbs = {str(each.name): each for each in verbs}

    @cached_property
    def command(self) -> click.Command:
        """The command itself; its module is imported now."""
        return _loaded(self.place)

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first sentence of the command's help, which its source says: nothing is imported for it."""
        self.help = self.help or _read_help(self.place)
        return super().get_short_help_str(limit)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command itself: what click parses, invokes and completes is taken from there."""
        if args and args[0] in self.verbs:
            return self.verbs[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return self.command.make_context(info_name, args, parent, **extra)


def _read_help(place: str) -> str | None:
    """Return the docstring of a command, or the last argument of the call that makes it; None where it has neither."""
    module, _, name = place.partition(":")
    for node in _statements(module):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node)
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            assert isinstance(node.value, ast.Call)
            return str(ast.literal_eval(node.value.args[-1]))
    return None


@cache
def _statements(module: str) -> list[ast.stmt]:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text("utf-8")).body


@cache
def _loaded(place: str) -> click.Command:
    command: click.Command = resolve_name(place)
    return environment(command)


def group(name: str, help_text: str, *commands: click.Command) -> click.Group:
    """Return a group of commands, most of them lazy."""
    return click.Group(name, help=help_text, commands=commands)
