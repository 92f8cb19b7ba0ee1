"""Silver and gold tables follow the grants of their games, and can be granted by themselves."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from grants.model import Directory, Observed, Principal
from grants.planning.change_set import simulate
from grants.planning.drift import drift, intent
from grants.planning.entitlements import (
    NOTHING,
    AccessIntent,
    Entitlement,
    ManagedAccess,
    ManagedGrant,
    expired,
)
from grants.planning.following import due
from grants.planning.guardrails import Case, Requester, refusals
from grants.planning.plan import AccessPlan, plan
from grants.planning.undo import undo
from pipeline.base.errors import Refused
from tests.unit.grants.grants_world import SCHEMA, catalog_snapshot, table_of, with_tables

NOW = 1_000.0
SOLD, HOURS = "silver__sold", "gold__hours"
BOTH = {SOLD: "chess", HOURS: "chess"}
ANN = "ann@x"


def world(*tables: str) -> Observed:
    return with_tables(catalog_snapshot(), dict.fromkeys(tables, "chess"))


def reads(key: str, who: str = ANN, until: float | None = None) -> AccessIntent:
    return AccessIntent(who, key, read=True, until=until, reason="needs it")


def ends(key: str, who: str = ANN) -> AccessIntent:
    return AccessIntent(who, key, read=False, reason="is done")


def done(observed: Observed, intents: Iterable[AccessIntent], managed: ManagedAccess) -> tuple[Observed, ManagedAccess]:
    planned = plan(observed, list(intents), managed, NOW)
    return simulate(observed, planned.changes), planned.after


def held(observed: Observed, who: str = ANN) -> set[str]:
    """Return which tables a principal has SELECT on."""
    return {key for key, table in observed.tables.items() if "SELECT" in observed.direct[table.securable].get(who, ())}


def said(planned: AccessPlan) -> list[str]:
    return [
        f"{'+' if each.add else '-'}{each.securable.path[-1]}"
        for each in planned.changes
        if len(each.securable.path) == 3
    ]


def settled(
    observed: Observed, managed: ManagedAccess, in_force: Iterable[str] = BOTH
) -> tuple[Observed, ManagedAccess]:
    """Let the controller do what is due, and see that then nothing is."""
    observed, managed = done(observed, due(observed, managed, set(in_force), NOW), managed)
    assert due(observed, managed, set(in_force), NOW) == []
    return observed, managed


def test_tables_are_granted_with_their_game_until_it_is_revoked() -> None:
    """A game's silver and gold tables are granted and revoked with it, in one plan, which planned again is empty."""
    before = world(SOLD, HOURS)
    there, managed = done(before, [reads("chess")], NOTHING)
    assert held(there) == {"chess", SOLD, HOURS}
    assert {each.key for each in managed.entitlements} == {"chess"}
    assert plan(there, [reads("chess")], managed, NOW).is_empty
    gone, nothing = done(there, [ends("chess")], managed)
    assert (gone.direct, nothing) == (before.direct, NOTHING)


def test_a_table_made_later_is_granted_to_readers_of_its_game() -> None:
    """A table made since its game was granted is due to the game's readers and to nobody else, until it is granted."""
    there, managed = done(world(), [reads("chess"), reads("go", "bob@x")], NOTHING)
    later = with_tables(there, {SOLD: "chess"})
    assert [each.cell for each in due(later, managed, {SOLD}, NOW)] == [(ANN, SOLD)]
    granted, managed = settled(later, managed)
    assert (held(granted), held(granted, "bob@x")) == ({"chess", SOLD}, {"go"})
    assert held(done(granted, [ends("chess")], managed)[0]) == set()


def test_a_temporary_grant_ends_on_the_tables_with_its_game() -> None:
    """An expiry takes a game's tables, too, unless a permanent grant of the game is left."""
    there, managed = done(world(SOLD), [reads("chess", until=NOW + 5)], NOTHING)
    over = expired(managed.entitlements, NOW + 6)
    planned = plan(there, over, managed, NOW + 6)
    assert said(planned) == ["-chess", f"-{SOLD}"]
    later = with_tables(there, {HOURS: "chess"})
    assert due(later, managed, {SOLD, HOURS}, NOW + 6) == [], "an expired grant gives nothing until it is revoked"
    there, managed = done(there, [reads("chess")], managed)
    assert said(plan(there, over, managed, NOW + 6)) == []


def test_a_grant_by_hand_is_never_revoked_with_the_game() -> None:
    """SELECT that another person gave on a silver table stays when the game goes, and is reported as not turnout's."""
    by_hand = catalog_snapshot({table_of(SOLD): {ANN: {"SELECT"}}}, keys=("chess", "go", SOLD))
    observed = with_tables(by_hand, {SOLD: "chess"})
    there, managed = done(observed, [reads("chess")], NOTHING)
    assert [each.kind for each in drift(there, managed, NOW, {}).findings] == ["extra"]
    gone, _ = done(there, [ends("chess")], managed)
    assert held(gone) == {SOLD}


def test_a_table_is_granted_by_itself_without_its_game() -> None:
    """A grant of a silver table's own gives neither the game nor its other tables, and outlives the game's grant."""
    there, managed = settled(*done(world(SOLD, HOURS), [reads(SOLD)], NOTHING))
    assert held(there) == {SOLD}
    there, managed = done(there, [reads("chess")], managed)
    there, managed = settled(*done(there, [ends("chess")], managed))
    assert held(there) == {SOLD}
    assert held(done(there, [ends(SOLD)], managed)[0]) == set()


def test_a_table_keeps_the_games_grant_when_its_own_ends() -> None:
    """Where a principal has a table by itself and with its game, each can end without the other."""
    there, managed = done(world(SOLD), [reads("chess"), reads(SOLD)], NOTHING)
    there, managed = done(there, [ends(SOLD)], managed)
    assert held(there) == {"chess", SOLD}, "not even for a moment"
    assert settled(there, managed) == (there, managed)
    assert held(done(there, [ends("chess")], managed)[0]) == set()


def test_a_table_with_grants_of_its_own_alone_is_not_granted_with_its_game() -> None:
    """Such a table is granted with nothing, and once it is such a one, what its game gave before is due to go."""
    observed = with_tables(catalog_snapshot(), {SOLD: "chess"}, follow=False)
    there, managed = settled(*done(observed, [reads("chess")], NOTHING))
    assert held(there) == {"chess"}
    there, managed = done(world(SOLD), [reads("chess")], NOTHING)
    kept = {**there.tables, SOLD: replace(there.tables[SOLD], follows=False)}
    there, managed = settled(replace(there, tables=kept), managed)
    assert held(there) == {"chess"}


@pytest.mark.parametrize("hidden", [{"has_row_filter": True}, {"masked_columns": ("mail",)}])
def test_where_the_catalog_hides_parts_of_a_game_its_tables_do_not_follow(hidden: dict[str, object]) -> None:
    """A row filter or mask of the game's table is not got round by way of a silver table, which has none."""
    there, managed = done(world(SOLD), [reads("chess")], NOTHING)
    filtered = replace(there, tables={**there.tables, "chess": replace(there.tables["chess"], **hidden)})  # type: ignore[arg-type]
    assert said(plan(filtered, [reads("chess", "bob@x")], managed, NOW)) == ["+chess"]
    there, managed = settled(filtered, managed)
    assert held(there) == {"chess"}


def test_a_table_that_left_force_is_nobodys() -> None:
    """When a stream is no longer in force, grants with its game and of its own are due to end, and no others."""
    there, managed = done(world(SOLD), [reads("chess"), reads(SOLD, "bob@x"), reads("go", "bob@x")], NOTHING)
    kept = {**there.tables, SOLD: replace(there.tables[SOLD], game="", follows=False)}
    there, managed = settled(replace(there, tables=kept), managed, in_force=())
    assert (held(there), held(there, "bob@x")) == ({"chess"}, {"go"})
    assert {each.key for each in managed.entitlements} == {"chess", "go"}


def test_unknown_principals_lose_nothing_and_gain_nothing() -> None:
    """Without a directory, and for a principal who is gone or somebody else by now, no grant of a table changes."""
    there, managed = done(world(SOLD), [reads("chess")], NOTHING)
    unread = replace(there, directory=Directory(is_read=False))
    assert due(unread, managed, {SOLD}, NOW) == []
    entitled = frozenset({Entitlement(ANN, "chess", None, "id-chess", "7")})
    fresh = replace(world(SOLD), direct={**there.direct, table_of(SOLD): {}})
    for directory in (
        Directory(),
        Directory({ANN: Principal(ANN, "user", active=False)}),
        Directory({ANN: Principal(ANN, "user", principal_id="8")}),
    ):
        someone = replace(fresh, directory=directory)
        assert due(someone, ManagedAccess(entitled), {SOLD}, NOW) == []
    assert due(
        replace(fresh, directory=Directory({ANN: Principal(ANN, "user", principal_id="7")})),
        ManagedAccess(entitled),
        {SOLD},
        NOW,
    )


def test_a_table_elsewhere_is_granted_to_nobody() -> None:
    """Where the catalog shows another table than turnout's, or than the one of the game's grant, none is granted."""
    for key in (SOLD, "chess"):
        there, managed = done(world(), [reads("chess")], NOTHING)
        there = with_tables(there, {SOLD: "chess"})
        other = replace(there.tables[key], own="file:///own", location="file:///other")
        assert due(replace(there, tables={**there.tables, key: other}), managed, {SOLD}, NOW) == []
        again = replace(there.tables["chess"], table_id="id-again")
        assert due(replace(there, tables={**there.tables, "chess": again}), managed, {SOLD}, NOW) == []


def test_a_lost_grant_of_a_table_is_drift_and_a_person_grants_it_again() -> None:
    """A grant that others revoke on a silver table is reported and not mended by itself; a revert mends it."""
    there, managed = done(world(SOLD), [reads("chess")], NOTHING)
    lost = replace(there, direct={**there.direct, table_of(SOLD): {}})
    assert due(lost, managed, {SOLD}, NOW) == []
    (finding,) = drift(lost, managed, NOW, {}).findings
    assert (finding.kind, finding.securable, finding.acts) == ("missing", table_of(SOLD), ("revert", "ignore"))
    mended, managed = done(lost, [intent(finding, "revert", "not by hand")], managed)
    assert (held(mended), drift(mended, managed, NOW, {}).findings) == ({"chess", SOLD}, ())


def test_an_undo_takes_the_tables_with_the_game_and_gives_them_back() -> None:
    """The undo of a game's grant revokes its tables, also later ones; that of a revoke grants those of today."""
    there, managed = done(world(SOLD), [reads("chess")], NOTHING)
    granted = plan(world(SOLD), [reads("chess")], NOTHING, NOW).change_set
    there, managed = settled(with_tables(there, {HOURS: "chess"}), managed)
    back = undo(granted, there, managed, NOW)
    assert said(back) == ["-chess", f"-{HOURS}", f"-{SOLD}"]
    revoked = plan(there, [ends("chess")], managed, NOW)
    gone, nothing = simulate(there, revoked.changes), revoked.after
    again = undo(revoked.change_set, gone, nothing, NOW)
    assert simulate(gone, again.changes).direct == there.direct
    own = {**gone.tables, SOLD: replace(gone.tables[SOLD], follows=False)}
    assert said(undo(revoked.change_set, replace(gone, tables=own), nothing, NOW)) == ["+chess", f"+{HOURS}"]


def test_a_following_grant_needs_no_granter_and_gives_nothing_else() -> None:
    """The controller may grant a table with its game though it is no user of the catalog; a game it may not."""
    there, managed = done(world(), [reads("chess")], NOTHING)
    later = with_tables(there, {SOLD: "chess"})
    robot = Requester("controller", (), is_admin=True, is_known=False)

    def refused(*intents: AccessIntent) -> tuple[str, ...]:
        planned = plan(later, intents, managed, NOW)
        return refusals(
            Case(planned, robot, None, SCHEMA, {"chess", "go", SOLD}, "robot", later.directory, managed.given)
        )

    follows = AccessIntent(ANN, SOLD, read=True, follow=True, reason="follows")
    assert refused(follows) == ()
    assert len(refused(follows, reads("go"))) == 1
    assert plan(later, [replace(follows, principal="bob@x")], managed, NOW).is_empty


def test_a_following_intent_has_no_terms_of_its_own() -> None:
    """An intent that follows a game's grants has no end, adopts nothing and reverts nothing."""
    for terms in ({"until": 5.0}, {"adopt": True}, {"revert": True, "read": False}):
        with pytest.raises(Refused, match="no terms of its own"):
            AccessIntent(**{"principal": ANN, "key": SOLD, "read": True, "follow": True, **terms})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(40))
def test_after_any_changes_every_grant_on_a_table_is_for_something(seed: int) -> None:
    """After any grants, revokes and new tables, what turnout gives on a table is for its game's or its own grant."""
    rng = Random(seed)
    observed, managed = catalog_snapshot(), NOTHING
    for _ in range(12):
        free = [each for each in (SOLD, HOURS, "silver__left") if each not in observed.tables]
        if free and rng.random() < 0.4:
            observed = with_tables(observed, {rng.choice(free): rng.choice(("chess", "go"))}, follow=rng.random() < 0.8)
        if rng.random() < 0.2:
            hidden = replace(observed.tables["chess"], has_row_filter=rng.random() < 0.5)
            observed = replace(observed, tables={**observed.tables, "chess": hidden})
        key, who = rng.choice(sorted(observed.tables)), rng.choice((ANN, "bob@x", "readers"))
        until = None if rng.random() < 0.7 else NOW + 5
        one = reads(key, who, until) if rng.random() < 0.6 else ends(key, who)
        observed, managed = done(observed, [one], managed)
        if rng.random() < 0.5:
            observed, managed = settled(observed, managed, observed.tables)
    observed, managed = settled(observed, managed, observed.tables)
    cells = {each.cell for each in managed.entitlements}
    tables = [table for table in observed.tables.values() if table.game]
    for who in (ANN, "bob@x", "readers"):
        for table in tables:
            game = observed.tables[table.game]
            wanted = (who, table.key) in cells or (table.follows and not game.hides and (who, table.game) in cells)
            assert (table.key in held(observed, who)) is wanted
            assert (ManagedGrant(table.securable, who, "SELECT") in managed.given) is wanted


def test_an_undo_leaves_what_another_grant_of_the_game_gives() -> None:
    """The undo of a game's permanent grant keeps the silver table that a temporary grant made since gives, too."""
    first = plan(world(SOLD), [reads("chess")], NOTHING, NOW)
    there, managed = simulate(world(SOLD), first.changes), first.after
    there, managed = done(there, [reads("chess", until=NOW + 5)], managed)
    back = undo(first.change_set, there, managed, NOW)
    assert said(back) == []
    assert held(simulate(there, back.changes)) == {"chess", SOLD}
