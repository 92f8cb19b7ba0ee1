"""The streams one driver carries, and the lane each is in: the one place where passes, catch-up and people meet.

Used by several threads; a stream is read by one of them at a time, because lanes change only here.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from sqlalchemy import Engine

from pipeline.settings import Paths, Settings
from pipeline.store.decisions import Decision, decided, record_failures
from pipeline.store.games import assigned
from pipeline.streams import lanes
from pipeline.streams.lanes import Failure
from pipeline.streams.stream import Stream, stream_of

FrontierOf = Callable[[Stream], int]
"""The last bronze seq that the query of this stream has passed."""


class Roster:
    """The streams of one cluster group."""

    def __init__(self, settings: Settings, paths: Paths, engine: Engine, group: str) -> None:
        """Open the tables of the group's games."""
        self._settings, self._paths, self._engine, self.group = settings, paths, engine, group
        self._lock = threading.RLock()
        self.streams: dict[str, Stream] = {}
        self.sync()

    def sync(self) -> None:
        """Take on games that were assigned to this group, drop those that were moved away, hear what was decided."""
        wanted = {each.game_key: each for each in assigned(self._engine, self.group)}
        decisions = decided(self._engine)
        with self._lock:
            for key in self.streams.keys() - wanted.keys():
                del self.streams[key]
            for key, assignment in wanted.items():
                known = self.streams.get(key)
                if known is None or known.generation < assignment.generation:
                    interval = self._settings.demux.checkpoint_interval
                    environment, path = self._settings.environment, self._paths.table(key)
                    known = self.streams[key] = stream_of(assignment, environment, path, interval)
                known.last_seq = max(known.last_seq, assignment.last_seq)
                known.decision = decisions.get(key, Decision())

    def for_pass(self, frontier_seq: int, key: str | None = None) -> dict[str, Stream]:
        """Return the streams of the next pass: of the shared query, or with `key` of that game's own one.

        A stream that has caught up with what the query has passed rejoins it here, at a pass boundary and nowhere else.
        """
        now = time.time()
        with self._lock:
            members = {
                name: stream
                for name, stream in self.streams.items()
                if (name == key if key else not stream.decision.own_query) and lanes.may_run(stream.decision, now)
            }
            for stream in members.values():
                if stream.behind and not stream.reading and stream.complete_through >= frontier_seq:
                    stream.behind = False
            return {name: stream for name, stream in members.items() if not stream.behind}

    def behind(self, frontier_of: FrontierOf) -> list[Stream]:
        """Return the streams that no pass will bring further, the furthest behind first."""
        now = time.time()
        with self._lock:
            for stream in self.streams.values():
                if stream.complete_through < min(stream.last_seq, frontier_of(stream)):
                    stream.behind = True
            ready = [each for each in self.streams.values() if each.behind and lanes.may_run(each.decision, now)]
            return sorted(ready, key=lambda stream: stream.complete_through)

    def settle(self, failures: Mapping[str, Failure], committed: Iterable[str], carried: int) -> None:
        """Note what a pass or chunk over so many streams came to, and keep in the store what it decides."""
        now = time.time()
        alike = Counter(failure.kind for failure in failures.values())
        made: dict[str, Decision] = {}
        with self._lock:
            for key, failure in failures.items():
                stream = self.streams.get(key)
                if stream is None:
                    continue  # it was moved away meanwhile
                stream.behind = True
                charged = not lanes.is_shared(alike[failure.kind], carried)
                dice = random.random()  # noqa: S311 - spreads retries, no secret
                made[key] = lanes.failed(stream.decision, failure, now, dice, charged=charged)
            for key in committed:
                stream = self.streams.get(key)
                if stream is not None:
                    made[key] = lanes.succeeded(stream.decision)
            changed = {key: each for key, each in made.items() if each != self.streams[key].decision}
            for key, decision in changed.items():
                self.streams[key].decision = decision
        record_failures(self._engine, changed)
