"""The silver tables that rules make: one for each event type that a rule chooses, up to two caps.

A table that was made keeps its name and its place under the caps for ever. A type that comes when a cap is reached gets
none, and is named. `plan_tables` is pure, and the control store keeps what it says, so all drivers carry the same ones.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, game_key, rule_table_name, shown
from pipeline.data.contracts.further_types import GameType, game_types
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import FlatRule, SilverDefinition, dumps, loads, loads_rules
from pipeline.data.derived.flat import chosen_type
from pipeline.settings.derived import Derived
from pipeline.store.derived import AppliedStreams, keep_rule_tables, read_definitions, read_rule_tables
from pipeline.store.games import known_names
from pipeline.store.rows import RuleTable

_log: Final = logging.getLogger("turnout")

_LOOK_SECONDS: Final = 60.0  # between two plans where neither the file nor the schemas are others


def plan_tables(
    applied: str, names: Iterable[str], schemas: SchemaSet, caps: Derived, known: Sequence[RuleTable]
) -> list[RuleTable]:
    """Return the tables that rules make, and the event types that a cap leaves without one, by name.

    A known table whose type the schema set lacks stays as it is: the set may be the older one.

    Args:
        applied: JSON of the definitions and rules that a person applied.
        names: of all games.
        schemas: the newest schema set.
        caps: how many tables rules make.
        known: what was returned last.
    """
    rules = loads_rules(applied)
    made = [each for each in known if each.number]
    if not rules and not made:
        return []
    silvers = [each for each in loads(applied) if isinstance(each, SilverDefinition)]
    found = {each.name: each for each in made}
    new: list[tuple[int, RuleTable]] = []
    for game in names:
        of_game = _Game(game, schemas, rules, silvers)
        held = sorted((each for each in made if each.game_key == of_game.key), key=lambda each: each.number)
        found |= {each.name: each for each in of_game.known(held)}
        new += of_game.new(held)
    order = [each for _, each in sorted(new, key=lambda one: (one[0], one[1].game_key, one[1].type))]
    return sorted([*found.values(), *_within_caps(order, made, caps)], key=lambda each: each.name)


def _within_caps(new: Iterable[RuleTable], made: Sequence[RuleTable], caps: Derived) -> Iterator[RuleTable]:
    """Give new tables their numbers, the types that were registered first first, as long as no cap is reached."""
    of_game, last = Counter(each.game_key for each in made), max((each.number for each in made), default=0)
    count = len(made)
    for each in new:
        if of_game[each.game_key] >= caps.tables_per_game:
            reason = f"derived.tables_per_game is {caps.tables_per_game:,}, and as many tables were made of its game"
            yield replace(each, definition=None, reason=reason)
        elif count >= caps.tables:
            reason = f"derived.tables is {caps.tables:,}, and as many tables were made"
            yield replace(each, definition=None, reason=reason)
        else:
            of_game[each.game_key] += 1
            count, last = count + 1, last + 1
            yield replace(each, number=last)


class _Game:
    """The event types of one game, and what chooses them."""

    def __init__(
        self, name: str, schemas: SchemaSet, rules: Sequence[FlatRule], silvers: Sequence[SilverDefinition]
    ) -> None:
        self.name, self.key = name, game_key(name)
        self._types, self._rules = game_types(schemas, self.key), rules
        self._by_hand = dict(_by_hand(schemas, self.key, silvers))

    def known(self, held: Sequence[RuleTable]) -> Iterator[RuleTable]:
        """Yield its tables, the first made first, as they are by its types of today."""
        owners: dict[str, RuleTable] = {}  # by the name of an event type
        for table in held:
            of = self._type_of(table)
            if of is None:
                yield table
            elif (owner := owners.get(of.name)) is not None:
                yield _stopped(table, f"its event type is one with that of {owner.name}")
            elif of.state == "withdrawn":
                yield _stopped(table, "its event type was withdrawn")
            else:
                owners[of.name] = table
                yield self._carried(table, of)

    def new(self, held: Sequence[RuleTable]) -> Iterator[tuple[int, RuleTable]]:
        """Yield tables of its other types that a rule chooses, with the first schema id of each."""
        have = {of.name for table in held if (of := self._type_of(table)) is not None}
        for of in self._types:
            if of.state in {"first", "accepted"} and of.name not in have:
                name = rule_table_name(self.name, of.name)
                table = self._carried(RuleTable(name, self.key, self.name, of.name, 0, None, None), of)
                if table.definition is not None:
                    yield min(schema.schema_id for schema, _ in of.schemas), table

    def _type_of(self, table: RuleTable) -> GameType | None:
        return next((each for each in self._types if each.state != "waits" and table.type in each.names), None)

    def _carried(self, table: RuleTable, of: GameType) -> RuleTable:
        if (other := self._by_hand.get(of.name)) is not None:
            return _stopped(table, f"silver {other} of the file has its event type")
        rule = next((each for each in self._rules if each.chooses(self.name, of.names)), None)
        if rule is None:
            return _stopped(table, "no rule chooses its event type any more")
        definition = rule.silver(table.name, self.name, table.type)
        return replace(table, definition=dumps([definition])[1:-1], reason=None)


def _stopped(table: RuleTable, reason: str) -> RuleTable:
    return replace(table, definition=None, reason=reason)


def _by_hand(schemas: SchemaSet, key: GameKey, silvers: Iterable[SilverDefinition]) -> Iterator[tuple[str, str]]:
    """Yield the names of a game's event types that the file itself has a silver table of, each with that table."""
    for each in silvers:
        if each.game_key != key:
            continue
        try:
            yield chosen_type(schemas, key, each.game, each.type).name, each.name
        except Refused:  # it stands still, and says so itself
            continue


class RuleTables:
    """Keeps the tables that rules make, for one driver: of all games, so that the order decides and no driver."""

    def __init__(self, engine: Engine, schemas: LocalRegistry, caps: Derived) -> None:
        """Read schemas from this registry."""
        self._engine, self._registry, self._caps = engine, schemas, caps
        self._planned: tuple[int, int] | None = None  # the numbers of the file and of the schema set
        self._at = 0.0  # monotonic seconds

    def keep(self, *, whole: bool) -> None:
        """Make tables of types that came, and stop those of types that went.

        Without `whole` only where the file or the schemas are others than last time, and once a minute.
        """
        applied = read_definitions(self._engine)
        numbers = (applied.number, self._registry.latest_version())
        if not whole and numbers == self._planned and time.monotonic() - self._at < _LOOK_SECONDS:
            return
        if loads_rules(applied.definitions) or read_rule_tables(self._engine):
            self._keep()
        self._planned, self._at = numbers, time.monotonic()

    def _keep(self) -> None:
        schemas, names = self._registry.snapshot(), known_names(self._engine).values()

        def plan(applied: AppliedStreams, known: Sequence[RuleTable]) -> list[RuleTable]:
            return plan_tables(applied.definitions, names, schemas, self._caps, known)

        before = {each.name: each for each in read_rule_tables(self._engine)}
        for each in keep_rule_tables(self._engine, plan):
            if each != before.get(each.name):
                how = "is carried" if each.reason is None else f"is not carried: {each.reason}"
                _log.info("silver %s of %s, type %s, %s", each.name, shown(each.game), shown(each.type), how)
