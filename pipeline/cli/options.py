"""Adds several options to a command at once."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[_F], _F]


def combine_options(*parameters: Decorator[Any]) -> Decorator[Any]:
    """Return one decorator for these options and arguments of click, which help then shows in this order."""

    def add(command: _F) -> _F:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return add
