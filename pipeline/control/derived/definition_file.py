"""The file of derived streams: reads it whole or refuses it with every problem and its line, and writes it."""

from typing import Any, Final

import yaml

from pipeline.base import yaml_nodes
from pipeline.base.errors import Refused
from pipeline.base.names import MAX_NAME_BYTES, is_game_name
from pipeline.base.problems import Problems, shown
from pipeline.base.yaml_nodes import line_of
from pipeline.control.derived import gold_fields
from pipeline.control.derived.values import NAME, SECONDS, FieldValues, spelled
from pipeline.data.derived.definitions import EVENT_ID, MASKS, Definition, GoldDefinition, Mask, SilverDefinition

_EMPTY: Final = "The file of derived streams is empty: it needs at least 'derived: []'."
_KINDS: Final = (SilverDefinition.kind, GoldDefinition.kind)
_LONGEST: Final = 31 * SECONDS["d"]
_FIELDS: Final = ("name", "kind", "game", "type", "dedupe", "mask")


def parse(text: str) -> tuple[Definition, ...]:
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


def render(definitions: tuple[Definition, ...]) -> str:
    """Return definitions as the text of a file that `parse` reads back."""
    document = {"derived": [tree(each) for each in definitions]}
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=110)
    return text.removesuffix("\n")


def tree(definition: Definition) -> dict[str, Any]:
    """Return a definition as its file says it, without what it leaves at the default."""
    match definition:
        case SilverDefinition():
            fields = _silver_tree(definition)
        case GoldDefinition():
            fields = gold_fields.tree(definition)
    return {"name": definition.name, "kind": definition.kind, **fields}


def _silver_tree(definition: SilverDefinition) -> dict[str, Any]:
    fields: dict[str, Any] = {"game": definition.game}
    if definition.type is not None:
        fields["type"] = definition.type
    if definition.within is not None:
        fields["dedupe"] = {"within": spelled(definition.within)}
        if definition.id != EVENT_ID:
            fields["dedupe"]["id"] = definition.id
    return {**fields, **({"mask": dict(definition.mask)} if definition.mask else {})}


class _Reading:
    """Makes definitions of nodes; what does not fit is noted and left out."""

    def __init__(self, problems: Problems) -> None:
        self._problems, self._values = problems, FieldValues(problems)

    def streams(self, root: yaml.Node) -> tuple[Definition, ...]:
        fields = yaml_nodes.fields(root, "the file of derived streams", ("derived",), self._problems)
        listed = fields.get("derived")
        if listed is None:
            self._problems.add(line_of(root), "derived is missing; write derived: [] for none")
            return ()
        if isinstance(listed, yaml.SequenceNode) and not listed.value:
            return ()
        nodes = yaml_nodes.items(listed, "derived", self._problems)
        lines: dict[str, int] = {}
        found: dict[int, Definition] = {}
        silver: dict[str, SilverDefinition] = {}
        kinds = [self._kind(node) for node in nodes]
        for at, (node, kind) in enumerate(zip(nodes, kinds, strict=True)):
            if kind != GoldDefinition.kind:
                stream = found[at] = self._silver(node, lines)
                silver.setdefault(stream.name, stream)
        for at, (node, kind) in enumerate(zip(nodes, kinds, strict=True)):
            if kind == GoldDefinition.kind:
                fields = yaml_nodes.fields(node, "a gold stream", gold_fields.FIELDS, self._problems)
                self._require(node, fields, gold_fields.REQUIRED)
                name = self._name(fields.get("name"), lines)
                if (gold := gold_fields.read(fields, name, silver, self._values)) is not None:
                    found[at] = gold
        return tuple(found[at] for at in sorted(found))

    def _kind(self, node: yaml.Node) -> str | None:
        """Return the kind of a stream, of which all else is read later."""
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        value = next((value for key, value in pairs if key.value == "kind"), None)
        kind = self._values.text(value, "kind")
        if value is not None and kind is not None and kind not in _KINDS:
            self._problems.add(line_of(value), f"kind must be one of {', '.join(_KINDS)}")
        return kind

    def _require(self, node: yaml.Node, fields: dict[str, yaml.Node], names: tuple[str, ...]) -> None:
        for each in names if isinstance(node, yaml.MappingNode) else ():
            if each not in fields:
                self._problems.add(line_of(node), f"{each} is missing")

    def _silver(self, node: yaml.Node, lines: dict[str, int]) -> SilverDefinition:
        fields = yaml_nodes.fields(node, "a derived stream", _FIELDS, self._problems)
        self._require(node, fields, ("name", "kind", "game"))
        within, by = self._dedupe(fields.get("dedupe"))
        return SilverDefinition(
            name=self._name(fields.get("name"), lines),
            game=self._game(fields.get("game")),
            type=self._values.text(fields.get("type"), "type"),
            within=within,
            id=by,
            mask=self._mask(fields.get("mask")),
        )

    def _name(self, node: yaml.Node | None, lines: dict[str, int]) -> str:
        name = self._values.text(node, "name")
        if node is None or name is None:
            return ""
        if not NAME.fullmatch(name):
            said = f"{shown(name)} cannot name a table: use 1 to 40 of a-z, 0-9 and '_', beginning with a letter"
            self._problems.add(line_of(node), said)
        elif name in lines:
            self._problems.add(line_of(node), f"line {lines[name]} has the name {name} already; keep one")
        lines.setdefault(name, line_of(node))
        return name

    def _game(self, node: yaml.Node | None) -> str:
        game = self._values.text(node, "game") or ""
        if node is not None and game and not is_game_name(game):
            self._problems.add(line_of(node), f"a game has 1 to {MAX_NAME_BYTES} bytes without NUL")
            return ""
        return game

    def _dedupe(self, node: yaml.Node | None) -> tuple[int | None, str]:
        if node is None:
            return None, EVENT_ID
        fields = yaml_nodes.fields(node, "dedupe", ("within", "id"), self._problems)
        by = self._values.path(fields["id"], "id") if "id" in fields else EVENT_ID
        if "within" not in fields and isinstance(node, yaml.MappingNode):
            self._problems.add(line_of(node), "within is missing; write such as within: 1h")
        within = self._values.seconds(fields.get("within"), "within")
        if within is not None and not 0 < within <= _LONGEST:
            self._problems.add(line_of(fields["within"]), "within must be such as 90s, 10m, 1h or 2d, at most 31d")
        return within, by

    def _mask(self, node: yaml.Node | None) -> tuple[tuple[str, Mask], ...]:
        if node is None:
            return ()
        if not isinstance(node, yaml.MappingNode):
            self._problems.add(line_of(node), "mask must be a mapping of columns to hash or drop")
            return ()
        found: dict[str, Mask] = {}
        for key, value in node.value:
            path, word = self._values.path(key, "a column"), self._values.text(value, "a mask")
            how = next((each for each in MASKS if each == word), None)
            if word is not None and how is None:
                self._problems.add(line_of(value), f"a mask must be one of {', '.join(MASKS)}")
            if path in found:
                self._problems.add(line_of(key), f"mask has {path} twice; keep one")
            if how is not None:
                found[path] = how
        return tuple(sorted(found.items()))
