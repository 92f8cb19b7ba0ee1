"""Verify tells of what an older schema set left in quarantine, and claims nothing where nothing was ingested."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.base.names import bronze_app_id
from pipeline.cli.main import cli
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.repair import switch
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.verify.balance import verify
from pipeline.data.verify.replayable import LandingToday, landing
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.table import CursorTable
from pipeline.store.assignments import read_assignments, retire
from pipeline.store.games import known_names, retired_games
from tests.tables.repair_world import CHESS, GO, OTHER, SECOND, Event, World, broken, early, good, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def verified(world: World, *options: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli, ["verify", *options, "--env-dir", str(world.paths.root)])
    return found.exit_code, found.stdout


def replayable(world: World) -> Mapping[str, int]:
    def today() -> LandingToday:
        return landing(world.registry.snapshot(), known_names(world.engine), retired_games(world.engine))

    balance = verify(world.paths, world.environment, landing=today)
    assert balance.complete
    return balance.replayable


@pytest.mark.proves("G157")
def test_refused_rows_whose_schema_is_registered_today_are_named_with_what_lands_them(world: World) -> None:
    """Law L15: exactly once makes it complete; the report still counts the rows that a replay would land."""
    world.ingest(good(1), early(2), early(3), broken(), early(4, GO))
    world.split()
    assert replayable(world) == {}, "nobody registered their schema"
    world.register(message=SECOND)
    assert replayable(world) == {CHESS.key: 2}
    world.register(GO, SECOND)
    assert replayable(world) == {CHESS.key: 2, GO.key: 1}, "also a row of before the game was known"
    code, text = verified(world, "--complete", "--json")
    assert (code, json.loads(text)["replayable"]) == (0, {CHESS.key: 2, GO.key: 1})
    code, text = verified(world, "--complete")
    assert code == 0
    assert f"  replayable: {CHESS.key} 2, {GO.key} 1\n" in text
    assert f"  `turnout repair replay {CHESS.key} {GO.key}` lands those that decode.\n" in text
    assert text.splitlines()[-1].endswith(" 3 row(s) in quarantine can be replayed: see above.")
    replay_all(world.paths, world.environment, world.registry.snapshot, world.known(), Selection(), dry_run=False)
    assert replayable(world) == {}


def test_rows_that_no_replay_takes_are_not_named(world: World) -> None:
    """A schema that still keeps its rows out, a retired game and a stale twin are no findings."""
    other = Event(CHESS, 2, OTHER.payload(points="two"))
    world.ingest(good(1), other)
    world.split()
    world.registry.register(CHESS.name, "t.M", OTHER.descriptor_set, parse_policies(["incompatible=quarantine"]))
    assert replayable(world) == {}
    world.registry.register(CHESS.name, "t.M", OTHER.descriptor_set, parse_policies(["incompatible=side-column"]))
    assert replayable(world) == {CHESS.key: 1}
    with world.engine.begin() as connection:
        retire(connection, {CHESS.key: read_assignments(world.engine)[CHESS.key].epoch})
    assert replayable(world) == {}


def test_a_registration_right_at_the_switch_of_a_rebuild_is_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L15: a schema registered after a rebuild's last check removes no row; a replay lands its rows."""
    world.ingest(good(1), early(2))
    world.split()
    commit = switch._commit

    def after_registration(*arguments: Any) -> None:
        world.register(message=SECOND)
        commit(*arguments)

    monkeypatch.setattr(switch, "_commit", after_registration)
    assert rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS).refused == 1
    assert replayable(world) == {CHESS.key: 1}


@pytest.mark.parametrize("options", [(), ("--values",)])
def test_where_ingest_never_ran_nothing_is_complete(world: World, options: Sequence[str]) -> None:
    """An empty bronze adds up; that the source holds rows nobody has read is no completeness."""
    CursorTable.create(world.paths.bronze, BRONZE, bronze_app_id(world.environment))  # as ingest does when it starts
    code, text = verified(world, "--complete", *options)
    verdict = text.splitlines()[-1]
    assert (code, verdict.startswith("NOT COMPLETE: nothing was ingested, bronze has no commit.")) == (1, True)
    code, text = verified(world, *options)
    assert (code, text.splitlines()[-1].startswith("OK, but nothing is proved: nothing was ingested")) == (0, True)
    found = json.loads(verified(world, "--json", *options)[1])
    assert (found["ok"], found["complete"], found["is_ingested"]) == (True, False, False)
    world.ingest(good(1))
    world.split()
    assert verify(world.paths, world.environment).complete
