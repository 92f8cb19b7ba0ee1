"""Tells minutes of which not all was reported: a driver that is killed takes what it had not written with it. Pure.

Each driver writes a minute a few seconds after its end, and what it holds when it ends by itself. So after the last
minute of a writer, unless another writer reports on, the next two may lack rows that it landed.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from listeners.minutes.fold import MINUTE_SECONDS

_LOST: Final = 2
"""Minutes that a driver may not have written yet: the present minute, and the minute before it."""

_MICROS: Final = int(MINUTE_SECONDS) * 1_000_000


class Writers:
    """From when to when each writer of a group reported."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, str], tuple[int, int]] = {}  # by group and writer: first and last minute

    def add(self, rows: pa.Table, group: str | None = None) -> None:
        """Add rows with their `writer` and `minute`, and their `cluster_group` unless all are of one group."""
        if not rows.num_rows:
            return
        minutes = pa.array(pc.cast(rows["minute"], pa.int64()).to_numpy() // _MICROS)
        columns = {"writer": _texts(rows["writer"]), "minute": minutes}
        columns["group"] = _texts(rows["cluster_group"]) if group is None else pa.array([group] * rows.num_rows)
        found = pa.table(columns).group_by(["group", "writer"]).aggregate([("minute", "min"), ("minute", "max")])
        for each in found.to_pylist():
            key = each["group"] or "", each["writer"] or ""
            first, last = self._spans.get(key, (each["minute_min"], each["minute_max"]))
            self._spans[key] = min(first, each["minute_min"]), max(last, each["minute_max"])

    def forget(self, before: float) -> None:
        """Forget writers that reported nothing since a moment (Unix seconds)."""
        self._spans = {key: span for key, span in self._spans.items() if (span[1] + 1) * MINUTE_SECONDS > before}

    def partial(self, since: float, slot_seconds: int, slots: int, until: float) -> dict[str, NDArray[np.bool_]]:
        """Return by group which of these slots have a closed minute of which a report may be missing, if any has.

        Minutes are closed before `until` (Unix seconds, as `since`).
        """
        found: dict[str, NDArray[np.bool_]] = {}
        for group in {group for group, _ in self._spans}:
            marked = np.zeros(slots, np.bool_)
            for minute in self._open_ends(group):
                at = minute * MINUTE_SECONDS
                if since <= at < min(until, since + slots * slot_seconds):
                    marked[int((at - since) // slot_seconds)] = True
            if marked.any():
                found[group] = marked
        return found

    def _open_ends(self, group: str) -> list[int]:
        """Return the minutes after the last one of each run of reports, up to the first one of the next run."""
        spans = sorted(span for (its, _), span in self._spans.items() if its == group)
        ends: list[int] = []
        last = spans[0][1]
        for first, until in spans[1:]:
            if first > last:
                ends += range(last + 1, min(first, last + _LOST) + 1)
            last = max(last, until)
        return [*ends, *range(last + 1, last + 1 + _LOST)]


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(column, pa.string())
