"""The file of derived streams: reads it whole or refuses it with every problem and its line, and writes it."""

from typing import Any, Final

import yaml

from pipeline.base import yaml_nodes
from pipeline.base.errors import Refused
from pipeline.base.names import MAX_NAME_BYTES, is_game_name, is_rule_table_name
from pipeline.base.problems import Problems, shown
from pipeline.base.yaml_nodes import line_of
from pipeline.control.derived import gold_fields
from pipeline.control.derived.values import NAME, SECONDS, FieldValues, grant_tree, spelled
from pipeline.data.contracts.event_types import event_type
from pipeline.data.derived.definitions import (
    EVENT_ID,
    MASKS,
    Definition,
    Entry,
    FlatRule,
    GoldDefinition,
    Mask,
    SilverDefinition,
)

_EMPTY: Final = "The file of derived streams is empty: it needs at least 'derived: []'."
_KINDS: Final = (SilverDefinition.kind, GoldDefinition.kind)
_LONGEST: Final = 31 * SECONDS["d"]
_FIELDS: Final = ("name", "kind", "game", "type", "dedupe", "mask", "grant")
_RULE_FIELDS: Final = ("name", "games", "prefixes", "event_types", "dedupe", "mask", "grant")
_ALL: Final = "all"  # games


def parse(text: str) -> tuple[Entry, ...]:
    """Return the derived streams of a file, then its rules.

    Raises:
        Refused: naming everything that is wrong, each with its line.
    """
    problems = Problems("the file of derived streams")
    root = yaml_nodes.composed(text, problems)
    problems.refuse()
    if root is None:
        raise Refused(_EMPTY)
    found = _Reading(problems).entries(root)
    problems.refuse()
    return found


def render(entries: tuple[Entry, ...]) -> str:
    """Return definitions and rules as the text of a file that `parse` reads back."""
    document = {"derived": [tree(each) for each in entries if not isinstance(each, FlatRule)]}
    if rules := [tree(each) for each in entries if isinstance(each, FlatRule)]:
        document["rules"] = rules
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=110)
    return text.removesuffix("\n")


def tree(entry: Entry) -> dict[str, Any]:
    """Return a definition or a rule as its file says it, without what it leaves at the default."""
    match entry:
        case SilverDefinition():
            fields = _silver_tree(entry)
        case GoldDefinition():
            fields = gold_fields.tree(entry)
        case FlatRule():
            return {"name": entry.name, **_rule_tree(entry)}
    return {"name": entry.name, "kind": entry.kind, **fields}


def _silver_tree(definition: SilverDefinition) -> dict[str, Any]:
    fields: dict[str, Any] = {"game": definition.game}
    if definition.type is not None:
        fields["type"] = definition.type
    return {**fields, **_rows_tree(definition)}


def _rule_tree(rule: FlatRule) -> dict[str, Any]:
    fields: dict[str, Any] = {"games": _ALL} if "" in rule.prefixes else {}
    for name, values in (("games", rule.games), ("prefixes", rule.prefixes), ("event_types", rule.types)):
        if values and "" not in values:
            fields[name] = list(values)
    return {**fields, **_rows_tree(rule)}


def _rows_tree(entry: SilverDefinition | FlatRule) -> dict[str, Any]:
    """Return what both say of the rows of a silver table."""
    fields: dict[str, Any] = {}
    if entry.within is not None:
        fields["dedupe"] = {"within": spelled(entry.within)}
        if isinstance(entry, SilverDefinition) and entry.id != EVENT_ID:
            fields["dedupe"]["id"] = entry.id
    fields |= {"mask": dict(entry.mask)} if entry.mask else {}
    return {**fields, **grant_tree(own=entry.own_grants)}


class _Reading:
    """Makes definitions of nodes; what does not fit is noted and left out."""

    def __init__(self, problems: Problems) -> None:
        self._problems, self._values = problems, FieldValues(problems)

    def entries(self, root: yaml.Node) -> tuple[Entry, ...]:
        fields = yaml_nodes.fields(root, "the file of derived streams", ("derived", "rules"), self._problems)
        rules = self._rules(fields.get("rules"))
        if rules and "derived" not in fields:
            return rules
        return *self._streams(root, fields.get("derived")), *rules

    def _rules(self, listed: yaml.Node | None) -> tuple[FlatRule, ...]:
        if listed is None or (isinstance(listed, yaml.SequenceNode) and not listed.value):
            return ()
        lines: dict[str, int] = {}
        return tuple(self._rule(node, lines) for node in yaml_nodes.items(listed, "rules", self._problems))

    def _rule(self, node: yaml.Node, lines: dict[str, int]) -> FlatRule:
        fields = yaml_nodes.fields(node, "a rule", _RULE_FIELDS, self._problems)
        self._require(node, fields, ("name",))
        if fields and not fields.keys() & {"games", "prefixes"}:
            said = f"games and prefixes are missing; name the games that it is for, or write games: {_ALL}"
            self._problems.add(line_of(node), said)
        is_all = getattr(fields.get("games"), "value", None) == _ALL
        games = [] if is_all else self._items(fields, "games")
        prefixes = self._items(fields, "prefixes")
        within, by = self._dedupe(fields.get("dedupe"))
        if by != EVENT_ID:
            self._problems.add(line_of(fields["dedupe"]), "a rule compares rows by their event id; leave id out")
        types = [self._values.text(each, "an event type") for each in self._items(fields, "event_types")]
        return FlatRule(
            name=self._name(fields.get("name"), lines),
            games=tuple(name for each in games if (name := self._game(each))),
            prefixes=("",) if is_all else tuple(name for each in prefixes if (name := self._game(each))),
            types=tuple(dict.fromkeys(event_type(each) for each in types if each)),
            within=within,
            mask=self._mask(fields.get("mask")),
            own_grants=self._values.has_own_grants(fields.get("grant")),
        )

    def _items(self, fields: dict[str, yaml.Node], name: str) -> list[yaml.Node]:
        return yaml_nodes.items(fields[name], name, self._problems) if name in fields else []

    def _streams(self, root: yaml.Node, listed: yaml.Node | None) -> tuple[Definition, ...]:
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
            own_grants=self._values.has_own_grants(fields.get("grant")),
        )

    def _name(self, node: yaml.Node | None, lines: dict[str, int]) -> str:
        name = self._values.text(node, "name")
        if node is None or name is None:
            return ""
        if not NAME.fullmatch(name):
            said = f"{shown(name)} cannot name a table: use 1 to 40 of a-z, 0-9 and '_', beginning with a letter"
            self._problems.add(line_of(node), said)
        elif is_rule_table_name(name):
            self._problems.add(line_of(node), f"{name} is a name of tables that rules make; choose another one")
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
