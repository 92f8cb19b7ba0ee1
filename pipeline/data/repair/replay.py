"""Replays quarantine: rows that decode with today's schemas land in their game's table, exactly once (law L5).

A row lands by a compare-and-set on the table's repair counter, and only if the table lacks its place; only then does it
leave quarantine. So a replay may be killed anywhere, run twice, and run beside passes and other repairs.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base import names
from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.failpoints import hit
from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.repair import stale_quarantine
from pipeline.data.repair.asking import Ask, lacking
from pipeline.data.repair.bronze_rows import BronzeRows
from pipeline.data.repair.decoding import RowsWait, decode
from pipeline.data.repair.places import PLACES, landed, within, without
from pipeline.data.repair.quarantined import Selection, opened
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.lake.delta import generation, remade
from pipeline.lake.delta.columns import OtherColumns
from pipeline.lake.delta.data_files import DataFile, discard
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.scratch import scratch_folder
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths
from pipeline.store.games import Game
from pipeline.store.schema_needs import OpenNeed

KILLS_WORKER: Final = "kills_worker"
_ASKS: Final = 2  # for an id, and then for the message of it that the rows are


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome of one game's rows, also of a dry run; each row counts in one of the first five."""

    landed: int = 0  # put into the table now
    present: int = 0  # already in the table
    refused: Mapping[str, int] = field(default_factory=dict)  # still refused, by today's reason; they stay
    waiting: int = 0  # above the table's cursor: their stream has not decided yet
    not_in_bronze: int = 0  # missing from bronze; verify calls them phantoms
    removed: int = 0  # rows removed from quarantine


@dataclass(frozen=True, slots=True)
class GameReplay:
    """The outcome of a replay for one game."""

    game_key: str
    game: str
    done: Replayed
    error: str | None = None  # why nothing was done


def replay_all(  # noqa: PLR0913 - what a replay needs, the rare ones by name
    paths: Paths,
    environment: str,
    schemas: Callable[[], SchemaSet],
    known: Mapping[str, str],
    selection: Selection,
    *,
    dry_run: bool,
    ask: Ask | None = None,
    reported: Mapping[str, int] = MappingProxyType({}),
    note: Callable[[str], None] = lambda _: None,
) -> list[GameReplay]:
    """Replay the chosen rows of every known game that has a schema; one game's failure does not stop the others.

    Skips rows that killed a worker unless that reason is chosen: they would kill this process, too. Each attempt at a
    game calls `schemas` for the newest schema set. First it asks registries for what rows lack, by `ask` if given.
    `reported` has the last seqs that drivers reported of tables: such a table that is gone is not made here. `note`
    gets a sentence on how far it is.
    """
    registered = schemas().games
    games = [Game(GameKey(key), name) for key, name in sorted(known.items()) if GameKey(key) in registered]
    with opened(paths, known, selection, twins=True) as quarantined:
        names_there = set(quarantined.games())
        skipped = () if selection.reason else (KILLS_WORKER,)
        chosen = [(game, quarantined.places(game.name, skipped)) for game in games if game.name in names_there]
    replay = Replay(paths, environment, schemas, dry_run=dry_run, reported=reported, note=note)
    if ask is not None:
        for _ in range(_ASKS):
            ask(list({need: None for game, places in chosen for need in replay.lacking(game, places)}))
    return [_one(replay, game, places, ask) for game, places in chosen if places.num_rows]


def _one(replay: "Replay", game: Game, places: pa.Table, ask: Ask | None) -> GameReplay:
    try:
        try:
            return GameReplay(game.key, game.name, replay.run(game, places))
        except RowsWait as waiting:
            if ask is None or not (wanted := waiting.wanted(game, time.time())):
                raise
            ask(wanted)
            return GameReplay(game.key, game.name, replay.run(game, places))
    except (Refused, Transient, DeltaError, OSError, pa.ArrowException) as error:
        return GameReplay(game.key, game.name, Replayed(), first_line(error))


@dataclass(slots=True)
class _Work:
    """The rows that an attempt has gathered."""

    schemas: SchemaSet  # those that it decodes with
    files: list[DataFile] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    found: int = 0

    @property
    def landed(self) -> int:
        return sum(file.rows for file in self.files)


class Replay:
    """Replays quarantine with the newest schemas at the start of each attempt at a game."""

    def __init__(
        self,
        paths: Paths,
        environment: str,
        schemas: Callable[[], SchemaSet],
        *,
        dry_run: bool,
        reported: Mapping[str, int] = MappingProxyType({}),
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """With `dry_run`, work everything out and change nothing; `reported` and `note` as for `replay_all`."""
        self._paths, self._environment, self._newest_schemas, self._dry_run = paths, environment, schemas, dry_run
        self._reported, self._note = reported, note

    def run(self, game: Game, chosen: pa.Table) -> Replayed:
        """Replay the chosen places of a game's rows in quarantine.

        Raises:
            Refused: no schema is registered for the game, its rows cannot be laid out as columns, its table was
                removed, or another writer has taken rows from it (`ForeignChange`).
            Transient: others repaired the game at each attempt, or the schema of a row's writer is not known yet.
        """
        for _ in range(stale_quarantine.ATTEMPTS):
            try:
                done = self._attempt(game, chosen)
                break
            except TableConflict:
                continue
        else:
            raise Transient(
                f"{game.key} was repaired during all {stale_quarantine.ATTEMPTS} attempts; run the replay again"
            )
        if self._dry_run or not (done.landed or done.present):
            return done
        hit("in_replay")
        return replace(done, removed=stale_quarantine.remove(self._paths, self._environment, game))

    def lacking(self, game: Game, chosen: pa.Table) -> Iterator[OpenNeed]:
        """Yield the writers of chosen rows whose schema is refused or not the game's."""
        schemas = self._newest_schemas()
        if not schemas.writers or not chosen.num_rows:
            return
        bronze = BronzeRows(self._paths.bronze, self._environment, game)
        chunks = bronze.of_seqs(pc.unique(chosen.column("seq")).to_numpy())
        yield from lacking((within(chunk, chosen) for chunk in chunks), game, schemas)

    def _attempt(self, game: Game, chosen: pa.Table) -> Replayed:
        work = _Work(self._newest_schemas())
        if game.key not in work.schemas.games:
            raise Refused(f"No schema is registered for {game.key}. Register one, then replay its rows.")
        folder = self._paths.table(game.key)
        # Guarded: rows that leave quarantine would be lost with a RESTORE to before another writer's commit.
        table = CursorTable.open(folder, names.repair_app_id(self._environment, game.key), guarded=True)
        if table is None:
            remade.refuse_removed(folder, self._paths.bronze, self._reported.get(game.key, 0))
        else:
            table.require_own()
        repairs = table.cursor if table else None  # before the table is read
        present = landed(open_table(folder), folder, chosen) if table else PLACES.empty_table()
        with self._tables() as tables:
            self._decode(game, without(chosen, present), self._cursor(game, table), tables, work)
            if work.files and not self._dry_run:
                self._commit(game, table, repairs, work)
        missing = chosen.num_rows - present.num_rows - work.found
        return Replayed(work.landed, present.num_rows, dict(work.refused), work.waiting, missing)

    @contextmanager
    def _tables(self) -> Iterator[Location]:
        """Return the folder to write files in: the real one, or a temporary one."""
        if not self._dry_run:
            yield self._paths.tables
            return
        with scratch_folder("replay") as folder:
            yield located(folder)

    def _cursor(self, game: Game, table: CursorTable | None) -> int:
        if table is None:
            return 0
        newest = generation.newest(table.transaction_version, self._environment, game.key)
        return table.transaction_version(names.stream_app_id(self._environment, game.key, newest)) or 0

    def _decode(self, game: Game, places: pa.Table, cursor: int, tables: Location, work: _Work) -> None:
        """Write the decided rows: at or below the cursor, or refused by ingest, as no pass reads those."""
        bronze = BronzeRows(self._paths.bronze, self._environment, game)
        for chunk in bronze.of_seqs(pc.unique(places.column("seq")).to_numpy()):
            rows = within(chunk, places)
            decided = rows.filter((pc.field("seq") <= cursor) | pc.field("was_unknown"))
            work.found += rows.num_rows
            work.waiting += rows.num_rows - decided.num_rows
            if decided.num_rows:
                decoded = decode(decided, game, work.schemas, tables)
                work.files += decoded.files
                work.refused.update(decoded.rejects.column("reason").to_pylist())
            self._note(f"{work.found:,} of {places.num_rows:,} rows of {names.plain(game.name)} decoded.")

    def _commit(self, game: Game, table: CursorTable | None, repairs: int | None, work: _Work) -> None:
        folder, target = self._paths.table(game.key), landing_schema(work.schemas, game.key)
        app = names.repair_app_id(self._environment, game.key)
        description = f"turnout game {game.name}"
        table = table or CursorTable.create(folder, target, app, description=description, guarded=True)
        try:
            table.add_missing_columns(target)
            hit("in_replay")
            note = {"turnout": "replay of quarantine"}
            table.commit(work.files, repairs, (repairs or 0) + 1, note=note, target=target)
        except (TableConflict, OtherColumns):
            discard(folder, work.files)
            raise
