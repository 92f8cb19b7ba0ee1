"""What a setting's text or TOML value is as the type of its field; pure."""

import contextlib
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal

ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
"""What a Kafka consumer reads of transactions; the first is the default."""


_SECRET: Final = re.compile(r"credential|jaas|key|options|password|secret|token|url", re.IGNORECASE)


def may_be_secret(name: str, raw: Any) -> bool:
    """Return whether a setting's value must not be shown: by its name, or since it holds values of its own."""
    return _SECRET.search(name) is not None or not isinstance(raw, str | int | float)


def shape(raw: Any) -> str:
    """Return what a value is, without showing it."""
    kinds = (
        (bool, "true or false"),
        (int | float, "a number"),
        (str, "a text"),
        (list, "a list"),
        (Mapping, "a table"),
    )
    kind = next((words for kinds_of, words in kinds if isinstance(raw, kinds_of)), "another value")
    return f"{kind} (not shown)"


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
        number = isinstance(raw, (kind, int)) and not isinstance(raw, bool)  # 1.5 is no whole number
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


def kafka_problems(topic: str, isolation_level: str) -> list[str]:
    """Return what is wrong with the settings of a Kafka source, a sentence each."""
    problems = []
    if re.fullmatch(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}", topic) is None:
        problems.append(
            "source.topic: expected the name of one topic, 1 to 249 letters, digits, '.', '_' and '-', got "
            f"{topic!r}; an environment reads one topic, not a list or a pattern"
        )
    if isolation_level not in ISOLATION_LEVELS:
        problems.append(
            f"source.kafka_options: expected isolation.level to be {' or '.join(ISOLATION_LEVELS)}, got "
            f"{isolation_level!r}"
        )
    return problems
