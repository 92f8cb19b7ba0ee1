"""What a setting's text or TOML value is as the type of its field; pure."""

import contextlib
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal


class Text(str):
    """A value that came from the environment, so numbers are written as text."""

    __slots__ = ()


def typed(kind: Any, raw: Any) -> Any:
    """Return the raw value as the field's type, or raise ValueError saying what was expected."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        if raw in (choices := typing.get_args(kind)):
            return str(raw)
        raise ValueError(f"one of {', '.join(choices)}")
    if origin in (Mapping, typing.get_origin(Mapping[str, str])):
        if isinstance(raw, Mapping) and all(isinstance(value, (str, int, float)) for value in raw.values()):
            return types.MappingProxyType({key: str(value) for key, value in raw.items()})
        raise ValueError("a table of texts")
    if origin is tuple:
        return _texts(raw)
    if kind is bool:
        return _switch(raw)
    if kind is str and isinstance(raw, str):
        return str(raw)
    if kind in (int, float):
        number = isinstance(raw, (int, float)) and not isinstance(raw, bool)
        if number or isinstance(raw, Text):
            try:
                return kind(raw)
            except ValueError:
                pass
        raise ValueError("a whole number" if kind is int else "a number")
    raise ValueError("a text")


def _switch(raw: Any) -> bool:
    """Return a switch; from the environment it comes as TOML writes it."""
    if isinstance(raw, Text) and raw in {"true", "false"}:
        return raw == "true"
    if isinstance(raw, bool):
        return raw
    raise ValueError("true or false")


def _texts(raw: Any) -> tuple[str, ...]:
    """Return a list of texts; from the environment it comes as TOML writes it."""
    if isinstance(raw, Text):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            raw = tomllib.loads(f"list = {raw}")["list"]
    if isinstance(raw, list) and all(isinstance(text, str) for text in raw):
        return tuple(raw)
    raise ValueError('a list of texts such as ["a", "b"]')
