"""The memory of one group's watchdog: windows, rates and settled statuses of its streams.

The driver calls `observe` at each evaluation with `now`, what it knows of each stream and the results since the last
call. No clock, no I/O, no thread: calls come from one thread.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from listeners.sample import GameResult, Lane, StreamState, TypeRows, largest_types
from pipeline.health.verdicts.latency_windows import LatencyWindow, SegmentWindow
from pipeline.health.verdicts.status import Observation, Settled, StreamFacts, judge_stream, patience_seconds, settle

RATE_SECONDS: Final = 60.0
LATENCY_SECONDS: Final = 300.0
REFUSED_SECONDS: Final = 300.0
LAST_MINUTE_SECONDS: Final = 60.0
WINDOW_OBSERVATIONS: Final = 36
_PER_PATIENCE: Final = 24  # so that a full window is longer than the patience of `judge_stream`
_NO_SEGMENTS: Final = (None, None, None, None)
_PARKED: Final[frozenset[Lane]] = frozenset({Lane.PAUSED, Lane.QUARANTINED})


@dataclass(frozen=True, slots=True)
class StreamReading:
    """What the driver knows of one stream at the instant of an evaluation."""

    facts: StreamFacts
    cursor_seq: int
    frontier_seq: int | None  # None before the first pass
    backlog_age_seconds: float | None  # as `lag.backlog_age` tells it
    complete_through_seq: int | None = None  # bronze was read up to here without more rows of the game; None: unknown
    schema_set: int | None = None  # as in `StreamState`


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a settled status."""

    game_key: str
    at: float
    from_status: str | None  # None: the stream was not watched before
    to_status: str
    detail: str


@dataclass(slots=True)
class _Memory:
    """What is remembered of one stream while this group carries it."""

    seen_at: float
    lane: Lane
    window: deque[Observation] = field(default_factory=lambda: deque(maxlen=WINDOW_OBSERVATIONS))
    settled: Settled | None = None
    landed: deque[tuple[float, int, int, int]] = field(default_factory=deque)  # at, rows, bytes, commits
    landed_rows: int = 0
    landed_bytes: int = 0
    landed_commits: int = 0
    latencies: LatencyWindow = field(default_factory=lambda: LatencyWindow(LATENCY_SECONDS))
    last_minute: LatencyWindow = field(default_factory=lambda: LatencyWindow(LAST_MINUTE_SECONDS))
    segments: SegmentWindow = field(default_factory=lambda: SegmentWindow(LATENCY_SECONDS))
    refused: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)
    refused_rows: Counter[str] = field(default_factory=Counter)  # sums are kept: adding 60 results up costs too much
    refused_at: dict[str, float] = field(default_factory=dict)  # the last of each reason
    types: deque[tuple[float, Mapping[str, TypeRows]]] = field(default_factory=deque)
    landed_types: Counter[str] = field(default_factory=Counter)
    refused_types: Counter[str] = field(default_factory=Counter)
    recent: deque[tuple[float, int]] = field(default_factory=deque)  # at, rows
    recent_rows: int = 0
    commits: deque[tuple[float, float]] = field(default_factory=deque)  # at, seconds
    commit_seconds: float = 0.0
    rows_total: int = 0
    rejects_total: int = 0
    last_commit_at: float | None = None
    last_error: str | None = None
    backfilling: bool = False


class Watch:
    """Judges all streams of one group, evaluation by evaluation."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._streams: dict[str, _Memory] = {}
        self._transitions: tuple[Transition, ...] = ()

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """The status changes found by the last `observe`."""
        return self._transitions

    def observe(
        self, now: float, readings: Mapping[str, StreamReading], results: Sequence[GameResult]
    ) -> list[StreamState]:
        """Return the state of every stream in `readings`, and keep the transitions of this evaluation.

        A stream without a reading was given away and is forgotten, with its totals; results of such streams are not
        counted here (the publishing path has them). `now` is in Unix seconds and must not go backwards.
        """
        for key in self._streams.keys() - readings.keys():
            del self._streams[key]
        for key, reading in readings.items():
            memory = self._streams.get(key)
            if memory is None:
                self._streams[key] = _Memory(now, reading.facts.lane)
        for result in results:
            if (memory := self._streams.get(result.game_key)) is not None:
                _remember(memory, result, now)
        transitions: list[Transition] = []
        states = [self._evaluate(key, reading, now, transitions) for key, reading in readings.items()]
        self._transitions = tuple(transitions)
        return states

    def _evaluate(self, key: str, reading: StreamReading, now: float, transitions: list[Transition]) -> StreamState:
        memory = self._streams[key]
        _forget_old(memory, now)
        facts = _facts(memory, reading)
        _add_observation(memory, reading, facts, now)
        before = memory.settled
        verdict = judge_stream(memory.window, facts, now)
        settled = memory.settled = settle(before, verdict, now, memory.last_commit_at)
        if before is None or before.status != settled.status:
            origin = None if before is None else before.status
            transitions.append(Transition(key, now, origin, settled.status, settled.detail))
        elapsed = min(RATE_SECONDS, now - memory.seen_at)
        p50, p95, p99 = memory.latencies.quantiles(0.5, 0.95, 0.99)
        segments = memory.segments.means() or _NO_SEGMENTS
        refused = dict(+memory.refused_rows) if memory.refused else {}
        return StreamState(
            game_key=key,
            group=self._group,
            lane=facts.lane,
            status=settled.status,
            status_since=settled.since,
            cursor_seq=reading.cursor_seq,
            last_commit_at=memory.last_commit_at,
            backlog_age_seconds=reading.backlog_age_seconds,
            rows_per_second=memory.landed_rows / elapsed if elapsed > 0 else None,
            latency_p95_seconds=p95,
            rows_total=memory.rows_total,
            rejects_total=memory.rejects_total,
            last_error=memory.last_error or facts.last_run_failed,
            updated_at=now,
            bytes_per_second=memory.landed_bytes / elapsed if elapsed > 0 else None,
            commits_per_second=memory.landed_commits / elapsed if elapsed > 0 else None,
            waits_for=facts.waits_for,
            refused=refused,
            landed=memory.recent_rows,
            types=_types(memory),
            commit_mean_seconds=max(0.0, memory.commit_seconds / len(memory.commits)) if memory.commits else None,
            latency_p50_seconds=p50,
            latency_p99_seconds=p99,
            latency_p99_last_minute_seconds=memory.last_minute.quantiles(0.99)[0],
            queue_seconds=segments[0],
            process_seconds=segments[1],
            commit_seconds=segments[2],
            upstream_seconds=segments[3],
            schema_set=reading.schema_set,
            refused_at={reason: memory.refused_at[reason] for reason in refused},
        )


def _types(memory: _Memory) -> dict[str, TypeRows]:
    """Return the rows of the window by event type."""
    if not (memory.landed_types or memory.refused_types):
        return {}
    landed, refused = +memory.landed_types, +memory.refused_types
    return largest_types({name: TypeRows(landed[name], refused[name]) for name in landed.keys() | refused.keys()})


def _count_types(memory: _Memory, types: Mapping[str, TypeRows], sign: int) -> None:
    for name, rows in types.items():
        memory.landed_types[name] += sign * rows.landed
        memory.refused_types[name] += sign * rows.refused
        if not (memory.landed_types[name] or memory.refused_types[name]):  # types may come and go without end
            del memory.landed_types[name], memory.refused_types[name]


def _remember(memory: _Memory, result: GameResult, now: float) -> None:
    """Add one result to the totals, the rate and the latency histogram."""
    if result.error is not None:
        memory.last_error = result.error
        return  # its rows and rejects come again with the next attempt
    memory.rows_total += result.rows
    memory.rejects_total += sum(result.rejects.values())
    at = now if result.committed_at is None else result.committed_at
    commits = int(result.committed_at is not None)
    if result.rows or commits:
        memory.landed.append((at, result.rows, result.bytes, commits))
        memory.landed_rows += result.rows
        memory.landed_bytes += result.bytes
        memory.landed_commits += commits
    filled = [(bucket, rows) for bucket, rows in enumerate(result.latency_counts) if rows]
    if filled:
        memory.latencies.add(at, filled)
        memory.last_minute.add(at, filled)
        if result.segments_seconds is not None:
            memory.segments.add(at, result.segments_seconds, sum(result.latency_counts))
    if result.rows:
        memory.recent.append((at, result.rows))
        memory.recent_rows += result.rows
    if any(result.rejects.values()):
        memory.refused.append((at, result.rejects))
        memory.refused_rows.update(result.rejects)
        memory.refused_at |= {reason: at for reason, rows in result.rejects.items() if rows}
    if result.types:
        memory.types.append((at, result.types))
        _count_types(memory, result.types, 1)
    if result.committed_at is not None:
        memory.commits.append((at, result.commit_seconds))
        memory.commit_seconds += result.commit_seconds
        memory.last_error = None
        memory.last_commit_at = max(result.committed_at, memory.last_commit_at or result.committed_at)


def _forget_old(memory: _Memory, now: float) -> None:
    """Drop what lies before the windows of the rate and of the latencies."""
    while memory.landed and memory.landed[0][0] <= now - RATE_SECONDS:
        _, rows, size, commits = memory.landed.popleft()
        memory.landed_rows -= rows
        memory.landed_bytes -= size
        memory.landed_commits -= commits
    memory.latencies.forget_old(now)
    memory.last_minute.forget_old(now)
    memory.segments.forget_old(now)
    while memory.refused and memory.refused[0][0] <= now - REFUSED_SECONDS:
        memory.refused_rows.subtract(memory.refused.popleft()[1])
    while memory.types and memory.types[0][0] <= now - REFUSED_SECONDS:
        _count_types(memory, memory.types.popleft()[1], -1)
    while memory.recent and memory.recent[0][0] <= now - REFUSED_SECONDS:
        memory.recent_rows -= memory.recent.popleft()[1]
    while memory.commits and memory.commits[0][0] <= now - RATE_SECONDS:
        memory.commit_seconds -= memory.commits.popleft()[1]


def _facts(memory: _Memory, reading: StreamReading) -> StreamFacts:
    """Return the reading's facts with what only the memory knows: a backfill, and why the stream is parked."""
    facts = reading.facts
    if memory.lane in _PARKED and facts.lane not in _PARKED:
        memory.window.clear()  # what stood still on purpose has not stalled
    memory.lane = facts.lane
    memory.backfilling = facts.lane == Lane.CATCHUP and (memory.backfilling or reading.cursor_seq == 0)
    if memory.backfilling:
        return replace(facts, backfilling=True)
    if facts.lane == Lane.QUARANTINED and facts.last_run_failed is None:
        return replace(facts, last_run_failed=memory.last_error)
    return facts


def _add_observation(memory: _Memory, reading: StreamReading, facts: StreamFacts, now: float) -> None:
    """Put the newest observation into the window, thinned so that a full window outlasts the judge's patience."""
    # A catch-up that reads on without finding rows of its game moves, although there is nothing to commit.
    passed = max(reading.cursor_seq, reading.complete_through_seq or 0)
    seen = Observation(now, passed, reading.backlog_age_seconds, reading.frontier_seq)
    window, spacing = memory.window, patience_seconds(facts) / _PER_PATIENCE
    if len(window) > 1 and window[-1].at - window[-2].at < spacing:
        window[-1] = seen
    else:
        window.append(seen)
