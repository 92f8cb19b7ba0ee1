"""The evidence from which causes are judged: what was read at one look, and the windows over several looks.

`pipeline/health/facts/evidence.py` reads a `Look`, `Memory` of `memory.py` makes windows of looks. Pure; times are Unix
seconds by the store's clock, and None is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from listeners.status import Status
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.quiet import Quiet

REFUSED_SECONDS: Final = 300.0
"""Seconds over which refused rows are counted: the window of the driver's watch."""


@dataclass(frozen=True, slots=True)
class StreamFailure:
    """The last failure of a stream's own work."""

    kind: str  # transient | poison | fatal
    text: str  # what failed, with the rows it was about
    in_a_row: int
    at: float | None
    parked_at: float | None = None
    by_contract: bool = False  # a row breaks a rule of an output contract that stops the stream


@dataclass(frozen=True, slots=True)
class RegistryWait:
    """What a game waits for at a registry."""

    registry: str
    schemas: int
    since: float
    state: str | None = None  # ok | away | mistrusted; None: it has never answered
    detail: str | None = None  # why it is not ok


@dataclass(frozen=True, slots=True)
class NewestSchema:
    """The newest schema version of a game."""

    version: int
    registered_at: float
    by: str | None  # who registered it, or its registry; None: nobody is known
    quarantined: str | None = None  # why its rows go to quarantine; None: they land
    first_at: float | None = None  # when the game's first version was registered
    other_type: str | None = None  # why rows of another event type wait, and what can be done; None: none came


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """An operation about a game or a group that has not ended."""

    operation_id: str
    kind: str
    actor: str
    requested_at: float
    is_stuck: bool = False  # it needs a person
    is_planned: bool = False  # nothing of it is done yet


@dataclass(frozen=True, slots=True)
class DoneOperation:
    """An operation about a game or a group that succeeded a short while ago."""

    kind: str
    actor: str
    requested_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Point:
    """How old a backlog was at one look."""

    at: float
    backlog_seconds: float | None


@dataclass(frozen=True, slots=True)
class GameSeen:
    """One game at one look."""

    game_key: str
    game: str  # the exact name: data, never a part of a text without `plain`
    group: str | None
    status: Status
    since: float | None = None
    reason: str | None = None  # where the status is not its driver's own word
    waits_for_ingest: bool = False
    retired: bool = False
    backlog_seconds: float | None = None
    rows_per_second: float | None = None
    cores: float | None = None  # what it costs at its present rows and commits
    commit_seconds: float | None = None  # the mean of its commits in the last minute
    refused: Mapping[str, int] = field(default_factory=dict)  # by reason, within `REFUSED_SECONDS`
    refused_at: Mapping[str, float] = field(default_factory=dict)  # when the last row was refused, by reason
    committed_at: float | None = None  # when its table got its last commit
    landed: int | None = None  # rows within `REFUSED_SECONDS`
    totals: tuple[int, int] | None = None  # rows refused and landed since its driver started
    segments: Mapping[str, float] = field(default_factory=dict)  # where its latency comes from, in seconds
    last_error: str | None = None
    waits_for: str | None = None  # "waits for schema …", as its driver reports
    need: RegistryWait | None = None
    failure: StreamFailure | None = None
    paused_by: str | None = None  # who wants it paused; None: nobody does
    paused_at: float | None = None
    schema: NewestSchema | None = None  # None: not read, as nothing suggests that it matters
    operation: OpenOperation | None = None
    done: tuple[DoneOperation, ...] = ()  # the newest first

    @property
    def in_trouble(self) -> bool:
        """Whether a person should look."""
        return self.status.is_trouble

    @property
    def is_failing(self) -> bool:
        """Whether its rows do not reach its table."""
        return self.status.is_bad

    @property
    def refused_rows(self) -> int:
        """How many rows were refused within `REFUSED_SECONDS`."""
        return sum(self.refused.values())

    @property
    def refused_share(self) -> float:
        """The share of its rows within `REFUSED_SECONDS` that was refused; 1 where nobody knows how many landed."""
        return self.refused_rows / (self.refused_rows + (self.landed or 0)) if self.refused_rows else 0.0


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One cluster group at one look."""

    name: str
    liveness: Liveness
    desired: str = "running"  # running | drained | stopped
    is_started_here: bool = False  # its driver is the controller's to start and restart
    no_controller: str | None = None  # why no controller acts, as a clause; None: one does
    is_given_up: bool = False  # it died so often that the controller starts it no more
    is_skewed: bool = False
    deaths: int = 0  # within an hour
    last_death: str | None = None
    last_death_at: float | None = None
    frontier_seq: int | None = None
    capacity_cores: float | None = None  # None: not limited
    operation: OpenOperation | None = None
    host: str | None = None  # of its driver, as it reported last
    done: tuple[DoneOperation, ...] = ()  # the newest first
    is_awaited: bool = False  # it has not started yet, as its environment has just begun to start
    heartbeat_at: float | None = None  # the last one of its driver


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """The source and ingest at one look."""

    condition: str  # level | behind | late | unknown
    sentence: str
    ingest: Liveness
    age_seconds: float | None = None
    rows: int | None = None
    head_seq: int | None = None  # of bronze
    newest_at: float | None = None  # when bronze got its newest commit
    quiet: Quiet | None = None  # how long nothing has come; None: something waits, or nobody knows
    rows_per_second: float | None = None  # into bronze, in the last minute
    is_awaited: bool = False  # ingest has not started yet, as its environment has just begun to start


@dataclass(frozen=True, slots=True)
class Look:
    """All that was read at one moment."""

    now: float
    games: Mapping[str, GameSeen]  # by key
    groups: Mapping[str, GroupSeen]  # by name
    source: SourceSeen
    objective_seconds: float = 60.0
    mass_failure: str | None = None


@dataclass(frozen=True, slots=True)
class GameWindow:
    """One game now, with what earlier looks have shown of it."""

    seen: GameSeen
    trend: tuple[Point, ...] = ()  # oldest first; empty while it is well
    usual_rows_per_second: float | None = None  # while it was well
    last: tuple[int, int] = (0, 0)  # rows refused and landed since the look before; none where it is not known
    failed_at: float | None = None  # the last look at which its own work failed
    failure_at: float | None = None  # when it failed last; its record goes before its driver reports that it landed


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """One group now, with what earlier looks have shown of it."""

    seen: GroupSeen
    games: int = 0
    troubled: int = 0  # of them, in trouble of their own
    rows_per_second: float | None = None
    usual_rows_per_second: float | None = None
    commit_seconds: float | None = None  # the median of its games
    usual_commit_seconds: float | None = None
    load_share: float | None = None  # of its capacity; None: not limited, or not known
    still_seconds: float = 0.0  # how long its driver has passed nothing although bronze had more
    landed_again: tuple[float, ...] = ()  # when those of its games landed last that failed a short while ago

    def land_again(self, after: float | None) -> int:
        """Return how many of its games failed a short while ago, and have landed since a moment; none where unknown."""
        return 0 if after is None else sum(at > after for at in self.landed_again)

    @property
    def is_mostly_troubled(self) -> bool:
        """Whether at least half of its games are in trouble."""
        return self.troubled > 0 and 2 * self.troubled >= self.games


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """The source now, with what earlier looks have shown of it."""

    seen: SourceSeen
    trend: tuple[Point, ...] = ()
    usual_rows_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The windows of one look."""

    now: float
    games: Mapping[str, GameWindow]
    groups: Mapping[str, GroupWindow]
    source: SourceWindow
    objective_seconds: float = 60.0
    mass_failure: str | None = None
