"""How long a source is usually without a row, from the commits of bronze. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

_LEAST_COMMITS: Final = 10
_CAUGHT_UP_TIMES: Final = 3.0
_WAITED_SHARE: Final = 0.5  # of a gap: rows that are as old had waited for ingest
_ALIKE: Final = 0.25
_REGULAR: Final = 3  # gaps that are alike


class Commit(NamedTuple):
    """A commit of bronze."""

    at: float
    rows: int
    oldest_at: float | None = None  # when its oldest row came to the source; None: not known


class _Gap(NamedTuple):
    seconds: float
    is_burst: bool  # many rows came after it
    is_fresh: bool  # they were not there before it


def longest_gap(commits: Sequence[Commit]) -> float | None:
    """Return the longest time without a row between commits (newest first), None where too few are known.

    Where a gap ends with a commit of three times the usual rows, or the next commit is one, rows had waited for ingest,
    or the source delivers in bursts. It is the source's where these rows came late in the gap, or where it is one of
    three at least that are alike. The next commit counts, as a process that stood still first ends its batch.
    """
    if len(commits) <= _LEAST_COMMITS:
        return None
    limit = _CAUGHT_UP_TIMES * median(each.rows for each in commits)
    oldest_first = [*reversed(commits)]
    gaps = [
        _gap(early, [late, *oldest_first[place + 2 : place + 3]], limit)
        for place, (early, late) in enumerate(pairwise(oldest_first))
    ]
    bursts = sorted(each.seconds for each in gaps if each.is_burst)
    regular = [
        late for early, late in zip(bursts, bursts[_REGULAR - 1 :], strict=False) if early >= late * (1 - _ALIKE)
    ]
    return max([*regular, *(each.seconds for each in gaps if each.is_fresh or not each.is_burst)], default=None)


def _gap(early: Commit, ends: Sequence[Commit], limit: float) -> _Gap:
    """Judge a gap by the one or two commits that end it."""
    bursts = [each for each in ends if each.rows >= limit]
    ages = [None if each.oldest_at is None else each.at - each.oldest_at for each in bursts]
    seconds = ends[0].at - early.at
    is_fresh = all(age is not None and age < _WAITED_SHARE * seconds for age in ages)
    return _Gap(seconds, bool(bursts), is_fresh)
