"""Judges a group's streams with a clock of its own, so that a hung pass or a dead query shows without any event."""

import time
from collections import deque
from collections.abc import Callable, Mapping

from sqlalchemy import Engine

from listeners.sample import GameResult, GroupSample, Lane, PassResult, StatusEvent, StreamState
from pipeline.data.streams.group import Group
from pipeline.data.streams.stream import Stream
from pipeline.health.incidents.own import MOSTLY_LEAST, REFUSED_SHARE
from pipeline.health.verdicts.lag import backlog_age
from pipeline.health.verdicts.status import StreamFacts
from pipeline.health.verdicts.watch import StreamReading, Watch
from pipeline.settings.tree import Settings
from pipeline.store.processes.drivers import StreamReports, commits_since

_PASSES_KEPT = 50
_FAILURE_WINDOW_SECONDS = 900.0

PublishStates = Callable[[list[StreamState], list[StatusEvent], GroupSample], None]


class Watchdog:
    """Evaluates all streams of one group at each heartbeat and reports their states."""

    def __init__(self, settings: Settings, engine: Engine, group: Group, publish: PublishStates) -> None:
        """Watch a group from now on."""
        self._settings, self._engine, self._group, self._publish = settings, engine, group, publish
        self._watch, self._reports = Watch(group.name), StreamReports(engine)
        self._started_at = time.time()
        self._results: deque[PassResult] = deque(maxlen=10_000)
        self._durations: deque[float] = deque(maxlen=_PASSES_KEPT)
        self._failures: deque[float] = deque()
        self.last_failure: str | None = None
        self.has_news = False  # a pass has refused rows anew since the last evaluation
        self._refused: Mapping[str, int] = {}  # rows within five minutes by game, as reported last

    def passed(self, result: PassResult) -> None:
        """Record a pass's result; called on the query's thread."""
        self._results.append(result)
        if any(refuses_anew(game, self._refused.get(game.game_key, 0)) for game in result.games):
            self.has_news = True
        if not result.is_chunk:
            self.last_failure = None
            self._durations.append(result.finished_at - result.started_at)

    def failed(self, error: str) -> None:
        """Record that the group's query ended with an error."""
        self.last_failure = error
        self._failures.append(time.time())

    def started(self) -> None:
        """Record that the group's query was started, for the first time or again."""
        self._started_at = time.time()

    def evaluate(self, *, active: bool) -> None:
        """Evaluate every stream now; `active`: the group's query is running."""
        is_news, self.has_news = self.has_news, False  # before the results: a later pass is news of its own
        now = time.time()
        self._started_at = min(self._started_at, now)  # the clock may have been set back
        while self._failures and self._failures[0] < now - _FAILURE_WINDOW_SECONDS:
            self._failures.popleft()
        results = [self._results.popleft() for _ in range(len(self._results))]
        streams = list(self._group.streams.values())
        troubles = self._group.registry_troubles() if any(stream.waits for stream in streams) else {}
        commits = self._commits(streams)
        durations = sorted(self._durations)
        p95 = durations[int(len(durations) * 0.95)] if durations else None
        sets = self._group.schema_sets()
        readings: dict[str, StreamReading] = {
            stream.game_key: self._reading(
                stream, commits, p95, now, troubles, sets.get(stream.game_key), active=active
            )
            for stream in streams
        }
        states = self._watch.observe(now, readings, [game for result in results for game in result.games])
        changes = [
            StatusEvent(
                change.game_key, self._group.name, change.at, change.from_status, change.to_status, change.detail
            )
            for change in self._watch.transitions
        ]
        rates = [state.rows_per_second for state in states]
        known = [rate for rate in rates if rate is not None]
        sample = GroupSample(
            group=self._group.name,
            at=now,
            frontier_seq=self._group.frontier_seq or None,
            streams=len(states),
            behind=sum(stream.behind for stream in streams),
            rows_per_second=sum(known) if known else None,
        )
        self._refused = {state.game_key: sum(state.refused.values()) for state in states if state.refused}
        self._reports.write(states, is_news=is_news)
        self._publish(states, changes, sample)

    def _commits(self, streams: list[Stream]) -> list[tuple[int, float]]:
        """Return the bronze commits that are young enough to matter for any backlog."""
        known = [stream for stream in streams if not stream.unreadable]
        waiting = [self._passed(stream) for stream in known if stream.last_seq > self._passed(stream)]
        return commits_since(self._engine, min(waiting) + 1) if waiting else []

    def _passed(self, stream: Stream) -> int:
        frontier = self._group.frontier_seq
        return stream.complete_through if stream.behind else max(stream.complete_through, frontier)

    def _reading(
        self,
        stream: Stream,
        commits: list[tuple[int, float]],
        p95: float | None,
        now: float,
        troubles: Mapping[str, str],
        schema_set: int | None,
        *,
        active: bool,
    ) -> StreamReading:
        waits, lane = stream.waits, stream.lane  # the stream may be applied meanwhile
        facts = StreamFacts(
            desired=stream.decision.desired,
            driver_active=active,
            last_run_failed=stream.error if stream.unreadable or lane == Lane.QUARANTINED else self.last_failure,
            failed_runs_15min=len(self._failures),
            lane=lane,
            started_at=self._started_at,
            trigger_seconds=self._settings.demux.trigger_seconds,
            pass_p95_seconds=p95,
            objective_seconds=self._settings.metrics.latency_objective_seconds,
            pass_active_since=self._group.pass_since,
            last_attempt_failed=stream.error if lane == Lane.CATCHUP else None,
            waits_for=waits.sentence(troubles) if waits is not None and stream.behind else None,
        )
        frontier = self._group.frontier_seq or None
        age = None  # even without rows waiting: an unreadable cursor is not known to be at the end
        if not stream.unreadable:
            age = backlog_age(lane, stream.complete_through, frontier, stream.last_seq, commits, now)
        return StreamReading(facts, stream.cursor, frontier, age, stream.complete_through, schema_set)


def refuses_anew(result: GameResult, known: int) -> bool:
    """Return whether a pass refuses rows of a game for the first time: more than five minutes before it, and not few.

    A trickle of bad rows is not news, so a driver of many games does not report after each pass.
    """
    refused = sum(result.rejects.values())
    is_few = refused < MOSTLY_LEAST or refused < REFUSED_SHARE * (refused + result.rows)
    return result.error is None and refused > known and not is_few
