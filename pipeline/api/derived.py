"""The derived streams in force: where each is, through which time it is complete, and why it stands still."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from pipeline.api.environment import OpenEnvironment
from pipeline.base.names import shown
from pipeline.base.texts import age, in_utc
from pipeline.data.derived.definitions import SilverDefinition, loads
from pipeline.data.derived.silver_through import silver_through
from pipeline.lake.delta.errors import DeltaError
from pipeline.store.database.engine import reading
from pipeline.store.derived import read_definitions, read_states
from pipeline.store.processes.leases import store_time
from pipeline.store.rows import DerivedState

_SILENT_SECONDS: Final = 180.0  # a driver looks at its streams at least once a minute


@dataclass(frozen=True, slots=True)
class DerivedReport:
    """One derived stream as its driver last described it."""

    name: str
    game: str
    type: str | None
    table: str
    state: DerivedState | None  # None: no driver has carried it yet
    through_time: float | None  # Unix seconds by the store's clock; None: unknown
    now: float  # Unix seconds by the store's clock

    @property
    def behind(self) -> int | None:
        """Commits of its game's table that it has not read; None: unknown."""
        return None if self.state is None else self.state.head - self.state.version

    @property
    def lag_seconds(self) -> float | None:
        """The time for which it has lacked rows of its game's table; 0: it lacks none; None: unknown."""
        if self.state is None or self.state.level_at is None:
            return None
        return 0.0 if not self.behind and self.state.error is None else max(0.0, self.now - self.state.level_at)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        state = {} if self.state is None else {name: at for name, at in asdict(self.state).items() if name != "name"}
        return {
            "name": self.name, "kind": "silver", "game": self.game, "type": self.type, "table": self.table,
            "behind": self.behind, "lag_seconds": self.lag_seconds, "through_time": self.through_time, **state,
        }  # fmt: skip

    @property
    def line(self) -> str:
        """All of it as a line for people; raw texts are in it."""
        return f"{self.name}: {'; '.join(self._parts())}"

    def _parts(self) -> Iterator[str]:
        yield f"silver of {shown(self.game)}"
        state = self.state
        if state is None:
            yield "no driver has carried it yet"
            return
        yield f"{state.rows:,} rows"
        yield f"generation {state.generation}"
        if state.error is not None:
            since = None if state.failed_at is None else self.now - state.failed_at
            yield f"STANDS STILL for {age(since)}: {state.error}"
        elif not state.generation:
            yield "waits for the first row of its game"
        else:
            yield "level" if not self.behind else f"{self.behind:,} commits behind, {age(self.lag_seconds)}"
        known = "no known time" if self.through_time is None else f"{in_utc(self.through_time)} UTC"
        yield f"complete through {known}"
        yield f"carried by group {state.group_name}"
        if self.now - state.reported_at > _SILENT_SECONDS:
            yield f"NO REPORT for {age(self.now - state.reported_at)}"


@reading()
def listed(environment: OpenEnvironment) -> list[DerivedReport]:
    """Read the derived streams in force, in the order of their file."""
    definitions, states = loads(read_definitions(environment.engine).definitions), read_states(environment.engine)
    now = store_time(environment.engine)
    return [
        DerivedReport(
            each.name, each.game, each.type, str(environment.paths.silver / each.name), states.get(each.name),
            _through_time(environment, each, now), now,
        )
        for each in definitions
    ]  # fmt: skip


def _through_time(environment: OpenEnvironment, definition: SilverDefinition, now: float) -> float | None:
    try:
        return silver_through(environment.paths, environment.settings.environment, definition, now).at
    except (DeltaError, OSError):  # a damaged table has no known time, and hides no other stream
        return None
