"""Sums of slots as a line draws them: with a gap where no driver reported. Pure."""

from collections.abc import Collection
from typing import Final

import numpy as np

from listeners.series import FloatArray, Series
from pipeline.base.texts import in_utc, join_limited

_MOST_NAMED: Final = 2  # slots, the newest first


def per_second(series: Series, values: FloatArray) -> list[float | None]:
    """Return sums of slots as rates; None where no driver reported, or where no second of a slot is over."""
    seconds = series.seconds
    return gapped(np.divide(values, seconds, out=np.full(series.slots, np.nan), where=seconds > 0))


def partial_text(series: Series, groups: Collection[str] | None = None) -> str:
    """Return in which slots a chart of sums shows too little, to stand in its head; empty where in none."""
    begins = [series.since + series.slot_seconds * int(slot) for slot in np.flatnonzero(series.is_partial(groups))]
    named = join_limited(begins[::-1], _MOST_NAMED, lambda at: in_utc(at, "%H:%M"))
    return f" · at least these rows in {named}: reports may be missing" if begins else ""


def gapped(values: FloatArray) -> list[float | None]:
    """Return numbers for a line; None where one is not known."""
    return [float(value) if np.isfinite(value) else None for value in values]
