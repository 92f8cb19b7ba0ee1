"""Numbers of games and ingest by slots of time, as the dashboard draws them. Pure; `minutes.reader` makes them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from listeners.sample import LATENCY_EDGES_SECONDS

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

BUCKETS: Final = len(LATENCY_EDGES_SECONDS) + 1
Name = Literal["rows", "caught_up", "refused", "commits", "backlog", "status", "events", "refused_early"]
_EDGES: Final = np.array([0.0, *LATENCY_EDGES_SECONDS, LATENCY_EDGES_SECONDS[-1]])  # the last bucket has no upper edge


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Games' numbers by slot of time, and those that no driver reported. Arrays are [games, slots], and read-only."""

    since: float  # Unix seconds: the beginning of the first slot, a multiple of slot_seconds
    slot_seconds: int
    games: tuple[str, ...]  # keys, sorted; those with a report in these slots
    groups: tuple[str, ...]  # of each game, as last reported
    rows: IntArray  # landed, all
    caught_up: IntArray  # of them, those read after a start or an outage: not in `counts`
    refused: IntArray
    commits: IntArray
    counts: IntArray  # [games, slots, BUCKETS]: rows by latency, without caught-up ones
    backlog: FloatArray  # largest age of the oldest event that waits in bronze, in seconds; nan: unknown
    status: IntArray  # worst status of the slot by its severity; -1: no driver reported
    events: FloatArray  # [slots]: into bronze, refused ones included; nan: no driver reported
    refused_early: FloatArray  # [slots]: refused by ingest; nan: no driver reported
    until: float | None = None  # Unix seconds: the last closed minute's end, maybe within the last slot; None: its end
    source_backlog: FloatArray | None = None
    """[slots]: largest age in seconds of the oldest row that waits in the source, for every game; nan: unknown."""

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self.events)

    @property
    def seconds(self) -> FloatArray:
        """The closed seconds of each slot, by which sums become rates; all but the last one's are slot_seconds."""
        begins = self.since + self.slot_seconds * np.arange(self.slots)
        until = np.inf if self.until is None else self.until
        return np.clip(until - begins, 0.0, self.slot_seconds)

    @property
    def known(self) -> BoolArray:
        """Where a game was reported; elsewhere its sums are 0 because nobody knows."""
        return self._known(slice(None))

    def of(self, games: Collection[str]) -> "Series":
        """Return the same for these games only; a game without any report is left out."""
        return self._picked(self._places(games))

    def total(self, name: Name, games: Collection[str] | None = None) -> FloatArray:
        """Return one number per slot: the games' sum, of backlog and status the largest; nan: no driver reported."""
        if name == "events":
            return self.events
        if name == "refused_early":
            return self.refused_early
        return self._total(name, slice(None) if games is None else self._places(games))

    def by_group(self, name: Name) -> dict[str, FloatArray]:
        """Return `total` of each group's games, by group; a game counts to the group that last reported it."""
        if name in {"events", "refused_early"}:
            return {group: self.total(name) for group in sorted(set(self.groups))}
        members: dict[str, list[int]] = {}
        for at, group in enumerate(self.groups):
            members.setdefault(group, []).append(at)
        return {group: self._total(name, members[group]) for group in sorted(members)}

    def latency(self, share: float, games: Collection[str] | None = None) -> FloatArray:
        """Return the quantile (share: 0 to 1) of each slot's rows in seconds; nan without rows.

        Over all games or some; interpolates like `quantile`, and rows that caught up do not count.

        Raises:
            ValueError: the share is not between 0 and 1.
        """
        (found,) = self.latencies((share,), games)
        return found

    def latencies(self, shares: Sequence[float], games: Collection[str] | None = None) -> list[FloatArray]:
        """Return `latency` of several shares, for which the rows are added up once."""
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"expected shares from 0 to 1, got {list(shares)}")
        counts = (self.counts if games is None else self.counts[self._places(games)]).sum(axis=0)
        return [_quantiles(counts, share) for share in shares]

    def _places(self, games: Collection[str]) -> list[int]:
        wanted = set(games)
        return [at for at, game in enumerate(self.games) if game in wanted]

    def _known(self, places: list[int] | slice) -> BoolArray:
        reported = self.status[places] >= 0
        return reported | (self.rows[places] > 0) | (self.refused[places] > 0) | (self.commits[places] > 0)

    def _total(self, name: Name, places: list[int] | slice) -> FloatArray:
        if name == "backlog":
            return _largest(self.backlog[places])
        if name == "status":
            status = self.status[places]
            return _largest(np.where(status < 0, np.nan, status))
        sums: IntArray = getattr(self, name)[places].sum(axis=0)
        return np.where(self._known(places).any(axis=0), sums, np.nan)

    def _picked(self, places: list[int]) -> "Series":
        return replace(
            self,
            games=tuple(self.games[at] for at in places),
            groups=tuple(self.groups[at] for at in places),
            rows=self.rows[places],
            caught_up=self.caught_up[places],
            refused=self.refused[places],
            commits=self.commits[places],
            counts=self.counts[places],
            backlog=self.backlog[places],
            status=self.status[places],
        )


def _largest(values: FloatArray) -> FloatArray:
    """Return the largest known value of each column, nan where none is known."""
    largest: FloatArray = np.fmax.reduce(values, axis=0, initial=np.nan)
    return largest


def _quantiles(counts: IntArray, share: float) -> FloatArray:
    """Return the quantile of each row of bucket counts."""
    sums = counts.cumsum(axis=1)
    ranks = share * sums[:, -1]
    at = np.argmax((counts > 0) & (sums >= ranks[:, None]), axis=1)
    every = np.arange(len(counts))
    inside = counts[every, at]
    low, high = _EDGES[at], _EDGES[at + 1]
    parts = (ranks - sums[every, at] + inside) / np.maximum(inside, 1)
    return np.where(inside > 0, low + (high - low) * parts, np.nan)
