"""Retired games: no group carries them, nothing of them is lost, and they come back by the inverse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from listeners.sample import Lane
from pipeline.base.errors import Refused
from pipeline.control.controller import KINDS
from pipeline.control.operations import moves, pauses, retirement
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.proposals import undo
from pipeline.data.verify.balance import verify
from pipeline.data.verify.report import render_balance
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Paths, Settings
from pipeline.store.assignments import AssignmentConflict, read_assignments, reassign, restore, retire
from pipeline.store.games import assigned, record_last_seqs, record_seen, register_group, retired_games
from pipeline.store.operations import Operation, operation, steps, submit
from tests.tables.repair_world import CHESS, good, make_world
from tests.unit.control.operations.move_world import ALIVE, Drivers


@pytest.fixture
def drivers(engine: Engine) -> Drivers:
    return Drivers(engine)


@pytest.fixture
def world(drivers: Drivers, tmp_path: Path) -> ControlContext:
    return ControlContext(Settings(), drivers.store, Paths(tmp_path))


def submitted(drivers: Drivers, kind: str, *keys: str) -> Operation:
    facts = retirement.plan(kind, keys, read_assignments(drivers.store))
    return submit(drivers.store, retirement.intent(kind, facts, "ann", "closed"))


def boundaries(drivers: Drivers) -> None:
    for name in "abc":
        drivers.boundary(name)


def brought_on(drivers: Drivers, world: ControlContext) -> None:
    for _ in range(3):
        tick(world, KINDS)
        boundaries(drivers)
    tick(world, KINDS)


def now(drivers: Drivers, begun: Operation) -> Operation:
    return operation(drivers.store, begun.operation_id)


@pytest.mark.proves("D19", "G88")
def test_a_retired_game_that_still_sends_is_counted_and_carried_by_nobody(
    drivers: Drivers, world: ControlContext
) -> None:
    """D19: its driver lets it go; new rows, a start of ingest and a new group give it none, until it is restored."""
    source = str(drivers.group_of("g1"))
    begun = submitted(drivers, "retire", "g1")
    tick(world, KINDS)
    assert (drivers.group_of("g1"), now(drivers, begun).state) == (None, "verifying")
    assert steps(drivers.store, begun.operation_id)[-1].detail.startswith(f"Group {source} still holds 1: g1")
    brought_on(drivers, world)
    assert now(drivers, begun).state == "succeeded"
    assert all("g1" not in held for held in drivers.held.values())
    record_seen(drivers.store, {"g1": "One"}, 12, placing())
    record_last_seqs(drivers.store, {"g1": 13}, placing())
    register_group(drivers.store, "d", placing())
    assignment = read_assignments(drivers.store)["g1"]
    assert (assignment.group, assignment.held_by, assignment.last_seq) == (None, None, 13)
    assert retired_games(drivers.store) == {"g1"}
    assert retirement.plan("retire", ["g1"], read_assignments(drivers.store)) == {}
    back = submitted(drivers, "restore", "g1")
    tick(world, KINDS)
    group = str(drivers.group_of("g1"))
    assert "g1" in {each.game_key for each in assigned(drivers.store, group)}
    record_last_seqs(drivers.store, {}, placing())
    assert now(drivers, back).state == "verifying", "no driver has told of it"


@pytest.mark.proves("G278")
def test_a_restored_game_that_waits_for_its_registry_is_back(drivers: Drivers, world: ControlContext) -> None:
    """A restore waits for no registry: it ends with what the game waits for."""
    submitted(drivers, "retire", "g1")
    brought_on(drivers, world)
    back = submitted(drivers, "restore", "g1")
    tick(world, KINDS)
    drivers.boundary(str(drivers.group_of("g1")), Lane.CATCHUP, waits="waits for schema 7 of registry main")
    tick(world, KINDS)
    assert (now(drivers, back).state, now(drivers, back).outcome) == (
        "succeeded",
        "Restored: g1. Rows wait: g1 waits for schema 7 of registry main.",
    )


@pytest.mark.proves("G88")
def test_a_restored_game_is_seen_to_come_back(drivers: Drivers, world: ControlContext) -> None:
    """A restore ends when the new driver tells of the game and it has caught up; then there is nothing to plan."""
    submitted(drivers, "retire", "g1", "g2")
    brought_on(drivers, world)
    back = submitted(drivers, "restore", "g1", "g2")
    brought_on(drivers, world)
    assert (now(drivers, back).state, now(drivers, back).outcome) == ("succeeded", "Restored: g1, g2.")
    assert retirement.plan("restore", ["g1", "g2"], read_assignments(drivers.store)) == {}
    assert read_assignments(drivers.store)["g1"].epoch == 3


def test_a_retirement_is_undone_by_its_checked_inverse(drivers: Drivers, world: ControlContext) -> None:
    """Undo asks for the inverse, which has its own steps."""
    begun = submitted(drivers, "retire", "g1")
    brought_on(drivers, world)
    proposal = undo(Settings(), drivers.store, now(drivers, begun), "bob")
    intent, lines = proposal.intent, proposal.lines
    assert (intent.kind, intent.targets, intent.undoes) == ("restore", ("game:g1",), begun.operation_id)
    assert lines == ["g1: no group, cursor 9 of 9", lines[-1]]
    assert lines[-1].startswith("1 to restore. Each gets a group")


def test_what_is_asked_of_a_retired_game_is_refused_with_the_way_back(drivers: Drivers, world: ControlContext) -> None:
    """A retired game is neither moved nor paused nor tried again: nobody would act on it."""
    submitted(drivers, "retire", "g1")
    brought_on(drivers, world)
    there = read_assignments(drivers.store)
    with pytest.raises(Refused, match=r"g1 is retired.*turnout games restore g1"):
        moves.plan({"g1": "b"}, there, ALIVE)
    for kind in ("pause", "resume", "retry"):
        with pytest.raises(Refused, match="g1 is retired"):
            pauses.plan(kind, ["g1", "g2"], there, {})
    with pytest.raises(Refused, match="No such game: chess"):
        retirement.plan("retire", ["chess"], there)


def within(store: Engine, act: Callable[[Connection, Any], None], wanted: object) -> None:
    """Do something in a transaction of its own."""
    with store.begin() as connection:
        act(connection, wanted)


def test_of_a_move_and_a_retirement_at_once_one_is_done(drivers: Drivers) -> None:
    """Both are a compare-and-set on the assignment, all of a set or none; done twice by one caller it is done once."""
    epochs = {key: read_assignments(drivers.store)[key].epoch for key in ("g1", "g2")}
    group = next(name for name in "abc" if name != drivers.group_of("g2"))
    within(drivers.store, reassign, {"g2": (epochs["g2"], group)})
    with pytest.raises(AssignmentConflict, match="g2 was moved, retired or restored"):
        within(drivers.store, retire, epochs)
    assert retired_games(drivers.store) == set()
    for _ in range(2):
        within(drivers.store, retire, {"g1": epochs["g1"]})
    with pytest.raises(AssignmentConflict):
        within(drivers.store, reassign, {"g1": (epochs["g1"], group)})
    for _ in range(2):
        within(drivers.store, restore, {"g1": epochs["g1"] + 1})
    with pytest.raises(AssignmentConflict):
        within(drivers.store, restore, {"g1": epochs["g1"]})
    assert retired_games(drivers.store) == set()


def test_a_retired_game_looks_like_no_trouble(drivers: Drivers, world: ControlContext) -> None:
    """What somebody wanted is no fault: the game is paused, the reason says why, and its last numbers do not count."""
    submitted(drivers, "retire", "g1")
    brought_on(drivers, world)
    row = read_fleet(drivers.store, drivers.clock.now).row("g1")
    assert row is not None
    assert (row.verdict.status, row.live) == ("PAUSED", None)
    assert 0 < drivers.clock.now - (row.verdict.since or 0.0) < 60
    assert "it is retired" in str(row.verdict.reason)
    assert not row.verdict.status.is_trouble


@pytest.mark.proves("D19", "G88")
def test_verify_counts_what_a_retired_game_still_sends(tmp_path: Path) -> None:
    """D19: its rows above the cursor are neither lost nor to come, and the verdict says that they wait."""
    made = make_world(tmp_path)
    made.ingest(good(1), good(2))
    made.split()
    made.ingest(good(3), good(4), good(5))
    assert verify(made.paths, made.environment).totals.pending == 3
    balance = verify(made.paths, made.environment, retired={CHESS.key})
    assert (balance.totals.pending, balance.totals.retired, balance.complete) == (0, 3, True)
    assert "3 row(s) of retired games, which wait in bronze" in render_balance(balance, complete=True)
