"""Keeps the processes of cluster groups as they should be: looks, asks `restart_policy.plan`, does it, writes it down.

It keeps nothing in memory that counts: a controller that follows finds the runs in the store and goes on with them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.control.operations import isolation
from pipeline.control.processes.backends import Backend, process_of, reference_of
from pipeline.control.processes.signals import STOP_SECONDS
from pipeline.control.supervision import restart_policy
from pipeline.control.supervision.restart_policy import Action, GroupObservation
from pipeline.errors import Refused, Transient
from pipeline.health.liveness import RUNS
from pipeline.store import groups as store
from pipeline.store.assignments import read_assignments
from pipeline.store.groups import Driving, Group
from pipeline.store.leases import expire_dead, store_time
from pipeline.store.operations import ask
from pipeline.store.runs import Run

_log = logging.getLogger("turnout")


@dataclass(slots=True)
class Supervisor:
    """Starts, watches, restarts and stops the drivers of groups that have a backend."""

    engine: Engine
    backends: Mapping[str, Backend]
    active_games: Callable[[str], list[str] | None]  # the games that a group's driver had in hand when it died
    mass_failure: str | None = None  # why nothing but one group is tried at a time
    frozen: Mapping[str, str] = field(default_factory=dict)  # groups that are left alone: name → why
    seen: Sequence[GroupObservation] = ()  # at the last look
    looked_at: float = 0.0  # when that was, by the store's clock
    _signalled: set[int] = field(default_factory=set)  # runs that this process has sent a signal
    _last_logged: dict[str, str] = field(default_factory=dict)  # the last line of the log about each group

    @property
    def alarms(self) -> tuple[str, ...]:
        """What a person should know, as of the last look."""
        shared = () if self.mass_failure is None else (self.mass_failure,)
        return (*shared, *(f"Group {name} is frozen: {why}" for name, why in sorted(self.frozen.items())))

    def tick(self) -> list[Action]:
        """Do what is to be done now; return it."""
        self.seen = ()  # nobody judges by an old look where this one breaks
        expire_dead(self.engine)
        now = store_time(self.engine)
        seen = observe(self.engine, self.backends, now)
        self.seen, self.looked_at = seen, now
        self.mass_failure = restart_policy.mass_failure(seen, now)
        actions = restart_policy.plan(seen, self.mass_failure, now)
        self._log_changes(actions)
        by_name = {each.group.name: each.group for each in seen}
        frozen = {each.group.name: each.defect for each in seen if each.defect is not None}
        for action in actions:
            why = self._guarded(action.group, partial(self._apply, action, by_name[action.group], now))
            frozen |= {} if why is None else {action.group: why}
        self.frozen = frozen
        return actions

    def _guarded(self, group: str, act: Callable[[], None]) -> str | None:
        """Do something about one group; return why it cannot be done, so that the others go on."""
        try:
            act()
        except SQLAlchemyError:
            raise  # the store is away: that is no fault of a group's
        except (Refused, Transient) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - see above
            if group not in self.frozen:
                _log.exception("group %s cannot be supervised", group)
            return f"{type(error).__name__}: {error}. The controller's log has the traceback."
        return None

    def stop_all(self) -> bool:
        """Ask every run to end; tell whether all have, but for those of frozen groups, which cannot be asked.

        Called again and again until they have, it kills what hangs.
        """
        now = store_time(self.engine)
        seen = observe(self.engine, self.backends, now)
        frozen = {each.group.name: each.defect for each in seen if each.defect is not None}
        running = [each for each in seen if each.run is not None and each.defect is None]
        for each in running:
            why = self._guarded(each.group.name, partial(self._stop_one, each, now))
            frozen |= {} if why is None else {each.group.name: why}
        self.frozen = frozen
        return all(each.group.name in frozen for each in running)

    def _stop_one(self, seen: GroupObservation, now: float) -> None:
        backend, run = self.backends.get(seen.group.backend), seen.run
        if backend is None or run is None or run.reference is None:
            return
        if not seen.is_alive:
            store.end_run(self.engine, run.run_id, backend.ending(run.reference), died=run.stop_requested_at is None)
        elif not restart_policy.is_within(run.stop_requested_at or now, STOP_SECONDS, now):
            backend.kill(run.reference)
        else:
            self._stop(run.run_id, run.reference, backend)

    def _apply(self, action: Action, group: store.Group, now: float) -> None:
        backend, run_id, reference = self.backends.get(group.backend), action.run_id, action.reference or ""
        if action.what == "ended" and run_id is not None:
            ending = action.about or (backend.ending(reference) if backend else "")
            active_games = self.active_games(group.name) if action.died else None
            store.end_run(self.engine, run_id, ending, died=action.died, active_games=active_games)
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
        except Exception as error:  # raised again, and the next start rests as after any death
            store.end_run(self.engine, run_id, f"{type(error).__name__}: {error}", died=True)
            raise
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
        if run_id not in self._signalled:  # a second signal would not be more polite
            backend.stop(reference)
            self._signalled.add(run_id)

    def _log_changes(self, actions: list[Action]) -> None:
        """Log what changes, once."""
        for action in actions:
            line = f"{action.what}: {action.about}"
            if self._last_logged.get(action.group) != line:
                _log.info("group %s: %s", action.group, line)
            self._last_logged[action.group] = line


def observe(engine: Engine, backends: Mapping[str, Backend], now: float) -> list[GroupObservation]:
    """Look at every group, its process and who holds its lease; `now` is the store's time."""
    runs, ended = store.open_runs(engine), store.ended_runs(engine, now - restart_policy.WINDOW_SECONDS)
    driving = store.active_drivers(engine)
    return [
        _observe_one(group, runs.get(name), ended.get(name, ()), driving.get(name), backends.get(group.backend))
        for name, group in sorted(store.read_groups(engine).items())
    ]


def _observe_one(
    group: Group, run: Run | None, ended: Sequence[Run], driver: Driving | None, backend: Backend | None
) -> GroupObservation:
    """Look at one group; what hands have written into its rows is a reason to leave it alone, and no other one."""
    unreadable = next((each.defect for each in (*((run,) if run else ()), *ended) if each.defect is not None), None)
    if driver is not None and not driver.process.makes_sense:
        unreadable = f"Its lease in the control store makes no sense: {driver.process}. It runs out by itself."
    if unreadable is not None:
        return GroupObservation(group, None, None, holds=False, holder=None, is_reported=False, unreadable=unreadable)
    holder = None if driver is None or driver.process.is_dead() else driver.process
    reference = run.reference if run is not None else None
    is_its_own = reference is not None and holder is not None and process_of(reference) == holder
    return GroupObservation(
        group=group,
        run=run,
        is_alive=None if reference is None or backend is None else backend.is_alive(reference),
        holds=is_its_own,
        holder=None if holder is None or is_its_own else reference_of(holder),
        is_reported=is_its_own and driver is not None and driver.state in RUNS,
        ended=tuple(ended),
    )
