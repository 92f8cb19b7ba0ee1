"""From where the drivers of groups read bronze, as they say it to maintenance, on whatever machine that runs."""

import socket

import pytest
from sqlalchemy import Engine, update

from pipeline.health.facts.liveness import how_alive
from pipeline.health.facts.placing import placing
from pipeline.store.database.tables import drivers, groups
from pipeline.store.games import register_group
from pipeline.store.groups import read_groups, remove
from pipeline.store.processes.drivers import bronze_readers, heartbeat, start_driver
from tests.unit.store.leases_world import group_lease


def positions(engine: Engine) -> dict[str, int | None]:
    return {each.group: each.reads_from for each in bronze_readers(engine)}


def driven(engine: Engine, host: str) -> None:
    """Leave the row of a driver that has said where it reads, on this machine or another."""
    start_driver(engine, "group", "a", None)
    heartbeat(engine, "group", "a", "running", None, reads_from=7)
    with engine.begin() as connection:
        connection.execute(update(drivers).values(host=host))


def test_a_driver_says_where_it_reads_and_a_heartbeat_without_it_changes_nothing(engine: Engine) -> None:
    """Versions only grow, so what was said last is never too far; other processes do not read bronze."""
    start_driver(engine, "ingest", "main", None)
    start_driver(engine, "group", "a", None)
    assert positions(engine) == {"a": None}
    heartbeat(engine, "group", "a", "running", None, reads_from=7)
    heartbeat(engine, "group", "a", "failed", None, "a full disk")
    assert positions(engine) == {"a": 7}


@pytest.mark.parametrize(("host", "known"), [(socket.gethostname(), 7), ("another machine", None)])
def test_a_new_driver_goes_on_from_the_checkpoint_of_its_own_machine(
    engine: Engine, host: str, known: int | None
) -> None:
    """Its predecessor's word is true of the same checkpoint only; elsewhere an older one may lie."""
    driven(engine, host)
    assert positions(engine) == {"a": 7}
    start_driver(engine, "group", "a", None)
    assert positions(engine) == {"a": known}


def test_a_driver_that_has_the_lease_and_is_yet_to_start_is_unknown(engine: Engine) -> None:
    """Its Spark takes many seconds to start; until then the store has the row of a driver elsewhere, or none."""
    driven(engine, "another machine")
    leases = [group_lease(engine, name, 77) for name in ("a", "b")]
    assert positions(engine) == {"a": None, "b": None}
    for lease in leases:
        lease.release()
    assert positions(engine) == {"a": 7}


def test_a_removed_group_reads_nothing(engine: Engine) -> None:
    """Nobody can start it again, so maintenance need not wait for it."""
    register_group(engine, "a", placing())
    start_driver(engine, "group", "a", None)
    heartbeat(engine, "group", "a", "stopped", None, reads_from=7)
    with engine.begin() as connection:
        connection.execute(update(groups).values(desired="drained"))
    remove(engine, read_groups(engine)["a"], "ann", "no longer used", how_alive)
    assert positions(engine) == {}
