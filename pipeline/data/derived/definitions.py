"""Derived streams as people define them: values of each kind, and the JSON of the control store.

Made by the reader of files of derived streams; a driver compares them with what the table's log says that it was made
by.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from pipeline.base.names import GameKey, game_key

Mask: TypeAlias = Literal["hash", "drop"]
Function: TypeAlias = Literal["count", "sum", "min", "max", "distinct", "percentile"]

MASKS: Final[tuple[Mask, ...]] = get_args(Mask)
"""What becomes of a column: its SHA-256 as hexadecimal text, or nothing."""

FUNCTIONS: Final[tuple[Function, ...]] = get_args(Function)
"""What a gold table computes of a window's rows."""

EVENT_ID: Final = "_event_id"
"""The column of a game's table that tells events apart, where a definition names no other one."""

LATENESS: Final = 300
"""Seconds that a window stays open after its end, where a definition says nothing else."""


@dataclass(frozen=True, slots=True)
class SilverDefinition:
    """One silver table: the flat rows of one event type of a game."""

    kind: ClassVar[str] = "silver"
    layer: ClassVar[int] = 1  # what it follows from has a lower one

    name: str
    game: str  # its exact name
    type: str | None = None  # full name or last segment; None: the game's only type, or its first one
    within: int | None = None  # seconds of source time within which a second row of an id is left out; None: none is
    id: str = EVENT_ID  # the path of the column with the id
    mask: tuple[tuple[str, Mask], ...] = ()  # by the path of a column
    rule: str | None = None  # that made it, whose mask may name columns that it lacks; None: a person defined it
    own_grants: bool = False  # readable by grants of its own alone; False: also by those of its game

    @property
    def game_key(self) -> GameKey:
        """The key of its game."""
        return game_key(self.game)

    @property
    def digest(self) -> str:
        """What decides about its rows; another digest needs another generation of its table."""
        return _digest(replace(self, name="", rule=None, own_grants=False))


@dataclass(frozen=True, slots=True)
class FlatRule:
    """Makes a silver table for each event type of some games, also of those to come."""

    kind: ClassVar[str] = "rule"

    name: str
    games: tuple[str, ...] = ()  # exact names
    prefixes: tuple[str, ...] = ()  # of names; an empty one is of every name
    types: tuple[str, ...] = ()  # full names or last segments; none: every type
    within: int | None = None  # as of a silver table, likewise the next two
    mask: tuple[tuple[str, Mask], ...] = ()
    own_grants: bool = False

    def chooses(self, game: str, names: Iterable[str]) -> bool:
        """Return whether it is for an event type of a game, by the type's full names."""
        if game not in self.games and not game.startswith(self.prefixes):
            return False
        return not self.types or any(not {each, each.rsplit(".", 1)[-1]}.isdisjoint(self.types) for each in names)

    def silver(self, table: str, game: str, type_name: str) -> SilverDefinition:
        """Return the silver table of an event type that it chooses."""
        return SilverDefinition(table, game, type_name, self.within, EVENT_ID, self.mask, self.name, self.own_grants)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One column that a gold table computes."""

    name: str
    function: Function
    column: str | None = None  # of the silver table; None: rows are counted
    at: int | None = None  # of a percentile, in ten-thousandths


@dataclass(frozen=True, slots=True)
class GoldDefinition:
    """One gold table: a silver table's rows, aggregated by windows of event time."""

    kind: ClassVar[str] = "gold"
    layer: ClassVar[int] = 2

    name: str
    silver: SilverDefinition
    window: int  # seconds; a day has a whole number of them
    aggregates: tuple[Aggregate, ...]
    by: tuple[str, ...] = ()  # columns of the silver table
    lateness: int = LATENESS  # seconds
    own_grants: bool = False

    @property
    def game(self) -> str:
        """The game whose rows it has."""
        return self.silver.game

    @property
    def game_key(self) -> GameKey:
        """The key of its game."""
        return self.silver.game_key

    @property
    def type(self) -> str | None:
        """The event type of its rows, as that of its silver table."""
        return self.silver.type

    @property
    def digest(self) -> str:
        """What decides about its rows; another digest needs another generation of its table."""
        return _digest(replace(self, name="", silver=replace(self.silver, own_grants=False), own_grants=False))


Definition: TypeAlias = SilverDefinition | GoldDefinition


Entry: TypeAlias = Definition | FlatRule
"""What a file of derived streams has."""


def dumps(entries: Iterable[Entry]) -> str:
    """Return definitions and rules as the JSON of the control store."""
    return json.dumps([_tree(each) for each in entries], sort_keys=True)


def loads_all(text: str) -> tuple[Entry, ...]:
    """Return the definitions and rules of such a JSON."""
    return tuple(_READERS[tree["kind"]](tree) for tree in json.loads(text))


def loads(text: str) -> tuple[Definition, ...]:
    """Return the definitions alone."""
    return tuple(each for each in loads_all(text) if not isinstance(each, FlatRule))


def loads_rules(text: str) -> tuple[FlatRule, ...]:
    """Return the rules alone."""
    return tuple(each for each in loads_all(text) if isinstance(each, FlatRule))


def of_another_name(
    definitions: Iterable[Definition], old: str, name: str, free: Callable[[str], str]
) -> list[Definition]:
    """Return copies of one game's definitions for another game, in the same order.

    `free` returns the name of a copy's table; a copy of a gold table follows from the copy of its silver table.
    """
    own = [each for each in definitions if each.game == old]
    silver = {
        each: replace(each, name=free(each.name), game=name) for each in own if isinstance(each, SilverDefinition)
    }
    return [
        replace(each, name=free(each.name), silver=silver[each.silver])
        if isinstance(each, GoldDefinition)
        else silver[each]
        for each in own
    ]


_LATER: Final[Mapping[str, Any]] = {"rule": None, "own_grants": False}
"""Fields that an earlier build did not write, and what they say where they are missing: digests are of this text."""


def _digest(definition: Definition) -> str:
    return hashlib.sha256(dumps([definition]).encode()).hexdigest()


def _tree(entry: Entry) -> dict[str, Any]:
    fields = asdict(entry)
    for tree in (fields, fields.get("silver", {})):
        for name, unsaid in _LATER.items():
            if name in tree and tree[name] == unsaid:
                del tree[name]
    return {"kind": entry.kind, **fields}


def _silver(tree: Mapping[str, Any]) -> SilverDefinition:
    return SilverDefinition(**{**_fields(tree), "mask": _mask(tree)})


def _rule(tree: Mapping[str, Any]) -> FlatRule:
    lists = {name: tuple(tree[name]) for name in ("games", "prefixes", "types")}
    return FlatRule(**{**_fields(tree), **lists, "mask": _mask(tree)})


def _mask(tree: Mapping[str, Any]) -> tuple[tuple[str, Mask], ...]:
    return tuple((path, mask) for path, mask in tree["mask"])


def _gold(tree: Mapping[str, Any]) -> GoldDefinition:
    aggregates = tuple(Aggregate(**each) for each in tree["aggregates"])
    silver, by = _silver(tree["silver"]), tuple(tree["by"])
    return GoldDefinition(**{**_fields(tree), "silver": silver, "by": by, "aggregates": aggregates})


def _fields(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name != "kind"}


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Entry]]] = {
    FlatRule.kind: _rule,
    SilverDefinition.kind: _silver,
    GoldDefinition.kind: _gold,
}
