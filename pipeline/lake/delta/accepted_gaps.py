"""Gaps in bronze that an operator has accepted for a game, kept in the log of the game's table.

The commit that moves the cursor over a gap records it, as transactions, which outlive log cleanup and a rebuild. The
audit log has the operator and the reason.
"""

from collections.abc import Callable, Iterator
from itertools import count

from pipeline.base.names import GameKey, gap_app_id

VersionOf = Callable[[str], int | None]
"""Return a table's transaction version of an application id, None where it has none."""


def read(version_of: VersionOf, environment: str, key: GameKey) -> list[tuple[int, int]]:
    """Return the gaps of a game's table as (above, through): seqs above the first, up to and with the second.

    They are in order; adjacent gaps are merged.
    """
    joined: list[tuple[int, int]] = []
    for above, through in sorted(_each(version_of, environment, key)):
        if joined and above <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(through, joined[-1][1])
        else:
            joined.append((above, through))
    return joined


def record(version_of: VersionOf, environment: str, key: GameKey, above: int, through: int) -> dict[str, int]:
    """Return the transactions that record another gap, for the commit that moves the cursor over it."""
    number = 1 + sum(1 for _ in _each(version_of, environment, key))
    return {
        gap_app_id(environment, key, number, "above"): above,
        gap_app_id(environment, key, number, "through"): through,
    }


def _each(version_of: VersionOf, environment: str, key: GameKey) -> Iterator[tuple[int, int]]:
    for number in count(1):
        above = version_of(gap_app_id(environment, key, number, "above"))
        through = version_of(gap_app_id(environment, key, number, "through"))
        if above is None or through is None:
            return
        yield above, through
