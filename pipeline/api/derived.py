"""The derived streams in force: where each is, through which time it is complete, and why it stands still.

`preview` shows what a pause, a resume or a repair of one would do; the controller carries it out.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.api.acts import Preview
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.base.texts import age
from pipeline.control.operations import registry
from pipeline.control.proposals import propose
from pipeline.data.derived.definitions import Definition, loads
from pipeline.data.derived.kinds import Described, described, table_of
from pipeline.health.verdicts.derived import SILENT_SECONDS, DerivedStanding, DerivedVerdict, judge
from pipeline.lake.delta.errors import DeltaError
from pipeline.store.database.engine import reading
from pipeline.store.database.states import OperationKind
from pipeline.store.derived import read_in_force, read_rule_tables, read_streams
from pipeline.store.processes.leases import store_time
from pipeline.store.rows import DerivedState, DerivedStream, RuleTable

__all__ = ["DerivedReport", "DerivedStanding", "OperationKind", "Uncarried", "listed", "preview", "uncarried"]


@dataclass(frozen=True, slots=True)
class DerivedReport:
    """One derived stream as its driver last described it."""

    definition: Definition
    described: Described
    table: str
    stream: DerivedStream
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
    def state(self) -> DerivedState | None:
        """How its driver described it last; None: no driver has carried it yet."""
        return self.stream.state

    @property
    def verdict(self) -> DerivedVerdict:
        """How it is, as far as that report and people's decisions say."""
        return judge(self.stream, self.now)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        told = {} if self.state is None else asdict(self.state)
        state = {name: at for name, at in told.items() if name not in {"name", "is_paused"}}
        verdict, control = self.verdict, self.stream.control
        paused = {"paused_at": control.paused_at, "paused_by": control.paused_by, "paused_for": control.reason}
        return {
            "name": self.name, "kind": self.kind, "game": self.definition.game, "type": self.type, "table": self.table,
            **state,
            "standing": str(verdict.standing), "behind": verdict.behind, "lag_seconds": verdict.lag_seconds,
            "through_time": self.through_time, "rows": verdict.rows, "generation": verdict.generation,
            **paused, **self.described.fields,
        }  # fmt: skip

    @property
    def line(self) -> str:
        """All of it as a line for people; raw texts are in it."""
        return f"{self.name}: {'; '.join(self._parts())}"

    @property
    def reason(self) -> str | None:
        """Why it stands still, or why nobody knows how it is; raw texts are in it. None where it does neither."""
        if self.verdict.standing is DerivedStanding.PAUSED:
            return self._paused
        if self.verdict.standing is DerivedStanding.HELD and self.stream.source is not None:
            return f"its silver table {self.stream.source.name} is paused"
        if self.state is None:
            return "no driver has carried it yet"
        if self.verdict.standing is DerivedStanding.SILENT:
            return f"no report for {age(self.now - self.state.reported_at)}"
        return self.state.error

    @property
    def _paused(self) -> str:
        """Who paused it, for how long, and why; whether its driver stands already."""
        control, state = self.stream.control, self.state
        since = self.now if control.paused_at is None else control.paused_at
        why = f": {control.reason}" if control.reason else ", no reason given"
        is_within_commit = state is not None and not state.is_paused and self.now - state.reported_at <= SILENT_SECONDS
        ends = "; its driver has yet to end a commit" if is_within_commit else ""
        return f"by {control.paused_by} for {age(max(0.0, self.now - since))}{why}{ends}"

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
            if self.state is not None and self.state.duplicates:
                yield f"{self.state.duplicates:,} second rows left out"
        match verdict.standing:
            case DerivedStanding.PAUSED:
                yield f"PAUSED {self.reason}"
                if verdict.lag_seconds:
                    yield f"{age(verdict.lag_seconds)} behind"
            case DerivedStanding.HELD:
                yield f"waits, as {self.reason}"
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
    definitions, streams = loads(read_in_force(environment.engine)), read_streams(environment.engine)
    now = store_time(environment.engine)
    return [
        DerivedReport(
            each, _described(environment, each, now), str(table_of(each, environment.paths)), streams[each.name], now
        )
        for each in definitions
        if game in {None, each.game} and each.name in streams
    ]


@reading()
def preview(environment: OpenEnvironment, actor: str, kind: OperationKind, name: str) -> Preview:
    """Plan to pause, resume or repair a derived stream.

    Raises:
        Refused: it is not in force, has that state already, or cannot be repaired now.
    """
    proposal = propose(environment.engine, kind, [name], actor)
    known = registry.find(kind)
    verb, unchanged = ("", "") if known is None else (known.verb(proposal.intent), known.unchanged)
    if not proposal.intent.targets:
        raise Refused(f"Nothing to {verb}: {name} {unchanged}.")
    return Preview(proposal.intent, tuple(proposal.lines), 1, time.time(), label=f"{verb.capitalize()} the stream")


def _described(environment: OpenEnvironment, definition: Definition, now: float) -> Described:
    paths, name = environment.paths, environment.settings.environment
    try:
        return described(definition, paths, name, now)
    except (DeltaError, OSError):  # of a damaged table nothing is known, and it hides no other stream
        return described(definition, paths, name, None)
