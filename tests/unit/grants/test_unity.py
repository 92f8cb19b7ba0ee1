"""The whole way of access on the open-source server that the environment names: skipped where it names none."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from sqlalchemy import Engine

from grants.applying import drift_store, proposals
from grants.catalog import Catalog, Change
from grants.catalogs.opening import open_catalog
from grants.model import SELECT, Securable
from grants.observing import snapshot
from grants.planning.entitlements import AccessIntent
from grants.reconciler import AccessReconciler
from pipeline.base.names import game_key
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.games import record_seen
from pipeline.store.operations import Operation, list_operations, submit
from tests.unit.grants.catalog_world import NEEDED, UnityWorld, fresh

CHESS, GO = game_key("Chess"), game_key("Go")


@dataclass
class House:
    """An environment with two games whose controller looks after a schema of the named server."""

    world: ControlContext
    there: UnityWorld
    steward: AccessReconciler

    @property
    def catalog(self) -> Catalog:
        return open_catalog(self.world.settings.access, self.world.paths, os.environ)

    def table(self, key: str) -> Securable:
        return Securable((*proposals.schema_of(self.world.settings.access).path, key))

    def do(self, prepared: proposals.AccessProposal) -> Operation:
        """Ask for what was prepared, and bring it to its end."""
        submit(self.world.engine, prepared.to_intent("eve", "numbers"))
        while list_operations(self.world.engine, only_open=True):
            tick(self.world, self.steward.kinds)
        return max(list_operations(self.world.engine), key=lambda each: each.requested_at)

    def intent(self, *intents: AccessIntent) -> Operation:
        return self.do(
            proposals.prepare(self.world.engine, self.catalog, self.world.settings.access, self.world.paths, intents)
        )


@pytest.fixture
def house(engine: Engine, tmp_path: Path) -> Iterator[House]:
    missing = [name for name in (*NEEDED["unity"], "UNITY_CATALOG_KEY_FOLDER") if not os.environ.get(name)]
    if missing:
        pytest.skip(f"unity was NOT tested: the environment has no {', '.join(missing)}")
    access = f"catalog = 'unity'\ncatalog_name = 'turnout_contract'\nschema_name = '{fresh('house')}'\n"
    (tmp_path / "turnout.toml").write_text(f"[access]\n{access}members_file = '{tmp_path / 'members.yml'}'\n")
    settings, paths = load(tmp_path, {})
    record_seen(engine, {CHESS: "Chess", GO: "Go"}, 1, placing())
    for key in (CHESS, GO):
        DeltaTable.create(Path(paths.tables / key), Schema([Field("_seq", PrimitiveType("long"))]))
    world = ControlContext(settings, engine, paths)
    made = House(world, UnityWorld(tmp_path, os.environ), AccessReconciler(world, os.environ))
    made.steward.run_round()
    yield made
    made.steward.stop()


def test_access_goes_the_whole_way_on_a_real_server(house: House, tmp_path: Path) -> None:
    """Tables are registered; a grant is applied, seen and tried; a group's too; drift is seen; an undo takes it all."""
    known = snapshot.read(house.world.engine)
    assert (known.problem, set(known.observed.tables if known.observed else ())) == (None, {CHESS, GO})
    ann, bob = house.there.user(), house.there.user()
    team = house.there.user(fresh("Team"))  # a group is a user, told apart by its casing
    (tmp_path / "members.yml").write_text(yaml.safe_dump({"groups": {team.lower(): [bob.upper()]}}), "utf-8")

    given = house.intent(
        AccessIntent(ann.upper(), CHESS, read=True, reason="numbers"), AccessIntent(team, GO, read=True, reason="team")
    )
    assert given.state == "succeeded", given.outcome
    assert "3 gained read access" in (given.outcome or "")
    assert f"1 of them as {team}" in (given.outcome or "")
    tables = house.catalog.tables(proposals.schema_of(house.world.settings.access))
    tried = {(who, key): house.catalog.probe(who, tables[key]) for who in (ann, bob) for key in (CHESS, GO)}
    assert [key for key, probe in tried.items() if probe.reads] == [(ann, CHESS), (bob, GO)]
    assert "says 403" in tried[bob, CHESS].message

    house.catalog.change(Change(house.table(GO), ann, add=(SELECT,)))
    house.catalog.change(Change(house.table(GO), team, remove=(SELECT,)))
    drift = drift_store.read_drift(house.world.engine, house.catalog, house.world.settings.access, house.world.paths)
    found = {(each.kind, each.principal) for each in drift.findings if each.kind != "broader"}
    assert found == {("extra", ann), ("missing", team)}  # other tests leave SELECT on the whole catalog

    back = house.do(
        proposals.prepare_undo(house.world.engine, house.catalog, house.world.settings.access, house.world.paths, given)
    )
    assert back.state == "succeeded", back.outcome
    assert not house.catalog.probe(ann, tables[CHESS]).reads
    assert house.catalog.assignments(house.table(GO)) == {ann: {SELECT}}, "what turnout did not give it leaves"
