"""The cases of the matrix: ways by which records come, and changes of a game's schema with what they do to its table.

A change is written once for all formats; where they differ, it says so.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from pipeline.settings.source import Source

Row = dict[str, Any]
BOTH = ("protobuf", "avro")
ALL = (*BOTH, "json")


class Enum(NamedTuple):
    """The values of an enum; in protobuf their numbers are their places."""

    values: tuple[str, ...]
    numbers: tuple[int, ...] = ()


class Record(NamedTuple):
    """Fields inside a field."""

    fields: tuple["F", ...]


class Many(NamedTuple):
    """A list."""

    of: Any


class MapOf(NamedTuple):
    """A map by text."""

    of: Any


@dataclass(frozen=True)
class F:
    """One field, by its type in protobuf or Avro: int, long, float, double, string, bytes, bool, uint64."""

    name: str
    type: Any
    number: int  # in protobuf
    alias: str | None = None  # in Avro
    default: Any = None  # in Avro
    optional: bool = False  # presence in protobuf, a union with null in Avro


COMPOUND = ("NONE", "SOFT", "HARD")
CAR = (F("model", "string", 1), F("gear", "int", 2))
N, WHO, PACE = F("n", "int", 1), F("who", "string", 2), F("pace", "float", 3)
KIND, INSIDE = F("kind", Enum(COMPOUND), 4), F("car", Record(CAR), 5)
BASE = (N, WHO, PACE, KIND, INSIDE)
OLD: Row = {"n": -7, "who": "Ada \u2028 🎮", "pace": -0.5, "kind": "SOFT", "car": {"model": "T", "gear": 3}}


def changed(*new: F, without: str = "") -> tuple[F, ...]:
    """Return the fields of BASE, with these in the place of those with the same number, or after them."""
    by_number = {each.number: each for each in BASE if each.name != without} | {each.number: each for each in new}
    return tuple(by_number.values())


@dataclass(frozen=True)
class Change:
    """A game's second schema, a row that is written with it, and what becomes of it."""

    name: str
    after: tuple[F, ...]
    new: Row
    lands: Row | None = None  # as the table has it, names without a value null; None: as it was written
    quarantined: str | None = None  # a part of the reason why the second schema's rows go to quarantine
    old: Row = field(default_factory=lambda: OLD)
    before: tuple[F, ...] = BASE
    bending: bool = False  # only by policies that take any change
    formats: tuple[str, ...] = ALL
    after_format: str | None = None  # of the second schema, where it is another one
    answer: str = "found"  # of the registry about the second schema: found, absent, unusable

    @property
    def is_indifferent(self) -> bool:
        """Whether policies do not matter."""
        return not self.bending and self.quarantined != PERSON and self.name != "rename"


BENDING = ("incompatible=side-column", "name=side-column", "value=add", "rename=add", "reuse=side-column")
PERSON = "needs a person"
NEW: Row = {"n": 2**31 - 1, "who": "Bob", "pace": 0.25, "kind": "HARD", "car": {"model": "", "gear": -(2**31)}}


def new(without: str = "", **values: Any) -> Row:
    return {name: value for name, value in (NEW | values).items() if name != without}


def under(given: Row, was: str, column: str) -> Row:
    """Return a row with a value under the name of its column."""
    return {column if name == was else name: value for name, value in given.items()}


DEEP = (F("model", "string", 1), F("gear", "long", 2), F("tyre", Record((F("mm", "int", 1),)), 3))
OTHER_GEAR = (F("model", "string", 1), F("gear", "string", 2))
OTHER_WHO = changed(F("who", "long", 2))
WIDE = changed(F("n", "long", 1), F("pace", "double", 3))
WIDE_ROW = new(n=2**40, pace=0.1)
LISTED: Row = {"names": ["a", ""], "by": {"x": {"gear": 1}, "": {"gear": 2}}}

CHANGES = (
    Change("same", BASE, NEW),
    Change("no fields", (), {}, before=(), old={}, formats=BOTH),  # in JSON that is an object of anything
    Change("first fields", (F("n", "int", 1),), {"n": -5}, before=(), old={}, formats=BOTH),
    Change("add", changed(F("bonus", "long", 6)), new(bonus=-(2**63))),
    Change(
        "add lists",
        changed(F("names", Many("string"), 6), F("by", MapOf(Record((F("gear", "int", 1),))), 7)),
        new(**LISTED),
    ),
    Change("remove", changed(without="who"), new("who")),
    Change("rename", changed(F("driver", "string", 2, alias="who")), under(NEW, "who", "driver"), NEW, formats=BOTH),
    Change(
        "rename to a new column",
        changed(F("driver", "string", 2, alias="who")),
        under(NEW, "who", "driver"),
        bending=True,
        formats=BOTH,
    ),
    Change(
        "rename without an alias",
        changed(F("driver", "string", 2)),
        under(NEW, "who", "driver"),
        formats=("avro", "json"),
    ),
    Change("widen", WIDE, WIDE_ROW),
    Change(
        "widen beyond the column",
        (F("n", "uint64", 1),),
        {"n": 2**64 - 1},
        {"n__v2": Decimal(2**64 - 1)},
        before=(F("n", "uint32", 1),),
        old={"n": 2**32 - 1},
        formats=("protobuf",),
    ),
    Change(
        "widen beyond the column",
        changed(F("n", "double", 1)),
        new(n=0.1),
        under(new(n=0.1), "n", "n__v2"),
        formats=("avro",),
    ),
    Change(
        "text to bytes",
        changed(F("who", "bytes", 2)),
        new(who=b"\xff\0"),
        under(new(who=b"\xff\0"), "who", "who__v2"),
        formats=("avro",),
    ),
    Change("narrow", BASE, NEW, before=WIDE, old=WIDE_ROW),
    Change(
        "another sign",
        (F("n", "int32", 1),),
        {"n": -1},
        before=(F("n", "uint32", 1),),
        old={"n": 2**32 - 1},
        formats=("protobuf",),
    ),
    Change("reorder", BASE[::-1], NEW),
    Change(
        "nested",
        changed(F("car", Record(DEEP), 5)),
        new(car={"model": "A", "gear": 2**40, "tyre": {"mm": 305}}),
    ),
    Change(
        "nested conflict",
        changed(F("car", Record(OTHER_GEAR), 5)),
        new(car={"model": "A", "gear": "R"}),
        quarantined=PERSON,
    ),
    Change(
        "nested conflict beside",
        changed(F("car", Record(OTHER_GEAR), 5)),
        new(car={"model": "A", "gear": "R"}),
        new(car={"model": "A", "gear__v2": "R"}),
        bending=True,
    ),
    Change("enum value", changed(F("kind", Enum((*COMPOUND, "WET")), 4)), new(kind="WET")),
    Change("enum value gone", changed(F("kind", Enum(("NONE", "HARD"), (0, 2)), 4)), new(kind="HARD")),
    Change(
        "enum values change places",
        changed(F("kind", Enum(("HARD", "NONE", "SOFT")), 4)),
        new(kind="HARD"),
        formats=("avro",),
    ),
    Change(
        "enum value renamed",
        changed(F("kind", Enum(("NONE", "SOFT", "STIFF")), 4)),
        new(kind="STIFF"),
        quarantined=PERSON,
        formats=("protobuf",),
    ),
    Change(
        "enum value renamed by a policy",
        changed(F("kind", Enum(("NONE", "SOFT", "STIFF")), 4)),
        new(kind="STIFF"),
        bending=True,
        formats=("protobuf",),
    ),
    Change("default", changed(F("bonus", "int", 6, default=5)), new(bonus=0)),
    Change("may be absent", changed(F("n", "int", 1, optional=True)), new("n"), old=OLD | {"n": 0}),
    Change(
        "no longer absent",
        BASE,
        new(n=0),
        before=changed(F("n", "int", 1, optional=True)),
        old={name: value for name, value in OLD.items() if name != "n"},
    ),
    Change("conflict", changed(F("n", "string", 1)), new(n="seven"), quarantined=PERSON),
    Change("conflict beside", changed(F("n", "string", 1)), new(n=""), under(new(n=""), "n", "n__v2"), bending=True),
    Change("one to many", changed(F("who", Many("string"), 2)), new(who=["a"]), quarantined=PERSON),
    Change(
        "one to many beside",
        changed(F("who", Many("string"), 2)),
        new(who=["a", ""]),
        under(new(who=["a", ""]), "who", "who__v2"),
        bending=True,
    ),
    Change("a name twice but for case", changed(F("WHO", "string", 6)), new(WHO="C"), quarantined=PERSON),
    Change(
        "reuse",
        changed(F("title", "bool", 2)),
        under(new(who=True), "who", "title"),
        quarantined=PERSON,
        formats=("protobuf",),
    ),
    Change(
        "reuse",
        changed(F("title", "bool", 2, alias="who")),
        under(new(who=True), "who", "title"),
        quarantined=PERSON,
        formats=("avro",),
    ),
    Change(
        "reuse beside",
        changed(F("title", "bool", 2, alias="who")),
        under(new(who=True), "who", "title"),
        bending=True,
        formats=BOTH,
    ),
    Change("to Avro", BASE, NEW, formats=("protobuf",), after_format="avro"),
    Change("to protobuf", BASE, NEW, formats=("avro",), after_format="protobuf"),
    Change(
        "to Avro with another type",
        OTHER_WHO,
        new(who=5),
        quarantined=PERSON,
        formats=("protobuf",),
        after_format="avro",
    ),
    Change("to Avro with a wider type", WIDE, WIDE_ROW, formats=("protobuf",), after_format="avro"),
    Change("to JSON", BASE, NEW, formats=BOTH, after_format="json"),
    Change("to JSON with another type", OTHER_WHO, new(who=5), quarantined=PERSON, formats=BOTH, after_format="json"),
    Change("to Avro", BASE, NEW, formats=("json",), after_format="avro"),
    Change("to protobuf", BASE, NEW, formats=("json",), after_format="protobuf"),
    Change("unknown", BASE, NEW, quarantined="", answer="absent"),
    Change("unusable", BASE, NEW, quarantined="cannot use", answer="unusable"),
)
"""All changes of a game's schema."""


@dataclass(frozen=True)
class Way:
    """How a source names the schemas of its records, and who knows them."""

    name: str
    source: Source
    registry: str  # its kind; empty: turnout itself
    id: str = ""  # number, prefixed GUID, GUID in a header, plain, zlib, topic, game, type; empty: turnout's own number
    first_is_own: bool = False  # the first schema has turnout's own number, as on the way to a registry
    generations: bool = False  # a name has one schema for ever: the second one comes with a new generation


WRAPPED: dict[str, Any] = {"envelope": "wrapper", "routing": "field"}
DOCUMENT: dict[str, Any] = {
    "envelope": "json",
    "envelope_fields": {"game": "game", "type": "is.a", "payload": "event"},
    "routing": "field",
}
BARE: dict[str, Any] = {"envelope": "none", "routing": "key"}


def _way(name: str, registry: str, ident: str, framing: str, named: bool = False, **more: Any) -> Way:
    given = {each: more.pop(each) for each in ("envelope", "envelope_fields", "routing") if each in more}
    message = "t.M" if named else ""
    source = Source(framing=framing, registry="main" if registry else "", message=message, **given)  # type: ignore[arg-type]
    return Way(f"{name} {registry or 'local'}", source, registry, ident, **more)


WAYS = (
    _way("wrapper", "", "", "wrapper", **WRAPPED),
    _way("type", "", "type", "type", **DOCUMENT),
    *(_way("number", each, "number", "wrapper", named=True, **WRAPPED) for each in ("confluent", "folder")),
    *(_way("id", each, "prefix", "confluent", **BARE) for each in ("confluent", "folder")),
    _way("id in wrapper", "confluent", "prefix", "confluent", **WRAPPED),
    *(_way("GUID", each, "prefixed GUID", "confluent", **BARE) for each in ("confluent", "folder")),
    *(
        _way("GUID header", each, "GUID in a header", "confluent", envelope="none", routing="header:game")
        for each in ("confluent", "folder")
    ),
    *(_way("plain", each, "plain", "glue", named=True, **BARE) for each in ("glue", "folder")),
    *(_way("zlib", each, "zlib", "glue", named=True, **BARE) for each in ("glue", "folder")),
    *(_way("topic", each, "topic", "topic", named=True, **BARE) for each in ("confluent", "glue", "folder")),
    *(
        _way("game", each, "game", "game", named=True, generations=True, envelope="none", routing="topic")
        for each in ("confluent", "glue", "folder")
    ),
    _way("wrapper or id", "confluent", "prefix", "wrapper-or-confluent", first_is_own=True, **WRAPPED),
    _way("wrapper or zlib", "glue", "zlib", "wrapper-or-glue", named=True, first_is_own=True, **WRAPPED),
)
"""How records come."""


@dataclass(frozen=True)
class Case:
    """One game: a change, in a format, by a way."""

    way: Way
    change: Change
    format: str

    @property
    def name(self) -> str:
        return f"{self.way.name}, {self.format}, {self.change.name}"

    @property
    def bending(self) -> bool:
        """Whether the game's registry has policies that take any change: where they do not matter, every other way."""
        return self.change.bending or (self.change.is_indifferent and self.way in WAYS[1::2])

    @property
    def is_of_its_way(self) -> bool:
        """Whether it goes with the policies that its way has where there are only one way's policies."""
        return self.bending == (self.way in WAYS[1::2])

    @property
    def formats(self) -> tuple[str, str]:
        return self.format, self.change.after_format or self.format


CASES = tuple(
    Case(way, change, each)
    for way in WAYS
    for change in CHANGES
    for each in change.formats
    if way.registry or change.answer != "unusable"  # turnout can use its own schemas
    # A document by its type names no schema: all of its versions are JSON, and rows of an unknown one are of the first.
    if way.id != "type" or (each == "json" and change.after_format is None and change.answer == "found")
)
