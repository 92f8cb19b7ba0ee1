"""Refused rows are in quarantine before their micro-batch is in bronze: what an attempt that was killed leaves there.

A batch of one slice is sorted, so its repetition gives the same places, and what is there stays. A larger one may be
cut otherwise when it is repeated: its places are given up, and it is landed above them.
"""

from collections.abc import Sequence
from pathlib import Path

from pipeline.delta_table import CursorTable, DataFile
from pipeline.ingest.truth import forget_refused


class Attempts:
    """The refused rows of one ingest generation's micro-batches. For one thread, as the tables are."""

    def __init__(self, quarantine: CursorTable, bronze: CursorTable, batch_app: str) -> None:
        """Use the tables as they are open; the quarantine's cursor is the last batch with refused rows there."""
        self._quarantine, self._bronze = quarantine, bronze
        self._first, self._last = places_app_ids(batch_app)
        self._given_up = f"{batch_app}/given-up"

    def clear(self, batch_id: int) -> None:
        """Give up the places of an attempt at this batch that a repetition may not meet again.

        Raises:
            Conflict: another ingest writes to bronze.
        """
        self._quarantine.refresh()
        head = self._bronze.cursor or 0
        if self._holds(batch_id) and self._span(head) != (head + 1, head + 1):
            self.give_up(batch_id)

    def give_up(self, batch_id: int) -> None:
        """Take the refused rows of an attempt out of quarantine, and let no seq of it be given again.

        Bronze first: then who is still at work on that attempt finds its seq taken.

        Raises:
            Conflict: another ingest writes to bronze.
        """
        head = self._bronze.cursor or 0
        first, last = self._span(head)
        if first > head:
            self._bronze.commit([], self._bronze.cursor, last, also={self._given_up: last})
        if self._bronze.transaction_version(self._given_up) == last:  # otherwise others have rows of these seqs
            forget_refused(self._quarantine.path, first, last)
        self._quarantine.refresh()
        self._quarantine.commit([], self._quarantine.cursor, batch_id - 1)

    def write(self, files: Sequence[DataFile], batch_id: int, first: int, last: int) -> bool:
        """Put the refused rows of a batch into quarantine, once; its slices have the seqs from `first` to `last`.

        Return False, with nothing written, when an attempt that was cut otherwise has written before.
        """
        self._quarantine.refresh()
        if self._holds(batch_id):
            return first == last
        if files:
            self._quarantine.commit(
                files, self._quarantine.cursor, batch_id, also={self._first: first, self._last: last}
            )
        return True

    def _holds(self, batch_id: int) -> bool:
        return self._quarantine.cursor is not None and self._quarantine.cursor >= batch_id

    def _span(self, head: int) -> tuple[int, int]:
        """Return the first and the last seq of the last batch with refused rows; earlier versions gave one to each."""
        first = self._quarantine.transaction_version(self._first)
        last = self._quarantine.transaction_version(self._last)
        return (head + 1, head + 1) if first is None or last is None else (first, last)


def left_behind(quarantine: Path, batch_app: str) -> tuple[int, int]:
    """Return the first and the last seq of a generation's last batch with refused rows, (0, 0) for none."""
    table = CursorTable.open(quarantine, batch_app)
    if table is None:
        return 0, 0
    first, last = (table.transaction_version(app) or 0 for app in places_app_ids(batch_app))
    return first, last


def places_app_ids(batch_app: str) -> tuple[str, str]:
    """Return the transaction ids of that first and last seq."""
    return f"{batch_app}/quarantine/first", f"{batch_app}/quarantine/last"
