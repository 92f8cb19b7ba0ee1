"""Counters by game as the bridge keeps them, from the rows of `stream_batch`, each row once.

They are keyed by game: a game that moves keeps its count. They begin with the bridge, and its restart begins them
again, which Prometheus takes for a reset. Pure: the time is an argument.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from listeners.sample import GameResult, Lane, TypeRows
from listeners.totals import BUCKETS, GameTotals, after_result

LATE_SECONDS: Final = 900.0
"""Seconds after its pass from which a row is in no counter: the keys of older rows are forgotten."""

_SLICE_SECONDS: Final = 60
_COLUMNS: Final = [
    "run_id", "batch_id", "cluster_group", "game_key", "seq_from", "seq_to", "rows", "reject_reasons", "finished_at",
    "committed_at", "latency_counts", "error", "caught_up_rows", "types", "broken",
]  # fmt: skip


class Counting:
    """Totals of all games since a moment, and when the newest pass ended."""

    def __init__(self, began_at: float) -> None:
        self._began_at = began_at
        self._seen: dict[int, set[int]] = {}  # keys of rows by the slice of time of their pass
        self.games: Mapping[str, GameTotals] = {}
        self.newest_at: float | None = None  # Unix seconds

    def since(self, now: float) -> float:
        """Return from which time on rows may still count (Unix seconds)."""
        return max(self._began_at, now - LATE_SECONDS)

    def add(self, rows: pa.Table, now: float) -> None:
        """Count rows, but for those that were counted: a retry doubles rows, and so do files that were merged."""
        since, games = self.since(now), dict(self.games)
        for row in rows.select(_COLUMNS).to_pylist():
            finished_at = row["finished_at"].timestamp()
            if finished_at < since or not self._is_new(row, finished_at):
                continue
            self.newest_at = max(self.newest_at or finished_at, finished_at)
            result = _result(row)
            before = games.get(result.game_key) or GameTotals(row["cluster_group"])
            games[result.game_key] = after_result(replace(before, group=row["cluster_group"]), result)
        self.games = games  # replaced whole: a scrape on another thread has the one or the other
        for old in [each for each in self._seen if (each + 1) * _SLICE_SECONDS < since]:
            del self._seen[old]

    def _is_new(self, row: Mapping[str, Any], finished_at: float) -> bool:
        """Mark the row as seen; a pass is known by (run_id, batch_id), of which chunks of catch-up share one."""
        seen = self._seen.setdefault(int(finished_at // _SLICE_SECONDS), set())
        key = hash((row["run_id"], row["batch_id"], row["game_key"], row["seq_from"], finished_at))
        if key in seen:
            return False
        seen.add(key)
        return True


def _result(row: Mapping[str, Any]) -> GameResult:
    counts = tuple(row["latency_counts"] or ())
    return GameResult(
        row["game_key"],
        Lane.RUN,  # no total depends on the lane
        row["seq_from"],
        row["seq_to"],
        row["rows"],
        dict(row["reject_reasons"] or ()),
        0,  # nor on files, bytes and how long the commit took
        0,
        None if row["committed_at"] is None else row["committed_at"].timestamp(),
        0.0,
        counts if len(counts) == BUCKETS else (0,) * BUCKETS,
        row["error"],
        row["caught_up_rows"] or 0,
        types={each["event_type"]: TypeRows(each["rows"], each["refused"]) for each in row["types"] or ()},
        broken=dict(row["broken"] or ()),
    )
