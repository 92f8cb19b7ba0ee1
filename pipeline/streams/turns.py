"""Whose turn catch-up's next chunk is (law L16). Pure.

A game that is nearly level goes first, with all that are as near: one read serves them. The furthest behind, where that
left it out, has the next chunk, with all that it reaches. So nobody waits for a backlog of others, the furthest gets at
least every other chunk, and games that are equally far behind share each read.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """One chunk: the seqs (low, high] of bronze, read once for these games."""

    games: frozenset[str]
    low: int
    high: int
    leaves_furthest: bool  # the game that is furthest behind is not among them


def next_turn(behind: Mapping[str, int], head: int, most: int, *, furthest_waits: bool) -> Turn | None:
    """Return the next chunk, None where nobody lacks anything up to `head`.

    Args:
        behind: by game key, the seq up to which each game that is behind is complete.
        head: the last seq to read.
        most: seqs in one chunk.
        furthest_waits: the chunk before left out the game that is furthest behind.
    """
    lacking = {game: through for game, through in behind.items() if through < head}
    if not lacking:
        return None
    furthest, nearest = min(lacking.values()), max(lacking.values())
    if furthest_waits:
        first = furthest
    elif nearest >= head - most:
        first = head - most  # one chunk makes these level
    else:
        first = nearest - most // 2  # those close together are read together, and get half a chunk further at least
    low = min(through for through in lacking.values() if through >= first)
    high = min(low + most, head)
    games = frozenset(game for game, through in lacking.items() if low <= through < high)
    return Turn(games, low, high, leaves_furthest=low > furthest)
