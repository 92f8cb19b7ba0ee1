"""Drivers use the session of a platform as it is, and say which settings its cluster lacks."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaPackage
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from listeners import java
from pipeline.base.errors import Refused
from pipeline.data import log_tail
from pipeline.data.ingest.sources.kind import Begin
from pipeline.data.ingest.sources.landing import Landing
from pipeline.lake.storage.mounts import RUNTIME
from pipeline.lake.storage.places import located
from pipeline.platforms.session import spark as session
from pipeline.platforms.session.driver import driver_session, is_platforms, require_version, session_conf, spark_conf
from pipeline.platforms.session.spark import TUNED, waits_for_cores, works_here
from pipeline.settings.parsing import parse_bytes
from pipeline.settings.source import Source
from pipeline.settings.tree import Ingest, Paths, Settings, Spark


class Conf:
    """A session's settings; it refuses some, as Spark refuses static ones."""

    def __init__(self, *refused: str, **given: str) -> None:
        self.held, self.refused = {"spark.sql.shuffle.partitions": "7", **given}, refused

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return dict(self.held)

    def set(self, name: str, value: str) -> None:
        if name in self.refused:
            raise Py4JError("CANNOT_MODIFY_CONFIG")
        self.held[name] = value

    def unset(self, name: str) -> None:
        del self.held[name]


class Query:
    def __init__(self, name: str | None) -> None:
        self.name, self.stopped = name, False

    def stop(self) -> None:
        self.stopped = True


class Running:
    """A session that other code made."""

    def __init__(self, *refused: str, hadoop: dict[str, str] | None = None, context: Mapping[str, str] = {}) -> None:
        self.conf, self.stopped, self.pool = Conf(*refused), False, "of others"
        self.streams = SimpleNamespace(active=[Query("turnout-ingest-main"), Query("theirs"), Query(None)])
        self.hadoop = {} if hadoop is None else hadoop
        configuration = SimpleNamespace(get=self.hadoop.get, set=self.hadoop.__setitem__, unset=self.hadoop.__delitem__)
        self.sparkContext = SimpleNamespace(
            getConf=lambda: SimpleNamespace(getAll=lambda: list(context.items())),
            getLocalProperty=lambda _name: self.pool,
            setLocalProperty=self.set_local,
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: configuration),
            _gateway=SimpleNamespace(_callback_server="it runs"),
        )
        self._jsparkSession = None

    def set_local(self, _name: str, value: str) -> None:
        self.pool = value

    def stop(self) -> None:
        self.stopped = True


@contextmanager
def driving(running: Running, paths: Paths, settings: Settings | None = None) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RUNTIME, "19.0")
        patch.setattr(SparkSession, "getActiveSession", lambda: running)
        with driver_session(settings or Settings(), paths, "turnout-test") as spark:
            yield spark


def test_a_session_of_the_platform_is_given_back_as_it_was(tmp_path: Path) -> None:
    """No setting, query or pool of ours stays behind, and the session and the queries of others go on."""
    running = Running()
    with driving(running, Paths(tmp_path)) as spark:
        assert spark is running
        assert running.conf.held["spark.sql.session.timeZone"] == "UTC"
        assert running.conf.held["spark.sql.shuffle.partitions"] == "2"
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "pass")
    assert running.conf.held == {"spark.sql.shuffle.partitions": "7"}
    assert [query.stopped for query in running.streams.active] == [True, False, False]
    assert (running.stopped, running.pool) == (False, "of others")


def test_settings_that_a_session_refuses_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A setting that a platform forbids stops nothing: one line names all of them."""
    names = ("spark.sql.codegen.factoryMode", "spark.sql.files.minPartitionNum")
    with caplog.at_level(logging.WARNING), driving(Running(*names), Paths(tmp_path)):
        pass
    (line,) = [each.message for each in caplog.records if "refuses settings" in each.message]
    assert line.endswith(", ".join(names))


def test_a_driver_names_settings_that_its_cluster_lacks_with_their_cost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line names each setting that the cluster lacks, and none where it has them; no row depends on them."""
    settings = Settings(spark=Spark(conf={"spark.task.maxFailures": "8"}))
    with caplog.at_level(logging.WARNING), driving(Running(), Paths(tmp_path, "s3://bucket/prod"), settings):
        pass
    first, second = (each.message for each in caplog.records)
    assert "spark.scheduler.mode=FAIR (passes wait for a catch-up that runs)" in first
    assert "spark.task.maxFailures" in first
    assert "spark.scheduler.allocation.file" in second
    caplog.clear()
    whole = spark_conf(settings, "file:/databricks/pools.xml")
    with (
        caplog.at_level(logging.WARNING),
        driving(Running(context=whole), Paths(tmp_path, "s3://bucket/prod"), settings),
    ):
        pass
    assert caplog.records == []


def test_tables_on_a_clusters_disk_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A driver's disk goes with its cluster, so a driver says that its tables will."""
    with caplog.at_level(logging.WARNING), driving(Running(), Paths(tmp_path)):
        pass
    assert f"the tables are in {tmp_path}, which is lost with this cluster" in caplog.messages


def test_each_setting_of_ours_goes_one_way() -> None:
    """Each tuned setting is the cluster's, the session's or the platform's own, and none is two of them."""
    cluster, running = spark_conf(Settings()), session_conf(Settings())
    assert cluster.keys().isdisjoint(running)
    assert cluster == {
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.listenerbus.eventqueue.streams.capacity": "50000",
        "spark.locality.wait": "0",
    }
    assert set(TUNED) - cluster.keys() - running.keys() == {
        "spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.ui.enabled", "spark.ui.showConsoleProgress",
        "spark.sql.ui.retainedExecutions", "spark.ui.retainedJobs", "spark.ui.retainedStages",
        "spark.sql.streaming.checkpointFileManagerClass", "spark.hadoop.fs.file.impl",
    }  # fmt: skip


def test_the_setting_spark_conf_goes_to_cluster_and_session_without_secrets() -> None:
    """The setting wins over ours where a platform lets it, and no secret is written into a job's definition."""
    conf = {
        "spark.sql.shuffle.partitions": "16",
        "spark.scheduler.mode": "FIFO",
        "spark.speculation": "true",
        "spark.master": "local[8]",
        "spark.driver.memory": "9g",
        "spark.sql.extensions": "mine",
        "spark.hadoop.fs.s3a.secret.key": "canary",
        "spark.hadoop.fs.azure.account.key.x": "canary",
    }
    settings = Settings(spark=Spark(conf=conf))
    cluster = spark_conf(settings, "file:/pools.xml")
    assert cluster["spark.scheduler.mode"] == "FIFO"
    assert cluster.keys() - TUNED.keys() == {"spark.speculation", "spark.scheduler.allocation.file"}
    assert session_conf(settings)["spark.sql.shuffle.partitions"] == "16"
    assert "canary" not in str(cluster) + str(session_conf(settings))
    assert "spark.sql.extensions" not in session_conf(settings)


@pytest.mark.parametrize("version", ["3.5.2", "3.4", "2.4.8"])
def test_an_older_spark_is_refused(version: str) -> None:
    """A Spark without the classes of 4.0 is refused in one sentence that names what to use."""
    with pytest.raises(Refused, match=rf"This is Spark {version}, and turnout needs 4.0.*Runtime 17.3, 18 or 19"):
        require_version(version)


@pytest.mark.parametrize(
    ("version", "warns"), [("4.0.0", False), ("4.1.0", False), ("4.2.0", False), ("4.3.0.dev1", True), ("dev", True)]
)
def test_a_newer_spark_is_tried(version: str, *, warns: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The Sparks of Runtimes 17.3, 18 and 19 are known; another one is used, and the log says that nobody tried it."""
    with caplog.at_level(logging.WARNING):
        require_version(version)
    assert bool(caplog.records) is warns


def test_without_a_running_session_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a platform a second context is undefined behaviour, so outside a task a driver makes none and is refused."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.setenv(RUNTIME, "19.0")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", never)
    with (
        pytest.raises(Refused, match="No Spark session runs in this process"),
        driver_session(Settings(), Paths(tmp_path), "t"),
    ):
        pass


def test_a_session_of_connect_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard and serverless compute have no JVM within reach: a driver says which compute it needs."""
    monkeypatch.setenv(RUNTIME, "19.0")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: SimpleNamespace(client="connect"))
    with (
        pytest.raises(Refused, match="dedicated access"),
        driver_session(Settings(), Paths(tmp_path), "t"),
    ):
        pass


def test_a_session_is_the_platforms_unless_we_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of Databricks decides, and elsewhere whether the context that runs is ours."""
    context = SparkContext.__new__(SparkContext)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert (is_platforms({}), is_platforms({RUNTIME: "19.0"})) == (False, True)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    assert is_platforms({})
    session._made.add(context)
    assert not is_platforms({})


OURS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "canary", "AWS_REGION": "eu-west-1"}


def test_a_wrong_address_leaves_the_session_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is refused on its way in undoes what it had set by then."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    running = Running()
    with pytest.raises(Refused, match="AWS_ENDPOINT_URL"), driving(running, Paths(tmp_path, "s3://bucket/prod")):
        pass
    assert running.conf.held == {"spark.sql.shuffle.partitions": "7"}


@pytest.mark.parametrize(
    ("environ", "own", "sets"),
    [
        (OURS, None, True),
        (OURS, "org.apache.hadoop.fs.s3a.S3AFileSystem", True),
        (OURS, "com.databricks.sql.acl.fs.CredentialScopeFileSystem", False),
        ({"AWS_REGION": "eu-west-1"}, None, False),
    ],
)
def test_a_bucket_is_read_with_our_credentials_where_the_platform_has_none(
    environ: dict[str, str], own: str | None, *, sets: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is set over a file system of the platform's own, nor without credentials of ours; and never a secret."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    given = {} if own is None else {"fs.s3.impl": own}
    running = Running(hadoop=dict(given))
    with driving(running, Paths(tmp_path, "s3://bucket/prod")):
        assert (running.hadoop != given) is sets
        assert (running.hadoop.get("fs.s3a.endpoint.region") == "eu-west-1") is sets
        assert "canary" not in str(running.hadoop)
    assert running.hadoop == given


def test_a_context_that_does_not_say_its_executors_holds_nothing_up() -> None:
    """Where a platform's context does not tell its executors, a driver reports no wait for cores."""

    def refused() -> None:
        raise Py4JError("Method getExecutorMemoryStatus([]) does not exist")

    for context in (
        SimpleNamespace(master="spark://10.0.0.1:7077", _jsc=None),
        SimpleNamespace(master="spark://10.0.0.1:7077", _jsc=SimpleNamespace(sc=refused)),
    ):
        spark: Any = SimpleNamespace(sparkContext=context)
        assert waits_for_cores(spark) is None


def test_the_first_class_that_a_spark_has_is_taken() -> None:
    """A class that moved is found in its new place or its old one; without any, None says so."""

    class Jvm:
        def __getattr__(self, name: str) -> object:
            if name == "refused":
                raise Py4JError("refused does not exist in the JVM")
            return JavaClass.__new__(JavaClass) if name == "old" else JavaPackage.__new__(JavaPackage)

    assert isinstance(java.java_class(Jvm(), "refused", "new", "old"), JavaClass)
    assert java.java_class(Jvm(), "new", "refused") is None
    assert java.java_class(None, "old") is None


def test_a_spark_that_cannot_end_a_landing_table_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 4.0 and 4.1 lack what a bounded read needs: ingest says so at its start, and reads topics all the same."""
    monkeypatch.setattr(log_tail, "_BOUNDED", "pyspark.sql.streaming.not_there")
    source = Landing(Source(), located(tmp_path / "landing"))
    spark: Any = None
    begin: Any = Begin.__new__(Begin)
    with pytest.raises(Refused, match=r"cannot read a landing table: it needs 4\.2"):
        source.read(spark, Ingest(), begin)


def test_the_landing_source_is_imported_without_that_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ingest from a topic imports the landing source, too, and must not fail by it."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    spec = spec_from_file_location("log_tail_again", log_tail.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, again)
    spec.loader.exec_module(again)
    assert again.TailReader


@pytest.mark.parametrize(
    ("text", "size"),
    [("64m", 64 << 20), ("1", 1), ("10b", 10), ("2K", 2048), ("3kb", 3072), ("1gb", 1 << 30), (" 1t ", 1 << 40)],
)
def test_sizes_are_read_as_spark_reads_them(text: str, size: int) -> None:
    """`ingest.max_bytes` means what it meant when Spark parsed it."""
    assert parse_bytes("ingest.max_bytes", text) == size


@pytest.mark.parametrize("text", ["", "m", "1.5g", "-1", "64 m", "1x"])
def test_a_wrong_size_is_refused(text: str) -> None:
    """A wrong size is one sentence with the setting's name."""
    with pytest.raises(Refused, match=r"ingest\.max_bytes is"):
        parse_bytes("ingest.max_bytes", text)


@pytest.mark.parametrize(
    ("master", "has_jvm", "here"),
    [("local[2]", True, True), ("local", True, True), ("spark://host:7077", True, False), ("local[8]", False, False)],
)
def test_a_driver_knows_whether_its_work_is_below_it(
    monkeypatch: pytest.MonkeyPatch, master: str, *, has_jvm: bool, here: bool
) -> None:
    """Load: executors elsewhere, or a platform's JVM, are not among the driver's processes, and it says so."""
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    for gateway in (SimpleNamespace(proc=object() if has_jvm else None), *([] if has_jvm else [None])):
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        assert works_here(spark) is here  # type: ignore[arg-type]
