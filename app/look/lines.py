"""Sums of slots as a line draws them: with a gap where no driver reported. Pure."""

import numpy as np

from listeners.series import FloatArray, Series


def per_second(series: Series, values: FloatArray) -> list[float | None]:
    """Return sums of slots as rates; None where no driver reported, or where no second of a slot is over."""
    seconds = series.seconds
    return gapped(np.divide(values, seconds, out=np.full(series.slots, np.nan), where=seconds > 0))


def gapped(values: FloatArray) -> list[float | None]:
    """Return numbers for a line; None where one is not known."""
    return [float(value) if np.isfinite(value) else None for value in values]
