"""Folding passes into points: nothing is counted twice, and silence is a gap."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from listeners.metrics_schema import STREAM_BATCH
from listeners.sample import LATENCY_EDGES_SECONDS
from pipeline.api.trends import BINS, trend

NOW = 1_800_000_000.0


def one_pass(
    at: float, *, rows: int = 10, rejects: dict[str, int] | None = None, error: str | None = None
) -> dict[str, object]:
    moment = datetime.fromtimestamp(at, UTC)
    counts = [0] * (len(LATENCY_EDGES_SECONDS) + 1)
    counts[2] = rows
    return {
        "event_date": moment.date(),
        "rows": rows,
        "rejects": sum((rejects or {}).values()),
        "reject_reasons": list((rejects or {}).items()),
        "finished_at": moment,
        "committed_at": None if error else moment,
        "commit_seconds": 0.2,
        "latency_counts": counts,
        "error": error,
    }


def passes(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=STREAM_BATCH.schema)


def test_points_add_up_and_gaps_stay_gaps() -> None:
    """Every committed pass is in exactly one point, and a slice without commits has no point."""
    reported = passes(
        one_pass(NOW - 3599),
        one_pass(NOW - 3598, rejects={"unknown_schema": 2}),
        one_pass(NOW - 1, rows=5),
        one_pass(NOW),
    )
    folded = trend(reported, NOW - 3600, NOW)
    assert [point.rows for point in folded.points] == [20, 15]
    assert [point.at for point in folded.points] == [NOW - 3600 + 3600 / BINS, NOW]
    assert folded.rows == 35
    assert folded.rejects == {"unknown_schema": 2}


def test_a_failed_pass_is_counted_but_its_rows_are_not() -> None:
    """Rows of a failed pass come again later, so they count only then; the failure itself is told."""
    folded = trend(passes(one_pass(NOW - 30, error="no space"), one_pass(NOW - 10)), NOW - 900, NOW)
    assert (folded.failed_passes, folded.rows) == (1, 10)


def test_latency_comes_from_the_summed_histograms() -> None:
    """Percentiles are those of all rows together; without rows they are unknown."""
    folded = trend(passes(one_pass(NOW - 30, rows=100)), NOW - 900, NOW)
    assert folded.latency_seconds[0] == pytest.approx(1.5)
    assert folded.points[0].latency_p95_seconds == pytest.approx(1.95)
    assert trend(passes(), NOW - 900, NOW).latency_seconds == (None, None, None)
