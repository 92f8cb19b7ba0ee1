"""The `spark` writer, for tables to which only Spark may commit: tasks write into a staging folder, Spark appends.

Spark compares no cursor; it only skips a version that is not above the table's. So each write first reads the newest
snapshot, and between that read and the write only the lease keeps a second owner away (law L10).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import pyarrow as pa
from delta.tables import DeltaTable as SparkDelta
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlalchemy.exc import SQLAlchemyError

from listeners.java import java_class
from pipeline.base.errors import Refused, Transient
from pipeline.base.failpoints import effect, hit
from pipeline.base.names import GameKey
from pipeline.base.reasons import innermost
from pipeline.data.contracts.columns import merge
from pipeline.lake.delta.columns import arrow_of, json_of, merges_of, require_same_merges
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.table import TableConflict
from pipeline.lake.storage.location import Location

Holds: TypeAlias = Callable[[GameKey], bool]
"""Returns whether this driver may start a write to a game's table now."""

_SESSIONS: Final = ("org.apache.spark.sql.classic.SparkSession", "org.apache.spark.sql.SparkSession")
"""The class of sessions in Spark 4, and where it was before."""

POOL_OF_COMMITS: Final = "commit"
"""The scheduler pool of the appends, see pools.xml: finished rows wait for them."""


class SparkTable:
    """A game's table to which Spark commits, with the cursor of one application id; for one thread at a time."""

    def __init__(self, spark: SparkSession, path: Location, app_id: str, staging: Location, holds: Holds) -> None:
        """Wrap a table that exists; `staging` is where its files come from.

        Raises:
            Transient: Spark cannot read the table.
        """
        self._spark, self._path, self._app_id, self._staging, self._holds = spark, path, app_id, staging, holds
        self._key = GameKey(path.name)
        with _spark_may_fail(spark, self._key):
            self._log = SparkDelta.forPath(spark, str(path))._jdt.deltaLog()  # noqa: SLF001 - the only way to a cursor
        self._none = getattr(self._log, "update$default$2")()  # Scala's None
        self.refresh()

    @property
    def cursor(self) -> int | None:
        """The transaction version as last read, None before the first commit."""
        return self.transaction_version(self._app_id)

    def transaction_version(self, app_id: str) -> int | None:
        """Return the transaction version of any application id as last read."""
        return self._transactions.get(app_id)

    def refresh(self) -> None:
        """Read what others have committed.

        Raises:
            Transient: Spark cannot read the table.
        """
        with _spark_may_fail(self._spark, self._key):
            snapshot = self._log.update(False, self._none, self._none)
            self._version = int(snapshot.version())
            self._transactions = _transactions(snapshot)
            self._schema = str(snapshot.schema().json())

    def require_own(self) -> None:
        """Check nothing: Spark's Delta shares its tables with other writers by the catalog or the file system."""

    def accept_foreign(self) -> None:
        """Do nothing: no commit of another writer is refused."""

    def add_missing_columns(self, target: pa.Schema) -> bool:
        """Add the target's columns and struct members that the table lacks; return whether it lacked any.

        Raises:
            OtherColumns: other columns of the table were merged.
            Transient: Spark cannot do it now.
        """
        held = arrow_of(self._schema)
        require_same_merges(self._key, merges_of(held), target)
        if merge(held, target) == held:
            return False
        hit("in_schema_change")
        with _spark_may_fail(self._spark, self._key):
            self._append(self._spark.createDataFrame([], _spark_schema(target)), {"mergeSchema": "true"})
        hit("in_schema_change")
        self.refresh()
        return True

    def commit(
        self, files: Sequence[DataFile], expected: int | None, cursor: int, *, target: pa.Schema | None = None
    ) -> None:
        """Add the files' rows and move the cursor from `expected` to `cursor` in one commit.

        What schema ids mean is not noted.

        Raises:
            TableConflict: the cursor is no longer `expected`, or the lease is not held; nothing was added.
            Transient: Spark could not write; nothing was added.
            Refused: without a lease, another owner wrote at this very moment, and rows may be in the table twice.
        """
        del target
        try:
            rows = self._staged(files)
            self.refresh()
            self._require(expected)
            seen = self._version
            self._require_lease()
            self._write(rows, expected, cursor)
            self.refresh()
            self._check_between(seen, expected, cursor)
            self._require(cursor)
        finally:  # with the files of dead tasks; files that cannot be deleted now are deleted at the next start
            with effect("delete_staging"):
                self._staging.clear()

    def _require(self, expected: int | None) -> None:
        if self.cursor != expected:
            raise TableConflict(f"{self._key}: cursor is {self.cursor}, expected {expected}")

    def _require_lease(self) -> None:
        try:
            held = self._holds(self._key)
        except SQLAlchemyError as error:
            raise Transient(f"{self._key}: the lease cannot be checked: {error}") from error
        if not held:
            raise TableConflict(f"{self._key}: this driver does not hold its lease")

    def _write(self, rows: DataFrame, expected: int | None, cursor: int) -> None:
        try:
            with _spark_may_fail(self._spark, self._key):
                self._append(rows, {"txnAppId": self._app_id, "txnVersion": str(cursor)})
        except Transient:
            self.refresh()
            self._require(expected)
            raise

    def _staged(self, files: Sequence[DataFile]) -> DataFrame:
        schema = StructType.fromJson(json.loads(self._schema))
        with _spark_may_fail(self._spark, self._key):
            if not files:
                return self._spark.createDataFrame([], schema)
            reader = self._spark.read.schema(schema).options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
            return reader.parquet(*(str(self._staging / file.path) for file in files))

    def _append(self, rows: DataFrame, options: Mapping[str, str]) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL_OF_COMMITS)
        with effect("commit_by_spark"):
            rows.write.format("delta").mode("append").options(userMetadata="turnout", **options).save(str(self._path))

    def _check_between(self, seen: int, expected: int | None, cursor: int) -> None:
        """Check that no other owner moved the cursor, but less far, between our read and our commit.

        Raises:
            Refused: another owner did, so one of the two did not hold the lease.
        """
        for version in range(seen + 1, self._version):
            with _spark_may_fail(self._spark, self._key):
                snapshot = self._log.getSnapshotAt(version, self._none, self._none, False)
                between = _transactions(snapshot).get(self._app_id)
            if between != expected and between is not None and between < cursor:
                raise Refused(
                    f"{self._key}: another owner moved its cursor to {between} while this driver moved it from "
                    f"{expected} to {cursor}, so rows may be in the table twice. Run `turnout verify`, and "
                    f"`turnout repair rebuild` if it finds any."
                )


class SparkWriter:
    """Tasks write into a staging folder, and Spark appends what is there to the tables."""

    def __init__(self, spark: SparkSession, folder: Location, checkpoint_interval: int, holds: Holds) -> None:
        """Prepare a session of its own beside the driver's, which stays unchanged."""
        self.folder = folder
        self._checkpoint_interval, self._holds = checkpoint_interval, holds
        self._spark = spark.newSession()
        # Spark's default is a 96-bit type, which other readers take for a time without a zone.
        self._spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    def open(self, path: Location, app_id: str) -> SparkTable | None:
        """Open a table, or return None where there is none.

        Raises:
            Transient: Spark cannot read it.
        """
        with _spark_may_fail(self._spark, path.name):
            if not SparkDelta.isDeltaTable(self._spark, str(path)):
                return None
        return SparkTable(self._spark, path, app_id, self.folder / path.name, self._holds)

    def create(self, path: Location, target: pa.Schema, app_id: str, description: str) -> SparkTable:
        """Open a table, creating it with these columns where there is none.

        Raises:
            Transient: Spark cannot create it, for one because another process does so at this moment.
        """
        # Not by Delta's table builder: it fails for ever where a process died before the log's first entry.
        options = {"delta.checkpointInterval": str(self._checkpoint_interval), "userMetadata": description}
        with _spark_may_fail(self._spark, path.name):
            nothing = self._spark.createDataFrame([], _spark_schema(target))
            with effect("create_table"):
                nothing.write.format("delta").mode("ignore").options(**options).save(str(path))
        return SparkTable(self._spark, path, app_id, self.folder / path.name, self._holds)


def _transactions(snapshot: Any) -> dict[str, int]:
    """Return the transaction versions of a snapshot by application id: from its checksum file, else from its state.

    The state costs a Spark job. Spark's own commits write a checksum file, those of other writers do not.
    """
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    transactions = known.get() if known.isDefined() else snapshot.setTransactions()
    each = (transactions.apply(index) for index in range(transactions.size()))
    return {str(transaction.appId()): int(transaction.version()) for transaction in each}


def _spark_schema(target: pa.Schema) -> StructType:
    """Return columns as Spark's type: Delta writes a schema just as Spark does."""
    return StructType.fromJson(json.loads(json_of(target.remove_metadata())))


@contextmanager
def _spark_may_fail(spark: SparkSession, key: str) -> Iterator[None]:
    try:
        # Delta asks for the thread's session before it has read a checkpoint; a thread of ours may have none. Without
        # the class it mostly has read it ahead, and else this is tried again.
        if (sessions := java_class(spark._jvm, *_SESSIONS)) is not None:  # noqa: SLF001
            sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001
        yield
    except (PySparkException, Py4JError) as error:
        raise Transient(f"{key}: {innermost(str(error))}") from error
