"""Views of event types kept in a catalog that has views, by the stand-in: made, granted with the game, and dropped."""

from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from grants.applying import type_views
from grants.catalog import Catalog, CatalogUnavailable, Change
from grants.catalogs.databricks import Databricks
from grants.catalogs.rest import Rest
from grants.catalogs.warehouse import Warehouse
from grants.model import Securable
from pipeline.base.errors import Refused
from pipeline.control import proposals
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.data.contracts.formats.json.superset import ANY
from pipeline.health.facts.placing import placing
from pipeline.settings.access import Access
from pipeline.store import audit
from pipeline.store.database.states import OperationKind
from pipeline.store.database.tables import games
from pipeline.store.games import record_seen
from pipeline.store.kept_views import read_kept
from pipeline.store.operations import Operation, operation, submit
from tests.tables.choices_world import rebuilt
from tests.tables.killed_world import Fate, brought_on, fated
from tests.tables.merging_world import chosen, mixed
from tests.tables.repair_world import CHESS, World, make_world
from tests.tables.types_world import SOLD, SOLD_LATER, accept, come
from tests.workspace.running import StandIn
from tests.workspace.server.boards import WAREHOUSE

FLAT, SALES = f"{CHESS.key}__m", f"{CHESS.key}__sold"


@dataclass
class House:
    """Chess with its sales, whose table a workspace knows and the analysts read."""

    workspace: StandIn
    world: World
    access: Access
    catalog: Catalog

    def place(self, name: str) -> Securable:
        return Securable((self.access.catalog_name, self.access.schema_name, name))

    @property
    def context(self) -> ControlContext:
        return ControlContext(replace(self.world.settings, access=self.access), self.world.engine, self.world.paths)

    def proposal(self, kind: OperationKind) -> Any:
        found = {each.kind: each for each in (type_views.KEEP, type_views.DROP)}[kind]
        assert found.propose is not None
        return found.propose(self.world.engine, ["Chess"], "ann", "for analysts", None)

    def carried_out(self, intent: Any) -> Operation:
        begun, context = submit(self.world.engine, intent), self.context
        for _ in range(6):
            tick(context, self.kinds(self.catalog))
            wait(list(context.background_tasks._begun.values()))
        return operation(self.world.engine, begun.operation_id)

    def kinds(self, catalog: Catalog) -> dict[str, Any]:
        steps = type_views.steps(lambda: catalog)
        return {str(each.kind): replace(each, steps=steps) for each in (type_views.KEEP, type_views.DROP)}

    def ends(self, begun: Operation, number: int = 0) -> list[str]:
        """Let a controller bring an operation on until it dies at its n-th point; return the points it came to."""
        with fated(self.world.engine, number) as fate:
            kinds: Any = self.kinds(Fated(self.catalog, fate))
            brought_on(self.context, lambda each: tick(each, kinds), begun.operation_id)
        return fate.passed

    def views(self) -> list[str]:
        schema = {"catalog_name": self.access.catalog_name, "schema_name": self.access.schema_name}
        rest = Rest(self.workspace.url, self.workspace.admin_token)
        found = rest.pages("/api/2.1/unity-catalog/tables", "tables", schema)
        return sorted(each["name"] for each in found if each["table_type"] == "VIEW")

    def readers(self, view: str) -> set[str]:
        return {who for who, held in self.catalog.assignments(self.place(view)).items() if "SELECT" in held}


@pytest.fixture(scope="module")
def people(workspace: StandIn) -> None:
    workspace.add_principal("analyst@turnout.example", "user", groups=("analysts",))


@pytest.fixture
def house(workspace: StandIn, people: None, tmp_path: Path) -> Iterator[House]:
    world = make_world(tmp_path)
    come(world, SOLD)
    record_seen(world.engine, {CHESS.key: CHESS.name}, 1, placing())
    yield house_of(workspace, world, tmp_path)
    world.engine.dispose()


def house_of(workspace: StandIn, world: World, tmp_path: Path) -> House:
    schema = f"s{abs(hash(str(tmp_path))) % 10**9}"
    access = Access(catalog="databricks", catalog_name="views", schema_name=schema, warehouse=WAREHOUSE)
    rest = Rest(workspace.url, workspace.admin_token)
    made = House(workspace, world, access, Databricks(rest, sql=Warehouse(rest, WAREHOUSE)))
    made.catalog.register(made.place(CHESS.key), f"s3://lake/{access.schema_name}/chess", [("_seq", "long")])
    made.catalog.change(Change(made.place(CHESS.key), "analysts", add=("SELECT",)))
    return made


def test_views_are_made_granted_with_the_game_and_undone(house: House) -> None:
    """One operation makes a view for each type that lands, readable as the table is; its undo drops them."""
    proposal = house.proposal(OperationKind.KEEP_VIEWS)
    assert proposal.lines[0] == f"view {FLAT}"
    kept = house.carried_out(proposal.intent)
    assert (kept.state, house.views()) == ("succeeded", [FLAT]), kept.outcome
    assert house.readers(FLAT) == {"analysts"}
    assert list(house.catalog.tables(house.place(CHESS.key).chain().__next__().parent)) == [CHESS.key]  # type: ignore[arg-type]
    undo = proposals.undo(house.world.settings, house.world.engine, kept, "ann", "a mistake")
    undone = house.carried_out(undo.intent)
    assert (undone.state, house.views(), read_kept(house.world.engine)) == ("succeeded", [], []), undone.outcome


def test_views_follow_types_and_access(house: House) -> None:
    """A round makes the view of an accepted type, changes one whose columns grew, and grants as the table is."""
    house.carried_out(house.proposal(OperationKind.KEEP_VIEWS).intent)
    accept(house.world, "Sold")
    assert type_views.reconcile_all(house.context, house.catalog) == []
    assert house.views() == [FLAT, SALES]
    (before,) = read_kept(house.world.engine)
    come(house.world, SOLD_LATER)
    house.catalog.change(Change(house.place(SALES), "analyst@turnout.example", add=("SELECT",)))
    house.catalog.change(Change(house.place(CHESS.key), "analysts", remove=("SELECT",)))
    assert type_views.reconcile_all(house.context, house.catalog) == []
    (after,) = read_kept(house.world.engine)
    assert {name for name, mark in after.made.items() if before.made[name] != mark} == {SALES}
    assert (house.readers(SALES), house.readers(FLAT)) == (set(), set()), "nobody reads a view who may not the table"


def test_views_follow_a_merge_once_its_table_does(workspace: StandIn, people: None, tmp_path: Path) -> None:
    """A round keeps the view until the switch of a merge's rebuild, as only then the table has all values in one."""
    world = mixed(tmp_path / "env")
    house = house_of(workspace, world, tmp_path)
    house.carried_out(house.proposal(OperationKind.KEEP_VIEWS).intent)
    (before,) = read_kept(world.engine)
    chosen(world, "merge", "x", ANY)
    assert type_views.reconcile_all(house.context, house.catalog) == []
    assert read_kept(world.engine) == [before]
    rebuilt(world)
    assert type_views.reconcile_all(house.context, house.catalog) == []
    (after,) = read_kept(world.engine)
    assert after.made.keys() == before.made.keys() == {f"{CHESS.key}__move"}
    assert after.made != before.made
    world.engine.dispose()


def test_a_retired_game_has_no_views(house: House) -> None:
    """The views go with the game, and come again with it."""
    house.carried_out(house.proposal(OperationKind.KEEP_VIEWS).intent)
    with house.world.engine.begin() as connection:
        connection.execute(update(games).values(retired_at=1.0))
    type_views.reconcile_all(house.context, house.catalog)
    assert house.views() == []
    with house.world.engine.begin() as connection:
        connection.execute(update(games).values(retired_at=None))
    type_views.reconcile_all(house.context, house.catalog)
    assert house.views() == [FLAT]


class Fated:
    """A catalog whose caller may end before and after each change."""

    def __init__(self, inner: Catalog, fate: Fate) -> None:
        self._inner, self._fate = inner, fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, statement: str) -> None:
        self._fate.come(f"before {statement}")
        self._inner.execute(statement)
        self._fate.come(f"after {statement}")

    def change(self, change: Change) -> None:
        self._fate.come(f"before {change}")
        self._inner.change(change)
        self._fate.come(f"after {change}")


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_a_controller_killed_between_any_two_effects_keeps_and_drops_views(house: House, stride: int) -> None:
    """Operations on views end whatever was killed; no view is in the catalog unrecorded, and a second run changes none.

    Views are granted as their table is.
    """
    accept(house.world, "Sold")
    for number in count(1, stride):
        killed = []
        for kind, views in ((OperationKind.KEEP_VIEWS, [FLAT, SALES]), (OperationKind.DROP_VIEWS, [])):
            begun = submit(house.world.engine, house.proposal(kind).intent)
            killed.append(len(house.ends(begun, number)) >= number)
            made = {name for each in read_kept(house.world.engine) for name in each.made}
            assert set(house.views()) <= made, "a view that nobody would drop"
            house.ends(begun)
            done = operation(house.world.engine, begun.operation_id)
            assert (done.state, house.views()) == ("succeeded", views), done.outcome
            assert [house.readers(each) for each in views] == [{"analysts"}] * len(views)
            assert house.proposal(kind).intent.targets == (), "there is nothing left to do"
            assert house.ends(begun) == []
        assert (read_kept(house.world.engine), audit.verify(house.world.engine).unended) == ([], ())
        if not any(killed):
            break


class Away:
    """A catalog whose warehouse goes away after some statements."""

    def __init__(self, inner: Catalog, statements: int) -> None:
        self._inner, self._left = inner, statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, statement: str) -> None:
        self._left -= 1
        if self._left < 0:
            raise CatalogUnavailable("The warehouse did not finish.")
        self._inner.execute(statement)


def test_a_warehouse_that_goes_away_leaves_nothing_behind(house: House) -> None:
    """A later round drops each view that the catalog may still have."""
    accept(house.world, "Sold")
    house.carried_out(house.proposal(OperationKind.KEEP_VIEWS).intent)
    asked = house.proposal(OperationKind.DROP_VIEWS)
    away: Any = Away(house.catalog, 1)
    inner, house.catalog = house.catalog, away
    assert house.carried_out(asked.intent).state == "running"
    (left,) = read_kept(house.world.engine)
    assert (len(left.made), left.problem) == (1, "The warehouse did not finish.")
    assert type_views.reconcile_all(house.context, inner) == []
    assert (house.views(), read_kept(house.world.engine)) == ([], [])


def test_a_catalog_without_views_says_so(house: House) -> None:
    """A round names the game whose warehouse is gone; the other games go on."""
    house.carried_out(house.proposal(OperationKind.KEEP_VIEWS).intent)
    accept(house.world, "Sold")
    house.catalog = Databricks(Rest(house.workspace.url, house.workspace.admin_token))
    (problem,) = type_views.reconcile_all(house.context, house.catalog)
    assert problem.startswith(f"The views of {CHESS.key} are not as they should be")
    with pytest.raises(Refused, match=r"Set access\.warehouse"):
        house.catalog.execute("SELECT 1")


@pytest.mark.parametrize(
    ("access", "problem"),
    [(Access(), "no views"), (Access(catalog="unity"), "no views"), (Access(catalog="databricks"), "warehouse")],
)
def test_views_are_refused_before_anything_waits(house: House, access: Access, problem: str) -> None:
    """An environment without a warehouse keeps no views: nothing is recorded, and the game is free at once."""
    house.access = access
    failed = house.carried_out(house.proposal(OperationKind.KEEP_VIEWS).intent)
    assert failed.state == "failed"
    assert problem in str(failed.outcome)
    assert read_kept(house.world.engine) == []
    with pytest.raises(Refused, match=problem):
        access.require_views()
