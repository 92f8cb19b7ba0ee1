"""Promises of freshness beside what is known of a game."""

from typing import Final

from pipeline.health.verdicts.freshness import FreshnessPromise, FreshnessVerdict

NOW: Final = 1_800_000_000.0


def verdict(
    through: float | None = None, record: float | None = None, known: float = 9_000.0,
    within: float | None = 600.0, newest: float | None = None,
) -> FreshnessVerdict:  # fmt: skip
    """Return a verdict; all times are seconds before now."""
    at, record_at = (None if each is None else NOW - each for each in (through, record))
    promise = FreshnessPromise("sales", within, newest, ("BI",))
    return FreshnessVerdict(promise, "chess", "Chess", NOW - known, at, record_at, NOW)
