"""Keeps the processes of cluster groups as they shall be: looks, asks `restart_policy.plan`, does it, writes it down.

It keeps nothing in memory that counts: a controller that follows finds the runs in the store and goes on with them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine

from pipeline.control.operations import isolation
from pipeline.control.processes.backends import Backend, process_of, reference_of
from pipeline.control.processes.signals import STOP_SECONDS
from pipeline.control.supervision import restart_policy
from pipeline.control.supervision.restart_policy import Action, GroupObservation
from pipeline.errors import Refused, Transient
from pipeline.store import groups as store
from pipeline.store.assignments import read_assignments
from pipeline.store.leases import store_time
from pipeline.store.operations import ask

_log = logging.getLogger("turnout")


@dataclass(slots=True)
class Supervisor:
    """Starts, watches, restarts and stops the drivers of groups that have a backend."""

    engine: Engine
    backends: Mapping[str, Backend]
    in_hand: Callable[[str], list[str] | None]  # the games that a group's driver had in hand when it died
    alarm: str | None = None  # why nothing but one group is tried at a time
    seen: Sequence[GroupObservation] = ()  # at the last look
    looked_at: float = 0.0  # when that was, by the store's clock
    _asked: set[int] = field(default_factory=set)  # runs that this process has sent a signal
    _told: dict[str, str] = field(default_factory=dict)  # what the log last said of each group

    def tick(self) -> list[Action]:
        """Do what is to be done now; return it."""
        now = store_time(self.engine)
        seen = observe(self.engine, self.backends, now)
        self.seen, self.looked_at = seen, now
        alarm = restart_policy.mass_failure(seen, now)
        actions = restart_policy.plan(seen, alarm, now)
        self._tell(alarm, actions)
        by_name = {each.group.name: each.group for each in seen}
        for action in actions:
            self._apply(action, by_name[action.group], now)
        return actions

    def stop_all(self) -> bool:
        """Ask every run to end; tell whether all have. Called again and again until they have, it kills what hangs."""
        now = store_time(self.engine)
        seen = [each for each in observe(self.engine, self.backends, now) if each.run is not None]
        for each in seen:
            backend = self.backends.get(each.group.backend)
            if backend is None or each.run is None or each.run.reference is None:
                continue
            if not each.is_alive:
                said = backend.ending(each.run.reference)
                store.end_run(self.engine, each.run.run_id, said, died=each.run.stop_asked_at is None)
            elif each.run.stop_asked_at is None:
                self._stop(each.run.run_id, each.run.reference, backend)
            elif now - each.run.stop_asked_at > STOP_SECONDS:
                backend.kill(each.run.reference)
        return not seen

    def _apply(self, action: Action, group: store.Group, now: float) -> None:
        backend, run_id, reference = self.backends.get(group.backend), action.run_id, action.reference or ""
        if action.what == "ended" and run_id is not None:
            said = action.about or (backend.ending(reference) if backend else "")
            in_hand = self.in_hand(group.name) if action.died else None
            store.end_run(self.engine, run_id, said, died=action.died, in_hand=in_hand)
            if action.died:
                self._isolate(group, now)
        if backend is None:
            return
        if action.what == "start":
            self._start(group, backend)
        elif action.what == "adopt":
            store.begin_run(self.engine, group.name, reference)
        elif action.what == "stop" and run_id is not None:
            self._stop(run_id, reference, backend)
        elif action.what == "kill":
            backend.kill(reference)

    def _start(self, group: store.Group, backend: Backend) -> None:
        run_id = store.begin_run(self.engine, group.name)
        if run_id is None:
            return  # another controller was first
        try:
            reference = backend.start(group)
        except Transient as error:
            store.end_run(self.engine, run_id, str(error), died=True)
            return
        store.record_process(self.engine, run_id, reference)

    def _isolate(self, group: store.Group, now: float) -> None:
        """Ask for what a group's death asks for: that its suspects get a group of their own."""
        ended = store.ended_runs(self.engine, now - restart_policy.WINDOW_SECONDS)[group.name]
        intent = isolation.intent(
            group, ended, read_assignments(self.engine), list(store.read_groups(self.engine)), now
        )
        if intent is None:
            return
        try:
            ask(self.engine, intent)
        except Refused as refused:
            _log.warning("group %s: its suspects stay: %s", group.name, refused)

    def _stop(self, run_id: int, reference: str, backend: Backend) -> None:
        store.ask_to_stop(self.engine, run_id)
        if run_id not in self._asked:  # a second signal would not be more polite
            self._asked.add(run_id)
            backend.stop(reference)

    def _tell(self, alarm: str | None, actions: list[Action]) -> None:
        """Log what changes, once."""
        if alarm is not None and self.alarm is None:
            _log.error("mass failure: %s", alarm)
        self.alarm = alarm
        for action in actions:
            said = f"{action.what}: {action.about}"
            if self._told.get(action.group) != said:
                _log.info("group %s: %s", action.group, said)
            self._told[action.group] = said


def observe(engine: Engine, backends: Mapping[str, Backend], now: float) -> list[GroupObservation]:
    """Look at every group, its process and who holds its lease; `now` is the store's time."""
    runs, ended = store.open_runs(engine), store.ended_runs(engine, now - restart_policy.WINDOW_SECONDS)
    driving = store.active_drivers(engine)
    seen = []
    for name, group in sorted(store.read_groups(engine).items()):
        run, driver, backend = runs.get(name), driving.get(name), backends.get(group.backend)
        holder = None if driver is None or driver.process.is_dead() else driver.process
        reference = run.reference if run is not None else None
        is_its_own = reference is not None and holder is not None and process_of(reference) == holder
        alive = None if reference is None or backend is None else backend.is_alive(reference)
        seen.append(
            GroupObservation(
                group=group,
                run=run,
                is_alive=alive,
                holds=is_its_own,
                holder=None if holder is None or is_its_own else reference_of(holder),
                is_told=is_its_own and driver is not None and driver.state == "running",
                ended=tuple(ended.get(name, ())),
            )
        )
    return seen
