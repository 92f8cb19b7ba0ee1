"""The Spark session of a driver: our own, or that of the platform on which it runs, such as Databricks.

The platform's is taken as it is, gets the settings that a running session takes, and is given back as it was found: no
JVM and no context is ever made or stopped, `PYSPARK_PYTHON` stays, and our jars are not needed. Our Python code is on
all of its machines, as a library of the cluster: nothing is sent to executors.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from listeners.callbacks import start_callbacks
from listeners.stream_id import parse_query_name
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.lake.storage.cloud import Jars
from pipeline.lake.storage.mounts import is_databricks
from pipeline.lake.storage.places import cloud_of
from pipeline.platforms.session.spark import TUNED, is_ours, spark_session
from pipeline.settings.tree import Paths, Settings

OLDEST: Final = (4, 0)
"""The oldest Spark whose Python and classes a driver can work with: Databricks Runtime 17.3.

Apache Spark 4.0.1 with Delta 4.0.0, and 4.1.1 with Delta 4.4.0, were tried by hand: a topic's rows land exactly once.
They refuse a landing table, as only 4.2 reads one to its end.
"""

NEWEST: Final = (4, 2)
"""The newest Spark that turnout was tried with: Databricks Runtime 19. 18 LTS has 4.1."""

_OF_THE_CLUSTER: Final = {
    "spark.scheduler.mode": "passes wait for a catch-up that runs",
    "spark.scheduler.listenerbus.eventqueue.streams.capacity": "metrics lack what happens in bursts",
    "spark.locality.wait": "tasks wait seconds for a core near their data",
}
"""Settings of `TUNED` that only a cluster's configuration sets, and what is lost without each: never a row."""

_POOLS: Final = "spark.scheduler.allocation.file"
_WITHOUT_POOLS: Final = (
    f"the cluster's spark_conf lacks {_POOLS}: catch-ups get as many cores as passes and commits, which should go first"
)

_OF_THE_PLATFORM: Final = (
    "spark.app.", "spark.authenticate", "spark.driver.", "spark.executorEnv.", "spark.hadoop.fs.file.", "spark.jars",
    "spark.master", "spark.sql.catalog.spark_catalog", "spark.sql.extensions", "spark.sql.ui.",
    "spark.sql.streaming.checkpointFileManagerClass", "spark.sql.warehouse.", "spark.ui.",
)  # fmt: skip
"""Beginnings of settings that are the platform's own."""

_OF_A_SESSION: Final = ("spark.sql.", "spark.databricks.delta.")
_SECRET: Final = re.compile(r"(?i)secret|password|token|access[.]?key|account\.key")
"""Names of settings with secrets, as Spark's `spark.redaction.regex` has them, and Azure's."""

_CREDENTIALS: Final[Mapping[Jars, tuple[str, ...]]] = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    "azure": (
        "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_USE_EMULATOR",
    ),
    "gcs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_BASE_URL"),
}  # fmt: skip
_STOCK: Final = ("org.apache.hadoop.", "com.google.cloud.hadoop.")  # packages of file systems that are no platform's

_log = logging.getLogger("turnout")


@contextmanager
def driver_session(
    settings: Settings, paths: Paths, app_name: str, *, light: bool = False, workers: str | None = None
) -> Iterator[SparkSession]:
    """Enter a block with the Spark session of this process; what was made for it is stopped, what was there stays.

    It is the platform's where `DATABRICKS_RUNTIME_VERSION` is set, or where other code runs one in this process.

    Raises:
        Refused: a jar is missing, this Spark is too old, or the platform's session is none that a driver can use.
    """
    require_version(pyspark.__version__)
    if not is_platforms():
        spark = spark_session(settings, paths, app_name, light=light, workers=workers)
        try:
            yield spark
        finally:
            spark.stop()
        return
    spark = _running_session()
    with _as_it_was(spark) as changes:
        _tune(spark, settings, changes)
        _say_what_lacks(spark, settings, paths)
        _reach_bucket(spark, paths, changes)
        with suppress(AttributeError, Py4JError):  # PySpark's own start serves as well
            start_callbacks(spark.sparkContext._gateway)  # noqa: SLF001 - as `spark_session`
        yield spark


def is_platforms(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a driver in this process uses a session that it did not make."""
    running = SparkContext._active_spark_context  # noqa: SLF001 - it has no public name
    return is_databricks(environ) or (running is not None and not is_ours(running))


def spark_conf(settings: Settings, pools: str = "") -> dict[str, str]:
    """Return what the `spark_conf` of a driver's cluster must have, as a running session takes none of it.

    It has the setting `spark.conf`, too, without what is the platform's own, and without secrets, which a cluster
    takes as references: `{{secrets/SCOPE/KEY}}`.

    Args:
        settings: of the environment.
        pools: where the cluster finds a copy of pipeline/data/streams/pools.xml, such as a `file:` URL to which an init
            script wrote it; empty: nowhere, and passes, commits and catch-ups share the cores evenly.
    """
    return {
        **{name: TUNED[name] for name in _OF_THE_CLUSTER},
        **({_POOLS: pools} if pools else {}),
        **{
            name: value
            for name, value in settings.spark.conf.items()
            if not name.startswith((*_OF_THE_PLATFORM, *_OF_A_SESSION)) and not _SECRET.search(name)
        },
    }


def session_conf(settings: Settings) -> dict[str, str]:
    """Return what a driver sets in a running session: the settings of SQL, of which those of `spark.conf` win."""
    every = {**{name: value for name, value in TUNED.items() if _is_of_a_session(name)}, **settings.spark.conf}
    return {name: value for name, value in every.items() if _is_of_a_session(name)}


def require_version(version: str) -> None:
    """Continue with a Spark that a driver can work with; of a newer one than was tried the log has a line.

    Raises:
        Refused: it is older.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else None
    if number is not None and number < OLDEST:
        raise Refused(
            f"This is Spark {version}, and turnout needs 4.0 or newer. Use Databricks Runtime 17.3, 18 or 19, or the "
            f"PySpark that ./turnout setup installs."
        )
    if number is None or number > NEWEST:
        _log.warning("turnout was not tried with Spark %s; the newest that it knows is 4.2", version)


def stop_queries(spark: SparkSession) -> None:
    """Stop the queries of turnout in a session, which may have others."""
    for query in spark.streams.active:
        if parse_query_name(query.name) is not None:
            query.stop()


def _is_of_a_session(name: str) -> bool:
    return name.startswith(_OF_A_SESSION) and not name.startswith(_OF_THE_PLATFORM)


def _running_session() -> SparkSession:
    """Return the session that runs in this process.

    `getActiveSession` and `builder.getOrCreate()` are how code of a job gets it. The latter would make one where there
    is none: so it is called only where this process has a context, or the address of a platform's JVM.

    Source: https://docs.databricks.com/aws/en/jobs/how-to/use-python-wheels-in-workflows
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        context, gateway = SparkContext._active_spark_context, SparkContext._gateway  # noqa: SLF001
        if context is None and gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
            raise Refused(
                "No Spark session runs in this process, and on Databricks turnout makes none. Start the driver as a "
                "Python wheel task of a job."
            )
        spark = SparkSession.builder.getOrCreate()
    if not hasattr(spark, "_jsparkSession"):
        raise Refused(
            "This is a session of Spark Connect, as standard and serverless compute have it. Run drivers on a classic "
            "job cluster with dedicated access (data_security_mode SINGLE_USER)."
        )
    return spark


@contextmanager
def _as_it_was(spark: SparkSession) -> Iterator["_Changes"]:
    """Enter a block that uses the session; afterwards stop our queries and undo the changes, while it still lives."""
    local: Any = spark.sparkContext
    pool = local.getLocalProperty("spark.scheduler.pool")
    changes = _Changes()
    try:
        yield changes
    finally:
        with suppress(PySparkException, Py4JError, OSError):
            stop_queries(spark)
            changes.undo()
            local.setLocalProperty("spark.scheduler.pool", pool)


class _Changes:
    """Changed settings with their earlier values; None: it was not set."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, str | None]] = []

    def set(self, conf: Any, name: str, value: str, before: str | None) -> None:
        """Change a setting of a session or of Hadoop; what it refuses raises, and is no change."""
        conf.set(name, value)
        self._made.append((conf, name, before))

    def undo(self) -> None:
        """Undo every change."""
        for conf, name, before in self._made:
            if before is None:
                conf.unset(name)
            else:
                conf.set(name, before)


def _tune(spark: SparkSession, settings: Settings, changes: _Changes) -> None:
    """Apply the settings that a running session accepts, and log the names of the others."""
    known = spark.conf.getAll
    refused = []
    for name, value in session_conf(settings).items():
        try:
            changes.set(spark.conf, name, value, known.get(name))
        except (PySparkException, Py4JError):
            refused.append(name)
    if refused:
        _log.warning("this session refuses settings, and its own hold: %s", ", ".join(refused))


def _say_what_lacks(spark: SparkSession, settings: Settings, paths: Paths) -> None:
    """Log once what the cluster's configuration lacks, and what that costs."""
    has = dict(spark.sparkContext.getConf().getAll())
    wanted = spark_conf(settings)
    lacks = {name: value for name, value in wanted.items() if has.get(name) != value}
    said = [
        f"{name}={value} ({_OF_THE_CLUSTER[name]})" if name in _OF_THE_CLUSTER else name
        for name, value in lacks.items()
    ]
    if said:
        _log.warning("the cluster's spark_conf lacks %s", join_limited(said, len(_OF_THE_CLUSTER) + 5))
    if _POOLS not in has:
        _log.warning(_WITHOUT_POOLS)
    if not paths.storage and is_databricks():
        _log.warning("the tables are in %s, which is lost with this cluster", paths.root)


def _reach_bucket(spark: SparkSession, paths: Paths, changes: _Changes) -> None:
    """Let the session read a bucket with our credentials, where it has none of its own.

    A platform reads external locations by a file system and with credentials of its own: then nothing is set. Hadoop's
    stock file systems get the configuration that a session of ours has, once the variables of this process name
    credentials or a server; by way of the running context, as a static setting comes too late. The values stay out of
    the configuration that pages of Spark show: it names where they are.
    """
    cloud = cloud_of(paths.storage)
    context: Any = getattr(spark.sparkContext, "_jsc", None)
    if cloud is None or context is None or not any(os.environ.get(name) for name in _CREDENTIALS[cloud.jars]):
        return
    conf = context.hadoopConfiguration()
    scheme = paths.storage.partition("://")[0]
    own = conf.get(f"fs.{scheme}.impl")
    if own is not None and not own.startswith(_STOCK):
        _log.info("%s is read by the platform's own %s", paths.storage, own)
        return
    for name, value in cloud.hadoop().items():
        changes.set(conf, name, value, conf.get(name))
