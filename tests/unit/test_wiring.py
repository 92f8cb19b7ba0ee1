"""How a driver's end is told."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from sqlalchemy import QueuePool, func, select, text
from sqlalchemy.exc import OperationalError

from listeners.metrics_schema import INGEST_MINUTE
from pipeline import wiring
from pipeline.base.errors import Refused
from pipeline.base.reasons import missing_commit
from pipeline.data.ingest.query import LandedRows
from pipeline.health.kinds.registry import registered
from pipeline.lake.storage import cloud
from pipeline.platforms.session.spark import waits_for_cores
from pipeline.settings.tree import Paths, load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers, group_runs
from pipeline.store.incidents import read_last_look
from pipeline.store.processes.drivers import bronze_readers, start_driver
from pipeline.store.processes.runs import begin_run, end_run, submit_stop
from pipeline.store.reports import write_backlog
from pipeline.telemetry.driver import Telemetry
from pipeline.wiring import _Driver, _DriverProcess, _publish_landed, _refusal_reported
from tests.postgres import Postgres
from tests.unit.listeners.controller_metrics import CONTROLLER_METRICS


@pytest.mark.parametrize(("kind", "name"), [("ingest", "main"), ("group", "a")])
def test_a_driver_that_refuses_to_go_on_says_so_where_the_dashboard_looks(
    kind: Literal["ingest", "group"], name: str, tmp_path: Path
) -> None:
    """A driver of either kind that ends with a sentence leaves it in the store: it is failed, not silent."""
    engine = open_store(*load(tmp_path, {}))
    start_driver(engine, kind, name, None)
    duty = _DriverProcess(kind, name, engine, threading.Event(), None)
    with pytest.raises(Refused, match="another bronze"), _refusal_reported(duty):
        raise Refused("This is another bronze.")
    with engine.connect() as connection:
        reported: Any = connection.execute(select(drivers.c.state, drivers.c.error)).one()
    assert tuple(reported) == ("failed", "This is another bronze.")
    engine.dispose()


def test_a_driver_keeps_two_connections(postgres: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three hundred drivers share what one server takes: with the pool of a dashboard each they would need 3,000."""
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": postgres.url()})
    monkeypatch.setattr(wiring, "stop_on_signals", lambda _: threading.Event())
    with wiring._driving(settings, paths, "group", "a") as duty:
        pool = duty.engine.pool
        assert isinstance(pool, QueuePool)
        assert (pool.size(), pool._max_overflow) == (2, 2)
    duty.engine.dispose()


class CountingStop(threading.Event):
    """A stop event that never comes, and keeps what was waited for it instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.is_set()


class JavaError(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """The text of an error of a call into the JVM."""

    def __init__(self) -> None:
        """Without a JVM."""

    def __str__(self) -> str:
        return "An error occurred in load.\n: java.lang.Exception: versions (1, 3) are not contiguous\n\tat x"


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (JavaError(), "java.lang.Exception: versions (1, 3) are not contiguous"),
        (PySparkException("the table is not readable"), "the table is not readable"),
    ],
)
@pytest.mark.proves("D13")
def test_d13_a_query_that_fails_at_its_start_is_started_again(
    tmp_path: Path, raised: Exception, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    """D13: Spark may refuse to load a source for a moment, as when a listing of its busy log lacks one commit."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "ingest", "main", None)
    stop, starts = CountingStop(), []

    def start() -> Any:
        starts.append(len(stop.waits))
        if len(starts) == 1:
            raise raised
        return SimpleNamespace(isActive=False, exception=lambda: None)

    telemetry = Telemetry(settings.metrics, paths, "ingest", "main", has_source=True)
    attached: Any = SimpleNamespace(errors=0)
    driver = _Driver(
        settings, _DriverProcess("ingest", "main", engine, stop, None, judges_fleet=True), telemetry, attached
    )
    assert driver.supervise(start, lambda: None, lambda: 0, once=False) == 0
    telemetry.close()
    engine.dispose()
    assert starts == [0, 1]
    exported = telemetry.exposition.snapshot().fleet
    assert exported is not None, "ingest exports the judgement for the alerts"
    kinds = ("store", "stream", *(each.name for each in registered()), "operation")
    assert exported.counts == {**dict.fromkeys(kinds, 0), "ingest": 1}
    assert telemetry.exposition.snapshot().controller_metrics is not None, "and what the alerts on the controller need"
    assert f"the ingest query failed: {sentence}" in caplog.messages


def test_a_driver_reports_at_once_what_a_pass_has_refused_anew(tmp_path: Path) -> None:
    """Refused rows waited for the next heartbeat; other passes do, so that a report costs no more than before."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "group", "a", None)
    evaluated, turns = list[int](), list[int]()

    class Turns:
        """A query that is active for six looks of its driver."""

        @property
        def isActive(self) -> bool:  # noqa: N802 - its name in Spark
            turns.append(len(turns))
            watchdog.has_news = turns[-1] in {2, 4}
            return turns[-1] < 6

        def exception(self) -> None:
            """Has none."""

    def evaluate(*, active: bool) -> None:
        evaluated.extend(turns[-1:] if active else ())

    watchdog: Any = SimpleNamespace(has_news=False, evaluate=evaluate, started=lambda: None)
    telemetry = Telemetry(settings.metrics, paths, "group", "a")
    duty = _DriverProcess("group", "a", engine, CountingStop(), None)
    attached: Any = SimpleNamespace(errors=0)
    query: Any = Turns()
    driver = _Driver(settings, duty, telemetry, attached, watchdog)
    assert driver.supervise(lambda: query, lambda: None, lambda: 0, once=False) == 0
    telemetry.close()
    engine.dispose()
    assert evaluated == [0, 2, 4], "the first look, and each that has news"


def test_ingest_leaves_its_minutes(tmp_path: Path) -> None:
    """Series: each commit to bronze, and the rows that wait before it, are in the minutes of the ingest driver."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "ingest", "main", None)
    write_backlog(engine, age_seconds=80.0, peak_seconds=80.0, rows=9, limit_seconds=60.0, reason=None)
    telemetry = Telemetry(settings.metrics, paths, "ingest", "main", has_source=True)
    attached: Any = SimpleNamespace(errors=0)
    driver = _Driver(
        settings, _DriverProcess("ingest", "main", engine, CountingStop(), None, judges_fleet=True), telemetry, attached
    )
    _publish_landed(telemetry, LandedRows(1, 50, {"malformed": 2, "unknown_game": 1}, None, time.time(), 0.1, {}))
    driver._heartbeat("running", 1, active=True, now=True)
    telemetry.close()
    engine.dispose()
    rows = DeltaTable(paths.metrics / INGEST_MINUTE.name).to_pyarrow_table().to_pylist()
    assert tuple(sum(row[name] for row in rows) for name in ("rows", "refused", "commits")) == (50, 3, 1)
    assert max(row["backlog_age_seconds"] or 0.0 for row in rows) >= 80.0


def test_ingest_goes_on_where_the_fleet_cannot_be_judged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A store that cannot be read whole ends no driver: the judgement is not exported, as the alert waits for."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "ingest", "main", None)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE registrations RENAME TO elsewhere"))
    telemetry = Telemetry(settings.metrics, paths, "ingest", "main", has_source=True)
    attached: Any = SimpleNamespace(errors=0)
    driver = _Driver(
        settings, _DriverProcess("ingest", "main", engine, CountingStop(), None, judges_fleet=True), telemetry, attached
    )
    ended: Any = SimpleNamespace(isActive=False, exception=lambda: None)
    telemetry.exposition.set_controller_metrics(CONTROLLER_METRICS)
    assert driver.supervise(lambda: ended, lambda: None, lambda: 0, once=False) == 0
    telemetry.close()
    engine.dispose()
    assert telemetry.exposition.snapshot().fleet is None
    assert telemetry.exposition.snapshot().controller_metrics is None, "what was read before is not the present"
    assert any(each.startswith("judging the fleet failed") for each in caplog.messages)


def test_nothing_is_exported_of_the_controller_while_the_control_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is never zero, and never what it was: in an outage these series are absent, and ingest goes on."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "ingest", "main", None)
    telemetry = Telemetry(settings.metrics, paths, "ingest", "main", has_source=True)
    attached: Any = SimpleNamespace(errors=0)
    driver = _Driver(
        settings, _DriverProcess("ingest", "main", engine, CountingStop(), None, judges_fleet=True), telemetry, attached
    )
    driver._heartbeat("running", 1, active=True, now=True)
    assert telemetry.exposition.snapshot().controller_metrics is not None

    def away(*_arguments: Any, **_options: Any) -> None:
        raise OperationalError("SELECT 1", {}, Exception("no route to host"))

    monkeypatch.setattr(wiring, "heartbeat", away)
    driver._heartbeat("running", 1, active=True, now=True)
    reported = {family.name for family in telemetry.exposition.collect()}
    assert not {each for each in reported if each.startswith(("turnout_controller", "turnout_operations"))}
    assert "turnout_fleet_judged_timestamp_seconds" in reported, "its age says that nothing is known"
    telemetry.close()
    engine.dispose()


@pytest.mark.proves("G210")
def test_ingest_judges_causes_only_where_no_controller_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A laptop without a controller has incidents, one with a controller has one process that keeps them.

    That they cannot be judged stops neither ingest nor the judgement of the fleet.
    """
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "ingest", "main", None)
    telemetry = Telemetry(settings.metrics, paths, "ingest", "main", has_source=True)
    attached: Any = SimpleNamespace(errors=0)
    driver = _Driver(
        settings, _DriverProcess("ingest", "main", engine, CountingStop(), None, judges_fleet=True), telemetry, attached
    )
    driver._heartbeat("running", 1, active=True, now=True)
    first = read_last_look(engine)
    assert first is not None
    assert first.kept_by == "ingest"
    start_driver(engine, "controller", "main", None)
    driver._heartbeat("running", 1, active=True, now=True)
    second = read_last_look(engine)
    assert second is not None
    assert second.looked_at == first.looked_at

    def broken(*_arguments: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(driver._keeper, "look", broken)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM drivers WHERE kind = 'controller'"))
    driver._heartbeat("running", 1, active=True, now=True)
    assert telemetry.exposition.snapshot().controller_metrics is not None
    assert caplog.messages[-1] == "judging causes failed, retrying: a bug"
    telemetry.close()
    engine.dispose()


@pytest.mark.proves("D13")
def test_d13_a_query_whose_failure_stays_is_no_hot_loop(tmp_path: Path) -> None:
    """D13: each start waits longer than the one before, and after three without progress the process gives up."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "group", "a", None)
    stop, starts = CountingStop(), []

    def start() -> Any:  # as Spark's query is once it has failed: its old failure is told at once, again and again
        starts.append(len(stop.waits))
        return SimpleNamespace(isActive=False, exception=lambda: RuntimeError("the old failure"))

    telemetry = Telemetry(settings.metrics, paths, "group", "a")
    attached: Any = SimpleNamespace(errors=0)
    driver = _Driver(settings, _DriverProcess("group", "a", engine, stop, None), telemetry, attached)
    assert driver.supervise(start, lambda: None, lambda: 0, once=False) == 1
    telemetry.close()
    assert starts == [0, 1, 2, 3]
    assert stop.waits == [5.0, 10.0, 15.0]
    with engine.connect() as connection:
        assert connection.scalar(select(drivers.c.error)) == "the old failure"
    engine.dispose()


@pytest.mark.parametrize(
    ("is_far", "waits"), [(True, "s for storage to answer"), (False, "s for its disk or its processor")]
)
def test_a_driver_that_storage_keeps_waiting_beats_and_says_so(tmp_path: Path, waits: str, *, is_far: bool) -> None:
    """Law: a driver whose main thread waits beats, after three heartbeats with how long it has waited, and for what."""
    settings, paths = load(tmp_path, {"TURNOUT_METRICS__HEARTBEAT_SECONDS": "0.5"})
    engine = open_store(settings, paths)
    start_driver(engine, "group", "a", None)
    stop, answers = threading.Event(), threading.Event()
    telemetry, attached = Telemetry(settings.metrics, paths, "group", "a"), SimpleNamespace(errors=0)
    driver = _Driver(settings, _DriverProcess("group", "a", engine, stop, None, None, is_far), telemetry, attached)  # type: ignore[arg-type]

    def start() -> Any:
        answers.wait(60)
        stop.set()
        return SimpleNamespace(isActive=False, exception=lambda: None, stop=lambda: None)

    running = threading.Thread(target=driver.supervise, args=(start, lambda: None, lambda: 7), kwargs={"once": False})
    running.start()
    said, until = "", time.monotonic() + 30
    while not said.startswith("has waited") and time.monotonic() < until:
        with engine.connect() as connection:
            state, frontier, said = connection.execute(
                select(drivers.c.state, drivers.c.frontier_seq, func.coalesce(drivers.c.error, ""))
            ).one()
    answers.set()
    running.join()
    telemetry.close()
    engine.dispose()
    assert (state, frontier) == ("running", 7)
    assert said.endswith(waits)
    assert int(said.split()[2]) >= 2, "a start on a busy machine is no trouble"


def test_a_driver_without_executors_says_what_it_waits_for(tmp_path: Path) -> None:
    """Law: a driver that a cluster gave no core is running, and status says why nothing moves."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "group", "a", None)
    telemetry, attached = Telemetry(settings.metrics, paths, "group", "a"), SimpleNamespace(errors=0)
    duty = _DriverProcess("group", "a", engine, CountingStop(), None)
    driver = _Driver(settings, duty, telemetry, attached, waits=lambda: waits_for_cores(spark_with(1)))  # type: ignore[arg-type]
    driver._heartbeat("running", 1, active=True, now=True)
    driver._waits = lambda: waits_for_cores(spark_with(2))
    with engine.connect() as connection:
        said = connection.execute(select(drivers.c.state, drivers.c.error)).one()
    driver._heartbeat("running", 1, active=True, now=True)
    with engine.connect() as connection:
        assert connection.execute(select(drivers.c.state, drivers.c.error)).one() == ("running", None)
    assert said.state == "running"
    assert said.error.startswith("waits for cores: spark://master:7077 has given it no executor.")
    telemetry.close()
    engine.dispose()


def spark_with(known: int) -> Any:
    """A session of a cluster that knows a number of block managers, the driver's among them."""
    scala = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: known))
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master="spark://master:7077", _jsc=SimpleNamespace(sc=lambda: scala))
    )


SPARK_GAP = (
    "[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (10100, 10101, 10103, 10104) are not contiguous. \nA gap in the delta "
    "log between versions 10100 and 10104 was detected while trying to load version -1."
)
SPARK_END = (
    "[DELTA_MISSING_FILES_UNEXPECTED_VERSION] Delta stream cannot resume from version 10102; transaction log starts at "
    "10103. Log files may have been deleted by log retention."
)
KERNEL_GAP = (
    "Kernel error: Generic delta kernel error: Expected contiguous commit files, but found gap: ParsedLogPath { "
    'filename: "00000000000000010101.json", extension: "json", version: 10101, file_type: Commit } -> ParsedLogPath { '
    'filename: "00000000000000010103.json", extension: "json", version: 10103, file_type: Commit }'
)
GAP = "The log of a Delta table has commit 10103 but not commit 10102"


@pytest.mark.parametrize("text", [SPARK_GAP, SPARK_END, KERNEL_GAP])
def test_a_log_that_seems_to_lack_a_commit_is_known_by_what_its_reader_says(text: str) -> None:
    """The sentence names the missing commit, whoever reads the log."""
    assert missing_commit(text) == GAP
    assert missing_commit(text.replace("not contiguous", "fine").replace("resume", "go").replace("found", "no")) is None


@dataclass
class Supervised:
    """A driver without Spark, whose clock goes on with what it waits."""

    driver: _Driver
    stop: CountingStop
    error: Callable[[], str | None]


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "group", "a", None)
    stop = CountingStop()
    clock = SimpleNamespace(monotonic=lambda: 1000.0 + sum(each or 0 for each in stop.waits), time=time.time)
    monkeypatch.setattr(wiring, "time", clock)
    telemetry = Telemetry(settings.metrics, paths, "group", "a")
    attached: Any = SimpleNamespace(errors=0)

    def error() -> str | None:
        with engine.connect() as connection:
            return connection.scalar(select(drivers.c.error))

    yield Supervised(
        _Driver(settings, _DriverProcess("group", "a", engine, stop, None), telemetry, attached), stop, error
    )
    telemetry.close()
    engine.dispose()


def ended(text: str | None) -> Any:
    return SimpleNamespace(isActive=False, exception=lambda: text)


@pytest.mark.proves("G7")
def test_a_listing_that_lacks_a_commit_takes_no_restart_of_the_budget(supervised: Supervised) -> None:
    """Two writers commit while a reader lists: however often that is, the query goes on within a second."""
    queries = iter([*[ended(each) for each in (SPARK_GAP, SPARK_END, KERNEL_GAP) * 5], ended(None)])
    assert supervised.driver.supervise(lambda: next(queries), lambda: None, lambda: 0, once=False) == 0
    assert sum(each or 0 for each in supervised.stop.waits) <= 10
    assert supervised.error() is None


def test_a_planner_that_starts_late_takes_no_restart_of_the_budget(supervised: Supervised) -> None:
    """On a busy machine Spark gives up on a Python process after 10 s, and the next start mostly succeeds."""
    late = "SparkException: Python worker failed to connect back."
    queries = iter([*[ended(late)] * 5, ended(None)])
    assert supervised.driver.supervise(lambda: next(queries), lambda: None, lambda: 0, once=False) == 0
    assert supervised.error() is None


@pytest.mark.proves("G7")
def test_a_commit_that_stays_missing_ends_the_driver_with_its_number(supervised: Supervised) -> None:
    """A gap that lasts half a minute counts as any other failure, and the error names the missing commit."""
    assert supervised.driver.supervise(lambda: ended(SPARK_GAP), lambda: None, lambda: 0, once=False) == 1
    assert [each for each in supervised.stop.waits if each != 0.5] == [5.0, 10.0, 15.0]
    assert supervised.stop.waits.count(0.5) <= 60
    assert supervised.error() == GAP


def test_a_driver_stays_while_the_store_of_its_tables_does_not_serve(supervised: Supervised) -> None:
    """However long a store is away, nobody need start its drivers again; once it serves, failures count as ever."""
    answers = iter([*[True] * 20, False])
    supervised.driver._storage_is_down = lambda: next(answers)
    assert supervised.driver.supervise(lambda: ended("503 SlowDown"), lambda: None, lambda: 0, once=False) == 1
    assert next(answers, None) is None
    assert supervised.stop.waits == [5.0, 10.0, *[15.0] * 21], "no hot loop, and soon back"


@pytest.mark.parametrize(("url", "is_away"), [("", False), ("s3://bucket/prod", True)])
def test_only_a_far_store_is_away(url: str, is_away: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder's errors another process may know better, so the driver ends as ever."""
    monkeypatch.setattr(cloud, "RETRY", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert wiring._storage_is_down(Paths(tmp_path, url)) is is_away


FULL = [
    OSError(28, "No space left on device"),
    OperationalError("INSERT", {}, Exception("database or disk is full")),
    DeltaError("Generic LocalFileSystem error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("failing", ["start", "meanwhile"])
@pytest.mark.proves("D13")
def test_a_full_disk_is_waited_for_as_long_as_any_failure(
    supervised: Supervised, full: Exception, failing: str
) -> None:
    """Wherever a driver meets a full disk, it fails four times before it ends, and goes on when there is space."""
    wrong = [full] * 3

    def fail(*wanted: str) -> None:
        if failing in wanted and wrong:
            raise wrong.pop()

    def start() -> Any:
        fail("start")
        left = iter([True, False] if failing == "meanwhile" else [False])
        return Query(left)

    assert supervised.driver.supervise(start, lambda: fail("meanwhile"), lambda: 0, once=False) == 0
    assert [each for each in supervised.stop.waits if each != 0.5] == [5.0, 10.0, 15.0]
    wrong += [full] * 4
    assert supervised.driver.supervise(start, lambda: fail("meanwhile"), lambda: 0, once=False) == 1
    assert not wrong
    assert "full" in str(supervised.error()) or "No space" in str(supervised.error())


class Query:
    """A query that is active as often as told, and has not failed."""

    def __init__(self, active: Iterator[bool]) -> None:
        self._active = active

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return next(self._active, False)

    def stop(self) -> None:
        pass

    def exception(self) -> None:
        return None


def test_a_driver_says_with_its_heartbeats_from_where_it_reads(tmp_path: Path) -> None:
    """Law: maintenance on another machine knows what a running driver still reads, and what a stopped one would."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    start_driver(engine, "group", "a", None)
    telemetry, attached = Telemetry(settings.metrics, paths, "group", "a"), SimpleNamespace(errors=0)
    duty = _DriverProcess("group", "a", engine, CountingStop(), None)
    versions = iter([7, None, 9])
    driver = _Driver(settings, duty, telemetry, attached, reads_from=lambda: next(versions))  # type: ignore[arg-type]
    said = []
    for state in ("running", "running", "stopped"):
        driver._heartbeat(state, 1, active=False, now=True)
        said += [each.reads_from for each in bronze_readers(engine)]
    telemetry.close()
    engine.dispose()
    assert said == [7, 7, 9]


@pytest.mark.parametrize("how", ["stop requested", "run ended", "run forgotten", "run of another group"])
def test_a_driver_ends_in_order_where_its_run_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Law: the control store alone stops a driver, as no signal reaches a job: also one whose run was given up."""
    monkeypatch.setattr(wiring, "_LOOP_SECONDS", 0.02)
    settings, paths = load(tmp_path, {"TURNOUT_METRICS__HEARTBEAT_SECONDS": "0.5"})
    engine = open_store(settings, paths)
    run_id = begin_run(engine, "a")
    assert run_id is not None
    start_driver(engine, "group", "a", None, run_id)
    stop, asked = threading.Event(), threading.Event()
    telemetry = Telemetry(settings.metrics, paths, "group", "a")
    attached: Any = SimpleNamespace(errors=0)
    driver = _Driver(settings, _DriverProcess("group", "a", engine, stop, None, run_id), telemetry, attached)

    def meanwhile() -> None:
        if asked.is_set():
            return
        assert not stop.is_set(), "a run that is wanted goes on"
        asked.set()
        if how == "stop requested":
            submit_stop(engine, run_id)
        elif how == "run ended":
            end_run(engine, run_id, "what started it ended before its process was known", died=False)
        elif how == "run forgotten":
            with engine.begin() as connection:
                connection.execute(group_runs.delete())
        else:
            with engine.begin() as connection:
                connection.execute(group_runs.update().values(group_name="b"))

    query: Any = SimpleNamespace(isActive=True, exception=lambda: None, stop=lambda: None)
    assert driver.supervise(lambda: query, meanwhile, lambda: 0, once=False) == 0
    telemetry.close()
    with engine.connect() as connection:
        assert connection.scalar(select(drivers.c.state)) == "stopped"
    engine.dispose()
