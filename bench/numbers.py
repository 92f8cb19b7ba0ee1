"""The arithmetic of measurements: quantiles, medians with their range, latencies, backlogs, slopes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_Z95: Final = 1.959964


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some repeats with the lowest and the highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Slope:
    """How a quantity changes with time, with the 95 % confidence interval of the slope."""

    per_second: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return median, lowest and highest of at least one value."""
    return Spread(median(values), min(values), max(values))


def quantile(values: Sequence[float] | Floats, q: float) -> float | None:
    """Return the q-quantile (0 to 1), interpolated, or None of nothing."""
    return float(np.quantile(np.asarray(values), q)) if len(values) else None


def applied_at(seqs: Sequence[int], commits: Sequence[tuple[int, float]]) -> list[float]:
    """Return for each seq when a table first held it, infinity when it does not.

    `commits` are (reach, time) in the order of the log; both never fall.
    """
    reaches = np.array([reach for reach, _ in commits], dtype=np.int64)
    times = [at for _, at in commits]
    places = np.searchsorted(reaches, np.asarray(seqs, dtype=np.int64), side="left")
    return [times[place] if place < len(times) else float("inf") for place in places.tolist()]


def backlog_age(moments: Sequence[float], arrived: Sequence[float], done: Sequence[float]) -> list[float]:
    """Return for each moment how long the oldest work item that was there and not done had waited, 0 for none."""
    since, until = np.asarray(arrived, dtype=np.float64), np.asarray(done, dtype=np.float64)
    ages = []
    for moment in moments:
        waiting = since[(since <= moment) & (until > moment)]
        ages.append(float(moment - waiting.min()) if waiting.size else 0.0)
    return ages


def block_means(values: Sequence[float], size: int) -> list[float]:
    """Return the means of whole consecutive blocks: neighbours within a trigger's saw tooth are not independent."""
    return [float(np.mean(values[at : at + size])) for at in range(0, len(values) - size + 1, size)]


def theil_sen(times: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the median of all pairs' slopes with Sen's confidence interval.

    Raises:
        ValueError: fewer than three points, or two at the same time.
    """
    count = len(times)
    if count < 3 or any(b <= a for a, b in pairwise(times)):
        raise ValueError("expected at least three points at growing times")
    slopes = sorted((values[j] - values[i]) / (times[j] - times[i]) for i in range(count) for j in range(i + 1, count))
    margin = _Z95 * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, round((len(slopes) - margin) / 2))
    high = min(len(slopes) - 1, round((len(slopes) + margin) / 2))
    return Slope(median(slopes), slopes[low], slopes[high])


def held(slope: Slope, seconds: float, allowed_seconds: float) -> bool:
    """Return whether a backlog's age stayed: no growth beyond noise, and none that matters over the window.

    Noise alone could excuse any growth, so the median slope over the window must also stay within
    `allowed_seconds`.
    """
    return slope.low <= 0 and slope.per_second * seconds <= allowed_seconds
