"""Decodes one game's rows with today's schemas, exactly as a pass would: with the task's own `split`."""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.contracts.messages import shown
from pipeline.contracts.schemas import SchemaSet
from pipeline.delta_table import DataFile
from pipeline.errors import Refused
from pipeline.quarantine import QUARANTINE
from pipeline.repair.game import Game
from pipeline.streams.split import READ, Place, SplitJob, split


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of some rows."""

    files: list[DataFile]  # in the folder, not yet in the table
    rejects: pa.Table  # quarantine's columns, with the keys that bronze has


def decode(
    rows: pa.Table, game: Game, schemas: SchemaSet, tables: Path, deadly: frozenset[Place] = frozenset()
) -> Decoded:
    """Write what decodes of a chunk of `BronzeRows` as a file below `tables`, and return it with what is refused.

    Args:
        rows: the chunk.
        game: whose rows they are.
        schemas: the schemas to decode with.
        tables: the folder of the game tables, or one to try things in.
        deadly: places of rows that are refused unread, because a worker that read them died.

    Raises:
        Refused: the rows cannot be laid out as the game's columns.
    """
    job = SplitJob({game.key: 0}, schemas, tables, deadly)
    done = next(split(iter(rows.select(READ).combine_chunks().to_batches()), job), None)
    if done is None:
        return Decoded([], QUARANTINE.empty_table())
    report = json.loads(done.column("report")[0].as_py())["games"][game.key]
    if report["error"] is not None:
        raise Refused(f"Rows of {shown(game.name)} cannot be written: {report['error']['evidence']}. Mend that first.")
    rejects = pa.ipc.open_stream(done.column("rejects")[0].as_py()).read_all()
    return Decoded([DataFile(**file) for file in report["files"]], _with_bronze_keys(rejects, rows))


def _with_bronze_keys(rejects: pa.Table, rows: pa.Table) -> pa.Table:
    """Give refused rows the keys they have in bronze: quarantine names a row by its place there (law L5)."""
    if not rejects.num_rows or pc.all(pc.equal(rows.column("bronze_key"), rows.column("game_key"))).as_py():
        return rejects
    keys = rows.select(["seq", "pos", "bronze_key"])
    joined = rejects.drop_columns(["game_key"]).join(keys, ["seq", "pos"]).rename_columns({"bronze_key": "game_key"})
    return joined.select(rejects.column_names)
