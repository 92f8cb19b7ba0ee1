"""Output contracts: what the rows of a game's table promise their readers, as values.

Made by the reader of contract files, kept in the control store under a number of the schema sets, pinned by passes.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from pipeline.base.names import GameKey, game_key

Action: TypeAlias = Literal["warn", "quarantine", "stop"]
Switch: TypeAlias = Literal["off", "warn", "quarantine", "stop"]
"""What the rules of protovalidate in a payload's definition do with a row that breaks one."""
Value: TypeAlias = str | int | float | bool
Bound: TypeAlias = int | float | str
"""A number, or a moment in ISO 8601 for columns of dates and times: without a zone UTC, without a time midnight."""

ACTIONS: Final[tuple[Action, ...]] = ("warn", "quarantine", "stop")
"""What a rule does with a row that breaks it: count it, refuse it, or stop its stream before it; the first is the
default."""

SWITCHES: Final[tuple[Switch, ...]] = ("off", *ACTIONS)
"""What a contract may say of protovalidate; the first is the default."""

LANDS: Final = "warn"
"""The action with which a row lands although it breaks a rule."""

REASON: Final = "contract"
"""The reason in quarantine."""

OWN: Final = ("_event_time", "_event_id", "_source_time")
"""The table's own columns that a rule may name, whichever event type a row has."""

ELEMENTS: Final = "[]"
"""Behind a name in a column's path: each element of that list."""


@dataclass(frozen=True, slots=True)
class ContractRule:
    """What one column promises; a value that is null breaks `required` alone."""

    name: str  # within its contract
    column: str  # such as `price`, `sale.price` or `items[].price`, below the columns of its event type
    action: Action = "warn"
    required: bool = False  # never null
    type: str | None = None  # a name of `types.KINDS`
    min: Bound | None = None  # both inclusive; NaN is in no range
    max: Bound | None = None
    pattern: str | None = None  # RE2, of the whole text
    allowed: tuple[Value, ...] = ()
    min_length: int | None = None  # characters of a text, bytes, elements of a list
    max_length: int | None = None
    forbidden: tuple[Value, ...] = ()
    within: bool = False  # `required` only where the struct around the column is there
    skip: Value | None = None  # a value that breaks no check; of bytes and lists any that is empty


@dataclass(frozen=True, slots=True)
class GivenRules:
    """The rules that a payload's definition has itself, such as by protovalidate."""

    rules: tuple[ContractRule, ...] = ()  # the paths are those of the definition's own columns
    unchecked: tuple[str, ...] = ()  # a sentence for each rule that is not translated


@dataclass(frozen=True, slots=True)
class RuleNames:
    """The names of games that an onboarding rule was for when the contracts were applied."""

    rule: str
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    other_names: tuple[str, ...] = ()  # of those with its prefixes: exact names of other rules
    longer: tuple[str, ...] = ()  # likewise, the prefixes of other rules

    def covers(self, game: str) -> bool:
        """Return whether the rule is for a game: by its exact name, else by the longest prefix of all rules."""
        if game in self.names or game in self.other_names:
            return game in self.names
        own, other = (
            max((len(each) for each in prefixes if game.startswith(each)), default=-1)
            for prefixes in (self.prefixes, self.longer)
        )
        return own > other


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh a game's table is promised to be, in seconds; None: nothing of the kind is promised."""

    within: int | None = None  # from a record's arrival at its source until it is in the table
    newest_within: int | None = None  # between two records of the game


@dataclass(frozen=True, slots=True)
class OutputContract:
    """The rules for the rows of some games, or of some of their event types."""

    name: str
    games: tuple[str, ...] = ()  # exact names
    prefixes: tuple[str, ...] = ()  # of names
    event_types: tuple[str, ...] = ()  # full names or last segments; none: every type
    rules: tuple[ContractRule, ...] = ()
    readers: tuple[str, ...] = ()  # who relies on it, in a person's words
    by_rules: tuple[RuleNames, ...] = ()  # onboarding rules, for whose games it is
    protovalidate: Switch = "off"
    freshness: Freshness | None = None  # of the whole table, whichever event types its rules are for
    unique: str | None = None  # the path of a column with no value twice, which silver tables check

    def is_for(self, game: str) -> bool:
        """Return whether it is for a game: the one place that decides it."""
        by_rule = any(each.covers(game) for each in self.by_rules)
        return by_rule or game in self.games or game.startswith(self.prefixes)

    def covers(self, event_type: str) -> bool:
        """Return whether it is for rows of an event type."""
        return not self.event_types or not {event_type, event_type.rsplit(".", 1)[-1]}.isdisjoint(self.event_types)


def label(contract: OutputContract, rule: ContractRule) -> str:
    """Return a rule's name among all contracts, as metrics and people see it."""
    return f"{contract.name}/{rule.name}"


def stopping(contracts: Iterable[OutputContract]) -> str:
    """Return a digest of the rules of one game's contracts that stop its stream; empty without any.

    A stream that they have stopped goes on once it changes. The rules of a definition never do, so that only their
    switch counts.
    """
    listed = tuple(contracts)
    rules: list[tuple[object, ...]] = [
        (each.name, each.event_types, asdict(rule)) for each in listed for rule in each.rules if rule.action == "stop"
    ]
    rules += [(each.name, each.event_types, "protovalidate") for each in listed if each.protovalidate == "stop"]
    return hashlib.sha256(json.dumps(rules).encode()).hexdigest()[:32] if rules else ""


def by_game(
    contracts: Iterable[OutputContract], names: Mapping[GameKey, str]
) -> dict[GameKey, tuple[OutputContract, ...]]:
    """Return the contracts of each game that has any; games with the same ones share one tuple.

    `names` are the registered games, which prefixes are for.
    """
    listed = tuple(contracts)
    exact = {game_key(name): name for each in listed for name in each.games}
    shared: dict[tuple[str, ...], tuple[OutputContract, ...]] = {}
    found = {}
    for key, name in {**names, **exact}.items():
        own = tuple(each for each in listed if each.is_for(name))
        if own:
            found[key] = shared.setdefault(tuple(each.name for each in own), own)
    return found


def naming(contracts: Iterable[OutputContract], game: str, name: str) -> tuple[OutputContract, ...]:
    """Return contracts of which those for a game are for another name, too."""
    return tuple(
        replace(each, games=(*each.games, name)) if each.is_for(game) and not each.is_for(name) else each
        for each in contracts
    )


def dumps(contracts: Iterable[OutputContract]) -> str:
    """Return contracts as the JSON of the control store."""
    return json.dumps([asdict(each) for each in contracts], sort_keys=True)


def loads(text: str) -> tuple[OutputContract, ...]:
    """Return the contracts of such a JSON."""
    return tuple(_contract(tree) for tree in json.loads(text))


def _contract(tree: Mapping[str, Any]) -> OutputContract:
    rules = tuple(
        ContractRule(**{**rule, "allowed": tuple(rule["allowed"]), "forbidden": tuple(rule.get("forbidden", ()))})
        for rule in tree["rules"]
    )
    lists = {name: tuple(tree[name]) for name in ("games", "prefixes", "event_types", "readers")}
    named = ("names", "prefixes", "other_names", "longer")
    by_rules = tuple(RuleNames(each["rule"], *(tuple(each[name]) for name in named)) for each in tree["by_rules"])
    switch = tree.get("protovalidate", "off")  # which contracts of older stores lack
    fresh = None if (found := tree.get("freshness")) is None else Freshness(**found)
    return OutputContract(
        tree["name"], **lists, rules=rules, by_rules=by_rules, protovalidate=switch, freshness=fresh,
        unique=tree.get("unique"),
    )  # fmt: skip
