"""How a derived stream is, as its driver's last report and people's decisions say it."""

from dataclasses import replace

import pytest

from pipeline.health.verdicts.derived import SILENT_SECONDS, DerivedStanding, DerivedVerdict, judge, left_out
from pipeline.store.rows import DerivedControl, DerivedState, DerivedStream

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
    assert judge(stream(state), NOW) == verdict


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (LEVEL, DerivedVerdict(DerivedStanding.PAUSED, None, 0.0, 30, 2)),
        (replace(LEVEL, head=9, is_paused=1), DerivedVerdict(DerivedStanding.PAUSED, None, 50.0, 30, 2)),
        (
            replace(LEVEL, error="Refused: no column", failed_at=NOW - 60),
            DerivedVerdict(DerivedStanding.PAUSED, None, 50.0, 30, 2),
        ),
        (
            replace(LEVEL, is_paused=1, reported_at=NOW - SILENT_SECONDS - 1),
            DerivedVerdict(DerivedStanding.PAUSED, None, None, 30, 2),
        ),
        (None, DerivedVerdict(DerivedStanding.PAUSED, None, None, None, None)),
    ],
)
def test_a_paused_stream_is_paused_whatever_its_driver_says(
    state: DerivedState | None, verdict: DerivedVerdict
) -> None:
    """It is neither healthy nor failing nor unknown; of a driver that is silent no lag is known."""
    assert judge(stream(state, paused=True), NOW) == verdict


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        (LEVEL, DerivedStanding.HELD),
        (replace(LEVEL, generation=0), DerivedStanding.HELD),
        (replace(LEVEL, error="Refused: no column"), DerivedStanding.STOPPED),
        (None, DerivedStanding.SILENT),
    ],
)
def test_a_gold_table_of_a_paused_silver_table_waits(state: DerivedState | None, standing: DerivedStanding) -> None:
    """It is not called level while what it follows from stands; that it fails or is unknown comes first."""
    verdict = judge(stream(state, source_paused=True), NOW)
    assert verdict.standing is standing
    if standing is DerivedStanding.HELD:
        assert (verdict.behind, verdict.lag_seconds) == (None, None)


@pytest.mark.parametrize(
    ("state", "paused", "known"),
    [
        (replace(LEVEL, duplicates=0), False, 0),
        (replace(LEVEL, duplicates=3), False, 3),
        (replace(LEVEL, duplicates=0, error="Refused: no column"), False, None),
        (replace(LEVEL, duplicates=0, reported_at=NOW - SILENT_SECONDS - 1), False, None),
        (replace(LEVEL, duplicates=0), True, None),
        (replace(LEVEL, duplicates=3), True, 3),  # they do not come back
        (LEVEL, False, None),
        (None, False, None),
    ],
)
def test_no_second_row_is_known_only_while_a_silver_table_reads_on(
    state: DerivedState | None, paused: bool, known: int | None
) -> None:
    """A promise that nothing checks now is never shown as kept."""
    assert left_out(stream(state, paused=paused), NOW) == known


def stream(state: DerivedState | None, *, paused: bool = False, source_paused: bool = False) -> DerivedStream:
    """Return a stream in force, whose own table or whose silver table is paused."""
    control = DerivedControl("sold", NOW - 60 if paused else None)
    source = DerivedControl("silver", NOW - 60) if source_paused else None
    return DerivedStream("sold", "g", "a", state, control, source)
