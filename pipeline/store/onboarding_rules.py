"""Onboarding rules: which names become games without an approval, and what such a game gets.

Each application of a file adds a whole set with the next number, and the newest set counts; an older one is never
changed, so it can be read what was in force when a name became a game.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, Row, insert, select

from pipeline.base.errors import Refused
from pipeline.store import audit
from pipeline.store.database.states import Priority
from pipeline.store.database.tables import onboarding_rules, onboardings
from pipeline.store.processes.leases import store_now

MAX_NEW_PER_HOUR: Final = 10
"""Games that the prefixes of one rule create within an hour, where the rule does not say."""


_LISTS: Final = ("names", "prefixes", "formats", "readers", "event_types")
ALL_TYPES: Final = "*"
"""Stands in a rule for every event type."""


@dataclass(frozen=True, slots=True)
class OnboardingRule:
    """One rule: the names it is for, and what a game gets whose name it matched when that became a game."""

    name: str
    names: tuple[str, ...] = ()  # exact names, which become games at once
    prefixes: tuple[str, ...] = ()  # of names that become games when they arrive
    group: str | None = None  # the cluster group where such a game is placed first; None: placement chooses
    priority: Priority = "normal"
    policies: tuple[tuple[str, str], ...] = ()  # (kind of change, policy) of its schemas, sorted
    readers: tuple[str, ...] = ()  # principals of the catalog
    max_new_per_hour: int = MAX_NEW_PER_HOUR  # games by its prefixes
    changed_by: str = ""  # who applied it as it is
    event_types: tuple[str, ...] = ()  # further types that such a game has as they come: full names, last segments
    formats: tuple[str, ...] = ()  # of payloads: the rule is for names of these only; none: for any

    def accepts(self, event_type: str) -> bool:
        """Return whether a game of the rule has a further event type without a person."""
        return bool({ALL_TYPES, event_type, event_type.rsplit(".", 1)[-1]} & {*self.event_types})

    @property
    def content(self) -> "OnboardingRule":
        """The rule as a file says it."""
        return replace(self, changed_by="")


class RuleMatch(NamedTuple):
    """The rule for a name, and by which of its prefixes; None: by the exact name.

    A rule by format has a prefix, too: the exact name, or an empty one where it is for every name.
    """

    rule: OnboardingRule
    prefix: str | None


@dataclass(frozen=True)
class RuleSet:
    """The rules that are in force. Of two that fit a name, the exact name counts, and then the longest prefix.

    A rule by name alone counts before one by format, since a format is known later than the name.
    """

    number: int = 0  # of the application; 0: none was ever applied
    rules: tuple[OnboardingRule, ...] = ()
    actor: str = ""  # who applied it
    applied_at: float = 0.0  # Unix seconds by the store's clock

    @cached_property
    def by_name(self) -> dict[str, OnboardingRule]:
        """The rules by their own names."""
        return {rule.name: rule for rule in self.rules}

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of all rules, the longest first."""
        return tuple(sorted(self._by_prefix, key=lambda each: (-len(each), each)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The exact names of all rules."""
        return tuple(self._by_game)

    @cached_property
    def _by_game(self) -> dict[str, OnboardingRule]:
        return {name: rule for rule in self.rules if not rule.formats for name in rule.names}

    @cached_property
    def _by_prefix(self) -> dict[str, OnboardingRule]:
        return {prefix: rule for rule in self.rules if not rule.formats for prefix in rule.prefixes}

    @cached_property
    def by_format(self) -> tuple[OnboardingRule, ...]:
        """The rules for names of certain formats only."""
        return tuple(rule for rule in self.rules if rule.formats)

    def match(self, name: str, payload_format: str | None = None) -> RuleMatch | None:
        """Return the rule for a name of a game, None where no rule fits; a format that is None is not known."""
        if (exact := self._by_game.get(name)) is not None:
            return RuleMatch(exact, None)
        prefix = next((each for each in self.prefixes if name.startswith(each)), None)
        if prefix is not None:
            return RuleMatch(self._by_prefix[prefix], prefix)
        return self._nearest(name, [rule for rule in self.by_format if payload_format in rule.formats])

    def waiting_for_format(self, name: str) -> OnboardingRule | None:
        """Return a rule that would be for a name if its payloads had the format that the rule wants."""
        nearest = self._nearest(name, self.by_format)
        return None if nearest is None else nearest.rule

    @staticmethod
    def _nearest(name: str, rules: Sequence[OnboardingRule]) -> RuleMatch | None:
        """Return of rules by format the one with the exact name, then the longest prefix, then one for every name."""
        found = [RuleMatch(rule, pattern) for rule in rules for pattern in _patterns(rule, name)]
        return max(found, key=lambda each: (name in each.rule.names, len(each.prefix or "")), default=None)


def read_rules(engine: Engine) -> RuleSet:
    """Return the rules in force."""
    with engine.connect() as connection:
        return rules_in(connection)


def rules_in(connection: Connection, above: int = 0) -> RuleSet:
    """Return the same within a transaction; an empty set where no newer one than `above` was applied."""
    table = onboarding_rules
    query = select(table).where(table.c.number > above).order_by(table.c.number.desc()).limit(1)
    row = connection.execute(query).first()
    return RuleSet() if row is None else _read(row)


def rules_of_games(connection: Connection, keys: Collection[str]) -> dict[str, OnboardingRule]:
    """Return the rule of each of these games that has one, by key: as it is now, for the name it matched then."""
    table = onboardings
    query = select(table.c.game_key, table.c.rule).where(table.c.rule.is_not(None), table.c.game_key.in_(list(keys)))
    matched = {row.game_key: row.rule for row in connection.execute(query)} if keys else {}
    by_name = rules_in(connection).by_name if matched else {}
    return {key: by_name[name] for key, name in matched.items() if name in by_name}


def rules_for(connection: Connection, names: Mapping[str, str]) -> dict[str, OnboardingRule]:
    """Return the rule of each of these names (key → name) that has one, by key.

    That of a game is the one it matched when it became one; that of another name is the one it matches now.
    """
    rules = rules_in(connection)
    if not rules.rules:
        return {}
    of_games = rules_of_games(connection, names)
    known = set(connection.scalars(select(onboardings.c.game_key).where(onboardings.c.game_key.in_(list(names)))))
    matched = {key: match.rule for key in names.keys() - known if (match := rules.match(names[key])) is not None}
    return {**of_games, **matched}


def apply(engine: Engine, rules: Sequence[OnboardingRule], seen: int, actor: str, reason: str) -> RuleSet:
    """Write rules as the newest set, with its audit entry, if the newest is still the one that was seen.

    Raises:
        Refused: another person has applied rules meanwhile.
    """
    trees = [_tree(rule) for rule in rules]
    act = audit.Act(actor, "apply onboarding rules", ("rules",), None, {"rules": trees, "reason": reason})
    with engine.begin() as connection:
        audit.lock_log(connection)  # so another one of the same moment waits here, and sees this one then
        if rules_in(connection).number != seen:
            raise Refused("Other rules were applied after you looked. Plan again.")
        audit.begin(connection, act)
        values = {"number": seen + 1, "rules": json.dumps(trees), "actor": actor, "reason": reason}
        connection.execute(insert(onboarding_rules).values(applied_at=store_now(), **values))
        audit.end(connection, act, "succeeded")
        return rules_in(connection)


def _patterns(rule: OnboardingRule, name: str) -> Iterator[str]:
    """Yield what of a rule by format fits a name."""
    if name in rule.names:
        yield name
    yield from (each for each in rule.prefixes if name.startswith(each))
    if not rule.names and not rule.prefixes:
        yield ""


def _tree(rule: OnboardingRule) -> dict[str, Any]:
    return {**asdict(rule), "policies": dict(rule.policies)}


def _read(row: Row[Any]) -> RuleSet:
    return RuleSet(row.number, tuple(map(_rule, json.loads(row.rules))), row.actor, row.applied_at)


def _rule(tree: dict[str, Any]) -> OnboardingRule:
    lists = {name: tuple(tree.get(name, ())) for name in _LISTS}  # rules of an earlier build lack some
    return OnboardingRule(**{**tree, **lists, "policies": tuple(sorted(tree["policies"].items()))})
