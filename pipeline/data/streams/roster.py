"""The streams of one driver and their lanes: the one place where passes, catch-up and operators meet.

Used by several threads. One thread at a time reads a stream: it holds the stream's claim from before it reads the
position until after its commit.
"""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sqlalchemy import Engine

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import GameKey
from pipeline.data.streams import lanes
from pipeline.data.streams.definition import StreamTarget
from pipeline.data.streams.failure_log import FailureLog
from pipeline.data.streams.lanes import Failure, failure_of
from pipeline.data.streams.stream import Stream, stream_of
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.foreign import ForeignChange
from pipeline.lake.delta.remade import require_cursor, warn_of_older
from pipeline.store.assignments import reported_cursors
from pipeline.store.games import Assignment, Held, all_assigned, held, holds, let_go
from pipeline.store.processes.leases import Lease
from pipeline.store.stream_control import StreamControl, decided, record_failures, resume_stopped

_log = logging.getLogger("turnout")

_OPENING_THREADS = 4
_CHUNK = "catch-up"  # the reader that is the running chunk
_UNDECIDED = StreamControl()

SeqOf = Callable[[Stream], int]
"""The bronze seq up to which a stream must be complete, because its query has passed it or can in the running pass."""


class Roster:
    """The streams of one cluster group."""

    def __init__(self, target: StreamTarget, engine: Engine, group: str, lease: Lease | None) -> None:
        """Open the tables of the group's games; without a lease the driver owns all games assigned to the group."""
        self._target, self._engine, self.group, self._lease = target, engine, group, lease
        self._lock = threading.RLock()
        self._syncing = threading.Lock()
        self._claims: dict[str, str] = {}  # game key → its reader: a query's pass, or the chunk
        self._leaving: dict[str, Stream] = {}  # dropped, but still being read
        # Whether a chunk of a stream was interrupted, so that only catch-up may read its rows; catch-up sets it.
        self.is_cut_short: Callable[[Stream], bool] = lambda _stream: False
        self.streams: dict[str, Stream] = {}
        self._failure_log = FailureLog()
        self.sync()

    def sync(self) -> None:
        """Reconcile the streams with the group's assignments and with stream control.

        A game is released once no pass and no chunk has it, and taken on once no other driver holds it. A game whose
        table cannot be opened has failed like a stream, and is opened again when its retry is due (law L6).
        """
        with self._syncing:
            games = self._held()
            assignments: dict[str, Assignment] = {each.game_key: each for each in games.carried}
            decisions = decided(self._engine)
            with self._lock:
                unreadable = self._adopt(assignments, decisions)
                # A game moved away just after it was taken was never among the streams.
                over = [key for key in {*self._leaving, *games.astray} if key not in self._claims]
            if over and self._lease is not None:
                let_go(self._engine, self._lease, over)
            for key in over:
                self._leaving.pop(key, None)
            with self._lock:
                unreadable.update(self._unrecorded())
            if unreadable:
                self.settle(unreadable, (), len(assignments))

    def holds(self, key: str) -> bool:
        """Return whether a write to this game's table may start; always True where leases are turned off.

        True only while this driver's lease has a third of its time or more left, and the game is held under it. One
        statement to the control store.
        """
        return self._lease is None or holds(self._engine, self._lease, key)

    def for_pass(self, frontier_seq: int, key: str | None = None) -> dict[str, Stream]:
        """Return the streams of the next pass: of the shared query, or with `key` of that game's own one.

        A stream that has caught up with the query rejoins it here, at a pass boundary and nowhere else. The pass holds
        the claim of each until `end_pass`; streams of other queries and of a chunk are skipped.
        """
        now, reader = time.time(), _pass_of(key)
        with self._lock:
            members = {
                name: stream
                for name, stream in self.streams.items()
                if (name == key if key else not stream.decision.own_query)
                and name not in self._claims
                and not stream.unreadable
                and lanes.may_run(stream.decision, now)
            }
            for stream in members.values():
                if self.is_cut_short(stream):
                    stream.behind = True
                elif stream.behind and stream.complete_through >= frontier_seq:
                    stream.behind = False
            running = {name: stream for name, stream in members.items() if not stream.behind}
            self._claims.update(dict.fromkeys(running, reader))
            return running

    def end_pass(self, key: str | None = None) -> None:
        """Release the claims of a pass of the shared query, or of a game's own one, however it ended."""
        self._release(_pass_of(key))

    def for_chunk(self, chosen: Mapping[str, Stream]) -> dict[str, Stream]:
        """Claim until `end_chunk` those chosen streams that are still carried and behind, and in no pass."""
        with self._lock:
            chunk = {
                key: stream
                for key, stream in chosen.items()
                if self.streams.get(key) is stream and stream.behind and key not in self._claims
            }
            self._claims.update(dict.fromkeys(chunk, _CHUNK))
            return chunk

    def end_chunk(self) -> None:
        """Release the claims of the chunk, however it ended."""
        self._release(_CHUNK)

    def behind(self, due_of: SeqOf, reach_of: SeqOf) -> list[Stream]:
        """Return the streams that no pass will advance, the furthest behind first.

        A stream that has reached the end of the running pass waits for the next pass: if it were read on and on, it
        would never meet a pass boundary at which to rejoin.
        """
        now = time.time()
        with self._lock:
            claims, lacking = self._claims, list[Stream]()
            for key, stream in self.streams.items():  # an idle game costs two comparisons
                if stream.complete_through < stream.last_seq and key not in claims:
                    stream.behind = stream.behind or stream.complete_through < due_of(stream)
                if stream.behind:
                    lacking.append(stream)
            ready = [
                each
                for each in lacking
                if not each.unreadable
                and each.game_key not in claims
                and each.complete_through < reach_of(each)
                and lanes.may_run(each.decision, now)
            ]
            return sorted(ready, key=lambda stream: stream.complete_through)

    def settle(self, failures: Mapping[str, Failure], committed: Iterable[str], carried: int) -> None:
        """Record the result of a pass or chunk over `carried` streams, and store the decisions it leads to."""
        now, committed = time.time(), list(committed)
        alike = Counter(failure.kind for failure in failures.values())
        decisions: dict[str, StreamControl] = {}
        with self._lock:
            for key, failure in failures.items():
                stream = self.streams.get(key)
                if stream is None:
                    continue  # it was moved away meanwhile
                stream.behind = True
                stream.unreadable = stream.unreadable or failure.is_gone
                stream.unrecorded = failure if failure.parks else None
                stream.held_up = stream.held_up or failure.kind != "expected"  # that one is retried at once
                charged = not failure.waits and not lanes.is_shared(alike[failure.kind], carried)
                dice = random.random()  # noqa: S311 - spreads retries, no secret
                decisions[key] = lanes.failed(stream.decision, failure, now, dice, charged=charged)
            for key in committed:
                stream = self.streams.get(key)
                if stream is not None and stream.decision is not _UNDECIDED:
                    decisions[key] = lanes.succeeded(stream.decision)
            changed = {key: each for key, each in decisions.items() if each != self.streams[key].decision}
            for key, decision in changed.items():
                self.streams[key].decision = decision
            parked = {key for key, decision in changed.items() if decision.parked_at is not None}
            self._failure_log.note(failures, committed, parked, time.monotonic())
        record_failures(self._engine, changed)
        with self._lock:
            for key in changed.keys() & self.streams.keys():
                self.streams[key].unrecorded = None

    def stopped(self) -> dict[GameKey, str]:
        """Return the streams that an output contract has stopped, by game key, with the digest of its rules."""
        with self._lock:
            recorded = [each for each in self.streams.values() if each.decision.stopped_by and each.unrecorded is None]
            return {each.game_key: by for each in recorded if (by := each.decision.stopped_by) is not None}

    def resume(self, stopped: Mapping[GameKey, str]) -> None:
        """Let streams run again that these rules have stopped."""
        for key, stopped_by in stopped.items():
            resume_stopped(self._engine, key, stopped_by)
            with self._lock:
                stream = self.streams.get(key)
                if stream is not None and stream.decision.stopped_by == stopped_by:
                    stream.decision = lanes.succeeded(stream.decision)

    def _unrecorded(self) -> dict[str, Failure]:
        """Return the failures that park a stream and were not stored: the control store was away."""
        return {key: each.unrecorded for key, each in self.streams.items() if each.unrecorded is not None}

    def _held(self) -> Held:
        if self._lease is None:
            return all_assigned(self._engine, self.group)
        return held(self._engine, self._lease)

    def _adopt(
        self, assignments: Mapping[str, Assignment], decisions: Mapping[str, StreamControl]
    ) -> dict[str, Failure]:
        """Open the tables of new games, and those that failed to open before; return why some still fail."""
        for key in self.streams.keys() - assignments.keys():
            self._leaving[key] = self.streams.pop(key)
        for key in assignments.keys() & self._leaving.keys():
            self.streams[key] = self._leaving.pop(key)
        held, now = self.streams, time.time()
        foreign = {key for key, stream in held.items() if lanes.is_foreign(stream.decision)}
        failures: dict[str, Failure] = {}
        new = [
            each
            for key, each in assignments.items()
            if key not in held
            or held[key].is_before(each.generation)
            or (held[key].unreadable and lanes.may_run(decisions.get(key, _UNDECIDED), now))
        ]
        if new:
            opened: dict[str, Stream] = {}
            with ThreadPoolExecutor(_OPENING_THREADS) as pool:  # a driver that starts opens a thousand tables
                for stream, failure in pool.map(self._opened, new):
                    opened[stream.game_key] = stream
                    if failure is not None:
                        failures[stream.game_key] = failure
            failures |= self._removed({key: each for key, each in opened.items() if key not in failures})
            held.update(opened)
        for key, assignment in assignments.items():
            stream = held[key]
            stream.last_seq = max(stream.last_seq, assignment.last_seq)
            self._recheck_complete(stream)
            stream.decision = decisions.get(key, _UNDECIDED)
            stream.retried = stream.unrecorded is None and (stream.retried or key in foreign)
            if stream.retried and not stream.unreadable:
                failures.pop(key, None)
                failures.update(self._accepted(stream, now))
            stream.held_up = stream.held_up or not lanes.may_run(stream.decision, now)
        # A parked stream stays parked, with its original reason.
        return {key: failure for key, failure in failures.items() if held[key].decision.parked_at is None}

    def _removed(self, opened: Mapping[str, Stream]) -> dict[str, Failure]:
        """Find those whose table, or its cursor, was there and is gone; return why some do not go on."""
        failures: dict[str, Failure] = {}
        reported = reported_cursors(self._engine) if opened else {}
        for key, stream in opened.items():
            if stream.cursor:
                # A cursor below 0 says that another rebuild has just put this generation out of use.
                if 0 < stream.cursor < reported.get(key, 0):
                    warn_of_older(stream.path, stream.cursor, reported[key])
                continue
            before = self.streams.get(key)
            known = 0 if before is None else max(before.cursor, before.removed_at)
            stream.removed_at = max(stream.removed_at, known, reported.get(key, 0))
            if stream.unreadable or not stream.removed_at:
                continue
            try:
                if stream.table is not None:
                    require_cursor(stream.path, self._target.environment, stream.game_key, stream.removed_at)
                    continue
                self._target.require_source(stream.game_key, stream.removed_at)
            except (Refused, Transient, DeltaError, OSError) as error:
                stream.unreadable = stream.behind = True
                failures[key] = failure_of(error)
            else:
                _log.warning("%s: its table's folder %s is gone: bronze makes it again", key, stream.path)
        return failures

    def _recheck_complete(self, stream: Stream) -> None:
        """Reset a stream's completeness where there are rows for it: an older copy of the store lacked them."""
        if stream.cursor < stream.last_seq <= stream.complete_through:
            stream.complete_through = stream.cursor

    def _opened(self, assignment: Assignment) -> tuple[Stream, Failure | None]:
        stream = stream_of(assignment, self._target)
        stream.read_since = time.time()
        try:
            stream.open()
            if stream.table is not None:
                stream.table.require_own()
        except ForeignChange as change:
            _log.warning("%s: %s", stream.game_key, change)
            stream.unreadable = stream.table is None or change.hides_cursor
            stream.behind = True
            return stream, failure_of(change)
        except Exception as error:  # noqa: BLE001 - law L6: one game's failure must not stop the others
            _log.warning("%s: its table at %s cannot be opened: %s", stream.game_key, stream.path, first_line(error))
            stream.unreadable = stream.behind = True
            return stream, failure_of(error)
        return stream, None

    def _accepted(self, stream: Stream, now: float) -> dict[str, Failure]:
        """Let a stream that a person has retried go on behind foreign commits; return why it cannot.

        The retry of a paused one counts at once: it accepts nothing that is committed in the pause.
        """
        if stream.decision.parked_at is not None or stream.table is None:
            stream.retried = False
        if not stream.retried or not lanes.may_run(replace(stream.decision, desired="running"), now):
            return {}
        try:
            stream.accept_foreign()
        except Exception as error:  # noqa: BLE001 - law L6: one game's failure must not stop the others
            _log.warning("%s: its retry waits: %s", stream.game_key, first_line(error))
            return {stream.game_key: failure_of(error)}
        stream.retried = False
        return {}

    def _release(self, reader: str) -> None:
        with self._lock:
            self._claims = {key: holder for key, holder in self._claims.items() if holder != reader}


def _pass_of(key: str | None) -> str:
    """Return the reader for the pass of a game's own query, or of the shared one."""
    return f"pass of {key}" if key else "shared pass"
