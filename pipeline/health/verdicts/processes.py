"""Facts and states of processes, and what a kind of process says of itself.

Pure. `pipeline.health.kinds` has the kinds; a judgement gets them as an argument. What is not known is never healthy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from listeners.process_kinds import described
from pipeline.health.verdicts.alert import Alert
from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.liveness import DriverFacts, Liveness, heartbeat_limit
from pipeline.health.verdicts.reported import AssignedGame
from pipeline.health.verdicts.source import SourceState, judge_quiet, judge_source
from pipeline.health.verdicts.starting import is_awaited
from pipeline.health.verdicts.upkeep import UNKNOWN, UpkeepFacts
from pipeline.store.database.states import Cause
from pipeline.store.rows import SourceGap, SourceReading


@dataclass(frozen=True, slots=True)
class FleetFacts(DriverFacts):
    """All that the judgement depends on, read at one moment."""

    games: Sequence[AssignedGame]
    waiting_operations: int = 0  # open ones that the controller has to bring on
    stuck_operations: int = 0  # open ones that need a person
    newest_bronze_at: float | None = None  # when the newest bronze commit was made; None is unknown
    source: SourceReading | None = None  # None: ingest has never measured what waits in its source
    gaps: Sequence[SourceGap] = ()  # of the source
    upkeep: UpkeepFacts = UNKNOWN
    store_refusal: str | None = None  # why the control store takes no write now; asked only where all are silent
    conditions: Mapping[str, GroupCondition] = field(default_factory=dict)
    """Each group that is registered, has a driver or carries a game; `judge_fleet` judges them before all else."""

    starting_since: float | None = None  # when the environment began to start; None: it does not; `judge_fleet` sets it

    @property
    def supervised_groups(self) -> int:
        """How many groups' drivers the controller should keep running."""
        return sum(each.is_supervised and each.desired != "stopped" for each in self.groups.values())

    def source_state(self, ingest: Liveness) -> SourceState:
        """Judge what waits in the source of an ingest that lives or not."""
        found = judge_source(self.source, ingest, self.now, heartbeat_limit(self.heartbeat_seconds))
        if self.awaits(ingest):
            return replace(found, is_starting=True)
        quiet = judge_quiet(self.source, found, self.gaps, ingest, self.heartbeat_seconds, self.newest_bronze_at)
        return replace(found, quiet=quiet, quiet_at=None if self.source is None else self.source.measured_at)

    def awaits(self, liveness: Liveness) -> bool:
        """Return whether a process has not started yet because its environment has just begun to start."""
        return is_awaited(liveness, self.starting_since)


@dataclass(frozen=True, slots=True)
class DriverState:
    """What one process is doing, such as ingest or a group's driver, and whether a person should look."""

    kind: str
    name: str
    liveness: Liveness
    is_problem: bool
    is_awaited: bool = False  # it has not started yet, as its environment has just begun to start
    is_slow_start: bool = False  # it waits for storage in the start of its environment


def how(liveness: Liveness) -> str:
    """Return how a process is that does not work, in one word."""
    return {"failed": "failed", "stopped": "stopped", "unknown": "silent"}.get(liveness.state, "down")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def problem_of(state: DriverState, _facts: FleetFacts) -> str:
    """Return what is the matter with a process, as a sentence about it."""
    return f"{described(state.kind, state.name)} {state.liveness.reason or state.liveness.state}"


def notes_of(state: DriverState, _facts: FleetFacts) -> Sequence[str]:
    """Return what the headline says of a process: nothing where no person should look."""
    return [f"{described(state.kind, state.name)} {how(state.liveness)}"] if state.is_problem else ()


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """One kind of process: what judgements, alerts and pages know of it."""

    name: str  # of its leases, heartbeats and runs, and the label `kind` of its metrics
    judge: Callable[[FleetFacts], Sequence[DriverState]]  # each of its processes that runs, should run or did
    problem: Callable[[DriverState, FleetFacts], str] = problem_of  # what is wrong with one at which a person looks
    notes: Callable[[DriverState, FleetFacts], Sequence[str]] = notes_of  # clauses of the headline
    is_overdue: Callable[[FleetFacts], bool] = lambda _: False  # a person looks even where the store silences it
    alert: Alert | None = None
    is_one: bool = True  # an environment has one process of it; False: several, each with a name
    moves_rows: bool = False  # it exports metrics and writes samples, and charts mark its starts
    has_alarms: bool = False  # the reason in its state is a list of alarms, a line each
    carries_games: bool = False  # each of its processes carries the games of the group of its name
    is_late: bool = False  # a page shows its trouble as late, not as bad: rows go on without it
    covers: Callable[[Cause, str, str], bool] = lambda _cause, _scope, _name: False
    """Whether an incident of a cause and a scope says the same of its process of a name, so that one of them counts."""

    @property
    def runbook(self) -> str | None:
        """The page in docs/runbooks for a process at which a person should look."""
        return None if self.alert is None else self.alert.name.lower()


def unregistered(kind: str) -> ProcessKind:
    """Return the definition of a kind without one, such as a newer version's whose rows are in the control store.

    A person looks at a process that failed, died or fell silent.
    """
    return ProcessKind(kind, partial(_judge_reported, kind))


def _judge_reported(kind: str, facts: FleetFacts) -> Sequence[DriverState]:
    judged = [(name, facts.judge(kind, name)) for name in facts.names(kind)]
    return [DriverState(kind, name, each, each.state in {"failed", "dead", "unknown"}) for name, each in judged]
