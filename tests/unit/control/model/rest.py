"""How a fleet goes on when nothing befalls it, and how it comes to rest when all trouble has ended."""

from typing import Final

from sqlalchemy import update

from pipeline.control.operations.executor import resume
from pipeline.store.database.states import OPEN
from pipeline.store.database.tables import groups
from pipeline.store.operations import list_operations
from tests.unit.control.model.laws import Laws
from tests.unit.control.model.world import GROUPS
from tests.unit.store.leases_world import SECONDS

_ROUNDS: Final = 20  # within which everything comes to rest
_STEPS: Final = 4  # of the longest operation
_LONGEST_STEP: Final = 310  # seconds: longer than any of them may wait


class Resting(Laws):
    """A fleet of which nobody asks anything and that nobody hurts, for as long as one of these calls."""

    def round(self, within: str | None, *, backwards: bool) -> None:
        for each in reversed(self.fleet.processes) if backwards else self.fleet.processes:
            if each.alive:
                each.act(boundary=each.group != within)
                self.the_laws_hold()
        self.fleet.tick()
        self.the_laws_hold()
        if any(self._is_to_do(name) for name in GROUPS):
            self.fleet.supervise()
        self.pass_time(1)

    def _is_to_do(self, name: str) -> bool:
        """Whether the supervisor may have something to do; asked first, since it looks for long."""
        running = self.fleet.drivers[name].alive and self.seen.desired[name] != "stopped"
        return not running or self.seen.running.get(name, 0.0) is not None

    def pass_time(self, seconds: float) -> None:
        self.fleet.clock.now += seconds + 0.013
        self.the_laws_hold()

    def heal(self) -> None:
        """All trouble ends: from then on everything comes to rest by itself, or says what it needs a person for.

        It has the time of one lease, in which those of dead drivers run out, and 20 ticks with a second between two;
        then people let go on what waits for them, and it has 20 ticks more. What a hand has written into may wait for
        what never comes: it needs a person when the time of its steps is over. No law is ever broken meanwhile.
        """
        self.fleet.unlock()
        self.fleet.clock.now += SECONDS + 1
        for driver in (*self.fleet.drivers.values(), *self.fleet.others.values()):
            driver.cut_off, driver.wall = False, 0.0
        self._rest()
        there = [each for each in list_operations(self.engine, only_open=True) if each.state == "needs_human"]
        waiting = [each for each in there if each.operation_id not in self.frozen]
        assert all((each.outcome or "").endswith(".") or each.operation_id in self.spoilt for each in waiting)
        for each in waiting:
            resume(self.engine, each, "ann")
        self._rest()
        waiting = [
            each for each in list_operations(self.engine, only_open=True) if each.operation_id not in self.spoilt
        ]
        assert not waiting, "nothing is in the way any more"
        self._let_the_spoilt_run_out()
        self.round(None, backwards=False)
        for key, place in self.seen.places.items():
            if place.retired_at is not None:
                assert place.held_by is None
                continue
            assert place.group == place.held_by == place.reported_group, key
            assert key in self.fleet.drivers[str(place.group)].reads()
            assert (place.lane == "PAUSED") == (self.seen.decisions.get(key) == "paused")

    def _rest(self) -> None:
        for _ in range(_ROUNDS):
            self._let_groups_run()
            self.round(None, backwards=False)
            if self._is_at_rest():
                return
        still = [row for row in self.seen.rows.values() if row.ended_at is None]
        raise AssertionError(f"it does not come to rest: {still}, {self.seen.places}")

    def _let_the_spoilt_run_out(self) -> None:
        for _ in range(_STEPS):
            if all(each.state == "needs_human" for each in list_operations(self.engine, only_open=True)):
                return
            self.pass_time(_LONGEST_STEP)
            self.round(None, backwards=False)
        assert all(each.state == "needs_human" for each in list_operations(self.engine, only_open=True))

    def _let_groups_run(self) -> None:
        """Somebody wants again what was stopped or drained, once no operation is about it: else games stand still."""
        self.seen = self.snapshot()
        rows = self.seen.rows
        going_on = {
            name for name in rows.keys() - self.frozen.keys() if rows[name].state in set(OPEN) - {"needs_human"}
        }
        busy = {target for target, name in self.seen.taken.items() if name in going_on}
        idle = {each for each, is_so in self.seen.desired.items() if is_so != "running"}
        set_back = sorted(each for each in idle if f"group:{each}" not in busy)
        if set_back:
            values = {"desired": "running", "version": groups.c.version + 1}
            with self.engine.begin() as connection:
                connection.execute(update(groups).where(groups.c.name.in_(set_back)).values(values))

    def _is_at_rest(self) -> bool:
        settled = all(
            place.group == place.held_by == place.reported_group if place.retired_at is None else place.held_by is None
            for place in self.seen.places.values()
        )
        going_on = [each for each in list_operations(self.engine, only_open=True) if each.state != "needs_human"]
        return settled and all(each.operation_id in self.spoilt for each in going_on)
