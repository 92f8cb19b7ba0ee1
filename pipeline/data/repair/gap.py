"""Accepts a gap: lets a stream skip rows that bronze lost before their game had read them.

The cursor moves only over seqs of which bronze holds no row of the game. The same commit records the gap, so that
verify and a rebuild exclude it; the audit log keeps the operator and the reason.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from pipeline.base import names
from pipeline.base.errors import Refused
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.repair.bronze_rows import BronzeRows
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.lake.delta import accepted_gaps, generation, remade
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.settings.tree import Paths
from pipeline.store.assignments import reported_cursors
from pipeline.store.games import Game, last_seq
from pipeline.store.stream_control import submit_retry

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Accepted:
    """The seqs above `above` up to `through`, among them those that bronze has lost of the game."""

    game_key: str
    above: int
    through: int


def accept_gap(
    paths: Paths, environment: str, engine: Engine, schemas: SchemaSet, game: Game, actor: str, reason: str
) -> Accepted:
    """Move a game's cursor over the gap that follows it, and restart its stream.

    Raises:
        Refused: there is no gap, no table and no schema to make one with, the table was removed, or the stream moves
            by itself.
    """
    for _ in range(_ATTEMPTS):
        try:
            accepted = _move(paths, environment, engine, schemas, game, f"{actor}: {reason}")
        except TableConflict:
            continue
        submit_retry(engine, game.key, actor)
        return accepted
    raise Refused(f"The stream of {game.key} advanced during all {_ATTEMPTS} attempts: no gap stops it.")


def _move(paths: Paths, environment: str, engine: Engine, schemas: SchemaSet, game: Game, note: str) -> Accepted:
    last = last_seq(engine, game.key)  # read before bronze, which then holds it unless it was lost
    bronze = BronzeRows(paths.bronze, environment, game)
    table = _newest(paths, environment, game)
    remade.refuse_removed(paths.table(game.key), paths.bronze, reported_cursors(engine).get(game.key, 0))
    cursor = 0 if table is None else table.cursor or 0
    first = _first_link(bronze.between(cursor, bronze.head_seq), game)
    through = last if first is None else first
    if through <= cursor:
        raise Refused(
            f"No gap follows the cursor of {game.key}, seq {cursor}. If its stream is stopped, see the reason on the "
            f"dashboard, then run `turnout repair retry {game.key}`."
        )
    table = table or _first_table(paths, environment, schemas, game)
    gap = accepted_gaps.record(table.transaction_version, environment, game.key, cursor, through)
    note = f"gap above seq {cursor} up to seq {through} accepted by {note}"
    table.commit([], cursor or None, through, note={"turnout": note}, also=gap)
    return Accepted(game.key, cursor, through)


def _newest(paths: Paths, environment: str, game: Game) -> CursorTable | None:
    """Open the newest generation of the game's table, None where it has no table."""
    folder = paths.table(game.key)
    table = CursorTable.open(folder, names.stream_app_id(environment, game.key, 1))
    if table is None:
        return None
    newest = generation.newest(table.transaction_version, environment, game.key)
    return CursorTable.open(folder, names.stream_app_id(environment, game.key, newest)) or table


def _first_table(paths: Paths, environment: str, schemas: SchemaSet, game: Game) -> CursorTable:
    """Create the table of a game whose very first rows are lost."""
    if game.key not in schemas.games:
        raise Refused(f"{game.key} has neither a table nor a schema: register a schema first.")
    app_id, description = names.stream_app_id(environment, game.key, 1), f"turnout game {game.name}"
    return CursorTable.create(paths.table(game.key), landing_schema(schemas, game.key), app_id, description=description)


def _first_link(chunks: Iterable[pa.Table], game: Game) -> int | None:
    """Return the prev_seq of the first of the game's own rows, None without rows."""
    link: tuple[int, int] | None = None
    for chunk in chunks:
        own = chunk.filter(pc.equal(chunk.column("bronze_key"), str(game.key))).select(["seq", "prev_seq"])
        if own.num_rows:
            first = own.sort_by("seq").slice(0, 1).to_pylist()[0]
            link = min(link or (first["seq"], first["prev_seq"]), (first["seq"], first["prev_seq"]))
    return None if link is None else link[1]
