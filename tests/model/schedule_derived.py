"""A silver table in a schedule: every driver carries it, whoever holds its game, and people change and repair it.

At each of its versions it is what a recomputation over its game's table gives, at the position that the version says.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import generation_id, silver_key, stream_app_id
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.derived.definitions import SilverDefinition
from pipeline.data.derived.flat import hash_of
from pipeline.data.derived.held_ids import SilverMemory
from pipeline.data.derived.silver import Silver
from pipeline.data.derived.source_log import number_of
from pipeline.lake.delta.table import TableConflict
from pipeline.settings.tree import Paths
from pipeline.store.games import Game
from tests.model.schedule_store import Disk, State
from tests.model.schedule_tasks import Process, Scheduler
from tests.model.schedule_world import World

_WAIT_SECONDS: Final = 1.0
_NAME: Final = "points"

Place = tuple[int, int]


@dataclass(frozen=True)
class _Position:
    """Where a version of the silver table is."""

    generation: int
    cursor: int
    source: int  # what it counts in


class Derived:
    """The silver table of one game of a schedule; of none where the schedule has no such table."""

    def __init__(
        self, world: World, paths: Paths, engine: Engine, environment: str, disk: Disk, scheduler: Scheduler, seed: int
    ) -> None:
        self._draw = random.Random(f"derived {seed}")
        self._paths, self._engine, self._environment = paths, engine, environment
        self._disk, self._scheduler = disk, scheduler
        self.game: Game | None = self._draw.choice(world.games) if world.repeated else None
        game = "" if self.game is None else self.game.name
        self.definition = SilverDefinition(_NAME, game, within=2)
        self._others = [
            replace(self.definition, within=1),
            replace(self.definition, within=None),
            replace(self.definition, mask=(("points", "hash"),)),
            self.definition,
        ]
        self._known = {self.definition, *self._others}
        self.changes = self._draw.choice((0, 1, 1, 2)) if world.repeated else 0
        """How often people change its definition."""
        self.repairs = self._draw.choice((0, 1, 1, 2)) if world.repeated else 0
        """How often people repair it."""
        self._replaces: list[str] = []  # the generations that repairs named, the newest last

    def carry(self, process: Process, shall_end: Callable[[], bool]) -> None:
        """Carry it on until the driver ends, as its thread does."""
        assert self.game is not None
        registry = LocalRegistry(self._engine)
        while not shall_end():
            definition = self.definition
            silver = Silver(
                self._paths.table(self.game.key), self._paths.silver / _NAME, self._environment, definition,
                registry.snapshot, memory=SilverMemory(self._draw.choice((1, 2, 50))), checkpoint_interval=3,
                holds=partial(self._holds, definition),
            )  # fmt: skip
            try:
                at = silver.step(self._replaces[-1] if self._replaces else None)
            except (TableConflict, Transient, Refused):
                at = None
            except OperationalError:
                if not process.store_is_away:
                    raise
                at = None
            if at is None or at.is_level:
                self._scheduler.wait(shall_end, _WAIT_SECONDS, "derived")

    def _holds(self, definition: SilverDefinition) -> bool:
        return self.definition == definition

    def define(self) -> None:
        """A person changes the definition, while drivers go on with the one that they know."""
        self.definition = self._draw.choice(self._others)

    def repair(self) -> None:
        """A person replaces the newest generation, by its id."""
        if (states := self._states()) and (at := self._position(states[-1])) is not None:
            self._replaces.append(self._generation(states[-1], at))

    def waiting(self) -> list[str]:
        """Return what the table has not come to."""
        if self.game is None or not (states := self._states_of_game()):
            return []
        found = self._states()
        at = self._position(found[-1]) if found else None
        if at is None or at.cursor < states[-1].version or at.source != self._number(self.definition, states[-1]):
            return [f"silver stands at {at} of {states[-1].version}"]
        if self._generation(found[-1], at) in self._replaces[-1:]:
            return [f"silver still has generation {at.generation}, which a repair replaces"]
        return []

    def look(self) -> Iterator[str]:
        """Yield what is wrong with any version of the table."""
        if self.game is None:
            return
        source, before = self._states_of_game(), _Position(0, -1, 0)
        for state, after in zip(self._states(), [*self._states()[1:], None], strict=True):
            at = self._position(state)
            if at is None:
                continue
            if at.generation < before.generation or at.cursor < before.cursor:  # its game's table never goes back
                yield f"silver version {state.version}: it moved from {before} to {at}"
            if after is not None and self._position(after) == at and after.files.keys() != state.files.keys():
                yield f"silver version {after.version}: two commits of the position {at}"
            if at != before:
                yield from self._compared(state, at, source)
            if 0 < before.generation < at.generation and not self._is_due(before, at, state, source):
                yield f"silver version {state.version}: generation {at.generation} began for no reason"
            before = at

    def _is_due(self, before: _Position, at: _Position, state: State, source: Sequence[State]) -> bool:
        """Return whether a generation had a reason to end: another definition, rows that left, or a repair of it."""
        read = source[before.cursor : at.cursor + 1]
        is_kept = all(one.files.keys() <= other.files.keys() for one, other in pairwise(read))
        is_repaired = self._generation(state, before) in self._replaces
        return before.source != at.source or not is_kept or is_repaired

    def _compared(self, state: State, at: _Position, source: Sequence[State]) -> Iterator[str]:
        """Yield how its rows differ from a recomputation over the game's table at its position."""
        of = [each for each in self._known if self._number(each, source[-1]) == at.source]
        if not of:
            yield f"silver version {state.version}: it is by no definition that ever was"
            return
        expected = self._recomputed(of[0], source[: at.cursor + 1], self._begun(at.generation))
        found = sorted(self._rows(self._paths.silver / _NAME, state), key=_place)
        shown = [{name: row.get(name) for name in ("_seq", "_pos", "points")} for row in found]
        if shown != expected:
            yield f"silver version {state.version}: its rows are computed otherwise: {shown}, not {expected}"

    def _recomputed(self, of: SilverDefinition, source: Sequence[State], begun: int) -> list[dict[str, Any]]:
        came: dict[Place, int] = {}  # the version that added a row; of those that were there at the begin: the begin
        for state in source[begun:]:
            for row in self._rows(self._paths.table(of.game_key), state):
                came.setdefault(_place(row), state.version)
        rows = {_place(row): row for row in self._rows(self._paths.table(of.game_key), source[-1])}
        kept: dict[str, list[float]] = {}
        found = []
        for place in sorted(rows, key=lambda each: (came[each], each)):
            row = rows[place]
            at, event = row["_source_time"].timestamp(), row["_event_id"]
            near = kept.setdefault(event, []) if event is not None and of.within is not None else []
            if any(abs(at - other) <= (of.within or 0) for other in near):
                continue
            near.append(at)
            points = row["points"]
            found.append({"_seq": place[0], "_pos": place[1], "points": hash_of(points) if of.mask else points})
        return sorted(found, key=_place)

    def _begun(self, generation: int) -> int:
        """Return the version of the game's table with which a generation began, by the note of its commit."""
        wanted = f"silver: generation {generation} from "
        for actions in self._disk.logs[str(self._paths.silver / _NAME)].values():
            for action in actions:
                note = str(action.get("commitInfo", {}).get("turnout", ""))
                if note.startswith(wanted):
                    return int(note.rpartition("@")[2])
        raise AssertionError(f"no commit begins generation {generation}")

    def _position(self, state: State) -> _Position | None:
        number = 1
        while self._app(number + 1) in state.transactions:
            number += 1
        cursor = state.transactions.get(self._app(number))
        source = state.transactions.get(f"{self._app(number)}/source", 0)
        return None if cursor is None else _Position(number, cursor, source)

    def _generation(self, state: State, at: _Position) -> str:
        return generation_id(str(state.metadata["id"]), at.generation)

    def _app(self, number: int) -> str:
        return stream_app_id(self._environment, silver_key(_NAME), number)

    def _number(self, definition: SilverDefinition, source: State) -> int:
        return number_of(str(source.metadata["id"]), definition.digest)

    def _states_of_game(self) -> list[State]:
        assert self.game is not None
        return self._disk.states(Path(str(self._paths.table(self.game.key))))

    def _states(self) -> list[State]:
        return self._disk.states(Path(str(self._paths.silver / _NAME)))

    def _rows(self, table: Any, state: State) -> Iterator[Mapping[str, Any]]:
        for path in state.files:
            yield from self._disk.read(Path(str(table / unquote(path)))).to_pylist()


def _place(row: Mapping[str, Any]) -> Place:
    return row["_seq"], row["_pos"]
