"""Micro-batches of bronze by Delta's own streaming source, for what `log_tail` cannot read."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.data.streams.writing.rows import BatchRows, FrameRows, Split
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.tree import Demux


class DeltaBatches:
    """Spark plans them, and hands the rows to the tasks."""

    def __init__(self, spark: SparkSession, settings: Demux, table: CursorTable, work: Split, key: str | None) -> None:
        """Begin a query without a checkpoint at the version last read; with `key` have that game's rows only."""
        self._spark, self._settings, self._table, self._work, self._key = spark, settings, table, work, key
        self.poll_seconds = settings.trigger_seconds

    def frame(self) -> DataFrame:
        """Return the streaming frame."""
        frame = (
            self._spark.readStream.format("delta")
            .option("startingVersion", self._table.version)
            .option("maxBytesPerTrigger", self._settings.max_bytes)
            .option("failOnDataLoss", "true")
            # Rows deleted from bronze by hand stop the games that lack them, by their chain, not all the others.
            .option("skipChangeCommits", "true")
            .load(str(self._table.path))
        )
        return frame if self._key is None else frame.where(F.col("game_key") == self._key)

    def rows(self, frame: DataFrame, batch_id: int) -> BatchRows:  # noqa: ARG002 - the seam's signature
        """Return the rows of a micro-batch."""
        return FrameRows(frame, self._work)
