"""A cluster group on one driver: the query its games share, the queries of single games, and catch-up beside them."""

import logging
import math
import threading
import time
from collections.abc import Collection
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from sqlalchemy import Engine

from listeners.sample import PassResult
from listeners.stream_id import StreamId
from pipeline.base.errors import Transient
from pipeline.base.failpoints import effect
from pipeline.base.reasons import innermost, missing_commit
from pipeline.data.contracts.formats.json.caps import caps_of
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.streams import lanes
from pipeline.data.streams.active_games import ActiveGames, stored_games
from pipeline.data.streams.bronze_to_game import bronze_to_game
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.definition import StreamSource
from pipeline.data.streams.demux import Demux, DemuxContext, Publish
from pipeline.data.streams.lanes import Failure, failure_of
from pipeline.data.streams.lookup import Lookup
from pipeline.data.streams.outage import CachedRegistry, tolerate_store_outage
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.stream import Stream
from pipeline.data.streams.writing.in_threads import commit_threads
from pipeline.data.variations.resolution import ShapeResolution
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths, Settings
from pipeline.store.processes.leases import Lease

_log = logging.getLogger("turnout")

_REST_SECONDS = 0.5  # between two checks for streams that are behind
_ASKING_SECONDS = 120.0  # how long a bounded run asks registries
_LOOK_SECONDS = 10.0  # between two looks into bronze for a profile that no schema set has
_HEAR_SECONDS = 2.0  # catch-up reads the store no more often; each read costs 5 ms of processor time at 1,000 games
# As a query's start does on a full disk.
_START_FAILS = (DeltaError, OSError, Py4JJavaError, PySparkException, Transient)
_TROUBLE_SECONDS = 10.0  # after a chunk that failed for a reason that all streams share


class Group:
    """The streams of one driver."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        paths: Paths,
        engine: Engine,
        name: str,
        publish: Publish,
        lease: Lease | None = None,
        resolution: Resolution | None = None,
    ) -> None:
        """Open the tables of the group's games, under a lease or without one; the queries start with `start`.

        `resolution` asks registries of others for schemas that rows lack; without one their games wait.

        Raises:
            Refused: bronze is not the one that was ingested into, or another environment's.
        """
        self._settings, self._paths, self._engine = settings, paths, engine
        self.name = name
        self._checkpoint = paths.checkpoints / "demux" / name
        staging = self._checkpoint / "staging"
        self._definition = bronze_to_game(spark, settings, paths, engine, staging, self._may_write)
        self._stored_games = stored_games(engine, None if lease is None else lease.run_id)
        self._pool: Executor = ThreadPoolExecutor(commit_threads(paths.tables), thread_name_prefix="commit")
        self.roster = Roster(self._definition.target, engine, name, lease)
        shapes = ShapeResolution(engine, paths.bronze, settings.environment, caps_of(settings.undeclared))
        self._lookup = Lookup(engine, resolution, shapes)
        self._looked_at = -math.inf  # when bronze was last asked for a profile
        schemas = CachedRegistry(LocalRegistry(engine, paths.bronze))
        self._publish = publish
        self._driver = DemuxContext(spark, settings, self.roster, schemas, self._published, self._want)
        self._shared = self._demux(StreamId("demux", name), self._checkpoint, "shared")
        self._own: dict[str, Demux] = {}
        self._source = self._definition.open()  # for no reader
        source = self._definition.open()
        self._catch_up = CatchUp(self._driver, self._checkpoint, source, self._passes("catch-up", source))
        self._stopping = threading.Event()
        self._catcher: threading.Thread | None = None
        self._heard_at = -math.inf  # when catch-up last read the store
        self.trouble: str | None = None  # why the last chunk failed as a whole

    @property
    def streams(self) -> dict[str, Stream]:
        """The streams by game key."""
        return self.roster.streams

    @property
    def frontier_seq(self) -> int:
        """The last bronze seq that the shared query has passed."""
        return self._shared.frontier_seq

    @property
    def pass_since(self) -> float | None:
        """When the running pass of the shared query began, None when none runs."""
        return self._shared.pass_since

    def reads_from(self) -> int | None:
        """Return the first version of bronze that any of its queries still reads, None where unknown."""
        try:
            versions = [demux.reads_from() for demux in [self._shared, *self._own.values()]]
        except OSError:  # a driver with an unreadable disk still beats
            return None
        known = [version for version in versions if version is not None]
        return min(known) if len(known) == len(versions) else None

    def schema_sets(self) -> dict[str, int]:
        """Return for each stream, by game key, the oldest schema set by which its rows are written now or next.

        Streams of which it is not known are left out.
        """
        latest = self._driver.schemas.latest_version()  # first: what begins after this chooses no older one
        shared, found = self._shared.set_in_use.oldest(latest), {}
        for key, stream in list(self.streams.items()):
            own = self._own.get(key)
            sets = [shared, *([] if own is None else [own.set_in_use.oldest(latest)])]
            sets.append(self._catch_up.oldest_set(stream, latest))
            if None not in sets:
                found[key] = min(each for each in sets if each is not None)
        return found

    def start(self, *, once: bool) -> StreamingQuery:
        """Start the shared query; with `once` it ends when everything that was in bronze at its start has passed.

        Raises:
            Refused: bronze is not the one that was ingested into.
        """
        self._stop_games_ahead()
        if not once and self._catcher is None:  # before the query, whose start takes a cold JVM many seconds
            self._catcher = threading.Thread(target=self._keep_catching_up, name="catch-up", daemon=True)
            self._catcher.start()
            self._lookup.start()
        return self._shared.start(once=once)

    def stop(self) -> None:
        """Let the running passes and the running chunk end, and start no others."""
        self._stopping.set()
        self._lookup.stop()
        for demux in [self._shared, *self._own.values()]:
            demux.stop()
        if self._catcher is not None:
            self._catcher.join()
        self._catch_up.close()
        self._pool.shutdown()

    def sync_queries(self) -> None:
        """Start and stop the queries of single games as decided; called periodically while the shared query runs.

        A query with a running pass stops at a later call. Until then the pass claims its game, so that neither the
        shared pass nor a chunk reads it.
        """
        single_games = {key: stream for key, stream in list(self.streams.items()) if stream.decision.own_query}
        for key, own in list(self._own.items()):
            if (key not in single_games or own.is_stopping) and own.try_stop():
                del self._own[key]  # only now: another query of this game would share its claims and its checkpoint
        for key, stream in single_games.items():
            demux = self._own.get(key)
            if demux is not None and (demux.is_stopping or (demux.query is not None and demux.query.isActive)):
                continue
            if demux is not None and demux.query is not None and (error := demux.query.exception()) is not None:
                del self._own[key]
                gap = missing_commit(str(error))
                if gap is not None:  # not the game's failure; the next call starts it
                    _log.warning("restarting the own query of %s: %s", key, gap)
                    continue
                with tolerate_store_outage("failures are not recorded"):
                    self.roster.settle({key: Failure("transient", f"its own query ended: {error}"[:500])}, (), 1)
            elif lanes.may_run(stream.decision, time.time()):
                try:
                    self._start_own(key)
                except _START_FAILS as error:  # law L6: it is this game's failure
                    self._own.pop(key, None)
                    with tolerate_store_outage("failures are not recorded"):
                        self.roster.settle({key: failure_of(error)}, (), 1)

    def registry_troubles(self) -> dict[str, str]:
        """Return what is wrong with registries of others, by generation, as a clause: "does not answer since …"."""
        return self._lookup.troubles()

    def bronze_head(self) -> int:
        """Return the last seq in bronze now."""
        return self._source.head()

    def advance_frontier(self, seq: int) -> None:
        """Count everything up to a seq as passed: bronze has not grown while the queries had time to read it."""
        for demux in [self._shared, *self._own.values()]:
            demux.advance(seq)

    def finish(self) -> None:
        """Catch up with everything in bronze, after a bounded run; streams that fail stay behind with their error."""
        self.advance_frontier(self.bronze_head())
        until = time.monotonic() + _ASKING_SECONDS
        while self.catch_up() or self._asked(until):
            pass
        self.roster.for_pass(self.frontier_seq)
        self.roster.end_pass()

    def catch_up(self, heard_within: float = 0.0) -> bool:
        """Read one bounded chunk of bronze for the streams that are behind; return whether there was a chunk.

        The control store is not read again within `heard_within` seconds.
        """
        if time.monotonic() - self._heard_at >= heard_within:
            with tolerate_store_outage("the known streams catch up"):
                self.roster.sync()
            self._heard_at = time.monotonic()
        return self._catch_up.step(self._due, self._reach_of)

    def _published(self, result: PassResult) -> None:
        """Publish a result, and count its rows for the variations of their shapes."""
        for each in result.games:
            if each.committed_at is not None and each.shapes:
                self._lookup.count(each.game_key, each.shapes)
        self._publish(result)

    def _want(self, streams: Collection[Stream]) -> None:
        """Ask registries for what these streams wait for, and bronze for a profile of its rows."""
        self._lookup.want(streams)
        needs = (need for stream in streams if (waits := stream.waits) is not None for need in waits.needs)
        if any(need.registry is None for need in needs) and time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._driver.schemas.look_in_bronze()

    def _asked(self, until: float) -> bool:
        """Ask registries for what streams wait for; return whether another chunk may help.

        A registry has to say several times that it lacks a schema, so this waits between two questions, but for one
        that is away it does not wait.
        """
        if all(stream.waits is None for stream in self.streams.values()):
            return False
        before = self._driver.schemas.latest_version()
        rest = self._lookup.ask_once()
        if self._driver.schemas.latest_version() != before:
            return True
        if self._lookup.troubles() or time.monotonic() + rest > until:
            return False
        return not self._stopping.wait(max(rest, _REST_SECONDS))

    def _keep_catching_up(self) -> None:
        while not self._stopping.wait(_REST_SECONDS):
            try:
                while not self._stopping.is_set() and self.catch_up(_HEAR_SECONDS):
                    pass
                self.trouble = None
            except Exception as error:  # noqa: BLE001 - a failure that all streams share; it is reported and retried
                self.trouble = f"{type(error).__name__}: {innermost(str(error))}"
                _log.exception("catch-up failed, retrying in %.0f s", _TROUBLE_SECONDS)
                self._stopping.wait(_TROUBLE_SECONDS)

    def _due(self, stream: Stream) -> int:
        own = self._own.get(stream.game_key)
        return (own or self._shared).due(stream)

    def _reach_of(self, stream: Stream) -> int:
        own = self._own.get(stream.game_key)
        return (own or self._shared).reach_seq

    def _start_own(self, key: str) -> None:
        """Start a game's own query at bronze's newest commit: its cursor is in its table, catch-up reads the rest."""
        checkpoint = self._checkpoint / "games" / key
        with effect("delete_query"):
            located(checkpoint).clear()
        demux = self._own[key] = self._demux(StreamId("game", key), checkpoint, f"own-{key}")
        demux.start(once=False)

    def _demux(self, stream_id: StreamId, checkpoint: Path, name: str) -> Demux:
        source = self._definition.open()
        return Demux(self._driver, stream_id, checkpoint, source, self._passes(name, source))

    def _stop_games_ahead(self) -> None:
        """Fail the streams whose tables hold rows that bronze lacks, even if no pass reports it."""
        source = self._definition.open()  # a new one refuses a bronze that was replaced since
        failures = source.failures({key: stream.cursor for key, stream in list(self.streams.items())})
        for key, failure in failures.items():
            _log.warning("stopping %s: %s", key, failure.evidence)
        with tolerate_store_outage("failures are not recorded"):
            self.roster.settle(failures, (), len(self.streams))

    def _may_write(self, key: str) -> bool:
        return self.roster.holds(key)

    def _passes(self, name: str, source: StreamSource) -> Passes:
        app_id = f"turnout/{self._settings.environment}/quarantine/{self.name}"
        quarantine = CursorTable.create(self._paths.quarantine, QUARANTINE, app_id)
        quarantine.add_missing_columns(QUARANTINE)  # before a file has them: else delta-rs would lose them
        active = ActiveGames(self._checkpoint, name, self._stored_games)
        folder = self._definition.target.writer.folder
        return Passes(folder, quarantine, self._pool, active, source.failures, source.commits)
