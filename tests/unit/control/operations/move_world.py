"""Drivers of groups between which games move."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from listeners.sample import Lane, StreamState
from pipeline.control.operations import moves
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.liveness import Liveness
from pipeline.store.assignments import read_assignments
from pipeline.store.games import carried, let_go, record_seen, register_group
from pipeline.store.operations import Operation, operation, submit
from pipeline.store.processes.leases import Lease
from tests.unit.store.leases_world import StoreClock, group_lease
from tests.unit.store.reports_world import write_streams

ALIVE = {name: GroupCondition(name, Liveness("running", 0.0, None)) for name in "abc"}
NOW = 1e12


class Drivers:
    """The drivers of three groups, each of which does what a pass boundary does when it is told to."""

    def __init__(self, store: Engine) -> None:
        self.store = store
        self.clock = StoreClock(store)
        self.leases: dict[str, Lease] = {}
        for number, name in enumerate("abc"):
            register_group(store, name, placing())
            self.leases[name] = group_lease(store, name, number + 1)
        record_seen(
            store, {"g1": "One", "g2": "Two", "g3": "Three", "g4": "Four", "g5": "Five", "g6": "Six"}, 9, placing()
        )
        self.held: dict[str, set[str]] = {}
        for name in "abc":
            self.boundary(name)

    def boundary(
        self,
        name: str,
        lane: Lane = Lane.RUN,
        *,
        reported: bool = True,
        lag: float | None = None,
        waits: str | None = None,
    ) -> None:
        """Let go, take, and tell, as a group's driver does between two passes."""
        self.clock.now += 1.0
        lease = self.leases[name]
        lease.renew()
        wanted = {str(each.game_key) for each in carried(self.store, lease)}
        if leaving := self.held.get(name, set()) - wanted:
            let_go(self.store, lease, leaving)
        self.held[name] = wanted
        if reported:
            write_streams(self.store, [replace(self._state(key, name, lane, lag), waits_for=waits) for key in wanted])

    def _state(self, key: str, group: str, lane: Lane, lag: float | None) -> StreamState:
        cursor = 9 if lane == "RUN" else 3
        return StreamState(
            game_key=key, group=group, lane=lane, status="RUNNING", status_since=0.0, cursor_seq=cursor,
            last_commit_at=None, backlog_age_seconds=lag, rows_per_second=None, latency_p95_seconds=None,
            rows_total=0, rejects_total=0, last_error=None, updated_at=self.clock.now,
        )  # fmt: skip

    def group_of(self, key: str) -> str | None:
        return read_assignments(self.store)[key].group


@pytest.fixture
def drivers(engine: Engine) -> Drivers:
    return Drivers(engine)


def planned(drivers: Drivers, wanted: dict[str, str]) -> moves.MovePlan:
    return moves.plan(wanted, read_assignments(drivers.store), ALIVE)


def submitted(drivers: Drivers, wanted: dict[str, str]) -> Operation:
    return submit(drivers.store, planned(drivers, wanted).intent("ann", "too busy"))


def state(drivers: Drivers, begun: Operation) -> str:
    return operation(drivers.store, begun.operation_id).state


def others(drivers: Drivers, key: str) -> list[str]:
    return sorted(set("abc") - {str(drivers.group_of(key))})
