"""The file of onboarding rules: reads it whole or refuses it with every problem and its line, and writes it."""

import re
from typing import Any, Final, get_args

import yaml

from pipeline.base import yaml_nodes
from pipeline.base.errors import Refused
from pipeline.base.names import MAX_NAME_BYTES, is_game_name
from pipeline.base.problems import Problems, shown
from pipeline.base.yaml_nodes import line_of
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.supported import BY_SUFFIX
from pipeline.data.contracts.policies import parse_policies
from pipeline.store.database.states import Priority
from pipeline.store.onboarding_rules import ALL_TYPES, MAX_NEW_PER_HOUR, OnboardingRule

VERSION: Final = 1
_EMPTY: Final = f"The file of rules is empty: it needs at least 'version: {VERSION}' and 'rules: []'."
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_FIELDS: Final = ("name", "match", "group", "priority", "policies", "readers", "max_new_per_hour", "event_types")
_MATCHES: Final = ("names", "prefixes", "formats")
_FORMATS: Final = tuple(dict.fromkeys(BY_SUFFIX.values()))
_NO_OWNERS: Final = "nothing says who owns a name before it is a game; match names, prefixes or formats"
_ALL: Final = "all"  # event types
_MOST_PER_HOUR: Final = 10_000


def parse(text: str) -> tuple[OnboardingRule, ...]:
    """Return the rules of a file.

    Raises:
        Refused: naming everything that is wrong, each with its line.
    """
    problems = Problems("the file of rules")
    root = yaml_nodes.composed(text, problems)
    problems.refuse()
    if root is None:
        raise Refused(_EMPTY)
    rules = _Reading(problems).rules(root)
    problems.refuse()
    return rules


def render(rules: tuple[OnboardingRule, ...]) -> str:
    """Return rules as the text of a file that `parse` reads back; each character of it is printable."""
    document = {"version": VERSION, "rules": [tree(rule) for rule in rules]}
    text: str = yaml.dump(document, Dumper=_Printable, sort_keys=False, allow_unicode=True, width=110)
    return text.removesuffix("\n")


def tree(rule: OnboardingRule) -> dict[str, Any]:
    """Return a rule as its file says it, without what it leaves at the default."""
    match = {name: list(values) for name in _MATCHES if (values := getattr(rule, name))}
    fields: dict[str, Any] = {"name": rule.name, "match": match}
    if rule.group is not None:
        fields["group"] = rule.group
    if rule.priority != "normal":
        fields["priority"] = rule.priority
    if rule.policies:
        fields["policies"] = [f"{kind}={policy}" for kind, policy in rule.policies]
    if rule.readers:
        fields["readers"] = list(rule.readers)
    if (rule.prefixes or rule.formats) and rule.max_new_per_hour != MAX_NEW_PER_HOUR:
        fields["max_new_per_hour"] = rule.max_new_per_hour
    if rule.event_types:
        fields["event_types"] = _ALL if rule.event_types == (ALL_TYPES,) else list(rule.event_types)
    return fields


class _Printable(yaml.SafeDumper):
    """Writes a text with a character that is not printable between quotes, with YAML's own escapes."""

    def analyze_scalar(self, scalar: str) -> Any:
        """Return how a text may be written; what is not printable counts as special."""
        analysis = super().analyze_scalar(scalar)
        if not scalar.isprintable():
            analysis.allow_flow_plain = analysis.allow_block_plain = False
            analysis.allow_single_quoted = analysis.allow_block = False
        return analysis

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """Write a text between quotes, of ASCII alone where a character is not printable."""
        before, self.allow_unicode = self.allow_unicode, text.isprintable()
        super().write_double_quoted(text, split)
        self.allow_unicode = before


class _Reading:
    """Makes rules of nodes; what does not fit is noted and left out."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._lines: dict[tuple[str, str], int] = {}  # each name and prefix, and the line it is in

    def rules(self, root: yaml.Node) -> tuple[OnboardingRule, ...]:
        fields = yaml_nodes.fields(root, "the file of rules", ("version", "rules"), self._problems)
        version, listed = fields.get("version"), fields.get("rules")
        if version is None or getattr(version, "value", None) != str(VERSION):
            self._problems.add(line_of(version or root), f"write version: {VERSION}; this turnout supports no other")
        if listed is None:
            self._problems.add(line_of(root), "rules is missing; write rules: [] if no name becomes a game by a rule")
            return ()
        if isinstance(listed, yaml.SequenceNode) and not listed.value:
            return ()
        return tuple(self._rule(node) for node in yaml_nodes.items(listed, "rules", self._problems))

    def _rule(self, node: yaml.Node) -> OnboardingRule:
        fields = yaml_nodes.fields(node, "a rule", _FIELDS, self._problems)
        for name in ("name", "match") if isinstance(node, yaml.MappingNode) else ():
            if name not in fields:
                self._problems.add(line_of(node), f"{name} is missing")
        name = self._text(fields.get("name"), "name") or ""
        if name and not _NAME.fullmatch(name):
            rule = "1 to 40 letters, digits, '.', '_' and '-', not starting with a mark"
            self._problems.add(line_of(fields["name"]), f"{shown(name)} cannot name a rule; use {rule}")
        elif name:
            self._once("rule", name, fields["name"])
        matches = self._matches(fields.get("match"))
        formats = self._formats(matches.get("formats"))
        if formats and not {"names", "prefixes"} & matches.keys():
            formats = tuple(each for each in formats if self._once("format", each, matches["formats"]))
        return OnboardingRule(
            name=name,
            names=self._names(matches.get("names"), "name", formats),
            prefixes=self._names(matches.get("prefixes"), "prefix", formats),
            formats=formats,
            group=self._text(fields.get("group"), "group"),
            priority=self._priority(fields.get("priority")),
            policies=self._policies(fields.get("policies")),
            readers=tuple(dict.fromkeys(self._texts(fields.get("readers"), "readers"))),
            max_new_per_hour=self._limit(fields.get("max_new_per_hour")),
            event_types=self._types(fields.get("event_types")),
        )

    def _matches(self, node: yaml.Node | None) -> dict[str, yaml.Node]:
        if node is None:
            return {}
        found = dict(yaml_nodes.fields(node, "match", (*_MATCHES, "owners"), self._problems))
        if (owners := found.pop("owners", None)) is not None:
            self._problems.add(line_of(owners), _NO_OWNERS)
        elif not found:
            self._problems.add(line_of(node), "match needs names, prefixes or formats")
        return found

    def _formats(self, node: yaml.Node | None) -> tuple[str, ...]:
        given = tuple(dict.fromkeys(self._texts(node, "formats")))
        if node is not None and not {*given} <= {*_FORMATS}:
            self._problems.add(line_of(node), f"formats must be a list of {', '.join(_FORMATS)}")
        return given

    def _names(self, node: yaml.Node | None, what: str, formats: tuple[str, ...]) -> tuple[str, ...]:
        names = []
        for item in [] if node is None else yaml_nodes.items(node, f"{what}s", self._problems):
            name = self._text(item, f"a {what}")
            if name is None:
                continue
            if not is_game_name(name):
                self._problems.add(line_of(item), f"a {what} has 1 to {MAX_NAME_BYTES} bytes without NUL")
            elif all(self._once(f"{each} {what}".lstrip(), name, item) for each in formats or ("",)):
                names.append(name)
        return tuple(names)

    def _once(self, what: str, text: str, node: yaml.Node) -> bool:
        """Return whether a text is new, so that one rule at most is for it."""
        first = self._lines.get((what, text))
        if first is not None:
            self._problems.add(line_of(node), f"the {what} {shown(text)} is already in line {first}; keep one")
            return False
        self._lines[what, text] = line_of(node)
        return True

    def _priority(self, node: yaml.Node | None) -> Priority:
        text, known = self._text(node, "priority"), get_args(Priority)
        if node is not None and text not in known:
            self._problems.add(line_of(node), f"priority must be one of {', '.join(known)}")
        return next((each for each in known if each == text), "normal")

    def _policies(self, node: yaml.Node | None) -> tuple[tuple[str, str], ...]:
        try:
            return parse_policies(self._texts(node, "policies")).chosen
        except Refused as refused:
            self._problems.add(line_of(node) if node is not None else 1, str(refused))
            return ()

    def _limit(self, node: yaml.Node | None) -> int:
        if node is None:
            return MAX_NEW_PER_HOUR
        return yaml_nodes.number(node, "max_new_per_hour", _MOST_PER_HOUR, self._problems) or MAX_NEW_PER_HOUR

    def _types(self, node: yaml.Node | None) -> tuple[str, ...]:
        if isinstance(node, yaml.ScalarNode):
            if node.value == _ALL:
                return (ALL_TYPES,)
            self._problems.add(line_of(node), f"event_types must be {_ALL}, or a list of event types")
            return ()
        names = dict.fromkeys(event_type(each) for each in self._texts(node, "event_types"))
        if node is not None and ALL_TYPES in names:
            self._problems.add(line_of(node), f"write event_types: {_ALL} for every event type")
        return tuple(names)

    def _texts(self, node: yaml.Node | None, what: str) -> list[str]:
        items = [] if node is None else yaml_nodes.items(node, what, self._problems)
        return [text for each in items if (text := self._text(each, f"one of {what}")) is not None]

    def _text(self, node: yaml.Node | None, what: str) -> str | None:
        return None if node is None else yaml_nodes.text(node, what, self._problems)
