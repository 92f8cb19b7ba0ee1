"""The file of derived streams: reads it whole or refuses it with every problem and its line, and writes it."""

import re
from typing import Any, Final

import yaml

from pipeline.base import yaml_nodes
from pipeline.base.errors import Refused
from pipeline.base.names import MAX_NAME_BYTES, is_game_name
from pipeline.base.problems import Problems, shown
from pipeline.base.yaml_nodes import line_of
from pipeline.data.derived.definitions import EVENT_ID, MASKS, Mask, SilverDefinition

KIND: Final = "silver"
"""The kind of derived streams that there is."""

_EMPTY: Final = "The file of derived streams is empty: it needs at least 'derived: []'."
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PATH: Final = re.compile(r"\w+(\.\w+)*")
_DURATION: Final = re.compile(r"([1-9][0-9]{0,6})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST: Final = 31 * 86_400
_FIELDS: Final = ("name", "kind", "game", "type", "dedupe", "mask")


def parse(text: str) -> tuple[SilverDefinition, ...]:
    """Return the derived streams of a file.

    Raises:
        Refused: naming everything that is wrong, each with its line.
    """
    problems = Problems("the file of derived streams")
    root = yaml_nodes.composed(text, problems)
    problems.refuse()
    if root is None:
        raise Refused(_EMPTY)
    found = _Reading(problems).streams(root)
    problems.refuse()
    return found


def render(definitions: tuple[SilverDefinition, ...]) -> str:
    """Return definitions as the text of a file that `parse` reads back."""
    document = {"derived": [tree(each) for each in definitions]}
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=110)
    return text.removesuffix("\n")


def tree(definition: SilverDefinition) -> dict[str, Any]:
    """Return a definition as its file says it, without what it leaves at the default."""
    fields: dict[str, Any] = {"name": definition.name, "kind": KIND, "game": definition.game}
    if definition.type is not None:
        fields["type"] = definition.type
    if definition.within is not None:
        fields["dedupe"] = {"within": _spelled(definition.within)}
        if definition.id != EVENT_ID:
            fields["dedupe"]["id"] = definition.id
    return {**fields, **({"mask": dict(definition.mask)} if definition.mask else {})}


def _spelled(seconds: int) -> str:
    unit = next(each for each in ("d", "h", "m", "s") if seconds % _SECONDS[each] == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


class _Reading:
    """Makes definitions of nodes; what does not fit is noted and left out."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def streams(self, root: yaml.Node) -> tuple[SilverDefinition, ...]:
        fields = yaml_nodes.fields(root, "the file of derived streams", ("derived",), self._problems)
        listed = fields.get("derived")
        if listed is None:
            self._problems.add(line_of(root), "derived is missing; write derived: [] for none")
            return ()
        if isinstance(listed, yaml.SequenceNode) and not listed.value:
            return ()
        lines: dict[str, int] = {}
        return tuple(self._stream(node, lines) for node in yaml_nodes.items(listed, "derived", self._problems))

    def _stream(self, node: yaml.Node, lines: dict[str, int]) -> SilverDefinition:
        fields = yaml_nodes.fields(node, "a derived stream", _FIELDS, self._problems)
        for each in ("name", "kind", "game") if isinstance(node, yaml.MappingNode) else ():
            if each not in fields:
                self._problems.add(line_of(node), f"{each} is missing")
        kind = self._text(fields.get("kind"), "kind")
        if kind is not None and kind != KIND:
            self._problems.add(line_of(fields["kind"]), f"kind must be {KIND}; this turnout knows no other")
        within, by = self._dedupe(fields.get("dedupe"))
        return SilverDefinition(
            name=self._name(fields.get("name"), lines),
            game=self._game(fields.get("game")),
            type=self._text(fields.get("type"), "type"),
            within=within,
            id=by,
            mask=self._mask(fields.get("mask")),
        )

    def _name(self, node: yaml.Node | None, lines: dict[str, int]) -> str:
        name = self._text(node, "name")
        if node is None or name is None:
            return ""
        if not _NAME.fullmatch(name):
            said = f"{shown(name)} cannot name a table: use 1 to 40 of a-z, 0-9 and '_', beginning with a letter"
            self._problems.add(line_of(node), said)
        elif name in lines:
            self._problems.add(line_of(node), f"line {lines[name]} has the name {name} already; keep one")
        lines.setdefault(name, line_of(node))
        return name

    def _game(self, node: yaml.Node | None) -> str:
        game = self._text(node, "game") or ""
        if node is not None and game and not is_game_name(game):
            self._problems.add(line_of(node), f"a game has 1 to {MAX_NAME_BYTES} bytes without NUL")
            return ""
        return game

    def _dedupe(self, node: yaml.Node | None) -> tuple[int | None, str]:
        if node is None:
            return None, EVENT_ID
        fields = yaml_nodes.fields(node, "dedupe", ("within", "id"), self._problems)
        by = self._path(fields["id"], "id") if "id" in fields else EVENT_ID
        text = self._text(fields.get("within"), "within")
        if "within" not in fields and isinstance(node, yaml.MappingNode):
            self._problems.add(line_of(node), "within is missing; write such as within: 1h")
        if text is None:
            return None, by
        match = _DURATION.fullmatch(text)
        seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
        if not 0 < seconds <= _LONGEST:
            self._problems.add(line_of(fields["within"]), "within must be such as 90s, 10m, 1h or 2d, at most 31d")
        return seconds, by

    def _mask(self, node: yaml.Node | None) -> tuple[tuple[str, Mask], ...]:
        if node is None:
            return ()
        if not isinstance(node, yaml.MappingNode):
            self._problems.add(line_of(node), "mask must be a mapping of columns to hash or drop")
            return ()
        found: dict[str, Mask] = {}
        for key, value in node.value:
            path, word = self._path(key, "a column"), self._text(value, "a mask")
            how = next((each for each in MASKS if each == word), None)
            if word is not None and how is None:
                self._problems.add(line_of(value), f"a mask must be one of {', '.join(MASKS)}")
            if path in found:
                self._problems.add(line_of(key), f"mask has {path} twice; keep one")
            if how is not None:
                found[path] = how
        return tuple(sorted(found.items()))

    def _path(self, node: yaml.Node, what: str) -> str:
        path = self._text(node, what) or ""
        if path and not _PATH.fullmatch(path):
            said = f"{shown(path)} is no path of a column; write such as price or sale.price"
            self._problems.add(line_of(node), said)
        return path

    def _text(self, node: yaml.Node | None, what: str) -> str | None:
        return None if node is None else yaml_nodes.text(node, what, self._problems)
