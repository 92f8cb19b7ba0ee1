"""The controller's part of access, on a real embedded catalog: tables are registered, snapshots taken, terms ended."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from grants.applying import drift_store, ledger, proposals
from grants.applying.approvals import approval, approved
from grants.applying.expiries import Tries
from grants.applying.requests import decide, request
from grants.applying.requests import submit as submit_request
from grants.catalog import Change, Denied
from grants.catalogs.embedded import Embedded
from grants.catalogs.people import add
from grants.catalogs.rest import Rest
from grants.cli.reading import rows
from grants.model import Securable
from grants.observing import snapshot
from grants.planning.drift import CLASSES, Drift, intent
from grants.planning.entitlements import AccessIntent
from grants.reconciler import AccessReconciler
from pipeline.base.errors import Refused
from pipeline.control.acts import DirectAct
from pipeline.control.operations.executor import advance, tick
from pipeline.control.operations.onboarding import rename
from pipeline.control.roles import CONTROLLER
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Roles
from pipeline.store import audit
from pipeline.store.database.states import OperationKind, OperationState
from pipeline.store.database.tables import entitlements, ignored_drift
from pipeline.store.games import record_seen
from pipeline.store.operations import Intent, Operation, change, list_operations, operation, steps, submit
from pipeline.store.wanted_readers import WantedReader, read_ungranted, read_wanted, want_within
from tests.unit.grants.access_world import ANN, BOB, CHESS, GO, House
from tests.unit.grants.catalog_world import SCIM, register_other, served

READING = ("SELECT", "USE_SCHEMA", "USE_CATALOG")


def test_tables_of_games_are_registered_as_they_come(house: House) -> None:
    """A game's table is in the catalog one round after it is there; a game without one is not; twice is once."""
    house.make_table(CHESS)
    house.rounds()
    house.rounds()
    assert set(house.catalog.tables(house.schema)) == {CHESS}
    house.make_table(GO)
    house.rounds()
    assert set(house.catalog.tables(house.schema)) == {CHESS, GO}
    known = snapshot.read(house.world.engine)
    assert known.problem is None
    assert known.observed is not None
    assert set(known.observed.tables) == {CHESS, GO}


def next_snapshot(house: House, after: float) -> float:
    """Let the controller tick until there is a newer snapshot than one that was read then; return when it was read."""
    pause = threading.Event()
    for _ in range(1_000):
        assert house.steward.tick() is None
        known = snapshot.read(house.world.engine).observed
        if known is not None and known.read_at > after:
            return known.read_at
        pause.wait(0.01)  # the round runs in a thread
    raise AssertionError("no newer snapshot")


def test_a_change_that_was_seen_is_in_a_snapshot_at_once(house: House) -> None:
    """After an operation the next tick takes a snapshot with it, however far off the next round is."""
    far = replace(house.world.settings.access, refresh_seconds=3600.0)
    house.world = replace(house.world, settings=replace(house.world.settings, access=far))
    house.steward = AccessReconciler(house.world, os.environ)
    house.make_table(CHESS)
    first = next_snapshot(house, 0.0)
    house.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    second = next_snapshot(house, first)
    known = snapshot.read(house.world.engine).observed
    assert known is not None
    assert "SELECT" in known.direct[known.tables[CHESS].securable][ANN]
    house.do(AccessIntent(ANN, CHESS, False, reason="over"))
    assert house.steward.tick() is None, "its round begins"
    house.do(
        AccessIntent(BOB, CHESS, True, None, "numbers")
    )  # seen while the round runs, or after it: it needs another one
    next_snapshot(house, next_snapshot(house, second))


def test_a_table_that_lies_elsewhere_is_told_of(house: House) -> None:
    """A name that is taken by another table is not quietly adopted: the snapshot says so, the rest goes on."""
    taken = Securable((*house.schema.path, CHESS))
    house.catalog.register(taken, "file:///somewhere/else", [("seq", "long")])
    house.catalog.rest.write("DELETE", f"/api/2.1/unity-catalog/tables/{taken.full_name}", {})
    house.catalog.register(Securable((*house.schema.path, "other")), Path(house.world.paths.table(CHESS)).as_uri(), [])
    house.make_table(CHESS)
    house.make_table(GO)
    house.rounds()
    assert GO in house.catalog.tables(house.schema)
    known = snapshot.read(house.world.engine)
    assert known.problem is None, "the catalog was read"
    assert known.observed is not None
    assert any(CHESS in each for each in known.observed.notes)


@pytest.mark.usefixtures("_impatient")
def test_what_has_drifted_is_counted_beside_each_snapshot(house: House) -> None:
    """A round counts what nobody ignores, for the alerts; without the catalog the count has the snapshot's age."""
    house.make_table(CHESS)
    house.rounds()
    engine = house.world.engine
    first = read_controller_metrics(engine, read_fleet(engine))
    assert first.drift == dict.fromkeys(CLASSES, 0)
    house.catalog.change(Change(Securable((*house.schema.path, CHESS)), ANN, add=("SELECT",)))
    house.rounds()
    second = read_controller_metrics(engine, read_fleet(engine))
    assert second.drift is not None
    assert second.drift["extra"] == 1
    assert (second.access_read_at or 0.0) > (first.access_read_at or 0.0)
    (found,) = drift_store.read_drift(engine, house.catalog, house.world.settings.access, house.world.paths).findings
    drift_store.ignore(engine, house.world.settings, [found], "carl", "known")
    house.rounds()
    third = read_controller_metrics(engine, read_fleet(engine))
    assert third.drift == first.drift
    house.server.kill()
    house.rounds()
    away = read_controller_metrics(engine, read_fleet(engine))
    assert (away.drift, away.access_read_at) == (third.drift, third.access_read_at)


@pytest.mark.usefixtures("_impatient")
def test_a_round_that_never_ends_is_an_alarm_until_it_does(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that takes a request and never answers holds the thread: nobody else would say so."""
    goes_on, now = threading.Event(), [1_000.0]
    monkeypatch.setattr("grants.reconciler.time.monotonic", lambda: now[0])
    monkeypatch.setattr(AccessReconciler, "run_round", lambda _: goes_on.wait(30) and None)
    assert house.steward.tick() is None
    now[0] += 899
    assert house.steward.tick() is None
    now[0] += 2
    assert "a round has been running for 15 min: until it ends the catalog is not read" in str(house.steward.tick())
    goes_on.set()
    assert house.steward._round is not None
    house.steward._round.result(30)
    assert house.steward.tick() is None


@pytest.mark.usefixtures("_impatient")
def test_a_catalog_that_is_away_leaves_the_last_snapshot(house: House) -> None:
    """What was read stays, with its age, and why it is old is told."""
    house.make_table(CHESS)
    house.rounds()
    house.server.kill()
    house.rounds()
    known = snapshot.read(house.world.engine)
    assert known.observed is not None
    assert known.problem is not None
    assert "does not answer" in known.problem


@pytest.mark.proves("G124")
def test_what_has_run_out_is_taken_by_itself(house: House) -> None:
    """A term that is over ends without a person, in the name of the controller; one without an end stays."""
    house.make_table(CHESS)
    house.rounds()
    now = snapshot.read(house.world.engine).observed
    assert now is not None
    house.do(
        AccessIntent(ANN, CHESS, True, now.read_at + 3600, "numbers"), AccessIntent(BOB, CHESS, True, None, "numbers")
    )
    with house.world.engine.begin() as connection:  # its time comes
        over = entitlements.c.expires_at.is_not(None)
        connection.execute(update(entitlements).where(over).values(expires_at=now.read_at - 1))
    house.rounds()
    done = house.finish()
    assert (done.actor, done.state) == (CONTROLLER, "succeeded"), done.outcome
    table = house.catalog.tables(house.schema)[CHESS]
    assert (house.catalog.probe(ANN, table).reads, house.catalog.probe(BOB, table).reads) == (False, True)
    house.rounds()
    assert len(list_operations(house.world.engine)) == 2


@pytest.mark.proves("G265")
def test_expired_access_is_revoked_though_the_rest_of_the_round_fails(house: House) -> None:
    """Expiry comes first: what fails later in a round, here the count of drift, leaves no access open."""
    house.make_table(CHESS)
    house.rounds()
    now = snapshot.read(house.world.engine).observed
    assert now is not None
    house.do(*[AccessIntent(who, CHESS, True, now.read_at + 3600, "numbers") for who in (ANN, BOB)])
    with house.world.engine.begin() as connection:  # their time comes
        connection.execute(update(entitlements).values(expires_at=now.read_at - 1))
        connection.execute(text("ALTER TABLE ignored_drift RENAME TO ignored_away"))
    house.rounds()
    assert house.finish().state == "succeeded"
    table = house.catalog.tables(house.schema)[CHESS]
    assert [house.catalog.probe(who, table).reads for who in (ANN, BOB)] == [False, False]


def let_expire(house: House, *cells: tuple[str, str]) -> None:
    """Give these cells for an hour, and let that be over."""
    house.do(*(AccessIntent(who, key, True, time.time() + 3600, "numbers") for who, key in cells))
    with house.world.engine.begin() as connection:
        connection.execute(update(entitlements).values(expires_at=time.time() - 1))


def ticked(house: House, until: Callable[[], object]) -> None:
    """Let the controller look until something holds."""
    pause = threading.Event()
    for _ in range(1_000):
        tick(house.world, house.steward.kinds)
        if until():
            return
        pause.wait(0.01)  # the catalog is another process
    raise AssertionError([(each.state, each.outcome) for each in list_operations(house.world.engine)])


def by_itself(house: House) -> list[Operation]:
    return [each for each in list_operations(house.world.engine) if each.actor == CONTROLLER]


@pytest.mark.usefixtures("_impatient")
@pytest.mark.proves("G268")
def test_an_expiry_outlives_an_outage_of_the_catalog(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that is away longer than any step waits ends no expiry: one operation goes on when it is back."""
    house.make_table(CHESS)
    house.rounds()
    let_expire(house, (ANN, CHESS))
    monkeypatch.setattr("grants.applying.executor._STEP_SECONDS", 0.0)
    monkeypatch.setattr("grants.applying.expiries._FIRST_PAUSE", 0.0)
    house.server.kill()
    house.rounds()
    waiting = [""]

    def has_waited() -> bool:
        (one,) = by_itself(house)
        waiting[0] = max((each.detail for each in steps(house.world.engine, one.operation_id)), default="")
        return "The next try" in waiting[0]

    ticked(house, has_waited)
    (one,) = by_itself(house)
    assert (one.state, "does not answer" in waiting[0]) == ("running", True)
    with served(house.world.paths.catalog, house.server.port):
        done = house.finish()
        assert (done.operation_id, done.state) == (one.operation_id, "succeeded"), done.outcome
        assert house.catalog.probe(ANN, house.catalog.tables(house.schema)[CHESS]).reads is False


@pytest.mark.usefixtures("_impatient")
@pytest.mark.proves("G267")
def test_an_expiry_that_sees_only_its_own_grants_is_not_done(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog answers a reader without MANAGE with its own grants only: nothing is forgotten until it sees all."""
    monkeypatch.setattr("grants.applying.expiries._FIRST_PAUSE", 0.0)
    house.make_table(CHESS)
    house.rounds()
    let_expire(house, (ANN, CHESS))
    weak_name = "00000000-0000-0000-0000-0000000000aa"
    house.server.make("ServicePrincipals", weak_name)
    for where in house.schema.chain():
        house.catalog.change(Change(where, weak_name, add=("BROWSE",)))
    weak = Embedded(Rest(house.server.url, house.server.token_of(weak_name, 600), shared_token=house.server.token))
    world = house.world
    with pytest.raises(Refused, match="Give it MANAGE on the schema"):
        proposals.prepare(
            world.engine, weak, world.settings.access, world.paths, [AccessIntent(ANN, CHESS, False, None, "left")]
        )
    opening = house.steward._executor._open
    house.steward._executor._open = lambda: weak
    house.steward._submit_expired()

    def has_been_refused() -> bool:
        (one,) = by_itself(house)
        assert one.is_open, one.outcome
        return any("Give it MANAGE" in each.detail for each in steps(world.engine, one.operation_id))

    ticked(house, has_been_refused)
    assert {each.privilege for each in ledger.managed(world.engine).given} == set(READING)
    house.steward._executor._open = opening
    assert house.finish().state == "succeeded"
    assert house.catalog.probe(ANN, house.catalog.tables(house.schema)[CHESS]).reads is False


@pytest.mark.proves("G268")
def test_a_refused_expiry_is_one_operation_and_blocks_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expiry without effect is one operation of its principal in all rounds; other games and grants go on."""
    monkeypatch.setattr("grants.applying.expiries._BUSY_PAUSE", 0.0)
    house.steward._executor._observe_seconds = 0.1
    for key in (CHESS, GO):
        house.make_table(key)
    house.rounds()
    let_expire(house, (ANN, CHESS), (ANN, GO), (BOB, CHESS))
    house.server.trouble(deaf=CHESS)
    for _ in range(3):
        house.rounds()
    ticked(house, lambda: len(house.steward._executor._tries._failed) == 2)
    assert {(each.principal, each.game_key) for each in ledger.held(house.world.engine)} == {(ANN, CHESS), (BOB, CHESS)}
    assert [each.is_open for each in by_itself(house)] == [True, True]
    house.server.trouble()
    world = house.world
    grant = proposals.prepare(
        world.engine, house.catalog, world.settings.access, world.paths, [AccessIntent(ANN, GO, True, None, "again")]
    )
    asked = submit(world.engine, grant.to_intent("eve", "again"))
    ticked(house, lambda: not operation(world.engine, asked.operation_id).is_open)
    assert operation(world.engine, asked.operation_id).state == "succeeded"
    house.steward._executor._tries._clock = lambda: time.monotonic() + 3600  # the next tries are due
    house.finish()
    assert [each.state for each in by_itself(house)] == ["succeeded", "succeeded"]
    tables = house.catalog.tables(house.schema)
    assert [house.catalog.probe(ANN, tables[key]).reads for key in (CHESS, GO)] == [False, True]


@pytest.mark.proves("G268")
def test_a_grant_right_after_an_expiry_stays(house: House) -> None:
    """The last steps of an expiry neither revoke nor forget a grant that was made after its check."""
    house.make_table(CHESS)
    house.rounds()
    let_expire(house, (ANN, CHESS))
    house.rounds()

    def is_revoked() -> bool:
        (one,) = by_itself(house)
        return any((each.name, each.state) == ("check", "done") for each in steps(house.world.engine, one.operation_id))

    ticked(house, is_revoked)
    (expiry,) = by_itself(house)
    world, kinds = house.world, house.steward.kinds
    asked = AccessIntent(ANN, CHESS, True, time.time() + 3600, "extended")
    grant = proposals.prepare(world.engine, house.catalog, world.settings.access, world.paths, [asked])
    extended = submit(world.engine, grant.to_intent("eve", "extended"))
    while operation(world.engine, extended.operation_id).is_open:
        advance(world, kinds[str(proposals.KIND)], operation(world.engine, extended.operation_id))
    assert operation(world.engine, extended.operation_id).state == "succeeded"
    house.finish()
    assert operation(world.engine, expiry.operation_id).state == "succeeded"
    assert house.catalog.probe(ANN, house.catalog.tables(house.schema)[CHESS]).reads is True
    assert [each.cell for each in ledger.managed(world.engine).entitlements] == [(ANN, CHESS)]


def test_tries_of_an_expiry_grow_rare() -> None:
    """An expiry that fails for a day is tried some thirty times, soon at first and then each hour."""
    now, tries = 0.0, Tries(lambda: now)
    amount = 0
    while now < 86_400:
        if tries.resting("one") is None:
            tries.failed("one", "No.")
            amount += 1
        now += 10
    assert 25 <= amount <= 35


def test_a_reader_reads_what_was_given_and_nothing_else(house: House) -> None:
    """A table is read only by a credential of the catalog; without the right that says 403 and what is missing."""
    house.make_table(CHESS)
    house.rounds()
    house.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    access, paths = house.world.settings.access, house.world.paths
    assert rows(access, paths, CHESS, ANN, 5)[0] == ["_seq", "words"]
    with pytest.raises(Denied, match=r"403.*SELECT"):
        rows(access, paths, CHESS, BOB, 5)


@pytest.mark.proves("G263")
def test_rows_of_another_table_are_not_read_as_a_games(house: House) -> None:
    """`turnout read` prints no row of a table that is not the game's, whatever the catalog allows there."""
    house.make_table(CHESS)
    place = register_other(house.catalog, house.world.paths, house.schema, CHESS)
    for where, privilege in zip(house.catalog.tables(house.schema)[CHESS].securable.chain(), READING, strict=True):
        house.catalog.change(Change(where, ANN, add=(privilege,)))
    with pytest.raises(Refused, match=place):
        rows(house.world.settings.access, house.world.paths, CHESS, ANN, 5)


@pytest.mark.proves("G126", "H14")
def test_a_change_by_hand_is_seen_as_drift_and_not_undone(house: House) -> None:
    """H14: what somebody revokes in the catalog is shown within a round, and not given again by itself."""
    house.make_table(CHESS)
    house.rounds()
    house.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    where = Securable((*house.schema.path, CHESS))
    house.catalog.change(Change(where, ANN, remove=("SELECT",)))
    house.catalog.change(Change(where, BOB, add=("SELECT",)))
    for _ in range(2):
        house.rounds()
        seen = snapshot.read(house.world.engine).observed
        assert seen is not None
        kinds = {(each.kind, each.principal) for each in drift_store.in_snapshot(house.world.engine, seen).findings}
        assert kinds == {("missing", ANN), ("extra", BOB)}
    assert len(list_operations(house.world.engine)) == 1


def test_use_that_is_left_over_is_taken_by_a_revert(house: House) -> None:
    """USE_* that outlived its game, because somebody's own grant held it, is drift that one operation takes."""
    house.make_table(CHESS)
    house.make_table(GO)
    house.rounds()
    house.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    by_hand = Securable((*house.schema.path, GO))
    house.catalog.change(Change(by_hand, ANN, add=("SELECT",)))
    house.rounds()
    house.do(AccessIntent(ANN, CHESS, False, reason="over"))
    house.catalog.change(Change(by_hand, ANN, remove=("SELECT",)))
    house.rounds()
    world = house.world
    left = drift_store.read_drift(world.engine, house.catalog, world.settings.access, world.paths).findings
    assert [(each.kind, each.privileges) for each in left] == [("extra", ("USE_CATALOG",)), ("extra", ("USE_SCHEMA",))]
    house.catalog.change(Change(by_hand, ANN, add=("SELECT",)))
    meant = [intent(each, "revert", "left over") for each in left]
    needed = proposals.prepare(world.engine, house.catalog, world.settings.access, world.paths, meant)
    assert needed.plan.is_empty, "the snapshot that is kept does not know of this grant"
    house.catalog.change(Change(by_hand, ANN, remove=("SELECT",)))
    done = house.do(*meant)
    assert (done.state, done.parameters["games"]) == ("succeeded", []), done.outcome
    assert all(ANN not in house.catalog.assignments(each) for each in house.schema.chain())
    assert drift_store.read_drift(world.engine, house.catalog, world.settings.access, world.paths).findings == ()


def test_what_was_ignored_stays_counted(house: House) -> None:
    """To ignore a finding needs a reason and the role; it is found again, and named as ignored, not hidden."""
    house.make_table(CHESS)
    house.rounds()
    house.catalog.change(Change(Securable((*house.schema.path, CHESS)), BOB, add=("SELECT",)))
    world = house.world
    (found,) = drift_store.read_drift(world.engine, house.catalog, world.settings.access, world.paths).findings
    guarded = replace(world.settings, roles=Roles(access_admins=("eve",)))
    with pytest.raises(Refused, match="access_admin"):
        drift_store.ignore(world.engine, guarded, [found], "mallory", "fine")
    with pytest.raises(Refused, match="reason"):
        drift_store.ignore(world.engine, guarded, [found], "eve", " ")
    drift_store.ignore(world.engine, guarded, [found], "eve", "until the audit")
    after = drift_store.read_drift(world.engine, house.catalog, world.settings.access, world.paths)
    assert [str(each.ignored).split(", until")[0] for each in after.findings] == ["until the audit (eve"]
    assert after.open == ()


def drifted(house: House) -> Drift:
    return drift_store.read_drift(house.world.engine, house.catalog, house.world.settings.access, house.world.paths)


def counted(house: House) -> int:
    """Let the controller look; return what the alert counts."""
    house.rounds()
    engine = house.world.engine
    return sum((read_controller_metrics(engine, read_fleet(engine)).drift or {"unknown": -1}).values())


@pytest.mark.proves("G269")
def test_an_ignored_finding_that_was_gone_is_open_when_it_comes_back(house: House) -> None:
    """To ignore ends with the finding and is of one table: what comes back, or is on a new table, counts again."""
    house.make_table(CHESS)
    house.rounds()
    where = Securable((*house.schema.path, CHESS))
    house.catalog.change(Change(where, BOB, add=("SELECT",)))
    engine, settings = house.world.engine, house.world.settings
    drift_store.ignore(engine, settings, drifted(house).findings, "eve", "until the audit")
    assert counted(house) == 0
    house.catalog.change(Change(where, BOB, remove=("SELECT",)))
    assert counted(house) == 0
    house.catalog.change(Change(where, BOB, add=("SELECT",)))
    assert counted(house) == 1
    drift_store.ignore(engine, settings, drifted(house).findings, "eve", "until the audit")
    house.catalog.rest.write("DELETE", f"/api/2.1/unity-catalog/tables/{where.full_name}", {})
    house.rounds()
    house.catalog.change(Change(where, BOB, add=("SELECT",)))
    assert counted(house) == 1
    ended = [
        each for each in audit.entries(engine) if each.action == DirectAct.UNIGNORE_DRIFT and each.phase == "begun"
    ]
    assert [(each.actor, each.detail["reason"]) for each in ended] == [(CONTROLLER, "The finding is gone.")] * 2


@pytest.mark.proves("G269")
def test_to_ignore_has_an_end_and_can_be_lifted(house: House) -> None:
    """An ignored finding is open from its end on, or as soon as an access admin says so with a reason."""
    house.make_table(CHESS)
    house.rounds()
    house.catalog.change(Change(Securable((*house.schema.path, CHESS)), BOB, add=("SELECT",)))
    engine, settings = house.world.engine, house.world.settings
    drift_store.ignore(engine, settings, drifted(house).findings, "eve", "known")
    (left,) = drifted(house).findings
    assert left.acts == ("adopt", "revert", "ignore", "unignore")
    with pytest.raises(Refused, match="Enter a reason"):
        drift_store.unignore(engine, settings, [left], "eve", "")
    drift_store.unignore(engine, settings, [left], "eve", "not any more")
    (found,) = drifted(house).open
    with pytest.raises(Refused, match="is not ignored"):
        drift_store.unignore(engine, settings, [found], "eve", "again")
    for wrong in (-1.0, 400 * 86_400.0):
        with pytest.raises(Refused, match="within 366 days"):
            drift_store.ignore(engine, settings, [found], "eve", "known", time.time() + wrong)
    drift_store.ignore(engine, settings, [found], "eve", "known", time.time() + 0.2)
    pause = threading.Event()
    while not drifted(house).open:
        pause.wait(0.05)  # its end is the store's clock's
    assert counted(house) == 1
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(ignored_drift)) == 0


def test_an_address_that_is_given_to_somebody_else_gets_nothing_back(house: House) -> None:
    """A new user under an old address is another person: drift says so, and offers no grant again."""
    house.make_table(CHESS)
    house.rounds()
    house.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    first = house.catalog.directory().principals[ANN].principal_id
    house.server.ok("DELETE", f"{SCIM}/Users/{first}")
    add(house.catalog, ANN, [])
    (found,) = [each for each in drifted(house).findings if each.principal == ANN]
    assert (found.kind, found.acts) == ("missing", ("adopt", "ignore"))
    assert "belongs to another person now" in found.sentence


def test_findings_that_need_nothing_are_shown_and_not_counted(house: House) -> None:
    """Privileges without effect on reading are no drift; a finding of an unknown one raises no alert."""
    house.make_table(CHESS)
    house.rounds()
    known = ("READ_METADATA", "CREATE_VIEW", "CREATE_MODEL_VERSION")
    house.catalog.change(Change(house.schema, BOB, add=known))
    assert drifted(house).findings == ()
    house.server.trouble(unknown_privileges=True)
    assert {each.privileges for each in drifted(house).findings} == {("READ_SOMETHING_NEW",)}
    assert counted(house) == 0


@pytest.mark.proves("G119")
def test_a_request_is_done_when_another_one_approves(house: House) -> None:
    """Four eyes: who asks does not approve, who approves does not gain, and nothing is done before."""
    house.make_table(CHESS)
    house.rounds()
    world = house.world
    guarded = replace(world.settings, roles=Roles(access_admins=("eve", ANN)))
    intents = [{"principal": ANN, "key": CHESS, "read": True, "reason": "numbers"}]
    submitted = submit_request(world.engine, ANN, intents, "numbers")
    with pytest.raises(Refused, match="approve"):
        approval(world.engine, house.catalog, guarded, world.paths, submitted, ANN, "")
    with pytest.raises(Refused, match="access_admin"):
        approval(world.engine, house.catalog, guarded, world.paths, submitted, "mallory", "")
    _, intent = approval(world.engine, house.catalog, guarded, world.paths, submitted, "eve", "")
    made = approved(world.engine, guarded, submitted, intent)
    house.world = replace(world, settings=guarded)
    house.steward = AccessReconciler(house.world, os.environ)
    assert house.finish().state == "succeeded"
    done = operation(world.engine, made.operation_id)
    assert (done.actor, done.parameters["requested_by"]) == ("eve", ANN)
    assert request(world.engine, submitted.request_id).operation_id == made.operation_id


def test_an_operation_of_a_rejected_request_does_nothing(house: House) -> None:
    """Between an approval's two writes somebody may reject: then what was asked for does not begin."""
    house.make_table(CHESS)
    house.rounds()
    world = house.world
    intents = [{"principal": ANN, "key": CHESS, "read": True, "reason": "numbers"}]
    submitted = submit_request(world.engine, ANN, intents, "numbers")
    _, intent = approval(world.engine, house.catalog, world.settings, world.paths, submitted, "eve", "")
    submit(world.engine, intent)
    decide(world.engine, submitted, "rejected", "bob", "no")
    done = house.finish()
    assert done.state == "failed"
    assert "rejected by 'bob'" in (done.outcome or "")
    assert house.catalog.probe(ANN, house.catalog.tables(house.schema)[CHESS]).reads is False


@pytest.mark.proves("H10")
def test_without_the_audit_log_nothing_is_changed_and_all_can_be_read(house: House) -> None:
    """H10: where the audit log cannot be written no change is asked for; who reads what is still answered."""
    house.make_table(CHESS)
    house.rounds()
    world = house.world
    prepared = proposals.prepare(
        world.engine, house.catalog, world.settings.access, world.paths, [AccessIntent(ANN, CHESS, True, None, "n")]
    )
    with world.engine.begin() as connection:
        connection.execute(text("ALTER TABLE audit RENAME TO audit_away"))
    with pytest.raises(SQLAlchemyError):
        submit(world.engine, prepared.to_intent("eve", "numbers"))
    assert list_operations(world.engine) == []
    assert prepared.plan.effects[0].then is True
    table = house.catalog.tables(house.schema)[CHESS]
    assert house.catalog.probe(ANN, table).reads is False


def test_an_executor_that_may_see_too_little_is_told_of(house: House) -> None:
    """Without ownership or MANAGE a catalog shows only one's own grants: the snapshot says that it may be so."""
    house.make_table(CHESS)
    house.rounds()
    assert snapshot.read(house.world.engine).problem is None
    for kind, where in (("schemas", house.schema), ("catalogs", Securable(house.schema.path[:1]))):
        house.catalog.rest.write("PATCH", f"/api/2.1/unity-catalog/{kind}/{where.full_name}", {"owner": ANN})
    house.rounds()
    known = snapshot.read(house.world.engine).observed
    assert known is not None
    assert "sees only its own grants" in known.notes[0]
    engine = house.world.engine
    assert read_controller_metrics(engine, read_fleet(engine)).drift is None, (
        "what it does not see is not without drift"
    )
    house.catalog.change(Change(house.schema, "turnout-executor", add=("MANAGE",)))
    house.rounds()
    known = snapshot.read(house.world.engine).observed
    assert known is not None
    assert known.notes == ()


def test_readers_of_a_rule_read_once_the_table_is_there(house: House) -> None:
    """The person of the rule answers for the grant; its reason names the rule, and nobody has to ask."""
    engine = house.world.engine
    with engine.begin() as connection:
        want_within(connection, [WantedReader(CHESS, ANN, "onboarding rule studio", "carl", "f" * 32)])
    house.steward.grant_to_new_readers()
    assert list_operations(engine) == [], "there is no table to grant"
    house.make_table(CHESS)
    house.steward.grant_to_new_readers()
    done = house.finish()
    assert (done.state, done.actor, done.reason) == ("succeeded", CONTROLLER, "onboarding rule studio")
    assert "SELECT" in house.catalog.assignments(Securable((*house.schema.path, CHESS)))[ANN]
    (wanted,) = read_wanted(engine)
    assert (wanted.access_operation_id, wanted.problem) == (done.operation_id, None)
    house.steward.grant_to_new_readers()
    assert [each.operation_id for each in list_operations(engine)] == [done.operation_id]
    prepared = proposals.prepare_undo(engine, house.catalog, house.world.settings.access, house.world.paths, done)
    assert not prepared.plan.is_empty, "it is undone like any other"


def test_a_renamed_game_does_not_bring_back_readers_who_lost_access(house: House) -> None:
    """Whose access was revoked since the onboarding is no reader of the new name."""
    engine = house.world.engine
    with engine.begin() as connection:
        want_within(connection, [WantedReader(CHESS, each, "rule", "carl", "f" * 32) for each in (ANN, BOB)])
    record_seen(engine, {CHESS: "Chess"}, 1, placing())
    house.make_table(CHESS)
    house.steward.grant_to_new_readers()
    for _ in (ANN, BOB):
        house.finish()
    house.rounds()
    house.do(AccessIntent(ANN, CHESS, False, None, "she left the studio"))
    planned = rename(house.world.settings, engine, CHESS, "New", "carl", "the studio renamed it")
    assert planned.intent.parameters["readers"] == [BOB]


def undone_onboarding(house: House, *readers: str) -> None:
    """Let a game be onboarded with readers who get access, and the onboarding be undone."""
    engine = house.world.engine
    target = (f"game:{CHESS}",)
    made = submit(engine, Intent(OperationKind.ONBOARD, target, "carl", "new", {"games": [CHESS]}))
    change(engine, made, OperationState.SUCCEEDED, "done")
    with engine.begin() as connection:
        want_within(connection, [WantedReader(CHESS, each, "by carl", "carl", made.operation_id) for each in readers])
    house.steward.grant_to_new_readers()
    for _ in readers:
        house.finish()
    back = submit(engine, Intent(OperationKind.RETIRE, target, "dora", "a mistake", undoes=made.operation_id))
    change(engine, back, OperationState.SUCCEEDED, "done")


def test_an_undone_onboarding_takes_back_what_its_readers_got(house: House) -> None:
    """An undo revokes what the onboarding granted, once, and leaves what a reader had before."""
    house.make_table(CHESS)
    house.rounds()
    house.do(AccessIntent(BOB, CHESS, True, None, "had it before"))
    undone_onboarding(house, ANN)
    with house.world.engine.begin() as connection:
        (made,) = [each for each in list_operations(house.world.engine) if each.kind == OperationKind.ONBOARD]
        want_within(connection, [WantedReader(CHESS, BOB, "by carl", "carl", made.operation_id, "")])
    house.steward.grant_to_new_readers()
    done = house.finish()
    assert (done.state, done.actor, done.reason) == ("succeeded", CONTROLLER, "undone: by carl")
    readers = house.catalog.assignments(Securable((*house.schema.path, CHESS)))
    assert "SELECT" not in readers.get(ANN, ())
    assert "SELECT" in readers[BOB]
    count = len(list_operations(house.world.engine))
    house.steward.grant_to_new_readers()
    assert (read_wanted(house.world.engine), len(list_operations(house.world.engine))) == ([], count)


def test_nobody_grants_to_themselves_by_a_rule(house: House) -> None:
    """The guardrails judge who authorised it; why it was refused is noted, and it is tried again."""
    engine, access = house.world.engine, house.world.settings.access
    house.world = replace(
        house.world, settings=replace(house.world.settings, access=replace(access, identities={"carl": ANN}))
    )
    house.steward = AccessReconciler(house.world, os.environ)
    house.make_table(CHESS)
    with engine.begin() as connection:
        want_within(connection, [WantedReader(CHESS, ANN, "onboarding rule studio", "carl", "f" * 32)])
    house.steward.grant_to_new_readers()
    (wanted,) = read_ungranted(engine)
    assert "may not grant to themselves" in str(wanted.problem)
    assert list_operations(engine) == []
    house.rounds()
    known = snapshot.read(engine).observed
    assert known is not None
    assert known.notes == (f"{ANN} is not granted {CHESS} (onboarding rule studio): {wanted.problem}",)


def test_a_reader_whom_the_catalog_does_not_know_is_reported(house: House) -> None:
    """A rule's readers are not checked when it is applied: a mistyped one is on the page Access until it is mended."""
    engine = house.world.engine
    for key in (CHESS, GO):
        house.make_table(key)
    with engine.begin() as connection:
        wanted = [WantedReader(key, "analist", "onboarding rule studio", "carl", "f" * 32) for key in (CHESS, GO)]
        want_within(connection, wanted)
    house.steward.grant_to_new_readers()
    house.rounds()
    known = snapshot.read(engine).observed
    assert known is not None
    (note,) = known.notes
    assert note.startswith(f"analist is not granted {CHESS}, {GO} (onboarding rule studio): ")
