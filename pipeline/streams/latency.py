"""Turns arrival and commit times of rows into a histogram of latencies. Pure."""

from bisect import bisect_left
from collections.abc import Sequence


def spread(
    arrivals: Sequence[tuple[int, float, float]], committed_at: float, edges: Sequence[float]
) -> tuple[int, ...]:
    """Count rows per latency bucket, with a last bucket above every edge.

    Each arrival is (rows, oldest, newest source time in Unix seconds) of one bronze commit; its rows count as evenly
    spread between the two. A source clock ahead of ours counts as no latency.
    """
    counts = [0] * (len(edges) + 1)
    for rows, oldest, newest in arrivals:
        high, low = max(committed_at - oldest, 0.0), max(committed_at - newest, 0.0)
        placed = 0
        for index in range(bisect_left(edges, low), bisect_left(edges, high) + 1):
            upper = edges[index] if index < len(edges) else high
            share = 1.0 if high <= upper or high == low else (upper - low) / (high - low)
            upto = rows if index == bisect_left(edges, high) else round(rows * share)
            counts[index] += upto - placed
            placed = upto
    return tuple(counts)
