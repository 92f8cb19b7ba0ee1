"""Draining: all games of a group move to where they fit, none lands there again, and undo takes all of it back."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, select, update

from pipeline.base.errors import Refused
from pipeline.control.controller import KINDS
from pipeline.control.operations import moves
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.operations.moves import drain
from pipeline.control.proposals import undo
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.placement.capacity import GroupLoad, Load, Loads, tallied
from pipeline.settings.tree import Paths, Settings
from pipeline.store.assignments import read_assignments
from pipeline.store.database.tables import groups
from pipeline.store.games import assigned, record_seen
from pipeline.store.operations import Operation, operation, submit
from tests.unit.control.operations.drain_world import heartbeats
from tests.unit.control.operations.move_world import ALIVE, NOW, Drivers


@pytest.fixture
def drivers(engine: Engine) -> Drivers:
    return heartbeats(engine)


def loads(drivers: Drivers, **capacities: float) -> Loads:
    """Return loads in which each game takes a tenth of a core."""
    games = (
        (key, assignment.group, Load(0.1 / 12e-6, 0.0, 0.0))
        for key, assignment in read_assignments(drivers.store).items()
    )
    return tallied(games, [GroupLoad(name, "running", True, None, capacities.get(name)) for name in "abc"])


def planned(drivers: Drivers, group: str) -> moves.MovePlan:
    game_assignments = read_group_liveness(drivers.store, now=NOW)
    return drain(group, read_assignments(drivers.store), game_assignments, loads(drivers))


def desired(drivers: Drivers) -> dict[str, tuple[str, int]]:
    with drivers.store.connect() as connection:
        rows = connection.execute(select(groups.c.name, groups.c.desired, groups.c.version))
        return {name: (wanted, version) for name, wanted, version in rows}


def carried_out(drivers: Drivers, begun: Operation) -> Operation:
    world = ControlContext(Settings(), drivers.store, Paths(Path()))
    for _ in range(4):
        tick(world, KINDS)
        for name in "abc":
            drivers.boundary(name)
    return operation(drivers.store, begun.operation_id)


@pytest.mark.proves("G113")
def test_a_drain_is_one_move_of_all_and_nothing_lands_there_again(drivers: Drivers) -> None:
    """Each game goes to another group, the group is drained in the same commit, and a new game goes elsewhere."""
    mine = {each.game_key for each in assigned(drivers.store, "a")}
    plan = planned(drivers, "a")
    assert {each.game_key for each in plan.moves} == mine
    assert moves.render_preview(plan, read_assignments(drivers.store))[0] == "a: running → drained"
    intent = plan.intent("ann", "new machine")
    assert intent.kind == "move"
    assert set(intent.targets) == {"group:a", *(f"game:{key}" for key in mine)}
    done = carried_out(drivers, submit(drivers.store, intent))
    assert done.state == "succeeded", done.outcome
    assert done.outcome == "Moved and seen: 1 in b, 1 in c, group a is drained."
    assert desired(drivers) == {"a": ("drained", 2), "b": ("running", 1), "c": ("running", 1)}
    record_seen(drivers.store, {"new": "New"}, 10, placing())
    assert assigned(drivers.store, "a") == []
    again = planned(drivers, "a")
    assert (again.moves, again.desired, again.intent("ann", "").targets) == ((), {}, ())


@pytest.mark.proves("G113")
def test_undo_of_a_drain_brings_the_games_back_and_the_group_to_run(drivers: Drivers) -> None:
    """What the drain has done is taken back as one operation, and not where somebody has changed the group since."""
    mine = {each.game_key for each in assigned(drivers.store, "a")}
    done = carried_out(drivers, submit(drivers.store, planned(drivers, "a").intent("ann", "")))
    proposal = undo(Settings(), drivers.store, done, "bob", now=NOW)
    assert proposal.lines[0] == "a: drained → running"
    with drivers.store.begin() as connection:
        connection.execute(update(groups).where(groups.c.name == "a").values(desired="stopped"))
    with pytest.raises(Refused, match="Group a was changed since: it is stopped now, not drained"):
        undo(Settings(), drivers.store, done, "bob", now=NOW)
    late = carried_out(drivers, submit(drivers.store, proposal.intent))
    assert (late.state, late.outcome) == ("failed", "Nothing was done: group a is stopped now.")
    with drivers.store.begin() as connection:
        connection.execute(update(groups).where(groups.c.name == "a").values(desired="drained"))
    undone = carried_out(drivers, submit(drivers.store, undo(Settings(), drivers.store, done, "bob", now=NOW).intent))
    assert undone.state == "succeeded", undone.outcome
    assert {each.game_key for each in assigned(drivers.store, "a")} == mine
    assert desired(drivers)["a"][0] == "running"


@pytest.mark.proves("G113")
def test_what_does_not_fit_elsewhere_is_not_drained(drivers: Drivers) -> None:
    """A drain of which a game would be left is refused with the numbers; so is one of a group that is not there."""
    there = read_assignments(drivers.store)
    with pytest.raises(Refused, match=(
        r"Group a cannot be drained: 1 of its 2 games fit nowhere, with about 0.1 cores: g\d. When the others have "
        r"left, most room: [bc], 0.05 cores. Start another group"
    )):  # fmt: skip
        drain("a", there, ALIVE, loads(drivers, b=0.35, c=0.25))
    with pytest.raises(Refused, match=r"There is no cluster group 'z'. Groups: a, b, c"):
        drain("z", there, ALIVE, loads(drivers))


def test_a_drain_that_somebody_overtook_does_nothing(drivers: Drivers) -> None:
    """A game that came to the group meanwhile, or a target that was drained itself, is seen before anything is done."""
    begun = submit(drivers.store, planned(drivers, "a").intent("ann", ""))
    with drivers.store.begin() as connection:
        connection.execute(update(groups).where(groups.c.name != "a").values(desired="stopped"))
    record_seen(drivers.store, {"new": "New"}, 10, placing())
    late = carried_out(drivers, begun)
    assert late.state == "failed"
    assert late.outcome == "Nothing was done: group a has got 1 more since you looked: new. Ask again."
    with drivers.store.begin() as connection:
        connection.execute(update(groups).where(groups.c.name != "a").values(desired="running"))
    plan = planned(drivers, "a")
    begun = submit(drivers.store, plan.intent("ann", ""))
    target = min(each.target for each in plan.moves)
    with drivers.store.begin() as connection:
        connection.execute(update(groups).where(groups.c.name == target).values(desired="drained"))
    late = carried_out(drivers, begun)
    assert late.outcome == f"Nothing was done: group {target} takes no games: it is drained."
    assert desired(drivers)["a"] == ("running", 1)


def test_a_stopped_group_stays_stopped_when_it_is_emptied(drivers: Drivers) -> None:
    """Draining takes the games off a group that is stopped; it does not start it."""
    with drivers.store.begin() as connection:
        connection.execute(update(groups).where(groups.c.name == "a").values(desired="stopped"))
    plan = planned(drivers, "a")
    assert (len(plan.moves), plan.desired) == (2, {})
