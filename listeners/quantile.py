"""Quantiles of a latency histogram whose buckets are LATENCY_EDGES_SECONDS. Pure."""

from collections.abc import Sequence
from typing import Final

from listeners.sample import LATENCY_EDGES_SECONDS

_BUCKETS: Final = len(LATENCY_EDGES_SECONDS) + 1


def quantile(counts: Sequence[int], q: float) -> float | None:
    """Return the q-quantile (0 to 1) in seconds from one count per latency bucket, or None when all are 0.

    Interpolates within the bucket; the last bucket has no upper edge and counts as its lower edge.

    Raises:
        ValueError: q or the number of counts is wrong.
    """
    return quantiles(counts, (q,))[0]


def quantiles(counts: Sequence[int], shares: Sequence[float]) -> tuple[float | None, ...]:
    """Return several quantiles at once, as `quantile` does each.

    Raises:
        ValueError: a share or the number of counts is wrong.
    """
    if len(counts) != _BUCKETS or not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"expected shares from 0 to 1 and {_BUCKETS} counts, got {[*shares]} and {len(counts)}")
    total = sum(counts)
    if total == 0:
        return (None,) * len(shares)
    return tuple(_within(counts, share * total) for share in shares)


def _within(counts: Sequence[int], rank: float) -> float:
    below, low = 0, 0.0
    for count, high in zip(counts, LATENCY_EDGES_SECONDS, strict=False):
        if count and below + count >= rank:
            return low + (high - low) * (rank - below) / count
        below, low = below + count, high
    return LATENCY_EDGES_SECONDS[-1]
