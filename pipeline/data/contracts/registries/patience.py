"""The times between questions to a registry, and their order."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.base.names import GameKey
from pipeline.store.schema_needs import OpenNeed


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the resolution waits, in seconds."""

    away: float = 1.0  # after a registry did not answer; doubles up to `away_most`
    away_most: float = 60.0
    absent: float = 15.0  # between two answers that a schema does not exist
    absences: int = 3  # how many such answers count,
    absent_for: float = 30.0  # and the least time from the first to the last of them
    refused: float = 30.0  # between two questions for a refused writer that a replay asks for
    refused_unasked: float = 600.0  # between two questions for those that were refused last
    sample: float = 3600.0  # between two looks whether a known writer still has its schema
    idle: float = 30.0  # between two looks for what other processes wrote


DEFAULT_PATIENCE: Final = Patience()


def left(since: float, wait: float, now: float) -> float:
    """Return the seconds that are left of a wait; 0 after it, and where it began in the future, by a clock set back."""
    return max(0.0, since + wait - now) if since <= now else 0.0


def in_turns(waiting: Mapping[bytes, list[OpenNeed]], unanswered: Mapping[bytes, int]) -> list[bytes]:
    """Order writers so that games take turns, each with its first row first: a flood of one game delays no other.

    A writer for which the registry was away comes later, with all that its games need after it, as a game's schemas
    are registered in the order of its needs.
    """
    asked: dict[GameKey, int] = {}
    times: dict[GameKey, int] = {}
    ranks = {}
    for writer, needs in sorted(waiting.items(), key=lambda each: min((need.seq, need.pos) for need in each[1])):
        key = needs[0].game_key
        asked[key] = asked.get(key, -1) + 1
        late = max([unanswered.get(writer, 0), *(times.get(need.game_key, 0) for need in needs)])
        times.update((need.game_key, late) for need in needs)
        ranks[writer] = late, asked[key]
    return sorted(ranks, key=ranks.__getitem__)
