"""Folds what a driver's telemetry sees into minutes. Pure: `now` is an argument, and closed minutes are returned.

A minute is closed a few seconds after its end. What arrives later makes a further row of it, and readers add them up.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from listeners.sample import (
    CpuUse,
    GameResult,
    IngestMinute,
    PassResult,
    ProcessMinute,
    StreamMinute,
    StreamState,
)
from listeners.status import Status

MINUTE_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 5.0
"""Seconds that a minute stays open after its end, for results that are on their way."""


Minute = StreamMinute | IngestMinute | ProcessMinute


class Minutes:
    """The open minutes of one process. Calls come from one thread.

    Args:
        kind: of the process, by which its CPU time is known, as its name.
        name: of the process.
        is_whole: whether all that works for the process is below it, so that its CPU time is that of its work.
    """

    def __init__(self, kind: str = "", name: str = "", *, is_whole: bool = False) -> None:
        self._kind, self._name, self._is_whole = kind, name, is_whole
        self._cpu: dict[float, _Cpu] = {}
        self._games: dict[tuple[float, str], _Game] = {}
        self._ingest: dict[float, _Ingest] = {}
        self._close_at = float("inf")

    def __len__(self) -> int:
        """Return how many rows wait for the end of their minute."""
        return len(self._games) + len(self._ingest) + len(self._cpu)

    def add_pass(self, result: PassResult, now: float) -> None:
        """Add the results of a pass or chunk, each to the minute of its commit; failed ones come again."""
        for game in result.games:
            if game.error is None:
                at = result.finished_at if game.committed_at is None else game.committed_at
                self._game(min(at, now), game.game_key, result.group).add(game)

    def add_states(self, states: Sequence[StreamState], now: float) -> None:
        """Add one evaluation of a group's streams, at the time they were judged."""
        for state in states:
            self._game(min(state.updated_at, now), state.game_key, state.group).see(state)

    def add_landed(self, at: float, rows: int, refused: int, now: float) -> None:
        """Add one commit to bronze (at: Unix seconds) with its rows, of which some were refused."""
        self._ingest_minute(min(at, now)).add(rows, refused)

    def add_heartbeat(self, backlog_age_seconds: float | None, now: float) -> None:
        """Record that ingest runs, so that a minute without rows counts as 0 and not as unknown.

        With the age of the oldest row that waits in the source; None: unknown.
        """
        self._ingest_minute(now).see(backlog_age_seconds)

    def add_cpu(self, use: CpuUse) -> None:
        """Add the CPU time of a span, to each minute its share of the span."""
        whole = use.ended_at - use.began_at
        begin = use.began_at
        while begin < use.ended_at:
            minute = self._opened(begin)
            end = min(use.ended_at, minute + MINUTE_SECONDS)
            self._cpu.setdefault(minute, _Cpu()).add(use.cpu_seconds * (end - begin) / whole, end - begin)
            begin = end

    def close(self, now: float) -> Sequence[Minute]:
        """Return the rows of the minutes that have ended and forget them, sorted by minute and game."""
        if now < self._close_at:
            return ()
        limit = now - GRACE_SECONDS - MINUTE_SECONDS
        closed = list(self._take(limit))
        begun = [minute for minute, _ in self._games] + list(self._ingest) + list(self._cpu)
        self._close_at = min(begun, default=float("inf")) + MINUTE_SECONDS + GRACE_SECONDS
        return closed

    def release(self) -> Sequence[Minute]:
        """Return all rows, also of minutes that have not ended, and forget them: the end of the process."""
        self._close_at = float("inf")
        return list(self._take(float("inf")))

    def _take(self, limit: float) -> Iterator[Minute]:
        for minute, game_key in sorted(key for key in self._games if key[0] <= limit):
            yield self._games.pop((minute, game_key)).row(minute, game_key)
        for minute in sorted(minute for minute in self._ingest if minute <= limit):
            yield self._ingest.pop(minute).row(minute)
        for minute in sorted(minute for minute in self._cpu if minute <= limit):
            yield self._cpu.pop(minute).row(minute, self._kind, self._name, is_whole=self._is_whole)

    def _game(self, at: float, game_key: str, group: str) -> "_Game":
        key = (self._opened(at), game_key)
        game = self._games.get(key)
        if game is None:
            game = self._games[key] = _Game(group)
        return game

    def _ingest_minute(self, at: float) -> "_Ingest":
        return self._ingest.setdefault(self._opened(at), _Ingest())

    def _opened(self, at: float) -> float:
        minute = at // MINUTE_SECONDS * MINUTE_SECONDS
        self._close_at = min(self._close_at, minute + MINUTE_SECONDS + GRACE_SECONDS)
        return minute


class _Game:
    """One game's sums of one minute."""

    __slots__ = ("_backlog", "_caught_up", "_commits", "_counts", "_group", "_refused", "_rows", "_status")

    def __init__(self, group: str) -> None:
        self._group = group
        self._rows = self._caught_up = self._refused = self._commits = 0
        self._counts: tuple[int, ...] = ()
        self._backlog: float | None = None
        self._status: Status | None = None

    def add(self, game: GameResult) -> None:
        self._rows += game.rows
        self._caught_up += game.caught_up_rows
        self._refused += sum(game.rejects.values())
        self._commits += game.committed_at is not None
        if any(game.latency_counts):
            before = self._counts or (0,) * len(game.latency_counts)
            self._counts = tuple(map(sum, zip(before, game.latency_counts, strict=True)))

    def see(self, state: StreamState) -> None:
        status = Status(state.status)
        if self._status is None or status.severity > self._status.severity:
            self._status = status
        self._backlog = _larger(self._backlog, state.backlog_age_seconds)

    def row(self, minute: float, game_key: str) -> StreamMinute:
        return StreamMinute(
            at=minute,
            game_key=game_key,
            group=self._group,
            rows=self._rows,
            caught_up_rows=self._caught_up,
            refused=self._refused,
            commits=self._commits,
            latency_counts=self._counts,
            backlog_age_seconds=_rounded(self._backlog),
            status=self._status,
        )


class _Ingest:
    """Ingest's sums of one minute."""

    __slots__ = ("_backlog", "_commits", "_refused", "_rows")

    def __init__(self) -> None:
        self._rows = self._refused = self._commits = 0
        self._backlog: float | None = None

    def add(self, rows: int, refused: int) -> None:
        self._rows += rows
        self._refused += refused
        self._commits += 1

    def see(self, backlog_age_seconds: float | None) -> None:
        self._backlog = _larger(self._backlog, backlog_age_seconds)

    def row(self, minute: float) -> IngestMinute:
        return IngestMinute(minute, self._rows, self._refused, self._commits, _rounded(self._backlog))


class _Cpu:
    """A process's CPU time of one minute."""

    __slots__ = ("_cpu_seconds", "_measured_seconds")

    def __init__(self) -> None:
        self._cpu_seconds = self._measured_seconds = 0.0

    def add(self, cpu_seconds: float, measured_seconds: float) -> None:
        self._cpu_seconds += cpu_seconds
        self._measured_seconds += measured_seconds

    def row(self, minute: float, kind: str, name: str, *, is_whole: bool) -> ProcessMinute:
        cpu, measured = round(self._cpu_seconds, 3), round(self._measured_seconds, 3)
        return ProcessMinute(minute, kind, name, cpu, measured, is_whole)


def _larger(one: float | None, other: float | None) -> float | None:
    """Return the larger of two ages, of which each may be unknown."""
    known = [age for age in (one, other) if age is not None]
    return max(known, default=None)


def _rounded(age: float | None) -> float | None:
    return None if age is None else round(age, 1)
