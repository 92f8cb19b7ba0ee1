"""The file of derived streams: read whole, or refused with every problem and its line."""

import pytest

from pipeline.base.errors import Refused
from pipeline.base.names import rule_table_name
from pipeline.control.derived.definition_file import parse, render
from pipeline.data.derived.definitions import (
    Aggregate,
    FlatRule,
    GoldDefinition,
    SilverDefinition,
    dumps,
    loads,
    loads_all,
    loads_rules,
)

FILE = """\
derived:
  - name: chess_sold
    kind: silver
    game: Chess
    type: acme.Sold
    dedupe: {within: 90m, id: order.number}
    mask: {name: drop, buyer.email: hash}
  - {name: all_2048, kind: silver, game: 2048, dedupe: {within: 1d}}
  - {name: plain, kind: silver, game: Go}
"""
GOLD = """\
derived:
  - name: hours
    kind: gold
    source: plain
    window: 1h
    lateness: 0s
    by: [item]
    aggregates:
      sold: count
      turnover: {sum: price}
      often: {percentile: price, at: 0.95}
  - {name: plain, kind: silver, game: Go}
  - {name: days, kind: gold, source: plain, window: 1d, aggregates: {sold: count}}
"""


def test_a_file_of_streams_is_read_and_written_back() -> None:
    """`apply` takes the file that is written of definitions, with the very same ones, as the store keeps them."""
    found = parse(FILE)
    assert found == (
        SilverDefinition(
            "chess_sold", "Chess", "acme.Sold", 5400, "order.number", (("buyer.email", "hash"), ("name", "drop"))
        ),
        SilverDefinition("all_2048", "2048", None, 86_400),
        SilverDefinition("plain", "Go"),
    )
    assert parse(render(found)) == found
    assert loads(dumps(found)) == found
    assert parse("derived: []") == ()


RULES = """\
rules:
- {name: some, games: [Chess, "2048"], prefixes: [Go], event_types: [acme.v1.Sold, Left], dedupe: {within: 1h}}
- {name: rest, games: all, mask: {email: hash}}
"""


def test_rules_stand_behind_the_streams_of_a_file() -> None:
    """A rule is read, written back and kept as a definition is, and is no stream itself."""
    found = parse(RULES)
    assert found == (
        FlatRule("some", ("Chess", "2048"), ("Go",), ("acme.Sold", "Left"), 3_600),
        FlatRule("rest", prefixes=("",), mask=(("email", "hash"),)),
    )
    assert parse(render(found)) == found
    assert loads_all(dumps(found)) == found
    assert (loads(dumps(found)), loads_rules(dumps(found))) == ((), found)
    both = parse(f"{FILE}{RULES}")
    assert (len(loads(dumps(both))), loads_rules(dumps(both))) == (3, found)
    assert parse(render(both)) == both


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("name: a", "games and prefixes are missing"),
        ("games: all", "name is missing"),
        ("name: a, games: []", "games must be a list with at least one item"),
        ("name: a, games: some", "games must be a list with at least one item"),
        ("name: a, games: all, dedupe: {within: 1h, id: x}", "a rule compares rows by their event id"),
        ("name: a, games: all, kind: silver", "'kind' is not a field of a rule"),
        ("name: a b, games: all", "cannot name a table"),
    ],
)
def test_a_rule_that_does_not_fit_is_a_problem(fields: str, problem: str) -> None:
    """Each problem of a rule is named with its line, and nothing of the file is taken."""
    with pytest.raises(Refused, match=problem):
        parse(f"derived: []\nrules:\n- {{{fields}}}")


def test_no_stream_takes_a_name_that_rules_give() -> None:
    """Names of the two kinds are apart, so that a file applied later takes no table of a rule."""
    name = rule_table_name("a", "b")
    assert len(name) <= 40
    with pytest.raises(Refused, match="is a name of tables that rules make"):
        parse(f"derived:\n- {{name: {name}, kind: silver, game: Go}}")


def test_gold_names_a_silver_stream_of_its_file() -> None:
    """A gold stream carries the definition that it follows from, wherever that stands in the file."""
    plain = SilverDefinition("plain", "Go")
    aggregates = Aggregate("sold", "count"), Aggregate("turnover", "sum", "price"), Aggregate(
        "often", "percentile", "price", 9500
    )  # fmt: skip
    found = parse(GOLD)
    assert found == (
        GoldDefinition("hours", plain, 3600, aggregates, ("item",), 0),
        plain,
        GoldDefinition("days", plain, 86_400, (Aggregate("sold", "count"),)),
    )
    assert parse(render(found)) == found
    assert loads(dumps(found)) == found


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("source: b, window: 1h, aggregates: {n: count}", "no silver stream of this file is named 'b'"),
        ("source: a, window: 7m, aggregates: {n: count}", "window must be such as"),
        ("source: a, window: 2d, aggregates: {n: count}", "window must be such as"),
        ("source: a, window: 0s, aggregates: {n: count}", "window must be such as"),
        ("source: a, window: hour, aggregates: {n: count}", "window must be such as"),
        ("source: a, window: 1h", "aggregates is missing"),
        ("source: a, window: 1h, aggregates: {}", "aggregates must be a mapping"),
        ("source: a, window: 1h, aggregates: {n: sum}", "n must be count, or such as"),
        ("source: a, window: 1h, aggregates: {n: {sum: x, min: x}}", "n must have one of"),
        ("source: a, window: 1h, aggregates: {n: {sum: x, at: 0.5}}", "n must have one of"),
        ("source: a, window: 1h, aggregates: {n: {percentile: x}}", "n must have one of"),
        ("source: a, window: 1h, aggregates: {n: {percentile: x, at: 95}}", "at must be such as"),
        ("source: a, window: 1h, aggregates: {n: {percentile: x, at: nan}}", "at must be such as"),
        ("source: a, window: 1h, aggregates: {n: {mean: x}}", "is not a field of the aggregate n"),
        ("source: a, window: 1h, by: [N], aggregates: {n: count}", "has a column n already"),
        ("source: a, window: 1h, by: [window_end], aggregates: {n: count}", "by cannot have 'window_end'"),
        ("source: a, window: 1h, lateness: 32d, aggregates: {n: count}", "lateness must be at most 31d"),
        ("source: a, game: Go, window: 1h, aggregates: {n: count}", "is not a field of a gold stream"),
    ],
)
def test_a_gold_stream_that_makes_no_sense_is_refused(fields: str, problem: str) -> None:
    """A gold definition that turnout does not understand is refused, with the line where it stands."""
    with pytest.raises(Refused, match=rf"\n  - line 3: .*{problem}"):
        parse(f"derived:\n- {{name: a, kind: silver, game: Go}}\n- {{name: g, kind: gold, {fields}}}")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{name: a, kind: tin, game: Go}", "kind must be one of silver, gold"),
        ("{name: a, game: Go}", "kind is missing"),
        ("{name: ../a, kind: silver, game: Go}", "cannot name a table"),
        ("{name: a, kind: silver, game: Go, dedupe: {within: 0s}}", "within must be such as"),
        ("{name: a, kind: silver, game: Go, dedupe: {within: 32d}}", "within must be such as"),
        ("{name: a, kind: silver, game: Go, dedupe: {id: x}}", "within is missing"),
        ("{name: a, kind: silver, game: Go, mask: {x: blur}}", "a mask must be one of hash, drop"),
        ("{name: a, kind: silver, game: Go, mask: {'x..y': drop}}", "no path of a column"),
        ("{name: a, kind: silver, game: Go, masks: {x: drop}}", "is not a field of a derived stream"),
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(line: str, problem: str) -> None:
    """A definition that turnout does not understand is refused, with the line where it stands."""
    with pytest.raises(Refused, match=rf"1 problem\(s\).*\n  - line 2: .*{problem}"):
        parse(f"derived:\n- {line}")


def test_all_problems_of_streams_come_at_once() -> None:
    """A person corrects a file once, not problem by problem."""
    text = """\
derived:
- {name: a, kind: silver}
- {name: a, kind: silver, game: Go}
- {name: B, kind: bronze, game: Go}
"""
    with pytest.raises(Refused) as refused:
        parse(text)
    lines = [int(each.split()[2].rstrip(":")) for each in str(refused.value).splitlines()[1:]]
    assert lines == [2, 3, 4, 4]


def test_a_stream_says_by_whose_grants_it_is_read() -> None:
    """`grant: own` is read, written back and kept for each kind, and decides about no row of a table."""
    text = """\
derived:
- {name: a, kind: silver, game: Go, grant: own}
- {name: b, kind: gold, source: a, window: 1h, aggregates: {n: count}, grant: own}
- {name: c, kind: silver, game: Go, grant: game}
rules:
- {name: r, games: all, grant: own}
"""
    found = parse(text)
    assert [each.own_grants for each in found] == [True, True, False, True]
    assert parse(render(found)) == found
    assert loads_all(dumps(found)) == found
    for each in loads(dumps(found)):
        assert each.digest == loads(dumps([each]).replace('"own_grants": true, ', ""))[0].digest
    with pytest.raises(Refused, match="grant must be one of game, own"):
        parse(text.replace("grant: game", "grant: all"))
