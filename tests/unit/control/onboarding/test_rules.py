"""Onboarding rules: the file, its plan, and what games get by them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.control.onboarding import rule_proposals, rules_file
from pipeline.control.onboarding.rule_proposals import RulesProposal, plan
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.ingest.name_sketch import sketched
from pipeline.data.ingest.onboarding import Onboarding
from pipeline.demo.samples.supported import payload_schema
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Roles, Settings
from pipeline.store import audit
from pipeline.store import onboarding as onboarding_store
from pipeline.store.assignments import read_assignments
from pipeline.store.games import known_priorities, record_seen, register_group
from pipeline.store.groups import read_groups, set_desired_state
from pipeline.store.onboarding_rules import OnboardingRule, read_rules
from tests.onboarding_world import give_rules, rule, rule_set

NOW = 1_800_000_000.0
SETTINGS = Settings()
FILE = """\
version: 1
rules:
  - name: studio-a
    match:
      names: [Chess, 2048]
      prefixes: [studio-a/]
    group: a
    priority: high
    policies: [incompatible=side-column]
    readers: [analysts]
    max_new_per_hour: 3
  - name: others
    match: {prefixes: [studio-]}
"""


TYPES = """\
version: 1
rules:
  - name: some
    match: {prefixes: [studio-a/]}
    event_types: [acme.v1.Sold, Bought]
  - name: all
    match: {prefixes: [studio-b/, studio-a/secret]}
    event_types: all
"""


def applied(engine: Engine, text: str, actor: str = "ann", settings: Settings = SETTINGS) -> RulesProposal:
    proposal = plan(settings, engine, text, actor)
    rule_proposals.apply(settings, engine, proposal, actor, "a new studio")
    return proposal


def test_a_file_is_read_whole_and_written_back() -> None:
    """`list` prints the file that `apply` takes, and names such as 2048 need no quotes."""
    rules = rules_file.parse(FILE)
    assert rules[0] == OnboardingRule(
        "studio-a", ("Chess", "2048"), ("studio-a/",), "a", "high", (("incompatible", "side-column"),), ("analysts",), 3
    )
    assert rules_file.parse(rules_file.render(rules)) == rules
    assert rules_file.parse("version: 1\nrules: []\n") == ()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # a command ends, and its connections with it
def test_what_is_listed_is_applied_without_a_change(engine: Engine, tmp_path: Path) -> None:
    """A name with a space that does not break, or of joined emoji, stays the same through the file."""
    before = give_rules(engine, rule("Jeu\u00a0!", "👨\u200d👩", "Überfall", "a\\u200d"), rule("ü", name="plain"))
    listed = CliRunner().invoke(cli, ["games", "rules", "list", "--env-dir", str(tmp_path)])
    file = tmp_path / "rules.yml"
    file.write_bytes(listed.stdout_bytes)
    assert not plan(SETTINGS, engine, file.read_text("utf-8"), "bob").changes
    assert read_rules(engine) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("version: 2\nrules: []", "line 1: write version: 1"),
        ("version: 1", "rules is missing"),
        ("version: 1\nrules:\n- name: a\n", "line 3: match is missing"),
        ("version: 1\nrules:\n- name: a b\n  match: {names: [x]}", "line 3: 'a b' cannot name a rule"),
        ("version: 1\nrules:\n- name: a\n  match: {owners: [x]}", "line 4: nothing says who owns a name"),
        ("version: 1\nrules:\n- name: a\n  match: {names: [x]}\n- name: a\n  match: {names: [y]}", "already in line 3"),
        ("version: 1\nrules:\n- name: a\n  match: {names: [x]}\n- name: b\n  match: {names: [x]}", "the name 'x' is"),
        ("version: 1\nrules:\n- name: a\n  match: {names: [x]}\n  priority: top", "line 5: priority must be one of"),
        ("version: 1\nrules:\n- name: a\n  match: {names: [x]}\n  policies: [add=x]", "the policies of add are"),
        ("version: 1\nrules:\n- name: a\n  match: {prefixes: ['']}", "a prefix is empty"),
        ("version: 1\nrules:\n- name: a\n  match: {names: [x]}\n  max_new_per_hour: 0", "a whole number from 1"),
        ("version: 1\nrules:\n- name: a\n  match: {names: [x]}\n  event_types: some", "event_types must be all, or"),
        ("version: 1\nrules:\n- name: a\n  match: {names: [x]}\n  event_types: ['*']", "write event_types: all"),
    ],
)
def test_each_mistake_has_its_line(text: str, expected: str) -> None:
    """A rule that would do something else than its author meant is not applied."""
    with pytest.raises(Refused, match=expected):
        rules_file.parse(text)


def test_the_first_match_is_the_exact_name_and_then_the_longest_prefix() -> None:
    """The order of the rules in the file decides nothing."""
    rules = rule_set(
        rule(name="long", prefixes=("pp",)), rule("ppx", name="exact"), rule(name="short", prefixes=("p", "ppxx"))
    )
    found = {name: match.rule.name for name in ("ppx", "ppy", "pq", "ppxxa") if (match := rules.match(name))}
    assert found == {"ppx": "exact", "ppy": "long", "pq": "short", "ppxxa": "short"}
    assert rules.match("x") is None


def test_a_rule_by_name_alone_counts_before_one_by_format() -> None:
    """Of rules by format the exact name counts, then the longest prefix, then one for all; none without a format."""
    rules = rule_set(
        rule(name="any", formats=("json", "avro")),
        rule("s/one", name="exact", formats=("json",)),
        rule(name="long", prefixes=("s/o",), formats=("json",)),
        rule(name="plain", prefixes=("s/one-",)),
    )
    cases = {
        ("s/one", "json"): "exact", ("s/one", "avro"): "any", ("s/one", "protobuf"): None, ("s/one", None): None,
        ("s/other", "json"): "long", ("Chess", "json"): "any", ("s/one-two", "json"): "plain",
        ("s/one-two", None): "plain",
    }  # fmt: skip
    found = {each: rules.match(*each) for each in cases}
    assert {each: None if match is None else match.rule.name for each, match in found.items()} == cases
    assert rules.prefixes == ("s/one-",), "ingest makes games by names alone"
    assert rules.names == ()


@pytest.mark.parametrize(("match", "expected"), [
    ("{formats: [json], prefixes: [s/]}", None),
    ("{formats: [xml]}", "formats must be a list of"),
    ("{formats: []}", "formats"),
    ("{owners: [ann]}", "nothing says who owns a name before it is a game"),
    ("{}", "match needs names, prefixes or formats"),
])  # fmt: skip
def test_a_rule_matches_by_format_and_never_by_owner(match: str, expected: str | None) -> None:
    """A file with formats is read and written back; an owner, which nothing knows before a game, is refused."""
    text = f"version: 1\nrules:\n  - name: a\n    match: {match}\n  - name: b\n    match: {{prefixes: [s/]}}\n"
    if expected is None:
        rules = rules_file.parse(text)
        assert rules[0].formats == ("json",)
        assert rules_file.parse(rules_file.render(rules)) == rules
        return
    with pytest.raises(Refused, match=expected):
        rules_file.parse(text)


def test_a_format_has_one_rule_for_every_name() -> None:
    """The order of a file never decides between two rules."""
    one = "  - name: {}\n    match: {{formats: [json]}}\n"
    with pytest.raises(Refused, match="the format 'json' is already in line"):
        rules_file.parse(f"version: 1\nrules:\n{one.format('a')}{one.format('b')}")


def test_a_registered_game_gets_the_rule_of_its_format(engine: Engine) -> None:
    """A name with a schema is a game at once; a rule for the schema's format gives it group, priority and readers."""
    give_rules(engine, rule(name="binary", formats=("protobuf",), priority="high"))
    LocalRegistry(engine).register("Chess", *payload_schema("racing", 1))
    Onboarding(engine, SETTINGS.onboarding).admit(NOW)
    (made,) = onboarding_store.onboarded(engine)
    assert (made.candidate.how, made.candidate.rule) == ("schema", "binary")


def test_event_types_of_a_rule_are_names_or_all() -> None:
    """A rule names types as people do, by full name or last segment; of another package's type a full name says no."""
    rules = rules_file.parse(TYPES)
    assert rules_file.parse(rules_file.render(rules)) == rules
    assert [rules[0].accepts(each) for each in ("acme.Sold", "shop.Bought", "shop.Sold")] == [True, True, False]
    assert [rules[1].accepts(each) for each in ("acme.Sold", "x")] == [True, True]
    assert not rules_file.parse(FILE)[0].accepts("acme.Sold")


def test_a_plan_shows_the_difference_and_whom_it_concerns(engine: Engine) -> None:
    """A person sees which waiting names become games; applied again it changes nothing."""
    register_group(engine, "a", placing())
    made = sketched(pa.array(["studio-a/x", "spam"]), pa.array([7, 9]), NOW, 100)
    onboarding_store.write_sketch(engine, made.dumps())
    proposal = applied(engine, FILE)
    assert proposal.lines[0].startswith("+ studio-a: names Chess, 2048; prefixes studio-a/; group a; priority high")
    assert [each.game for each in proposal.coming] == ["studio-a/x"]
    assert proposal.lines[-1] == "1 waiting names become games with their next rows. Games that exist stay as they are."
    again = plan(SETTINGS, engine, FILE, "bob")
    assert (again.changes, again.lines) == (False, ("Nothing to change: these rules are in force.",))
    changed = plan(SETTINGS, engine, FILE.replace("group: a", "group: a\n    #").replace("high", "low"), "bob")
    assert changed.lines[0] == "~ studio-a: priority high → low"
    assert (changed.rules[0].changed_by, changed.rules[1].changed_by) == ("bob", "ann")
    assert plan(SETTINGS, engine, "version: 1\nrules: []", "bob").lines[:2] == ("- studio-a", "- others")
    entries = [(each.action, each.actor, each.phase) for each in audit.entries(engine)]
    assert entries == [("apply onboarding rules", "ann", phase) for phase in ("begun", "ended")]


def test_of_two_people_who_apply_at_once_the_second_looks_again(engine: Engine) -> None:
    """Rules are a compare-and-set on what was shown."""
    register_group(engine, "a", placing())
    stale = plan(SETTINGS, engine, FILE, "bob")
    give_rules(engine, rule("x"))
    with pytest.raises(Refused, match="Other rules were applied after you looked"):
        rule_proposals.apply(SETTINGS, engine, stale, "bob", "late")


def test_a_group_that_does_not_exist_is_refused(engine: Engine) -> None:
    """A rule never waits for a group that nobody makes."""
    with pytest.raises(Refused, match=r"No such group: a\. Create it first"):
        plan(SETTINGS, engine, FILE, "ann")


def test_readers_of_a_rule_need_an_access_admin(engine: Engine) -> None:
    """Nobody grants access by the way of a rule who may not grant it."""
    register_group(engine, "a", placing())
    settings = Settings(roles=Roles(movers=("ann", "eve"), access_admins=("ann",)))
    with pytest.raises(Refused, match="'eve' may not apply rules with readers"):
        applied(engine, FILE, "eve", settings)
    with pytest.raises(Refused, match="'oz' may not apply onboarding rules"):
        applied(engine, FILE, "oz", settings)
    applied(engine, FILE, "ann", settings)
    assert applied(engine, FILE.replace("studio-]", "studio_]"), "eve", settings).changes


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ("{prefixes: [studio-a/secret/]}", "{prefixes: [studio-b/]}"),
        ("{names: [studio-a/x]}", "{names: [studio-b/x]}"),
        ("{prefixes: [studio-a/x], names: [studio-a/x]}", "{names: [studio-a/x]}"),
    ],
)
def test_names_that_fall_to_a_rule_with_readers_need_an_access_admin(engine: Engine, before: str, then: str) -> None:
    """Who may not grant opens no game to the readers of an unchanged rule by taking away the rule before it."""
    register_group(engine, "a", placing())
    settings = Settings(roles=Roles(movers=("ann", "eve"), access_admins=("ann",)))
    files = [FILE.replace("{prefixes: [studio-]}", match) for match in (before, then)]
    applied(engine, files[0], "ann", settings)
    with pytest.raises(Refused, match="'eve' may not apply rules with readers: it needs the role access_admin"):
        applied(engine, files[1], "eve", settings)
    assert applied(engine, files[1], "ann", settings).changes


def test_a_game_begins_with_the_group_and_priority_of_its_rule_and_keeps_its_own(engine: Engine) -> None:
    """It is placed by the rule once; a later rule, and a person's change, stay as they are."""
    for name in ("a", "b"):
        register_group(engine, name, placing())
    give_rules(engine, rule("one", "two", group="b", priority="high"))
    Onboarding(engine, SETTINGS.onboarding).admit(NOW)
    record_seen(engine, {game_key("one"): "one"}, 1, placing())
    give_rules(engine, rule("one", "two", group="a", priority="low"))
    record_seen(engine, {game_key("one"): "one", game_key("two"): "two"}, 2, placing())
    there = read_assignments(engine)
    assert (there[game_key("one")].group, there[game_key("two")].group) == ("b", "a")
    assert known_priorities(engine) == {game_key("one"): "high", game_key("two"): "low"}


def test_a_game_goes_elsewhere_while_its_rules_group_takes_none(engine: Engine) -> None:
    """A group that is drained keeps no game waiting."""
    for name in ("a", "b"):
        register_group(engine, name, placing())
    give_rules(engine, rule("one", group="b"))
    Onboarding(engine, SETTINGS.onboarding).admit(NOW)
    with engine.begin() as connection:
        set_desired_state(connection, "b", read_groups(engine)["b"].version, "drained")
    record_seen(engine, {game_key("one"): "one"}, 1, placing())
    assert read_assignments(engine)[game_key("one")].group == "a"


def test_a_rules_policies_count_where_nobody_chooses_others(engine: Engine) -> None:
    """The first schema of a name is planned by the policies of its rule, as the plan shows."""
    give_rules(engine, rule("racer", policies=(("remove", "quarantine"),)))
    registry, second = LocalRegistry(engine), payload_schema("racing", 1)
    for game in ("racer", "other"):
        registry.register(game, *payload_schema("racing", 2))
    given = Policies((("remove", "keep"),))
    planned = [registry.plan(Registration(game, *second)) for game in ("racer", "other")]
    planned.append(registry.plan(Registration("racer", *second, given)))
    assert [each.placement.quarantined is None for each in planned] == [False, True, True]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # a command ends, and its connections with it
def test_the_commands_plan_apply_and_list(engine: Engine, tmp_path: Path) -> None:
    """`turnout games rules …` has the manners of `grants plan | apply`, for people and for scripts."""
    register_group(engine, "a", placing())
    file = tmp_path / "rules.yml"
    file.write_text(FILE)

    def turnout(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["games", "rules", *arguments, "--env-dir", str(tmp_path)])

    planned = turnout("plan", str(file)).output
    assert planned.splitlines()[-1].startswith("plan ")
    stale = turnout("apply", str(file), "--reason", "new", "--plan", "0000")
    assert isinstance(stale.exception, Refused)
    done = turnout("apply", str(file), "--reason", "new", "--plan", planned.split()[-1], "--json")
    assert json.loads(done.stdout)["number"] == 1
    assert "Nothing to change" in turnout("apply", str(file), "--reason", "new").output
    assert rules_file.parse(turnout("list").output) == rules_file.parse(FILE)
    assert json.loads(turnout("list", "--json").output)["rules"][0]["changed_by"]
    assert read_rules(engine).number == 1
