"""The newest sample of each driver, from the rows of `process_sample`. Pure: the time is an argument."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from listeners.process_kinds import GROUP
from listeners.totals import GroupTotals, IngestTotals, ProcessSample, QueryTotals, SelfCounts


class Processes:
    """What each driver said last."""

    def __init__(self) -> None:
        self._newest: Mapping[tuple[str, str], ProcessSample] = {}
        self.newest_at: float | None = None  # Unix seconds

    def add(self, rows: pa.Table, since: float) -> None:
        """Take rows, and forget drivers that have been silent since that time (Unix seconds)."""
        newest = {key: each for key, each in self._newest.items() if each.at >= since}
        for row in rows.to_pylist():
            key, at = (row["kind"], row["name"]), row["at"].timestamp()
            if key not in newest or newest[key].at < at:
                newest[key] = _sample(row)
                self.newest_at = max(self.newest_at or at, at)
        self._newest = newest

    def fresh(self, since: float) -> list[ProcessSample]:
        """Return the samples of that time (Unix seconds) and later: what an older one says may have ended."""
        return [each for each in self._newest.values() if each.at >= since]


def _sample(row: Mapping[str, Any]) -> ProcessSample:
    group = GroupTotals(
        _time(row["heartbeat_at"]),
        row["passes"],
        row["pass_seconds"],
        dict(row["phase_seconds"] or ()),
        row["frontier_seq"],
    )
    committed_at, ingest = _time(row["committed_at"]), None
    if committed_at is not None and row["seq"] is not None:
        ingest = IngestTotals(row["seq"], row["accepted"], row["refused"], committed_at, dict(row["clocks"] or ()))
    return ProcessSample(
        row["kind"],
        row["name"],
        row["process"],
        row["at"].timestamp(),
        group if row["kind"] == GROUP else None,
        ingest,
        {
            each["query"]: QueryTotals(dict(each["durations"] or ()), each["input_rows"])
            for each in row["queries"] or ()
        },
        SelfCounts(
            row["events_dropped"],
            row["listener_errors"],
            row["outbox_items"],
            row["flush_failures"],
            row["push_failures"],
            row["cpu_seconds"],
        ),
    )


def _time(value: Any) -> float | None:
    return None if value is None else float(value.timestamp())
