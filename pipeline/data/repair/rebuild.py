"""Rebuilds a game's table from bronze as a new generation, in one atomic switch (law L12).

Until the switch the old table serves and grows; a killed rebuild leaves files outside of every table. After the switch
the owner of the old generation gets a conflict, reads the new generation, and goes on from its cursor. The schemas and
gaps used for decoding must still hold at the switch (law L15), or rows that a pass landed with a newer schema would be
lost.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from pipeline.base import names
from pipeline.base.errors import Conflict, Refused, Transient
from pipeline.base.failpoints import hit
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.repair import damaged_log, stale_quarantine, switch
from pipeline.data.repair.bronze_rows import BronzeRows
from pipeline.data.repair.decoding import RowsWait, decode
from pipeline.data.repair.landed_stops import refusal
from pipeline.data.repair.refusals import unreadable
from pipeline.data.streams.writing.columns import landing_schema, target_schema
from pipeline.lake.delta import accepted_gaps, generation, remade
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.meanings import PROPERTY, carried, joined
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.quarantine import QUARANTINE, without_present
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.settings.tree import Paths
from pipeline.store.assignments import reported_cursors
from pipeline.store.games import Game, generations, record_generation, retired_games
from pipeline.store.processes.leases import store_time
from pipeline.store.schema_needs import write_needs

_ATTEMPTS: Final = 5  # each reads all of the game's bronze


class GenerationConflict(Conflict):
    """The table has a newer generation than the one to replace; nothing was done."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild."""

    game_key: str
    generation: int
    cursor: int  # of the new generation
    rows: int
    files: int
    refused: int  # rows that are in quarantine instead
    removed: int  # rows that landed now and left quarantine
    seconds: float
    gaps: int  # accepted gaps in bronze: the new generation lacks their rows


def rebuild(
    paths: Paths,
    environment: str,
    engine: Engine,
    schemas: Callable[[], SchemaSet],
    game: Game,
    replaces: int | None = None,
) -> Rebuilt:
    """Rebuild a game's table with today's schemas, from all that bronze holds of the game.

    Args:
        paths: where the environment keeps its tables.
        environment: its name.
        engine: the control store, where the new generation is recorded.
        schemas: returns the newest schema set; called at the beginning of each attempt and at its switch.
        game: whose table it is.
        replaces: the only generation that may be replaced, so that a repeated rebuild runs once; None: any.

    Raises:
        GenerationConflict: the table has a newer generation than `replaces`.
        Refused: there is no table or no schema, its log is undamaged but cannot be read, or bronze does
            not hold all of the game's rows.
        Transient: others repaired the game, or registered schemas for it, during all attempts; or the schema of a
            row's writer is not known yet.
    """
    for _ in range(_ATTEMPTS):
        try:
            work = _Rebuild(paths, environment, engine, schemas, game)
            if replaces is not None and work.generation != replaces:
                raise GenerationConflict
            return work.run()
        except TableConflict:
            continue
    raise Transient(
        f"{game.key} was repaired, or got new schemas, during all {_ATTEMPTS} attempts; its table is unchanged. Run "
        f"the rebuild again"
    )


@dataclass(slots=True)
class _Gathered:
    """The rows read from bronze so far."""

    through: int = 0  # the last seq that was read
    rows: int = 0
    files: list[DataFile] = field(default_factory=list)
    rejects: list[DataFile] = field(default_factory=list)  # in quarantine's folder, not yet in quarantine
    links: list[pa.Table] = field(default_factory=list)  # (seq, prev_seq) of the game's own rows


class _Rebuild:
    """One attempt; it starts by reading the schemas, the table and quarantine."""

    def __init__(
        self, paths: Paths, environment: str, engine: Engine, newest_schemas: Callable[[], SchemaSet], game: Game
    ) -> None:
        self._paths, self._environment, self._engine = paths, environment, engine
        self._game, self._folder = game, paths.table(game.key)
        self._newest_schemas, self._schemas = newest_schemas, newest_schemas()
        if game.key not in self._schemas.games:
            raise Refused(f"No schema is registered for {game.key}: all its rows would be refused. Register one first.")
        app = names.repair_app_id(environment, game.key)
        table, self._log_is_damaged = self._open()
        self._removed_at = table.transaction_version(names.remade_app_id(environment, game.key)) or 0
        known = table.metadata
        held = known().configuration if callable(known) else (known or {}).get("configuration") or {}
        joined(game.key, held.get(PROPERTY) or "", carried(landing_schema(self._schemas, game.key)))
        self._repairs = table.transaction_version(app)
        self.generation = generation.newest(table.transaction_version, environment, game.key)
        self._newest = self.generation  # the newest known one: the damaged part of a log may have held the last switch
        if self._log_is_damaged:
            self._newest = max(self.generation, generations(engine).get(game.key, 1))
        self._accepted = accepted_gaps.read(table.transaction_version, environment, game.key)
        self._gaps = 0
        self._quarantine = CursorTable.create(paths.quarantine, QUARANTINE, app)
        self._quarantine.add_missing_columns(QUARANTINE)
        self._removals = self._quarantine.cursor
        deadly = stale_quarantine.quarantined_places(
            open_table(paths.quarantine), paths.quarantine, game, "kills_worker"
        )
        self._deadly = frozenset(zip(deadly.column("seq").to_pylist(), deadly.column("pos").to_pylist(), strict=True))
        self._gathered = _Gathered()

    def _open(self) -> tuple[DeltaTable | damaged_log.Remains, bool]:
        try:
            return _open(self._paths, self._environment, self._game)
        except TableNotFoundError as error:
            _make_again(self._paths, self._environment, self._engine, self._schemas, self._game, error)
            return _open(self._paths, self._environment, self._game)

    def run(self) -> Rebuilt:
        started = time.perf_counter()
        # An earlier rebuild may have been killed before.
        record_generation(self._engine, self._game.key, self.generation)
        gathered = self._gathered
        try:
            cursor = self._read()
            self._quarantine_refused()
            hit("in_rebuild_switch")
            publish = switch.publish_anew if self._log_is_damaged else switch.publish
            while not publish(self._folder, self._switch(cursor)):
                cursor = self._read()  # the stream went on meanwhile, and readers must not lose its rows
                self._quarantine_refused()
        except (TableConflict, Refused, Transient) as error:
            discard(self._folder, gathered.files)
            discard(self._paths.quarantine, gathered.rejects)
            if isinstance(error, RowsWait):  # the game's stream may have passed these rows, and asks for nothing
                write_needs(self._engine, error.wanted(self._game, store_time(self._engine)))
            raise
        hit("in_rebuild_switch")
        record_generation(self._engine, self._game.key, self._newest + 1)
        removed = stale_quarantine.remove(self._paths, self._environment, self._game)
        rows = sum(file.rows for file in gathered.files)
        return Rebuilt(
            game_key=self._game.key,
            generation=self._newest + 1,
            cursor=cursor,
            rows=rows,
            files=len(gathered.files),
            refused=gathered.rows - rows,
            removed=removed,
            seconds=time.perf_counter() - started,
            gaps=self._gaps,
        )

    def _read(self) -> int:
        """Read on up to bronze's head, and return the game's cursor there."""
        gathered, bronze = self._gathered, BronzeRows(self._paths.bronze, self._environment, self._game)
        if bronze.head_seq <= gathered.through:
            raise Refused(
                f"The table of {self._game.key} is ahead of bronze, which ends at seq {bronze.head_seq}: it comes from "
                f"another bronze. Run `turnout verify` and restore bronze first."
            )
        for chunk in bronze.between(gathered.through, bronze.head_seq):
            self._gather(chunk)
        gathered.through = bronze.head_seq
        if not gathered.rows:
            raise Refused(f"Bronze holds no rows of {self._game.key}: a rebuild would empty its table.")
        return self._end_of_chain() or bronze.head_seq

    def _gather(self, chunk: pa.Table) -> None:
        gathered = self._gathered
        own = chunk.filter(pc.equal(chunk.column("bronze_key"), str(self._game.key)))
        gathered.links.append(own.group_by(["seq", "prev_seq"]).aggregate([]))
        gathered.rows += chunk.num_rows
        decoded = decode(chunk, self._game, self._schemas, self._paths.tables, self._deadly)
        gathered.files += decoded.files
        if decoded.stop is not None:  # no row at or above it may land, and readers must not lose those that have
            raise refusal(decoded.stop, self._game)
        new = without_present(decoded.rejects, self._paths.quarantine).select(QUARANTINE.names)
        if new.num_rows:
            gathered.rejects.append(write_file(new, self._paths.quarantine, ["seq", "game_key"]))

    def _end_of_chain(self) -> int:
        """Return the last seq with rows of the game's own, 0 for none.

        Bronze must hold all rows before it, without those in accepted gaps.
        """
        links = pa.concat_tables(self._gathered.links).group_by(["seq", "prev_seq"]).aggregate([]).sort_by("seq")
        self._gathered.links = [links]
        seqs, before = links.column("seq").to_numpy(), links.column("prev_seq").to_numpy()
        expected = np.concatenate(([0], seqs[:-1]))
        broken = np.flatnonzero(before != expected)
        unaccepted = [at for at in broken if not self._is_accepted(int(expected[at]), int(before[at]))]
        self._gaps = broken.size
        if unaccepted and all(before[at] <= self._removed_at for at in unaccepted):
            self._record_lost([(int(expected[at]), int(before[at])) for at in unaccepted])
        if unaccepted:
            raise Refused(
                f"Bronze has a gap in the rows of {self._game.key} before seq {seqs[unaccepted[0]]}: a rebuild would "
                f"lose the table's rows of it. Run `turnout verify` and restore bronze first."
            )
        return self._over_gaps(int(seqs[-1])) if seqs.size else 0

    def _record_lost(self, gaps: Sequence[tuple[int, int]]) -> None:
        """Accept the gaps that a removed table had the rows of, which bronze no longer holds.

        Raises:
            TableConflict: always, as this attempt began without them.
        """
        app_id = names.remade_app_id(self._environment, self._game.key)
        for above, through in gaps:
            remade.record_lost(self._folder, self._environment, self._game.key, app_id, above, through)
        raise TableConflict(f"{self._game.key}: bronze no longer holds all rows of its removed table")

    def _over_gaps(self, end: int) -> int:
        """Return the last complete seq once `end` is complete: it includes an accepted gap that follows."""
        for above, through in sorted(self._accepted):
            if above <= end < through <= self._gathered.through:
                end = through
        return end

    def _is_accepted(self, last: int, lost: int) -> bool:
        """Return whether an operator has accepted that bronze lost the rows above `last` up to `lost`."""
        return last < lost and any(above <= last and lost <= through for above, through in self._accepted)

    def _quarantine_refused(self) -> None:
        """Write the rows refused now, and move the counter even without any: see `stale_quarantine`.

        Raises:
            TableConflict: rows were removed from quarantine since this attempt looked at it.
        """
        gathered = self._gathered
        self._quarantine.commit(gathered.rejects, self._removals, (self._removals or 0) + 1)
        self._removals = (self._removals or 0) + 1
        gathered.rejects = []

    def _switch(self, cursor: int) -> switch.Switch:
        return switch.Switch(
            environment=self._environment,
            game=self._game,
            repairs=self._repairs,
            generation=self._newest,
            cursor=cursor,
            through=self._gathered.through,
            files=self._gathered.files,
            columns=target_schema(self._schemas, self._game.key),
            holds=self._holds,
        )

    def _holds(self, version_of: accepted_gaps.VersionOf) -> bool:
        """Return whether this attempt has used what counts now: registrations, registries' answers and accepted gaps.

        Checked after the table was opened for the switch: its rows landed with earlier registrations.
        """
        key = self._game.key
        return (
            self._newest_schemas().judges_as(self._schemas, key)
            and accepted_gaps.read(version_of, self._environment, key) == self._accepted
        )


def _open(paths: Paths, environment: str, game: Game) -> tuple[DeltaTable | damaged_log.Remains, bool]:
    """Return a game's table, or the remains of its damaged log, and whether the log is damaged.

    Raises:
        TableNotFoundError: there is no table.
        Refused: it cannot be opened for another reason, or it is of another environment.
    """
    folder = paths.table(game.key)
    try:
        require_own(paths.bronze, environment)  # before anything is written
        # A log that opens may still have its damaged part, and the next writer of a checkpoint would fail on it.
        if exists(folder):
            damaged_log.finish(folder)
    except OSError as cause:
        raise unreadable(game.key, cause) from cause
    try:
        return open_table(folder), False
    except TableNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        return damaged_log.read(folder, game.key, error), True


def _make_again(
    paths: Paths, environment: str, engine: Engine, schemas: SchemaSet, game: Game, error: TableNotFoundError
) -> None:
    """Make an empty table where the game's was removed, and bronze can be read.

    Raises:
        Refused: the game never had a table, or is retired.
        Transient: bronze cannot be read, or does not reach as far as the table did.
    """
    folder, through = paths.table(game.key), reported_cursors(engine).get(game.key, 0)
    if not through:
        raise Refused(f"{game.key} has no table yet. Start its group: its stream makes one from bronze.") from error
    if game.key in retired_games(engine):
        raise Refused(f"{game.key} is retired: its table is not made again. Restore the game first.") from error
    remade.require_bronze(folder, paths.bronze, environment, through)
    # Where this rebuild is killed, the game's stream fills the table that was made.
    remade.refuse_again(paths.bronze, paths.quarantine, environment, game.key, game.name)
    app_id, description = names.stream_app_id(environment, game.key, 1), f"turnout game {game.name}"
    CursorTable.create(folder, target_schema(schemas, game.key), app_id, description=description)
    remade.record(folder, environment, game.key, through)
