"""A control store that takes no writes silences every process: the judgement names the store, on each surface."""

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text, update

from app.fleet import headline, incidents
from app.fleet.signals import Signals
from listeners import families
from listeners.totals import ControllerMetrics
from pipeline.api import incidents as incident_queries
from pipeline.api.environment import OpenEnvironment
from pipeline.api.status import read as read_status
from pipeline.base.names import game_key
from pipeline.cli import incidents as incidents_command
from pipeline.cli import status
from pipeline.control.incident_keeper import IncidentKeeper
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import Fleet, read_fleet
from pipeline.health.facts.incidents import read_incidents
from pipeline.health.facts.placing import placing
from pipeline.health.incidents.away import with_computed
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store, refused_write
from pipeline.store.database.states import Cause, ProcessState
from pipeline.store.database.tables import drivers, leases
from pipeline.store.games import record_seen, register_group
from pipeline.store.groups import Group, create
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease


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
    """Let ingest and groups have beaten last the given seconds ago; a driver of ours each."""
    for name, ago in seconds.items():
        kind = "ingest" if name == "main" else "group"
        start_driver(engine, kind, name, None)
        heartbeat(engine, kind, name, "running", None)
        with engine.begin() as connection:
            own = (drivers.c.kind == kind) & (drivers.c.name == name)
            long_ago = {"heartbeat_at": drivers.c.heartbeat_at - ago, "started_at": drivers.c.started_at - 900 - ago}
            connection.execute(update(drivers).where(own).values(long_ago))


def problem(fleet: Fleet) -> str | None:
    return next((each.text for each in fleet.judgement.problems if each.kind == "store"), None)


def test_a_store_that_takes_no_writes_is_named_on_each_surface(engine: Engine, tmp_path: Path) -> None:
    """Page and command say that the store refuses writes and why, once, and not that each driver has gone by itself."""
    silent(engine, main=20, a=22, b=18)
    with locked(engine):
        fleet = read_fleet(engine)
        printed = status.lines(read_status(OpenEnvironment(Settings(), Paths(tmp_path), engine)), show_all=False)
    said = problem(fleet)
    assert said is not None
    assert said.startswith("the control store takes no writes: ")
    assert "lock" in said.split("\n")[0]
    assert fleet.judgement.headline == "No games yet; the control store takes no writes"
    assert any(line.startswith("the control store takes no writes: ") for line in printed)
    page = Signals(fleet, 60.0, incidents=())
    assert headline.headline(page).text == "The control store takes no writes"
    made = incidents.rows(page)
    assert [row.row_id for row in made] == ["problem_store_"], "each silent process has no row of its own"
    assert made[0].title.startswith("The control store takes no writes: ")
    assert made[0].since == fleet.judgement.silence.since if fleet.judgement.silence else None
    assert refused_write_now(engine) is None, "asking leaves nothing behind"


@contextmanager
def full_disk(engine: Engine) -> Iterator[None]:
    """Let locks be taken and no page be written, as on a full disk."""
    if engine.dialect.name == "sqlite":
        log = Path(f"{engine.url.database}-wal")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        return
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON drivers FOR EACH ROW EXECUTE FUNCTION full_disk()"
        )
    yield
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER full_disk ON drivers")


@pytest.mark.proves("G273")
def test_a_store_whose_disk_is_full_takes_no_writes(engine: Engine) -> None:
    """A lock is no write: the cause is known of a store whose disk is full, and is over when it has room."""
    silent(engine, main=40, a=40)
    before = dump(engine)
    with full_disk(engine):
        judged = read_fleet(engine).judgement
    assert [each.kind for each in judged.problems] == ["store"]
    assert judged.silence is not None
    assert re.search("disk|extend", judged.silence.refusal or "")
    assert refused_write_now(engine) is None
    assert dump(engine) == before, "asking leaves nothing behind"


def dump(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(drivers))]


def test_a_reader_that_may_not_write_to_the_file_does_not_know(tmp_path: Path) -> None:
    """SQLite says of a reader's own lack of a right that the database is read-only: no word on the store."""
    engine = open_store(*load(tmp_path, {}))
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only=ON")
        assert refused_write(connection) is None
    engine.dispose()


def test_a_common_silence_with_a_store_that_takes_writes_says_what_to_look_for(engine: Engine) -> None:
    """Where writes work, the text does not accuse the store, and asks for a shared cause."""
    silent(engine, main=20, a=22)
    fleet = read_fleet(engine)
    assert problem(fleet) == (
        f"all 2 processes fell silent at one moment, {fleet.read_at - newest(fleet):.0f} s ago\n"
        "look for what they share, such as the control store, its disk or their machine"
    )


@pytest.mark.proves("G273")
def test_nobody_is_called_dead_whom_the_store_keeps_from_reporting(engine: Engine) -> None:
    """Law of the unheard: with a store that takes no writes nobody is dead or down, though every lease ran out."""
    with_games(engine)
    silent(engine, main=40, a=42, b=38)
    for name in ("a", "b"):
        lease = Lease(engine, "group", name, 15)
        lease.acquire()
    with engine.begin() as connection:
        connection.execute(update(leases).values(expires_at=leases.c.expires_at - 40))
    with locked(engine):
        fleet = read_fleet(engine)
        judged, exported = fleet.judgement, read_controller_metrics(engine, fleet).incidents
    assert {each.liveness.state for each in judged.drivers} == {"unknown"}
    assert all("the control store takes no writes" in str(each.liveness.reason) for each in judged.drivers)
    assert [each.kind for each in judged.problems] == ["store"]
    assert judged.headline == "2 of 2 streams unknown; the control store takes no writes"
    assert (judged.stopped_groups, judged.wanted_groups) == ((), {}), "nobody knows whether they are down"
    assert judged.conditions.mass_failure is None
    assert exported == {"control store": (1, 2)}


@pytest.mark.proves("G273")
def test_the_control_store_is_one_cause_over_all_that_it_makes_unknown(engine: Engine, tmp_path: Path) -> None:
    """Commands and pages compute one incident that no judge can keep, also long after the last look at causes."""
    with_games(engine)
    silent(engine, main=90, a=92)
    environment = OpenEnvironment(Settings(), Paths(tmp_path), engine)
    with locked(engine):
        fleet = read_fleet(engine)
        found = incident_queries.read(environment, fleet)
        printed = incidents_command.lines(found)
        status_lines = status.lines(read_status(environment), show_all=False)
    (opened,) = found.incidents
    assert (opened.cause, opened.games, opened.tone) == ("control store", tuple(sorted(KEYS)), "bad")
    assert opened.title == "The control store takes no writes"
    assert opened.since == newest(fleet)
    assert "1 open incident" in printed
    assert "  bad        control store: The control store takes no writes" in printed[1]
    assert not [line for line in status_lines if line.startswith("  UNKNOWN")], "games have no line of their own"
    made = incidents.rows(Signals(fleet, 60.0, incidents=with_computed((), fleet.judgement, fleet.read_at)))
    assert [row.row_id for row in made] == ["incident_control-store"]
    assert incident_queries.read(environment, read_fleet(engine)).incidents == (), "it is over when writes work"


@pytest.mark.proves("G273")
def test_a_controller_that_is_only_silent_is_not_said_not_to_run(engine: Engine) -> None:
    """A frozen controller is silent; "no controller runs" is only for a stopped or ended one, or none."""
    with_games(engine)
    silent(engine, main=1)
    start_driver(engine, "controller", "main", None)
    heartbeat(engine, "controller", "main", "running", None)
    with engine.begin() as connection:
        own = drivers.c.kind == "controller"
        connection.execute(update(drivers).where(own).values(heartbeat_at=drivers.c.heartbeat_at - 60))
    judged = read_fleet(engine).judgement
    assert judged.headline.endswith("; the controller is silent")
    assert judged.controller_absence == "the controller is silent"
    heartbeat(engine, "controller", "main", "stopped", None)
    assert read_fleet(engine).judgement.controller_absence == "no controller runs"


@pytest.mark.proves("G273")
def test_a_controller_that_is_only_unheard_is_not_exported_as_down(engine: Engine) -> None:
    """Law of the unheard: nobody knows whether it runs, so no number says that it does not, and no alert fires."""
    create(engine, Group("a", "local"), "ann", "", placing())
    silent(engine, main=40, a=40)
    start_driver(engine, "controller", "main", None)
    heartbeat(engine, "controller", "main", "running", None)
    with engine.begin() as connection:
        connection.execute(update(drivers).values(heartbeat_at=drivers.c.heartbeat_at - 40))
    with locked(engine):
        exported = read_controller_metrics(engine, read_fleet(engine))
    assert (exported.is_controller_running, exported.supervised_groups) == (None, 1)
    assert running_samples(exported) == []
    assert running_samples(read_controller_metrics(engine, read_fleet(engine))) == [0.0], (
        "writes work, and it is silent"
    )


def running_samples(seen: ControllerMetrics) -> list[float]:
    """Return the samples of the metric that says whether a controller runs."""
    known = (each for each in families._controller(seen) if each.name == "turnout_controller_running")
    return [sample.value for each in known for sample in each.samples]


@pytest.mark.proves("G273")
def test_the_judge_keeps_an_incident_of_the_store_afterwards(engine: Engine) -> None:
    """A judge whose writes were refused keeps an ended incident of all games at its next look, and blames no driver."""
    with_games(engine)
    silent(engine, main=1, a=1)
    keeper = IncidentKeeper(engine, Settings(), "controller")
    keeper.look()
    keeper.store_refused()
    assert keeper.look() == keeper.look(), "a moment is no incident"
    keeper.store_refused()
    silent(engine, a=40)
    began = keeper._looked_at = (keeper._looked_at or 0.0) - 40
    (kept,) = keeper.look()
    assert (kept.finding.cause, kept.games, kept.since) == (Cause.STORE, tuple(sorted(KEYS)), began)
    assert kept.ended_at is not None
    silent(engine, a=1)
    keeper.look()
    assert Cause.DRIVER_GONE not in {each.finding.cause for each in read_incidents(engine)}
    assert kept in read_incidents(engine)


KEYS = [str(game_key(name)) for name in ("Chess", "Go")]


def with_games(engine: Engine) -> None:
    """Give group a two games."""
    register_group(engine, "a", placing())
    record_seen(engine, dict(zip(KEYS, ("Chess", "Go"), strict=True)), 1, placing())


def test_a_silence_that_is_not_shared_says_nothing_of_the_store(engine: Engine) -> None:
    """While one process reports, the store is not asked and not named."""
    silent(engine, main=1, a=60, b=61)
    with locked(engine):
        assert problem(read_fleet(engine)) is None


@pytest.mark.parametrize("ago", [{"main": 60}, {"main": 20, "a": 300}], ids=str)
def test_a_process_that_is_silent_alone_is_not_blamed_on_a_store_that_takes_writes(
    engine: Engine, ago: dict[str, float]
) -> None:
    """One process says nothing of what processes share, unless a write is refused."""
    silent(engine, **ago)
    assert problem(read_fleet(engine)) is None


@pytest.mark.parametrize("state", ["running", "starting"])
def test_a_refused_write_and_one_silent_process_are_enough(engine: Engine, state: ProcessState) -> None:
    """Law of the unheard: where ingest is all that runs or starts, the store that silences it is named, not ingest."""
    silent(engine, main=40)
    set_state(engine, "ingest", "main", state, lease_ago=25)
    with locked(engine):
        judged = read_fleet(engine).judgement
    assert [each.kind for each in judged.problems] == ["store"]
    said = judged.problems[0].text.split("\n")[1]
    assert re.fullmatch(r"no process has reported for 4\d s; .* Find who holds its lock or fills its disk", said)
    assert "the control store takes no writes" in str(judged.drivers[0].liveness.reason)
    assert judged.headline == "No games yet; the control store takes no writes"


@pytest.mark.parametrize("ago", [45, 100], ids=["it beats", "Spark loads, and it does not beat"])
@pytest.mark.proves("G273")
def test_a_driver_that_was_starting_when_the_lock_came_is_silenced_as_the_others_are(engine: Engine, ago: int) -> None:
    """Law of the unheard: no driver has a problem of its own for a lease that the store let nobody renew."""
    with_games(engine)
    silent(engine, main=40, a=ago)
    set_state(engine, "group", "a", "starting", lease_ago=25)
    with locked(engine):
        judged = read_fleet(engine).judgement
    assert [each.kind for each in judged.problems] == ["store"]
    assert all("the control store takes no writes" in str(each.liveness.reason) for each in judged.drivers)


@pytest.mark.parametrize(("ago", "lease_ago"), [(200, 25), (100, 60)], ids=["too slow", "lost its lease before"])
def test_a_start_that_had_failed_before_the_lock_keeps_its_own_reason(engine: Engine, ago: int, lease_ago: int) -> None:
    """The store has no part in a fault that began before it took no writes."""
    silent(engine, main=40, a=ago)
    set_state(engine, "group", "a", "starting", lease_ago=lease_ago)
    with locked(engine):
        group = read_fleet(engine).judgement.driver("group", "a")
    assert group is not None
    assert "lost its lease" in str(group.liveness.reason)


def test_a_start_that_holds_its_lease_is_no_silence(engine: Engine) -> None:
    """While Spark loads a driver does not beat, and its lease says that it was heard: the store is not asked."""
    silent(engine, main=60)
    set_state(engine, "ingest", "main", "starting", lease_ago=-10)
    with locked(engine):
        judged = read_fleet(engine).judgement
    assert judged.silence is None
    assert judged.drivers[0].liveness.state == "starting"


def set_state(engine: Engine, kind: str, name: str, state: ProcessState, *, lease_ago: float) -> None:
    """Let a driver have said this last, and its lease have run out the given seconds ago."""
    Lease(engine, kind, name, 15).acquire()
    own = (drivers.c.kind == kind) & (drivers.c.name == name)
    held = (leases.c.kind == kind) & (leases.c.name == name)
    with engine.begin() as connection:
        connection.execute(update(drivers).where(own).values(state=state))
        connection.execute(update(leases).where(held).values(expires_at=leases.c.expires_at - 15 - lease_ago))


def refused_write_now(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return refused_write(connection)


def newest(fleet: Fleet) -> float:
    return max(each.heartbeat_at for each in fleet.drivers)
