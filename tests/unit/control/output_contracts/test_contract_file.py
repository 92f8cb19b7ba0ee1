"""The file of output contracts: read whole, or refused with every problem and its line."""

import pytest

from pipeline.base.errors import Refused
from pipeline.control.output_contracts.contract_file import parse, render
from pipeline.data.output_contracts.rules import ContractRule, Freshness, OutputContract, RuleNames, dumps, loads

FILE = """\
version: 1
contracts:
  - name: sales
    games: [Chess, 2048]
    prefixes: [studio-a/]
    onboarding_rules: [studio-b]
    event_types: [acme.v1.Sold]
    readers: [BI, "daily revenue"]
    rules:
      - {column: price, type: integer, required: true, min: 0, max: 1e6, action: quarantine}
      - {column: sold, min: 2026-01-31, max: "2026-02-28T12:00:00.5+01:00"}
      - {name: shop, action: stop, column: "shop.name", pattern: '[a-z]+', min_length: 2, max_length: 40}
      - {column: "items[].kind", allowed: [sword, "1", 1, 0.5, true], forbidden: [shield]}
  - {name: own, games: [Chess], protovalidate: quarantine}
  - {name: fresh, games: [Chess], freshness: {within: 10m, newest_within: 1d}, unique: sale.id}
"""


def test_a_file_is_read_and_written_back() -> None:
    """`apply` takes the file that `show` prints, with the very same contracts."""
    contract, own, fresh = parse(FILE)
    assert contract == OutputContract(
        "sales", ("Chess", "2048"), ("studio-a/",), ("acme.Sold",),
        (
            ContractRule("price", "price", "quarantine", required=True, type="integer", min=0, max=1e6),
            ContractRule("sold", "sold", min="2026-01-31", max="2026-02-28T12:00:00.5+01:00"),
            ContractRule("shop", "shop.name", "stop", pattern="[a-z]+", min_length=2, max_length=40),
            ContractRule("items[].kind", "items[].kind", allowed=("sword", "1", 1, 0.5, True), forbidden=("shield",)),
        ),
        ("BI", "daily revenue"), (RuleNames("studio-b"),),
    )  # fmt: skip
    assert own == OutputContract("own", ("Chess",), protovalidate="quarantine")
    assert fresh == OutputContract("fresh", ("Chess",), freshness=Freshness(600, 86_400), unique="sale.id")
    assert parse(render((contract, own, fresh))) == (contract, own, fresh) == loads(dumps((contract, own, fresh)))
    assert parse("version: 1\ncontracts: []") == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{column: price, min: 0, action: drop}", "action must be one of warn, quarantine, stop"),
        ("{column: price}", "checks nothing"),
        ("{column: price, required: false}", "checks nothing"),
        ("{min: 0}", "column is missing"),
        ("{column: 'a..b', min: 0}", "no path of a column"),
        ("{column: price, min: abc}", "min must be a number"),
        ("{column: price, min: .nan}", "min must be a number"),
        ("{column: price, max: 1e999}", "max must be a number"),
        ("{column: price, min: 2, max: 1}", "max is less than min"),
        ("{column: price, min_length: 0}", "min_length must be a whole number"),
        ("{name: code, column: price, pattern: '(['}", r"rule code: '\(\[' is no pattern of RE2, .*: missing \]: \[$"),
        ("{column: price, pattern: '\\Qa'}", r"rule price: .* is no pattern of RE2, which says: missing \)"),
        ("{column: price, min: 2026-02-30}", "min: there is no time '2026-02-30'"),
        ("{column: price, min: 2026-02-01, max: 5}", "must both be numbers, or both times"),
        ("{column: price, min: 2026-02-01, max: '2026-01-31T23:59:59+00:30'}", "max is less than min"),
        ("{column: price, allowed: [no]}", "one of allowed must be"),
        ("{column: price, type: money}", "type must be one of"),
        ("{column: price, required: yes}", "required must be true or false"),
        ("{column: price, minimum: 1}", "'minimum' is not a field of a rule"),
        ("price", "a rule must be a mapping"),
    ],
)
def test_a_rule_with_an_error_is_refused(line: str, problem: str) -> None:
    """A rule that turnout does not understand is refused, with the line where it stands."""
    with pytest.raises(Refused, match=rf"1 problem\(s\).*\n  - line 5: .*{problem}"):
        parse(f"version: 1\ncontracts:\n- name: a\n  games: [Chess]\n  rules: [{line}]")


@pytest.mark.parametrize(
    ("promise", "problem"),
    [
        ("unique: 'items[].id'", r"'items\[\]\.id' is no path of a column"),
        ("freshness: {within: 59s}", "within must be at least 1m"),
        ("freshness: {newest_within: soon}", "newest_within must be such as 90s"),
        ("freshness: {since: 10m}", "'since' is not a field of freshness"),
        ("freshness: {}", "freshness promises nothing; add within or newest_within"),
        ("freshness: 10m", "freshness must be a mapping"),
    ],
)
def test_a_promise_of_a_whole_table_with_an_error_is_refused(promise: str, problem: str) -> None:
    """A promise that nobody can judge is refused, with the line where it stands."""
    with pytest.raises(Refused, match=rf"1 problem\(s\).*\n  - line 5: .*{problem}"):
        parse(f"version: 1\ncontracts:\n- name: a\n  games: [Chess]\n  {promise}")


@pytest.mark.parametrize("word", ["off", "warn", "quarantine", "stop"])
def test_rules_of_definitions_have_a_switch(word: str) -> None:
    """YAML reads off as false, and a person means the word; without it the rules of definitions do nothing."""
    contract = "version: 1\ncontracts:\n- {name: a, games: [Chess], rules: [{column: x, min: 1}]"
    (found,) = parse(f"{contract}, protovalidate: {word}}}")
    assert (found.protovalidate, parse(contract + "}")[0].protovalidate) == (word, "off")
    with pytest.raises(Refused, match="line 3: protovalidate must be one of off, warn, quarantine, stop"):
        parse(f"{contract}, protovalidate: yes}}")


def test_all_problems_come_at_once() -> None:
    """A person corrects a file once, not problem by problem."""
    text = """\
version: 2
contracts:
- {name: a, rules: [{column: x, min: q}]}
- name: a
  games: [g]
  rules:
  - {column: x, required: true}
  - {column: x, min: 1}
  - {name: x, column: y, min: 1, action: halt}
"""
    with pytest.raises(Refused) as refused:
        parse(text)
    lines = [int(each.split()[2].rstrip(":")) for each in str(refused.value).splitlines()[1:]]
    assert lines == [1, 3, 3, 4, 8, 9, 9]
