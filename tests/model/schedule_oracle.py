"""The laws, read from the disk: they must hold when a schedule has come to rest, whatever the order was."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pipeline.base.names import stream_app_id
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.streams.needs import Need, is_open
from pipeline.settings.tree import Paths
from pipeline.store.games import Game
from tests.model.schedule_store import Disk, State
from tests.model.schedule_types import Decisions
from tests.model.schedule_world import REGISTRY, Row, World

Place = tuple[int, int]


class Oracle:
    """Judges one schedule."""

    def __init__(self, world: World, paths: Paths, disk: Disk, environment: str, decisions: Decisions) -> None:
        self._world, self._paths, self._disk, self._environment = world, paths, disk, environment
        self._decisions = decisions

    def cursor(self, game: Game, state: State | None = None) -> int:
        """Return the cursor of the newest generation of a game's table."""
        if state is None:
            states = self._disk.states(Path(self._paths.table(game.key)))
            if not states:
                return 0
            state = states[-1]
        number = 1
        while stream_app_id(self._environment, game.key, number + 1) in state.transactions:
            number += 1
        return state.transactions.get(stream_app_id(self._environment, game.key, number), 0)

    def waiting(self, known: SchemaSet | None = None) -> list[str]:
        """Return which games have not come to their last seq, or to the last before a need that a set leaves open."""
        found = []
        for game in self._world.games:
            last, cursor = self._last(game, known), self.cursor(game)
            if cursor < last or (known is None and cursor > last):
                found.append(f"{game.name} stands at {cursor} of {last}")
        return found

    def _last(self, game: Game, known: SchemaSet | None) -> int:
        rows = self._world.rows(game)
        if known is not None:
            needs = [Need(row.seq, row.pos, 0, REGISTRY, row.writer) for row in rows if row.writer is not None]
            first = min(
                (need.seq for need in needs if is_open(need, game.key, known)), default=self._world.last_seq(game) + 1
            )
            rows = [row for row in rows if row.seq < first]
        return max((row.seq for row in rows), default=0)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong at the end."""
        quarantined = self._quarantined()
        for folder in (Path(self._paths.bronze), Path(self._paths.quarantine), *self._tables()):
            yield from self._log(folder)
        for game in self._world.games:
            yield from self._game(game, quarantined.get(game.key, set()))
        if strange := quarantined.keys() - {game.key for game in self._world.games}:
            yield f"quarantine holds rows of {sorted(strange)}"

    def _tables(self) -> list[Path]:
        return sorted(Path(self._paths.tables).iterdir()) if Path(self._paths.tables).is_dir() else []

    def _log(self, folder: Path) -> Iterator[str]:
        """A log without a gap: readers never skip a missing version."""
        self._disk.states(folder)
        found = sorted(self._disk.logs.get(str(folder), {}))
        if found != list(range(len(found))):
            yield f"{folder.name}: its log has the versions {found}"

    def _game(self, game: Game, quarantined: set[Place]) -> Iterator[str]:
        rows = {row.place: row for row in self._world.rows(game)}
        states = self._disk.states(Path(self._paths.table(game.key)))
        if not states:
            yield f"{game.name} has no table"
            return
        if (cursor := self.cursor(game)) != self._world.last_seq(game):
            yield f"{game.name}: its cursor is {cursor}, its last seq {self._world.last_seq(game)}"
        for state in states:
            yield from self._version(game, state, rows)
        yield from self._departed(game, states, rows)
        yield from self._moved(game, states, rows)
        landed = {(row["_seq"], row["_pos"]): row for row in self._rows(game, states[-1])}
        for place, row in rows.items():
            where = [name for name, there in (("table", landed), ("quarantine", quarantined)) if place in there]
            if not where:
                yield f"{game.name}: row {place} is lost"
            if row.kind == "good" and where == ["quarantine"]:
                yield f"{game.name}: row {place} decodes, and is in quarantine"
            if row.kind == "typed" and where == ["quarantine"] and self._decisions.must_land(row):
                yield f"{game.name}: row {place} is of an accepted type, and is in quarantine"
            if row.kind in {"broken", "denied"} and "table" in where:
                yield f"{game.name}: row {place} does not decode, and is in the table"
            if place in landed and not _is_right(row, landed[place]):
                yield f"{game.name}: row {place} has other values: {landed[place]}"
        if strange := (landed.keys() | quarantined) - rows.keys():
            yield f"{game.name}: rows that are not its own: {sorted(strange)}"

    def _version(self, game: Game, state: State, rows: dict[Place, Row]) -> Iterator[str]:
        """At every version: no row twice, none above the cursor, none missing below it (laws L4, L5)."""
        places = Counter((row["_seq"], row["_pos"]) for row in self._rows(game, state))
        cursor = self.cursor(game, state)
        if doubled := sorted(place for place, count in places.items() if count > 1):
            yield f"{game.name} version {state.version}: rows twice: {doubled}"
        if above := sorted(place for place in places if place[0] > cursor):
            yield f"{game.name} version {state.version}: rows above the cursor {cursor}: {above}"
        good = {place for place, row in rows.items() if row.kind == "good" and row.seq <= cursor}
        if missing := sorted(good - places.keys()):
            yield f"{game.name} version {state.version}: rows missing below the cursor {cursor}: {missing}"
        may_land = self._decisions.may_land
        if early := sorted(each for each in places if each in rows and not may_land(rows[each], state.version)):
            yield f"{game.name} version {state.version}: rows whose type was never accepted: {early}"

    def _departed(self, game: Game, states: Sequence[State], rows: dict[Place, Row]) -> Iterator[str]:
        """A row that readers have seen stays in the table, unless its event type is withdrawn (laws L12, L15)."""
        seen: set[Place] = set()
        for state in states:
            places = {(row["_seq"], row["_pos"]) for row in self._rows(game, state)}
            gone = sorted(each for each in seen - places if not self._decisions.may_leave(rows[each], state.version))
            if gone:
                yield f"{game.name} version {state.version}: rows that leave the table: {gone}"
            seen = places

    def _moved(self, game: Game, states: Sequence[State], rows: dict[Place, Row]) -> Iterator[str]:
        """A document's values stay in the columns in which they landed, whatever is registered later (law L1)."""
        if not self._world.shaped:
            return
        first: dict[Place, Any] = {}
        for state in states:
            for landed in self._rows(game, state):
                place = landed["_seq"], landed["_pos"]
                if place in rows and rows[place].shape is not None:
                    now = _without_nulls(landed.get("move"))
                    if first.setdefault(place, now) != now:
                        yield f"{game.name} version {state.version}: row {place} moved from {first[place]} to {now}"

    def _rows(self, game: Game, state: State) -> Iterator[dict[str, Any]]:
        for path in state.files:
            file = self._paths.table(game.key) / unquote(path)
            yield from self._contents(Path(file))

    def _contents(self, file: Path) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._disk.read(file).to_pylist()
        return rows

    def _quarantined(self) -> dict[str, set[Place]]:
        states = self._disk.states(Path(self._paths.quarantine))
        found: dict[str, set[Place]] = {}
        for path in states[-1].files if states else ():
            for row in self._contents(Path(self._paths.quarantine / unquote(path))):
                found.setdefault(row["game_key"], set()).add((row["seq"], row["pos"]))
        return found


def _is_right(row: Row, landed: dict[str, Any]) -> bool:
    if row.shape is not None:  # which superset has it depends on what was registered when
        columns = _without_nulls(landed.get("move")) or {}
        plain = {name.partition("__v")[0]: value for name, value in columns.items()}
        return {"_type": landed["_type"], "move": plain} == row.values and len(plain) == len(columns)
    return landed["_schema_id"] == row.schema_id and all(
        _without_nulls(landed.get(name)) == value for name, value in row.values.items()
    )


def _without_nulls(value: Any) -> Any:
    """Return a struct without the members that later schemas of its type have added."""
    return {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value
