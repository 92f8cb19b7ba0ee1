"""How a derived stream is, as its driver's last report says it."""

from dataclasses import replace

import pytest

from pipeline.health.verdicts.derived import SILENT_SECONDS, DerivedStanding, DerivedVerdict, judge
from pipeline.store.rows import DerivedState

NOW = 10_000.0
LEVEL = DerivedState("sold", "a", 2, 7, 7, 30, NOW - 50, None, None, NOW - 40)


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (LEVEL, DerivedVerdict(DerivedStanding.LEVEL, 0, 0.0, 30, 2)),
        (replace(LEVEL, head=9), DerivedVerdict(DerivedStanding.BEHIND, 2, 50.0, 30, 2)),
        (replace(LEVEL, head=9, level_at=None), DerivedVerdict(DerivedStanding.BEHIND, 2, None, 30, 2)),
        (
            replace(LEVEL, error="Refused: no column", failed_at=NOW - 60),  # its head is that of before
            DerivedVerdict(DerivedStanding.STOPPED, None, 50.0, 30, 2),
        ),
        (
            replace(LEVEL, generation=0, version=0, head=0, rows=0, level_at=None, error="DeltaError: damaged"),
            DerivedVerdict(DerivedStanding.STOPPED, None, None, None, None),  # its table may have rows
        ),
        (
            replace(LEVEL, generation=0, version=0, head=0, rows=0, level_at=None),
            DerivedVerdict(DerivedStanding.WAITING, None, None, None, None),
        ),
        (
            replace(LEVEL, reported_at=NOW - SILENT_SECONDS - 1),
            DerivedVerdict(DerivedStanding.SILENT, None, None, 30, 2),
        ),
        (None, DerivedVerdict(DerivedStanding.SILENT, None, None, None, None)),
    ],
)
def test_a_stream_is_level_only_where_its_driver_says_so_now(
    state: DerivedState | None, verdict: DerivedVerdict
) -> None:
    """Unknown is never healthy and never zero: a stream that fails, is silent or was never carried has no lag of 0."""
    assert judge(state, NOW) == verdict
