"""Plans of access: minimal, in order, exact to undo, and never a hand on what is not turnout's."""

from dataclasses import replace
from random import Random

import pytest

from grants.catalog import Change
from grants.model import GRANTABLE, Directory, Observed, Principal, folded
from grants.observing.resolver import Resolver
from grants.planning.change_set import Draft, simulate
from grants.planning.entitlements import (
    NOTHING,
    AccessIntent,
    Entitlement,
    ManagedAccess,
    ManagedGrant,
    expired,
    given_by,
)
from grants.planning.plan import AccessPlan, plan
from grants.planning.undo import undo
from grants.planning.usage_privileges import take
from pipeline.base.errors import Refused
from tests.unit.grants.grants_world import (
    CATALOG,
    SCHEMA,
    assignments,
    catalog_snapshot,
    random_catalog,
    recreated,
    table_of,
)

NOW = 1_000.0


@pytest.fixture(params=[150, pytest.param(600, marks=pytest.mark.long)])
def worlds(request: pytest.FixtureRequest) -> int:
    """Return the number of random catalogs that a law is tried over."""
    return int(request.param)


def gives(who: str, key: str, until: float | None = None, *, adopt: bool = False) -> AccessIntent:
    return AccessIntent(who, key, read=True, until=until, reason="needs it", adopt=adopt)


def takes(who: str, key: str, until: float | None = None, *, revert: bool = False) -> AccessIntent:
    return AccessIntent(who, key, read=False, until=until, reason="is done", revert=revert)


def said(planned: AccessPlan) -> list[str]:
    return [
        f"{'+' if each.add else '-'}{','.join((*each.add, *each.remove))} {each.securable.full_name} {each.principal}"
        for each in planned.changes
    ]


def applied(observed: Observed, planned: AccessPlan) -> tuple[Observed, ManagedAccess]:
    return simulate(observed, planned.changes), planned.after


def given(
    observed: Observed, *intents: AccessIntent, managed: ManagedAccess = NOTHING
) -> tuple[Observed, ManagedAccess]:
    return applied(observed, plan(observed, intents, managed, NOW))


def random_intents(rng: Random, observed: Observed) -> list[AccessIntent]:
    """Return intents of which no two contradict each other, some for groups, some of what nobody has."""
    found = []
    for who in (*observed.directory.principals, "account users"):
        for key in observed.tables:
            if rng.random() < 0.5:
                until = NOW + rng.randint(1, 9) if rng.random() < 0.4 else None
                kind = rng.random()
                if kind < 0.5:
                    found.append(gives(who, key, until, adopt=rng.random() < 0.2))
                else:
                    found.append(takes(who, key, until, revert=until is None and rng.random() < 0.2))
    return found


def random_state(seed: int) -> tuple[Random, Observed, ManagedAccess]:
    """Return a catalog with strangers' grants in it, after two plans of turnout's; every third has emulated groups."""
    rng = Random(seed)
    observed, managed = random_catalog(rng, unread=False, emulated=seed % 3 == 2), NOTHING
    for _ in range(2):
        observed, managed = given(observed, *random_intents(rng, observed), managed=managed)
    return rng, observed, managed


@pytest.mark.proves("G265")
def test_only_plans_of_a_name_that_several_share_are_refused() -> None:
    """A grant to an ambiguous name could mean either; a grant of turnout to one spelling ends, and nothing else."""
    first = catalog_snapshot(people=("ann@x", "team"))
    observed, managed = given(first, gives("team", "chess", NOW + 1))
    direct = {**observed.direct, table_of("chess"): {"Team": frozenset({"SELECT"}), "team": frozenset({"SELECT"})}}
    people = {name: each for name, each in observed.directory.principals.items() if folded(each.name) != "team"}
    directory = replace(observed.directory, principals=people, ambiguous={"team": ("Team", "team")})
    observed = replace(observed, direct=direct, directory=directory)
    with pytest.raises(Refused, match="'Team' and 'team' share a name"):
        plan(observed, [gives("team", "go")], managed, NOW)
    assert said(plan(observed, [gives("ann@x", "chess")], managed, NOW))[-1] == "+SELECT main.games.chess ann@x"
    ended = plan(observed, expired(managed.entitlements, NOW + 2), managed, NOW + 2)
    assert said(ended) == ["-SELECT main.games.chess team"]


@pytest.mark.parametrize("known", ["both", "one", "none"])
@pytest.mark.proves("G265")
def test_a_revoke_takes_the_spelling_that_turnout_granted(known: str) -> None:
    """Of two spellings that hold SELECT, a plan takes the one that turnout granted, and never a stranger's."""
    observed, managed = given(catalog_snapshot(people=("ann@x", "team")), gives("team", "chess", NOW + 1))
    direct = {**observed.direct, table_of("chess"): {"Team": frozenset({"SELECT"}), "team": frozenset({"SELECT"})}}
    nobody = {name: each for name, each in observed.directory.principals.items() if name != "team"}
    directories = {
        "both": replace(observed.directory, principals=nobody, ambiguous={"team": ("Team", "team")}),
        "one": replace(observed.directory, principals={**nobody, "team": Principal("Team", "group")}, is_whole=False),
        "none": replace(observed.directory, principals={}, groups_of={}, is_read=False),
    }
    observed = replace(observed, direct=direct, directory=directories[known])
    for ends in (*expired(managed.entitlements, NOW + 2), takes("team", "chess")):
        ended = plan(observed, [ends], managed, NOW + 2)
        assert [each for each in said(ended) if "SELECT" in each] == ["-SELECT main.games.chess team"]
    with pytest.raises(Refused, match="turnout granted chess to 'team', and 'Team' may be another principal"):
        plan(observed, [takes("Team", "chess")], managed, NOW)
    left = replace(observed, direct={**direct, table_of("chess"): {"Team": frozenset({"SELECT"})}})
    if known == "both":
        gone = plan(left, [takes("team", "chess")], managed, NOW)
        assert said(gone) == []
        assert gone.change_set.disowned == {ManagedGrant(table_of("chess"), "team", "SELECT")}


def test_a_grant_that_two_other_spellings_hold_is_not_guessed() -> None:
    """Which principal turnout granted is not known where the catalog shows none of its spellings but two others."""
    observed, managed = given(catalog_snapshot(), gives("ann@x", "chess"))
    observed = replace(observed, directory=replace(observed.directory, is_whole=False))
    two = {"ANN@X": frozenset({"SELECT"}), "Ann@x": frozenset({"SELECT"})}
    with pytest.raises(Refused, match="which of them it granted is not known"):
        plan(
            replace(observed, direct={**observed.direct, table_of("chess"): two}),
            [takes("ann@x", "chess")], managed, NOW,
        )  # fmt: skip
    one = {"ANN@X": frozenset({"SELECT"})}
    ended = plan(
        replace(observed, direct={**observed.direct, table_of("chess"): one}), [takes("Ann@X", "chess")], managed, NOW
    )
    assert said(ended)[0] == "-SELECT main.games.chess ANN@X", "the catalog may spell one principal otherwise"


@pytest.mark.proves("G267")
def test_a_blind_read_makes_no_grant_gone() -> None:
    """A grant that is not shown is not gone: nothing forgets it unless the reader sees others' grants."""
    made = plan(catalog_snapshot(), [gives("ann@x", "chess", NOW + 1)], NOTHING, NOW)
    managed, empty = made.after, replace(catalog_snapshot(), reader="robot")
    ends = (takes("ann@x", "chess"), *expired(managed.entitlements, NOW + 2))
    for each in ends:
        with pytest.raises(Refused, match=r"SELECT of ann@x on main\.games\.chess .* Give it MANAGE on the schema"):
            plan(empty, [each], managed, NOW + 2)
    with pytest.raises(Refused, match="Give it MANAGE"):
        undo(made.change_set, empty, managed, NOW)
    where = table_of("chess")
    for sees in (
        replace(empty, direct={**empty.direct, SCHEMA: {"robot": frozenset({"MANAGE"})}}),
        replace(empty, owners={**empty.owners, where: "Robot"}),
        replace(empty, owners=dict.fromkeys(empty.owners)),  # open-source servers name no owner
    ):
        for each in ends:
            gone = plan(sees, [each], managed, NOW + 2).change_set
            assert gone.changes == ()
            assert gone.disowned == {ManagedGrant(where, "ann@x", "SELECT")}
    shown = replace(simulate(empty, made.changes[-1:]), directory=Directory(is_read=False))
    assert said(plan(shown, [ends[0]], managed, NOW)) == ["-SELECT main.games.chess ann@x"], "what is shown is taken"


def test_a_grant_gives_what_is_missing_from_the_top_down() -> None:
    """USE_CATALOG and USE_SCHEMA come before SELECT; what is there already is not given, and that is said."""
    first = plan(catalog_snapshot(), [gives("ann@x", "chess")], NOTHING, NOW)
    assert said(first) == [
        "+USE_CATALOG main ann@x", "+USE_SCHEMA main.games ann@x", "+SELECT main.games.chess ann@x"
    ]  # fmt: skip
    assert [each.sentence for each in first.effects] == ["ann@x, chess: does not read → reads"]
    observed, managed = applied(catalog_snapshot(), first)
    assert said(plan(observed, [gives("ann@x", "go")], managed, NOW)) == ["+SELECT main.games.go ann@x"]
    again = plan(observed, [gives("ANN@X", "chess")], managed, NOW)
    assert again.is_empty
    assert [(each.reads, each.sentence) for each in again.unmoved] == [(True, "ann@x reads chess already.")]


def test_what_a_group_has_or_gets_is_not_given_twice() -> None:
    """USE_* of a group count for its members, also when it gets them in the same plan."""
    observed = catalog_snapshot(groups={"ann@x": {"readers"}})
    planned = plan(observed, [gives("ann@x", "go"), gives("readers", "chess")], NOTHING, NOW)
    assert said(planned) == [
        "+USE_CATALOG main readers", "+USE_SCHEMA main.games readers",
        "+SELECT main.games.chess readers", "+SELECT main.games.go ann@x",
    ]  # fmt: skip
    assert {(each.principal, each.key) for each in planned.effects} == {
        ("readers", "chess"), ("ann@x", "chess"), ("ann@x", "go")
    }  # fmt: skip


def test_what_a_group_has_is_given_all_the_same_where_groups_are_emulated() -> None:
    """A catalog without groups does not put together what a user and a group have: the user gets all three."""
    observed = catalog_snapshot(groups={"ann@x": {"readers"}})
    observed = replace(observed, directory=replace(observed.directory, emulated_groups=True))
    planned = plan(observed, [gives("ann@x", "go"), gives("readers", "chess")], NOTHING, NOW)
    assert said(planned) == [
        "+USE_CATALOG main ann@x", "+USE_CATALOG main readers",
        "+USE_SCHEMA main.games ann@x", "+USE_SCHEMA main.games readers",
        "+SELECT main.games.chess readers", "+SELECT main.games.go ann@x",
    ]  # fmt: skip
    assert (
        "The catalog does not know groups: it admits readers itself, and refuses its members by name."
        in planned.warnings
    )
    after, managed = applied(observed, planned)
    assert Resolver(after).reading("ann@x").reads == {"chess", "go"}
    taken = plan(after, [takes("readers", "chess")], managed, NOW)
    assert [each.sentence for each in taken.effects] == [
        "readers, chess: reads → does not read", "ann@x, chess: reads → does not read"
    ]  # fmt: skip


def test_use_of_an_emulated_group_stays_for_a_member_who_has_use_of_their_own() -> None:
    """What a member has does not make up for what their group loses, where the catalog lets in one of them alone."""
    use = {"ann@x": {"USE_SCHEMA"}, "readers": {"USE_SCHEMA"}}
    there = {CATALOG: {"readers": {"USE_CATALOG"}}, SCHEMA: use, table_of("chess"): {"readers": {"SELECT"}}}
    observed = catalog_snapshot(there, groups={"ann@x": {"readers"}})
    observed = replace(observed, directory=replace(observed.directory, emulated_groups=True))
    given = ManagedGrant(SCHEMA, "readers", "USE_SCHEMA")
    draft = Draft()
    assert take(draft, Resolver(observed), [given], frozenset({("readers", "chess")})) == {given}
    assert draft.ordered() == ()


def test_a_revocation_takes_the_tables_first_and_use_last() -> None:
    """SELECT goes first; USE_* go with the last game of somebody, and only if turnout gave them."""
    observed, managed = given(catalog_snapshot(), gives("ann@x", "chess"), gives("ann@x", "go"))
    first = plan(observed, [takes("ann@x", "chess")], managed, NOW)
    assert said(first) == ["-SELECT main.games.chess ann@x"]
    last = plan(observed, [takes("ann@x", "chess"), takes("ann@x", "go")], managed, NOW)
    assert said(last) == [
        "-SELECT main.games.chess ann@x", "-SELECT main.games.go ann@x",
        "-USE_SCHEMA main.games ann@x", "-USE_CATALOG main ann@x",
    ]  # fmt: skip
    assert any("loses USE_SCHEMA on schema main.games" in each for each in last.warnings)
    by_hand = {SCHEMA: {"ann@x": {"USE_SCHEMA"}}, CATALOG: {"ann@x": {"USE_CATALOG"}}}
    observed, managed = given(catalog_snapshot(by_hand), gives("ann@x", "chess"))
    assert said(plan(observed, [takes("ann@x", "chess")], managed, NOW)) == ["-SELECT main.games.chess ann@x"]


@pytest.mark.parametrize("holder", ["ann@x", "readers"])
def test_use_stays_while_somebody_else_reads_by_it(holder: str) -> None:
    """A stranger's grant of another game, or a member's own, keeps the USE_* that it rests on."""
    stranger = {table_of("go"): {"ann@x": {"SELECT"}}}
    observed, managed = given(catalog_snapshot(stranger, groups={"ann@x": {"readers"}}), gives(holder, "chess"))
    taken = plan(observed, [takes(holder, "chess")], managed, NOW)
    assert said(taken) == [f"-SELECT main.games.chess {holder}"]


def test_of_two_groups_by_which_somebody_reads_one_keeps_use() -> None:
    """Where both could lose it, the one that is left after the other was taken is needed."""
    stranger = {table_of("go"): {"ann@x": {"SELECT"}}}
    start = catalog_snapshot(stranger, groups={"ann@x": {"blue", "red"}})
    observed, managed = given(start, gives("blue", "chess"), gives("red", "chess"))
    taken = plan(observed, [takes("blue", "chess"), takes("red", "chess")], managed, NOW)
    assert len([each for each in taken.changes if each.securable in {CATALOG, SCHEMA}]) == 2
    assert Resolver(simulate(observed, taken.changes)).verdict("ann@x", "go").reads


def test_use_stays_while_its_holder_has_any_grant_on_a_game() -> None:
    """Also where a group has the same today: who leaves the group shall not lose a game that is theirs."""
    observed, managed = given(catalog_snapshot({table_of("go"): {"ann@x": {"SELECT"}}}), gives("ann@x", "chess"))
    for where, privilege in ((CATALOG, "USE_CATALOG"), (SCHEMA, "USE_SCHEMA")):
        observed = simulate(observed, [Change(where, "account users", add=(privilege,))])
    assert said(plan(observed, [takes("ann@x", "chess")], managed, NOW)) == ["-SELECT main.games.chess ann@x"]


def test_what_turnout_did_not_give_is_left_and_the_way_out_is_named() -> None:
    """A stranger's SELECT stays until the wish says revert; adopted it is turnout's."""
    by_hand = catalog_snapshot(
        {table_of("chess"): {"Ann@X": {"SELECT", "MODIFY", "BROWSE"}}, CATALOG: {"ann@x": {"ALL_PRIVILEGES"}}}
    )
    only = catalog_snapshot({
        table_of("chess"): {"Ann@X": {"SELECT", "MODIFY"}}, SCHEMA: {"account users": {"USE_SCHEMA"}},
                    CATALOG: {"account users": {"USE_CATALOG"}}})  # fmt: skip
    left = plan(only, [takes("ann@x", "chess")], NOTHING, NOW)
    assert left.is_empty
    (still,) = left.unmoved
    assert still.sentence == (
        "ann@x still reads chess by SELECT on table main.games.chess, which turnout did not grant: revert it, or "
        "adopt it first."
    )
    reverted = plan(by_hand, [takes("ann@x", "chess", revert=True)], NOTHING, NOW)
    assert said(reverted) == ["-BROWSE,SELECT main.games.chess Ann@X"]
    adopted = plan(only, [gives("ann@x", "chess", adopt=True)], NOTHING, NOW)
    assert (adopted.changes, adopted.is_empty) == ((), False)
    assert said(plan(only, [takes("ann@x", "chess")], adopted.after, NOW)) == ["-SELECT main.games.chess Ann@X"]


def test_who_reads_on_by_a_group_is_named_with_the_group_and_the_place() -> None:
    """A revocation that does not end reading says where that comes from and what ends it."""
    inherited = {SCHEMA: {"readers": {"SELECT"}, "ann@x": {"USE_SCHEMA"}}, CATALOG: {"ann@x": {"USE_CATALOG"}}}
    observed, managed = given(
        catalog_snapshot(inherited, groups={"ann@x": {"team"}, "team": {"readers"}}), gives("ann@x", "chess")
    )
    (still,) = plan(observed, [takes("ann@x", "chess")], managed, NOW).unmoved
    assert (still.reads, still.intent.read) == (True, False)
    assert still.sentence == (
        "ann@x still reads chess by SELECT on schema main.games by group team in readers: revoke it there (turnout "
        "does not), or remove it from the group."
    )


def test_a_grant_to_a_user_or_one_that_a_group_covers_is_warned_of() -> None:
    """Groups are preferred, and a duplicate of what a group gives is named."""
    covered = catalog_snapshot(
        {table_of("chess"): {"readers": {"SELECT"}}, CATALOG: {"readers": {"USE_CATALOG", "USE_SCHEMA"}}},
        groups={"ann@x": {"readers"}},
    )
    warned = plan(covered, [gives("ann@x", "chess")], NOTHING, NOW).warnings
    assert warned == (
        "ann@x is a user: prefer a group, so that members can change without new grants.",
        "ann@x already reads 1 of these games: chess by SELECT on table main.games.chess by group readers.",
    )


@pytest.mark.proves("G124")
def test_a_temporary_grant_that_expires_leaves_the_permanent_one() -> None:
    """Whichever of the two came first, neither the end of one nor the other's start ends what the other gives."""
    for intents in ((gives("ann@x", "chess"), gives("ann@x", "chess", NOW + 5)),
                   (gives("ann@x", "chess", NOW + 5), gives("ann@x", "chess"))):  # fmt: skip
        observed, managed = catalog_snapshot(), NOTHING
        for intent in intents:
            observed, managed = given(observed, intent, managed=managed)
        assert sorted(each.permanent for each in managed.entitlements) == [False, True]
        over = expired(managed.entitlements, NOW + 5)
        assert expired(managed.entitlements, NOW + 4) == ()
        planned = plan(observed, over, managed, NOW + 5)
        assert planned.changes == ()
        assert [each.sentence for each in planned.unmoved] == [
            "ann@x still reads chess by a permanent grant. Revoke that too."
        ]
        assert {each.permanent for each in planned.after.entitlements} == {True}
        gone = plan(observed, [takes("ann@x", "chess")], planned.after, NOW + 5)
        assert len(gone.changes) == 3
        assert gone.after == NOTHING


def test_an_expiry_does_not_eat_an_extension() -> None:
    """The wish that ends a temporary grant ends the one of then, not one that was made to last longer meanwhile."""
    observed, managed = given(catalog_snapshot(), gives("ann@x", "chess", NOW + 5))
    over = expired(managed.entitlements, NOW + 5)
    observed, managed = given(observed, gives("ann@x", "chess", NOW + 50), managed=managed)
    planned = plan(observed, over, managed, NOW + 5)
    assert planned.is_empty
    assert [each.until for each in planned.after.entitlements] == [NOW + 50]


def test_expiry_ends_what_is_kept_of_a_game_without_a_table() -> None:
    """A table that is gone does not stand in the way of the end of a grant."""
    observed, managed = given(catalog_snapshot(), gives("ann@x", "chess", NOW + 5))
    tables = {key: table for key, table in observed.tables.items() if key != "chess"}
    direct = {where: held for where, held in observed.direct.items() if where != table_of("chess")}
    planned = plan(
        replace(observed, tables=tables, direct=direct), expired(managed.entitlements, NOW + 9), managed, NOW + 9
    )
    assert said(planned) == ["-USE_SCHEMA main.games ann@x", "-USE_CATALOG main ann@x"]
    assert planned.after == NOTHING


def test_a_grant_asked_for_again_heals_what_was_taken_by_hand_or_with_its_table() -> None:
    """Planning what is entitled gives what is missing of it, and knows the new table."""
    observed, managed = given(catalog_snapshot(), gives("ann@x", "chess"))
    planned = plan(recreated(observed, "chess"), [gives("ann@x", "chess")], managed, NOW)
    assert said(planned) == ["+SELECT main.games.chess ann@x"]
    assert [each.table_id for each in planned.after.entitlements] == ["new-chess"]


@pytest.mark.parametrize(
    ("intents", "sentence"),
    [
        ([gives("ann@x", "dota")], "has no table of game 'dota'"),
        ([gives("eve@x", "chess")], "The directory does not know 'eve@x'"),
        ([gives("ann@x", "chess", NOW)], "until a past time"),
        ([gives("ann@x", "chess"), takes("ANN@x", "chess")], "requested twice"),
        ([gives("ann@x", "chess", NOW + 1), gives("ann@x", "chess", NOW + 2)], "requested twice"),
    ],
)
def test_an_intent_that_makes_no_sense_is_refused(intents: list[AccessIntent], sentence: str) -> None:
    """Unknown games and people, times that are over and contradictions are one sentence, and nothing is planned."""
    with pytest.raises(Refused, match=sentence):
        plan(catalog_snapshot(), intents, NOTHING, NOW)
    for until in (float("nan"), float("inf")):
        with pytest.raises(Refused, match="is not a valid end"):
            gives("ann@x", "chess", until)
    with pytest.raises(Refused, match="Choose one of them"):
        AccessIntent("ann@x", "chess", read=True, revert=True)


@pytest.mark.parametrize("where", [CATALOG, SCHEMA, table_of("chess")])
def test_nothing_is_planned_on_what_was_not_read(where: object) -> None:
    """A change that rests on something nobody has seen is refused, not guessed."""
    observed = catalog_snapshot()
    direct = {each: held for each, held in observed.direct.items() if each != where}
    for intent in (gives("ann@x", "chess"), takes("ann@x", "chess")):
        with pytest.raises(Refused, match="were not read, so no change can be planned"):
            plan(replace(observed, direct=direct), [intent], NOTHING, NOW)


def test_a_fingerprint_is_of_what_the_plan_depends_on_and_of_nothing_else() -> None:
    """Other people's grants and other tables leave it as it is; own grants, groups and the table's id change it."""
    observed, managed = given(catalog_snapshot(people=("ann@x", "bob@x", "cid@x")), gives("ann@x", "go"))
    intents = [gives("ann@x", "chess")]

    def fingerprint(there: Observed, kept: ManagedAccess = managed) -> str:
        return plan(there, intents, kept, NOW).fingerprint

    def with_grant(where: object, who: str, *privileges: str) -> Observed:
        return simulate(observed, [Change(where, who, add=privileges)])  # type: ignore[arg-type]  # of a case

    first = fingerprint(observed)
    elsewhere, _ = given(observed, gives("bob@x", "chess"), gives("cid@x", "go"), managed=managed)
    assert fingerprint(elsewhere) == first
    assert fingerprint(with_grant(table_of("go"), "ann@x", "MODIFY")) == first
    for changed in (
        with_grant(table_of("chess"), "ann@x", "BROWSE"),
        with_grant(SCHEMA, "ANN@X", "MODIFY"),
        recreated(observed, "chess"),
        replace(observed, directory=catalog_snapshot(groups={"ann@x": {"readers"}}).directory),
    ):
        assert fingerprint(changed) != first
    assert fingerprint(observed, NOTHING) != first


@pytest.mark.proves("G122")
def test_applied_and_planned_again_a_plan_is_empty(worlds: int) -> None:
    """Over random catalogs, strangers' grants and intents among them, nothing is left to do after a plan."""
    changed = 0
    for seed in range(worlds):
        rng, observed, managed = random_state(seed)
        intents = random_intents(rng, observed)
        planned = plan(observed, intents, managed, NOW)
        after, kept = applied(observed, planned)
        assert plan(after, intents, kept, NOW).is_empty, seed
        assert plan(observed, intents, managed, NOW).fingerprint == planned.fingerprint
        changed += bool(planned.changes)
    assert changed > worlds / 2


@pytest.mark.proves("G122")
def test_undone_a_plan_leaves_what_was_there_before(worlds: int) -> None:
    """Over random catalogs a plan and its undo restore each assignment, each entitlement and whose each was."""
    for seed in range(worlds):
        rng, observed, managed = random_state(seed)
        planned = plan(observed, random_intents(rng, observed), managed, NOW)
        after, kept = applied(observed, planned)
        back = undo(planned.change_set, after, kept, NOW)
        assert assignments(simulate(after, back.changes)) == assignments(observed), seed
        assert back.after == managed, seed


@pytest.mark.proves("G120")
def test_a_plan_takes_only_what_is_ours_and_gives_only_what_may_be_given(worlds: int) -> None:
    """Nothing outside of GRANTABLE, one principal and one securable each, and no stranger's grant without revert."""
    for seed in range(worlds):
        rng, observed, managed = random_state(seed)
        intents = random_intents(rng, observed)
        planned = plan(observed, intents, managed, NOW)
        reverted = {intent.cell for intent in intents if intent.revert}
        pairs = [(each.securable, each.principal) for each in planned.changes]
        assert len(pairs) == len(set(pairs))
        for change in planned.changes:
            assert GRANTABLE.issuperset((*change.add, *change.remove))
            assert not (change.add and change.remove)
            held = observed.direct[change.securable].get(change.principal, frozenset())
            assert held.isdisjoint(change.add)
            assert held.issuperset(change.remove)
            for taken in given_by(change, change.remove):
                assert taken in managed.given or (taken.principal, taken.securable.path[-1]) in reverted, seed


@pytest.mark.proves("G238")
def test_no_plan_gives_the_right_to_write(worlds: int) -> None:
    """SELECT is granted, never MODIFY: a plan gives SELECT on tables, and USE_* on what they are in."""
    assert not {"MODIFY", "ALL_PRIVILEGES", "MANAGE"} & GRANTABLE
    for seed in range(worlds // 4):
        rng, observed, managed = random_state(seed)
        planned = plan(observed, random_intents(rng, observed), managed, NOW)
        given = {(change.securable.type, name) for change in planned.changes for name in change.add}
        assert given <= {("table", "SELECT"), ("schema", "USE_SCHEMA"), ("catalog", "USE_CATALOG")}, seed


def test_nobody_loses_or_gains_reading_who_was_not_spoken_of(worlds: int) -> None:
    """Who loses a game was named, or is in a group that was; who gains one likewise, or lacked USE_* alone."""
    for seed in range(worlds):
        rng, observed, managed = random_state(seed)
        intents = random_intents(rng, observed)
        planned = plan(observed, intents, managed, NOW)
        before, after = Resolver(observed), Resolver(simulate(observed, planned.changes))
        changed = {(each.principal, each.key): each.then for each in planned.effects}
        for who in (*observed.directory.principals, "account users"):
            for key in observed.tables:
                was, then = before.verdict(who, key).reads, after.verdict(who, key).reads
                assert changed.get((before.name(who), key), was) == then, seed
                named = {
                    intent.read
                    for intent in intents
                    if folded(intent.principal) in before.closure(who) and intent.key == key
                }
                assert then is not False or was is False or False in named, (seed, who, key)
                brought = (who, key) in planned.change_set.brought
                assert then is not True or was is True or True in named or brought, (seed, who, key)


@pytest.mark.proves("G122")
def test_an_undo_leaves_what_came_since() -> None:
    """A newer grant keeps the SELECT and the USE_* that it rests on, and what was taken by hand stays taken."""
    start = catalog_snapshot()
    first = plan(start, [gives("ann@x", "chess", NOW + 9), gives("bob@x", "go")], NOTHING, NOW)
    observed, managed = applied(start, first)
    observed, managed = given(observed, gives("ann@x", "chess"), gives("bob@x", "chess"), managed=managed)
    observed = simulate(observed, [Change(table_of("go"), "bob@x", remove=("SELECT",))])
    back = undo(first.change_set, observed, managed, NOW)
    assert back.changes == ()
    assert back.warnings == (
        "SELECT of ann@x on table main.games.chess stays: another grant by turnout depends on it.",
        "SELECT of bob@x on table main.games.go is already gone.",
        "ann@x keeps USE_CATALOG on catalog main: it is still needed.",
        "bob@x keeps USE_CATALOG on catalog main: it is still needed.",
        "ann@x keeps USE_SCHEMA on schema main.games: it is still needed.",
        "bob@x keeps USE_SCHEMA on schema main.games: it is still needed.",
    )
    assert {(each.principal, each.key) for each in back.after.entitlements} == {("ann@x", "chess"), ("bob@x", "chess")}


def test_an_undo_of_what_was_changed_since_is_refused() -> None:
    """An entitlement that was made longer, taken or given anew since is not overwritten."""
    start = catalog_snapshot()
    made = plan(start, [gives("ann@x", "chess", NOW + 9)], NOTHING, NOW)
    observed, managed = applied(start, made)
    longer, kept = given(observed, gives("ann@x", "chess", NOW + 99), managed=managed)
    with pytest.raises(Refused, match="Access of ann@x to chess was changed since"):
        undo(made.change_set, longer, kept, NOW)
    taken = plan(observed, [takes("ann@x", "chess")], managed, NOW)
    observed, managed = applied(observed, taken)
    anew, kept = given(observed, gives("ann@x", "chess", NOW + 7), managed=managed)
    with pytest.raises(Refused, match="ann@x was granted chess again since"):
        undo(taken.change_set, anew, kept, NOW)


def test_an_undo_does_not_bring_back_what_has_expired() -> None:
    """What was taken before its time is not given again after it."""
    observed, managed = given(catalog_snapshot(), gives("ann@x", "chess", NOW + 5))
    taken = plan(observed, [takes("ann@x", "chess")], managed, NOW)
    back = undo(taken.change_set, *applied(observed, taken), NOW + 5)
    assert back.is_empty
    assert back.warnings == ("ann@x does not get chess back: the grant has expired meanwhile.",)


def test_of_a_plan_that_stopped_half_way_only_that_half_is_undone() -> None:
    """What is kept after some changes, and the undo of these, know nothing of the others."""
    start = catalog_snapshot()
    planned = plan(start, [gives("ann@x", "chess"), gives("ann@x", "go")], NOTHING, NOW)
    half = replace(planned.change_set, changes=planned.changes[:3])
    observed, managed = simulate(start, half.changes), half.kept(NOTHING)
    assert len(managed.given) == 3
    assert said(plan(observed, planned.intents, managed, NOW)) == ["+SELECT main.games.go ann@x"]
    back = undo(half, observed, managed, NOW)
    assert assignments(simulate(observed, back.changes)) == assignments(start)
    assert back.after == NOTHING


def test_somebody_who_is_not_active_is_told_of() -> None:
    """A grant to somebody who cannot act is planned, and the page is told that it has no effect yet."""
    observed = catalog_snapshot()
    principals = {**observed.directory.principals, "ann@x": Principal("ann@x", "user", active=False)}
    off = replace(observed, directory=replace(observed.directory, principals=principals))
    (still,) = plan(off, [gives("ann@x", "chess")], NOTHING, NOW).unmoved
    assert still.sentence == "ann@x does not read chess yet: it is not active. Activate it in the directory."


def test_entitlements_know_their_cell_and_end() -> None:
    """Names are compared without case, and a time that has come is over."""
    one = Entitlement("Ann@X", "chess", NOW, "1")
    assert (one.cell, one.is_over(NOW), one.is_over(NOW - 1)) == (("ann@x", "chess"), True, False)
