"""A dead group is evacuated once, by the move a person would ask for; nothing else is done unasked."""

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
from sqlalchemy import Engine, update

from pipeline.base.errors import Refused
from pipeline.control.controller import KINDS, run
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.proposals import undo
from pipeline.control.roles import CONTROLLER
from pipeline.control.supervision import evacuation
from pipeline.control.supervision.evacuation import Dead, EvacuationPlan, Evacuator, Facts, dead, plan
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.condition import GroupCondition, judge_groups
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.placement.capacity import GroupLoad, Load, Loads, tallied
from pipeline.settings.tree import Paths, PlacementSettings, Settings, load
from pipeline.store.assignments import GameAssignment
from pipeline.store.database.states import OperationState, Priority
from pipeline.store.database.tables import drivers as drivers_table
from pipeline.store.database.tables import group_runs
from pipeline.store.database.tables import groups as groups_table
from pipeline.store.database.tables import leases as leases_table
from pipeline.store.games import assigned, record_seen, register_group
from pipeline.store.groups import Group, create, read_groups
from pipeline.store.operations import Intent, Operation, change, list_operations, operation, submit
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.runs import begin_run, end_run, reset_restart_budget
from pipeline.store.reports import keep_waiting, waiting_in
from tests.unit.control.operations.drain_world import heartbeats
from tests.unit.health.verdicts.condition_world import DIED_AT, NOW, GroupCase, begun, driver, lease, lives, look, tries

NO_MAINTENANCE = {"TURNOUT_MAINTENANCE__BACKEND": "none"}  # its process would outlive the test
FOREIGN = GroupCase(driver=driver())  # gone, and another tool starts it
LOCAL = GroupCase(backend="local", ended=tries())  # gone, and the controller cannot start it
TRYING = replace(LOCAL, run=begun(10.0))


def found(
    group: GroupCase, *others: GroupCase, minutes: float = 10.0, before: Mapping[str, Dead] = MappingProxyType({})
) -> list[str]:
    """Return the names of the dead among a group and others; by default two that live."""
    conditions = look(group, *(others or (lives("b"), lives("c"))))
    return [each.group for each in dead(conditions, minutes, before=before)]


@pytest.mark.parametrize("group", [FOREIGN, LOCAL, replace(LOCAL, driver=driver("failed", 100.0))])
def test_a_group_is_dead_when_it_has_been_gone_for_the_minutes_of_the_setting(group: GroupCase) -> None:
    """Younger it is not, nor where it should not run or get no games: a person has said so."""
    assert found(group) == ["a"]
    assert found(group, minutes=12.0) == []
    for desired in ("drained", "stopped"):
        assert found(replace(group, desired=desired)) == []


@pytest.mark.parametrize("group", [replace(FOREIGN, lease=lease()), replace(LOCAL, lease=lease()), TRYING])
@pytest.mark.proves("G100")
def test_no_group_dies_where_a_driver_may_live(group: GroupCase) -> None:
    """Whatever is silent, a lease that runs is a process's, and so is a run that has not ended."""
    assert found(group) == []


def test_a_group_that_was_heard_of_a_minute_ago_is_not_dead_whatever_the_setting_says() -> None:
    """A driver that stands still beats again: its games would be moved for nothing."""
    silent = replace(FOREIGN, driver=driver(ago=59.0))
    assert found(silent, minutes=0.5) == []
    assert found(replace(silent, driver=driver(ago=61.0)), minutes=0.5) == ["a"]


def test_who_was_dead_is_so_while_a_start_is_tried_again() -> None:
    """Each try would else end the alarm and the time since when; who has a driver is not dead, whoever started it."""
    before = {"a": Dead("a", DIED_AT, "no start of it lasts")}
    assert found(TRYING) == []
    assert found(TRYING, before=before) == ["a"]
    for lives_again in (
        replace(TRYING, run=begun(130.0)),
        replace(TRYING, lease=lease()),
        replace(TRYING, driver=driver(ago=1.0, pid=8), run=begun(100.0)),
    ):
        assert found(lives_again, before=before) == []


@pytest.mark.parametrize("other", [LOCAL, TRYING, FOREIGN])
@pytest.mark.proves("G100")
def test_where_most_groups_are_down_nobody_is_dead(other: GroupCase) -> None:
    """More than half of them share a cause, and who seems to live may be next: nothing is moved."""
    second = replace(other, name="b")
    assert found(FOREIGN, second, lives("c")) == []
    assert found(TRYING, second, lives("c"), before={"a": Dead("a", DIED_AT, "")}) == []
    assert found(FOREIGN, replace(FOREIGN, name="b"), lives("c"), lives("d")) == ["a", "b"]


# ----------------------------------------------------------------------------------------------------------------- plan

BROKEN = Dead("a", DIED_AT, "its driver has failed")
FAILED = Liveness("failed", DIED_AT, "has failed")
SEATS = {name: GroupCondition(name, Liveness("running", NOW, None)) for name in "bc"} | {
    "a": GroupCondition("a", FAILED)
}


def an_operation(state: OperationState, *games: str, kind: str = "move") -> Operation:
    """Return an operation that assigns games of the dead group to b, as they were seen there."""
    preview = {key: ["a", "b", 4] for key in games}
    targets = tuple(f"game:{key}" for key in games)
    return Operation("4f1d" * 8, kind, state, targets, {}, "ann", "", preview, "", None, None, 1.0, None, 1)


def planned(
    capacity: float | None,
    *submitted: Operation,
    taken: Mapping[str, Operation] = MappingProxyType({}),
    found: Sequence[Dead] = (BROKEN,),
) -> list[EvacuationPlan]:
    """Return the evacuations of a dead group with three games of 0.1 cores, beside the groups of `loads`."""
    there = {key: GameAssignment(key, key, "a", 4, None, 9, None, None, None, None, None) for key in ("g1", "g2", "g3")}
    games = ((key, "a", Load(0.1 / 12e-6, 0.0, 0.0)) for key in there)
    groups = [GroupLoad("a", "running", alive=False, silence="gone"), GroupLoad("b", "running", True, None, capacity)]
    loads: Loads = tallied(games, groups)
    by_key = dict(zip(BROKEN.keys, submitted, strict=False))
    return plan(found, Facts(by_key, taken, there, SEATS, loads))


def test_an_evacuation_is_the_drain_a_person_would_submit() -> None:
    """All games go in one move, with which the group takes no more; the controller asks, and says why."""
    (only,) = planned(None)
    assert only.alarms == ()
    assert only.intent is not None
    assert (only.intent.kind, only.intent.actor, only.intent.idempotency_key) == (
        "move",
        CONTROLLER,
        "evacuate-a-999300",
    )
    assert only.intent.parameters == {
        "assignments": dict.fromkeys(("g1", "g2", "g3"), "b"), "desired": {"a": ["running", "drained"]},
    }  # fmt: skip
    assert only.intent.reason == "Group a is dead: its driver has failed."


@pytest.mark.proves("D22")
def test_what_fits_nowhere_stays_and_is_told_of() -> None:
    """D22: no group is filled over its capacity for a dead one; without any room there is nothing to ask for."""
    (some,) = planned(0.25)
    assert some.intent is not None
    assert some.staying == {"g3"}
    assert (len(some.intent.targets), "desired" in some.intent.parameters) == (2, False)
    assert "1 of its 3 games fit nowhere and stay: g3; most room: b, 0.05 cores" in some.alarms[0]
    (none,) = planned(0.05)
    assert none.intent is None
    assert "3 of its 3 games fit nowhere and stay" in none.alarms[0]
    assert none.staying == {"g1", "g2", "g3"}


SHARING: Final[Mapping[tuple[str, str], tuple[float, Priority]]] = {
    ("large", "a"): (0.2, "normal"),
    ("important", "c"): (0.1, "high"),
}


def test_dead_groups_share_what_room_there_is_by_priority() -> None:
    """D22: of two dead groups the game of high priority goes, whatever its group is called and however large it is."""
    there = {key: GameAssignment(key, key, name, 4, None, 9, None, None, None, None, None) for key, name in SHARING}
    games = [
        (key, name, Load(cores / 12e-6, 0.0, 0.0, priority=priority))
        for (key, name), (cores, priority) in SHARING.items()
    ]
    gone = [GroupLoad(name, "running", alive=False, silence="gone") for name in "ac"]
    loads = tallied(games, [*gone, GroupLoad("b", "running", True, None, 0.25)])
    game_assignments = {**SEATS, "c": GroupCondition("c", FAILED)}
    first, second = plan([BROKEN, replace(BROKEN, group="c")], Facts({}, {}, there, game_assignments, loads))
    assert first.intent is None
    assert first.staying == {"large"}
    assert second.intent is not None
    assert second.intent.parameters["assignments"] == {"important": "b"}


def test_no_game_goes_where_a_driver_only_starts() -> None:
    """A driver that fails at each start is starting half of the time: games waited in its group for ever."""
    there = {"g1": GameAssignment("g1", "g1", "a", 4, None, 9, None, None, None, None, None)}
    gone = GroupLoad("a", "running", alive=False, silence="gone")
    for full, target in ((0.25, "c"), (1e-6, None)):
        loads = tallied(
            [("g1", "a", Load(0.1 / 12e-6, 0.0, 0.0))],
            [gone, GroupLoad("b", "running", True), GroupLoad("c", "running", True, None, full)],
        )
        game_assignments = {**SEATS, "b": GroupCondition("b", Liveness("starting", NOW, None))}
        (only,) = plan([BROKEN], Facts({}, {}, there, game_assignments, loads))
        assert (only.intent and only.intent.parameters["assignments"]) == (target and {"g1": target})
        assert only.staying == (frozenset() if target else {"g1"})


def test_a_game_is_asked_for_once() -> None:
    """While its move is open nothing is said; afterwards a person is told of the games that are still there."""
    assert planned(None, an_operation(OperationState.VERIFYING, "g1", "g2", "g3")) == []
    (later,) = planned(None, an_operation(OperationState.SUCCEEDED, "g1", "g2", "g3"))
    assert later.intent is None
    assert "3 games are still in it: g1, g2, g3. Run `turnout groups drain a`" in later.alarms[0]
    assert later.staying == {"g1", "g2", "g3"}


@pytest.mark.proves("D22")
def test_a_stuck_operation_keeps_only_its_own_games() -> None:
    """What can go goes; of what belongs to another operation the alarm says for which one it waits."""
    stuck = an_operation(OperationState.NEEDS_HUMAN, "g2", kind="pause")
    (some,) = planned(None, taken={"game:g2": stuck})
    assert some.intent is not None
    assert some.intent.parameters == {"assignments": {"g1": "b", "g3": "b"}}, "a group with games is not drained"
    assert "1 of its 3 games wait for another operation: g2 for 4f1d4f1d, a pause that is needs_human" in some.alarms[0]


def test_an_operation_on_the_group_keeps_none_of_its_games() -> None:
    """A restart that waits for a driver which never comes holds the group, so it is not drained; its games go."""
    (all_of_it,) = planned(None, taken={"group:a": an_operation(OperationState.VERIFYING, kind="restart")})
    assert all_of_it.intent is not None
    assert all_of_it.intent.targets == ("game:g1", "game:g2", "game:g3")
    assert all_of_it.alarms == ()


def test_what_came_free_of_another_operation_goes_then() -> None:
    """A second move takes it, also while the first one is stuck."""
    for state in (OperationState.NEEDS_HUMAN, OperationState.SUCCEEDED):
        (second,) = planned(None, an_operation(state, "g1", "g3"))
        assert second.intent is not None
        assert (second.intent.idempotency_key, second.intent.targets) == ("evacuate-a-999300/2", ("game:g2",))


def test_a_move_that_failed_before_it_began_is_asked_for_again() -> None:
    """A game that joined the group in between made it fail: that must not leave the games where they are."""
    (again,) = planned(None, an_operation(OperationState.FAILED, "g1", "g2", "g3"))
    assert again.intent is not None
    assert len(again.intent.parameters["assignments"]) == 3


def test_moves_of_one_death_are_bounded() -> None:
    """Whatever makes them fail, operations are not asked for without an end: a person is."""
    (tired,) = planned(None, *(an_operation(OperationState.FAILED, "g1", "g2", "g3") for _ in range(20)))
    assert tired.intent is None
    assert "3 games are still in it" in tired.alarms[0]


def test_a_group_that_cannot_take_games_any_more_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that falls silent while an evacuation is planned makes it wait, and does not end the controller."""
    monkeypatch.setitem(SEATS, "b", GroupCondition("b", FAILED))
    (only,) = planned(None)
    assert only.intent is None
    assert only.alarms[0].startswith("group a waits for its evacuation: Group b cannot take games")
    assert only.staying == {"g1", "g2", "g3"}


# ------------------------------------------------------------------------------------------------------------ the store


class Dying:
    """Three groups of somebody else, of which one dies while a controller looks every 20 seconds."""

    living = "bc"

    def __init__(self, store: Engine, minutes: float = 10.0) -> None:
        self.fleet, self.store = heartbeats(store), store
        self.evacuator = Evacuator(store, PlacementSettings(evacuate_after_minutes=minutes))
        self.fleet.leases["a"].release()
        with store.begin() as connection:  # whoever holds a lease is who beats, as in any driver
            theirs = update(leases_table).where(leases_table.c.name.in_(list(self.living)))
            connection.execute(theirs.values(host=socket.gethostname(), pid=os.getpid()))
        self.heard_of("a", self.fleet.clock.now - 700)

    def heard_of(self, name: str, at: float) -> None:
        with self.store.begin() as connection:
            theirs = update(drivers_table).where(drivers_table.c.name == name)
            connection.execute(theirs.values(heartbeat_at=at))

    def look(self, times: int = 1, failure: str | None = None) -> list[Operation]:
        """Look so often, in a mass failure where one is given."""
        for _ in range(times):
            for name in self.living:
                self.fleet.leases[name].renew()
            self.fleet.clock.now += 20.0
            now = self.fleet.clock.now
            for name in self.living:
                self.heard_of(name, now)
            conditions = judge_groups(read_drivers(self.store, now=now))
            self.evacuator.tick(replace(conditions, mass_failure=failure or conditions.mass_failure))
        return list_operations(self.store)

    def carry_out(self) -> Operation:
        world = ControlContext(Settings(), self.store, Paths(Path()))
        for _ in range(4):
            tick(world, KINDS)
            for name in "bc":
                self.fleet.boundary(name)
        return operation(self.store, list_operations(self.store)[0].operation_id)


@pytest.mark.proves("D22", "G100")
def test_a_dead_group_is_evacuated_once_and_it_can_be_undone(engine: Engine) -> None:
    """D22: watched long enough it is asked for, done, never asked for again, and taken back once the driver lives."""
    world = Dying(engine)
    mine = {each.game_key for each in assigned(engine, "a")}
    assert world.look(3) == [], "a controller that has just begun to look does not judge"
    assert [each.kind for each in world.look(1)] == ["move"]
    assert len(world.look(2)) == 1
    done = world.carry_out()
    assert (done.state, done.actor) == ("succeeded", CONTROLLER), done.outcome
    assert assigned(engine, "a") == []
    assert read_groups(engine)["a"].desired == "drained"
    assert len(world.look(5)) == 1
    assert world.evacuator.alarms == ()
    with pytest.raises(Refused, match="Group a cannot take games: its driver is silent"):
        undo(Settings(), engine, done, "ann", now=world.fleet.clock.now)
    world.heard_of("a", world.fleet.clock.now)
    proposal = undo(Settings(), engine, done, "ann", now=world.fleet.clock.now)
    assert proposal.lines[0] == "a: drained → running"
    assert set(proposal.intent.parameters["assignments"]) == mine


@pytest.mark.proves("D22")
def test_nothing_is_evacuated_in_a_mass_failure(engine: Engine) -> None:
    """D22: a failure of many groups is no time for moves."""
    world = Dying(engine)
    assert world.look(6, failure="9 of 10 groups died") == []
    assert len(world.look()) == 1


def test_a_group_that_lived_again_or_was_stopped_is_not_dead_at_its_next_start(engine: Engine) -> None:
    """An ordinary restart evacuates nobody, whatever became of the group before."""
    for between in (replace(TRYING, driver=driver(ago=1.0, pid=8), run=begun(60.0)), replace(LOCAL, desired="stopped")):
        evacuator = Evacuator(engine, PlacementSettings(), _dead={"a": BROKEN})
        for at in range(0, 70, 5):
            evacuator.tick(replace(look(between, lives("b")), now=NOW + at))
        evacuator.tick(replace(look(TRYING, lives("b")), now=NOW + 70))
        assert (evacuator.alarms, list_operations(engine), evacuator._dead) == ((), [], {})


def test_how_long_games_wait_is_kept_while_nobody_can_judge(engine: Engine) -> None:
    """A controller that follows meets a try: games of a dead group wait until somebody sees that they do not."""
    keep_waiting(engine, {"a": 2}, NOW - 500)
    evacuator = Evacuator(engine, PlacementSettings())
    for at in range(0, 90, 5):
        evacuator.tick(replace(look(TRYING, lives("b"), lives("c")), now=NOW + at))
        assert waiting(engine) == {"a": (2, NOW - 500)}
    for at in range(90, 100, 5):
        evacuator.tick(replace(look(lives("a"), lives("b"), lives("c")), now=NOW + at))
    assert waiting(engine) == {}


def test_zero_minutes_is_never(engine: Engine) -> None:
    """Where nobody wants moves that no person has asked for, there are none."""
    assert Dying(engine, minutes=0.0).look(6) == []


def test_a_break_in_looking_begins_the_watch_anew(engine: Engine) -> None:
    """After an outage of the store drivers get a minute to beat again before one of them is taken for dead."""
    world = Dying(engine)
    world.look(3)
    world.fleet.clock.now += 600.0
    assert world.look(3) == []
    assert len(world.look()) == 1


@pytest.mark.proves("D9")
def test_a_clock_that_was_set_back_delays_an_evacuation_by_its_own_minutes_only(engine: Engine) -> None:
    """D9: a group that last lived an hour ahead of the store's clock has lived when the watch began, not in an hour."""
    ahead = replace(LOCAL, lived=NOW + 3600)
    evacuator = Evacuator(engine, PlacementSettings(), _watched_since=NOW + 3000, _looked_at=NOW + 3600)
    died = {}
    for at in range(0, 700, 20):
        evacuator.tick(replace(look(ahead, lives("b"), lives("c")), now=NOW + at))
        died[at] = "a" in evacuator._dead
    assert [at for at, is_dead in died.items() if is_dead] == list(range(600, 700, 20))


def test_a_game_of_another_operation_waits_and_the_others_go(engine: Engine) -> None:
    """What somebody else asks for comes first, for its own games; they follow when it has ended."""
    world = Dying(engine)
    mine = {f"game:{each.game_key}" for each in assigned(engine, "a")}
    theirs = submit(engine, Intent("pause", (min(mine),), "ann"))
    first = next(each for each in world.look(4) if each.kind == "move")
    assert set(first.targets) == mine - {min(mine)}
    assert f"wait for another operation: {min(mine)[5:]} for {theirs.operation_id[:8]}" in world.evacuator.alarms[0]
    change(engine, theirs, OperationState.FAILED, "ended")
    second = next(each for each in world.look() if each.targets == (min(mine),))
    assert (second.kind, second.actor) == ("move", CONTROLLER)


def waiting(engine: Engine) -> dict[str, tuple[int, float]]:
    with engine.connect() as connection:
        return waiting_in(connection)


def test_games_that_cannot_go_are_kept_with_the_time_since_when(engine: Engine) -> None:
    """How many wait stands in the store, since the first look that saw it, also for a controller that follows."""
    world = Dying(engine)
    mine = sorted(f"game:{each.game_key}" for each in assigned(engine, "a"))
    first, second = (submit(engine, Intent("pause", (each,), "ann")) for each in mine[:2])
    world.look(3)
    assert waiting(engine) == {}, "nobody was judged yet"
    world.look()
    since = world.fleet.clock.now
    assert waiting(engine) == {"a": (2, since)}
    change(engine, first, OperationState.FAILED, "ended")
    world.look()
    assert waiting(engine) == {"a": (1, since)}, "that one goes now"
    world.evacuator = Evacuator(engine, PlacementSettings())
    world.look(3)
    assert waiting(engine) == {"a": (1, since)}, "a new controller that does not judge yet forgets nothing"
    world.look(1, failure="9 of 10 groups died")
    assert waiting(engine) == {"a": (1, since)}, "nor does one that stands still in a mass failure"
    change(engine, second, OperationState.FAILED, "ended")
    world.look()
    assert waiting(engine) == {}


def test_games_still_wait_while_more_groups_die(engine: Engine) -> None:
    """Where most groups are down nobody is judged; that is said, and it is not taken for nobody waiting."""
    world = Dying(engine)
    mine = sorted(f"game:{each.game_key}" for each in assigned(engine, "a"))
    submit(engine, Intent("pause", (mine[0],), "ann"))
    world.look(4)
    since = world.fleet.clock.now
    world.living = "c"
    world.fleet.leases["b"].release()
    world.heard_of("b", since - 700)
    world.look()
    assert waiting(engine) == {"a": (1, since)}
    assert world.evacuator.alarms == (), "the controller's alarm is that of the failure"


def test_games_whose_move_is_refused_at_the_last_moment_wait(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the request another operation may take a game: all of that move wait for the next look."""
    world = Dying(engine)
    mine = {each.game_key for each in assigned(engine, "a")}

    def refuse(*_arguments: object) -> Operation:
        raise Refused("1 of 3 targets belong to another operation now")

    monkeypatch.setattr(evacuation, "submit", refuse)
    world.look(4)
    assert waiting(engine) == {"a": (len(mine), world.fleet.clock.now)}


@pytest.mark.parametrize("minutes", [10.0, 0.0])
def test_a_group_that_lives_again_or_is_never_evacuated_has_no_games_that_wait(engine: Engine, minutes: float) -> None:
    """Once its driver is back its games go nowhere and need not; where evacuation is turned off nobody waits for it."""
    keep_waiting(engine, {"a": 2}, NOW)
    world = Dying(engine, minutes)
    if minutes:
        world.fleet.leases["a"].acquire()
    world.look()
    assert waiting(engine) == {}


def test_the_controller_looks_after_dead_groups(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says what keeps games in a dead group, and asks for their move as soon as there is room."""
    monkeypatch.setattr(evacuation, "_WATCHED_SECONDS", 0.0)
    for name in "ab":
        register_group(engine, name, placing())
        start_driver(engine, "group", name, None)
        heartbeat(engine, "group", name, "running", None)
    record_seen(engine, {"g1": "One", "g2": "Two"}, 9, placing())
    with engine.begin() as connection:
        connection.execute(update(drivers_table).where(drivers_table.c.name == "a").values(heartbeat_at=1.0))
        connection.execute(update(groups_table).where(groups_table.c.name == "b").values(capacity_cores=1e-6))
    once = threading.Event()
    once.set()

    assert run(*load(tmp_path, NO_MAINTENANCE), once) == 0
    alarms = [each for each in caplog.messages if each.startswith("group a is dead")]
    assert "1 of its 1 games fit nowhere and stay: g1" in alarms[0]
    assert list_operations(engine) == []
    with engine.begin() as connection:
        connection.execute(update(groups_table).values(capacity_cores=None))
    assert run(*load(tmp_path, NO_MAINTENANCE), once) == 0
    assert [(each.kind, each.actor) for each in list_operations(engine)] == [("move", CONTROLLER)]


def test_when_a_group_last_lived(engine: Engine) -> None:
    """It is the end of its last process that lived long or ended as asked, else when its first one began."""
    create(engine, Group("a", "local"), "ann", "", placing())

    def run(begun: float, ended: float) -> None:
        run_id = begin_run(engine, "a")
        assert run_id is not None
        end_run(engine, run_id, "exit code 3", died=True)
        mine = update(group_runs).where(group_runs.c.run_id == run_id)
        with engine.begin() as connection:
            connection.execute(mine.values(started_at=begun, ended_at=ended))

    def lived() -> float | None:
        return read_drivers(engine).lived.get(("group", "a"))

    assert lived() is None
    run(10.0, 20.0)
    assert lived() == 10.0
    run(100.0, 220.0)
    run(300.0, 310.0)
    assert lived() == 220.0
    reset_restart_budget(engine, "a")
    assert lived() == 310.0, "a person has looked after it: the time begins anew"
