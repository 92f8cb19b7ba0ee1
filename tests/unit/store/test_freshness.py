"""Promises of freshness on a fleet in the control store: incident, metric, command."""

import json
import time
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from listeners.prometheus import Exposition
from pipeline.cli.main import cli
from pipeline.control.incident_keeper import IncidentKeeper
from pipeline.data.output_contracts.freshness import read_freshness
from pipeline.data.output_contracts.rules import Freshness, OutputContract, dumps
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.settings.tree import Settings
from pipeline.store import output_contracts
from pipeline.store.database.states import Cause
from tests.unit.store.through_world import fleet_at


def test_a_table_that_is_not_as_fresh_as_promised_is_seen_everywhere(tmp_path: Path) -> None:
    """A game that is behind, or of which no time is known, is an incident, a metric, and a word of the command."""
    now = time.time()
    engine, fleet = fleet_at(tmp_path, now)
    contract = OutputContract("sales", ("level", "behind", "new"), readers=("BI",), freshness=Freshness(200))
    other = OutputContract("other", ("level",), freshness=Freshness(newest_within=60))
    output_contracts.apply(engine, dumps([contract, other, OutputContract("c", ("new",))]), 0, "ann", "agreed")
    found = read_freshness(engine, fleet)
    assert {(each.promise.contract, each.game): each.is_stale for each in found} == {
        ("sales", "level"): False, ("sales", "behind"): True, ("sales", "new"): True, ("other", "level"): False,
    }  # fmt: skip
    (kept,) = [each for each in IncidentKeeper(engine, Settings(), "controller").look() if not each.games]
    assert (kept.finding.cause, kept.finding.title) == (
        Cause.FRESHNESS, "2 games are not as fresh as their contracts promise"
    )  # fmt: skip
    assert [line.partition(" UTC")[0][:40] for line in kept.finding.evidence][1:] == [
        "new, contract sales: complete through no"
    ]
    exposition = Exposition(CollectorRegistry())
    exposition.set_controller_metrics(read_controller_metrics(engine, fleet, found))
    samples = {each.name: each.samples for each in exposition.collect()}["turnout_contract_stale"]
    assert {(each.labels["contract"], each.labels["game"]): each.value for each in samples} == {
        (each.promise.contract, each.game_key): float(each.is_stale) for each in found
    }
    engine.dispose()
    said = CliRunner().invoke(cli, ["--env-dir", str(tmp_path), "contracts", "show", "behind"]).output
    assert "# sales: NOT FRESH: complete through " in said
    said = CliRunner().invoke(cli, ["--env-dir", str(tmp_path), "contracts", "show", "level", "--json"]).output
    assert json.loads(said.splitlines()[-1])["stale"] == []


def test_a_retired_game_promises_nothing(tmp_path: Path) -> None:
    """A game that sends nothing any more on purpose breaks no promise."""
    engine, fleet = fleet_at(tmp_path, time.time())
    contract = OutputContract("sales", ("behind",), freshness=Freshness(200))
    output_contracts.apply(engine, dumps([contract]), 0, "ann", "agreed")
    rows = tuple(replace(row, is_retired=True) for row in fleet.rows)
    assert read_freshness(engine, replace(fleet, rows=rows)) == ()
    engine.dispose()
