"""Reads `objectives.yml`: how fresh the games of each class must be, as a share of time. Pure but for `read`.

All problems of a file are reported at once, each with its line. Every alert about an objective follows from these
numbers, see `burn`.
"""

import math
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from pipeline.base.errors import Refused
from pipeline.base.names import key_pattern
from pipeline.base.texts import first_lines

FILE: Final = "objectives.yml"
FAST_FACTOR_OF_30_DAYS: Final = 14.4
_PACKAGED: Final = Path(__file__).with_name(FILE)
_MAX_BYTES: Final = 1_000_000
_MAX_CLASSES: Final = 50
_MAX_GAMES: Final = 2_000
_MAX_PROBLEMS: Final = 20
_MAX_DEPTH: Final = 6
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_EVERYTHING: Final = "*"
_FIELDS: Final = ("name", "games", "latency_seconds", "share", "days")


@dataclass(frozen=True, slots=True)
class Objective:
    """The promise to the games of one class: `share` of the time of `days` fresh within `latency_seconds`."""

    name: str
    games: str | None  # a regular expression (RE2) for their keys; None: every game
    latency_seconds: float | None  # None: the setting metrics.latency_objective_seconds
    share: float = 0.99
    days: float = 30.0

    @property
    def budget(self) -> float:
        """The share of time that may be late."""
        return 1.0 - self.share

    def factor(self, spent: float, hours: float) -> float:
        """Return how many times faster than allowed a window burns that spends this share of the budget."""
        return spent * self.days * 24.0 / hours


def read(folder: Path) -> tuple[Objective, ...]:
    """Return the objectives of an environment's folder; those that come with turnout where it has no file.

    Raises:
        Refused: the file cannot be read, or something in it is wrong: all of it, with lines.
    """
    file = folder / FILE
    try:
        content = (file if os.path.lexists(file) else _PACKAGED).read_bytes()  # a link to nothing is no default
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}. Correct it, or remove it for the defaults.") from error
    found, problems = parse(content)
    if problems:
        lines = "\n".join(f"  - {line}" for line in first_lines(problems, _MAX_PROBLEMS))
        raise Refused(f"{file} has {len(problems)} problem(s). The rules stay as they were. Correct them:\n{lines}")
    return found


def default() -> tuple[Objective, ...]:
    """Return the objectives that come with turnout."""
    found, problems = parse(_PACKAGED.read_bytes())
    assert not problems, problems
    return found


def parse(content: bytes) -> tuple[tuple[Objective, ...], list[str]]:
    """Return the objectives in order, and every problem as a sentence with its line; either is empty."""
    reader = _Reader()
    if len(content) > _MAX_BYTES:
        reader.problems.append((1, f"expected at most {_MAX_BYTES:,} bytes, got {len(content):,}"))
    else:
        reader.read(content)
    problems = [f"line {line}: {text}" for line, text in sorted(reader.problems)]
    return ((), problems) if problems else (tuple(reader.objectives), [])


class _Reader:
    """Walks the nodes of one file; nothing is made of them but texts and numbers."""

    def __init__(self) -> None:
        self.problems: list[tuple[int, str]] = []
        self.objectives: list[Objective] = []

    def read(self, content: bytes) -> None:
        try:
            text = content.decode()
            if not self._is_flat(text):
                return
            root = yaml.compose(text, Loader=_LOADER)
        except UnicodeDecodeError as error:
            self.problems.append((content.count(b"\n", 0, error.start) + 1, "expected UTF-8 text, got other bytes"))
            return
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            last = max(content.count(b"\n") + (not content.endswith(b"\n")), 1)  # libyaml counts one more at the end
            line = 1 if mark is None else min(mark.line + 1, last)
            self.problems.append((line, f"expected YAML: {error.problem or error.context}"))
            return
        except yaml.YAMLError:  # the reader's, which know no line
            self.problems.append((1, "expected YAML without control characters"))
            return
        if root is None:
            self.problems.append((1, "expected a list `classes`, got an empty file"))
            return
        fields = self._fields(root, "the file", ("classes",))
        if fields is None:
            return
        classes = self._items(fields.get("classes"), root, "classes", _MAX_CLASSES)
        names: set[str] = set()
        for node in classes:
            self._class(node, names)

    def _is_flat(self, text: str) -> bool:
        """Look at the events before anything is composed: a text of brackets alone would exhaust the stack."""
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH or isinstance(event, yaml.AliasEvent):
                line = 1 if event.start_mark is None else event.start_mark.line + 1
                self.problems.append((line, "expected no aliases and no deeper lists"))
                return False
        return True

    def _class(self, node: yaml.Node, names: set[str]) -> None:
        fields = self._fields(node, "a class", _FIELDS)
        if fields is None:
            return
        before = len(self.problems)
        name = self._text(fields.get("name"), node, "name")
        if name is not None and _NAME.fullmatch(name) is None:
            self._wrong(fields["name"], "name: expected 1 to 40 of a-z, 0-9 and '-', no '-' first")
        elif name in names:
            self._wrong(fields["name"], f"name: {name} stands twice")
        elif name is not None:
            names.add(name)
        games = self._games(fields.get("games"), node)
        if any(each.games is None for each in self.objectives):
            self._wrong(node, "games: an earlier class has every game; put that class last")
        latency = self._number(fields.get("latency_seconds"), "latency_seconds", 0.1, 86_400)
        share = self._number(fields.get("share"), "share", 0.5, 0.999)
        days = self._number(fields.get("days"), "days", 7, 90)
        if len(self.problems) > before:
            return
        assert name is not None
        objective = Objective(name, games, latency, 0.99 if share is None else share, 30.0 if days is None else days)
        fastest = objective.factor(0.02, 1) * objective.budget
        if fastest >= 1:
            least = 1 - 1 / objective.factor(0.02, 1)
            place = fields.get("share") or fields.get("days") or node
            self._wrong(
                place,
                f"share: expected at least {math.ceil(least * 1000) / 1000:g} for {objective.days:g} days: "
                "below it even a game that is always late could not raise the fast alert",
            )
            return
        self.objectives.append(objective)

    def _games(self, node: yaml.Node | None, above: yaml.Node) -> str | None:
        """Return the expression for a class's games; None for every game, or after a problem."""
        patterns, every = [], False
        for item in self._items(node, above, "games", _MAX_GAMES):
            text = self._text(item, above, "games")
            if text is None:
                continue
            pattern = key_pattern(text)
            every = every or text == _EVERYTHING
            if pattern is None:
                self._wrong(
                    item,
                    "games: expected a name, a key, or a pattern with '*' and up to 40 ASCII letters and digits; "
                    "name games of other scripts one by one",
                )
            else:
                patterns.append(pattern)
        return None if every or not patterns else "|".join(dict.fromkeys(patterns))

    def _fields(self, node: yaml.Node, what: str, known: Collection[str]) -> dict[str, yaml.Node] | None:
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"expected {what} to have {', '.join(known)}")
            return None
        values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None or name not in known:
                self._wrong(key, f"{_quoted(name)} is no field of {what}; known are {', '.join(known)}")
            elif name in values:
                self._wrong(key, f"{name} stands twice")
            else:
                values[name] = value
        return values

    def _items(self, node: yaml.Node | None, above: yaml.Node, what: str, most: int) -> Sequence[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode) or not 1 <= len(node.value) <= most:
            self._wrong(node or above, f"{what}: expected a list of 1 to {most:,}")
            return ()
        items: list[yaml.Node] = node.value
        return items

    def _text(self, node: yaml.Node | None, above: yaml.Node, what: str) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.value:
            return str(node.value)
        self._wrong(node or above, f"{what}: expected a text")
        return None

    def _number(self, node: yaml.Node | None, what: str, low: float, high: float) -> float | None:
        """Return a number in its range; None where there is none, or it is wrong."""
        if node is None:
            return None
        try:
            value = float(node.value) if isinstance(node, yaml.ScalarNode) else math.nan
        except ValueError:
            value = math.nan
        if low <= value <= high:
            return value
        self._wrong(node, f"{what}: expected a number from {low:g} to {high:g}")
        return None

    def _wrong(self, node: yaml.Node, text: str) -> None:
        self.problems.append((node.start_mark.line + 1, text))


def _quoted(name: object) -> str:
    return ascii(name)[:60] if isinstance(name, str) else "a list or mapping"
