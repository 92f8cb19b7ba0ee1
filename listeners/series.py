"""Numbers of games and ingest by slots of time, as the dashboard draws them. Pure; `minutes.reader` makes them."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from listeners.sample import LATENCY_EDGES_SECONDS

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

BUCKETS: Final = len(LATENCY_EDGES_SECONDS) + 1
Name = Literal["rows", "caught_up", "refused", "commits", "backlog", "status", "events", "refused_early"]
_ARRAYS: Final = ("rows", "caught_up", "refused", "commits", "counts", "backlog", "status")
_EDGES: Final = np.array([0.0, *LATENCY_EDGES_SECONDS, LATENCY_EDGES_SECONDS[-1]])  # the last bucket has no upper edge


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Games' numbers by slot of time, and those that no driver reported. Arrays are [games, slots], and read-only."""

    since: float  # Unix seconds: the beginning of the first slot, a multiple of slot_seconds
    slot_seconds: int
    games: tuple[str, ...]  # keys, sorted; those with a report in these slots
    groups: tuple[str, ...]  # of each game, as last reported; `by_group` and `of_group` know the earlier ones
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

    cores: Mapping[tuple[str, str], FloatArray] = field(default_factory=dict)
    """Cores that a driver and all that works for it used, by its kind and name: [slots]; nan: not measured."""

    partly_measured: frozenset[tuple[str, str]] = frozenset()
    """Drivers of which a part alone can be measured, such as those with executors elsewhere, by kind and name."""

    replaced_at: float | None = None
    """Unix seconds: since when the tables are other ones than those that were read before; None: they are the same."""

    partial: Mapping[str, BoolArray] = field(default_factory=dict)
    """[slots] by group: where a driver ended, or stood still, before it reported all: sums are at least these."""

    partial_events: BoolArray | None = None
    """[slots]: the same of ingest; None: nowhere."""

    moved: "Series | None" = None
    """The games that several groups reported in these slots, a line for each game and group; None: there are none."""

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

    def is_partial(self, groups: Collection[str] | None = None) -> BoolArray:
        """Return of which slots a report of these groups (None: of all) may be missing, so that sums are "at least"."""
        marked = [each for group, each in self.partial.items() if groups is None or group in groups]
        found: BoolArray = np.logical_or.reduce([np.zeros(self.slots, np.bool_), *marked])
        return found

    @property
    def known(self) -> BoolArray:
        """Where a game was reported; elsewhere its sums are 0 because nobody knows."""
        return self._known(slice(None))

    def of(self, games: Collection[str]) -> "Series":
        """Return the same for these games only; a game without any report is left out."""
        moved = None if self.moved is None else self.moved.of(games)
        return replace(self.picked(self._places(games)), moved=moved if moved is not None and moved.games else None)

    def of_group(self, group: str) -> "Series":
        """Return what games did while this group had them, whichever has them now; each game once, in no order."""
        stayed = self.picked(self._stayed().get(group, []))
        if self.moved is None:
            return stayed
        here = [at for at, its in enumerate(self.moved.groups) if its == group]
        return _joined(stayed, self.moved.picked(here)) if here else stayed

    def picked(self, places: list[int]) -> "Series":
        """Return the games, or lines, at these places."""
        return replace(
            self,
            games=tuple(self.games[at] for at in places),
            groups=tuple(self.groups[at] for at in places),
            moved=None,
            **{name: getattr(self, name)[places] for name in _ARRAYS},
        )

    def group_by_slot(self, game: str) -> list[str | None]:
        """Return which group had a game in each slot; None where no driver reported it.

        In a slot that two groups reported the game has just moved, and the one that did not have it before counts.
        """
        found: list[str | None] = [None] * self.slots
        lines = self if self.moved is None or game not in self.moved.games else self.moved
        known, current = lines.known, None
        for slot in range(self.slots):
            here = [
                group
                for at, (its, group) in enumerate(zip(lines.games, lines.groups, strict=True))
                if its == game and known[at, slot]
            ]
            if here:
                current = found[slot] = next((group for group in here if group != current), here[0])
        return found

    def begun(self, at: float) -> "Series":
        """Return the same without the slots at its beginning that end before a moment and of which nobody reported."""
        known = np.flatnonzero(self.known.any(axis=0) | np.isfinite(self.events))
        first = int(known[0]) if len(known) else self.slots
        before = int((at - self.since) // self.slot_seconds)
        cut = max(0, min(first, before, self.slots))
        return self if cut == 0 else self._later(cut)

    @property
    def whole(self) -> BoolArray:
        """Where all of a game was reported: neither is its slot unknown, nor may a report of its group be missing."""
        lost = np.zeros((len(self.games), self.slots), np.bool_)
        for at, group in enumerate(self.groups):
            lost[at] = self.partial.get(group, False)
        if self.moved is not None:
            place, known = {game: at for at, game in enumerate(self.games)}, self.moved.known
            lost[[place[game] for game in self.moved.games]] = False
            for at, (game, group) in enumerate(zip(self.moved.games, self.moved.groups, strict=True)):
                lost[place[game]] |= known[at] & self.partial.get(group, False)
        return self.known & ~lost

    @property
    def unsure(self) -> BoolArray:
        """Where a report of the group that had a game last may be missing, so that its silence there says nothing."""
        found = np.zeros((len(self.games), self.slots), np.bool_)
        moved = set() if self.moved is None else set(self.moved.games)
        for at, (game, group) in enumerate(zip(self.games, self.groups, strict=True)):
            if game not in moved:
                found[at] = self.partial.get(group, False)
                continue
            had: str | None = None
            for slot, here in enumerate(self.group_by_slot(game)):
                had = here or had
                found[at, slot] = had is not None and had in self.partial and self.partial[had][slot]
        return found

    def total(self, name: Name, games: Collection[str] | None = None) -> FloatArray:
        """Return one number per slot: the games' sum, of backlog and status the largest; nan: nobody knows it.

        Nobody does where no driver reported, nor of a sum of 0 to which a report may be missing.
        """
        if name == "events":
            return self.events
        if name == "refused_early":
            return self.refused_early
        return self._total(name, slice(None) if games is None else self._places(games))

    def by_group(self, name: Name) -> dict[str, FloatArray]:
        """Return `total` of each group's games, by group; a slot of a game counts to the group that reported it."""
        if name in {"events", "refused_early"}:
            return {group: self.total(name) for group in self._group_names()}
        parts = {group: [self._total(name, places)] for group, places in self._stayed().items()}
        for group, rows in ({} if self.moved is None else self.moved.by_group(name)).items():
            parts.setdefault(group, []).append(rows)
        return {group: _combined(name, parts[group]) for group in sorted(parts)}

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

    def _group_names(self) -> list[str]:
        return sorted({*self.groups, *(() if self.moved is None else self.moved.groups)})

    def _stayed(self) -> dict[str, list[int]]:
        """Return the places of the games that one group alone reported, by group."""
        moved = set() if self.moved is None else set(self.moved.games)
        return {
            group: kept
            for group, places in _by_value(self.groups).items()
            if (kept := [at for at in places if self.games[at] not in moved])
        }

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
        known = self._known(places).any(axis=0)
        return np.where(known & ((sums > 0) | ~self.is_partial(self._groups_at(places))), sums, np.nan)

    def _groups_at(self, places: list[int] | slice) -> set[str]:
        """Return the groups that had the games at these places in any slot."""
        here = list(range(len(self.games)))[places] if isinstance(places, slice) else places
        found = {self.groups[at] for at in here}
        if self.moved is not None:
            games = {self.games[at] for at in here}
            found |= {group for game, group in zip(self.moved.games, self.moved.groups, strict=True) if game in games}
        return found

    def _later(self, first: int) -> "Series":
        """Return the slots from one on."""
        source = self.source_backlog
        return replace(
            self,
            since=self.since + first * self.slot_seconds,
            events=self.events[first:],
            refused_early=self.refused_early[first:],
            source_backlog=None if source is None else source[first:],
            cores={driver: used[first:] for driver, used in self.cores.items()},
            partial={group: marked[first:] for group, marked in self.partial.items()},
            partial_events=None if self.partial_events is None else self.partial_events[first:],
            moved=None if self.moved is None else self.moved._later(first),  # noqa: SLF001 - of the same kind
            **{name: getattr(self, name)[:, first:] for name in _ARRAYS},
        )


def by_game(lines: Series, newest: Sequence[tuple[int, ...]]) -> Series:
    """Return a line per game, of lines by game and group in that order; a game's group is that of its newest line."""
    begins = np.flatnonzero([True, *(one != other for one, other in itertools.pairwise(lines.games))])
    if len(begins) == len(lines.games) or not lines.games:
        return lines
    spans = list(zip(begins.tolist(), [*begins[1:].tolist(), len(lines.games)], strict=True))
    folds: dict[str, Any] = dict.fromkeys(_ARRAYS, np.add) | {"backlog": np.fmax, "status": np.maximum}
    arrays: dict[str, Any] = {name: fold.reduceat(getattr(lines, name), begins, axis=0) for name, fold in folds.items()}
    moved = lines.picked([at for begin, end in spans if end - begin > 1 for at in range(begin, end)])
    for array in (*arrays.values(), *(getattr(moved, name) for name in _ARRAYS)):
        array.flags.writeable = False  # all viewers share them
    return replace(
        lines,
        games=tuple(lines.games[begin] for begin, _ in spans),
        groups=tuple(lines.groups[max(range(*span), key=newest.__getitem__)] for span in spans),
        moved=moved,
        **arrays,
    )


def _by_value(groups: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for at, group in enumerate(groups):
        places.setdefault(group, []).append(at)
    return places


def _joined(one: Series, other: Series) -> Series:
    """Return the games of both."""
    arrays: dict[str, Any] = {name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in _ARRAYS}
    return replace(one, games=(*one.games, *other.games), groups=(*one.groups, *other.groups), **arrays)


def _combined(name: Name, parts: Sequence[FloatArray]) -> FloatArray:
    """Return totals of parts as one total; unknown where all are."""
    if len(parts) == 1:
        return parts[0]
    whole = np.array(parts)
    if name in {"backlog", "status"}:
        return _largest(whole)
    return np.where(np.isnan(whole).all(axis=0), np.nan, np.nansum(whole, axis=0))


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
