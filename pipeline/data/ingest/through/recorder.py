"""Records, on the thread that measures the backlog, up to which time bronze has all of its source.

No micro-batch waits for it, and losing it loses only the newest time. Pages read what it reports to the control store.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.names import GameKey
from pipeline.data.ingest.identity import Position
from pipeline.data.ingest.restored import RolledBack, game_cursors
from pipeline.data.ingest.sources.kind import Backlog, Ends
from pipeline.data.ingest.through.through_time import first_above, lost_of
from pipeline.data.ingest.through.watch import (
    CLOCK,
    RESTORE,
    EndsSeen,
    ThroughWatch,
    clock_floor,
    is_shorter,
    rendered,
    withdrawn_by,
)
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.through import MOST, ThroughPair, ThroughTable, joined, thinned
from pipeline.settings.tree import Paths, Settings
from pipeline.store.games import generations
from pipeline.store.processes.leases import store_time
from pipeline.store.rows import Withdrawal
from pipeline.store.sources import gaps_with_seqs
from pipeline.store.through import cursors_behind, through_in, write_through

_log: Final = logging.getLogger("turnout")
_ATTEMPTS: Final = 3
_WITHDRAWALS_KEPT: Final = 10
_DAYS_KEPT: Final = 400
"""Days that keep their closing seq while they are open."""


class ThroughRecorder:
    """Keeps the table `through` of one environment."""

    def __init__(
        self, settings: Settings, paths: Paths, engine: Engine, source: Backlog, head: Callable[[], int]
    ) -> None:
        """Prepare; reads nothing yet. `head` looks for bronze's last seq."""
        self._environment, self._paths, self._engine = settings.environment, paths, engine
        self._books = settings.books
        self._source, self._head = source, head
        self._table = ThroughTable(paths.through)
        self._pairs: tuple[ThroughPair, ...] | None = None  # None: not read yet
        self._watch = ThroughWatch()
        self._clock: tuple[float, float] | None = None  # as last read, and the monotonic time after it
        self._shrunk = False
        self._withdrawals: tuple[Withdrawal, ...] = ()
        self._reported: object = None  # to the control store, last

    def look(self, offset: Mapping[str, Any] | None, begin: Position | None) -> None:
        """Observe the source once, and record the newest time through which bronze is complete.

        `offset` and `begin` are the place that bronze has reached in the source (`BronzePosition`).

        Raises:
            Transient: a broker or storage does not answer.
            RolledBack: rows were removed from bronze; no time is recorded until they are back.
        """
        reached = self._source.reached(offset, begin)
        seq = self._newest_seq()  # after the place: bronze has no less than what the place says
        asked_at = time.monotonic()
        at = store_time(self._engine)
        answered_at = time.monotonic()
        ends = self._source.ends()
        if self._pairs is None:
            self._pairs = self._opened(at)
        self._heed_clock(at, asked_at)
        self._clock = at, answered_at
        if reached is not None and ends is not None:
            self._observe(EndsSeen(at, ends), reached, seq)
        self._report(at)

    def _newest_seq(self) -> int:
        """Return bronze's last seq; where `RESTORE TABLE` removed rows, withdraw the times above those left."""
        try:
            return self._head()
        except RolledBack as error:
            at, left = store_time(self._engine), error.last_seq
            pairs = self._opened(at) if self._pairs is None else self._pairs
            self._watch.waiting.clear()
            self._pairs = self._withdraw(pairs, lambda pair: pair.seq > left, RESTORE, at)
            self._report(at)
            raise

    def _observe(self, seen: EndsSeen, reached: Ends, seq: int) -> None:
        """Add an observation, and record the newest that bronze has passed."""
        if is_shorter(seen.ends, reached):  # the next batch says what happened; no time counts until then
            if not self._shrunk:
                _log.warning("the source ends before the place that bronze has reached: no time is recorded")
            self._shrunk = True
            self._watch.waiting.clear()
            return
        self._shrunk = False
        self._watch.add(seen)
        passed = self._watch.passed(reached)
        if passed is not None:
            self._record(ThroughPair(seq, passed.at, rendered(passed.ends)))

    def _report(self, at: float) -> None:
        """Report the pairs to the control store, thinned like old ones, where they have changed."""
        pairs = self._pairs or ()
        if self._reported != (pairs, self._withdrawals):
            behind = [cursor + 1 for cursor in cursors_behind(self._engine)]
            kept = thinned(pairs, at, behind)
            write_through(self._engine, [(pair.seq, pair.at) for pair in kept], self._withdrawals)
            self._reported = pairs, self._withdrawals

    def _opened(self, at: float) -> tuple[ThroughPair, ...]:
        """Return the pairs that hold, and withdraw the others."""
        with self._engine.connect() as connection:
            reported = through_in(connection)
        self._withdrawals = () if reported is None else reported.withdrawals
        pairs = self._table.read()
        losses = lost_of(open_table(self._paths.bronze), self._environment)
        gaps = gaps_with_seqs(self._engine)
        incidents = {why for pair in pairs if (why := withdrawn_by(pair, losses, gaps)) is not None}
        named = ", ".join(sorted(incidents))
        return self._withdraw(pairs, lambda pair: withdrawn_by(pair, losses, gaps) is not None, named, at)

    def _heed_clock(self, at: float, asked_at: float) -> None:
        """Withdraw what lies above the least time that the clock has shown, where it was set back."""
        pairs = self._pairs or ()
        newest = max((pair.at for pair in pairs), default=at)
        floor = at if newest > at else None
        if self._clock is not None:
            stepped = clock_floor(self._clock, at, asked_at)
            floor = stepped if floor is None or stepped is None else min(floor, stepped)
        if floor is None:
            return
        _log.warning("the control store's clock went back: times after %.3f do not count any more", floor)
        self._watch.withdraw(floor)
        # A clock that this process saw all the time showed no less than the floor: what holds later holds for that.
        cap = None if self._clock is None else floor
        self._pairs = self._withdraw(pairs, lambda pair: pair.at > floor, CLOCK, at, cap)

    def _withdraw(
        self, pairs: tuple[ThroughPair, ...], is_void: Callable[[ThroughPair], bool], incident: str, at: float,
        cap: float | None = None,
    ) -> tuple[ThroughPair, ...]:  # fmt: skip
        """Write the pairs without void ones, noticed at a time; return them. Up to `cap` the first void pair holds."""
        for _ in range(_ATTEMPTS):
            kept = tuple(pair for pair in pairs if not is_void(pair))
            if kept == pairs:
                return pairs
            if cap is not None:
                kept = joined(kept, replace(next(filter(is_void, pairs)), at=cap))
            if self._table.write(kept, incident):
                _log.warning("%d pairs of `through` are withdrawn: %s", sum(map(is_void, pairs)), incident)
                newest, left = (max((pair.at for pair in some), default=None) for some in (pairs, kept))
                new = Withdrawal(incident, at, sum(map(is_void, pairs)), newest or at, left)
                self._withdrawals = (*self._withdrawals, new)[-_WITHDRAWALS_KEPT:]
                return kept
            pairs = self._table.read()
        raise OSError(f"another process keeps writing to {self._paths.through}")

    def _record(self, new: ThroughPair) -> None:
        for _ in range(_ATTEMPTS):
            before = self._pairs or ()
            pairs = joined(before, new)
            if pairs == before:
                return
            if len(pairs) > MOST:
                pairs = thinned(pairs, new.at, self._unread(), self._day_ends(new.at))
            if self._table.write(pairs):
                self._pairs = pairs
                return
            self._pairs = self._table.read()

    def _day_ends(self, now: float) -> list[float]:
        """Return when the newest days of the books end, with their lateness: Unix seconds."""
        books = self._books
        newest = (now - books.lateness_seconds) // books.day_seconds
        return [(newest - back) * books.day_seconds + books.lateness_seconds for back in range(_DAYS_KEPT)]

    def _unread(self) -> list[int]:
        """Return, of each game that is behind, the first seq with a row above its cursor."""
        bronze = open_table(self._paths.bronze)
        cursors = game_cursors(self._paths, self._environment, self._engine)
        known = generations(self._engine)  # also games without a table yet
        found = (
            first_above(bronze, self._paths, self._environment, key, cursors.get(GameKey(key), 0)) for key in known
        )
        return [seq for seq in found if seq is not None]
