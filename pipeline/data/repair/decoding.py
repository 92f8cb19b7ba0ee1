"""Decodes one game's rows with today's schemas, exactly as a pass would: with the task's own `split`."""

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import shown
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.contracts.shape_needs import SHAPES
from pipeline.data.streams.needs import Need
from pipeline.data.streams.stops import Stop
from pipeline.data.streams.writing.job import READ, Place, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.lake.delta.data_files import DataFile, discard
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.storage.location import Location
from pipeline.store.games import Game
from pipeline.store.schema_needs import OpenNeed

_NOTHING: Final[dict[str, Any]] = {"error": None, "files": [], "needs": []}


class RowsWait(Transient):
    """Rows of a game wait for what a schema set lacks; `need` says what."""

    def __init__(self, game: Game, need: Need) -> None:
        """Say it to a person."""
        super().__init__(
            f"Rows of {shown(game.name)} from seq {need.seq} on wait for {need}, which is not known yet. Start the "
            f"game's group, which looks it up, and try again when `turnout status` no longer shows it."
        )
        self.need = need

    def wanted(self, game: Game, now: float) -> list[OpenNeed]:
        """Return the needs that drivers cannot see in bronze's columns; none where `asking` finds them."""
        need = self.need
        if need.registry != SHAPES:
            return []
        return [OpenNeed(SHAPES, need.writer, game.key, game.name, now, need.seq, need.pos, again=True)]


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The outcome of some rows."""

    files: list[DataFile]  # in the folder, not yet in the table
    rejects: pa.Table  # quarantine's columns, with the keys that bronze has
    stop: Stop | None  # the first row, of these too, at which an output contract stops the stream


def decode(
    rows: pa.Table, game: Game, schemas: SchemaSet, tables: Location, deadly: frozenset[Place] = frozenset()
) -> DecodedRows:
    """Write the rows of a chunk of `BronzeRows` that decode as a file below `tables`; return it with the refused rows.

    Args:
        rows: the chunk.
        game: whose rows they are.
        schemas: the schemas to decode with.
        tables: the folder of the game tables, or one to try things in.
        deadly: places of rows that are refused unread, because a worker that read them died.

    Raises:
        Refused: the rows cannot be laid out as the game's columns.
        RowsWait: the schema of a row's writer is not known yet, or no superset covers its document.
    """
    job = SplitJob({game.key: 0}, schemas, tables, deadly=deadly)
    files: list[DataFile] = []
    rejects = [QUARANTINE.empty_table()]
    stops: list[Stop] = []
    for done in split(iter(rows.select(READ).to_batches()), job):
        report = json.loads(done.column("report")[0].as_py())["games"].get(game.key, _NOTHING)
        files += [DataFile(**file) for file in report["files"]]
        stops += [Stop(*stop)] if (stop := report.get("stop")) is not None else []
        if report["needs"]:
            discard(tables / game.key, files)
            raise RowsWait(game, Need.of_json(report["needs"][0]))
        if report["error"] is not None:
            discard(tables / game.key, files)
            evidence = report["error"]["evidence"]
            raise Refused(f"Rows of {shown(game.name)} cannot be written: {evidence}. Fix that first.")
        rejects.append(pa.ipc.open_stream(done.column("rejects")[0].as_py()).read_all())
    return DecodedRows(files, _with_bronze_keys(pa.concat_tables(rejects), rows), min(stops, default=None))


def _with_bronze_keys(rejects: pa.Table, rows: pa.Table) -> pa.Table:
    """Give refused rows the keys they have in bronze, as quarantine names a row by its place there (law L5)."""
    if not rejects.num_rows or pc.all(pc.equal(rows.column("bronze_key"), rows.column("game_key"))).as_py():
        return rejects
    keys = rows.select(["seq", "pos", "bronze_key"])
    joined = rejects.drop_columns(["game_key"]).join(keys, ["seq", "pos"]).rename_columns({"bronze_key": "game_key"})
    return joined.select(rejects.column_names)
