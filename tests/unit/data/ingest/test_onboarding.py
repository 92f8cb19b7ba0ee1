"""Which names become games, and that other names cost nothing that grows."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, insert

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.data.ingest import pending
from pipeline.data.ingest.name_sketch import sketched
from pipeline.data.ingest.onboarding import Onboarding, OnboardingRoll, confusable_form, onboarding_candidate
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Onboarding as Limits
from pipeline.settings.tree import Paths, load
from pipeline.store import onboarding as store
from pipeline.store.database.states import OnboardedBy
from pipeline.store.database.tables import registrations, schemas
from pipeline.store.games import record_seen
from pipeline.store.onboarding import Onboarded, OnboardingCandidate, RefusedName
from pipeline.store.onboarding_rules import RuleSet
from tests.onboarding_world import give_rules, rule, rule_set

NOW = 1_800_000_000.0
LIMITS = Limits()


@pytest.fixture(autouse=True)
def schema(engine: Engine) -> None:
    with engine.begin() as connection:
        row = {"fingerprint": "f", "format": "protobuf", "message": "m", "parts": b"", "created_at": NOW}
        connection.execute(insert(schemas).values(schema_id=1, **row))


def _register(engine: Engine, *names: str, keys: Sequence[str] = ()) -> None:
    """Give games a schema, as the registry does."""
    rows = [
        {"game_key": key, "game": name, "version": 1, "schema_id": 1, "created_at": NOW}
        for name, key in zip(names, keys or [game_key(name) for name in names], strict=True)
    ]
    with engine.begin() as connection:
        connection.execute(insert(registrations), rows)


def _candidate(name: str, how: OnboardedBy = "schema", prefix: str | None = None) -> OnboardingCandidate:
    """Return a candidate; one by a prefix has a rule of that name."""
    return OnboardingCandidate(game_key(name), name, how, prefix, rule=prefix)


def _by_prefixes(*prefixes: str, hourly: int = 10) -> RuleSet:
    """Return a rule for each prefix, of that name."""
    return rule_set(*(rule(name=each, prefixes=(each,), max_new_per_hour=hourly) for each in prefixes))


def _reported(rows: dict[str, int], limits: Limits = LIMITS, **candidates: list[str]) -> dict[str, Any]:
    """Return what a task tells of names that are no games."""
    made = sketched(pa.array(list(rows)), pa.array(list(rows.values())), NOW, limits.max_pending)
    return {"sketch": made.dumps(), "candidates": candidates}


def _names(engine: Engine) -> set[str]:
    return set(store.onboarded_names(engine).values())


# ------------------------------------------------------------------------------------------------------------ the plan


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Foo", "foo", True),
        ("Foo", "FOO", True),
        ("café", "cafe\u0301", True),
        ("Chess", "\uff23\uff48\uff45\uff53\uff53", True),
        ("chess", "ch\u200bess", True),
        ("chess", "\u202echess", True),
        ("a b", "a\u00a0b", True),
        ("straße", "STRASSE", True),
        ("café", "cafe", False),
        ("chess", "chess 2", False),
    ],
)
@pytest.mark.proves("G84")
def test_names_that_people_confuse_are_flagged_and_stay_apart(one: str, other: str, alike: bool) -> None:
    """Case twins, NFC and NFD, full width and invisible marks: two games, two keys, and a person is told (C4)."""
    assert game_key(one) != game_key(other)
    assert alike is (confusable_form(one) == confusable_form(other))
    roll = OnboardingRoll([Onboarded(1, _candidate(one), NOW)])
    assert ([one] if alike else []) == roll.confusable(other)
    assert roll.confusable(one) == []
    assert [_candidate(other)] == roll.plan([_candidate(other)], LIMITS, RuleSet(), NOW)  # who registers it means it
    by_prefix = _candidate(other, "prefix", other[0])
    assert ([] if alike else [by_prefix]) == roll.plan([by_prefix], LIMITS, _by_prefixes(other[0]), NOW)


@pytest.mark.parametrize(
    ("candidate", "limits", "hourly", "expected"),
    [
        (_candidate("new"), LIMITS, 10, None),
        (_candidate("old"), LIMITS, 10, None),
        (_candidate("spam"), LIMITS, 10, "ann refused it"),
        (_candidate("spam", "name"), LIMITS, 10, "ann refused it"),
        (_candidate("spam", "approval"), LIMITS, 10, None),
        (OnboardingCandidate(game_key("old"), "twin of old", "approval"), LIMITS, 10, "belongs to the game 'old'"),
        (_candidate("new", "approval"), replace(LIMITS, max_games=3), 10, "there are 3 games"),
        (_candidate("p 3", "prefix", "p"), LIMITS, 3, None),
        (_candidate("p 3", "prefix", "p"), LIMITS, 1, "the rule 'p' has used up its max_new_per_hour of 1"),
        (_candidate("q 1", "prefix", "q"), LIMITS, 1, None),
        (_candidate("r 1", "prefix", "r"), LIMITS, 10, "its rule is not in force any more"),
        (_candidate("p 3", "prefix", "p"), replace(LIMITS, max_games=4), 10, "fill their half"),
        (_candidate("new"), replace(LIMITS, max_games=4), 10, None),
        (_candidate("P 1", "prefix", "P"), LIMITS, 10, "it looks like 'p 1'"),
    ],
)
def test_why_a_name_does_not_become_a_game(
    candidate: OnboardingCandidate, limits: Limits, hourly: int, expected: str | None
) -> None:
    """Each limit has its own sentence; a registered schema meets neither a rule's nor the prefixes' limit."""
    earlier = [_candidate("old"), _candidate("p 1", "prefix", "p"), _candidate("p 2", "prefix", "p")]
    ages = [NOW - 9_000, NOW - 3_601, NOW - 3_599]
    games = [
        Onboarded(number, candidate, at) for number, (candidate, at) in enumerate(zip(earlier, ages, strict=True), 1)
    ]
    roll = OnboardingRoll(games, {"spam": RefusedName("spam", "ann", None, NOW)})
    reported = roll.obstacle(candidate, limits, _by_prefixes("p", "P", "q", hourly=hourly), NOW)
    assert (expected is None) == (reported is None)
    assert (expected or "") in (reported or "")


_WISHES = st.lists(
    st.builds(
        _candidate,
        st.sampled_from(["a", "A", "b", "c", "d", "e", "f"]),
        st.sampled_from(["schema", "name", "approval"]),
    )
    | st.builds(_candidate, st.sampled_from(["pa", "pb", "pc", "qa", "qb"]), st.just("prefix"), st.sampled_from("pq")),
    max_size=20,
)


@settings(deadline=None)
@given(_WISHES, st.integers(1, 8), st.integers(0, 3))
def test_a_plan_keeps_every_limit_and_once_done_is_empty(
    candidates: list[OnboardingCandidate], most: int, hourly: int
) -> None:
    """No plan makes too many games, nor one key twice; after it was applied, planning again gives nothing."""
    limits, rules = Limits(max_games=most), _by_prefixes("p", "q", hourly=hourly)
    roll = OnboardingRoll()
    granted = roll.plan(candidates, limits, rules, NOW)
    assert not roll.games
    assert len(granted) <= most
    assert len({candidate.game_key for candidate in granted}) == len(granted)
    by_prefix = Counter(candidate.prefix for candidate in granted if candidate.prefix)
    assert all(count <= hourly for count in by_prefix.values())
    assert by_prefix.total() <= (most + 1) // 2
    for candidate in granted:
        roll.add(candidate, NOW)
    assert roll.plan(candidates, limits, rules, NOW) == []


# ---------------------------------------------------------------------------------------------------------- the driver


def test_registered_and_allowed_names_are_games_at_once(engine: Engine) -> None:
    """A schema or a name in a rule needs nobody's look: the next micro-batch knows the game, without a restart."""
    _register(engine, "racer")
    ingest = Onboarding(engine, LIMITS)
    give_rules(engine, rule("puzzle", "racer"))
    assert {"racer": game_key("racer"), "puzzle": game_key("puzzle")} == ingest.known(ingest.admit(NOW))
    _register(engine, "late")
    assert {"racer", "puzzle", "late"} == set(ingest.known(ingest.admit(NOW)))
    assert [(each.candidate.game, each.candidate.how, each.candidate.rule) for each in store.onboarded(engine)] == [
        ("racer", "schema", "test"),
        ("puzzle", "name", "test"),
        ("late", "schema", None),
    ]
    give_rules(engine)
    assert {"racer", "puzzle", "late"} == set(ingest.known(ingest.admit(NOW))), "a game stays one"


def test_a_number_stands_for_the_same_games_for_ever(engine: Engine) -> None:
    """Law L5: a repeated micro-batch judges names as its first attempt did, whatever became a game meanwhile."""
    _register(engine, "one")
    ingest = Onboarding(engine, LIMITS)
    pinned = ingest.admit(NOW)
    pending.approve(engine, LIMITS, "two", "ann", None, NOW)
    later = ingest.admit(NOW)
    assert {"one"} == set(ingest.known(pinned))
    assert {"one", "two"} == set(ingest.known(later))
    restarted = Onboarding(engine, LIMITS)
    assert {"one"} == set(restarted.known(pinned))
    assert restarted.known(0) == {}


def test_an_older_store_is_refused(engine: Engine) -> None:
    """A store that lacks games a micro-batch was begun with would refuse their rows, so it is not used."""
    with pytest.raises(Refused, match=r"games up to number 7, but the control store has fewer.*Restore"):
        Onboarding(engine, LIMITS).known(7)


@pytest.mark.proves("G86")
def test_a_registered_game_is_not_starved_by_a_flood(engine: Engine) -> None:
    """Names that flood an allowed prefix take neither the hour of another prefix nor the place of a registered game."""
    limits = Limits(max_games=8)
    give_rules(engine, *_by_prefixes("bad/", "good/", hourly=3).rules)
    ingest = Onboarding(engine, limits)
    for hour in range(5):
        flood = [f"bad/{hour} {number}" for number in range(50)]
        reported = _reported(dict.fromkeys(flood, 9), limits, **{"bad/": flood})
        ingest.note(reported, NOW + 3_600 * hour)
        assert len(_names(engine)) == min(3 * hour + 3, 4)
    ingest = Onboarding(engine, replace(limits, max_games=10))
    ingest.note(_reported({"good/x": 1}, limits, **{"good/": ["good/x"], "bad/": flood}), NOW + 4 * 3_600)
    assert "good/x" in _names(engine)
    _register(engine, "real")
    assert "real" in ingest.known(ingest.admit(NOW))


def test_a_name_that_was_refused_waits_for_an_approval(engine: Engine) -> None:
    """A refusal outranks schema, name and prefix; approving the name undoes it, with the approver recorded."""
    pending.reject(engine, "spam", "ann", "no such game", NOW)
    _register(engine, "spam")
    limits = LIMITS
    give_rules(engine, rule("spam", prefixes=("sp",)))
    ingest = Onboarding(engine, limits)
    ingest.note(_reported({"spam": 5, "span": 2}, limits, sp=["spam"]), NOW)
    assert ingest.known(ingest.admit(NOW)) == {}
    ingest.close()
    seen = pending.pending(engine, limits, NOW)
    assert [each.game for each in seen.names] == ["span"]
    assert [each.game for each in seen.refused] == ["spam"]
    pending.approve(engine, limits, "spam", "bob", "it is one", NOW)
    assert {"spam"} == set(ingest.known(ingest.admit(NOW)))
    assert pending.pending(engine, limits, NOW).refused == ()
    game = pending.games(engine)[0]
    assert (game.how, game.by, game.reason) == ("approval", "bob", "it is one")


@pytest.mark.proves("G83")
def test_a_key_never_belongs_to_two_names(engine: Engine) -> None:
    """A forced collision (C7): the second name is refused on every way in, so it never reaches the first's table."""
    key = game_key("second")
    store.onboard(engine, [OnboardingCandidate(key, "first", "schema")], NOW)
    _register(engine, "second", keys=[key])
    limits = LIMITS
    give_rules(engine, rule("second", prefixes=("sec",)))
    ingest = Onboarding(engine, limits)
    ingest.note(_reported({"second": 3}, limits, sec=["second"]), NOW)
    assert {"first": key} == ingest.known(ingest.admit(NOW))
    ingest.close()
    waiting = pending.pending(engine, limits, NOW).names
    assert [each.game for each in waiting] == ["second"]
    assert "belongs to the game 'first'" in waiting[0].why
    with pytest.raises(Refused, match=r"'second' cannot become a game: its key .* belongs to the game 'first'"):
        pending.approve(engine, limits, "second", "ann", None, NOW)
    assert store.approve(engine, OnboardingCandidate(key, "second", "approval"), NOW) is False
    store.onboard(engine, [OnboardingCandidate(key, "second", "schema"), _candidate("third")], NOW)
    assert {"first", "third"} == _names(engine)


def test_slugs_that_clash_are_kept_apart_by_the_hash() -> None:
    """Names made to share the readable part of their key, also when it is cut off, have keys of their own (C6)."""
    clashing = ["a b", "a-b", "A_B", " a.b ", "a/b", "ä b", *("x" * length for length in range(40, 60))]
    assert len({game_key(name).rpartition("_")[0] for name in clashing}) == 2
    assert len({game_key(name) for name in clashing}) == len(clashing)


def test_names_beyond_the_list_are_counted(engine: Engine) -> None:
    """The number of names that wait is that of all of them, and not of those that the bounded list has room for."""
    limits = Limits(max_pending=20)
    ingest = Onboarding(engine, limits)
    ingest.note(_reported({f"name {each}": 9 for each in range(20)}, limits), NOW)
    assert pending.pending(engine, limits, NOW).beyond == 0, "the list has them all"
    ingest.note(_reported({f"other {each}": each + 1 for each in range(3_000)}, limits), NOW + 60)
    seen = pending.pending(engine, limits, NOW + 60)
    assert len(seen.names) == 20
    assert seen.beyond == pytest.approx(3_000, rel=0.05)
    assert f"about {seen.beyond:,} more names wait" in pending.render_pending(seen, 2)


def test_what_waits_is_told_with_its_reason(engine: Engine) -> None:
    """The busiest come first, each with why it waits and what it may be taken for; names are printed escaped."""
    _register(engine, "Chess")
    limits = LIMITS
    give_rules(engine, rule(prefixes=("studio/",), max_new_per_hour=0))
    ingest = Onboarding(engine, limits)
    ingest.admit(NOW)
    ingest.note(_reported({"chess": 3, "studio/x": 7, "evil\n\u202eemag": 5, "Chess": 1}, limits), NOW)
    seen = pending.pending(engine, limits, NOW)
    assert [each.game for each in seen.names] == ["studio/x", "evil\n\u202eemag", "chess"]
    assert [
        next(word for word in ("max_new_per_hour", "no registered schema") if word in each.why) for each in seen.names
    ] == ["max_new_per_hour", "no registered schema", "no registered schema"]
    assert seen.names[2].looks_like == ("Chess",)
    assert (seen.distinct, seen.rows) == (4, 16)
    text = pending.render_pending(seen, 2)
    assert "'evil\\n\\u202eemag'" in text
    assert "and 1 more" in text
    assert "LOOKS LIKE" not in pending.render_games(pending.games(engine))
    pending.approve(engine, limits, "chess", "ann", None, NOW)
    assert "'chess'  LOOKS LIKE 'Chess'" in pending.render_games(pending.games(engine))


def test_a_game_of_which_nothing_has_arrived_says_so(engine: Engine) -> None:
    """A name with a schema is listed as a game before ingest has looked, unless it was rejected or its key is taken."""
    _register(engine, "spam", "later")
    pending.reject(engine, "spam", "ann", "no such game", NOW)
    pending.approve(engine, LIMITS, "come", "ann", None, NOW)
    record_seen(engine, {game_key("come"): "come"}, 3, placing())
    before = pending.games(engine)
    assert [(each.game, each.how, each.arrived) for each in before] == [
        ("come", "approval", True), ("later", "schema", False),
    ]  # fmt: skip
    lines = pending.render_games(before).split("\n")
    assert [line.endswith("nothing has arrived") for line in lines] == [False, True, False]
    ingest = Onboarding(engine, LIMITS)
    ingest.admit(NOW)
    assert [(each.game, each.how, each.arrived) for each in pending.games(engine)] == [
        ("come", "approval", True), ("later", "schema", False),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "x" * 257, "a\0b", "bytes \udcff"])
def test_what_cannot_name_a_game_is_not_approved(engine: Engine, name: str) -> None:
    """The command line takes any bytes; a name that no wrapper can carry is refused."""
    with pytest.raises(Refused, match="cannot name a game"):
        pending.approve(engine, LIMITS, name, "ann", None)
    with pytest.raises(Refused, match="cannot name a game"):
        pending.reject(engine, name, "ann", None)


def test_a_name_approved_at_the_same_moment_is_not_rejected(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an approval and a rejection of one name at the same moment one wins: no game is rejected as well."""
    pending.approve(engine, LIMITS, "one", "ann", None)
    monkeypatch.setattr(store, "onboarded_names", lambda _: {})  # what was read before the approval
    with pytest.raises(Refused, match="has just become a game"):
        pending.reject(engine, "one", "bob", None)
    assert store.refusals(engine) == {}


def test_a_game_is_neither_approved_again_nor_refused(engine: Engine) -> None:
    """Both are told instead of done: a game that runs is not stopped by a word about its name."""
    pending.approve(engine, LIMITS, "one", "ann", None)
    with pytest.raises(Refused, match="is already a game"):
        pending.approve(engine, LIMITS, "one", "ann", None)
    with pytest.raises(Refused, match="only waiting names"):
        pending.reject(engine, "one", "ann", None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("r", ("schema", None)), ("n", ("name", None)), ("pp1", ("prefix", "pp")), ("p1", ("prefix", "p")), ("x", None)],
)
def test_the_strongest_right_counts(name: str, expected: tuple[str, str | None] | None) -> None:
    """A schema before a name before the longest prefix that fits; nothing else makes a game by itself."""
    rules = rule_set(rule("n", "r", prefixes=("p",)), rule(name="other", prefixes=("pp", "n")))
    candidate = onboarding_candidate(name, rules, {"r"})
    assert expected == (None if candidate is None else (candidate.how, candidate.prefix))


@pytest.mark.parametrize("name", ["names", "prefixes", "max_new_per_prefix_per_hour"])
def test_settings_that_became_rules_say_what_to_do(tmp_path: Path, name: str) -> None:
    """Somebody's old file is refused with the command that takes its place, and so is a variable."""
    (tmp_path / "turnout.toml").write_text(f"[onboarding]\n{name} = 1\n")
    with pytest.raises(Refused, match=f"onboarding.{name}: is no setting any more.*games rules apply FILE"):
        load(tmp_path, {})
    with pytest.raises(Refused, match=r"onboarding\.names: is no setting any more"):
        load(tmp_path / "none", {"TURNOUT_ONBOARDING__NAMES": '["a"]'})


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # a command ends, and its connections with it
def test_the_commands_act_on_the_store_and_speak_json(engine: Engine, tmp_path: Path) -> None:
    """`turnout games …` approves, refuses and lists by exact name, and its JSON can be read by a script."""
    ingest = Onboarding(engine, LIMITS)
    ingest.note(_reported({"Foo": 2, "foo": 3, "spam": 1}), NOW)

    def turnout(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["games", *arguments, "--env-dir", str(tmp_path)], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    assert "operation" in turnout("approve", "Foo", "--reason", "asked for", "--no-wait")
    tick(ControlContext(load(tmp_path, {})[0], engine, Paths(tmp_path)), KINDS)
    assert "'spam' is rejected" in turnout("reject", "spam")
    listed = json.loads(turnout("list", "--json"))
    assert [(each["game"], each["how"], each["reason"]) for each in listed] == [("Foo", "approval", "asked for")]
    waiting = json.loads(turnout("pending", "--json"))
    assert [(each["game"], each["rows"], each["looks_like"]) for each in waiting["names"]] == [("foo", 3, ["Foo"])]
    assert (waiting["distinct"], waiting["rows"], waiting["refused"][0]["game"]) == (3, 6, "spam")
    assert turnout("list").endswith("1 game(s)\n")
    assert "refused by" in turnout("pending", "--limit", "1")


@pytest.mark.parametrize(
    "kept", ["{", "", "[]", '{"names": {}}', '{"names": {"a": [1]}, "rows": 1, "floor": 0, "registers": ""}']
)
def test_a_spoilt_sketch_of_names_stops_no_ingest(engine: Engine, kept: str) -> None:
    """Law L6: rows of games do not wait for what only counts names; a list of the names is refused in a sentence."""
    store.write_sketch(engine, kept)
    assert Onboarding(engine, LIMITS).admit(NOW) == 0
    with pytest.raises(Refused, match="name_sketches"):
        pending.pending(engine, LIMITS)
