"""Silver and gold tables on a real embedded catalog: registered, granted with their games and by themselves."""

import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from sqlalchemy import insert, update

from grants.api import access
from grants.applying import drift_store, ledger
from grants.applying.expiries import submit_expired, submit_following
from grants.catalog import Change
from grants.catalogs.embedded import Embedded
from grants.catalogs.people import add
from grants.model import Securable
from grants.observing import snapshot
from grants.planning.drift import intent
from grants.planning.entitlements import AccessIntent
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.base.names import rule_table_name
from pipeline.control.derived.proposals import DerivedProposal, apply
from pipeline.control.operations.executor import tick
from pipeline.control.roles import CONTROLLER
from pipeline.data.derived.definitions import Aggregate, Entry, FlatRule, GoldDefinition, SilverDefinition, dumps
from pipeline.store import audit, derived
from pipeline.store.database.tables import entitlements, rule_tables
from pipeline.store.operations import Operation, list_operations
from tests.unit.grants.access_world import ANN, BOB, CHESS, GO, House
from tests.unit.grants.catalog_world import register_other

SALES = SilverDefinition("sold", "Chess", mask=(("email", "drop"),))
BY_HOUR = GoldDefinition("hours", SALES, 3600, (Aggregate("sold", "count"),))
SOLD, HOURS = "silver__sold", "gold__hours"


def declare(house: House, *entries: Entry) -> None:
    """Let these be the derived streams in force."""
    engine = house.world.engine
    derived.apply(engine, dumps(entries), derived.read_definitions(engine).number, "bob", "asked for by BI")


def write(house: House, key: str) -> None:
    """Let a stream's table come."""
    place = Path(house.world.paths.named(key))
    DeltaTable.create(place, Schema([Field("_seq", PrimitiveType("long"))]))


def pass_round(house: House) -> list[Operation]:
    """Let one round pass, with the operations that the controller submits in it; return these."""
    before = {each.operation_id for each in list_operations(house.world.engine)}
    house.rounds()
    new = [each for each in list_operations(house.world.engine) if each.operation_id not in before]
    if new:
        house.finish()
    return [each for each in list_operations(house.world.engine) if each.operation_id not in before]


def readers(house: House, key: str) -> set[str]:
    """Return who really reads a table."""
    table = house.catalog.tables(house.schema)[key]
    return {who for who in (ANN, BOB) if house.catalog.probe(who, table).reads}


@pytest.fixture
def tables(house: House) -> House:
    """The house with the games' tables, and one silver and one gold stream of Chess that have written nothing."""
    for key in (CHESS, GO):
        house.make_table(key)
    declare(house, SALES, BY_HOUR)
    house.rounds()
    return house


def test_tables_follow_the_game_as_they_are_made_and_until_it_is_revoked(tables: House) -> None:
    """Ann reads a table that is made after her grant one round later, by the controller; and none after the revoke."""
    assert SOLD not in tables.catalog.tables(tables.schema), "not yet made, and no failure"
    done = tables.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    assert done.state == "succeeded", done.outcome
    assert pass_round(tables) == []
    write(tables, SOLD)
    (followed,) = pass_round(tables)
    assert (followed.actor, followed.state) == (CONTROLLER, "succeeded"), followed.outcome
    assert readers(tables, SOLD) == {ANN}
    assert pass_round(tables) == []
    write(tables, HOURS)
    pass_round(tables)
    assert readers(tables, HOURS) == {ANN}
    gone = tables.do(AccessIntent(ANN, CHESS, False, reason="over"))
    assert gone.state == "succeeded", gone.outcome
    assert [readers(tables, key) for key in (CHESS, SOLD, HOURS)] == [set()] * 3
    assert ledger.managed(tables.world.engine).given == frozenset()
    changed = audit.changes_of({"parameters": gone.parameters})
    assert {(each.verb, each.game_key) for each in changed} == {("revoke", each) for each in (CHESS, SOLD, HOURS)}


def test_a_temporary_grant_of_a_game_ends_on_its_tables(tables: House) -> None:
    """The controller's revoke of what is over takes the silver table in the same operation."""
    write(tables, SOLD)
    tables.rounds()
    tables.do(AccessIntent(ANN, CHESS, True, time.time() + 3600, "numbers"))
    assert readers(tables, SOLD) == {ANN}
    with tables.world.engine.begin() as connection:
        connection.execute(update(entitlements).values(expires_at=time.time() - 1))
    (over,) = pass_round(tables)
    assert (over.actor, over.state) == (CONTROLLER, "succeeded"), over.outcome
    assert (readers(tables, SOLD), readers(tables, CHESS)) == (set(), set())


def test_a_masked_table_is_granted_by_itself(tables: House) -> None:
    """Bob reads the silver table and not its game; when its stream leaves force, the controller revokes that."""
    write(tables, SOLD)
    tables.rounds()
    done = tables.do(AccessIntent(BOB, SOLD, True, None, "masked rows"))
    assert done.state == "succeeded", done.outcome
    assert (readers(tables, SOLD), readers(tables, CHESS)) == ({BOB}, set())
    assert pass_round(tables) == []
    declare(tables)
    (left,) = pass_round(tables)
    assert (left.actor, left.state) == (CONTROLLER, "succeeded"), left.outcome
    assert readers(tables, SOLD) == set()
    assert ledger.held(tables.world.engine) == []
    assert ledger.managed(tables.world.engine).given == frozenset(), "USE_* went with it"


def test_a_table_that_a_rule_makes_follows_too(tables: House) -> None:
    """Tables of rules are in force without being in the file, and lose their grants when no rule chooses them."""
    name = rule_table_name("Chess", "acme.Sold")
    declare(tables, FlatRule("all", prefixes=("",)))
    definition = dumps([SilverDefinition(name, "Chess", "acme.Sold", rule="all")])[1:-1]
    row = {"name": name, "game_key": CHESS, "game": "Chess", "type": "acme.Sold", "number": 1, "reason": None}
    with tables.world.engine.begin() as connection:
        connection.execute(insert(rule_tables).values(**row, definition=definition))
    write(tables, f"silver__{name}")
    tables.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    pass_round(tables)
    assert readers(tables, f"silver__{name}") == {ANN}
    with tables.world.engine.begin() as connection:
        connection.execute(update(rule_tables).values(definition=None, reason="no rule chooses it"))
    pass_round(tables)
    assert readers(tables, f"silver__{name}") == set()
    assert readers(tables, CHESS) == {ANN}


def test_another_table_under_a_silver_name_is_noted_and_left_alone(tables: House) -> None:
    """A name that leads elsewhere is noted, drift, and granted to nobody, while the game is granted as ever."""
    place = register_other(tables.catalog, tables.world.paths, tables.schema, SOLD)
    write(tables, SOLD)
    tables.rounds()
    done = tables.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    assert done.state == "succeeded", done.outcome
    assert pass_round(tables) == []
    known = snapshot.read(tables.world.engine).observed
    assert known is not None
    assert any(SOLD in each and place in each for each in known.notes)
    assert (readers(tables, CHESS), readers(tables, SOLD)) == ({ANN}, set())
    world = tables.world
    found = drift_store.read_drift(world.engine, tables.catalog, world.settings.access, world.paths).findings
    assert [(each.kind, each.securable.path[-1]) for each in found] == [("other_table", SOLD)]
    with pytest.raises(Refused, match="another table"):
        tables.do(AccessIntent(BOB, SOLD, True, None, "masked rows"))


def test_a_table_that_is_not_yet_made_is_named_so(tables: House) -> None:
    """A grant of a silver table that has written nothing is refused with that word, and not as an unknown game."""
    with pytest.raises(Refused, match="silver__sold is not yet made"):
        tables.do(AccessIntent(BOB, SOLD, True, None, "masked rows"))


def test_a_lost_grant_is_reverted_by_a_person(tables: House) -> None:
    """A grant that others revoke on a silver table stays revoked until an admin reverts the finding."""
    write(tables, SOLD)
    tables.rounds()
    tables.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    tables.catalog.change(Change(Securable((*tables.schema.path, SOLD)), ANN, remove=("SELECT",)))
    assert pass_round(tables) == []
    world = tables.world
    (found,) = drift_store.read_drift(world.engine, tables.catalog, world.settings.access, world.paths).findings
    assert (found.kind, readers(tables, SOLD)) == ("missing", set())
    done = tables.do(intent(found, "revert", "not by hand"))
    assert (done.state, readers(tables, SOLD)) == ("succeeded", {ANN}), done.outcome


def test_a_silver_table_that_refuses_fails_no_grant_of_the_game(tables: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the catalog does not take the grant of the silver table, the game's stands, and the controller retries."""
    write(tables, SOLD)
    tables.rounds()
    change = Embedded.change

    def fails(self: Embedded, one: Change) -> None:
        if one.securable.path[-1] == SOLD:
            raise Refused("no grants on Mondays")
        change(self, one)

    monkeypatch.setattr(Embedded, "change", fails)
    done = tables.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    assert done.state == "failed", "a part failed, and it is said"
    assert readers(tables, CHESS) == {ANN}
    assert [each.game_key for each in ledger.held(tables.world.engine)] == [CHESS]
    monkeypatch.setattr(Embedded, "change", change)
    (followed,) = pass_round(tables)
    assert (followed.actor, followed.state) == (CONTROLLER, "succeeded"), followed.outcome
    assert readers(tables, SOLD) == {ANN}


def test_the_pages_list_tables_below_their_games(tables: House) -> None:
    """The matrix has a game's silver and gold tables behind it, each with a name that says of which game it is."""
    for key in (SOLD, HOURS):
        write(tables, key)
    tables.rounds()
    opened = OpenEnvironment(tables.world.settings, tables.world.paths, tables.world.engine)
    known = access.resolve(opened)
    assert known.matrix.keys == (CHESS, HOURS, SOLD, GO)
    state = access.read(opened, known, None)
    assert state.game(SOLD) == "Chess: silver sold · silver__sold"


def test_a_definition_shows_no_more_to_readers_of_its_table_alone(tables: House) -> None:
    """A file that unmasks a table which Bob was granted by itself is refused as it is written, and nothing is."""
    write(tables, SOLD)
    tables.rounds()
    tables.do(AccessIntent(BOB, SOLD, True, None, "masked rows"))
    world, seen = tables.world, derived.read_definitions(tables.world.engine)
    clear = replace(SALES, mask=())
    unmasked = DerivedProposal(seen, (clear, replace(BY_HOUR, silver=clear)), (), lambda _, known: known)
    with pytest.raises(Refused, match="silver__sold is granted by itself to 1 principals, who would see more: email"):
        apply(world.settings, world.engine, unmasked, "bob", "more for BI")
    assert derived.read_definitions(world.engine) == seen
    tables.do(AccessIntent(BOB, SOLD, False, reason="over"))
    assert apply(world.settings, world.engine, unmasked, "bob", "more for BI").number == seen.number + 1


def test_a_table_whose_folder_is_gone_keeps_no_reader_of_its_game_waiting(tables: House) -> None:
    """Where a silver table's files were removed, a grant of its game is made all the same."""
    write(tables, SOLD)
    tables.rounds()
    shutil.rmtree(Path(tables.world.paths.named(SOLD)))
    done = tables.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    assert done.state == "succeeded", done.outcome
    assert readers(tables, CHESS) == {ANN}


def test_an_expiry_waits_for_nothing_that_follows(tables: House) -> None:
    """An operation that grants a table with its game and cannot end holds up no revoke of the table's own grant."""
    write(tables, SOLD)
    tables.rounds()
    tables.do(AccessIntent(ANN, SOLD, True, time.time() + 3600, "masked rows"))
    engine = tables.world.engine
    with engine.begin() as connection:
        connection.execute(update(entitlements).values(expires_at=time.time() - 1))
    submit_following(engine, tables.schema, [AccessIntent(ANN, SOLD, read=True, reason="a test", follow=True)])
    submit_expired(engine, tables.schema)
    assert len(list_operations(engine, only_open=True)) == 2
    tables.finish()
    assert readers(tables, SOLD) == set()


def test_tables_that_hang_hold_up_no_expiry(tables: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the catalog answers no grant of a silver table, access that is over is revoked as ever."""
    carl, goes_on, change = "carl@example.com", threading.Event(), Embedded.change
    add(tables.catalog, carl, [])
    tables.do(AccessIntent(carl, GO, True, time.time() + 3600, "numbers"))
    tables.do(*(AccessIntent(who, CHESS, True, None, "numbers") for who in (ANN, BOB)))
    write(tables, SOLD)

    def hangs(self: Embedded, one: Change) -> None:
        if one.securable.path[-1] == SOLD:
            goes_on.wait(60)
        change(self, one)

    monkeypatch.setattr(Embedded, "change", hangs)
    tables.rounds()
    with tables.world.engine.begin() as connection:
        connection.execute(
            update(entitlements).values(expires_at=time.time() - 1).where(entitlements.c.principal == carl)
        )
    for _ in range(20):
        tick(tables.world, tables.steward.kinds)  # both of what follows are at work
    submit_expired(tables.world.engine, tables.schema)
    pause = threading.Event()
    for _ in range(1_000):
        tick(tables.world, tables.steward.kinds)
        still_open = list_operations(tables.world.engine, only_open=True)
        if len(still_open) < 3:
            break
        pause.wait(0.01)
    assert [each.parameters["intents"][0]["key"] for each in still_open] == [SOLD, SOLD]
    goes_on.set()
    tables.finish()
    assert readers(tables, SOLD) == {ANN, BOB}
