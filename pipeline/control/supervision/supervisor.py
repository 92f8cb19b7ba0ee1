"""Reconciles drivers and maintenance: observes processes, plans by `restart_policy.plan`, acts, records.

It keeps nothing in memory that counts: a controller that follows finds the runs in the store and goes on with them.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from listeners.process_kinds import described
from pipeline.base.errors import Refused, Transient, Unclear
from pipeline.control.backends.backend import Backend, RunState
from pipeline.control.backends.duties import Duty
from pipeline.control.kinds import groups
from pipeline.control.operations import isolation
from pipeline.control.supervision import hung, restart_policy
from pipeline.control.supervision.restart_policy import Action, GroupObservation
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.verdicts.condition import (
    WINDOW_SECONDS,
    Conditions,
    GroupCondition,
    is_within,
    judge_duty,
    judge_groups,
)
from pipeline.health.verdicts.liveness import DriverFacts, heartbeat_limit
from pipeline.settings.tree import Metrics
from pipeline.store import groups as store
from pipeline.store.assignments import read_assignments
from pipeline.store.backends import backend_kind
from pipeline.store.groups import Group
from pipeline.store.operations import submit
from pipeline.store.processes import runs as run_store
from pipeline.store.processes.leases import expire_dead
from pipeline.store.processes.runs import GroupDriver, Run
from pipeline.store.rows import Driver

_log = logging.getLogger("turnout")
_GAP_SECONDS = 30.0  # between two looks, after which watching begins again: others could not beat either


@dataclass(slots=True)
class Supervisor:
    """Starts, watches, restarts and stops the drivers of groups that have a backend, and other duties.

    What hangs is ended, also what others have started on this machine: see `hung`.
    """

    engine: Engine
    backends: Mapping[str, Backend]
    active_games: Callable[[str], list[str]]  # what a group's driver on this machine had in hand when it died
    duties: Callable[[Engine], Sequence[Duty]] = groups  # what is to be kept running
    max_silent: float = math.inf  # seconds without a heartbeat after which a process hangs
    metrics: Metrics = Metrics()
    frozen: Mapping[tuple[str, str], str] = field(default_factory=dict)  # what is left alone: kind, name → why
    conditions: Conditions | None = None  # of the groups at the last look; None: it broke
    _looked_at: float = 0.0  # by the store's clock
    _signalled: set[int] = field(default_factory=set)  # runs that this process has sent a signal
    _last_logged: dict[tuple[str, str], str] = field(default_factory=dict)  # the last line of the log about each
    _watched_since: float = 0.0

    @property
    def alarms(self) -> tuple[str, ...]:
        """What a person should know, as of the last look."""
        mass_failure = None if self.conditions is None else self.conditions.mass_failure
        shared = () if mass_failure is None else (mass_failure,)
        return (*shared, *(f"{_titled(*key)} is frozen: {why}" for key, why in sorted(self.frozen.items())))

    def tick(self) -> list[Action]:
        """Look once, act, and return the actions."""
        is_broken, self.conditions = self.conditions is None, None  # nobody judges by an old look where this one breaks
        expire_dead(self.engine)
        facts = read_drivers(self.engine, self.metrics)
        now = facts.now
        if is_broken or abs(now - self._looked_at) > _GAP_SECONDS:
            self._watched_since = now
        self._looked_at = now
        conditions = judge_groups(facts)
        limit = heartbeat_limit(self.metrics.heartbeat_seconds)
        if now - self._watched_since < limit:  # drivers could not renew their leases
            conditions = replace(conditions, mass_failure=None)
        seen = observe(self.engine, self.backends, facts, conditions, self.duties(self.engine), self._watched_since)
        self.conditions = conditions
        actions = restart_policy.plan(seen, conditions.mass_failure, now, self.max_silent)
        self._log_changes(actions)
        by_key = {_key(each): each.group for each in seen}
        frozen: dict[tuple[str, str], str] = {}
        for action in actions:
            why = self._guarded(action.key, partial(self._apply, action, by_key[action.key], now))
            frozen |= {} if why is None else {action.key: why}
        self.frozen = frozen | self._end_hung(seen, facts)
        return actions

    def _end_hung(self, seen: Sequence[GroupObservation], facts: DriverFacts) -> dict[tuple[str, str], str]:
        """End what hangs and has no run; return why, where it cannot be done."""
        local, supervised = self.backends.get("local"), {_key(each) for each in seen if each.run is not None}
        frozen: dict[tuple[str, str], str] = {}
        for driver in hung.find(facts, self._watched_since, self.max_silent):
            key = (driver.kind, driver.name)
            if local is not None and key not in supervised:
                why = self._guarded(key, partial(hung.end, self.engine, local, driver, facts.now))
                frozen |= {} if why is None else {key: why}
        return frozen

    def _guarded(self, key: tuple[str, str], act: Callable[[], None]) -> str | None:
        """Do something about one duty; return why it cannot be done, so that the others go on."""
        try:
            act()
        except SQLAlchemyError:
            raise  # the store is away: that is no fault of a group's
        except (Refused, Transient) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - see above
            if key not in self.frozen:
                _log.exception("%s cannot be supervised", described(*key))
            return f"{type(error).__name__}: {error}. The controller's log has the traceback."
        return None

    def stop_all(self) -> bool:
        """Ask every run to end; return whether all have, but for those of frozen groups, which cannot be asked.

        Called again and again until they have, it kills what hangs.
        """
        facts = read_drivers(self.engine, self.metrics)
        seen = observe(self.engine, self.backends, facts, judge_groups(facts), self.duties(self.engine))
        frozen: dict[tuple[str, str], str] = {}
        running = [each for each in seen if each.run is not None]
        for each in running:
            why = self._guarded(_key(each), partial(self._stop_one, each, facts.now))
            frozen |= {} if why is None else {_key(each): why}
        self.frozen = frozen
        return all(_key(each) in frozen for each in running)

    def _stop_one(self, seen: GroupObservation, now: float) -> None:
        run, state = seen.run, seen.state
        backend = None if run is None else self.backends.get(run.backend)
        if backend is None or run is None or run.reference is None or state is None:
            return
        if state.is_alive is False or (state.is_alive is None and state.by_lease):
            run_store.end_run(self.engine, run.run_id, state.about, died=run.stop_requested_at is None)
        elif not is_within(run.stop_requested_at or now, backend.limits.stop_seconds, now):
            backend.kill(run.reference)
        else:
            self._stop(run.run_id, run.reference, backend)

    def _apply(self, action: Action, duty: Duty, now: float) -> None:
        run_id, reference = action.run_id, action.reference or ""
        backend = self.backends.get(action.backend or duty.backend)
        if action.what == "ended" and run_id is not None:
            group = duty if isinstance(duty, Group) and action.died else None
            # The driver of a backend elsewhere writes them into the store, if anywhere.
            is_here = action.backend is not None and backend_kind(action.backend).is_here
            active_games = None if group is None or not is_here else self.active_games(group.name)
            if action.reference is None and backend is not None and backend.starts_once:
                self._cancel(duty, backend, run_id)
            run_store.end_run(self.engine, run_id, action.about, died=action.died, active_games=active_games)
            if group is not None:
                self._isolate(group, now)
        if backend is None:
            if action.what == "start":
                raise Refused(_unusable(duty))
            return
        if action.what == "start":
            self._start(duty, backend, run_id)
        elif action.what == "adopt":
            run_store.adopt(self.engine, duty, run_id, reference, backend.limits.start_seconds)
        elif action.what == "stop" and run_id is not None:
            self._stop(run_id, reference, backend)
        elif action.what == "kill" and run_id is not None:
            if action.died:
                run_store.note_ending(self.engine, run_id, action.about)
            backend.kill(reference)

    def _start(self, duty: Duty, backend: Backend, run_id: int | None) -> None:
        """Start a run, or once more the one whose start had no answer."""
        is_again = run_id is not None
        if run_id is None:
            run_id = run_store.begin_run(self.engine, duty.name, duty.kind, duty.backend, backend.limits.start_seconds)
        token = None if run_id is None else run_store.token_of(self.engine, run_id)
        if run_id is None or token is None:
            return  # another controller was first
        try:
            reference = backend.start(duty, run_id, token)
        except Unclear:
            raise  # the run may have begun: the next try finds out
        except Transient as error:
            run_store.end_run(self.engine, run_id, str(error), died=True)
            return
        except Exception as error:  # raised again, and the next start rests as after any death
            run_store.end_run(self.engine, run_id, f"{type(error).__name__}: {error}", died=True)
            raise
        run_store.record_process(self.engine, run_id, reference, begins_now=is_again)

    def _cancel(self, duty: Duty, backend: Backend, run_id: int) -> None:
        """End a run whose start had no answer and that is given up: the same start finds it."""
        if (token := run_store.token_of(self.engine, run_id)) is not None:
            backend.kill(backend.start(duty, run_id, token))

    def _isolate(self, group: Group, now: float) -> None:
        """Ask for what a group's death asks for: that its suspects get a group of their own."""
        ended = run_store.ended_runs(self.engine, now - WINDOW_SECONDS)[group.name]
        intent = isolation.intent(
            group, ended, read_assignments(self.engine), list(store.read_groups(self.engine)), now
        )
        if intent is None:
            return
        try:
            submit(self.engine, intent)
        except Refused as refused:
            _log.warning("group %s: its suspects stay: %s", group.name, refused)

    def _stop(self, run_id: int, reference: str, backend: Backend) -> None:
        run_store.submit_stop(self.engine, run_id)
        if run_id not in self._signalled:  # a second signal would not be more polite
            backend.stop(reference)
            self._signalled.add(run_id)

    def _log_changes(self, actions: list[Action]) -> None:
        """Log what changes, once."""
        for action in actions:
            line = f"{action.what}: {action.about}"
            if self._last_logged.get(action.key) != line:
                _log.info("%s: %s", described(*action.key), line)
            self._last_logged[action.key] = line


def observe(
    engine: Engine,
    backends: Mapping[str, Backend],
    facts: DriverFacts,
    conditions: Conditions,
    duties: Sequence[Duty],
    watched_since: float = -math.inf,
) -> list[GroupObservation]:
    """Look at every duty, its process and who holds its lease.

    How long a process has been silent is reckoned from when it was watched: before, it could not beat perhaps.
    """
    observed = []
    for kind in dict.fromkeys(duty.kind for duty in duties):
        runs, driving = run_store.open_runs(engine, kind), run_store.active_drivers(engine, kind)
        states = _states(backends, list(runs.values()))
        for duty in duties:
            if duty.kind == kind:
                condition = conditions.groups.get(duty.name) if isinstance(duty, Group) else None
                condition = condition or judge_duty(facts, kind, duty.name)
                run = runs.get(duty.name)
                backend = backends.get(duty.backend if run is None else run.backend)
                state = None if run is None else states.get(run.run_id)
                seen = _observe_one(duty, run, state, condition, driving.get(duty.name), backend)
                since = max(watched_since, _last_sign(run, facts.drivers.get((kind, duty.name)), facts.now))
                driver = facts.drivers.get((kind, duty.name))
                has_reported = run is not None and driver is not None and driver.run_id == run.run_id
                observed.append(replace(seen, silent_seconds=facts.now - since, has_reported=has_reported))
    return observed


def _states(backends: Mapping[str, Backend], runs: Sequence[Run]) -> dict[int, RunState]:
    """Return what is known of open runs, by their ids: each backend answers once, for all of its runs."""
    states: dict[int, RunState] = {}
    for name, backend in backends.items():
        known = {run.reference: run.run_id for run in runs if run.backend == name and run.reference is not None}
        if known:
            states |= {known[reference]: state for reference, state in backend.observe(known.keys()).items()}
    return states


def _last_sign(run: Run | None, driver: Driver | None, now: float) -> float:
    """Return when a run's process gave its last sign of life."""
    if run is None or run.reference is None:
        return now
    if driver is None or driver.run_id != run.run_id:
        return run.started_at
    return max(run.started_at, driver.heartbeat_at)


def _observe_one(
    group: Duty,
    run: Run | None,
    state: RunState | None,
    condition: GroupCondition,
    driver: GroupDriver | None,
    backend: Backend | None,
) -> GroupObservation:
    is_its_own = run is not None and driver is not None and driver.run_id == run.run_id
    is_settled = is_its_own and run is not None and run.reference is not None
    seen = GroupObservation(
        group=group,
        run=run,
        state=state,
        holds=is_its_own,
        is_held=driver is not None,
        holder=None if driver is None or backend is None or is_settled else backend.find(driver.process),
        condition=condition,
    )
    return seen if backend is None else replace(seen, limits=backend.limits, starts_once=backend.starts_once)


def _unusable(duty: Duty) -> str:
    return (
        f"this controller cannot start it as {duty.backend}: a controller that is a job starts jobs alone. Set the "
        "backend to databricks, or run a controller on a machine"
    )


def _key(seen: GroupObservation) -> tuple[str, str]:
    return seen.group.kind, seen.group.name


def _titled(kind: str, name: str) -> str:
    title = described(kind, name)
    return title[0].upper() + title[1:]
