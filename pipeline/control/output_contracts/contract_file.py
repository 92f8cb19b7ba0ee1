"""The file of output contracts: reads it whole or refuses it with every problem and its line, and writes it."""

import datetime as dt
import re
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from pipeline.base import yaml_nodes
from pipeline.base.errors import Refused, first_line
from pipeline.base.names import MAX_NAME_BYTES, is_game_name
from pipeline.base.problems import Problems, shown
from pipeline.base.yaml_nodes import line_of
from pipeline.control.derived.values import FieldValues, spelled
from pipeline.data.contracts.event_types import event_type
from pipeline.data.output_contracts.kinds import KINDS
from pipeline.data.output_contracts.masks import whole_text
from pipeline.data.output_contracts.rules import (
    ACTIONS,
    SWITCHES,
    Action,
    Bound,
    ContractRule,
    Freshness,
    OutputContract,
    RuleNames,
    Switch,
    Value,
)

VERSION: Final = 1
_EMPTY: Final = f"The file of contracts is empty: it needs at least 'version: {VERSION}' and 'contracts: []'."
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_RULE_NAME: Final = re.compile(r"[\w.\[\]-]{1,80}")
_PATH: Final = re.compile(r"\w+(\[\])*(\.\w+(\[\])*)*")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[-+]\d\d:\d\d)?)?")
_FIELDS: Final = (
    "name", "games", "prefixes", "onboarding_rules", "event_types", "readers", "protovalidate", "freshness", "unique",
    "rules",
)  # fmt: skip
_INSTEAD_OF_RULES: Final = frozenset({"protovalidate", "freshness", "unique"})
_LISTS: Final = ("games", "prefixes", "event_types", "readers")
_CHECKS: Final = ("type", "required", "min", "max", "pattern", "allowed", "forbidden", "min_length", "max_length")
_RULE_FIELDS: Final = ("name", "column", "action", *_CHECKS)
_LIMITS: Final = ("within", "newest_within")
_LEAST_SECONDS: Final = 60  # of a promise of freshness
_MOST_RULES: Final = 100  # of one contract
_LONGEST_PATTERN: Final = 1000
_LONGEST: Final = 1_000_000  # of a text or list


def parse(text: str) -> tuple[OutputContract, ...]:
    """Return the contracts of a file; of onboarding rules they have the names alone.

    Raises:
        Refused: naming everything that is wrong, each with its line.
    """
    problems = Problems("the file of contracts")
    root = yaml_nodes.composed(text, problems)
    problems.refuse()
    if root is None:
        raise Refused(_EMPTY)
    contracts = _Reading(problems).contracts(root)
    problems.refuse()
    return contracts


def render(contracts: tuple[OutputContract, ...]) -> str:
    """Return contracts as the text of a file that `parse` reads back."""
    document = {"version": VERSION, "contracts": [tree(each) for each in contracts]}
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=110)
    return text.removesuffix("\n")


def tree(contract: OutputContract) -> dict[str, Any]:
    """Return a contract as its file says it, without what it leaves at the default."""
    fields: dict[str, Any] = {"name": contract.name}
    fields |= {name: list(found) for name in _LISTS if (found := getattr(contract, name))}
    if contract.by_rules:
        fields["onboarding_rules"] = [each.rule for each in contract.by_rules]
    if contract.protovalidate != "off":
        fields["protovalidate"] = contract.protovalidate
    if contract.freshness is not None:
        limits = asdict(contract.freshness).items()
        fields["freshness"] = {name: spelled(seconds) for name, seconds in limits if seconds is not None}
    if contract.unique is not None:
        fields["unique"] = contract.unique
    return {**fields, "rules": [rule_tree(each) for each in contract.rules]} if contract.rules else fields


def rule_tree(rule: ContractRule) -> dict[str, Any]:
    """Return a rule likewise."""
    default = ContractRule(rule.column, rule.column)
    found = {name: getattr(rule, name) for name in _RULE_FIELDS if getattr(rule, name) != getattr(default, name)}
    found = {"column": rule.column, **found}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


class _Reading:
    """Makes contracts of nodes; what does not fit is noted and left out."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def contracts(self, root: yaml.Node) -> tuple[OutputContract, ...]:
        fields = yaml_nodes.fields(root, "the file of contracts", ("version", "contracts"), self._problems)
        version, listed = fields.get("version"), fields.get("contracts")
        if version is None or getattr(version, "value", None) != str(VERSION):
            self._problems.add(line_of(version or root), f"write version: {VERSION}; this turnout supports no other")
        if listed is None:
            self._problems.add(line_of(root), "contracts is missing; write contracts: [] if no table promises anything")
            return ()
        if isinstance(listed, yaml.SequenceNode) and not listed.value:
            return ()
        lines: dict[str, int] = {}
        return tuple(self._contract(node, lines) for node in yaml_nodes.items(listed, "contracts", self._problems))

    def _contract(self, node: yaml.Node, lines: dict[str, int]) -> OutputContract:
        fields = yaml_nodes.fields(node, "a contract", _FIELDS, self._problems)
        self._require(node, fields, ("name",) if fields.keys() & _INSTEAD_OF_RULES else ("name", "rules"))
        name = self._name(fields.get("name"), _NAME, "a contract", lines)
        if fields and not fields.keys() & {"games", "prefixes", "onboarding_rules"}:
            said = "games, prefixes and onboarding_rules are missing; name the games that it is for"
            self._problems.add(line_of(node), said)
        listed = yaml_nodes.items(fields["rules"], "rules", self._problems) if "rules" in fields else []
        if len(listed) > _MOST_RULES:
            self._problems.add(line_of(fields["rules"]), f"a contract has at most {_MOST_RULES} rules; make two")
        rule_lines: dict[str, int] = {}
        return OutputContract(
            name=name,
            games=self._game_names(fields.get("games"), "game"),
            prefixes=self._game_names(fields.get("prefixes"), "prefix"),
            event_types=tuple(event_type(each) for each in self._texts(fields.get("event_types"), "event_types")),
            rules=tuple(self._rule(each, rule_lines) for each in listed),
            readers=tuple(self._texts(fields.get("readers"), "readers")),
            by_rules=tuple(map(RuleNames, self._texts(fields.get("onboarding_rules"), "onboarding_rules"))),
            protovalidate=self._switch(fields.get("protovalidate")),
            freshness=self._freshness(fields.get("freshness")),
            unique=self._unique(fields.get("unique")),
        )

    def _rule(self, node: yaml.Node, lines: dict[str, int]) -> ContractRule:
        fields = yaml_nodes.fields(node, "a rule", _RULE_FIELDS, self._problems)
        self._require(node, fields, ("column",))
        column = self._text(fields.get("column"), "column") or ""
        if column and not _PATH.fullmatch(column):
            said = f"{shown(column)} is no path of a column; write such as price, sale.price or items[].price"
            self._problems.add(line_of(fields["column"]), said)
        known = isinstance(node, yaml.MappingNode) and all(
            getattr(key, "value", "") in _RULE_FIELDS for key, _ in node.value
        )
        checks = fields.keys() & set(_CHECKS)
        if getattr(fields.get("required"), "value", None) == "false":
            checks.discard("required")
        if fields and known and not checks:
            self._problems.add(line_of(node), f"the rule checks nothing; add one of {', '.join(_CHECKS)}")
        name = column
        if "name" in fields or (column and column in lines):
            name = self._name(fields.get("name", node), _RULE_NAME, "a rule", lines, column)
        elif column:
            lines[column] = line_of(node)
        rule = ContractRule(
            name=name,
            column=column,
            action=self._action(fields.get("action")),
            required=self._truth(fields.get("required")),
            type=self._kind(fields.get("type")),
            min=self._bound(fields.get("min"), "min"),
            max=self._bound(fields.get("max"), "max"),
            pattern=self._pattern(fields.get("pattern"), name),
            allowed=self._values(fields.get("allowed"), "allowed"),
            forbidden=self._values(fields.get("forbidden"), "forbidden"),
            min_length=self._length(fields.get("min_length"), "min_length"),
            max_length=self._length(fields.get("max_length"), "max_length"),
        )
        for low, high in (("min", "max"), ("min_length", "max_length")):
            least, most = getattr(rule, low), getattr(rule, high)
            if least is None or most is None:
                continue
            if isinstance(least, str) != isinstance(most, str):
                self._problems.add(line_of(fields[high]), f"{low} and {high} must both be numbers, or both times")
            elif (_moment(least) > _moment(most)) if isinstance(least, str) else least > most:
                self._problems.add(line_of(fields[high]), f"{high} is less than {low}; no value fits")
        return rule

    def _require(self, node: yaml.Node, fields: dict[str, yaml.Node], names: tuple[str, ...]) -> None:
        for name in names if isinstance(node, yaml.MappingNode) else ():
            if name not in fields:
                self._problems.add(line_of(node), f"{name} is missing")

    def _name(
        self,
        node: yaml.Node | None,
        known: re.Pattern[str],
        what: str,
        lines: dict[str, int],
        column: str | None = None,
    ) -> str:
        """Return a name that no other one of these has."""
        if node is None:
            return ""
        name = column if isinstance(node, yaml.MappingNode) else self._text(node, "name")
        if name is None:
            return ""
        if not known.fullmatch(name):
            self._problems.add(line_of(node), f"{shown(name)} cannot name {what}; use letters, digits, '.', '_', '-'")
        elif name in lines:
            one = "name it" if column is not None else "keep one"
            self._problems.add(line_of(node), f"line {lines[name]} has {what} {shown(name)} already; {one}")
        lines.setdefault(name, line_of(node))
        return name

    def _game_names(self, node: yaml.Node | None, what: str) -> tuple[str, ...]:
        names = self._texts(node, f"the {what}es" if what == "prefix" else f"the {what}s")
        for each in names:
            if node is not None and not is_game_name(each):
                self._problems.add(line_of(node), f"a {what} has 1 to {MAX_NAME_BYTES} bytes without NUL")
        return tuple(names)

    def _action(self, node: yaml.Node | None) -> Action:
        word = self._text(node, "action")
        if node is not None and word is not None and word not in ACTIONS:
            self._problems.add(line_of(node), f"action must be one of {', '.join(ACTIONS)}")
        return next((each for each in ACTIONS if each == word), ACTIONS[0])

    def _switch(self, node: yaml.Node | None) -> Switch:
        word = self._text(node, "protovalidate")
        if node is not None and word is not None and word not in SWITCHES:
            self._problems.add(line_of(node), f"protovalidate must be one of {', '.join(SWITCHES)}")
        return next((each for each in SWITCHES if each == word), SWITCHES[0])

    def _unique(self, node: yaml.Node | None) -> str | None:
        return None if node is None else FieldValues(self._problems).path(node, "unique") or None

    def _freshness(self, node: yaml.Node | None) -> Freshness | None:
        if node is None:
            return None
        fields = yaml_nodes.fields(node, "freshness", _LIMITS, self._problems)
        values = FieldValues(self._problems)
        found = {name: values.seconds(each, name) for name, each in fields.items()}
        for name, seconds in found.items():
            if seconds is not None and seconds < _LEAST_SECONDS:
                said = f"{name} must be at least {spelled(_LEAST_SECONDS)}, as times are known two heartbeats later"
                self._problems.add(line_of(fields[name]), said)
        if isinstance(node, yaml.MappingNode) and not node.value:
            self._problems.add(line_of(node), f"freshness promises nothing; add {' or '.join(_LIMITS)}")
        return Freshness(**found) if found else None

    def _truth(self, node: yaml.Node | None) -> bool:
        return False if node is None else yaml_nodes.truth(node, "required", self._problems) or False

    def _kind(self, node: yaml.Node | None) -> str | None:
        word = self._text(node, "type")
        if node is not None and word is not None and word not in KINDS:
            self._problems.add(line_of(node), f"type must be one of {', '.join(KINDS)}")
        return word

    def _bound(self, node: yaml.Node | None, what: str) -> Bound | None:
        if node is None:
            return None
        if isinstance(node, yaml.ScalarNode) and _TIME.fullmatch(node.value):
            try:
                _moment(node.value)
            except (ValueError, OverflowError):
                self._problems.add(line_of(node), f"{what}: there is no time {shown(node.value)}")
                return None
            return str(node.value)
        found = _value(node)
        if isinstance(found, bool | str | None):
            said = "a number in plain digits, such as 0, -1.5 or 2e6, or a time such as 2026-01-31T12:00:00Z"
            self._problems.add(line_of(node), f"{what} must be {said}")
            return None
        return found

    def _pattern(self, node: yaml.Node | None, rule: str) -> str | None:
        pattern = self._text(node, "pattern")
        if node is None or pattern is None:
            return None
        if len(pattern) > _LONGEST_PATTERN:
            self._problems.add(line_of(node), f"a pattern has at most {_LONGEST_PATTERN:,} characters")
            return None
        try:
            for each in (pattern, whole_text(pattern)):  # the first alone, so that RE2 speaks of what a person wrote
                pc.match_substring_regex(pa.array([""]), each)
        except pa.ArrowInvalid as error:
            said = first_line(error).removeprefix("Invalid regular expression: ")
            self._problems.add(line_of(node), f"rule {rule}: {shown(pattern)} is no pattern of RE2, which says: {said}")
        return pattern

    def _values(self, node: yaml.Node | None, what: str) -> tuple[Value, ...]:
        found = []
        for item in [] if node is None else yaml_nodes.items(node, what, self._problems):
            value = _value(item)
            if value is None:
                said = f"one of {what} must be a text, a number, or true or false; put a text in quotes"
                self._problems.add(line_of(item), said)
            else:
                found.append(value)
        return tuple(found)

    def _length(self, node: yaml.Node | None, what: str) -> int | None:
        return None if node is None else yaml_nodes.number(node, what, _LONGEST, self._problems)

    def _texts(self, node: yaml.Node | None, what: str) -> list[str]:
        items = [] if node is None else yaml_nodes.items(node, what, self._problems)
        return list(dict.fromkeys(text for each in items if (text := self._text(each, f"one of {what}")) is not None))

    def _text(self, node: yaml.Node | None, what: str) -> str | None:
        return None if node is None else yaml_nodes.text(node, what, self._problems)


def _moment(text: str) -> dt.datetime:
    """Return the moment of a bound, in UTC."""
    found = dt.datetime.fromisoformat(text)
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)


def _value(node: yaml.Node) -> Value | None:
    """Return what a scalar plainly is; None: YAML reads it as something else, such as a date, or no, which is false."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    text = str(node.value)
    if node.style:  # in quotes, or a block; libyaml and PyYAML have each a word of their own for neither
        return text
    if _NUMBER.fullmatch(text):
        number = float(text) if set(text) & set(".eE") else int(text)
        return number if abs(number) < float("inf") else None
    if text in {"true", "false"}:
        return text == "true"
    return text if node.tag.endswith(":str") else None
