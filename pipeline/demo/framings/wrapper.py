"""Schemas named by the wrapper's field `schema_id`: those that are registered in turnout itself."""

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.demo.framings.framing import FRAMED, Framed
from pipeline.demo.samples.sample import Sample


class WrapperFraming:
    """Takes the ids of registered schemas."""

    def __init__(self, games: Iterable[str], ids: Mapping[tuple[str, int], int], *, frames: bool = False) -> None:
        """Take the id of each (game, version); `frames`: other games of the source have frames."""
        self._ids = ids
        self._unregistered = _unregistered_ids(games, ids, frames=frames)

    def introduce(self, version: int, sample: Sample) -> None:
        """Do nothing: the schemas have ids already."""

    def framed(self, game: str, version: int, sample: Sample, event: Any) -> Framed:
        """Return an event's bytes and its schema's id; 1 for names that are not games."""
        return Framed(self._ids.get((game, version), 1), b"", sample.encode(event))

    def joined(self, framed: Framed) -> bytes:
        """Return the payload as it goes into the wrapper."""
        return framed.head + framed.body

    def unknown(self, game: str, framed: Framed, chance: int) -> Framed:
        """Return the payload with an id that the game has not registered."""
        ids = self._unregistered[game]
        return framed._replace(schema_id=ids[chance % len(ids)])


def _unregistered_ids(
    games: Iterable[str], ids: Mapping[tuple[str, int], int], *, frames: bool
) -> dict[str, list[int]]:
    """Return for each game ids it has not registered: none set, one of another game, one of nobody, the largest."""
    by_game: dict[str, set[int]] = {game: set() for game in games}
    for (game, _), schema_id in ids.items():
        by_game.setdefault(game, set()).add(schema_id)
    everything = set(ids.values())
    unregistered = {}
    for game, own in by_game.items():
        foreign = sorted(everything - own)[:1]
        none_set = [] if frames else [FRAMED]
        unregistered[game] = [*none_set, *foreign, max(everything, default=0) + 1_000_000, 2**32 - 1]
    return unregistered
