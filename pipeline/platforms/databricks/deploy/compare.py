"""Compares what should be with what is: pure, on plain values as they stand in JSON.

What a definition states must be so. What it leaves out must be as the server fills it in, so that a value which
a person set there is found, and what the server adds by itself is no difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline.platforms.databricks.deploy.secrets import hide

_KEYS: Final = ("task_key", "job_cluster_key", "name", "key", "principal")
"""Keys by which elements of lists are the same thing, in any order."""

_ABSENT: Final = "(absent)"


@dataclass(frozen=True, slots=True)
class Change:
    """One value that differs; its text has no secret."""

    path: str
    is_now: Any
    should_be: Any

    def __str__(self) -> str:
        is_now, should_be = self._shown(self.is_now, self.should_be), self._shown(self.should_be, self.is_now)
        return f"{self.path}: {is_now} → {should_be}"

    def _shown(self, value: Any, other: Any) -> str:
        text = str(value if value is _ABSENT else hide(self.path, value, other))
        return text if len(text) <= 120 else f"{text[:117]}..."


def changes(definition: Any, state: Any, filled: Mapping[str, Sequence[Any]], path: str = "") -> list[Change]:
    """Return how a state differs from its definition.

    `filled` has what the server fills in where a definition leaves a value out: a path, in which `*` stands for an
    element or key, and the values that mean nothing, of a mapping some of its items; an empty list of them: any value.
    """
    if isinstance(definition, Mapping) and isinstance(state, Mapping):
        found = []
        for key in dict.fromkeys((*definition, *state)):
            below = f"{path}.{key}" if path else str(key)
            if key not in state:
                if not _is_nothing(definition[key]):
                    found.append(Change(below, _ABSENT, definition[key]))
            elif key not in definition:
                if not _is_filled(below, state[key], filled):
                    found.append(Change(below, state[key], _ABSENT))
            else:
                found += changes(definition[key], state[key], filled, below)
        return found
    if isinstance(definition, list) and isinstance(state, list):
        return _changes_of_lists(definition, state, filled, path)
    return [] if _same(definition, state) else [Change(path, state, definition)]


def _changes_of_lists(
    definition: list[Any], state: list[Any], filled: Mapping[str, Sequence[Any]], path: str
) -> list[Change]:
    wanted, there = _by_key(definition), _by_key(state)
    if wanted is None or there is None:
        return [] if definition == state else [Change(path, state, definition)]
    found = []
    for key in dict.fromkeys((*wanted, *there)):
        below = f"{path}[{key}]"
        if key not in there:
            found.append(Change(below, _ABSENT, wanted[key]))
        elif key not in wanted:
            if not _is_filled(below, there[key], filled):
                found.append(Change(below, there[key], _ABSENT))
        else:
            found += changes(wanted[key], there[key], filled, below)
    return found


def _by_key(elements: list[Any]) -> dict[str, Any] | None:
    """Return elements by the key that names each; None if they have none."""
    if not elements:
        return {}
    if all(isinstance(each, Mapping) and "level" in each for each in elements):  # permissions
        return {" ".join(str(value) for _, value in sorted(each.items())): each for each in elements}
    for name in _KEYS:
        if all(isinstance(each, Mapping) and name in each for each in elements):
            found = {str(each[name]): each for each in elements}
            return found if len(found) == len(elements) else None
    return None


def _is_filled(path: str, value: Any, filled: Mapping[str, Sequence[Any]]) -> bool:
    if _is_nothing(value):
        return True
    plain = _plain(path)
    return any(_plain(each) == plain and _is_among(value, values) for each, values in filled.items())


def _is_among(value: Any, values: Sequence[Any]) -> bool:
    return not values or any(
        each.items() <= value.items() if isinstance(each, Mapping) and isinstance(value, Mapping) else each == value
        for each in values
    )


def _plain(path: str) -> str:
    """Return a path without which element of a list it goes through."""
    out, depth = [], 0
    for letter in path:
        depth += letter == "["
        if not depth:
            out.append(letter)
        depth -= letter == "]"
    return "".join(out).replace(".*", "")


def _is_nothing(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_nothing(each) for each in value.values())
    return value is None or value is False or value in ("", [])


def _same(one: Any, other: Any) -> bool:
    return one == other or _text(one) == _text(other)  # a variable of the bundle is text, also where it is a number


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
