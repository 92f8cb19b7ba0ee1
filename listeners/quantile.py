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

    Args:
        counts: rows per latency bucket.
        shares: what part of the rows lies below each, ascending.

    Raises:
        ValueError: a share, their order or the number of counts is wrong.
    """
    if len(counts) != _BUCKETS or not 0 <= shares[0] <= shares[-1] <= 1:
        raise ValueError(f"expected shares from 0 to 1 and {_BUCKETS} counts, got {[*shares]} and {len(counts)}")
    total = sum(counts)
    if total == 0:
        return (None,) * len(shares)
    found: list[float | None] = []
    at, last = 0, _BUCKETS - 1
    below, low, count = 0, 0.0, counts[0]
    for share in shares:
        rank = share * total
        while at < last and (not count or below + count < rank):
            below, low, at = below + count, LATENCY_EDGES_SECONDS[at], at + 1
            count = counts[at]
        found.append(low if at == last else low + (LATENCY_EDGES_SECONDS[at] - low) * (rank - below) / count)
    return tuple(found)
