"""One pass: bronze rows of many games become one commit per game (laws L3 to L6).

The group calls `apply` with bronze rows, of a micro-batch or a catch-up chunk. The order of writes is the law: pin the
schema set, files, quarantine, then one commit per game that moves its cursor.
"""

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, KeysView, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from listeners.sample import LATENCY_EDGES_SECONDS, GameResult, Lane, TypeRows
from pipeline.base.failpoints import hit
from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.lanes import Failure, failure_of
from pipeline.data.streams.needs import Need, Waiting, lowest
from pipeline.data.streams.stops import Stop
from pipeline.data.streams.stream import Link, Position, Stream, connects, merged, reach
from pipeline.data.streams.writing.in_threads import commit_threads, for_each
from pipeline.data.streams.writing.job import SplitJob
from pipeline.data.streams.writing.rows import Rows
from pipeline.data.streams.writing.tasks import run
from pipeline.health.verdicts.latency import Arrival, measure
from pipeline.lake.delta import parquet
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.quarantine import QUARANTINE, present_between, without
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.location import Location
from pipeline.store.rows import BronzeCommit


@dataclass
class GameReport:
    """The files that the tasks wrote for one game, and the position from which its rows were split."""

    expected: Position
    links: list[Link] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    rejects: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    types: dict[str, TypeRows] = field(default_factory=dict)
    shapes: Counter[int] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)  # rows that break a rule of an output contract, by rule
    failure: Failure | None = None
    needs: list[Need] = field(default_factory=list)  # what the schema set lacks for its rows
    stop: Stop | None = None  # the first row that stops the stream by an output contract

    @property
    def waits(self) -> bool:
        """Whether the game waits for a newer schema set."""
        return bool(self.needs) and self.failure is None

    @property
    def reached(self) -> int:
        """The last seq up to which its rows connect to the position, before the first that may not land."""
        held = [*(need.seq for need in self.needs), *([] if self.stop is None else [self.stop.seq])]
        return reach(self.expected.cursor, [link for link in self.links if not held or link.seq < min(held)])

    @property
    def stops(self) -> bool:
        """Whether its next row, behind those that it reaches, stops the stream."""
        if self.stop is None or self.failure is not None:
            return False
        before = next(link.prev_seq for link in self.links if link.seq == self.stop.seq)
        return before <= self.reached

    @property
    def lacks(self) -> int | None:
        """The seq that its next row follows, where the rows up to it were not read."""
        reached = self.reached
        before = next((link.prev_seq for link in self.links if link.seq > reached), reached)
        return before if before > reached else None


FailuresOf = Callable[[Mapping[str, int]], dict[str, Failure]]
CommitsOf = Callable[[int, int], Sequence[BronzeCommit]]


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """A file with the refused rows of some games in quarantine's folder, not yet part of quarantine."""

    file: DataFile
    games: frozenset[str]


@dataclass
class Outcome:
    """The result of one pass or chunk."""

    seq_to: int | None  # the last bronze seq read, None without rows
    results: list[GameResult]
    failures: dict[str, Failure]  # by game key; None for games that only do not connect
    reached: dict[str, int]  # by game key, of games not applied: the seq up to which their rows could be
    phases: dict[str, float]
    waits: dict[str, Waiting] = field(default_factory=dict)  # by game key, for a newer schema set
    lacks: dict[str, int] = field(default_factory=dict)  # of games not applied: the seq that their next row follows
    stops: dict[str, Stop] = field(default_factory=dict)  # of games whose rows reach up to it


class Passes:
    """Applies bronze rows to game tables; one per group."""

    def __init__(
        self,
        folder: Location,
        quarantine: CursorTable,
        pool: Executor,
        active_games: ActiveGames,
        failures_of: FailuresOf = lambda _cursors: {},
        commits_of: CommitsOf = lambda _first, _last: (),
    ) -> None:
        """Let tasks write below `folder`; use `quarantine` for refused rows and `pool` for commits to many tables.

        While rows are applied, `active_games` records their games. `failures_of` and `commits_of` are the source's
        `failures` and `commits`.
        """
        self._folder, self._quarantine, self._pool, self._active_games = folder, quarantine, pool, active_games
        self._failures_of, self._commits_of = failures_of, commits_of
        # Of the last pass: its schema set, the part of that which tasks have, and the columns of games' rows by it.
        self._schemas: SchemaSet | None = None
        self._part = SchemaSet(0, {}, {})
        self._part_keys = frozenset[str]()
        self._columns: dict[str, pa.Schema] = {}

    def apply(
        self,
        source: Rows,
        streams: Mapping[str, Stream],
        schemas: SchemaSet,
        lane: Lane,
        *,
        repeated: bool,
        read_since: float = -math.inf,
    ) -> Outcome:
        """Split the source's rows for these streams and commit each game that connects to its cursor.

        `repeated`: some of the rows may already be in quarantine. A stream that does not connect, whose work failed, or
        for whose rows `schemas` lacks something, is left behind; the failure of a single game is never raised. Rows
        with a source time before `read_since` waited for their reader's start.
        """
        with self._active_games.track(list(streams)):
            ahead = self._ahead_of_source(streams)
            others = {key: stream for key, stream in streams.items() if key not in ahead}
            outcome = self._apply(source, others, schemas, lane, repeated=repeated, read_since=read_since)
            outcome.failures.update(ahead)
            stopped = {key: GameReport(streams[key].position, failure=why) for key, why in ahead.items()}
            outcome.results += [_failed(streams[key], report, lane) for key, report in stopped.items()]
            return outcome

    def _ahead_of_source(self, streams: Mapping[str, Stream]) -> dict[str, Failure]:
        """Return the games that hold rows which the source lacks; they are left behind."""
        failures = self._failures_of({key: stream.cursor for key, stream in streams.items()})
        for key in failures:
            streams[key].behind = True
        return failures

    def _apply(
        self,
        source: Rows,
        streams: Mapping[str, Stream],
        schemas: SchemaSet,
        lane: Lane,
        *,
        repeated: bool,
        read_since: float,
    ) -> Outcome:
        started = time.perf_counter()
        reports, refused, seq_to, seconds = self._split(source, streams, schemas)
        seconds["split"] = time.perf_counter() - started
        ready = {key: report for key, report in reports.items() if self._is_ready(streams[key], report)}
        started = time.perf_counter()
        self._write_quarantine(refused, ready.keys(), repeated=repeated)
        seconds["quarantine"] = time.perf_counter() - started
        started = time.perf_counter()
        commits = self._commits(ready)
        commit = partial(self._commit, schemas=schemas, lane=lane, read_since=read_since, commits=commits)
        results = for_each(
            self._pool, ready, lambda key: commit(streams[key], ready[key]), commit_threads(self._folder)
        )
        seconds["commit"] = time.perf_counter() - started
        left = {key: report for key, report in reports.items() if key not in ready}
        results += [_failed(streams[key], report, lane) for key, report in left.items()]
        failures = {key: report.failure for key, report in reports.items() if report.failure}
        reached = {key: report.reached for key, report in left.items()}
        lacks = {key: seq for key, report in left.items() if (seq := report.lacks) is not None}
        stops = {key: report.stop for key, report in left.items() if report.stop is not None and report.stops}
        waits = {
            key: now_waits
            for key, report in left.items()
            if key not in stops and report.waits and (now_waits := streams[key].waits)
        }
        return Outcome(seq_to, results, failures, reached, seconds, waits, lacks, stops)

    def _split(
        self, source: Rows, streams: Mapping[str, Stream], schemas: SchemaSet
    ) -> tuple[dict[str, GameReport], list[RefusedRows], int | None, dict[str, float]]:
        """Run the tasks and collect their reports by game."""
        positions = {key: stream.position for key, stream in streams.items()}
        cursors = {key: each.cursor for key, each in positions.items()}
        self._use(schemas, streams.keys())
        split = run(source, SplitJob(cursors, self._part, self._folder, self._quarantine.path))
        reports: dict[str, GameReport] = {}
        refused: list[RefusedRows] = []
        seconds: dict[str, float] = defaultdict(float)
        seq_to: int | None = None
        for row in split.rows:
            report = json.loads(row.report)
            seq_to = report["seq_to"] if seq_to is None else max(seq_to, report["seq_to"])
            for phase, value in report["seconds"].items():
                seconds[phase] += value
            for key, game in report["games"].items():
                _add(reports.setdefault(key, GameReport(positions[key])), game)
            if (rows := report["refused"]) is not None:
                refused.append(RefusedRows(DataFile(**rows["file"]), frozenset(rows["games"])))
        for key, cause in split.culprits.items():
            reports.setdefault(key, GameReport(positions[key])).failure = Failure("fatal", cause)
        return reports, refused, seq_to, seconds

    def _use(self, schemas: SchemaSet, keys: KeysView[str]) -> None:
        """Take a schema set; what was made of it for the pass before stays where set and games are the same."""
        if schemas is not self._schemas:
            self._columns = {}
        if schemas is not self._schemas or keys != self._part_keys:
            self._part, self._part_keys = schemas.only([GameKey(key) for key in keys]), frozenset(keys)
        self._schemas = schemas

    def _is_ready(self, stream: Stream, report: GameReport) -> bool:
        """Return whether a game's rows may be committed; if not, discard its files and leave it behind.

        If the files cannot be discarded they stay as orphans, and the game fails.
        """
        report.links = merged(report.links)
        may_land = report.failure is None and not report.needs and report.stop is None
        if may_land and connects(report.expected.cursor, report.links):
            return True
        stream.behind = True
        if report.waits and not report.stops:  # nothing has failed (law L14)
            stream.held_up = True
            since = time.time() if stream.waits is None else stream.waits.since
            needs = lowest(report.needs)
            after = next(link.prev_seq for link in report.links if link.seq == needs[0].seq)
            stream.waits = Waiting(since, needs, after)
        self._discard(stream, report)
        return False

    def _discard(self, stream: Stream, report: GameReport) -> None:
        try:
            discard(self._folder / stream.game_key, report.files)
        except OSError as error:  # law L6: a table's folder may have become a file
            report.failure = report.failure or failure_of(error)

    def _write_quarantine(self, refused: Sequence[RefusedRows], ready: KeysView[str], *, repeated: bool) -> None:
        """Write the refused rows of the games that are ready to quarantine; with `repeated` only the missing ones.

        Afterwards all of them are on disk, so that no cursor moves past a row that a power cut takes.
        """
        files = []
        present = self._present(refused) if repeated and refused else None
        for each in refused:
            file = self._file_of(each, ready, present) if repeated or not each.games <= ready else each.file
            files += [] if file is None else [file]
        if files:
            self._quarantine.append(files)
            hit("after_quarantine_write")
        elif refused and repeated:  # another attempt has written them, and was killed perhaps
            self._quarantine.settle()

    def _present(self, refused: Sequence[RefusedRows]) -> pa.Table:
        """Return the quarantined keys of the refused rows' seqs, from one scan for all files."""
        spans = [each.file.span("seq") for each in refused]
        return present_between(self._quarantine.path, min(low for low, _ in spans), max(high for _, high in spans))

    def _file_of(self, refused: RefusedRows, ready: KeysView[str], present: pa.Table | None) -> DataFile | None:
        """Return a file with only the rows that belong in quarantine; holds one file of refused rows in memory."""
        folder = self._quarantine.path
        rows = parquet.read(folder / refused.file.path)
        kept = rows.filter(pc.is_in(rows.column("game_key"), pa.array(list(ready), pa.string())))
        kept = kept if present is None else without(kept, present).select(QUARANTINE.names)
        if kept.num_rows == rows.num_rows:
            return refused.file
        file = write_file(kept, folder, ["seq", "game_key"]) if kept.num_rows else None
        discard(folder, [refused.file])
        return file

    def _commits(self, ready: Mapping[str, GameReport]) -> dict[int, BronzeCommit]:
        """Return the bronze commits of the rows, by seq; the one before them tells whether ingest was there already."""
        seqs = [arrival.seq for report in ready.values() for arrival in report.arrivals]
        known = self._commits_of(min(seqs) - 1, max(seqs)) if seqs else ()
        return {each.seq: each for each in known}

    def _commit(
        self,
        stream: Stream,
        report: GameReport,
        schemas: SchemaSet,
        lane: Lane,
        read_since: float,
        commits: Mapping[int, BronzeCommit],
    ) -> GameResult:
        started = time.perf_counter()
        try:
            columns = self._columns.get(stream.game_key)
            if columns is None:
                columns = self._columns[stream.game_key] = stream.target.columns(schemas, stream.game_key)
            stream.commit(report.files, report.expected, report.links[-1].seq, columns)
        except TableConflict as error:
            report.failure = Failure("expected", str(error))
        except Exception as error:  # noqa: BLE001 - law L6: one game's failure must not stop the others
            report.failure = failure_of(error)
            stream.other_columns = report.failure.other_columns
            if report.failure.waits:  # nothing was added, and the rows are read again every few seconds
                self._discard(stream, report)
        if report.failure is not None:
            stream.behind = True  # catch-up continues from the table's cursor
            return _failed(stream, report, lane)
        now = time.time()
        hit("between_table_commits")
        seconds = time.perf_counter() - started
        stream.resumed(now)
        return _result(stream, report, lane, now, seconds, max(read_since, stream.read_since), commits)


def _add(report: GameReport, game: Mapping[str, Any]) -> None:
    report.links += [Link(seq, prev_seq) for seq, prev_seq in game["links"]]
    report.arrivals += [Arrival(*each) for each in game["arrivals"]]
    report.files += [DataFile(**file) for file in game["files"]]
    report.needs += [Need.of_json(need) for need in game["needs"]]
    for reason, count in game["rejects"].items():
        report.rejects[reason] += count
    for name, (landed, refused) in game["types"].items():
        before = report.types.get(name, TypeRows(0, 0))
        report.types[name] = TypeRows(before.landed + landed, before.refused + refused)
    report.shapes.update({int(schema_id): rows for schema_id, rows in game.get("shapes", {}).items()})
    report.broken.update(game.get("broken", {}))
    if (stop := game.get("stop")) is not None:
        report.stop = min(Stop(*stop), report.stop or Stop(*stop))
    if game["error"] is not None:
        report.failure = Failure(game["error"]["kind"], game["error"]["evidence"], may_quote=True)


def _result(
    stream: Stream,
    report: GameReport,
    lane: Lane,
    now: float,
    seconds: float,
    read_since: float,
    commits: Mapping[int, BronzeCommit],
) -> GameResult:
    measured = measure(report.arrivals, now, seconds, read_since, commits)
    return GameResult(
        game_key=stream.game_key,
        lane=lane,
        seq_from=report.links[0].seq,
        seq_to=report.links[-1].seq,
        rows=sum(file.rows for file in report.files),
        rejects=dict(report.rejects),
        files=len(report.files),
        bytes=sum(file.size for file in report.files),
        committed_at=now,
        commit_seconds=seconds,
        latency_counts=measured.counts,
        caught_up_rows=measured.caught_up,
        segments_seconds=measured.segments,
        types=report.types,
        shapes=report.shapes,
        broken=report.broken,
    )


def _failed(stream: Stream, report: GameReport, lane: Lane) -> GameResult:
    links = report.links or [Link(report.expected.cursor, report.expected.cursor)]
    return GameResult(
        game_key=stream.game_key,
        lane=lane,
        seq_from=links[0].seq,
        seq_to=links[-1].seq,
        rows=0,
        rejects={},
        files=0,
        bytes=0,
        committed_at=None,
        commit_seconds=0.0,
        latency_counts=(0,) * (len(LATENCY_EDGES_SECONDS) + 1),
        error=report.failure.evidence if report.failure else None,
    )
