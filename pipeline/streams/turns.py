"""Schedules catch-up's chunks (law L16). Pure.

Games that one chunk can complete go first. Without any, the nearest game goes with all that are at most twice as far
behind: it waits for them, so that they share each read. If that excluded the furthest game, the next chunk is its own,
with all games that it reaches. So no game waits for more than twice its own backlog, the furthest gets at least every
other chunk, and after an outage each seq is read once for all games.
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
    """Return the next chunk, None when no game lacks rows up to `head`.

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
        first = head - most
    else:
        first = head - 2 * (head - nearest)
    low = min(through for through in lacking.values() if through >= first)
    high = min(low + most, head)
    games = frozenset(game for game, through in lacking.items() if low <= through < high)
    return Turn(games, low, high, leaves_furthest=low > furthest)
