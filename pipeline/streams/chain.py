"""The chain of a game's rows in bronze: do the rows read connect to the game's cursor (law L4)? Pure."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """All rows of one game in one bronze commit."""

    seq: int
    prev_seq: int  # the seq before this one in which the game had rows, 0 for none


def connects(cursor: int, links: Sequence[Link]) -> bool:
    """Return whether the links continue from the cursor without a gap.

    The links are one game's, above its cursor, ordered by seq: the first must follow a seq at or below the cursor, each
    other one the seq before it. The cursor alone does not distinguish an idle game from one that is behind.
    """
    return not links or cursor < links[-1].seq == reach(cursor, links)


def reach(cursor: int, links: Sequence[Link]) -> int:
    """Return the last seq that the links reach from the cursor without a gap, the cursor itself without links."""
    if not links or links[0].seq <= cursor or links[0].prev_seq > cursor:
        return cursor
    for before, after in itertools.pairwise(links):
        if after.prev_seq != before.seq:
            return before.seq
    return links[-1].seq


def merged(links: Sequence[Link]) -> list[Link]:
    """Return the links in order, each once: one bronze file may have been read by two tasks."""
    return sorted(set(links))
