"""Moves: planned from what is there, done step by step, and done only when their effect was seen."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from sqlalchemy import update

from listeners.sample import Lane
from pipeline.base.errors import Refused
from pipeline.control.controller import KINDS
from pipeline.control.operations import executor as engine_module
from pipeline.control.operations import moves, pauses
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import close, require_undoable, resume, tick
from pipeline.control.proposals import undo
from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.placement.capacity import GroupLoad, Load, tallied
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit, stream_control
from pipeline.store.assignments import read_assignments
from pipeline.store.database.tables import games, operations
from pipeline.store.operations import Operation, hash_of, operation, steps, submit
from pipeline.store.processes.leases import store_time
from tests.unit.control.operations.move_world import ALIVE, NOW, Drivers, drivers, others, planned, state, submitted
from tests.unit.store.leases_world import SECONDS

__all__ = ["drivers"]  # a fixture


@pytest.fixture
def world(drivers: Drivers, tmp_path: Path) -> ControlContext:
    return ControlContext(Settings(), drivers.store, Paths(tmp_path))


def names(drivers: Drivers, begun: Operation) -> list[tuple[str, str]]:
    return [(each.name, each.state) for each in steps(drivers.store, begun.operation_id)]


def test_what_cannot_be_moved_is_refused_with_the_way_out(drivers: Drivers) -> None:
    """An unknown game or group, or a group without a driver, is one sentence, and nothing is asked for."""
    for wanted, sentence in (
        ({"chess": "b"}, "No such game: chess"),
        ({"g1": "z"}, "no cluster group 'z'. Groups: a, b, c"),
    ):
        with pytest.raises(Refused, match=sentence):
            planned(drivers, wanted)
    for judged in (
        Liveness("not_started", None, "was never started"),
        Liveness("stopped", NOW, "is stopped"),
        Liveness("failed", NOW, "has failed"),
        Liveness("dead", NOW, "ended 1 s ago: killed by SIGKILL"),
        Liveness("unknown", NOW, "is silent for 60 s"),
    ):
        groups = {**ALIVE, "b": GroupCondition("b", judged)}
        with pytest.raises(Refused, match=rf"Group b cannot take games: its driver {judged.reason}. Start it"):
            moves.plan({"g1": "b"}, read_assignments(drivers.store), groups)


@pytest.mark.proves("G98")
def test_a_move_is_done_when_it_was_seen_and_then_there_is_nothing_to_plan(
    drivers: Drivers, world: ControlContext
) -> None:
    """Request sent is not done: each step waits for its effect, and a second plan is empty."""
    source, (target, _) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    tick(world, KINDS)
    assert drivers.group_of("g1") == target
    assert names(drivers, begun) == [("assign", "done"), ("release", "running")]
    drivers.boundary(target)
    tick(world, KINDS)
    assert names(drivers, begun)[-1] == ("release", "running"), "the old driver has not let go"
    drivers.boundary(source)
    tick(world, KINDS)
    assert names(drivers, begun)[-1] == ("acquire", "running")
    drivers.boundary(target, reported=False)
    tick(world, KINDS)
    assert (names(drivers, begun)[-1], state(drivers, begun)) == (("verify", "running"), "verifying")
    drivers.boundary(target, Lane.CATCHUP)
    tick(world, KINDS)
    assert state(drivers, begun) == "verifying"
    assert steps(drivers.store, begun.operation_id)[-1].detail == (
        "1 not caught up yet, 6 seqs in all: g1. No estimate: a lag is unknown."
    )
    drivers.boundary(target)
    assert tick(world, KINDS) == 0
    done = operation(drivers.store, begun.operation_id)
    assert (done.state, done.outcome) == ("succeeded", f"Moved and seen: 1 in {target}.")
    assert planned(drivers, {"g1": target}).moves == ()
    assert [(each.phase, each.outcome) for each in audit.entries(drivers.store)] == [
        ("begun", None),
        ("ended", "succeeded"),
    ]


@pytest.mark.proves("G278")
def test_a_game_that_waits_for_its_registry_has_moved(drivers: Drivers, world: ControlContext) -> None:
    """A move is done once the new driver holds the game and knows what its rows lack; its outcome names that."""
    source, (target, _) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    for name in (source, target, source, target):
        tick(world, KINDS)
        drivers.boundary(name, reported=False)
    drivers.boundary(target, Lane.CATCHUP)
    tick(world, KINDS)
    assert state(drivers, begun) == "verifying", "its driver knows nothing yet"
    drivers.boundary(target, Lane.CATCHUP, waits="waits for schema 7 of registry main")
    tick(world, KINDS)
    done = operation(drivers.store, begun.operation_id)
    assert (done.state, done.outcome) == (
        "succeeded",
        f"Moved and seen: 1 in {target}. Rows wait: g1 waits for schema 7 of registry main.",
    )


def test_a_waiting_move_tells_how_long_it_still_takes(drivers: Drivers, world: ControlContext) -> None:
    """The time left comes from a lag that was seen to fall in its new group; without that there is no estimate."""
    source, (target, _) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    for name in (source, target, source, target):
        tick(world, KINDS)
        drivers.boundary(name, reported=False)
    said = []
    for lag in (300.0, 320.0, 320.0, 280.0, 40.0):
        drivers.boundary(target, Lane.CATCHUP, lag=lag)
        tick(world, KINDS)
        said.append(steps(drivers.store, begun.operation_id)[-1].detail.partition("g1. ")[2])
    assert said[:3] == ["No estimate: the lag was not seen to fall."] * 3
    assert said[3:] == [f"About {seconds} s are left, as fast as the lag falls." for seconds in (7, 0)]
    drivers.boundary(target)
    tick(world, KINDS)
    assert (state(drivers, begun), world.seen) == ("succeeded", {})


@pytest.mark.proves("G112")
def test_a_move_is_refused_where_there_is_no_room_for_it(drivers: Drivers) -> None:
    """A group that is not to run, or that the games would fill over its capacity, is refused with the way out."""
    there = read_assignments(drivers.store)
    target = others(drivers, "g1")[0]
    for desired in ("drained", "stopped"):
        groups = {**ALIVE, target: GroupCondition(target, Liveness("running", 0.0, None), desired)}
        with pytest.raises(Refused, match=f"Group {target} takes no games: it is {desired}. Set it running"):
            moves.plan({"g1": target}, there, groups)
    games = [(key, assignment.group, Load(1e4, 0.0, 1.0, 9.0)) for key, assignment in there.items()]
    rooms = [GroupLoad(name, "running", True, None, 0.3 if name == target else 2.0) for name in "abc"]
    loads = tallied(games, rooms)
    most = max(set("abc") - {target})
    with pytest.raises(Refused, match=(
        rf"Group {target} has no room for 1 more: they take about 0.13 cores, and it has about 0.26 of 0.3 cores, "
        rf"2 games; most room: {most}, 1.7 cores. Take another group, or fewer games."
    )):  # fmt: skip
        moves.plan({"g1": target}, there, ALIVE, loads)
    with pytest.raises(Refused, match=r"and placement.max_games_per_group is 2; no other group"):
        moves.plan({"g1": target}, there, ALIVE, tallied(games, [GroupLoad(target, alive=True)], 2))
    mine = next(key for key, assignment in there.items() if assignment.group == target)
    swap = moves.plan({"g1": target, mine: most}, there, ALIVE, loads)
    assert len(swap.moves) == 2, "what leaves makes room for what comes"
    lines = moves.render_preview(swap, there, loads, 5.0)
    assert f"g1: {there['g1'].group} → {target}, cursor 9 of 9, caught up after about 20 s" in lines
    assert f"{target}: about 0.26 of 0.3 cores, 2 games → about 0.26 of 0.3 cores, 2 games" in lines
    assert swap.facts.keys() == {"g1", mine}, "loads change every second: they are shown, and not what was agreed on"
    retired = {**there, "g1": replace(there["g1"], retired_at=1.0)}
    with pytest.raises(Refused, match="g1 is retired: no group carries a game until it is restored"):
        moves.plan({"g1": target}, retired, ALIVE)


@pytest.mark.proves("D17", "G99")
def test_what_has_changed_since_it_was_shown_is_not_done(drivers: Drivers, world: ControlContext) -> None:
    """D17: of two people who move one game, the one with a stale preview is told so, and nothing of theirs is done."""
    target, other = others(drivers, "g1")
    begun = submitted(drivers, {"g1": target, "g2": target} if drivers.group_of("g2") != target else {"g1": target})
    with drivers.store.begin() as connection:
        connection.execute(update(games).where(games.c.game_key == "g1").values(group_name=other, epoch=7))
    tick(world, KINDS)
    ended = operation(drivers.store, begun.operation_id)
    assert ended.state == "failed"
    assert "changed since you looked" in str(ended.outcome)
    assert drivers.group_of("g1") == other


def test_all_of_a_set_move_or_none(drivers: Drivers, world: ControlContext) -> None:
    """A game that somebody else moves between preview and act keeps the whole set where it is."""
    wanted = {key: others(drivers, key)[0] for key in ("g1", "g2", "g3")}
    before = {key: drivers.group_of(key) for key in wanted}
    begun = submitted(drivers, wanted)
    real = moves._facts

    def late(*arguments: object) -> object:
        facts = real(*arguments)  # type: ignore[arg-type]
        with drivers.store.begin() as connection:
            connection.execute(update(games).where(games.c.game_key == "g3").values(group_name="c", epoch=9))
        return facts

    kind = replace(moves.MOVE, facts=late)  # type: ignore[arg-type]
    tick(world, {"move": kind})
    assert state(drivers, begun) == "failed"
    assert {key: drivers.group_of(key) for key in ("g1", "g2")} == {key: before[key] for key in ("g1", "g2")}
    assert drivers.group_of("g3") == "c"


@pytest.mark.parametrize("lives", range(1, 9))
@pytest.mark.proves("D1", "D2", "D3", "D4", "D5", "G99")
def test_a_controller_killed_anywhere_is_carried_on(drivers: Drivers, world: ControlContext, lives: int) -> None:
    """D1 to D5: whatever was the last thing a controller wrote, the next one ends the operation, each step once."""
    source, (target, _) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    left = lives

    def dies(real: object) -> object:
        def call(*arguments: object, **more: object) -> object:
            nonlocal left
            done = real(*arguments, **more)  # type: ignore[operator]
            left -= 1
            if left == 0:
                raise KeyboardInterrupt  # as a kill: nothing catches it
            return done

        return call

    written = {name: dies(getattr(engine_module, name)) for name in ("change", "begin_step", "end_step")}
    for _ in range(8):
        try:
            with patch.multiple(engine_module, **written):  # type: ignore[call-overload]
                tick(world, KINDS)
        except KeyboardInterrupt:
            continue
        drivers.boundary(source)
        drivers.boundary(target)
    assert left <= 0
    assert state(drivers, begun) == "succeeded"
    assert names(drivers, begun) == [(name, "done") for name in ("assign", "release", "acquire", "verify")]
    assert read_assignments(drivers.store)["g1"].epoch == 2
    assert audit.verify(drivers.store).unended == ()


@pytest.mark.proves("D7", "G99")
def test_two_controllers_do_no_harm(drivers: Drivers, world: ControlContext) -> None:
    """D7: two controllers at once end each operation once, and no game is assigned twice."""
    wanted = {f"g{number}": others(drivers, f"g{number}")[0] for number in range(1, 7)}
    begun = [submitted(drivers, {key: group}) for key, group in wanted.items()]
    for _ in range(6):
        together = threading.Barrier(2)

        def act(_number: int, together: threading.Barrier = together) -> None:
            together.wait()
            tick(world, KINDS)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(act, range(2)))
        for name in "abc":
            drivers.boundary(name)
    assert {state(drivers, each) for each in begun} == {"succeeded"}
    assert {assignment.epoch for assignment in read_assignments(drivers.store).values()} == {2}
    assert audit.verify(drivers.store).entries == 2 * len(begun)


@pytest.mark.proves("D10")
def test_a_driver_that_does_not_let_go_is_a_persons_to_judge(drivers: Drivers, world: ControlContext) -> None:
    """D10: an old driver that lives and is stuck in a pass keeps its game; the operation says so and what to do."""
    source, (target, _) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    tick(world, KINDS)
    for _ in range(5):
        drivers.clock.now += SECONDS
        for name in "abc":
            drivers.leases[name].renew()
        tick(world, KINDS)
    stuck = operation(drivers.store, begun.operation_id)
    assert stuck.state == "needs_human"
    assert f"Group {source} still holds 1: g1" in str(stuck.outcome)
    assert "restart it if it is stuck" in str(stuck.outcome)
    tick(world, KINDS)
    assert state(drivers, begun) == "needs_human", "nobody goes on without a person"
    drivers.boundary(source)
    drivers.boundary(target)
    resume(drivers.store, stuck, "bob", "b was restarted")
    drivers.boundary(target)
    tick(world, KINDS)
    assert state(drivers, begun) == "succeeded"
    assert names(drivers, begun)[1:3] == [("release", "failed"), ("release", "done")]
    with pytest.raises(Refused, match="does not wait for a person: it is succeeded"):
        close(drivers.store, operation(drivers.store, begun.operation_id), "bob", "x")


def test_a_dead_drivers_game_is_taken_when_its_lease_has_run_out(drivers: Drivers, world: ControlContext) -> None:
    """A game whose old driver is gone waits for that one's lease and no longer."""
    source, (target, _) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    tick(world, KINDS)
    drivers.clock.now += SECONDS + 1
    drivers.boundary(target)
    assert drivers.held[source]
    drivers.boundary(target)
    tick(world, KINDS)
    assert state(drivers, begun) == "succeeded"


def test_a_move_is_undone_by_its_checked_inverse(drivers: Drivers, world: ControlContext) -> None:
    """Undo is an operation like any other, for a day, and not where somebody has moved the game on."""
    source, (target, other) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    with pytest.raises(Refused, match="only one that has ended"):
        require_undoable(drivers.store, begun)
    for _ in range(4):
        tick(world, KINDS)
        for name in "abc":
            drivers.boundary(name)
    done = operation(drivers.store, begun.operation_id)
    require_undoable(drivers.store, done)
    back = moves.undo(done, read_assignments(drivers.store), ALIVE)
    assert [(each.game_key, each.source, each.target) for each in back.moves] == [("g1", target, source)]
    undone = submit(drivers.store, back.intent("bob", "", undoes=done.operation_id))
    for _ in range(4):
        tick(world, KINDS)
        for name in "abc":
            drivers.boundary(name)
    assert (state(drivers, undone), drivers.group_of("g1")) == ("succeeded", source)
    with pytest.raises(Refused, match="g1 was moved on since"):
        moves.undo(done, read_assignments(drivers.store), ALIVE)
    drivers.clock.now += 25 * 3600
    with pytest.raises(Refused, match=r"ended 25 hours ago"):
        require_undoable(drivers.store, done)
    assert other not in {source, target}
    assert store_time(drivers.store) == pytest.approx(drivers.clock.now, abs=0.01)


@pytest.mark.proves("D18")
def test_an_operation_that_makes_no_sense_stands_still_and_the_others_go_on(
    drivers: Drivers, world: ControlContext
) -> None:
    """D18: what cannot be done needs a person; the controller lives, and everybody else's games move."""
    spoilt = {key: submitted(drivers, {key: others(drivers, key)[0]}) for key in ("g2", "g3")}
    well = submitted(drivers, {"g4": others(drivers, "g4")[0]})
    columns: dict[str, dict[str, object]] = {
        "g2": {"preview": '{"g2": 5}', "preview_hash": hash_of({"g2": 5}), "state": "running"},
        "g3": {"preview": '{"g3": ["a", "b", 1], "g1": ["a", "b", 1]}'},
    }
    for key, values in columns.items():
        mine = operations.c.operation_id == spoilt[key].operation_id
        with drivers.store.begin() as connection:
            connection.execute(update(operations).where(mine).values(values))
    for _ in range(4):
        tick(world, KINDS)
        for name in "abc":
            drivers.boundary(name)
    assert state(drivers, well) == "succeeded"
    for key, begun in spoilt.items():
        found = operation(drivers.store, begun.operation_id)
        assert found.state == "needs_human", key
        said = "It cannot go on: TypeError" if key == "g2" else "Its preview was edited"
        assert said in str(found.outcome)
        assert read_assignments(drivers.store)[key].epoch == 1


@pytest.mark.parametrize(("kind", "lane"), [("pause", "PAUSED"), ("resume", "RUN"), ("retry", "RUN")])
def test_a_decision_is_done_when_its_driver_tells_of_it(
    drivers: Drivers, world: ControlContext, kind: str, lane: Lane
) -> None:
    """A pause that no driver has heard of is not said to be one; what would change nothing is left out."""
    if kind == "resume":
        stream_control.submit_control(drivers.store, "g1", "ann", desired="paused")
    if kind == "retry":
        stream_control.record_failures(
            drivers.store, {"g1": stream_control.StreamControl(parked_at=1.0, failures=3, evidence="x")}
        )
    left = {"pause": ["g2"], "resume": ["g1"], "retry": ["g1"]}[kind]
    if kind == "pause":
        stream_control.submit_control(drivers.store, "g1", "ann", desired="paused")
    facts = pauses.plan(kind, ["g1", "g2"], read_assignments(drivers.store), stream_control.decided(drivers.store))
    assert list(facts) == left
    begun = submit(drivers.store, pauses.intent(kind, facts, "bob", ""))
    tick(world, KINDS)
    assert (names(drivers, begun), state(drivers, begun)) == ([("decide", "done"), ("verify", "running")], "verifying")
    made = stream_control.decided(drivers.store)[left[0]]
    assert (made.desired, made.parked_at) == ("paused" if kind == "pause" else "running", None)
    for name in "abc":
        drivers.boundary(name, {"pause": "RUN", "resume": "PAUSED", "retry": "QUARANTINED"}[kind])  # type: ignore[arg-type]
    tick(world, KINDS)
    assert state(drivers, begun) == "verifying"
    for name in "abc":
        drivers.boundary(name, lane)
    tick(world, KINDS)
    assert state(drivers, begun) == "succeeded"
    assert pauses.plan(kind, left, read_assignments(drivers.store), stream_control.decided(drivers.store)) == {}


def test_a_pause_is_undone_by_a_resume(drivers: Drivers, world: ControlContext) -> None:
    """The inverse is asked for like any other operation; a retry has none."""
    facts = pauses.plan("pause", ["g1"], read_assignments(drivers.store), {})
    begun = submit(drivers.store, pauses.intent("pause", facts, "ann", ""))
    for _ in range(2):
        tick(world, KINDS)
        for name in "abc":
            drivers.boundary(name, Lane.PAUSED)
    done = operation(drivers.store, begun.operation_id)
    proposal = undo(Settings(), drivers.store, done, "bob", "enough", NOW)
    intent, lines = proposal.intent, proposal.lines
    assert (intent.kind, intent.targets, intent.undoes) == ("resume", ("game:g1",), done.operation_id)
    assert lines[-1] == "1 to resume. No other stream is touched."
    stream_control.record_failures(drivers.store, {"g1": stream_control.StreamControl(failures=1)})
    facts = pauses.plan("retry", ["g1"], read_assignments(drivers.store), stream_control.decided(drivers.store))
    retried = submit(drivers.store, pauses.intent("retry", facts, "ann", ""))
    with pytest.raises(Refused, match="is a retry, which has no inverse"):
        require_undoable(drivers.store, retried)
