"""The one place that builds a SparkSession: jars, Delta, and the settings that make small machines fast.

Drivers get theirs from `driver.driver_session`, which knows sessions of others, too.
"""

import os
import re
import shlex
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from listeners.callbacks import start_callbacks
from pipeline.base.private_files import make_folder
from pipeline.lake.storage.cloud import Cloud
from pipeline.lake.storage.places import cloud_of
from pipeline.platforms.local.archive import archives, own_folders
from pipeline.platforms.local.jars import spark_jars, store_jars
from pipeline.platforms.session.folder import session_folder, takes_sockets
from pipeline.settings.tree import Paths, Settings

TUNED: Final = {  # reasons and measurements: docs/performance.md
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",  # rows of 25 kB would fill more than an array holds
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.listenerbus.eventqueue.streams.capacity": "50000",
    "spark.locality.wait": "0",
    "spark.scheduler.mode": "FAIR",  # a pass gets the next free core before a catch-up does: streams/pools.xml
    # One task reads small inputs, so that a game's rows of several bronze commits go into one file.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.files.maxPartitionBytes": "16m",
    # Without native Hadoop libraries the stock local file system starts a process for each chmod.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
}

_LOCAL: Final = "spark.local.dir"
_SOCKETS: Final = "spark.python.unix.domain.socket"
_made: weakref.WeakSet[SparkContext] = weakref.WeakSet()
_POOLS: Final = Path(__file__).parents[2] / "data" / "streams" / "pools.xml"
_JVM: Final = "-XX:+UseSerialGC -XX:-UsePerfData"
_LIGHT_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"  # the first tier alone gets 48m: too small


def spark_session(
    settings: Settings, paths: Paths, app_name: str, *, light: bool = False, workers: str | None = None
) -> SparkSession:
    """Start the Spark session of this process, or return the existing one.

    The JVM of a `light` session compiles quickly rather than well: it ends soon, or leaves the work to Python.
    On this machine the process of the module `workers` forks the Python workers, by default Spark's own.

    Raises:
        Refused: a jar is missing.
    """
    is_local = settings.spark.master.startswith("local")
    if is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # workers would otherwise use another Python
    else:
        os.environ.setdefault("PYSPARK_PYTHON", "python{}.{}".format(*sys.version_info))  # of the executors' machines
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else a machine that cannot resolve its own name fails
    cloud = cloud_of(paths.storage)
    jars = (*spark_jars(), *(store_jars(cloud.jars) if cloud else ()))
    class_path = ":".join(str(jar) for jar in jars)
    ours = {
        "spark.master": settings.spark.master,
        "spark.app.name": app_name,
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.driver.extraClassPath": class_path,  # the file system class must be on the system class path
        "spark.driver.extraJavaOptions": f"{_JVM} {_LIGHT_JVM if light else ''}".strip(),
        "spark.scheduler.allocation.file": _POOLS.as_uri(),
        "spark.sql.warehouse.dir": str(paths.root / "warehouse"),
        **TUNED,
        **(_bucket_conf(cloud) if cloud else {}),
    }
    if is_local:
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        ours |= {"spark.python.daemon.module": workers} if workers else {}
        ours |= {"spark.authenticate": "true"}  # its ports would obey any user of the machine; Spark makes the secret
    else:
        packages, code = archives()
        ours |= {
            "spark.jars": ",".join(str(jar) for jar in jars),
            "spark.archives": f"{packages}#packages,{code}#turnout",
            # The first two are in the folder of each executor; planners of sources run on this machine.
            "spark.executorEnv.PYTHONPATH": ":".join(["turnout", "packages", *own_folders()]),
        }
    running = SparkContext._active_spark_context  # noqa: SLF001 - it has no public name
    if running is None and _LOCAL not in settings.spark.conf and "," not in str(paths.spark):  # it separates folders
        folder = session_folder(paths.spark)
        ours[_LOCAL] = str(folder)
        if is_local and takes_sockets(folder):  # else the workers' daemon forks for each connection to its port
            ours |= {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": str(folder)}
    _start_jvm(ours, settings.spark.conf, paths.spark)
    start_callbacks(SparkContext._gateway)  # noqa: SLF001 - PySpark's own would obey any user of the machine
    spark = SparkSession.builder.config(map={**ours, **settings.spark.conf}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if running is None:
        _made.add(spark.sparkContext)
    return spark


def is_ours(context: SparkContext) -> bool:
    """Return whether `spark_session` made a context."""
    return context in _made


def works_here(spark: SparkSession) -> bool:
    """Return whether all that works for a session is below this process: its JVM is ours, and runs the tasks itself."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - it has no public name
    return _is_local(spark.sparkContext) and getattr(gateway, "proc", None) is not None


def _is_local(context: SparkContext) -> bool:
    return re.match(r"local(\[|$)", str(context.master)) is not None


def waits_for_cores(spark: SparkSession) -> str | None:
    """Return that a cluster has given this driver no executor, as a clause; None where it has one, or needs none.

    None also where a platform's context does not say: its own pages do.
    """
    context = spark.sparkContext
    if _is_local(context):
        return None
    try:
        status: Any = context._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - PySpark has no name for it
        executors = int(status.size())
    except (AttributeError, TypeError, Py4JError):
        return None
    if executors > 1:  # the driver itself is one
        return None
    return f"waits for cores: {context.master} has given it no executor. Free cores there, or add a worker"


def _bucket_conf(cloud: Cloud) -> dict[str, str]:
    """Return what Spark needs to read an object store."""
    return {
        **{f"spark.hadoop.{name}": value for name, value in cloud.hadoop().items()},
        **{f"spark.executorEnv.{name}": value for name, value in cloud.variables().items()},
    }


def properties(conf: Mapping[str, str]) -> str:
    """Return a configuration as the text of a Java properties file, in ASCII."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    letters = (chr(int.from_bytes(units[at : at + 2])) for at in range(0, len(units), 2))
    return "".join(each if each.isascii() and each.isalnum() else f"\\u{ord(each):04x}" for each in letters)


def _start_jvm(ours: Mapping[str, str], given: Mapping[str, str], folder: Path) -> None:
    """Start this process's JVM if it has none.

    Options that spark-submit needs before a session exists are given twice: ours on its command line, the setting
    `spark.conf` in a file, as it may hold secrets and every user of the machine can read command lines.
    """
    shown = SparkConf(loadDefaults=False).setAll([(key, ours[key]) for key in ours.keys() - given.keys()])
    with _submit_arguments(given, folder):
        SparkContext._ensure_initialized(conf=shown)  # noqa: SLF001 - a session's builder puts all on the command line


@contextmanager
def _submit_arguments(given: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Give spark-submit a configuration in a file of mode 0600 for the block."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    with _private_file(properties(given), folder) as file:
        named = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{named} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


@contextmanager
def _private_file(text: str, folder: Path) -> Iterator[Path]:
    """Yield a file of mode 0600 with a text: in memory where the system has such files, else in the folder.

    A process that is killed leaves nothing in memory; of a folder of its owner alone it may leave a file there.
    """
    own = Path(f"/proc/{os.getpid()}/fd")
    if hasattr(os, "memfd_create") and own.is_dir():
        with os.fdopen(os.memfd_create("turnout"), "w", encoding="ascii") as memory:
            os.fchmod(memory.fileno(), 0o600)
            memory.write(text)
            memory.flush()
            yield own / str(memory.fileno())
        return
    make_folder(folder)
    with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=folder, suffix=".conf") as file:
        file.write(text)
        file.flush()
        yield Path(file.name)
