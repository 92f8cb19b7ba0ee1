"""Finds games whose tables hold rows that bronze lacks, because an older copy of bronze was restored."""

from collections.abc import Mapping

from pipeline.delta import lost_seqs
from pipeline.delta.table import CursorTable
from pipeline.streams.lanes import Failure


class BronzeSeqs:
    """The seqs that bronze has; used by one thread."""

    def __init__(self, bronze: CursorTable, environment: str) -> None:
        """Prepare; bronze is opened on first use, as a table of its own."""
        self._bronze, self._environment = bronze, environment

    def failures(self, cursors: Mapping[str, int]) -> dict[str, Failure]:
        """Return why no rows may be added to some games' tables; `cursors` by game key, read before this call.

        A row that was ingested again under such a seq would count as applied, or be added beside the lost one.
        """
        self._bronze.refresh()
        head = self._bronze.cursor or 0
        losses = lost_seqs.read(self._bronze.transaction_version, self._environment)
        problems = {key: lost_seqs.problem(key, cursor, head, losses) for key, cursor in cursors.items()}
        return {key: Failure("poison", sentence) for key, sentence in problems.items() if sentence is not None}
