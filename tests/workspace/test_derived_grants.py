"""Silver tables in a workspace, by the stand-in: granted with their game, and by themselves to a group."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from grants.applying import proposals
from grants.catalog import Catalog
from grants.catalogs.databricks import Databricks
from grants.catalogs.rest import Rest
from grants.planning.entitlements import AccessIntent
from grants.reconciler import AccessReconciler
from pipeline.base.names import game_key
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.data.derived.definitions import SilverDefinition, dumps
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.opening import create
from pipeline.settings.tree import load
from pipeline.store import derived
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen
from pipeline.store.operations import list_operations, submit
from tests.workspace.running import StandIn

CHESS, SOLD, LEFT = game_key("Chess"), "silver__sold", "silver__left"
ANN, EVE = "ann@turnout.example", "eve@turnout.example"


class House:
    """An environment whose controller looks after a schema of the workspace."""

    def __init__(self, workspace: StandIn, engine: Engine, folder: Path) -> None:
        settings, paths = load(folder, {})
        access = replace(
            settings.access, catalog="databricks", catalog_name="main", schema_name="derived", reads_per_second=1_000.0
        )
        self.world = ControlContext(replace(settings, access=access), engine, paths)
        self.environ = {"DATABRICKS_HOST": workspace.url, "DATABRICKS_TOKEN": workspace.admin_token}
        self.steward = AccessReconciler(self.world, self.environ)
        self.catalog: Catalog = Databricks(Rest(workspace.url, workspace.admin_token))

    def write(self, key: str) -> None:
        """Let a table come."""
        place = self.world.paths.named(key)
        place.make()
        create(place, pa.schema([("_seq", pa.int64())]))

    def rounds(self) -> list[str]:
        """Let a round and its operations pass; return how these ended."""
        known = {each.operation_id for each in list_operations(self.world.engine)}
        self.steward.run_round()
        return self.finish(known)

    def do(self, *intents: AccessIntent) -> list[str]:
        world, known = self.world, {each.operation_id for each in list_operations(self.world.engine)}
        prepared = proposals.prepare(world.engine, self.catalog, world.settings.access, world.paths, intents)
        submit(world.engine, prepared.to_intent(EVE, "numbers"))
        return self.finish(known)

    def finish(self, known: set[str]) -> list[str]:
        pause = threading.Event()
        for _ in range(2_000):
            tick(self.world, self.steward.kinds)
            if not list_operations(self.world.engine, only_open=True):
                return [each.state for each in list_operations(self.world.engine) if each.operation_id not in known]
            pause.wait(0.01)  # the workspace is another process
        raise AssertionError(list_operations(self.world.engine, only_open=True))

    def selects(self) -> Mapping[str, set[str]]:
        """Return who has SELECT on each table."""
        tables = self.catalog.tables(proposals.schema_of(self.world.settings.access))
        held = {key: self.catalog.assignments(table.securable) for key, table in tables.items()}
        return {key: {who for who, rights in some.items() if "SELECT" in rights} for key, some in held.items()}


@pytest.fixture
def house(workspace: StandIn, tmp_path: Path) -> Iterator[House]:
    engine = open_store(*load(tmp_path, {}))
    for name, groups in ((ANN, ("partners",)), (EVE, ())):
        workspace.add_principal(name, "user", groups=groups)
    record_seen(engine, {CHESS: "Chess"}, 1, placing())
    entries = [SilverDefinition("sold", "Chess"), SilverDefinition("left", "Chess", own_grants=True)]
    derived.apply(engine, dumps(entries), 0, "bob", "asked for by BI")
    made = House(workspace, engine, tmp_path)
    made.write(CHESS)
    yield made
    made.steward.stop()
    engine.dispose()


def test_a_workspace_grants_silver_with_its_game_and_by_itself(house: House) -> None:
    """A table made later follows the game's reader, one with grants of its own alone is granted to a group alone."""
    assert house.rounds() == []
    assert house.do(AccessIntent(ANN, CHESS, True, None, "numbers")) == ["succeeded"]
    for key in (SOLD, LEFT):
        house.write(key)
    assert house.rounds() == ["succeeded"]
    assert house.do(AccessIntent("partners", LEFT, True, None, "masked rows")) == ["succeeded"]
    assert house.rounds() == []
    assert house.selects() == {CHESS: {ANN}, SOLD: {ANN}, LEFT: {"partners"}}
    assert house.do(AccessIntent(ANN, CHESS, False, reason="over")) == ["succeeded"]
    assert house.selects() == {CHESS: set(), SOLD: set(), LEFT: {"partners"}}
    derived.apply(house.world.engine, "[]", 1, "bob", "no longer asked for")
    assert house.rounds() == ["succeeded"]
    assert house.selects() == {CHESS: set(), SOLD: set(), LEFT: set()}
