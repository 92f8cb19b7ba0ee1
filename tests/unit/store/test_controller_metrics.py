"""What ingest exports of the controller's work: read in the control store, and never a number that is not known."""

import time
from dataclasses import replace

import pytest
from sqlalchemy import Engine, insert, update

from listeners.totals import ControllerMetrics, DerivedMetrics
from pipeline.base.names import game_key
from pipeline.data.derived.definitions import Aggregate, GoldDefinition, SilverDefinition, dumps
from pipeline.data.output_contracts.rules import OutputContract
from pipeline.data.output_contracts.rules import dumps as contract_texts
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.facts.incidents import keep_look
from pipeline.health.facts.placing import placing
from pipeline.store import derived, output_contracts
from pipeline.store.database.report_tables import incident_looks
from pipeline.store.database.states import Cause, OperationState
from pipeline.store.database.tables import catalog_snapshots, drivers, games, operations
from pipeline.store.groups import Group, create
from pipeline.store.incidents import STALE_SECONDS
from pipeline.store.operations import Intent, change, list_operations, operation, submit
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import store_time
from pipeline.store.reports import keep_waiting
from pipeline.store.rows import DerivedState
from tests.unit.health.incidents.incident_world import OPEN


def seen(engine: Engine) -> ControllerMetrics:
    return read_controller_metrics(engine, read_fleet(engine))


def test_a_dead_controller_is_known_to_those_who_live(engine: Engine) -> None:
    """It runs while it beats; one that has ended or is silent does not, and the groups that need it are counted."""
    create(engine, Group("a", "local"), "ann", "", placing())
    create(engine, Group("b"), "ann", "", placing())
    create(engine, Group("c", "local", "stopped"), "ann", "", placing())
    assert (seen(engine).is_controller_running, seen(engine).supervised_groups) == (False, 1)
    start_driver(engine, "controller", "main", None)
    heartbeat(engine, "controller", "main", "running", None)
    assert seen(engine).is_controller_running
    now = time.time()
    for wrong in ({"heartbeat_at": now - 600}, {"heartbeat_at": now, "state": "stopped"}):
        with engine.begin() as connection:
            connection.execute(update(drivers).values(wrong))
        assert not seen(engine).is_controller_running, wrong


def test_open_operations_are_counted_by_state_and_the_oldest_that_needs_a_person_is_dated(engine: Engine) -> None:
    """What waits for the controller and what waits for a person are two numbers; without one there is no date.

    An operation may have run for hours before it began to need a person: from then on its age counts.
    """
    assert seen(engine).open_operations == {"planned": 0, "running": 0, "verifying": 0, "needs_human": 0}
    begun = store_time(engine)
    for number in range(3):
        submitted = submit(engine, Intent("pause", (f"game:{number}",), "ann"))
        if number:
            change(engine, submitted, OperationState.NEEDS_HUMAN, "look")
            mine = operations.c.operation_id == submitted.operation_id
            with engine.begin() as connection:
                connection.execute(update(operations).where(mine).values(requested_at=1.0))
            since = operation(engine, submitted.operation_id).stuck_since
            assert since is not None
            assert since >= begun
    found = seen(engine)
    assert (found.open_operations["planned"], found.open_operations["needs_human"]) == (1, 2)
    first, *others = (each for each in reversed(list_operations(engine)) if each.state == "needs_human")
    assert found.oldest_stuck_since == min(first.stuck_since or 0.0, *(each.stuck_since or 0.0 for each in others))
    for each in (first, *others):
        assert change(engine, each, OperationState.RUNNING).stuck_since is None, "it goes on"
    assert seen(engine).oldest_stuck_since is None


@pytest.mark.parametrize(
    ("values", "read_at", "drift"),
    [
        ({"read_at": 50.0, "drift": '{"extra": 2, "gone": 0}'}, 50.0, {"extra": 2, "gone": 0}),
        ({"read_at": 50.0, "drift": None}, 50.0, None),
        ({"read_at": None, "drift": None}, None, None),
    ],
    ids=lambda each: repr(each)[:60],
)
def test_drift_that_is_not_known_is_no_zero(
    engine: Engine, values: dict[str, object], read_at: float | None, drift: dict[str, int] | None
) -> None:
    """A catalog that was never read, or not wholly, leaves it unknown."""
    assert (seen(engine).access_read_at, seen(engine).drift) == (None, None)
    with engine.begin() as connection:
        connection.execute(insert(catalog_snapshots).values(snapshot_id=1, tried_at=60.0, **values))
    assert (seen(engine).access_read_at, seen(engine).drift) == (read_at, drift)


def test_an_evacuation_that_waits_is_known_while_a_controller_runs(engine: Engine) -> None:
    """What a dead controller saw last is no present: the series are absent, and its own alert fires."""
    keep_waiting(engine, {"a": 3}, 50.0)
    assert seen(engine).evacuations == {}
    start_driver(engine, "controller", "main", None)
    heartbeat(engine, "controller", "main", "running", None)
    assert seen(engine).evacuations == {"a": (3, 50.0)}


def test_open_incidents_are_counted_by_cause_and_unknown_where_nobody_judges(engine: Engine) -> None:
    """Each cause has a number, as a missing series is no zero; and what was judged long ago is no number."""
    assert seen(engine).incidents is None
    ended = replace(OPEN, incident_id="i2", ended_at=time.time())
    keep_look(engine, "ingest", time.time(), lambda _before: (OPEN, ended))
    counted = seen(engine).incidents
    assert counted == {**dict.fromkeys(map(str, Cause), (0, 0)), "schema": (1, 2)}
    with engine.begin() as connection:
        connection.execute(update(incident_looks).values(looked_at=time.time() - STALE_SECONDS - 1))
    assert seen(engine).incidents is None


def test_readers_of_contracts_are_known(engine: Engine) -> None:
    """An alert about a contract can name who relies on it."""
    assert seen(engine).contract_readers == {}
    contracts = [OutputContract("sales", ("Chess",), readers=("BI", "daily revenue")), OutputContract("c", ("Go",))]
    output_contracts.apply(engine, contract_texts(contracts), 0, "ann", "agreed")
    assert seen(engine).contract_readers == {"sales": ["BI", "daily revenue"], "c": []}


def test_derived_streams_are_known_with_their_groups(engine: Engine) -> None:
    """A stream without a report has no numbers, never zeros; a failing stream has the kind of its error."""
    key, now = game_key("Chess"), store_time(engine)
    with engine.begin() as connection:
        connection.execute(
            insert(games).values(game_key=key, game="Chess", group_name="a", last_seq=1, discovered_at=1.0)
        )
    assert seen(engine).derived == []
    sold, go = SilverDefinition("sold", "Chess"), SilverDefinition("go", "Go")
    hourly = GoldDefinition("hourly", sold, 3_600, (Aggregate("rows", "count"),))
    derived.apply(engine, dumps([sold, hourly, go]), 0, "ann", "wanted")
    state = DerivedState("sold", "a", 2, 5, 5, 30, None, "Refused: no column 'x'", now - 60, now)
    derived.write_states(engine, [state])
    assert list(seen(engine).derived) == [
        DerivedMetrics("sold", key, "a", 30, 2, None, None, ("Refused", now - 60), now),
        DerivedMetrics("hourly", key, "a", None, None, None, None, None, None),
        DerivedMetrics("go", game_key("Go"), "", None, None, None, None, None, None),
    ]
    with engine.begin() as connection:
        derived.pause_within(connection, "sold", "ann", "")
    sold_now, hourly_now, _ = seen(engine).derived
    assert (sold_now.stopped, sold_now.behind, sold_now.is_paused) == (None, None, True), "a pause is no failure"
    assert not hourly_now.is_paused
