"""One contract for every catalog: what the embedded one does, a real one must do, and the other way round.

`unity` and `databricks` run where the environment names a server, see `catalog_world.NEEDED`; else they are skipped.
The last lines of a run say which were really run.
"""

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grants.catalog import CatalogUnavailable, Change, Denied, NotFound, Probe
from grants.catalogs.embedded import Embedded
from grants.catalogs.rest import Rest
from grants.model import ALL_PRIVILEGES, SELECT, USE_CATALOG, USE_SCHEMA, GameTable, Securable, folded
from grants.observing.resolver import Resolver
from grants.observing.snapshot import observe
from pipeline.base.errors import Refused
from tests.unit.grants.catalog_world import (
    NEEDED,
    SCIM,
    UC,
    DatabricksWorld,
    EmbeddedWorld,
    FakeClock,
    Server,
    UnityWorld,
    World,
    fresh,
    recorder,
    served,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("catalog") / "served") as running:
        yield running


@pytest.fixture
def embedded(server: Server) -> Iterator[EmbeddedWorld]:
    """Return the embedded catalog, for the troubles that only it can be told to make."""
    yield EmbeddedWorld(server)
    server.trouble()


@pytest.fixture(params=["embedded", "unity", "databricks"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Return every catalog there is, one after another."""
    if request.param == "embedded":
        return EmbeddedWorld(request.getfixturevalue("server"))
    missing = [name for name in NEEDED[request.param] if not os.environ.get(name)]
    if missing:
        pytest.skip(f"{request.param} was NOT tested: the environment has no {', '.join(missing)}")
    return UnityWorld(tmp_path, os.environ) if request.param == "unity" else DatabricksWorld(os.environ)


def held(world: World, securable: Securable, principal: str) -> frozenset[str]:
    """Return what a principal has directly on a securable."""
    assigned = {folded(name): privileges for name, privileges in world.catalog.assignments(securable).items()}
    return assigned.get(folded(principal), frozenset())


def probed(world: World, principal: str, table: GameTable) -> bool:
    """Return whether somebody can read, or skip where this catalog's token cannot try it."""
    probe = world.catalog.probe(principal, table)
    if probe.reads is None:
        pytest.skip(f"{world.catalog.kind} cannot try to read: {probe.message}")
    return probe.reads


def schema_of(table: GameTable) -> Securable:
    schema = table.securable.parent
    assert schema is not None
    return schema


def places(table: GameTable) -> list[tuple[Securable, str]]:
    """Return the three grants that together let somebody read a table."""
    return list(zip(table.securable.chain(), (SELECT, USE_SCHEMA, USE_CATALOG), strict=True))


def let_read(world: World, principal: str, table: GameTable) -> None:
    for securable, privilege in places(table):
        world.catalog.change(Change(securable, principal, add=(privilege,)))


# ------------------------------------------------------------------------------------------------------- every catalog


def test_what_is_given_and_taken_twice_is_so_once(world: World) -> None:
    """A grant is read back in our spelling; giving it again, taking it and taking it again change nothing more."""
    table, user, other = world.table(), world.user(), world.user()
    for securable, privilege in places(table):
        world.catalog.change(Change(securable, other, add=(privilege,)))
        for _ in range(2):
            world.catalog.change(Change(securable, user, add=(privilege,)))
            assert held(world, securable, user) == {privilege}
        for _ in range(2):
            world.catalog.change(Change(securable, user, remove=(privilege,)))
            assert held(world, securable, user) == frozenset()
        assert held(world, securable, other) == {privilege}


def test_somebody_or_something_that_is_not_there_is_gone(world: World) -> None:
    """An unknown principal, table, schema or catalog is Gone, in reads and in changes, and nothing is changed."""
    table, user = world.table(), world.user()
    before = world.catalog.assignments(table.securable)
    with pytest.raises(NotFound):
        world.catalog.change(Change(table.securable, f"{fresh('nobody')}@example.com", add=(SELECT,)))
    for path in (
        (*table.securable.path[:2], fresh("none")),
        (table.securable.path[0], fresh("none")),
        (fresh("none"),),
    ):
        missing = Securable(path)
        for call in (world.catalog.owner, world.catalog.assignments):
            with pytest.raises(NotFound):
                call(missing)
        with pytest.raises(NotFound):
            world.catalog.change(Change(missing, user, add=(USE_CATALOG if len(path) == 1 else SELECT,)))
    with pytest.raises(NotFound):
        world.catalog.tables(Securable((table.securable.path[0], fresh("none"))))
    assert before == world.catalog.assignments(table.securable)


def test_a_name_that_says_more_than_a_name_is_refused_before_it_is_sent() -> None:
    """No text with another character than those of a name becomes a securable."""
    for name in ("a/b", "..", "a.b", "a b", "a%2eb", "a?b", "a#b", "", "ä", "a\n", "`a`", "a" * 256):
        with pytest.raises(Refused):
            Securable(("main", "games", name))


def test_all_three_grants_are_needed_to_read(world: World) -> None:
    """Of the eight ways to have SELECT, USE_SCHEMA and USE_CATALOG only one reads, and a revoke ends it."""
    table = world.table()
    for mask in itertools.product([False, True], repeat=3):
        user = world.user()
        for given, (securable, privilege) in zip(mask, places(table), strict=True):
            if given:
                world.catalog.change(Change(securable, user, add=(privilege,)))
        assert probed(world, user, table) == all(mask), mask
        if all(mask):
            world.catalog.change(Change(table.securable, user, remove=(SELECT,)))
            assert not probed(world, user, table)


@pytest.mark.parametrize("level", [1, 2])
def test_what_is_granted_outside_holds_inside(world: World, level: int) -> None:
    """SELECT on the schema or the catalog lets somebody read the table, whose own list does not show it."""
    table, user = world.table(), world.user()
    let_read(world, user, table)
    world.catalog.change(Change(table.securable, user, remove=(SELECT,)))
    outer = list(table.securable.chain())[level]
    world.catalog.change(Change(outer, user, add=(SELECT,)))
    assert probed(world, user, table)
    assert held(world, table.securable, user) == frozenset()


def test_groups_in_groups_pass_on_what_they_have(world: World) -> None:
    """Somebody in a group in a group reads what the outermost may, and the directory shows how they are nested."""
    table, user, stranger = world.table(), world.user(), world.user()
    inner = world.group([user])
    outer = world.group([inner])
    let_read(world, outer, table)
    directory = world.catalog.directory()
    assert directory.principals[folded(outer)].kind == "group"
    assert directory.principals[folded(user)].kind == "user"
    assert folded(inner) in directory.groups_of[folded(user)]
    assert folded(outer) in directory.groups_of[folded(inner)]
    assert probed(world, user, table)
    assert not probed(world, stranger, table)


def test_a_table_is_registered_once_and_where_it_lies(world: World) -> None:
    """Registering again is no change; under another address it is refused; owner and id are told."""
    table = world.table()
    location = f"{world.location}/{table.securable.full_name}"
    assert world.catalog.register(table.securable, location, []) is False
    with pytest.raises(Refused):
        world.catalog.register(table.securable, f"{location}_elsewhere", [])
    assert table.table_id
    assert table.owner == world.catalog.owner(table.securable) == world.catalog.executor


def test_names_are_found_in_any_casing_or_in_theirs_only(world: World) -> None:
    """Where names are compared without case, a grant in another casing is the same grant; else it is nobody's."""
    table, user = world.table(), world.user()
    if not world.folds_case:
        with pytest.raises(NotFound):
            world.catalog.change(Change(table.securable, user.upper(), add=(SELECT,)))
        assert world.catalog.assignments(table.securable) == {}
        return
    world.catalog.change(Change(table.securable, user.upper(), add=(SELECT,)))
    world.catalog.change(Change(table.securable, user, add=(SELECT,)))
    assert held(world, table.securable, user) == {SELECT}
    assert len([name for name in world.catalog.assignments(table.securable) if folded(name) == folded(user)]) == 1


def test_changes_at_once_are_all_kept(world: World) -> None:
    """Twenty changes sent at the same time, to one table and by several threads, are all there afterwards."""
    table, users = world.table(), [world.user() for _ in range(20)]
    changes = [Change(table.securable, user, add=(SELECT,)) for user in users]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(world.catalog.change, changes))
    assert {folded(user) for user in users} <= {folded(name) for name in world.catalog.assignments(table.securable)}


HOSTILE = ("a/b", "../catalog/x", "a?b=c", "a#b", "a%2F..%2Fb", "a;b", "`; DROP TABLE x", "a' OR '1'='1", "ä☃", "a b")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_gets_its_own_grant_and_no_other(world: World, name: str) -> None:
    """A grant to somebody whose name is made to be misread reaches that principal and securable, and nothing else."""
    if not world.takes_any_name:
        pytest.skip(f"{world.catalog.kind} has users by address only")
    table, bystander = world.table(), world.table()
    user = world.user(f"{name}{fresh('')}")
    world.catalog.change(Change(table.securable, user, add=(SELECT,)))
    assert {user: {SELECT}} == world.catalog.assignments(table.securable)
    assert not probed(world, user, table)
    let_read(world, user, table)
    assert probed(world, user, table)
    assert not probed(world, user, bystander)
    assert world.catalog.directory().principals[folded(user)].name == user
    for securable in (bystander.securable, schema_of(bystander)):
        assert world.catalog.assignments(securable) == {}


def test_a_table_made_anew_has_no_grants(world: World) -> None:
    """Dropping and making a table gives another id and loses its grants; the old id cannot be read with."""
    table, user = world.table(), world.user()
    let_read(world, user, table)
    world.drop(table)
    assert world.catalog.probe(user, table).reads is None
    assert world.catalog.register(table.securable, f"{world.location}/{table.securable.full_name}", [])
    anew = world.catalog.tables(schema_of(table))[table.key]
    assert anew.table_id != table.table_id
    assert world.catalog.assignments(table.securable) == {}
    assert not probed(world, user, anew)


def test_who_was_deleted_reads_nothing(world: World) -> None:
    """Of a deleted user there is no grant by name; they are not in the directory, or not active, and cannot read."""
    table, user = world.table(), world.user()
    group = world.group([user])
    for each in (user, group):
        let_read(world, each, table)
    world.delete(user)
    assert held(world, table.securable, user) == frozenset()
    known = world.catalog.directory().principals.get(folded(user))
    assert known is None or not known.active
    assert not probed(world, user, table)


def test_what_does_not_fit_on_a_page_is_read_all_the_same(world: World) -> None:
    """Of 130 users, tables and grants, more than any catalog's page has, each is read once."""
    if not world.may_be_filled:
        pytest.skip(f"{world.catalog.kind} would be left with hundreds of users and tables")
    table = world.table()
    users, tables = {world.user() for _ in range(130)}, {fresh("game") for _ in range(130)}
    for name in tables:
        securable = Securable((*schema_of(table).path, name))
        assert world.catalog.register(securable, f"{world.location}/{securable.full_name}", [])
    for user in users:
        world.catalog.change(Change(table.securable, user, add=(SELECT,)))
    assert {*tables, table.key} == set(world.catalog.tables(schema_of(table)))
    assert {folded(user) for user in users} <= set(world.catalog.directory().principals)
    assert dict.fromkeys(users, frozenset({SELECT})) == world.catalog.assignments(table.securable)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.proves("G123")
def test_what_we_work_out_is_what_the_catalog_does(world: World, seed: int) -> None:
    """Whatever was granted on whatever level, by whatever group: who reads by our reckoning can read, no one else."""
    pick = random.Random(seed)
    table, users = world.table(), [world.user() for _ in range(4)]
    inner = world.group(users[:2])
    outer = world.group([inner, users[2]])
    other = Securable((*schema_of(table).path, fresh("game")))
    world.catalog.register(other, f"{world.location}/{other.full_name}", [])
    tables = world.catalog.tables(schema_of(table))
    for _ in range(4):
        for _ in range(8):
            privilege, level = pick.choice(
                [(SELECT, 3), (SELECT, 2), (USE_SCHEMA, 2), (USE_SCHEMA, 1), (USE_CATALOG, 1)]
            )
            where = Securable(pick.choice(list(tables.values())).securable.path[:level])
            how = {pick.choice(["add", "add", "remove"]): (privilege,)}
            world.catalog.change(Change(where, pick.choice([*users, inner, outer]), **how))
        resolver = Resolver(observe(world.catalog, schema_of(table), 0, {}))
        for user, each in itertools.product(users, tables.values()):
            assert resolver.reading(user).of(each.key) == probed(world, user, each), (user, each.key)


# -------------------------------------------------------------------------------- what the embedded one can be told to


def test_every_page_is_read(embedded: EmbeddedWorld) -> None:
    """Grants, tables and principals on many pages, empty ones between them, are all read (H: paging)."""
    table, users = embedded.table(), [embedded.user() for _ in range(7)]
    schema = table.securable.parent
    assert schema is not None
    more = [Securable((*schema.path, fresh("game"))) for _ in range(7)]
    for each in more:
        embedded.catalog.register(each, f"file:///nowhere/{each.full_name}", [])
    for user in users:
        embedded.catalog.change(Change(table.securable, user, add=(SELECT,)))
    embedded.server.trouble(page_rows=2, empty_pages=True)
    assert dict.fromkeys(users, frozenset({SELECT})) == embedded.catalog.assignments(table.securable)
    assert {table.key, *(each.path[-1] for each in more)} == set(embedded.catalog.tables(schema))
    users.extend(embedded.user() for _ in range(100))
    assert {folded(user) for user in users} <= set(embedded.catalog.directory().principals)


def test_an_unknown_privilege_is_kept_in_sight(embedded: EmbeddedWorld) -> None:
    """A privilege that nobody here knows is read as it came: leaving it out would show less than there is."""
    table, user = embedded.table(), embedded.user()
    embedded.catalog.change(Change(table.securable, user, add=(SELECT,)))
    embedded.server.trouble(unknown_privileges=True)
    assert held(embedded, table.securable, user) == {SELECT, "READ_SOMETHING_NEW"}


def test_another_casing_means_the_same(embedded: EmbeddedWorld) -> None:
    """Privileges come out in our spelling whatever the catalog's; principals are told as it spells them."""
    table, user = embedded.table(), embedded.user()
    embedded.catalog.change(Change(table.securable, user, add=(SELECT,)))
    embedded.server.trouble(other_casing=True)
    assigned = embedded.catalog.assignments(table.securable)
    assert list(assigned.values()) == [{SELECT}]
    assert list(assigned) == [user.swapcase()]


def test_reads_can_lag_and_catch_up(embedded: EmbeddedWorld) -> None:
    """What was given is not seen for a while, though it is enforced at once: applied and observed are two states."""
    table, user = embedded.table(), embedded.user()
    embedded.server.trouble(late_reads=True)
    let_read(embedded, user, table)
    assert held(embedded, table.securable, user) == frozenset()
    assert embedded.catalog.probe(user, table).reads is True
    embedded.server.trouble()
    assert held(embedded, table.securable, user) == {SELECT}


def test_a_change_of_several_is_not_atomic(embedded: EmbeddedWorld) -> None:
    """A request that fails in its middle has done its beginning: so ours have one principal each."""
    table, first, last = embedded.table(), embedded.user(), embedded.user()
    changes = [{"principal": each, "add": [SELECT]} for each in (first, fresh("nobody"), last)]
    path = f"{UC}/permissions/table/{table.securable.full_name}"
    assert embedded.server.call("PATCH", path, {"changes": changes}).status_code == 404
    assert set(embedded.catalog.assignments(table.securable)) == {first}


def test_a_busy_catalog_is_waited_for_as_it_asks(embedded: EmbeddedWorld) -> None:
    """After 429 the client waits as long as Retry-After says, tries again, and the change is done."""
    table, user, clock = embedded.table(), embedded.user(), FakeClock()
    embedded.server.trouble(busy_every=2, retry_after_seconds=3)
    catalog = embedded.impatient(clock=clock)
    for _ in range(2):
        catalog.change(Change(table.securable, user, add=(SELECT,)))
    assert len(clock.slept) == 1
    assert 3 <= clock.slept[0] <= 4
    embedded.server.trouble()
    assert held(embedded, table.securable, user) == {SELECT}


@pytest.mark.parametrize("retry_after", [1, 3600])
def test_a_catalog_that_stays_busy_is_away(embedded: EmbeddedWorld, retry_after: int) -> None:
    """When the budget is used up, or would be by one wait, the catalog is away: nobody hangs for an hour."""
    clock = FakeClock()
    table = embedded.table()
    embedded.server.trouble(busy_every=1, retry_after_seconds=retry_after)
    with pytest.raises(CatalogUnavailable):
        embedded.impatient(clock=clock).assignments(table.securable)
    assert clock.now <= 12


def test_a_failing_catalog_is_away_and_its_lost_answers_do_no_harm(embedded: EmbeddedWorld) -> None:
    """500 is CatalogAway; where the change had been done all the same, doing it again is no other change."""
    table, user = embedded.table(), embedded.user()
    change = Change(table.securable, user, add=(SELECT,))
    for troubles, expected in (({"failing_every": 1}, frozenset[str]()), ({"lost_every": 1}, frozenset({SELECT}))):
        embedded.server.trouble(**troubles)
        with pytest.raises(CatalogUnavailable):
            embedded.catalog.change(change)
        embedded.server.trouble()
        assert held(embedded, table.securable, user) == expected
    embedded.catalog.change(change)
    assert held(embedded, table.securable, user) == {SELECT}


def test_a_catalog_that_does_not_answer_in_time_is_away(embedded: EmbeddedWorld) -> None:
    """An answer that takes too long is CatalogAway, after no more than the timeouts told."""
    table = embedded.table()
    embedded.server.trouble(slow_every=1, slow_seconds=5)
    begun = time.monotonic()
    with pytest.raises(CatalogUnavailable):
        embedded.impatient(timeout_seconds=1, budget_seconds=1).assignments(table.securable)
    assert time.monotonic() - begun < 4


def test_a_deleted_principal_leaves_a_grant_without_a_name(embedded: EmbeddedWorld) -> None:
    """A deleted principal reads nothing, is in no list, and their grants stay in sight under no name."""
    table, user = embedded.table(), embedded.user()
    let_read(embedded, user, table)
    embedded.server.ok("DELETE", f"{SCIM}/Users/{embedded.ids[user]}")
    assert embedded.catalog.assignments(table.securable) == {"": {SELECT}}
    assert folded(user) not in embedded.catalog.directory().principals
    assert embedded.catalog.probe(user, table) == Probe(False, f"The catalog does not know {user!r}.")
    embedded.user(user)
    assert embedded.catalog.probe(user, table).reads is False


def test_a_deleted_group_passes_nothing_on(embedded: EmbeddedWorld) -> None:
    """Who read by a group reads no more when it is deleted, or when they are taken out of it."""
    table, user = embedded.table(), embedded.user()
    for end in ("deleted", "left"):
        group = embedded.group([user])
        let_read(embedded, group, table)
        assert embedded.catalog.probe(user, table).reads is True
        path = f"{SCIM}/Groups/{embedded.ids[group]}"
        leave = {"op": "remove", "path": f'members[value eq "{embedded.ids[user]}"]'}
        if end == "deleted":
            embedded.server.ok("DELETE", path)
        else:
            embedded.server.ok("PATCH", path, {"Operations": [leave]})
        assert embedded.catalog.probe(user, table).reads is False, end


def test_ownership_and_all_privileges_let_read_where_they_should(embedded: EmbeddedWorld) -> None:
    """A table's owner needs both USE_* but no SELECT; ALL_PRIVILEGES is SELECT; a schema's owner could grant it."""
    table, user = embedded.table(), embedded.user()
    let_read(embedded, user, table)
    embedded.catalog.change(Change(table.securable, user, remove=(SELECT,)))
    embedded.catalog.change(Change(table.securable, user, add=(ALL_PRIVILEGES,)))
    assert embedded.catalog.probe(user, table).reads is True
    embedded.catalog.change(Change(table.securable, user, remove=(ALL_PRIVILEGES,)))
    schema = table.securable.parent
    assert schema is not None
    embedded.server.ok("PATCH", f"{UC}/schemas/{schema.full_name}", {"owner": user})
    assert embedded.catalog.probe(user, table).reads is False
    embedded.server.ok("PATCH", f"{UC}/tables/{table.securable.full_name}", {"owner": user})
    embedded.catalog.change(Change(schema, user, remove=(USE_SCHEMA,)))
    assert embedded.catalog.probe(user, table).reads is True
    assert embedded.catalog.owner(table.securable) == user


# ------------------------------------------------------------------------------------------------- a server that dies


def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    """A server killed in the midst of changes has each of those it acknowledged, and none half."""
    with served(tmp_path) as first:
        world = EmbeddedWorld(first)
        table, users = world.table(), [world.user() for _ in range(60)]
        catalog, done, enough = world.impatient(budget_seconds=1), list[str](), threading.Event()

        def change() -> None:
            for user in users:
                try:
                    catalog.change(Change(table.securable, user, add=(SELECT,)))
                except CatalogUnavailable:
                    return
                done.append(user)
                if len(done) == 20:
                    enough.set()

        thread = threading.Thread(target=change)
        thread.start()
        enough.wait(60)
        first.kill()
        thread.join()
        with pytest.raises(CatalogUnavailable):
            catalog.assignments(table.securable)
    with served(tmp_path) as second:
        kept = EmbeddedWorld(second).catalog.assignments(table.securable)
        assert len(done) >= 20
        assert set(done) <= set(kept)
        assert all(privileges == {SELECT} for privileges in kept.values())
        assert (first.token, table.table_id) == (
            second.token,
            EmbeddedWorld(second).catalog.tables(schema_of(table))[table.key].table_id,
        )


def test_a_token_that_is_not_known_is_denied(server: Server) -> None:
    """A wrong token is Denied, and the sentence has neither the token nor the client's settings in it."""
    with pytest.raises(Denied) as denied:
        Embedded(Rest(server.url, "dapi-secret-of-somebody")).directory()
    assert "secret" not in str(denied.value)
    assert "Config" not in str(denied.value)


def test_whoever_answers_but_is_no_catalog_is_away() -> None:
    """Answers that are no catalog's are CatalogAway, never an empty list: a redirect, a list, a wrong shape."""
    path = f"{UC}/permissions/catalog/main"
    with recorder() as stub:
        catalog = Embedded(Rest(stub.url, "token", clock=FakeClock()))
        wrong: tuple[object, ...] = (
            [],
            {"privilege_assignments": {"a": 1}},
            {"privilege_assignments": [{"privileges": [1]}]},
            {"privilege_assignments": [{"privileges": "SELECT"}]},
        )
        for answer in wrong:
            stub.answers[path] = answer
            with pytest.raises(CatalogUnavailable):
                catalog.assignments(Securable(("main",)))
        stub.answers[path] = {"next_page_token": "again"}
        with pytest.raises(CatalogUnavailable):
            catalog.assignments(Securable(("main",)))
        stub.answers.clear()
        stub.status, stub.extra = 302, {"Location": f"{stub.url}/elsewhere"}
        with pytest.raises(CatalogUnavailable):
            catalog.change(Change(Securable(("main",)), "ada", add=(USE_CATALOG,)))
        assert not [each for each in stub.paths() if "elsewhere" in each]
