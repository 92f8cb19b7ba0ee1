"""Steering as a state machine: what people ask, break and kill, in any order, over one fleet."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Row, update
from sqlalchemy.exc import OperationalError

from pipeline.control import controller, moves, pauses
from pipeline.control.engine import close, resume
from pipeline.errors import Refused
from pipeline.store import decisions, seats
from pipeline.store.operations import OPEN, Operation, State, Wish, ask, listed
from pipeline.store.tables import games
from pipeline.store.tables import operations as operations_table
from tests.unit.control_laws import Laws
from tests.unit.control_world import GAMES, GROUPS, Fate
from tests.unit.leases_world import SECONDS

STEPS: Final = 50  # of one sequence
_ROUNDS: Final = 20  # within which everything comes to rest

# What a hand may write into an operation's row so that it makes no sense: it stands still until a person ends it.
_NONSENSE: Final[dict[str, Mapping[str, Any]]] = {
    "no JSON": {"parameters": "{not json"},
    "JSON without an end": {"parameters": "[" * 100_000},
    "a list for an object": {"preview": '["g1"]'},
    "targets that are no names": {"targets": '[{"game": "g1"}]'},
    "a state that is none": {"state": "bogus"},
    "a plan nobody was shown": {"preview": '{"g4": ["a", "b", 1], "g3": ["a", "b", 1]}'},
    "a time that is none": {"asked_at": "yesterday"},
    "a version that is none": {"version": "second"},
}
# What can be read and still cannot be done.
_WRONG: Final[dict[str, Mapping[str, Any]]] = {
    "an unknown kind": {"kind": "explode"},
    "another kind": {"kind": "retry"},
    "nothing asked": {"parameters": "{}"},
    "numbers for names": {"parameters": '{"assignments": 5, "games": 5}'},
}
_chosen_games = st.sets(st.sampled_from(GAMES), min_size=1, max_size=3)
_group = st.sampled_from(GROUPS)
_number = st.integers(0, 40)
_early = st.one_of(st.integers(0, 8), st.integers(0, 60))


class Steering(Laws, RuleBasedStateMachine):
    """People, controllers, drivers and accidents over one store."""

    def __init__(self) -> None:
        super().__init__()
        self.drawer: list[Wish] = []  # what somebody has looked at, and may ask for later

    # ------------------------------------------------------------------------------------------------------ people

    @rule(keys=_chosen_games, group=_group, ahead=st.sampled_from([0, 0, 600, -600]), later=st.booleans(), cut=_early)
    def want_a_move(self, keys: set[str], group: str, ahead: int, later: bool, cut: int) -> None:
        """Somebody whose clock may be wrong plans a move."""
        there = seats.seats(self.engine)
        try:
            plan = moves.plan(dict.fromkeys(keys, group), there, seats.group_seats(self.engine), time.time() + ahead)
        except Refused:
            return
        if plan.moves:
            self._wish(plan.wish("ann", "because"), later, cut)

    @rule(keys=_chosen_games, kind=st.sampled_from(["pause", "resume", "retry"]), later=st.booleans(), cut=_early)
    def want_a_decision(self, keys: set[str], kind: str, later: bool, cut: int) -> None:
        facts = pauses.plan(kind, sorted(keys), seats.seats(self.engine), decisions.decided(self.engine))
        if facts:
            self._wish(pauses.wish(kind, facts, "bob", ""), later, cut)

    @precondition(lambda self: self.known)
    @rule(number=_number)
    def undo(self, number: int) -> None:
        try:
            done = self._one(number, "succeeded")
            if done is not None:
                self._wish(controller.undo(self.engine, done, "cid", "", time.time())[0], later=False)
        except Refused:
            return

    @precondition(lambda self: self.drawer)
    @rule(number=_number, cut=_early)
    def ask_for_what_was_looked_at(self, number: int, cut: int) -> None:
        """The preview may be old by now, and it may be the second click."""
        self._wish(self.drawer[number % len(self.drawer)], later=False, cut=cut)

    @precondition(lambda self: self.known)
    @rule(number=_number, ends=st.booleans())
    def judge(self, number: int, ends: bool) -> None:
        """A person lets an operation go on that waits for one, or ends it."""
        waiting = self._one(number, "needs_human")
        if waiting is None or self.fleet.locked or (waiting.operation_id in self.frozen and not ends):
            return
        if ends:
            assert close(self.engine, waiting, "ann", "looked after").state == "failed"
            self.frozen.pop(waiting.operation_id, None)
        else:
            resume(self.engine, waiting, "ann")

    def _wish(self, wish: Wish, later: bool, cut: int = 99) -> None:
        self.drawer.append(wish)
        if later:
            return

        def command() -> None:
            try:
                ask(self.engine, wish)
            except Refused:
                pass
            except OperationalError:
                assert self.fleet.locked, "the store was there"

        self.fleet.run(command, Fate(statements=cut))

    def _one(self, number: int, state: State) -> Operation | None:
        found = [each for each in listed(self.engine) if each.state == state]
        return found[number % len(found)] if found else None

    # ------------------------------------------------------------------------------------- controllers and drivers

    @rule()
    def tick(self) -> None:
        self.fleet.tick()

    @rule(cut=_early)
    def tick_and_die(self, cut: int) -> None:
        self.fleet.tick(Fate(statements=cut))

    @rule(at=_early, cut=st.one_of(st.none(), _number), data=st.data())
    def tick_and_stand_still(self, at: int, cut: int | None, data: st.DataObject) -> None:
        """A controller stands still between two transactions; others, another controller too, go on meanwhile."""
        others: list[tuple[str, Callable[[], None]]] = [
            ("a tick", self.fleet.tick),
            *((f"pass of {name}", self._passing(name)) for name in GROUPS),
            ("a while", lambda: self.wait(10)),
            ("too long", lambda: self.wait(130)),
            ("wishes", lambda: self._wish(self.drawer[-1], later=False) if self.drawer else None),
            ("the opposite", self._want_the_opposite),
            ("an edit", lambda: self.assign_by_hand("g1", "c")),
            ("a word", lambda: self.judge(0, ends=True)),
        ]

        def meanwhile() -> None:
            for _ in range(data.draw(st.integers(1, 10))):
                data.draw(st.sampled_from(others))[1]()

        self.fleet.tick(Fate(cut, at, meanwhile))

    def _passing(self, name: str) -> Callable[[], None]:
        return lambda: self.fleet.drivers[name].act(boundary=True)

    def _want_the_opposite(self) -> None:
        """Somebody wants what was just paused to run, and the other way round."""
        made = decisions.decided(self.engine)
        for key in GAMES:
            paused = key in made and made[key].desired == "paused"
            self.want_a_decision({key}, "resume" if paused else "pause", later=False, cut=99)

    @rule(name=_group, boundary=st.booleans())
    def drive(self, name: str, boundary: bool) -> None:
        self.fleet.drivers[name].act(boundary=boundary)

    @rule(boundary=st.booleans())
    def drive_all(self, boundary: bool) -> None:
        for each in self.fleet.drivers.values():
            each.act(boundary=boundary)

    @rule(name=_group, boundary=st.booleans(), cut=_early)
    def drive_and_die(self, name: str, boundary: bool, cut: int) -> None:
        self.fleet.drivers[name].act(boundary=boundary, fate=Fate(statements=cut))

    @rule(name=_group, how=st.sampled_from(["crash", "stop", "start", "start", "cut off", "reach", "reach"]))
    def befall(self, name: str, how: str) -> None:
        driver = self.fleet.drivers[name]
        if how in {"cut off", "reach"}:
            driver.cut_off = how == "cut off"
        else:
            getattr(driver, how)()

    @rule(name=_group, seconds=st.sampled_from([-600.0, 0.0, 600.0]))
    def set_a_clock(self, name: str, seconds: float) -> None:
        """A machine's clock jumps; the store's does not."""
        self.fleet.drivers[name].wall = seconds

    @rule(seconds=st.sampled_from([1, 1, 5, 10, 29, 31, 130, 310]))
    def wait(self, seconds: int) -> None:
        self.fleet.clock.now += seconds + 0.013

    # --------------------------------------------------------------------------------------------- hands and trouble

    @rule(key=st.sampled_from(GAMES), group=_group)
    def assign_by_hand(self, key: str, group: str) -> None:
        if not self.fleet.locked:
            with self.engine.begin() as connection:
                mine = update(games).where(games.c.game_key == key)
                connection.execute(mine.values(group_name=group, epoch=games.c.epoch + 1))
            self.edits[key] += 1

    @rule(key=st.sampled_from(GAMES))
    def park(self, key: str) -> None:
        """A stream has used up its attempts."""
        if not self.fleet.locked:
            parked = decisions.Decision(parked_at=1.0, failures=3, evidence="x")
            decisions.record_failures(self.engine, {key: parked})

    @precondition(lambda self: self.known)
    @rule(number=_number)
    def touch(self, number: int) -> None:
        """Somebody else changes the version of an operation."""
        self._write(number, {"version": operations_table.c.version + 1})

    @precondition(lambda self: self.known)
    @rule(number=_number, how=st.sampled_from(sorted(_NONSENSE)))
    def freeze(self, number: int, how: str) -> None:
        if row := self._write(number, _NONSENSE[how]):
            self.frozen[row.operation_id] = row

    @precondition(lambda self: self.known)
    @rule(number=_number, how=st.sampled_from(sorted(_WRONG)))
    def spoil(self, number: int, how: str) -> None:
        self._write(number, _WRONG[how])

    @rule()
    def lock(self) -> None:
        self.fleet.lock()

    @precondition(lambda self: self.fleet.locked)
    @rule()
    def unlock(self) -> None:
        self.fleet.unlock()

    def _write(self, number: int, values: Mapping[str, Any]) -> Row[Any] | None:
        """Write by hand into an open operation that was not written into before."""
        rows = [row for row in self.rows().values() if row.state in OPEN and row.operation_id not in self.spoilt]
        if not rows or self.fleet.locked:
            return None
        row = rows[number % len(rows)]
        if values.keys() != {"version"} or isinstance(values["version"], str):
            self.spoilt[row.operation_id] = [each.removeprefix("game:") for each in json.loads(row.targets)]
        name = row.operation_id
        with self.engine.begin() as connection:
            # As text, whatever the column's type: so writes a hand.
            columns = {column: operations_table.c[column] for column in values}
            sets = ", ".join(f"{column} = ?" for column in columns)
            if all(isinstance(value, str) for value in values.values()):
                connection.exec_driver_sql(
                    f"UPDATE operations SET {sets} WHERE operation_id = ?",
                    (*values.values(), name),
                )
            else:
                mine = operations_table.c.operation_id == name
                connection.execute(update(operations_table).where(mine).values(values))
        return self.rows()[name]

    @invariant()
    def the_laws(self) -> None:
        self.the_laws_hold()

    # ------------------------------------------------------------------------------------------------------- the end

    def teardown(self) -> None:
        try:
            if self.sound:
                self._heal()
        finally:
            self.fleet.close()

    def _heal(self) -> None:
        """All trouble ends: then everything comes to rest by itself, or says what it needs a person for."""
        self.fleet.unlock()
        self.fleet.clock.now += SECONDS + 1
        for driver in self.fleet.drivers.values():
            driver.cut_off, driver.wall = False, 0.0
        self._rest()
        assert self._is_at_rest()
        waiting = [each for each in listed(self.engine, only_open=True) if each.operation_id not in self.frozen]
        assert all((each.outcome or "").endswith(".") or each.operation_id in self.spoilt for each in waiting)
        for each in waiting:
            resume(self.engine, each, "ann")
        self._rest()
        waiting = [each for each in listed(self.engine, only_open=True) if each.operation_id not in self.spoilt]
        assert not waiting, "nothing is in the way any more"
        self.drive_all(boundary=True)
        made = decisions.decided(self.engine)
        for key, seat in seats.seats(self.engine).items():
            assert seat.group == seat.held_by == seat.told_group, key
            assert key in self.fleet.drivers[str(seat.group)].reads()
            assert (seat.lane == "PAUSED") == (key in made and made[key].desired == "paused")

    def _rest(self) -> None:
        for _ in range(_ROUNDS):
            for each in self.fleet.drivers.values():
                each.start()
                each.act(boundary=True)
            self.fleet.tick()
            self.wait(1)
            self.the_laws_hold()
            if self._is_at_rest():
                return

    def _is_at_rest(self) -> bool:
        there = seats.seats(self.engine).values()
        settled = all(seat.group == seat.held_by == seat.told_group for seat in there)
        return settled and all(each.state == "needs_human" for each in listed(self.engine, only_open=True))
