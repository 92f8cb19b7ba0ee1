"""Who reads which game, against a slow model, and in sentences."""

import itertools
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from grants.model import GameTable, Observed
from grants.observing.resolver import Resolver
from pipeline.base.errors import Refused
from tests.unit.grants.grants_world import (
    CATALOG,
    SCHEMA,
    catalog_snapshot,
    everybody,
    random_catalog,
    table_of,
)
from tests.unit.grants.observing.resolver_model import require_what_a_slow_model_says

USES = {CATALOG: {"readers": {"USE_CATALOG"}}, SCHEMA: {"readers": {"USE_SCHEMA"}}}
HIERARCHIES = 300  # `tests/soak` has 5,000


@pytest.mark.parametrize(("emulated", "worlds"), [(False, HIERARCHIES), (True, HIERARCHIES // 4)])
@pytest.mark.proves("G123")
def test_the_resolver_says_what_a_slow_model_says(emulated: bool, worlds: int) -> None:
    """Over random hierarchies every answer is the one of trying all that was not read as forbidden and as allowed."""
    require_what_a_slow_model_says(range(worlds), emulated=emulated)


def test_every_way_that_is_shown_is_there() -> None:
    """A way names an assignment or an owner that the catalog has, and groups of which each is in the next."""
    for seed in range(300):
        observed = random_catalog(Random(seed))
        resolver = Resolver(observed)
        for who in everybody(observed):
            for key in observed.tables:
                for way in (way for need in resolver.verdict(who, key).needs for way in need.ways):
                    chain = [who, *(group.lower() for group in way.groups)]
                    for member, group in itertools.pairwise(chain):
                        assert group in observed.directory.groups_of.get(member, ()) or group == "account users"
                    direct = observed.direct.get(way.securable, {})
                    held = {right for name, rights in direct.items() if name.lower() == chain[-1] for right in rights}
                    owner = observed.owners[way.securable] or ""
                    assert way.by in held or (way.by == "ownership" and owner.lower() == chain[-1])


@pytest.mark.parametrize(
    ("direct", "groups", "sentence"),
    [
        ({}, {}, ("ann@x does not read chess: it lacks SELECT on table main.games.chess and USE_SCHEMA on schema "
         "main.games and USE_CATALOG on catalog main.")),
        ({**USES, table_of("chess"): {"ann@x": {"SELECT"}}}, {},
         "ann@x does not read chess: it lacks USE_SCHEMA on schema main.games and USE_CATALOG on catalog main."),
        ({**USES, table_of("chess"): {"ANN@x": {"SELECT"}}}, {"ann@x": {"team"}, "team": {"readers"}},
         ("ann@x reads chess: SELECT on table main.games.chess, USE_SCHEMA on schema main.games by group team in "
         "readers, USE_CATALOG on catalog main by group team in readers.")),
        ({CATALOG: {"account users": {"ALL_PRIVILEGES"}}}, {},
         ("ann@x reads chess: ALL_PRIVILEGES on catalog main by group account users, ALL_PRIVILEGES on catalog main by "
         "group account users, ALL_PRIVILEGES on catalog main by group account users.")),
        ({SCHEMA: {"ann@x": {"MANAGE", "USE_SCHEMA"}}, CATALOG: {"ann@x": {"USE_CATALOG"}}}, {},
         ("ann@x does not read chess: it lacks SELECT on table main.games.chess. It could grant itself access, by "
         "MANAGE on schema main.games.")),
        ({SCHEMA: {"ann@x": {"MANAGE", "ALL_PRIVILEGES"}}}, {},
         "ann@x does not read chess: it lacks USE_CATALOG on catalog main."),
        ({table_of("chess"): {"ann@x": {"READ_DREAMS"}}}, {},
         ("ann@x does not read chess: it lacks SELECT on table main.games.chess and USE_SCHEMA on schema main.games "
         "and USE_CATALOG on catalog main. ann@x holds READ_DREAMS on table main.games.chess, whose effect is "
         "unknown here.")),
    ],
)  # fmt: skip
def test_a_verdict_is_a_sentence(direct: dict, groups: dict, sentence: str) -> None:  # type: ignore[type-arg]  # cases
    """The why names what is there with its path, or what is missing, and what could come of it."""
    resolver = Resolver(catalog_snapshot(direct, groups=groups))
    assert sentence == resolver.verdict("ann@x", "chess").sentence


def test_emulated_groups_are_not_put_together() -> None:
    """A catalog without groups lets in a user, or a group as if it were one: nobody by what each has a part of."""
    observed = catalog_snapshot(
        {**USES, table_of("chess"): {"ann@x": {"SELECT"}, "readers": set()}}, groups={"ann@x": {"readers"}}
    )
    apart = replace(observed, directory=replace(observed.directory, emulated_groups=True))
    assert Resolver(observed).verdict("ann@x", "chess").reads is True
    verdict = Resolver(apart).verdict("ann@x", "chess")
    assert verdict.sentence == (
        "ann@x does not read chess: it lacks USE_SCHEMA on schema main.games and USE_CATALOG on catalog main."
    )
    by_group = replace(apart, direct={**apart.direct, table_of("chess"): {"readers": frozenset({"SELECT"})}})
    assert Resolver(by_group).verdict("ann@x", "chess").sentence == (
        "ann@x reads chess: SELECT on table main.games.chess by group readers, USE_SCHEMA on schema main.games by "
        "group readers, USE_CATALOG on catalog main by group readers. The catalog does not know groups: it admits "
        "readers, and refuses ann@x by name."
    )


def test_who_owns_what_lies_above_does_not_read_but_could() -> None:
    """A schema's owner has USE_SCHEMA and no SELECT, and is flagged; the table's owner has SELECT."""
    observed = catalog_snapshot({CATALOG: {"account users": {"USE_CATALOG"}}})
    owned = replace(observed, owners={**observed.owners, SCHEMA: "ann@x", table_of("chess"): "bob@x"})
    ann, bob = (Resolver(owned).verdict(who, "chess") for who in ("ann@x", "bob@x"))
    assert (ann.reads, ann.could_grant_itself) == (False, True)
    assert ann.sentence.endswith("It could grant itself access, by ownership of schema main.games.")
    assert [need.ways[0].by if need.ways else None for need in bob.needs[:2]] == ["ownership", None]


@pytest.mark.proves("G123")
def test_what_was_not_read_is_not_known_unless_something_else_decides() -> None:
    """A missing USE_CATALOG is a no whatever the table says; with all else there, an unread table is an unknown."""
    everything = {CATALOG: {"ann@x": {"USE_CATALOG"}}, SCHEMA: {"ann@x": {"USE_SCHEMA"}}}

    def without_chess(observed: Observed) -> Observed:
        direct = {where: held for where, held in observed.direct.items() if where != table_of("chess")}
        return replace(observed, direct=direct)

    verdict = Resolver(without_chess(catalog_snapshot(everything))).verdict("ann@x", "chess")
    assert verdict.reads is None
    assert "grants and owner of table main.games.chess were not read" in verdict.sentence
    assert Resolver(without_chess(catalog_snapshot({}))).verdict("ann@x", "chess").reads is False


def test_who_is_not_active_or_not_there_reads_nothing() -> None:
    """Grants of somebody who was deactivated or deleted let nobody read."""
    observed = catalog_snapshot({CATALOG: {name: {"ALL_PRIVILEGES"} for name in ("ann@x", "eve@x")}})
    principals = dict(observed.directory.principals)
    principals["ann@x"] = replace(principals["ann@x"], active=False)
    resolver = Resolver(replace(observed, directory=replace(observed.directory, principals=principals)))
    assert resolver.verdict("ann@x", "chess").sentence == "ann@x does not read chess: it is not active."
    assert resolver.verdict("eve@x", "chess").sentence == "eve@x does not read chess: the directory does not know it."
    assert [frozenset()] * 2 == [resolver.reading(who).reads for who in ("ann@x", "eve@x")]


GRANTED = {
    CATALOG: {"readers": {"USE_CATALOG"}, "ann@x": {"USE_CATALOG"}},
    SCHEMA: {"readers": {"USE_SCHEMA"}, "ann@x": {"USE_SCHEMA"}},
    table_of("chess"): {"readers": {"SELECT"}},
}


def told(observed: Observed, **more: Any) -> Resolver:
    return Resolver(replace(observed, directory=replace(observed.directory, **more)))


@pytest.mark.proves("G264")
def test_members_that_are_not_shown_are_unknown_and_not_none() -> None:
    """Where a directory hides who is in a group, nobody is known not to read by it; what decides otherwise does."""
    resolver = told(catalog_snapshot(GRANTED), hidden=frozenset({"readers"}))
    assert [resolver.reading("ann@x").of(key) for key in ("chess", "go")] == [None, False]
    assert resolver.verdict("ann@x", "chess").sentence == (
        "It is unknown whether ann@x reads chess: the directory does not show whether it is in readers."
    )
    assert resolver.verdict("ann@x", "go").reads is False
    assert resolver.reading("readers").of("chess") is True
    assert told(catalog_snapshot(GRANTED)).reading("ann@x").of("chess") is False


@pytest.mark.proves("G265")
def test_a_name_that_several_share_is_unknown_for_its_members_alone() -> None:
    """Of two groups of one name nobody knows which holds a grant: their members may read, others do not."""
    observed = catalog_snapshot(GRANTED)
    people = {name: each for name, each in observed.directory.principals.items() if name != "readers"}
    shared = {"readers": ("Readers", "readers")}
    resolver = told(observed, principals=people, ambiguous=shared, doubtful={"ann@x": frozenset({"readers"})})
    assert [resolver.reading(who).of("chess") for who in ("ann@x", "bob@x", "readers")] == [None, False, None]
    assert resolver.standing("readers") == "unknown"


@pytest.mark.proves("G266")
def test_a_group_that_the_workspace_does_not_list_may_have_any_member() -> None:
    """A workspace lists only its own principals: a grant of another group of the account reaches nobody knows whom."""
    observed = catalog_snapshot({**GRANTED, table_of("go"): {"auditors": {"SELECT"}, "eve@x": {"SELECT"}}})
    resolver = told(observed, is_whole=False)
    assert resolver.standing("auditors") == "unknown"
    assert [resolver.reading("ann@x").of(key) for key in ("chess", "go")] == [False, None]
    assert resolver.hidden == {"auditors"}, "an address is no group's name"


def test_row_filters_and_masks_are_badges() -> None:
    """Who reads a filtered or masked table is told that less may be seen."""
    observed = catalog_snapshot({CATALOG: {"ann@x": {"ALL_PRIVILEGES"}}})
    chess = GameTable("chess", table_of("chess"), "1", "pipeline", has_row_filter=True, masked_columns=("mail", "ip"))
    verdict = Resolver(replace(observed, tables={"chess": chess})).verdict("ann@x", "chess")
    assert verdict.badges == ("row filter", "masked: mail, ip")
    assert verdict.sentence.endswith("The table hides some of its data (row filter; masked: mail, ip).")


def test_a_game_without_a_table_is_refused() -> None:
    """No verdict is made up for a game that the catalog does not have."""
    with pytest.raises(Refused, match=r"main\.games has no table of game 'dota'"):
        Resolver(catalog_snapshot()).verdict("ann@x", "dota")
