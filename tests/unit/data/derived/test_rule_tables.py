"""The tables that rules make are a pure function of the file, the schemas and the tables that were made before."""

import random
from dataclasses import replace

import pytest

from pipeline.base.names import game_key, is_rule_table_name, rule_table_name
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.derived.definitions import Entry, FlatRule, SilverDefinition, dumps, loads
from pipeline.data.derived.rule_tables import plan_tables
from pipeline.settings.derived import Derived
from pipeline.store.rows import RuleTable

GAMES = ("Chess", "Go")
ALL = FlatRule("all", prefixes=("",), within=60)


def schemas(*types: tuple[str, str, FieldPlacement]) -> SchemaSet:
    """Make a set in which each (game, message, placement) is registered in this order, as schema 1, 2, and so on."""
    known = {at: Schema(at, "protobuf", message, b"") for at, (_, message, _) in enumerate(types, 1)}
    games: dict[str, tuple[int, ...]] = {}
    placements: dict[str, dict[int, FieldPlacement]] = {}
    for at, (game, _, placement) in enumerate(types, 1):
        games[game_key(game)] = (*games.get(game_key(game), ()), at)
        placements.setdefault(game_key(game), {})[at] = placement
    return SchemaSet(len(types), games, known, placements)  # type: ignore[arg-type]  # both have keys of games


def first(game: str, message: str) -> tuple[str, str, FieldPlacement]:
    return game, message, FieldPlacement()


def further(game: str, message: str, struct: str, **values: object) -> tuple[str, str, FieldPlacement]:
    return game, message, FieldPlacement(struct=struct, **values)  # type: ignore[arg-type]


def made(
    schemas: SchemaSet, known: list[RuleTable], *entries: Entry, per_game: int = 20, tables: int = 500
) -> list[RuleTable]:
    caps = Derived(tables_per_game=per_game, tables=tables)
    return plan_tables(dumps(entries or (ALL,)), GAMES, schemas, caps, known)


def carried(tables: list[RuleTable]) -> dict[str, str]:
    """Return the event type of each table that is carried."""
    return {each.name: each.type for each in tables if each.definition is not None}


TWO = schemas(first("Chess", "a.v1.Sold"), further("Chess", "b.Sold", "sold"), first("Go", "a.v1.Sold"))


def test_each_event_type_of_a_chosen_game_has_a_table_of_its_own() -> None:
    """Types with the same last segment, and the same type of two games, never share a table or a name."""
    tables = made(TWO, [])
    assert sorted((each.game, each.type) for each in tables) == [
        ("Chess", "a.Sold"), ("Chess", "b.Sold"), ("Go", "a.Sold")
    ]  # fmt: skip
    assert len(carried(tables)) == 3
    assert all(is_rule_table_name(name) for name in carried(tables))
    (definition,) = {loads(f"[{each.definition}]")[0] for each in tables if each.game == "Go"}
    name = rule_table_name("Go", "a.Sold")
    assert definition == SilverDefinition(name, "Go", "a.Sold", 60, rule="all")
    assert made(TWO, tables) == tables, "planned again, nothing changes"
    assert [each.game for each in made(TWO, [], FlatRule("go", games=("Go",)))] == ["Go"]
    assert [each.type for each in made(TWO, [], FlatRule("b", prefixes=("Ch",), types=("b.Sold",)))] == ["b.Sold"]


@pytest.mark.parametrize(
    "name", ["../../etc", "a/b", "Sold; DROP TABLE x", "\u202etxt", "", "...", "__", "x" * 5000, "Ünï", "a\nb", "SOLD"]
)
def test_a_hostile_event_type_gives_a_plain_name(name: str) -> None:
    """A table's name has letters, digits and '_' alone, is short, and is no name that a person may choose."""
    table = rule_table_name(name or "game", name)
    assert is_rule_table_name(table)
    assert table.isascii()
    assert table.replace("_", "").isalnum()
    assert len(table) <= 100
    assert table != rule_table_name(name or "game", name.lower() + "x")


def test_a_cap_leaves_out_types_that_come_later_and_says_so() -> None:
    """A type that has a table keeps it, whatever comes before it in any order; others are named with the cap."""
    own = [further("Chess", f"t.T{at}", f"t{at}") for at in range(4)]
    tables = made(schemas(*own[2:]), [], per_game=2)
    assert {each.type for each in tables} == {"t.T2", "t.T3"}
    later = made(schemas(*own, first("Go", "g.G")), tables, per_game=2)
    assert set(carried(later).values()) == {"t.T2", "t.T3", "g.G"}
    assert {each.type: each.reason for each in later if not each.number} == dict.fromkeys(
        ("t.T0", "t.T1"), "derived.tables_per_game is 2, and as many tables were made of its game"
    )
    assert made(schemas(*own, first("Go", "g.G")), later, per_game=2) == later
    fleet = made(schemas(*own, first("Go", "g.G")), tables, tables=3)
    assert {each.type for each in fleet if not each.number} == {"t.T1", "g.G"}, "the first registered first"
    assert carried(made(schemas(*own), tables, per_game=0)) == carried(tables), "a lower cap stops none"
    raised = made(schemas(*own, first("Go", "g.G")), later)
    assert len(carried(raised)) == 5
    assert carried(later).items() <= carried(raised).items()


def test_a_withdrawn_type_keeps_its_table_and_its_place() -> None:
    """Its stream stops with the reason, no other type gets its place, and it goes on under its name when it is back."""
    types = [first("Chess", "t.A"), further("Chess", "t.B", "b")]
    tables = made(schemas(*types), [], per_game=2)
    gone = schemas(types[0], further("Chess", "t.B", "b", other_type=True), further("Chess", "t.C", "c"))
    then = {each.type: each for each in made(gone, tables, per_game=2)}
    assert (then["t.B"].definition, then["t.B"].reason) == (None, "its event type was withdrawn")
    assert not then["t.C"].number
    back = made(schemas(*types, further("Chess", "t.C", "c")), list(then.values()), per_game=2)
    assert carried(back) == carried(tables)


def test_of_two_types_that_become_one_the_older_table_goes_on() -> None:
    """The other table stops with the reason, and its name is never given to another type."""
    tables = made(schemas(first("Chess", "t.A"), further("Chess", "t.B", "b"), further("Chess", "t.C", "c")), [])
    one = schemas(first("Chess", "t.A"), further("Chess", "t.B", "b"), further("Chess", "t.C", "b"))
    then = {each.type: each for each in made(one, tables)}
    assert then["t.B"] in tables
    assert then["t.C"].definition is None
    assert then["t.C"].reason == f"its event type is one with that of {then['t.B'].name}"


def test_a_definition_by_hand_wins_over_the_rule() -> None:
    """A type with a silver table of the file gets none by a rule; a table that was made before gets no more rows."""
    hand = SilverDefinition("mine", "Chess")
    assert "a.Sold" not in {each.type for each in made(TWO, [], ALL, hand) if each.game == "Chess"}
    then = made(TWO, made(TWO, []), ALL, hand)
    (stopped,) = (each for each in then if each.definition is None)
    assert (stopped.type, stopped.reason) == ("a.Sold", "silver mine of the file has its event type")
    assert made(TWO, then) == made(TWO, []), "without the definition the rule's table goes on"


def test_a_rule_that_is_removed_stops_its_tables() -> None:
    """Tables of a rule that no file has any more stay, get no more rows, and come back with the rule."""
    tables = made(TWO, [])
    stopped = made(TWO, tables, SilverDefinition("mine", "Other"))
    assert {each.reason for each in stopped} == {"no rule chooses its event type any more"}
    assert made(TWO, stopped) == tables
    assert made(schemas(), tables) == tables, "a driver with an older schema set stops no table"


def test_drivers_in_any_order_make_the_same_tables() -> None:
    """Whichever driver plans first at each moment, with whatever caps, no table loses its number, name or type."""
    for seed in range(50):
        chance = random.Random(seed)
        types = [further(chance.choice(GAMES), f"t.T{at}", f"t{at}") for at in range(12)]
        tables: list[RuleTable] = []
        for upto in range(1, 13):
            now = schemas(*types[:upto])
            before = {each.name: each for each in tables if each.number}
            per_game, fleet = chance.randrange(1, 8), chance.randrange(1, 12)
            tables = made(now, tables, per_game=per_game, tables=fleet)
            assert made(now, tables, per_game=per_game, tables=fleet) == tables
            after = {each.name: each for each in tables if each.number}
            assert before.items() <= after.items()
            assert sorted(each.number for each in after.values()) == list(range(1, len(after) + 1))
            grown = len(after) > len(before)
            assert not grown or len(after) <= fleet


def test_the_digest_of_a_definition_by_hand_is_what_it_was() -> None:
    """A table that an earlier build made begins no new generation; the name of a rule decides about no row."""
    hand = SilverDefinition("a", "Chess", "M")
    assert '"rule"' not in dumps([hand])
    assert replace(hand, rule="all").digest == hand.digest
    assert loads(dumps([replace(hand, rule="all")])) == (replace(hand, rule="all"),)
