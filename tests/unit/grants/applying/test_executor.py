"""Access as operations, on a real embedded catalog: applied, seen and tried before it is said to be done."""

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from grants.applying import drift_store, ledger, proposals
from grants.applying.executor import Executor, _is_seen
from grants.catalog import Catalog, CatalogUnavailable, Change, Denied, Probe
from grants.catalogs.embedded import Embedded
from grants.catalogs.people import add
from grants.catalogs.rest import Rest
from grants.model import Directory, GameTable, Securable
from grants.planning.change_set import ChangeSet
from grants.planning.drift import intent as intent_about
from grants.planning.entitlements import NOTHING, AccessIntent
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store import audit
from pipeline.store.audit import changes_of
from pipeline.store.games import record_seen
from pipeline.store.operations import Operation, operation, submit
from pipeline.store.processes.leases import store_time
from tests.unit.grants.catalog_world import UC, Server, register_other, register_own, served

CHESS, GO = game_key("Chess"), game_key("Go")
ANN, BOB = "ann@example.com", "bob@example.com"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("catalog")) as made:
        yield made


@dataclass
class Desk:
    """An environment with two games, two people, and a catalog."""

    world: ControlContext
    catalog: Embedded
    stop: threading.Event
    looks: list[str] = field(default_factory=list)  # each time somebody was to look at the whole catalog

    def submit(self, *intents: AccessIntent, actor: str = "eve") -> Operation:
        prepared = proposals.prepare(
            self.world.engine, self.catalog, self.world.settings.access, self.world.paths, intents
        )
        return submit(self.world.engine, prepared.to_intent(actor, "numbers"))

    def finish(self, submitted: Operation, catalog: Catalog | None = None, observe_seconds: float = 5.0) -> Operation:
        """Let a controller bring everything on until the operation has ended."""
        executor = Executor(
            lambda: catalog or self.catalog, self.stop, observe_seconds, lambda: self.looks.append("now")
        )
        kinds = {str(proposals.KIND): executor.kind()}
        pause = threading.Event()
        for _ in range(2_000):
            tick(self.world, kinds)
            found = operation(self.world.engine, submitted.operation_id)
            if not found.is_open or found.state == "needs_human":
                return found
            pause.wait(0.01)  # the catalog is another process
        raise AssertionError(f"it does not end: {found}")


@pytest.fixture
def desk(engine: Engine, server: Server, tmp_path: Path) -> Iterator[Desk]:
    settings, paths = load(tmp_path, {})
    schema = f"games_{tmp_path.name.replace('-', '_')}"
    settings = replace(settings, access=replace(settings.access, schema_name=schema))
    record_seen(engine, {CHESS: "Chess", GO: "Go"}, 1, placing())
    catalog = Embedded(Rest(server.url, server.token, shared_token=server.token))
    for key in (CHESS, GO):
        register_own(catalog, paths, Securable(("turnout", schema)), key)
    for name in (ANN, BOB):
        add(catalog, name, [])
    stop = threading.Event()
    yield Desk(ControlContext(settings, engine, paths), catalog, stop)
    stop.set()
    for principal in (ANN, BOB, "readers"):
        for where in proposals.schema_of(settings.access).chain():
            had = catalog.assignments(where).get(principal)
            if had:
                catalog.change(Change(where, principal, remove=tuple(had)))


def give(*cells: tuple[str, str], **more: Any) -> list[AccessIntent]:
    return [AccessIntent(who, key, read=True, reason="numbers", **more) for who, key in cells]


def take(*cells: tuple[str, str]) -> list[AccessIntent]:
    return [AccessIntent(who, key, read=False, reason="done") for who, key in cells]


def reads(desk: Desk, who: str, key: str) -> bool | None:
    table = desk.catalog.tables(proposals.schema_of(desk.world.settings.access))[key]
    return desk.catalog.probe(who, table).reads


@pytest.mark.proves("G118")
def test_access_is_given_seen_tried_and_taken(desk: Desk) -> None:
    """A grant is done when who got it reads and nobody else does; taken, nothing of it is left in the catalog."""
    done = desk.finish(desk.submit(*give((ANN, CHESS))))
    assert done.state == "succeeded", done.outcome
    assert "1 probed: each reads or is refused as planned" in (done.outcome or "")
    assert (reads(desk, ANN, CHESS), reads(desk, ANN, GO), reads(desk, BOB, CHESS)) == (True, False, False)
    assert [each.state for each in ledger.items(desk.world.engine, done.operation_id)] == ["observed"] * 3
    taken = desk.finish(desk.submit(*take((ANN, CHESS))))
    assert taken.state == "succeeded", taken.outcome
    assert reads(desk, ANN, CHESS) is False
    schema = proposals.schema_of(desk.world.settings.access)
    assert all(ANN not in desk.catalog.assignments(where) for where in schema.chain())
    assert ledger.managed(desk.world.engine) == NOTHING


def test_an_undo_takes_back_that_and_no_more(desk: Desk) -> None:
    """The inverse of a change set leaves what was there before, and what was given since."""
    first = desk.finish(desk.submit(*give((ANN, CHESS))))
    desk.finish(desk.submit(*give((ANN, GO))))
    world = desk.world
    back = proposals.prepare_undo(world.engine, desk.catalog, world.settings.access, world.paths, first)
    undone = desk.finish(submit(world.engine, back.to_intent("eve", "wrong game")))
    assert undone.state == "succeeded", undone.outcome
    assert (reads(desk, ANN, CHESS), reads(desk, ANN, GO)) == (False, True)


@pytest.mark.proves("G119")
def test_what_changed_since_the_look_is_not_done(desk: Desk) -> None:
    """A plan is pinned to what was read: a change of the same by somebody else in between makes it stale."""
    submitted = desk.submit(*give((ANN, CHESS)))
    schema = proposals.schema_of(desk.world.settings.access)
    desk.catalog.change(Change(schema, ANN, add=("USE_SCHEMA",)))
    done = desk.finish(submitted)
    assert done.state == "failed"
    assert "changed since you looked" in (done.outcome or "")
    assert reads(desk, ANN, CHESS) is False


@pytest.mark.proves("G119")
def test_nobody_gives_access_to_themselves(desk: Desk) -> None:
    """The executor refuses what a page may have let through: an actor's own name, or a group they are in."""
    add(desk.catalog, ANN, ["readers"])
    for who in (ANN, "readers"):
        done = desk.finish(desk.submit(*give((who, CHESS)), actor=ANN))
        assert done.state == "failed"
        assert "ask another admin to approve" in (done.outcome or "")
    assert reads(desk, ANN, CHESS) is False


@pytest.mark.parametrize(
    ("actor", "identities", "refused"),
    [
        ("eve", {}, "The catalog has no user 'eve'"),
        ("eve", {"eve": "nobody@example.com"}, "The catalog has no user 'nobody@example.com'"),
        ("eve", {"eve": "readers"}, "The catalog has no user 'readers'"),
        ("eve", {"eve": ANN}, "ask another admin to approve"),
        ("eve", {"eve": BOB}, None),
        ("eve@home", {"Eve@Home": ANN}, "ask another admin to approve"),
        ("eve@home", {"Eve@Home": ANN, "eve@home": BOB}, "access.identities names 'eve@home' twice"),
        ("eve", {"Eve": BOB}, "The catalog has no user 'eve'"),
        (BOB, {}, None),
    ],
)
@pytest.mark.proves("G119")
def test_who_grants_is_a_user_of_the_catalog(
    desk: Desk, actor: str, identities: dict[str, str], refused: str | None
) -> None:
    """A self-grant is refused in a shared catalog also where nobody wrote down who is who there."""
    add(desk.catalog, BOB, ["readers"])
    access = replace(desk.world.settings.access, catalog="databricks", identities=identities)
    desk.world = replace(desk.world, settings=replace(desk.world.settings, access=access))
    prepared = proposals.prepare(desk.world.engine, desk.catalog, access, desk.world.paths, give((ANN, CHESS)))

    def check() -> None:
        intent = prepared.to_intent(actor, "numbers")
        proposals.require_permitted(desk.world.engine, desk.world.settings, desk.catalog, prepared, intent)

    if refused is None:
        check()
    else:
        with pytest.raises(Refused, match=refused):
            check()


class Failing:
    """A real catalog whose changes fail where somebody says so."""

    def __init__(self, inner: Catalog, fails: Callable[[Change], Exception | None]) -> None:
        self._inner, self._fails = inner, fails

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def change(self, change: Change) -> None:
        error = self._fails(change)
        if error is not None:
            raise error
        self._inner.change(change)


@pytest.mark.proves("G118")
def test_each_change_has_its_own_outcome(desk: Desk) -> None:
    """Where some fail the others are done, each is told, nothing that rests on a failed one is held to be given."""

    def fails(change: Change) -> Exception | None:
        return Denied("not today") if (change.principal, change.securable.path[-1]) == (BOB, CHESS) else None

    submitted = desk.submit(*give((ANN, CHESS), (BOB, CHESS), (BOB, GO)))
    done = desk.finish(submitted, Failing(desk.catalog, fails))
    assert done.state == "failed"
    assert "1 not: bob@example.com" in (done.outcome or "")
    assert "not today" in (done.outcome or "")
    assert (reads(desk, ANN, CHESS), reads(desk, BOB, CHESS)) == (True, False)
    held = {(each.principal, each.game_key) for each in ledger.held(desk.world.engine)}
    assert (ANN, CHESS) in held
    assert (BOB, CHESS) not in held


def test_a_groups_failed_change_is_told_as_that(desk: Desk) -> None:
    """Where a group could not be given a game, the outcome says so, and not that a member of it does not read."""
    add(desk.catalog, ANN, ["readers"])

    def fails(change: Change) -> Exception | None:
        return Denied("not today") if change.principal == "readers" and change.securable.type == "table" else None

    done = desk.finish(desk.submit(*give(("readers", CHESS))), Failing(desk.catalog, fails))
    assert done.state == "failed"
    assert "1 not: readers on" in (done.outcome or "")
    assert "not today" in (done.outcome or "")


def test_a_failed_use_keeps_back_what_rests_on_it(desk: Desk) -> None:
    """Without USE_* a SELECT lets nobody read, so it is not left behind as half of something."""

    def fails(change: Change) -> Exception | None:
        return Denied("no") if change.securable.type == "catalog" else None

    submitted = desk.submit(*give((ANN, CHESS)))
    done = desk.finish(submitted, Failing(desk.catalog, fails))
    assert done.state == "failed"
    schema = proposals.schema_of(desk.world.settings.access)
    assert ANN not in desk.catalog.assignments(schema)
    assert ledger.held(desk.world.engine) == []


def test_only_what_was_seen_has_the_catalog_looked_at(desk: Desk) -> None:
    """A change that was seen asks for a new snapshot; one that failed does not, else what always fails never rests."""
    failing = Failing(desk.catalog, lambda _: Denied("no"))
    assert desk.finish(desk.submit(*give((ANN, CHESS))), failing).state == "failed"
    assert desk.looks == []
    assert desk.finish(desk.submit(*give((ANN, CHESS)))).state == "succeeded"
    assert desk.looks == ["now"]


def test_a_catalog_that_is_away_is_waited_for(desk: Desk) -> None:
    """Nothing is known of a request without an answer: it is made again, and the whole is done once."""
    answers = iter([CatalogUnavailable("gone for a moment"), None, CatalogUnavailable("again")])

    def fails(_: Change) -> Exception | None:
        return next(answers, None)

    done = desk.finish(desk.submit(*give((ANN, CHESS))), Failing(desk.catalog, fails))
    assert done.state == "succeeded", done.outcome
    assert reads(desk, ANN, CHESS) is True


class Blind(Failing):
    """A real catalog whose reads of grants show none."""

    def __init__(self, inner: Catalog) -> None:
        super().__init__(inner, lambda _: None)

    def assignments(self, _: Securable) -> Mapping[str, frozenset[str]]:
        return {}


class Deaf(Failing):
    """A real catalog that takes changes of these securables' types and does nothing."""

    def __init__(self, inner: Catalog, *types: str) -> None:
        super().__init__(inner, lambda _: None)
        self._types = types

    def change(self, change: Change) -> None:
        if change.securable.type not in self._types:
            super().change(change)


class Lax(Failing):
    """A real catalog that lets everybody or nobody read, or does not say."""

    def __init__(self, inner: Catalog, reads: bool | None, stand_in: str = "") -> None:
        super().__init__(inner, lambda _: None)
        self._probe = Probe(reads, "tried", stand_in)

    def probe(self, _: str, __: GameTable) -> Probe:
        return self._probe


def test_applied_is_not_observed(desk: Desk) -> None:
    """A change that no read shows in time is not said to be done, though the catalog has taken it."""
    submitted = desk.submit(*give((ANN, CHESS)))
    done = desk.finish(submitted, Blind(desk.catalog), observe_seconds=0.2)
    assert done.state == "failed"
    assert "Not seen in the catalog" in (done.outcome or "")
    assert {each.state for each in ledger.items(desk.world.engine, done.operation_id)} == {"unseen"}


def left_of(desk: Desk) -> set[tuple[str, tuple[str, ...]]]:
    access = desk.world.settings.access
    found = drift_store.read_drift(desk.world.engine, desk.catalog, access, desk.world.paths).findings
    return {(each.kind, each.privileges) for each in found}


@pytest.mark.parametrize(
    ("types", "left"),
    [
        (("table", "schema", "catalog"), ("SELECT", "USE_SCHEMA", "USE_CATALOG")),
        (("table",), ("SELECT",)),
        (("catalog",), ("USE_CATALOG",)),
    ],
)
@pytest.mark.proves("G267")
def test_a_revoke_without_effect_leaves_the_grant_given(
    desk: Desk, types: tuple[str, ...], left: tuple[str, ...]
) -> None:
    """A revoke that the catalog answers and does not do ends nothing: drift says expired, a revert takes all of it."""
    desk.finish(desk.submit(*give((ANN, CHESS))))
    failed = desk.finish(desk.submit(*take((ANN, CHESS))), Deaf(desk.catalog, *types), observe_seconds=0.2)
    assert failed.state == "failed"
    assert {each.privilege for each in ledger.managed(desk.world.engine).given} == set(left)
    assert left_of(desk) == {("expired", left)}
    access = desk.world.settings.access
    (found,) = drift_store.read_drift(desk.world.engine, desk.catalog, access, desk.world.paths).findings
    done = desk.finish(desk.submit(intent_about(found, "revert", "again")))
    assert done.state == "succeeded", done.outcome
    assert all(ANN not in desk.catalog.assignments(each) for each in proposals.schema_of(access).chain())
    assert (ledger.managed(desk.world.engine), left_of(desk)) == (NOTHING, set())


@pytest.mark.proves("G267")
def test_an_accepted_revoke_ends_nothing_before_a_read_shows_it(desk: Desk) -> None:
    """From the moment at which the catalog took a revoke access is over, and it is held until a read shows that."""
    desk.finish(desk.submit(*give((ANN, CHESS))))
    submitted = desk.submit(*take((ANN, CHESS)))
    ledger.write(desk.world.engine, submitted, replanned(desk, submitted))
    for item in ledger.items(desk.world.engine, submitted.operation_id):
        ledger.mark(desk.world.engine, submitted, item.number, "applied", "")
    ledger.settle(desk.world.engine, submitted, ())
    (held,) = ledger.held(desk.world.engine)
    assert held.expires_at is None
    assert held.entitlement.is_over(store_time(desk.world.engine))
    assert len(ledger.managed(desk.world.engine).given) == 3


def replanned(desk: Desk, submitted: Operation) -> ChangeSet:
    world = desk.world
    return proposals.replan(
        world.engine, desk.catalog, world.settings.access, desk.world.paths, submitted
    ).plan.change_set


def test_a_catalog_that_does_not_enforce_is_found_out(desk: Desk) -> None:
    """Where who was given a game cannot read it after all, the change has not succeeded; not tried is told as that."""
    done = desk.finish(desk.submit(*give((ANN, CHESS))), Lax(desk.catalog, False))
    assert done.state == "failed"
    assert f"Applied, but {ANN} does not read {CHESS}" in (done.outcome or "")
    done = desk.finish(desk.submit(*give((BOB, CHESS))), Lax(desk.catalog, None))
    assert done.state == "succeeded"
    assert "1 applied, not probed: tried" in (done.outcome or "")


class Overtaken(Failing):
    """A real catalog in which a request that nobody waits for any more takes ANN's SELECT after it was observed."""

    def __init__(self, inner: Catalog, times: int) -> None:
        super().__init__(inner, lambda _: None)
        self._times = times

    def probe(self, principal: str, table: GameTable) -> Probe:
        if self._times:
            self._times -= 1
            self._inner.change(Change(table.securable, ANN, remove=("SELECT",)))
        return self._inner.probe(principal, table)


class Restored(Overtaken):
    """As that, and before anybody looks a second late request gives it back."""

    def probe(self, principal: str, table: GameTable) -> Probe:
        result = super().probe(principal, table)
        self._inner.change(Change(table.securable, ANN, add=("SELECT",)))
        return result


class Lapsed(Failing):
    """A real catalog in which a late request takes ANN's SELECT on GO once a change was made."""

    def __init__(self, inner: Catalog) -> None:
        super().__init__(inner, lambda _: None)

    def probe(self, principal: str, table: GameTable) -> Probe:
        where = Securable((*table.securable.path[:-1], GO))
        self._inner.change(Change(where, ANN, remove=("SELECT",)))
        return self._inner.probe(principal, table)


@pytest.mark.proves("G118")
def test_a_read_that_came_along_may_be_gone(desk: Desk) -> None:
    """A grant by hand that USE_* would bring into force, and that ends meanwhile, fails no other grant."""
    where = Securable((*proposals.schema_of(desk.world.settings.access).path, GO))
    desk.catalog.change(Change(where, ANN, add=("SELECT",)))
    done = desk.finish(desk.submit(*give((ANN, CHESS))), Lapsed(desk.catalog))
    assert (done.state, reads(desk, ANN, CHESS)) == ("succeeded", True), done.outcome
    assert f"1 reads did not come along, as their grants are gone: {ANN} on {GO}." in (done.outcome or "")


class Swapped(Overtaken):
    """As that, and the game's name leads to another table while the probe runs."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk.catalog, 1)
        self._desk = desk

    def probe(self, principal: str, table: GameTable) -> Probe:
        result = super().probe(principal, table)
        move_elsewhere(self._desk)
        return result


@pytest.mark.proves("G263")
def test_nothing_is_applied_again_on_another_table(desk: Desk) -> None:
    """A second try after a probe grants nothing on a table to which the game's name leads by now."""
    done = desk.finish(desk.submit(*give((ANN, CHESS))), Swapped(desk))
    assert "is another table than the game's" in (done.outcome or "")
    assert reads(desk, ANN, CHESS) is False


@pytest.mark.proves("G118")
def test_what_a_late_request_undoes_is_applied_again(desk: Desk) -> None:
    """A request of the operation before may reach the catalog seconds late; undone time and again, a change fails."""
    done = desk.finish(desk.submit(*give((ANN, CHESS))), Overtaken(desk.catalog, 1))
    assert (done.state, reads(desk, ANN, CHESS)) == ("succeeded", True), done.outcome
    assert "1 changes were undone meanwhile, and applied again" in (done.outcome or "")
    assert desk.finish(desk.submit(*take((ANN, CHESS)))).state == "succeeded"
    done = desk.finish(desk.submit(*give((ANN, CHESS))), Restored(desk.catalog, 1))
    assert (done.state, reads(desk, ANN, CHESS)) == ("succeeded", True), done.outcome
    assert desk.finish(desk.submit(*take((ANN, CHESS)))).state == "succeeded"
    done = desk.finish(desk.submit(*give((ANN, CHESS))), Overtaken(desk.catalog, 9))
    assert f"Applied, but {ANN} does not read {CHESS}" in (done.outcome or "")


def test_who_was_let_in_for_somebody_is_told(desk: Desk) -> None:
    """Where a catalog knows no groups and let in the group instead, nobody is told that it let in the member."""
    done = desk.finish(desk.submit(*give((ANN, CHESS))), Lax(desk.catalog, True, "analysts"))
    assert "1 of them as analysts: the catalog does not know groups and refuses them by name." in (done.outcome or "")


def move_elsewhere(desk: Desk, key: str = CHESS) -> str:
    """Register other people's table under a game's name, as a person may by hand; return where it lies."""
    schema = proposals.schema_of(desk.world.settings.access)
    desk.catalog.rest.write("DELETE", f"{UC}/tables/{schema.full_name}.{key}", {})
    return register_other(desk.catalog, desk.world.paths, schema, key)


class Moved(Failing):
    """A real catalog in which a game's name leads elsewhere from a given change on."""

    def __init__(self, desk: Desk, before: Callable[[Change], bool]) -> None:
        self.moved = False

        def moves(change: Change) -> None:
            if not self.moved and before(change):
                self.moved = True
                move_elsewhere(desk)

        super().__init__(desk.catalog, moves)


@pytest.mark.proves("G263")
def test_another_table_is_neither_granted_nor_reverted_nor_adopted(desk: Desk) -> None:
    """Law of access: a game's name in the catalog counts only where it leads to the game's own table."""
    world = desk.world
    desk.finish(desk.submit(*give((BOB, CHESS))))
    place = move_elsewhere(desk)
    where = Securable((*proposals.schema_of(world.settings.access).path, CHESS))
    desk.catalog.change(Change(where, ANN, add=("SELECT",)))
    for intent in (
        AccessIntent(ANN, CHESS, read=True, reason="numbers"),
        AccessIntent(ANN, CHESS, read=True, reason="numbers", adopt=True),
        AccessIntent(ANN, CHESS, read=False, reason="not by hand", revert=True),
    ):
        with pytest.raises(Refused, match=place) as refused:
            desk.submit(intent)
        assert world.paths.table(CHESS).uri in str(refused.value)
    (found,) = drift_store.read_drift(world.engine, desk.catalog, world.settings.access, world.paths).findings
    assert (found.kind, found.acts) == ("other_table", ("ignore",))
    assert place in found.sentence
    assert world.paths.table(CHESS).uri in found.sentence
    done = desk.finish(desk.submit(*take((BOB, CHESS))))
    assert done.state == "succeeded", done.outcome
    assert ledger.managed(world.engine) == NOTHING
    assert desk.catalog.assignments(where) == {ANN: frozenset({"SELECT"})}, "others' grants on their table stay"


@pytest.mark.proves("G263")
def test_a_table_that_is_replaced_after_the_preview_gets_no_grant(desk: Desk) -> None:
    """The table is looked at again when the operation begins: what a page has shown proves nothing."""
    submitted = desk.submit(*give((ANN, CHESS)))
    move_elsewhere(desk)
    done = desk.finish(submitted)
    assert done.state == "failed"
    assert "is another table than the game's" in (done.outcome or "")
    assert reads(desk, ANN, CHESS) is False


@pytest.mark.proves("G263")
def test_the_folder_of_a_game_with_another_table_in_it_gets_no_grant(desk: Desk) -> None:
    """No catalog shows a Delta id, so it is read in the game's folder: another one is another table."""
    submitted = desk.submit(*give((ANN, CHESS)))
    folder = Path(desk.world.paths.table(CHESS))
    shutil.rmtree(folder)
    desk.catalog.rest.write(
        "DELETE", f"{UC}/tables/{proposals.schema_of(desk.world.settings.access).full_name}.{CHESS}", {}
    )
    register_own(desk.catalog, desk.world.paths, proposals.schema_of(desk.world.settings.access), CHESS)
    assert desk.finish(submitted).state == "failed"
    assert reads(desk, ANN, CHESS) is False
    done = desk.finish(desk.submit(*give((ANN, CHESS))))
    assert done.state == "succeeded", "made again, it is the game's: a new plan has its new id"


@pytest.mark.proves("G263")
@pytest.mark.parametrize("moment", ["catalog", "table"])
def test_a_grant_on_a_table_replaced_meanwhile_is_revoked_at_once(desk: Desk, moment: str) -> None:
    """Between check and effect the name may lead elsewhere: what was granted there is revoked before it is recorded."""
    moving = Moved(desk, lambda change: change.securable.type == moment)
    done = desk.finish(desk.submit(*give((ANN, CHESS))), moving)
    assert moving.moved
    assert done.state == "failed"
    assert "is another table than the game's" in (done.outcome or "")
    assert reads(desk, ANN, CHESS) is False
    assert ledger.held(desk.world.engine) == []


@pytest.mark.proves("G265")
def test_a_revoke_is_seen_though_another_spelling_keeps_its_own() -> None:
    """A change that is not seen is planned again, and that plan finds the other spelling as the only holder."""
    change = Change(Securable(("c", "s", "t")), "team", remove=("SELECT",))
    item = ledger.Item(1, change, "applied", "")
    assert _is_seen(item, {"Team": frozenset({"SELECT"})})
    assert not _is_seen(item, {"team": frozenset({"SELECT"})})


class Nameless(Failing):
    """A real catalog whose directory cannot be read."""

    def __init__(self, inner: Catalog) -> None:
        super().__init__(inner, lambda _: None)

    def directory(self) -> Directory:
        raise Denied("The caller may not list users.")


@pytest.mark.proves("G265")
def test_without_a_directory_access_ends_all_the_same(desk: Desk) -> None:
    """To revoke needs no list of people: SELECT goes, USE_* stays as others may need it, and nothing can be granted."""
    world = desk.world
    desk.finish(desk.submit(*give((ANN, CHESS))))
    nameless = Nameless(desk.catalog)
    access, paths = world.settings.access, world.paths
    with pytest.raises(Denied):
        proposals.prepare(world.engine, nameless, access, paths, give((ANN, GO)))
    prepared = proposals.prepare(world.engine, nameless, access, paths, take((ANN, CHESS)))
    done = desk.finish(submit(world.engine, prepared.to_intent("eve", "over")), nameless)
    assert done.state == "succeeded", done.outcome
    assert reads(desk, ANN, CHESS) is False
    assert {each.privilege for each in ledger.managed(world.engine).given} == {"USE_SCHEMA", "USE_CATALOG"}


@pytest.mark.proves("H8")
def test_every_change_of_access_is_in_the_audit_log_once(desk: Desk) -> None:
    """H8: one begun and one ended entry per change set, by the person; none is left open."""
    done = [desk.finish(desk.submit(*intents)) for intents in (give((ANN, CHESS)), take((ANN, CHESS)))]
    reported = [each for each in audit.entries(desk.world.engine) if each.action == proposals.KIND]
    assert [(each.operation_id, each.phase, each.actor) for each in reported] == [
        (each.operation_id, phase, "eve") for each in done for phase in ("begun", "ended")
    ]
    verdict = audit.verify(desk.world.engine)
    assert verdict.intact
    assert verdict.unended == ()


@pytest.mark.proves("G128")
def test_the_audit_log_says_who_was_granted_which_game(desk: Desk) -> None:
    """A grant, a revoke and what takes the grant back name the game, its table and the person, begun and ended."""
    world = desk.world
    given = desk.finish(desk.submit(*give((ANN, CHESS))))
    back = proposals.prepare_undo(world.engine, desk.catalog, world.settings.access, world.paths, given)
    desk.finish(submit(world.engine, back.to_intent("eve", "wrong game")))
    desk.finish(desk.submit(*take((BOB, GO))))
    schema = world.settings.access.schema_name
    log = [each for each in audit.entries(world.engine) if each.action == proposals.KIND]
    said = [change.sentence({CHESS: "Chess"}) for each in log for change in changes_of(each.detail)]
    assert said == [
        *[f"grant Chess (turnout.{schema}.{CHESS}) to {ANN}"] * 2,
        *[f"revoke Chess (turnout.{schema}.{CHESS}) from {ANN}"] * 2,
        *[f"revoke {GO} (turnout.{schema}.{GO}) from {BOB}"] * 2,
    ]


def test_two_changes_of_one_principal_do_not_run_at_once(desk: Desk) -> None:
    """Plans of one principal are made one after the other, so that none takes USE_* which another one counts on."""
    desk.submit(*give((ANN, CHESS)))
    with pytest.raises(Refused, match="another open operation"):
        desk.submit(*give((ANN, GO)))


def test_access_cannot_be_given_for_longer_than_the_setting_allows(desk: Desk) -> None:
    """A term beyond access.max_grant_days is refused before anything is asked for."""
    with pytest.raises(Refused, match=r"access\.max_grant_days"):
        desk.submit(*give((ANN, CHESS), until=4e9))
