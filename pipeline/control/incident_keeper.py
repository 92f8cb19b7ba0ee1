"""Judges causes look by look and keeps the incidents: the controller does, or ingest where no controller runs.

The controller sees the whole fleet and outlives its groups; a laptop may have none, so the ingest driver, which judges
the fleet at each heartbeat for the alerts, then does the same. Two at once do no harm.
"""

import uuid
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from listeners.process_kinds import CONTROLLER, ONLY
from pipeline.base.errors import Refused
from pipeline.data.output_contracts.freshness import read_freshness
from pipeline.health.facts.evidence import read_evidence
from pipeline.health.facts.fleet import Fleet, read_fleet
from pipeline.health.facts.incidents import keep_look, read_incidents
from pipeline.health.facts.overdue_access import read_overdue
from pipeline.health.incidents import away
from pipeline.health.incidents.access import keep_access
from pipeline.health.incidents.controller import keep_controller
from pipeline.health.incidents.evidence import Look
from pipeline.health.incidents.freshness import keep_freshness
from pipeline.health.incidents.incidents import Causes, Incident, group_incidents, order
from pipeline.health.incidents.judging import judge_all
from pipeline.health.incidents.memory import Memory
from pipeline.health.incidents.through import keep_through
from pipeline.health.verdicts.liveness import heartbeat_limit
from pipeline.settings.tree import Settings
from pipeline.store.database.states import Cause

_OF_NO_GAME: Final = frozenset({Cause.ACCESS, Cause.CONTROLLER, Cause.FRESHNESS, Cause.TIME_WENT_BACK})


class IncidentKeeper:
    """The memory of one process's looks; for one thread."""

    def __init__(self, engine: Engine, settings: Settings, kept_by: str) -> None:
        """Begin without a memory."""
        self._engine, self._settings, self._kept_by = engine, settings, kept_by
        self._memory, self._causes = Memory(), Causes()
        self._looked_at: float | None = None
        self._was_refused = False  # a write, since the last look

    def store_refused(self) -> None:
        """Note that this process could not write to the control store; the next look keeps an incident of it."""
        self._was_refused = True

    def look(self, fleet: Fleet | None = None) -> tuple[Incident, ...]:
        """Judge the fleet as it was read just now, and keep the incidents; return those that are open or just ended.

        Raises:
            SQLAlchemyError: the control store is away.
        """
        try:
            return self._look(fleet)
        except Refused as error:
            if isinstance(error.__cause__, SQLAlchemyError):
                raise error.__cause__ from error  # for a process that waits for the store, not for a person
            raise

    def _look(self, fleet: Fleet | None) -> tuple[Incident, ...]:
        heartbeat_seconds = self._settings.metrics.heartbeat_seconds
        if fleet is None:
            fleet = read_fleet(self._engine, settings=self._settings)
        seen = read_evidence(self._engine, fleet, self._settings.metrics.latency_objective_seconds)
        if outage := self._outage(seen):
            self._looked_at, self._was_refused = seen.now, False
            return keep_look(self._engine, self._kept_by, seen.now, lambda _: outage)  # nobody has reported again yet
        if self._looked_at is None or not 0 <= seen.now - self._looked_at <= 60 + 3 * heartbeat_seconds:
            self._memory, self._causes = Memory(), Causes()  # what was seen before is too old, as after an outage
            self._causes.adopt(read_incidents(self._engine), seen.now)
        self._looked_at = seen.now
        evidence = self._memory.remember(seen)
        self._causes.settle(*judge_all(evidence), evidence)

        with self._engine.connect() as connection:
            overdue = read_overdue(connection)
        freshness = read_freshness(self._engine, fleet)

        def new_id() -> str:
            return uuid.uuid4().hex

        def judge(before: Sequence[Incident]) -> tuple[Incident, ...]:
            def known(cause: Cause) -> list[Incident]:
                return [each for each in before if each.finding.cause == cause]

            others = [each for each in before if each.finding.cause not in _OF_NO_GAME]
            kept = group_incidents(others, self._causes, evidence, new_id)
            controller = keep_controller(known(Cause.CONTROLLER), fleet.state(CONTROLLER, ONLY), seen.now, new_id)
            access = keep_access(known(Cause.ACCESS), overdue, seen.now, new_id)
            fresh = keep_freshness(known(Cause.FRESHNESS), freshness, seen.now, new_id)
            times = known(Cause.TIME_WENT_BACK)
            times_back = keep_through(times, fleet.withdrawals, fleet.through_at, seen.now, new_id)
            return order((*kept, *controller, *access, *fresh, *times_back))

        kept = keep_look(self._engine, self._kept_by, seen.now, judge)
        self._was_refused = False
        return kept

    def _outage(self, seen: Look) -> tuple[Incident, ...]:
        """Return the incident of a control store that refused a write, since the last look and for long enough."""
        since, limit = self._looked_at, heartbeat_limit(self._settings.metrics.heartbeat_seconds)
        if since is None or not self._was_refused or seen.now - since <= limit:
            return ()
        games = [key for key, each in seen.games.items() if not each.retired]
        return (away.ended(uuid.uuid4().hex, games, since, seen.now),)
