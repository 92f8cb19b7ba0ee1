"""Rows that the control store takes and gives, and the limits by which it writes them.

Pure, and without a database: what judges imports them from here. Times are Unix seconds by the store's clock.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from pipeline.base.names import generation_id

CLOCK_BOUND_SECONDS: Final = 10.0
"""A clock is wrong if it differs from the control store's by more than this."""

START_LIMIT_SECONDS: Final = 120.0
"""The limit from a driver's start to its first report: Spark has to load."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A process as it last described itself."""

    kind: str  # such as ingest: see `listeners.process_kinds`
    name: str
    host: str
    pid: int
    started_at: float
    heartbeat_at: float
    state: str  # starting | running | failed | stopped | skewed
    error: str | None
    frontier_seq: int | None  # None is unknown
    run_id: int | None = None  # the run that a controller started it for, or adopted it as; None: no controller did

    @property
    def process(self) -> tuple[str, int]:
        """Host and process id."""
        return self.host, self.pid

    def heartbeat_age(self, now: float) -> float:
        """Return how many seconds ago it last beat."""
        return now - self.heartbeat_at


class BronzeCommit(NamedTuple):
    """One bronze commit as ingest reported it."""

    seq: int
    committed_at: float
    read_since: float | None  # source rows from before waited for ingest's start; None: not known


@dataclass(frozen=True, slots=True)
class DerivedState:
    """A derived stream as its driver last described it."""

    name: str
    group_name: str  # whose driver said so
    generation: int  # of its table; 0: it has none yet
    version: int  # of its game's table, up to which it has all rows
    head: int  # the newest version there
    rows: int  # in its table
    level_at: float | None  # when it had all rows of its game's table; None: never, as far as this driver knows
    error: str | None  # why it stands still; None: it does not
    failed_at: float | None  # since when
    reported_at: float
    table_id: str | None = None  # of its Delta table; None: it has none yet
    is_paused: int = 0  # 1: its driver carries it no further, as a person has paused it
    duplicates: int | None = None  # rows that its generation left out as second ones; None: unknown

    @property
    def generation_id(self) -> str | None:
        """What tells its table's generation from all others; None: it has none yet."""
        return None if self.table_id is None or not self.generation else generation_id(self.table_id, self.generation)


@dataclass(frozen=True, slots=True)
class DerivedControl:
    """What people decided about a derived stream; the default is one about which nothing was decided."""

    name: str
    paused_at: float | None = None  # None: it is not paused, and the next two say nothing
    paused_by: str | None = None
    reason: str | None = None
    replaces: str | None = None  # the generation that a repair replaces, by its id; any other one has been replaced

    @property
    def is_paused(self) -> bool:
        """Whether a person has paused it, and nobody resumed it since."""
        return self.paused_at is not None


@dataclass(frozen=True, slots=True)
class RuleTable:
    """An event type that a rule of derived streams chooses or chose, with its silver table."""

    name: str  # of the table
    game_key: str
    game: str
    type: str  # its full name when it was chosen first
    number: int  # tables are numbered as they are made; 0: it has none, as a cap is reached
    definition: str | None  # JSON; None: no driver carries it
    reason: str | None  # why none does; raw texts are quoted in it


@dataclass(frozen=True, slots=True)
class DerivedStream:
    """A derived stream in force, with what its driver said last."""

    name: str
    game_key: str
    group: str | None  # that carries its game
    state: DerivedState | None  # None: no driver has carried it yet
    control: DerivedControl
    source: DerivedControl | None = None  # of the silver stream that it follows from; None: it follows from its game


@dataclass(frozen=True, slots=True)
class NamedBacklog:
    """What waits in one of several sources."""

    name: str
    age_seconds: float | None  # of its oldest record that is not in bronze; 0: nothing waits; None: unknown
    rows: int | None  # that wait; None: unknown
    reason: str | None = None  # why a number is unknown, as a clause


@dataclass(frozen=True, slots=True)
class SourceReading:
    """What ingest last measured of its source."""

    measured_at: float  # Unix seconds by the store's clock
    age_seconds: float | None  # of the oldest record that is not in bronze; 0: nothing waits; None: unknown
    peak_seconds: float | None
    """The highest age of the last minute, as a batch that ends takes most of it at once; None: unknown, or what waited
    for the start of ingest has not been read yet."""
    rows: int | None  # that wait; None: unknown
    limit_seconds: float  # above it the source is late: ingest's setting metrics.latency_objective_seconds
    reason: str | None = None  # why a number is unknown, as a clause
    quiet_since: float | None = None  # the newest bronze commit then; None: there was none
    quiet_seconds: float = 0.0  # after which nothing waited and nothing had come; 0: never seen
    sources: tuple[NamedBacklog, ...] = ()  # of each of several


class SourceGap(NamedTuple):
    """Gaps of the source that began within ten minutes: how long nothing came after a bronze commit."""

    began_at: float  # the longest of them, Unix seconds
    seconds: float  # how long it was, as measured; 0: rows waited whenever it was measured
    number: int  # of gaps


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Times up to which bronze was complete, and which an incident took back."""

    incident: str  # restore | clock | truncated | older_copy, or several
    at: float  # when it was noticed
    pairs: int  # that do not count any more
    newest: float  # the latest of the times that went
    kept: float | None  # the latest that stayed; None: none


@dataclass(frozen=True, slots=True)
class ThroughReading:
    """How far bronze is complete, as ingest reported it last."""

    noted_at: float
    pairs: tuple[tuple[int, float], ...]  # bronze up to a seq has all of its source up to a time; the oldest first
    withdrawals: tuple[Withdrawal, ...] = ()  # the newest last


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """How one round of maintenance went."""

    began_at: float
    ended_at: float
    ok: int  # 1: no table failed
    tables: int
    failed_tables: int
    files_before: int  # of all tables
    files_after: int
    error: str | None
