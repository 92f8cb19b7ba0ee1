"""Parses a setting's text or TOML value into the type of its field; pure."""

import contextlib
import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal

from pipeline.base.errors import Refused
from pipeline.base.names import is_utf8
from pipeline.base.texts import meant
from pipeline.lake.storage.location import Location

ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
"""What a Kafka consumer reads of transactions; the first is the default."""

_READABLE: Final = 1e300
_SIZE: Final = re.compile(r"(\d+)(?:([kmgtp])b?|b)?")
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_SECRET: Final = re.compile(r"credential|jaas|key|options|password|secret|token|url", re.IGNORECASE)


class Range(typing.NamedTuple):
    """The least and the most that a setting of a number takes, beside its type."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


def ranges_of(cls: type) -> Iterator[tuple[str, Range]]:
    """Yield name and range of each field of a table of settings that has one."""
    for name, kind in typing.get_type_hints(cls, include_extras=True).items():
        yield from ((name, each) for each in getattr(kind, "__metadata__", ()) if isinstance(each, Range))


def named_tables(kind: Any) -> type | None:
    """Return the class of the tables in a setting such as `[registries.NAME]`; None for another kind of setting."""
    inside = typing.get_args(kind)[1:] if typing.get_origin(kind) is Mapping else ()
    return next((each for each in inside if dataclasses.is_dataclass(each) and isinstance(each, type)), None)


def may_be_secret(name: str, kind: Any, raw: Any) -> bool:
    """Return whether a setting's value must be hidden: by its name, or because it contains values."""
    holds_values = typing.get_origin(kind) not in (None, Literal) or not isinstance(raw, str | int | float)
    return holds_values or _SECRET.search(name) is not None


_RULE: Final = "is no setting any more. Remove it, and write a rule: `turnout games rules apply FILE`, see steering.md"
_REMOVED: Final[Mapping[str, str]] = {
    "onboarding.names": _RULE,
    "onboarding.prefixes": _RULE,
    "onboarding.max_new_per_prefix_per_hour": _RULE,
}
"""What became of settings that people may still have, by name."""


def unknown_names(given: Collection[str], known: Collection[str], prefix: str) -> list[str]:
    """Return a problem for each name that no setting has, with the nearest one; `prefix` is its table."""
    listed = ", ".join(sorted(known))
    wrong = sorted(set(given) - set(known))
    return [
        f"{prefix}{name}: {_REMOVED[prefix + name]}"
        if prefix + name in _REMOVED
        else f"{prefix}{name}: no such setting.{meant(name, known)} Known here are {listed}"
        for name in wrong
    ]


def shape(raw: Any) -> str:
    """Return the kind of a value, without its content."""
    kinds = (
        (bool, "true or false"),
        (int | float, "a number"),
        (str, "a text"),
        (list, "a list"),
        (Mapping, "a table"),
    )
    kind = next((words for kinds_of, words in kinds if isinstance(raw, kinds_of)), "another value")
    return f"{kind} (not shown)"


def names_more(text: str) -> bool:
    """Return whether a text may hold a user, a password or a query, which may be secrets; a plain path holds none."""
    text = text.strip()
    if re.match("/(?!/)", text):
        return False
    if "@" in text and not re.match(r"(?:abfss?|wasbs?)://[^/:@]*@[^@]*$", text):
        return True
    query = "[?#&;]" if re.match(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?/", text) else "sig="
    return re.search(query, text, re.IGNORECASE) is not None


def quoted(text: str) -> str:
    """Return a wrong text in quotes, only its shape if it may hold a secret."""
    return shape(text) if names_more(text) else repr(text)


def number(value: Any) -> str:
    """Return a value as text where people can read it: an integer may have thousands of digits."""
    if isinstance(value, int | float) and not -_READABLE < value < _READABLE:
        return "a number that is too large"
    return f"{value:g}" if isinstance(value, float) else str(value)


RESERVED_VARIABLES: frozenset[str] = frozenset(
    {"TURNOUT_HOME", "TURNOUT_ENV_DIR", "TURNOUT_JARS", "TURNOUT_IVY_SETTINGS", "TURNOUT_FAILPOINTS"}
)
"""Variables of the launcher and of tests, which are not settings of an environment."""


def overlay(tree: dict[str, Any], environ: Mapping[str, str], problems: list[str]) -> None:
    """Overlay `TURNOUT_A__B=value` on the tree; the text is typed later, where the field is known."""
    for name, value in sorted(environ.items()):
        if not name.startswith("TURNOUT_"):
            continue
        if not (is_utf8(name) and is_utf8(value)):  # its value may be a secret
            problems.append(f"{name!a}: expected UTF-8 text, got other bytes")
            continue
        if name in RESERVED_VARIABLES:
            continue
        *sections, leaf = name.removeprefix("TURNOUT_").lower().split("__")
        node = tree
        for section in sections:
            child = node.setdefault(section, {})
            if not isinstance(child, dict):
                problems.append(f"{name}: {section} is not a table of settings")
                break
            node = child
        else:
            node[leaf] = Text(value)


def parse_toml(content: bytes, file: Location) -> dict[str, Any]:
    """Return what a settings file says, from its content.

    Raises:
        Refused: it is no TOML.
    """
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise Refused(f"{file} is not valid TOML: {error}. Correct that line.") from error
    except RecursionError as error:
        raise Refused(f"{file} is not valid TOML: its lists or tables are nested too deep. Correct them.") from error


class Text(str):
    """A value from the environment, so numbers are text."""

    __slots__ = ()


def typed(kind: Any, raw: Any) -> Any:
    """Return the raw value as the field's type; the ValueError otherwise gives the expected type."""
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
            except (ValueError, OverflowError):
                pass
        raise ValueError("a whole number" if kind is int else "a number")
    raise ValueError("a text")


def _switch(raw: Any) -> bool:
    """Parse a switch; from the environment it is written as in TOML."""
    if isinstance(raw, Text) and raw in {"true", "false"}:
        return raw == "true"
    if isinstance(raw, bool):
        return raw
    raise ValueError("true or false")


def _texts(raw: Any) -> tuple[str, ...]:
    """Parse a list of texts; from the environment it is written as in TOML."""
    if isinstance(raw, Text):
        with contextlib.suppress(ValueError, RecursionError):
            raw = tomllib.loads(f"list = {raw}")["list"]
    if isinstance(raw, list) and all(isinstance(text, str) for text in raw):
        return tuple(raw)
    raise ValueError('a list of texts such as ["a", "b"]')


def hours_of(text: str) -> tuple[int, int] | None:
    """Return the first hour and the hour after the last, all day for an empty text; None for another text."""
    if not text:
        return 0, 24
    found = re.fullmatch(r"(\d{1,2})-(\d{1,2})", text, re.ASCII)
    first, end = (int(found[1]), int(found[2])) if found else (0, 0)
    return (first, end) if first != end and max(first, end) <= 24 else None


def parse_bytes(setting: str, text: str) -> int:
    """Parse a number of bytes as Spark's `JavaUtils.byteStringAsBytes` does, such as 64m.

    Raises:
        Refused: it is none.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise Refused(f"{setting} is {text!r}. Set it to a number of bytes, or to one with k, m or g, such as 64m.")
    return int(found[1]) << _SHIFTS[found[2] or ""]
