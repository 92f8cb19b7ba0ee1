"""A control store that takes no writes silences every process: the judgement names the store, on each surface."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, text, update

from app.fleet import headline, incidents
from app.fleet.signals import Signals
from pipeline.cli import status
from pipeline.settings import Settings
from pipeline.store.database.engine import refused_write
from pipeline.store.database.states import ProcessKind
from pipeline.store.database.tables import drivers
from pipeline.store.fleet import Fleet, read_fleet
from pipeline.store.processes.drivers import heartbeat, start_driver


@contextmanager
def locked(engine: Engine) -> Iterator[None]:
    """Hold the lock for writes, as a backup that hangs does; reads go on."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(text("LOCK TABLE drivers IN SHARE MODE"))
        yield
        connection.rollback()


def silent(engine: Engine, **seconds: float) -> None:
    """Let ingest and groups have beaten last so many seconds ago; a driver of ours each."""
    for name, ago in seconds.items():
        kind: ProcessKind = "ingest" if name == "main" else "group"
        start_driver(engine, kind, name, None)
        heartbeat(engine, kind, name, "running", None)
        with engine.begin() as connection:
            own = (drivers.c.kind == kind) & (drivers.c.name == name)
            long_ago = {"heartbeat_at": drivers.c.heartbeat_at - ago, "started_at": drivers.c.started_at - 900 - ago}
            connection.execute(update(drivers).where(own).values(long_ago))


def problem(fleet: Fleet) -> str | None:
    return next((each.text for each in fleet.judgement.problems if each.kind == "store"), None)


def test_a_store_that_takes_no_writes_is_named_on_each_surface(engine: Engine) -> None:
    """Page and command say that the store refuses writes and why, once, and not that each driver has gone by itself."""
    silent(engine, main=20, a=22, b=18)
    with locked(engine):
        fleet = read_fleet(engine)
        printed = status._lines(status._read(engine, Settings()), show_all=False)
    said = problem(fleet)
    assert said is not None
    assert said.startswith("the control store takes no writes: ")
    assert "lock" in said.split("\n")[0]
    assert "; the control store takes no writes; " in fleet.judgement.headline
    assert any(line.startswith("the control store takes no writes: ") for line in printed)
    page = Signals(fleet, 60.0, incidents=())
    assert "the control store takes no writes" in headline.headline(page).text
    made = incidents.rows(page)
    assert [row.row_id for row in made] == ["problem_store_"], "each silent process has no row of its own"
    assert made[0].title.startswith("The control store takes no writes: ")
    assert made[0].since == fleet.judgement.silence.since if fleet.judgement.silence else None
    assert refused_write_now(engine) is None, "asking leaves nothing behind"


def test_a_common_silence_with_a_store_that_takes_writes_says_what_to_look_for(engine: Engine) -> None:
    """Where writes work, the text does not accuse the store, and asks for a shared cause."""
    silent(engine, main=20, a=22)
    fleet = read_fleet(engine)
    assert problem(fleet) == (
        f"all 2 processes fell silent at one moment, {fleet.read_at - newest(fleet):.0f} s ago\n"
        "look for what they share, such as the control store, its disk or their machine"
    )


@pytest.mark.parametrize("ago", [{"main": 1, "a": 60, "b": 61}, {"main": 60}, {"main": 20, "a": 300}], ids=str)
def test_a_silence_that_is_not_shared_says_nothing_of_the_store(engine: Engine, ago: dict[str, float]) -> None:
    """While one process reports, or the others fell silent at another time, the store is not asked and not named."""
    silent(engine, **ago)
    with locked(engine):
        assert problem(read_fleet(engine)) is None


def refused_write_now(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return refused_write(connection)


def newest(fleet: Fleet) -> float:
    return max(each.heartbeat_at for each in fleet.drivers)
