"""Micro-batches of bronze from the end of its log: Spark plans no files, and rows do not pass through its JVM.

Spark decides when a batch begins and keeps its offsets, which `bronze_tail` gives it. The driver plans the files of a
batch from the offsets that Spark has written for it, and tasks read them.
"""

from pyspark.sql import DataFrame, SparkSession

from pipeline.base.errors import Transient
from pipeline.data import query_log
from pipeline.data.log_tail import Offset, is_supported, offset, poll_seconds
from pipeline.data.streams.batches.bronze_tail import BronzeSource, BronzeTail
from pipeline.data.streams.bronze_files import files_of_batch, parts_of, rows_of_batch
from pipeline.data.streams.writing.rows import EVERY_SEQ, BatchRows, FileRows, Split
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.settings.parsing import parse_bytes
from pipeline.settings.tree import Demux


def reads_tail(bronze: CursorTable, settings: Demux, *, once: bool) -> bool:
    """Return whether a query over all games reads bronze's log itself, and not by Delta's source.

    Not in a run that ends soon, which would not pay for the start of Spark's planner; nor where files have to be
    understood besides their names.
    """
    return settings.reader == "direct" and not once and is_supported() and bronze.is_plain


def warm_planner(spark: SparkSession) -> None:
    """Let Spark start the processes with which it makes a frame, before the first `frame` needs them."""
    spark.dataSource.register(BronzeSource)
    spark.readStream.format(BronzeSource.name()).load()


class TailBatches:
    """The driver plans them, and tasks read their files."""

    def __init__(self, spark: SparkSession, settings: Demux, table: CursorTable, work: Split, query: Location) -> None:
        """Begin a query without a checkpoint at the version last read; `query` is the folder of its checkpoint."""
        self._spark, self._settings, self._table, self._work, self._query = spark, settings, table, work, query
        self._begin = offset(table.table_id, table.version)
        self._ended: dict[int, Offset] = {}  # where the last batch ends, by its number
        self.poll_seconds = poll_seconds(table.path, settings.trigger_seconds)

    def frame(self) -> DataFrame:
        """Return the streaming frame, which is never executed."""
        self._spark.dataSource.register(BronzeSource)
        options = {
            "bronze": str(self._table.path),
            "id": self._begin["reservoirId"],
            "version": str(self._begin["reservoirVersion"]),
            "max_bytes": str(parse_bytes("demux.max_bytes", self._settings.max_bytes)),
            "trigger_seconds": str(self._settings.trigger_seconds),
        }
        return self._spark.readStream.format(BronzeSource.name()).options(**options).load()

    def rows(self, frame: DataFrame, batch_id: int) -> BatchRows:  # noqa: ARG002 - the seam's signature
        """Return the rows of a micro-batch.

        Raises:
            Transient: its offsets, or a commit between them, are gone.
        """
        begin, end = self._ended.get(batch_id - 1) or self._begin_of(batch_id), self._offset(batch_id)
        self._ended = {batch_id: end}
        added = list(BronzeTail(self._table.path, self._begin, 0, 0.0).between(begin, end))
        sizes = files_of_batch(self._table.path, added)
        parts = parts_of(list(sizes), sizes=sizes)
        count, cores = rows_of_batch(added), self._spark.sparkContext.defaultParallelism
        return FileRows(self._spark, parts, *EVERY_SEQ, self._work, count, with_others=True, cores=cores)

    def _begin_of(self, batch_id: int) -> Offset:
        """Return where a query's first batch since its start begins, which another driver may have planned."""
        return self._offset(batch_id - 1) if batch_id else self._begin

    def _offset(self, batch_id: int) -> Offset:
        """Return the offset at which a batch ends, which Spark writes before it runs the batch."""
        file = self._query / "offsets" / str(batch_id)
        found = query_log.offset(file)
        if found is None:
            raise Transient(f"{file} is damaged or missing.")
        return found
