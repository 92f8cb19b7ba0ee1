"""The derived streams in force: where each is, through which time it is complete, and why it stands still."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.api.environment import OpenEnvironment
from pipeline.base.texts import age
from pipeline.data.derived.definitions import Definition, loads
from pipeline.data.derived.kinds import Described, described, table_of
from pipeline.health.verdicts.derived import DerivedStanding, DerivedVerdict, judge
from pipeline.lake.delta.errors import DeltaError
from pipeline.store.database.engine import reading
from pipeline.store.derived import read_in_force, read_rule_tables, read_states
from pipeline.store.processes.leases import store_time
from pipeline.store.rows import DerivedState, RuleTable

__all__ = ["DerivedReport", "DerivedStanding", "Uncarried", "listed", "uncarried"]


@dataclass(frozen=True, slots=True)
class DerivedReport:
    """One derived stream as its driver last described it."""

    definition: Definition
    described: Described
    table: str
    state: DerivedState | None  # None: no driver has carried it yet
    now: float  # Unix seconds by the store's clock

    @property
    def name(self) -> str:
        """The name of its table."""
        return self.definition.name

    @property
    def kind(self) -> str:
        """The kind of its table, which is also the folder's name."""
        return self.definition.kind

    @property
    def type(self) -> str | None:
        """The event type of its rows; None: the game's only or first one."""
        return self.definition.type

    @property
    def through_time(self) -> float | None:
        """The time through which its table is complete, by the store's clock; None: unknown."""
        return self.described.through_time

    @property
    def verdict(self) -> DerivedVerdict:
        """How it is, as far as that report says."""
        return judge(self.state, self.now)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        state = {} if self.state is None else {name: at for name, at in asdict(self.state).items() if name != "name"}
        verdict = self.verdict
        return {
            "name": self.name, "kind": self.kind, "game": self.definition.game, "type": self.type, "table": self.table,
            **state,
            "standing": str(verdict.standing), "behind": verdict.behind, "lag_seconds": verdict.lag_seconds,
            "through_time": self.through_time, "rows": verdict.rows, "generation": verdict.generation,
            **self.described.fields,
        }  # fmt: skip

    @property
    def line(self) -> str:
        """All of it as a line for people; raw texts are in it."""
        return f"{self.name}: {'; '.join(self._parts())}"

    @property
    def reason(self) -> str | None:
        """Why it stands still, or why nobody knows how it is; raw texts are in it. None where it does neither."""
        if self.state is None:
            return "no driver has carried it yet"
        if self.verdict.standing is DerivedStanding.SILENT:
            return f"no report for {age(self.now - self.state.reported_at)}"
        return self.state.error

    @property
    def stopped_for(self) -> float | None:
        """The seconds for which it has stood still, None where it does not or nobody knows."""
        if self.state is None or self.state.failed_at is None or self.verdict.standing is not DerivedStanding.STOPPED:
            return None
        return max(0.0, self.now - self.state.failed_at)

    def _parts(self) -> Iterator[str]:
        yield f"{self.kind} of {self.described.follows}"
        verdict = self.verdict
        if verdict.rows is not None:
            yield f"{verdict.rows:,} rows"
            yield f"generation {verdict.generation}"
        match verdict.standing:
            case DerivedStanding.SILENT:
                yield f"STANDING UNKNOWN: {self.reason}"
            case DerivedStanding.STOPPED:
                yield f"STANDS STILL for {age(self.stopped_for)}: {self.reason}"
            case DerivedStanding.WAITING:
                yield "waits for the first row of its game"
            case DerivedStanding.LEVEL:
                yield "level"
            case DerivedStanding.BEHIND:
                yield f"{verdict.behind:,} commits behind, {age(verdict.lag_seconds)}"
        yield from self.described.parts
        if self.state is not None:
            yield f"carried by group {self.state.group_name}"


@dataclass(frozen=True, slots=True)
class Uncarried:
    """An event type that a rule chooses or chose, and whose table no driver carries, if it was made at all."""

    row: RuleTable

    @property
    def is_left_out(self) -> bool:
        """Whether the type has no table, as a cap is reached; else its table stays as it is."""
        return not self.row.number

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        row = self.row
        return {
            "name": row.name, "game": row.game, "type": row.type, "is_left_out": self.is_left_out, "reason": row.reason
        }  # fmt: skip

    @property
    def line(self) -> str:
        """All of it as a line for people; raw texts are in it."""
        what = "NO TABLE" if self.is_left_out else "gets no more rows"
        return f"{self.row.name}: {self.row.type} of {self.row.game} by a rule: {what}: {self.row.reason}"


@reading()
def uncarried(environment: OpenEnvironment, game: str | None = None) -> list[Uncarried]:
    """Read the event types whose tables no driver carries although a rule chooses or chose them; a game's own only."""
    rows = read_rule_tables(environment.engine)
    return [Uncarried(each) for each in rows if each.definition is None and game in {None, each.game}]


@reading()
def listed(environment: OpenEnvironment, game: str | None = None) -> list[DerivedReport]:
    """Read the derived streams in force, in the order of their file; with the exact name of a game its own only."""
    definitions, states = loads(read_in_force(environment.engine)), read_states(environment.engine)
    now = store_time(environment.engine)
    return [
        DerivedReport(
            each, _described(environment, each, now), str(table_of(each, environment.paths)), states.get(each.name), now
        )
        for each in definitions
        if game in {None, each.game}
    ]


def _described(environment: OpenEnvironment, definition: Definition, now: float) -> Described:
    paths, name = environment.paths, environment.settings.environment
    try:
        return described(definition, paths, name, now)
    except (DeltaError, OSError):  # of a damaged table nothing is known, and it hides no other stream
        return described(definition, paths, name, None)
