"""Values in the file of derived streams: texts, durations, paths of columns; a value that does not fit is a problem."""

import re
from typing import Final

import yaml

from pipeline.base import yaml_nodes
from pipeline.base.problems import Problems, shown
from pipeline.base.yaml_nodes import line_of

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""What may name a table, or a column that is computed."""

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
"""The units of durations."""

_GRANTS: Final = ("game", "own")
"""Whose grants give a table: those of its game and its own, or its own alone."""

_PATH: Final = re.compile(r"\w+(\.\w+)*")
_DURATION: Final = re.compile(r"(0|[1-9][0-9]{0,6})(s|m|h|d)")


def spelled(seconds: int) -> str:
    """Return a duration as a file says it."""
    unit = next((each for each in ("d", "h", "m") if seconds and seconds % SECONDS[each] == 0), "s")
    return f"{seconds // SECONDS[unit]}{unit}"


def grant_tree(*, own: bool) -> dict[str, str]:
    """Return by whose grants a table is read as a file says it, nothing at the default."""
    return {"grant": "own"} if own else {}


class FieldValues:
    """Reads values, and notes those that do not fit."""

    def __init__(self, problems: Problems) -> None:
        """Note problems here."""
        self.problems = problems

    def text(self, node: yaml.Node | None, what: str) -> str | None:
        """Return a text; None where there is none."""
        return None if node is None else yaml_nodes.text(node, what, self.problems)

    def path(self, node: yaml.Node, what: str) -> str:
        """Return the path of a column; empty where the text is no path."""
        path = self.text(node, what) or ""
        if path and not _PATH.fullmatch(path):
            said = f"{shown(path)} is no path of a column; write such as price or sale.price"
            self.problems.add(line_of(node), said)
        return path

    def has_own_grants(self, node: yaml.Node | None) -> bool:
        """Return whether a table is read by grants of its own alone."""
        word = self.text(node, "grant")
        if node is not None and word is not None and word not in _GRANTS:
            self.problems.add(line_of(node), f"grant must be one of {', '.join(_GRANTS)}")
        return word == "own"

    def seconds(self, node: yaml.Node | None, what: str) -> int | None:
        """Return a duration in seconds; None where there is none, 0 where it is no duration, which is noted."""
        text = self.text(node, what)
        if node is None or text is None:
            return None
        match = _DURATION.fullmatch(text)
        if match is None:
            self.problems.add(line_of(node), f"{what} must be such as 90s, 10m, 1h or 2d")
            return None
        return int(match[1]) * SECONDS[match[2]]
