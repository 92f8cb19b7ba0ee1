"""The refused rows of a micro-batch that was killed: they reach quarantine before the batch reaches bronze.

A repetition may give its rows other places: a large batch may be cut elsewhere, a compacted topic may have lost some,
and a merged landing table no longer has the times of its files, by which they are ordered. So the places of such an
attempt are abandoned, and the batch lands above them.
"""

from collections.abc import Iterable, Sequence

from pipeline.base.names import attempt_app_ids
from pipeline.data.ingest.source_checks import forget_refused
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location


class BatchAttempts:
    """The refused rows of one ingest generation's micro-batches. For one thread, as the tables are."""

    def __init__(self, quarantine: CursorTable, bronze: CursorTable, batch_app: str) -> None:
        """Use these open tables; the quarantine's cursor is the last batch with refused rows there."""
        self._quarantine, self._bronze = quarantine, bronze
        self._first, self._last, self._given_up = attempt_app_ids(batch_app)

    def clear(self, batch_id: int) -> None:
        """Abandon the places of an attempt at this batch.

        Raises:
            TableConflict: another ingest writes to bronze.
        """
        self._quarantine.refresh()
        if self._holds(batch_id):
            self.give_up(batch_id)

    def give_up(self, batch_id: int) -> None:
        """Remove the refused rows of an attempt from quarantine, and never reuse its seqs.

        Bronze first: an attempt that is still running then finds its seq taken.

        Raises:
            TableConflict: another ingest writes to bronze.
        """
        head = self._bronze.cursor or 0
        first, last = self._span(head)
        if first > head:
            self._bronze.commit([], self._bronze.cursor, last, also={self._given_up: last})
        if self._bronze.transaction_version(self._given_up) == last:  # otherwise the seqs belong to other rows
            forget_refused(self._quarantine.path, first, last)
        self._quarantine.refresh()
        self._quarantine.commit([], self._quarantine.cursor, batch_id - 1)

    def write(self, files: Sequence[DataFile], batch_id: int, first: int, last: int) -> bool:
        """Write the refused rows of a batch to quarantine, once; its slices have the seqs from `first` to `last`.

        Return False, with nothing written, when another attempt has written since `clear`.
        """
        self._quarantine.refresh()
        if self._holds(batch_id):
            return False
        if files:
            self._quarantine.commit(
                files, self._quarantine.cursor, batch_id, also={self._first: first, self._last: last}
            )
        return True

    def _holds(self, batch_id: int) -> bool:
        return self._quarantine.cursor is not None and self._quarantine.cursor >= batch_id

    def _span(self, head: int) -> tuple[int, int]:
        """Return the first and the last seq of the last batch with refused rows, the next seq where none is known."""
        first = self._quarantine.transaction_version(self._first)
        last = self._quarantine.transaction_version(self._last)
        return (head + 1, head + 1) if first is None or last is None else (first, last)


def give_up_open(quarantine: CursorTable, bronze: CursorTable, batch_apps: Iterable[str]) -> None:
    """Abandon the attempts of these generations whose places bronze has not reached.

    For generations that are not continued now: other rows would get their next seq, and theirs would stay phantoms.
    Bronze must not be an older copy of itself, in which a committed batch looks like an open attempt.

    Raises:
        TableConflict: another ingest writes to bronze.
    """
    for batch_app in batch_apps:
        first_app, last_app, given_up_app = attempt_app_ids(batch_app)
        first, last = quarantine.transaction_version(first_app), quarantine.transaction_version(last_app)
        tried, landed = quarantine.transaction_version(f"{batch_app}/quarantine"), bronze.transaction_version(batch_app)
        done = -1 if landed is None else landed
        if first is None or last is None or tried is None or tried <= done:
            continue
        half_done = bronze.transaction_version(given_up_app) == last
        table = CursorTable.open(quarantine.path, f"{batch_app}/quarantine")
        if table is not None and (first > (bronze.cursor or 0) or half_done):
            BatchAttempts(table, bronze, batch_app).give_up(done + 1)


def left_behind(quarantine: Location, batch_app: str) -> tuple[int, int]:
    """Return the first and the last seq of a generation's last batch with refused rows, (0, 0) without any."""
    table = CursorTable.open(quarantine, batch_app)
    if table is None:
        return 0, 0
    first, last = (table.transaction_version(app) or 0 for app in attempt_app_ids(batch_app)[:2])
    return first, last
