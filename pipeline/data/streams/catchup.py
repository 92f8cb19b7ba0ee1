"""Catch-up: bounded reads of the source for the streams of a group that are behind, for whatever reason (law L7).

Runs beside the passes in a scheduler pool of its own. A chunk is cut at seqs, so it connects to what came before and
to what comes after.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from listeners.sample import CHUNK, Lane
from pipeline.base.failpoints import hit
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.output_contracts.rules import stopping
from pipeline.data.pins import ChunkPin, SetInUse, SetPin
from pipeline.data.streams.definition import StreamSource
from pipeline.data.streams.demux import POOL_OF_CATCH_UP, DemuxContext, pass_result
from pipeline.data.streams.lanes import Failure, failure_of
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.data.streams.passes import Outcome, Passes
from pipeline.data.streams.roster import SeqOf
from pipeline.data.streams.stream import Stream

_log = logging.getLogger("turnout")


class CatchUp:
    """Reads rows that passes will not read again."""

    def __init__(self, driver: DemuxContext, checkpoint: Path, source: StreamSource, passes: Passes) -> None:
        """Prepare; reading begins with `step`."""
        self._driver, self._source, self._passes = driver, source, passes
        self._pin = ChunkPin(checkpoint / "chunk.json")
        driver.roster.is_cut_short = self._is_cut_short  # a pass has another schema set for these rows (law L5)
        self._gate = threading.Lock()  # held during a chunk
        self._set_in_use = SetInUse()
        self._furthest_waits = False  # the last chunk excluded the stream that is furthest behind
        self._failed = set[str]()  # games of the chunks that failed as a whole, since the last one that did not

    def step(self, due_of: SeqOf, reach_of: SeqOf) -> bool:
        """Read one chunk for the streams that are behind; return whether there was a chunk.

        A chunk may reach beyond the frontier, up to bronze's head: a pass skips rows below a cursor.
        """
        with self._gate:
            self._resume_stopped()
            behind = self._without_held(self._driver.roster.behind(due_of, reach_of))
            if not behind:
                return False
            self._set_in_use.choosing()
            try:
                return self._step(behind)
            finally:
                self._set_in_use.end()

    def _step(self, behind: Sequence[Stream]) -> bool:
        chunk, low, high, pinned = self._next(behind, self._source.head())
        self._set_in_use.chosen(pinned.version)
        if not chunk:
            return False
        chunk = self._driver.roster.for_chunk(chunk)
        if not chunk:  # a pass was first to claim them
            return False
        self._failed |= chunk.keys()
        try:
            self._read(chunk, low, high, pinned)
        finally:
            self._driver.roster.end_chunk()
        self._failed.clear()
        return True

    def oldest_set(self, stream: Stream, latest: int) -> int | None:
        """Return the oldest schema set by which a stream's rows are written now or next; None: not known yet.

        That of an interrupted chunk counts, which will be repeated. For `latest` see `SetInUse`.
        """
        in_use, pinned = self._set_in_use.oldest(latest), self._pin.find(stream.game_key, stream.complete_through)
        return in_use if in_use is None or pinned is None else min(in_use, pinned.version)

    def close(self) -> None:
        """Wait for the chunk that is running; call after the last `step`."""
        with self._gate:
            pass

    def _resume_stopped(self) -> None:
        """Let streams run again that an output contract stopped, if its rules have changed since."""
        stopped = self._driver.roster.stopped()
        if not stopped:
            return
        contracts = self._driver.schemas.snapshot(self._driver.schemas.latest()).contracts
        changed = {key: by for key, by in stopped.items() if stopping(contracts.get(key, ())) != by}
        with tolerate_store_outage("stopped streams stay stopped"):
            self._driver.roster.resume(changed)

    def _without_held(self, behind: Sequence[Stream]) -> list[Stream]:
        """Leave out the streams whose next row still waits for a schema: they are not read, and nobody waits for them.

        The registry is asked again for what they wait for: it may have forgotten.
        """
        if all(stream.waits is None for stream in behind):
            return list(behind)
        schemas = self._driver.schemas
        newest = schemas.snapshot(schemas.latest())
        held = [stream for stream in behind if stream.is_held(newest)]
        self._driver.wanted(held)
        return [stream for stream in behind if stream not in held]

    def _is_cut_short(self, stream: Stream) -> bool:
        return self._pin.find(stream.game_key, stream.complete_through) is not None

    def _next(self, behind: Sequence[Stream], head: int) -> tuple[dict[str, Stream], int, int, SetPin]:
        """Choose streams, the seqs (low, high] and the schema set; an interrupted chunk is repeated with its own set.

        Interrupted chunks come first, one by one; a chunk that failed comes after all others (law L16).
        """
        pins = {each.game_key: self._pin.find(each.game_key, each.complete_through) for each in behind}
        streams = [each for each in behind if pins[each.game_key] is None]
        unfinished = [each for each in behind if pins[each.game_key] and each.game_key not in self._failed]
        if not unfinished and not streams:
            self._failed.clear()
            unfinished = list(behind)
        first = pins[unfinished[0].game_key] if unfinished else None
        if first is None:
            end, pinned = head, self._driver.schemas.latest()
        else:
            end, pinned = first.high, first.set
            streams = [each for each in unfinished if pins[each.game_key] == first]
        through: dict[str, int] = {stream.game_key: stream.complete_through for stream in streams}
        most = self._driver.settings.demux.catchup_seqs
        turn = next_turn(through, end, most, furthest_waits=self._furthest_waits)
        if turn is None:
            return {}, 0, 0, pinned
        self._furthest_waits = turn.leaves_furthest
        chunk: dict[str, Stream] = {each.game_key: each for each in streams if each.game_key in turn.games}
        return chunk, turn.low, turn.high, pinned

    def _read(self, chunk: Mapping[str, Stream], low: int, high: int, pinned: SetPin) -> None:
        started = time.time()
        self._pin.write(pinned, high, chunk)
        hit("in_catch_up")
        self._driver.spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL_OF_CATCH_UP)
        rows = self._source.between(low, high, [stream.game_key for stream in chunk.values()])
        schemas = self._driver.schemas.snapshot(pinned)
        read_since = self._driver.start.over_at
        outcome = self._passes.apply(rows, chunk, schemas, Lane.CATCHUP, repeated=True, read_since=read_since)
        hit("in_catch_up")
        again = {key: span for key, stream in chunk.items() if (span := self._span_again(stream, low, high, outcome))}
        ended = {key: stream for key, stream in chunk.items() if key not in again}
        self._settle(ended, high, outcome, schemas)
        self._pin.clear({key: stream.complete_through for key, stream in ended.items()}, high)
        self._driver.publish(pass_result(self._driver.roster.group, outcome, started, "catch-up", CHUNK, high))
        for key, (after, through) in again.items():
            self._read({key: chunk[key]}, after, through, pinned)
        self._leave_waiting(chunk, high, outcome)
        self._leave_stopped(chunk, high, outcome, schemas)

    def _leave_waiting(self, chunk: Mapping[str, Stream], high: int, outcome: Outcome) -> None:
        """Let the streams for whose rows the schema set lacks something wait, behind the rows that landed before.

        They come again with a newer set: of the rows from the need on nothing was written with this one.
        """
        for key, waits in outcome.waits.items():
            stream = chunk[key]
            if stream.decision.parked_at is not None:  # the rows before the need were read again, and stopped it
                continue
            stream.held_up = True  # also where rows before the need have landed meanwhile
            # Of rows that do not lead up to the need nothing lands either, which is looked into once it is answered.
            leads_up = outcome.reached[key] > stream.cursor or stream.cursor >= waits.after
            stream.waits = waits if leads_up else replace(waits, after=stream.cursor)
        self._pin.clear(dict.fromkeys(outcome.waits, 0), high)
        other_columns = {key for key, failure in outcome.failures.items() if failure.waits}
        self._driver.wanted([chunk[key] for key in {*outcome.waits, *other_columns}])

    def _leave_stopped(self, chunk: Mapping[str, Stream], high: int, outcome: Outcome, schemas: SchemaSet) -> None:
        """Park the streams that an output contract stops, once the rows before have landed.

        Which seq stops a stream follows from bronze, its cursor and the pinned set (law L5): a chunk that is repeated,
        or cut elsewhere, stops it there, too.
        """
        due = {key: stop for key, stop in outcome.stops.items() if chunk[key].cursor >= outcome.reached[key]}
        rules = {key: stopping(schemas.contracts.get(chunk[key].game_key, ())) for key in due}
        failures = {key: stop.failure(chunk[key].game, rules[key]) for key, stop in due.items()}
        if failures:
            hit("in_catch_up")
            with tolerate_store_outage("failures are not recorded"):
                self._driver.roster.settle(failures, (), len(chunk))
        self._pin.clear(dict.fromkeys(outcome.stops, 0), high)

    def _span_again(self, stream: Stream, low: int, high: int, outcome: Outcome) -> tuple[int, int] | None:
        """Return the seqs (after, through] to read once more for a single stream, None without any."""
        key = stream.game_key
        if key in outcome.failures:
            return None
        reached = outcome.reached.get(key)
        if reached is not None:  # a gap in bronze itself does not hold back the rows before it
            return (low, reached) if reached > stream.cursor else None
        # The end of a quiet stream is reported, not proved: bronze is at fault only for rows that were read from it.
        return (stream.cursor, high) if stream.cursor < low and _lacks_its_last(stream, high) else None

    def _settle(self, chunk: Mapping[str, Stream], high: int, outcome: Outcome, schemas: SchemaSet) -> None:
        """Record that a stream is complete up to the chunk's end if its chunk was committed, or had nothing for it."""
        undone = {result.game_key for result in outcome.results if result.committed_at is None}
        failures = dict(outcome.failures)
        for key, stream in chunk.items():
            if key in failures or key in outcome.waits or key in outcome.stops:
                continue
            if key in undone:
                before = stream.position
                try:
                    stream.reopen()
                except Exception as error:  # noqa: BLE001 - law L6: one game's failure must not stop the others
                    failures[key] = failure_of(error)
                    continue
                stream.complete_through = stream.cursor
                lacks = outcome.lacks.get(key)
                if stream.position == before and stream.has_lost(lacks):
                    failures |= _skipped(stream, lacks or 0, schemas)
                elif stream.position == before:  # no other writer moved it: bronze itself has a gap
                    gap = f"bronze rows above seq {stream.cursor} do not connect to the table's cursor"
                    failures[key] = Failure("poison", gap)
            elif _lacks_its_last(stream, high) and stream.has_lost(stream.last_seq):
                failures |= _skipped(stream, stream.last_seq, schemas)
            elif _lacks_its_last(stream, high):  # and no row follows that could fail to connect
                gap = f"bronze has lost the rows of seq {stream.last_seq}, the last that ingest put there"
                failures[key] = Failure("poison", gap)
            else:
                stream.complete_through = max(stream.complete_through, high)
        with tolerate_store_outage("failures are not recorded"):
            self._driver.roster.settle(failures, chunk.keys() - undone - failures.keys(), len(chunk))


def _skipped(stream: Stream, through: int, schemas: SchemaSet) -> dict[str, Failure]:
    """Let a stream whose table is made again go on behind rows that bronze no longer holds; return why it cannot."""
    after = stream.cursor
    try:
        stream.skip_lost(through, stream.target.columns(schemas, stream.game_key))
    except Exception as error:  # noqa: BLE001 - law L6: one game's failure must not stop the others
        return {str(stream.game_key): failure_of(error)}
    _log.warning(
        "%s: bronze no longer holds the rows above seq %d up to seq %d that its removed table had: they are lost",
        stream.game_key,
        after,
        through,
    )
    return {}


def _lacks_its_last(stream: Stream, high: int) -> bool:
    """Return whether a stream that was read up to `high` has not reached the last rows that ingest reported."""
    return stream.cursor < stream.last_seq <= high


@dataclass(frozen=True, slots=True)
class Turn:
    """One chunk: the seqs (low, high] of bronze, read once for these games."""

    games: frozenset[str]
    low: int
    high: int
    leaves_furthest: bool  # the game that is furthest behind is not among them


def next_turn(behind: Mapping[str, int], head: int, most: int, *, furthest_waits: bool) -> Turn | None:
    """Return the next chunk, None when no game lacks rows up to `head` (law L16).

    Games that one chunk makes level go first. Without such games the nearest goes with all that have at most twice its
    way: it waits for them, so that they share each read. The furthest, if that left it out, has the next chunk, with
    all games that it reaches. So nobody waits for more than twice its own backlog, the furthest gets at least every
    other chunk, and after an outage each seq is read once for all games.

    Args:
        behind: by game key, the seq up to which each game that is behind is complete.
        head: the last seq to read.
        most: seqs in one chunk.
        furthest_waits: the chunk before left out the game that is furthest behind.
    """
    lacking = {game: through for game, through in behind.items() if through < head}
    if not lacking:
        return None
    furthest, nearest = min(lacking.values()), max(lacking.values())
    if furthest_waits:
        first = furthest
    elif nearest >= head - most:
        first = head - most
    else:
        first = head - 2 * (head - nearest)
    low = min(through for through in lacking.values() if through >= first)
    high = min(low + most, head)
    games = frozenset(game for game, through in lacking.items() if low <= through < high)
    return Turn(games, low, high, leaves_furthest=low > furthest)
