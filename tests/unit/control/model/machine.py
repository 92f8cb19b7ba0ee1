"""Steering as a state machine: what people ask, break and kill, in any order, over one fleet.

There is one rule, and what happens is drawn within it: so each sequence has all of it, as often as `_HAPPENS` says.
"""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from sqlalchemy import text, update
from sqlalchemy.exc import OperationalError

from pipeline.base.errors import Refused
from pipeline.control.controller import KINDS
from pipeline.control.operations import groups, moves, pauses, retirement
from pipeline.control.operations.executor import advance, cancel, close, resume
from pipeline.control.proposals import undo
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.health.facts.loads import read_loads
from pipeline.settings.tree import Settings
from pipeline.store import assignments, stream_control
from pipeline.store.database.states import OPEN
from pipeline.store.database.tables import games
from pipeline.store.database.tables import operations as operations_table
from pipeline.store.groups import change, read_groups
from pipeline.store.operations import Intent, Operation, OperationConflict, list_operations, submit
from tests.unit.control.model.hands import NONSENSE, WRONG
from tests.unit.control.model.rest import Resting
from tests.unit.control.model.world import GAMES, GROUPS, Fate
from tests.unit.store.leases_world import SECONDS

STEPS: Final = 50  # of one sequence
_MAX_STATEMENTS: Final = 25  # transactions of a tick before which it may be hit
_WRITES: Final = ("INSERT INTO operation_steps",) * 2 + ("UPDATE operation_steps", "UPDATE operations", "UPDATE games")

_ASKED: Final = (  # the next one that is possible, from where it was drawn
    *("move", "move", "pause", "resume", "move", "pause", "resume", "undo", "retry", "move", "retire", "restore"),
    *("drain", "move", "stop", "start", "restart", "start", "pause", "resume"),
)
_HAPPENS: Final = (
    *("go on",) * 5,
    *("submit",) * 4,
    *("a controller stands still",) * 4,
    *("a controller dies",) * 2,
    *("a driver stands still", "a driver dies", "a driver ends", "a second driver", "a driver is cut off"),
    *(
        "a while",
        "too long",
        "a stale controller",
        "a stale controller",
        "an edit",
        "a word",
        "a cancel",
        "a hand",
        "a hand",
        "no store",
    ),
)
_MEANWHILE: Final = (
    "come to rest",
    "come to rest",
    "opposites",
    "opposites",
    "go on",
    "an edit",
    "a group is set",
    "a cancel",
    "give up",
    "too long",
)
T = TypeVar("T")


class Steering(Resting, RuleBasedStateMachine):
    """People, controllers, drivers and accidents over one store."""

    def __init__(self) -> None:
        super().__init__()
        self.drawer: list[Intent] = []  # what was asked for, and may be again
        self.old: list[Operation] = []  # as a controller has once read them
        self.data: st.DataObject

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Drivers are in the middle of a pass over all games, and something is asked for."""
        self.data = data
        for driver in self.fleet.drivers.values():
            driver.act(boundary=True)
        self.submit()
        self.submit()

    @rule(data=st.data(), what=st.sampled_from(_HAPPENS))
    def happens(self, data: st.DataObject, what: str) -> None:
        self.data = data
        self.do(what)

    def do(self, what: str) -> None:
        name = what.removeprefix("a ").removeprefix("an ").replace(" ", "_")
        getattr(self, name if name != "while" else "while_")()
        self.the_laws_hold()

    def draw(self, *values: T) -> T:
        return self.data.draw(st.sampled_from(values))

    # ---------------------------------------------------------------------------------------------- the world goes on

    def go_on(self) -> None:
        """Drivers pass, a controller looks and drivers are supervised; one driver may stay within its pass."""
        self.round(self.draw(None, None, *GROUPS), backwards=self.draw(False, True))

    def come_to_rest(self) -> None:
        for backwards in (False, True):
            self.round(None, backwards=backwards)

    def while_(self) -> None:
        self.pass_time(self.draw(1, 10, 29, 31))

    def too_long(self) -> None:
        self.pass_time(self.draw(130, 310))

    # --------------------------------------------------------------------------------------------------------- people

    def submit(self) -> None:
        """Somebody whose clock may be wrong asks for something; the command may be killed."""
        first = self.draw(*range(len(_ASKED)))
        for kind in (*_ASKED[first:], *_ASKED[:first], "move"):
            try:
                intent = self._intent(kind)
            except Refused:
                continue
            if intent is not None:
                self._submit(intent, self.draw(*(None,) * 7, self.draw(*range(10))))
                return

    def opposites(self) -> None:
        """What is under way comes to its end, then people want the opposite of it, which is done too."""
        self.come_to_rest()
        for key, assignment in self._carried().items():
            paused = self.seen.decisions.get(key) == "paused"
            facts = pauses.plan("resume" if paused else "pause", [key], {key: assignment}, self._decided())
            if facts:
                self._submit(pauses.intent("resume" if paused else "pause", facts, "eve", ""))
        self.come_to_rest()

    def _intent(self, kind: str) -> Intent | None:
        there = assignments.read_assignments(self.engine)
        busy = {target.removeprefix("game:").removeprefix("group:") for target in self.seen.taken}
        keys = {self.draw(*GAMES), self.draw(*GAMES)}
        keys = keys - busy or set(GAMES) - busy or keys
        group = self.draw(*(sorted(set(GROUPS) - busy) or GROUPS))
        now = time.time() + self.draw(0, 0, 0, 0, 600, -600)
        if kind == "move":
            drivers = read_group_liveness(self.engine, now=now)
            plan = moves.plan(dict.fromkeys(keys, group), there, drivers)
            return plan.intent("ann", "because") if plan.moves else None
        if kind == "drain":
            loads = read_loads(self.engine, now)
            drivers = read_group_liveness(self.engine, now=now)
            return moves.drain(group, there, drivers, loads).intent("ann", "because")
        if kind == "undo":
            done = [each for each in list_operations(self.engine) if each.state in {"succeeded", "cancelled"}]
            intent = undo(Settings(), self.engine, self.draw(*done[:3]), "cid", "", now).intent if done else None
            return intent if intent is not None and intent.targets else None  # else it is undone already
        if kind in {"start", "stop", "restart"}:
            facts = groups.plan(kind, [group] if kind != "start" else GROUPS, read_groups(self.engine))
            return groups.intent(kind, facts, "dan", "") if facts else None
        if kind in {"retire", "restore"}:
            facts = retirement.plan(kind, sorted(keys) if kind == "retire" else GAMES, there)
            return retirement.intent(kind, facts, "dan", "") if facts else None
        facts = pauses.plan(kind, sorted(keys & self._carried().keys()), there, self._decided())
        return pauses.intent(kind, facts, "bob", "") if facts else None

    def _carried(self) -> dict[str, assignments.GameAssignment]:
        return {
            key: assignment
            for key, assignment in assignments.read_assignments(self.engine).items()
            if assignment.retired_at is None
        }

    def _decided(self) -> dict[str, stream_control.StreamControl]:
        return stream_control.decided(self.engine)

    def _submit(self, intent: Intent, cut: int | None = None) -> None:
        self.drawer.append(intent)

        def command() -> None:
            try:
                submit(self.engine, intent)
            except Refused:
                pass
            except OperationalError:
                assert self.fleet.locked, "the store was there"

        self.fleet.run(command, Fate(statements=cut))
        self.the_laws_hold()

    def word(self) -> None:
        """A person lets an operation go on that waits for one, or ends it."""
        waiting = [each for each in list_operations(self.engine) if each.state == "needs_human"]
        if not waiting or self.fleet.locked:
            if self.drawer:  # the second click on one button; the preview may be old by now
                self._submit(self.draw(*self.drawer[-4:]))
            return
        chosen = self.draw(*waiting)
        if chosen.operation_id in self.frozen or self.draw(False, True):
            assert close(self.engine, chosen, "ann", "looked after").state == "failed"
            self.frozen.pop(chosen.operation_id, None)
        else:
            resume(self.engine, chosen, "ann")

    def cancel(self) -> None:
        """A person ends an operation before it is done; one that nobody has begun is always ended."""
        there = [each for each in list_operations(self.engine, only_open=True) if each.state != "needs_human"]
        if not there or self.fleet.locked:
            return
        chosen = self.draw(*there)
        ended = False
        with contextlib.suppress(Refused):
            ended = cancel(self.engine, chosen, "ann", "not needed").state == "cancelled"
        assert ended or chosen.state != "planned"

    def give_up(self) -> None:
        """All that is under way waits too long, and is ended by a person."""
        self.fleet.tick()
        self.pass_time(310)
        self.fleet.tick()
        self.the_laws_hold()
        for each in list_operations(self.engine, only_open=True):
            if each.state == "needs_human":
                close(self.engine, each, "ann", "looked after")
                self.frozen.pop(each.operation_id, None)
        self.the_laws_hold()

    # ------------------------------------------------------------------------------------------------------ accidents

    def controller_dies(self) -> None:
        """It is killed before a statement, or between two transactions."""
        if self.draw(False, True):
            self.submit()
        if self.draw(False, True, True):
            self.fleet.tick(self._moment(None))
        else:
            self.fleet.tick(Fate(statements=self.draw(*range(2 * _MAX_STATEMENTS))))

    def controller_stands_still(self) -> None:
        """It stands still between two transactions; others, another controller too, go on meanwhile."""
        if self.draw(False, True, True):
            self.submit()
        self.fleet.tick(self._moment(self._meanwhile))

    def _moment(self, meanwhile: Callable[[], None] | None) -> Fate:
        """Between two transactions: mostly after one that begins a step, acts, or notes what was done."""
        after = self.draw(None, *_WRITES)
        if after is None:
            return Fate(None, self.draw(*range(_MAX_STATEMENTS)), meanwhile)
        return Fate(None, None, meanwhile, (after, self.draw(0, 0, 1, 2)))

    def _meanwhile(self) -> None:
        self.the_laws_hold()
        for _ in range(self.draw(1, 1, 2)):
            self.do(self.draw(*_MEANWHILE))

    def stale_controller(self) -> None:
        """A controller acts on what it has read long ago, as if it had stood still since; or it reads now."""
        acts = self.draw(False, True, True)
        if acts:
            for each in self.old:
                if each.operation_id not in self.spoilt and each.state != "needs_human":
                    self.fleet.run(partial(self._advance, each))
                    self.the_laws_hold()
        self.old = list_operations(self.engine, only_open=True)

    def _advance(self, operation: Operation) -> None:
        with contextlib.suppress(OperationConflict):
            advance(self.fleet.world, KINDS[operation.kind], operation)

    def driver_stands_still(self) -> None:
        self._any_driver().act(boundary=self.draw(False, True), fate=Fate(None, self.draw(*range(10)), self._meanwhile))

    def driver_dies(self) -> None:
        fate = Fate(statements=self.draw(*range(_MAX_STATEMENTS)))
        self._any_driver().act(boundary=self.draw(False, True), fate=fate)

    def driver_ends(self) -> None:
        driver = self._any_driver()
        if not driver.busy:
            self.draw(driver.crash, driver.stop)()

    def second_driver(self) -> None:
        """Somebody starts a second process of a group, which drives it where the first one has lost its lease."""
        name = self.draw(*GROUPS)
        if self.fleet.drivers[name].cut_off:
            self.pass_time(SECONDS + 1)
        self.fleet.others[name].start()

    def driver_is_cut_off(self) -> None:
        """It does not reach the store for a while; its clock may jump meanwhile."""
        driver = self._any_driver()
        driver.cut_off = not driver.cut_off
        driver.wall = self.draw(0.0, 0.0, -600.0, 600.0)

    def _any_driver(self) -> Any:
        return self.draw(*self.fleet.processes)

    def no_store(self) -> None:
        """Somebody holds the store for a round."""
        self.fleet.lock()
        self.go_on()
        self.fleet.unlock()

    # ---------------------------------------------------------------------------------------------------------- hands

    def edit(self) -> None:
        """Somebody assigns a game by hand, best one that is on its way."""
        key = self.draw(*(sorted({each.removeprefix("game:") for each in self.seen.taken} & set(GAMES)) or GAMES))
        if self.fleet.locked or self.snapshot().places[key].retired_at is not None:
            return
        with self.engine.begin() as connection:
            mine = update(games).where(games.c.game_key == key)
            connection.execute(mine.values(group_name=self.draw(*GROUPS), epoch=games.c.epoch + 1))
        self.edits[key] += 1

    def group_is_set(self) -> None:
        """A command changes at once what is wanted of a group, best of one that an operation is about."""
        busy = {each.removeprefix("group:") for each in self.seen.taken} & set(GROUPS)
        name, desired = self.draw(*(sorted(busy) or GROUPS)), self.draw("running", "drained", "stopped", "running")
        if not self.fleet.locked:
            seen = read_groups(self.engine)[name]
            change(self.engine, seen, replace(seen, desired=desired), "eve", "")

    def hand(self) -> None:
        """A stream has used up its attempts; or somebody writes into an open operation, sometimes nonsense."""
        rows = [row for row in self.seen.rows.values() if row.state in OPEN and row.operation_id not in self.spoilt]
        how = self.draw("park", "park", "touch", "freeze", "spoil")
        if how == "park" or not rows:
            # A driver parks after three failures, long after a retry was seen to have begun.
            retried = {each for row in rows if row.kind == "retry" for each in json.loads(row.targets)}
            parked = stream_control.StreamControl(parked_at=1.0, failures=3, evidence="x")
            if free := [game for game in GAMES if f"game:{game}" not in retried]:
                stream_control.record_failures(self.engine, {self.draw(*free): parked})
            return
        row = self.draw(*rows)
        if how == "touch":
            mine = operations_table.c.operation_id == row.operation_id
            with self.engine.begin() as connection:
                connection.execute(update(operations_table).where(mine).values(version=operations_table.c.version + 1))
            return
        among = NONSENSE if how == "freeze" else WRONG
        values = among[self.draw(*sorted(among))]
        targets = [each.partition(":")[2] for each in json.loads(row.targets)]
        self.spoilt[row.operation_id] = [each for each in targets if each in GAMES]
        with self.engine.begin() as connection:  # as text, whatever the column's type: so writes a hand
            query = (
                f"UPDATE operations SET {', '.join(f'{name} = :{name}' for name in values)} WHERE operation_id = :key"
            )
            connection.execute(text(query), {**values, "key": row.operation_id})
        if how == "freeze":
            self.frozen[row.operation_id] = self.snapshot().rows[row.operation_id]

    # ------------------------------------------------------------------------------------------------------- the end

    def teardown(self) -> None:
        try:
            if self.sound:
                self.heal()
        finally:
            self.fleet.close()
