"""The derived streams that a group's driver carries: those of the games that it holds, in a thread of their own.

A stream that fails stands still with its reason and is tried again, later each time; its game and the other streams go
on (law L6). One that a person has paused stands once its running commit has ended.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
from sqlalchemy import Engine

from pipeline.base.errors import first_line
from pipeline.base.names import generation_id
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import Definition, loads
from pipeline.data.derived.held_ids import IdRoom
from pipeline.data.derived.kinds import Carrier, DerivedPosition, Surroundings, carrier
from pipeline.data.derived.rule_tables import RuleTables
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.data.streams.ticking import Ticking
from pipeline.data.streams.writing.columns import target_schema
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import TableConflict
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import STORE_AWAY
from pipeline.store.derived import control_of, controls_in, in_force_in, read_in_force, states_in, write_states
from pipeline.store.processes.leases import store_time
from pipeline.store.rows import DerivedControl, DerivedState

_log: Final = logging.getLogger("turnout")

_STEPS: Final = 20  # of one stream before the next one has its turn
_LOOK_SECONDS: Final = 60.0  # between two whole looks at a table that has no next version, and between two reports
_FIRST_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 300.0


@dataclass(slots=True)
class _Carried:
    """One stream in this process."""

    definition: Definition
    carrier: Carrier
    position: DerivedPosition | None = None  # None: not looked at, or what it follows from has no table yet
    looked_at: float = 0.0  # monotonic seconds, as the next one
    retry_at: float = 0.0
    failures: int = 0  # in a row
    error: str | None = None
    failed_at: float | None = None  # Unix seconds, as the next one
    level_at: float | None = None
    said: DerivedState | None = None  # what the control store has, without the time of the report
    said_at: float = 0.0  # monotonic seconds
    before: DerivedState | None = None  # what it had when this process began
    control: DerivedControl | None = None  # what was decided when this process last looked; None: it has yet to
    is_paused: bool = False  # it stands, as a person has paused it
    lacks_rows: bool = False  # while it is paused: what it follows from may have more

    @property
    def generation_id(self) -> str | None:
        """What tells its table's generation from all others; None: not looked at."""
        at = self.position
        return None if at is None else generation_id(at.table_id, at.generation)


class DerivedStreams:
    """The derived streams of one driver."""

    def __init__(
        self, settings: Settings, paths: Paths, engine: Engine, group: str, holds: Callable[[str], bool]
    ) -> None:
        """Carry the streams of the games that the driver holds, as `holds` says by their keys."""
        self._settings, self._engine = settings, engine
        self._group, self._holds = group, holds
        registry = LocalRegistry(engine, paths.bronze)
        self._paths, self._registry = paths, registry
        self._schemas: SchemaSet | None = None  # as they were read last
        self._by_rules = RuleTables(engine, registry, settings.derived)
        self._definitions: tuple[Definition, ...] = ()
        self._controls: Mapping[str, DerivedControl] = {}
        self._carried: dict[Definition, _Carried] = {}
        self._ids = IdRoom()
        self._before: Mapping[str, DerivedState] = {}
        seconds = settings.derived.commit_seconds
        self._ticking = Ticking("derived", seconds, self.look, "derived streams were not carried")

    def start(self) -> None:
        """Carry them until `stop`."""
        self._ticking.start()

    def stop(self) -> None:
        """Let the running step end, and begin no other."""
        self._ticking.stop()

    def finish(self) -> None:
        """Carry all of them to their games' tables as they are, after a bounded run."""
        while self.look(whole=True):
            pass

    def look(self, *, whole: bool = False) -> bool:
        """Carry each stream on; return whether any has more to read now.

        With `whole` also those are looked at whose game's table has no next version.
        """
        with tolerate_store_outage("the known derived streams go on"):
            self._by_rules.keep(whole=whole)
            self._read()
        own = [each for each in self._definitions if self._holds(each.game_key)]
        own.sort(key=lambda each: each.layer)  # so that one look carries a row through all of them
        self._carried = {each: self._carried.get(each) or self._begun(each) for each in own}
        more = [self._carry(each, whole=whole) for each in self._carried.values() if not self._ticking.is_stopping]
        self._report()
        return any(more)

    def _read(self) -> None:
        """Read the definitions in force, with what was decided about them: none is carried before both are known."""
        with self._engine.connect() as connection:
            controls, definitions = controls_in(connection), loads(in_force_in(connection))
            if any(self._holds(each.game_key) and each not in self._carried for each in definitions):
                self._before = states_in(connection)
        self._controls, self._definitions = controls, definitions

    def _control(self, carried: _Carried) -> DerivedControl:
        """Return what is decided about a stream at this moment; while the control store is away, what was."""
        with tolerate_store_outage("derived streams go on as it was decided"), self._engine.connect() as connection:
            self._controls = controls_in(connection)
        return control_of(self._controls, carried.definition.name)

    def _report(self) -> None:
        """Record how the streams are carried, of each where that has changed or was recorded a minute ago."""
        news = []
        for each in self._carried.values():
            state = self._state(each)
            if each.said is None or replace(each.said, level_at=state.level_at) != state or _is_old(each.said_at):
                news.append((each, state))
        if not news:
            return
        with tolerate_store_outage("how derived streams are carried is not recorded"):
            now = store_time(self._engine)
            write_states(self._engine, [replace(state, reported_at=now) for _, state in news])
            for each, state in news:
                each.said, each.said_at = state, time.monotonic()

    def _now(self) -> float:
        now = None
        with tolerate_store_outage("no window of a gold table closes"):
            now = store_time(self._engine)
        return 0.0 if now is None else now  # before all times nothing is due

    def _begun(self, definition: Definition) -> _Carried:
        def holds() -> bool:
            return definition in loads(read_in_force(self._engine))

        within = Surroundings(self._settings, self._paths, partial(self._schemas_for, definition), self._now, self._ids)
        return _Carried(definition, carrier(definition, within, holds), before=self._before.get(definition.name))

    def _schemas_for(self, definition: Definition) -> SchemaSet:
        """Return the newest schema set; while the store is away the last one, if it has all of the table's columns.

        By an older set a column of a type that was accepted since would be one of the first type. Rows of such a type,
        and rows that a rebuild moved, wait for the store in any case.

        Raises:
            STORE_AWAY: the store does not answer, and there may be a newer set.
        """
        try:
            self._schemas = self._registry.snapshot()
        except STORE_AWAY:
            if self._schemas is None:
                raise
            table = pa.schema(open_table(self._paths.table(definition.game_key)).schema().to_arrow())
            if not {*table.names} <= {*target_schema(self._schemas, definition.game_key).names}:
                raise
        return self._schemas

    def _carry(self, carried: _Carried, *, whole: bool) -> bool:
        """Carry a stream on by some commits; return whether it has more to read now."""
        control = control_of(self._controls, carried.definition.name)
        if control != carried.control:
            carried.control, carried.retry_at, carried.failures = control, 0.0, 0  # a person waits for it
        if control.is_paused:
            return self._stand(carried)
        carried.is_paused = False
        asked = control.replaces is not None and control.replaces == carried.generation_id
        if time.monotonic() < carried.retry_at or (not whole and not asked and self._is_idle(carried)):
            return False
        name, is_level = f"{carried.definition.kind} {carried.definition.name}", False
        try:
            for _ in range(_STEPS):
                control = self._control(carried)
                if control.is_paused:
                    return self._stand(carried)
                carried.position, carried.looked_at = carried.carrier.step(control.replaces), time.monotonic()
                is_level = carried.position is None or carried.position.is_level
                if is_level or self._ticking.is_stopping:
                    break
        except TableConflict as conflict:  # another owner was first; what it did is read at the next step
            _log.info("%s: %s", name, conflict)
            return self._ticking.rest(_FIRST_SECONDS / 10)
        except STORE_AWAY as error:
            _log.info("%s waits for the control store: %s", name, first_line(error))
            return False
        except Exception as error:  # noqa: BLE001 - law L6: one stream's failure must not stop the others
            carried.failures += 1
            wait = min(_FIRST_SECONDS * 2.0 ** (carried.failures - 1), _LONGEST_SECONDS)
            carried.retry_at = time.monotonic() + wait
            carried.failed_at = carried.failed_at or time.time()
            carried.error = f"{type(error).__name__}: {first_line(error)}"[:500]
            _log.warning("%s stands still, retrying in %.0f s: %s", name, wait, carried.error)
            return False
        carried.failures, carried.error, carried.failed_at = 0, None, None
        if is_level and carried.position is not None:
            carried.level_at = time.time()
        return not is_level

    def _stand(self, carried: _Carried) -> bool:
        """Let a paused stream be as it is, and look whether it lacks rows: that costs one look at a name."""
        carried.is_paused = True
        at = carried.position or carried.before
        carried.lacks_rows = at is None or at.head > at.version or carried.carrier.has_next(at.version)
        if not carried.lacks_rows:
            carried.level_at = time.time()
        return False

    def _is_idle(self, carried: _Carried) -> bool:
        """Return whether a stream that is level has nothing to read: that costs one look at a name (law L8)."""
        at = carried.position
        if at is None or not at.is_level or _is_old(carried.looked_at):
            return False
        if carried.carrier.has_next(at.version):
            return False
        carried.level_at = time.time()
        return True

    def _state(self, carried: _Carried) -> DerivedState:
        at, before = carried.position, carried.before if carried.is_paused else None
        held = DerivedState(carried.definition.name, self._group, 0, 0, 0, 0, None, None, None, 0.0)
        if at is not None:
            held = replace(
                held, generation=at.generation, version=at.version, head=at.head, rows=at.rows, table_id=at.table_id,
                duplicates=at.duplicates,
            )  # fmt: skip
        elif before is not None:  # a driver that has just begun opens no table of a paused stream
            held = replace(before, group_name=self._group, reported_at=0.0)
        if carried.is_paused and carried.lacks_rows:
            held = replace(held, head=max(held.head, held.version + 1))
        return replace(
            held, level_at=carried.level_at or held.level_at, error=carried.error, failed_at=carried.failed_at,
            is_paused=int(carried.is_paused),
        )  # fmt: skip


def _is_old(since: float) -> bool:
    return time.monotonic() - since > _LOOK_SECONDS
