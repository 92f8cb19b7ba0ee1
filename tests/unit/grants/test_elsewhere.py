"""Grants in a schema that the settings named before: access ends there, where it was granted."""

import os
import time
from dataclasses import replace

import pytest
from sqlalchemy import update

from grants.applying import ledger
from grants.planning.entitlements import AccessIntent
from grants.reconciler import AccessReconciler
from pipeline.control.roles import CONTROLLER
from pipeline.store.database.tables import entitlements, managed_grants
from tests.unit.grants.access_world import ANN, BOB, CHESS, GO, House


def renamed(house: House, schema: str) -> None:
    """Let the settings name another schema, and a controller begin with it."""
    access = replace(house.world.settings.access, schema_name=schema)
    house.world = replace(house.world, settings=replace(house.world.settings, access=access))
    house.steward.stop()
    house.steward = AccessReconciler(house.world, os.environ)


@pytest.mark.proves("G124")
def test_access_ends_in_the_schema_in_which_it_was_granted(house: House) -> None:
    """After the settings name another schema, expired access is revoked where it is, with what it brought along."""
    for key in (CHESS, GO):
        house.make_table(key)
    house.rounds()
    before, tables = house.schema, house.catalog.tables(house.schema)
    house.do(
        AccessIntent(ANN, CHESS, True, time.time() + 3600, "numbers"), AccessIntent(BOB, GO, True, None, "numbers")
    )
    renamed(house, "later")
    of_ann = update(entitlements).where(entitlements.c.principal == ANN)
    with house.world.engine.begin() as connection:
        connection.execute(of_ann.values(expires_at=time.time() - 1))
    house.rounds()
    done = house.finish()
    assert (done.actor, done.state) == (CONTROLLER, "succeeded"), done.outcome
    for where in (tables[CHESS].securable, before):
        assert ANN not in house.catalog.assignments(where)
    assert house.catalog.probe(BOB, tables[GO]).reads is True
    house.do(AccessIntent(BOB, GO, False, reason="over"))
    assert house.catalog.probe(BOB, tables[GO]).reads is False
    assert {each.principal for each in ledger.managed(house.world.engine).given} <= {ANN, BOB}
    assert not {each for each in ledger.managed(house.world.engine).given if each.securable.type != "catalog"}


@pytest.mark.proves("G124")
def test_a_schema_that_is_gone_keeps_no_access_open(house: House) -> None:
    """A grant in a schema that the catalog has no more went with the schema: a revoke forgets it, and succeeds."""
    house.make_table(CHESS)
    house.rounds()
    house.do(AccessIntent(ANN, CHESS, True, None, "numbers"))
    where, gone = f"{house.schema.full_name}.{CHESS}", f"{house.schema.path[0]}.gone.{CHESS}"
    with house.world.engine.begin() as connection:  # as if it had been granted in a schema that was dropped since
        of_table = update(managed_grants).where(managed_grants.c.securable == where)
        connection.execute(of_table.values(securable=gone))
    assert house.do(AccessIntent(ANN, CHESS, False, reason="over")).state == "succeeded"
    assert not ledger.held(house.world.engine)
    assert gone not in {each.securable.full_name for each in ledger.managed(house.world.engine).given}
