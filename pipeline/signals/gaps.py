"""How long a source is usually without a row, from the commits of bronze. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

_LEAST_COMMITS: Final = 10
_CAUGHT_UP_TIMES: Final = 3.0


def longest_gap(commits: Sequence[tuple[float, int]]) -> float | None:
    """Return the longest time without a row between commits (at, rows; newest first), None where too few are known.

    Where a gap ends with a commit of three times the usual rows, or the next commit is one, rows had waited for ingest:
    the source was not silent. The next one counts, as a process that stood still first ends the batch that it was at.
    """
    if len(commits) <= _LEAST_COMMITS:
        return None
    limit = _CAUGHT_UP_TIMES * median(rows for _, rows in commits)
    after = [max(rows, next_rows) for (_, rows), (_, next_rows) in pairwise([*reversed(commits), (0.0, 0)])]
    gaps = [late[0] - early[0] for early, late in pairwise(reversed(commits))]
    silent = [gap for gap, rows in zip(gaps, after[1:], strict=True) if rows < limit]
    return max(silent, default=None)
