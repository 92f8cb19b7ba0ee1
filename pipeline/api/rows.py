"""The last rows of a game, landed or refused: few, newest first, no deeper than the reader may see.

The caller decides that before anything is read: no value leaves its table for people who may not see it.
"""

import time
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.api.environment import OpenEnvironment
from pipeline.api.payloads import MOST_RECORD, SHOWN_BYTES, Payload, decode, shape
from pipeline.base.errors import Refused, first_line
from pipeline.data.contracts.decoded import MAX_EXCERPT_FIELDS, MAX_EXCERPT_VALUE
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.repair.places import PLACES, landed
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.lake.delta import parquet
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.files import files_with, newest_files
from pipeline.lake.delta.newest import MOST_FILES, Newest, Query, newest_rows
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE, REASONS
from pipeline.store.database.engine import reading
from pipeline.store.games import Game, find, known_names

__all__ = [
    "MOST_ROWS",
    "REASONS",
    "Depth",
    "FoundRows",
    "LastRow",
    "LocalRegistry",
    "RowKind",
    "open_registry",
    "read",
]

RowKind = Literal["landed", "refused"]
Depth = Literal["values", "shapes", "places"]
"""What is shown of rows: all of it; names of fields without values; only where they are and why they were refused."""

MOST_ROWS: Final = 20

_FOREIGN: Final = ("seq", "pos", "game_key", "refused", "profile", "registry", "writer", "producer_id")
"""What bronze has of a row of a source with a profile."""


@dataclass(frozen=True, slots=True)
class LastRow:
    """One row of a game; texts may hold anything."""

    at: float | None  # Unix seconds: when it was first refused, or the source got it; None: not known
    seq: int
    pos: int
    schema_id: int | None
    reason: str | None  # why it was refused; None: it landed
    landed_since: bool | None  # a refused row is in the game's table now; None: nobody knows
    size: int | None  # bytes of the record; None: it has no value, or nobody knows
    detail: str | None  # of the reason, with values
    payload: Payload | None  # as deep as the viewer may see; None: nothing of it


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The last rows of a game, newest first, read at one moment (Unix seconds)."""

    rows: tuple[LastRow, ...]
    complete: bool  # False: older files may hold more and were not read
    files: int  # that were read
    read_at: float


def open_registry(environment: OpenEnvironment) -> LocalRegistry:
    """Return the registry for `read`, which reads only what was registered since; the caller may keep it."""
    return LocalRegistry(environment.engine, environment.paths.bronze)


@reading()
def read(
    environment: OpenEnvironment, registry: LocalRegistry, key: str, kind: RowKind, limit: int, depth: Depth
) -> FoundRows:
    """Read the last rows of a game.

    Raises:
        Refused: no such game is known, or its rows or the control store cannot be read.
    """
    game = find(key, known_names(environment.engine))
    label = "Quarantine" if kind == "refused" else f"The table of {game.key}"
    try:
        if kind == "refused":
            rows, newest = _read_refused(environment, registry, game, limit, depth)
        else:
            rows, newest = _read_landed(environment, game, limit, depth)
    except TableNotFoundError:
        return FoundRows((), complete=True, files=0, read_at=time.time())
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise Refused(f"{label} cannot be read: {first_line(error)}. Streams are not affected.") from error
    return FoundRows(rows, newest.complete, newest.files, time.time())


# --------------------------------------------------------------------------------------------------------------- landed


def _read_landed(
    environment: OpenEnvironment, game: Game, limit: int, depth: Depth
) -> tuple[tuple[LastRow, ...], Newest]:
    folder = environment.paths.table(game.key)
    table = open_table(folder)
    columns = pa.schema(table.schema().to_arrow())
    fields = [each.name for each in columns if each.name not in OWN_COLUMNS.names][:MAX_EXCERPT_FIELDS]
    with_values = depth == "values"
    values = [(f"field {place}", _text_of(name)) for place, name in enumerate(fields)] if with_values else []
    query = Query(
        "_seq", "_pos", [("schema_id", "_schema_id"), ("at", "epoch_us(_source_time)"), *values],
        empty=columns.empty_table(),
    )  # fmt: skip
    label = f"The table of {game.key}"
    newest = newest_rows(newest_files(table, folder, "_seq", label), query, limit, label)
    rows = []
    for row in newest.rows:
        held = [(name, row[f"field {place}"]) for place, name in enumerate(fields)] if with_values else []
        more = "more columns follow" if len(columns) > len(OWN_COLUMNS) + len(fields) else None
        shown = Payload(tuple((name, value) for name, value in held if value is not None), more, b"")
        payload = shown if with_values else None
        rows.append(
            LastRow(_seconds(row["at"]), row["seq"], row["pos"], row["schema_id"], None, None, None, None, payload)
        )
    return tuple(rows), newest


def _text_of(name: str) -> str:
    """Return the SQL of a column's value as a short text; the name is foreign."""
    quoted = name.replace('"', '""')
    return f'left(CAST(rows."{quoted}" AS VARCHAR), {MAX_EXCERPT_VALUE})'


# -------------------------------------------------------------------------------------------------------------- refused


def _read_refused(
    environment: OpenEnvironment, registry: LocalRegistry, game: Game, limit: int, depth: Depth
) -> tuple[tuple[LastRow, ...], Newest]:
    folder = environment.paths.quarantine
    table = open_table(folder)
    small = ["game_key", "reason", "schema_id"]
    columns = [(name, name) for name in small]
    columns += [("at", "epoch_us(quarantined_at)"), ("size", "octet_length(raw)")]
    if depth == "values":
        columns.append(("detail", "detail"))
    if depth != "places":
        # Of a larger record only the beginning: it is not opened.
        raw = f"CASE WHEN octet_length(raw) <= {MOST_RECORD} THEN raw ELSE raw[:{SHOWN_BYTES}] END"
        columns.append(("raw", raw))
    query = Query("seq", "pos", columns, "game = $game", {"game": game.name}, QUARANTINE.empty_table())
    files = newest_files(table, folder, "seq", "Quarantine", game.bronze_keys)
    newest = newest_rows(files, query, limit, "Quarantine")
    rows = [_as_set(list(copies)) for _, copies in groupby(newest.rows, lambda row: (row["seq"], row["pos"]))]
    payloads: list[Payload | None] = [None] * len(rows)
    if depth != "places":
        schema_set = registry.snapshot()
        payloads = [*decode(_with_profiles(environment, game, rows, bool(schema_set.profiles)), game.key, schema_set)]
    if depth == "shapes":
        payloads = [None if each is None else shape(each) for each in payloads]
    since = _landed_since(environment, game, rows)
    found = [
        LastRow(
            _seconds(row["at"]), row["seq"], row["pos"], row["schema_id"], row["reason"],
            None if since is None else (row["seq"], row["pos"]) in since,
            row["size"], row.get("detail"), payload,
        )
        for row, payload in zip(rows, payloads, strict=True)
    ]  # fmt: skip
    return tuple(found), newest


def _as_set(copies: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the one row of a place: the newest copy says why, the oldest since when (law L5)."""
    ordered = sorted(copies, key=lambda row: row["at"] or 0)
    return {**ordered[-1], "at": ordered[0]["at"]}


def _with_profiles(
    environment: OpenEnvironment, game: Game, rows: list[dict[str, Any]], needed: bool
) -> list[dict[str, Any]]:
    """Add what bronze has of rows of a source with a profile, without which their payloads cannot be opened."""
    if not needed or not rows:
        return rows
    table = open_table(environment.paths.bronze)
    seqs = pc.unique(pa.array([row["seq"] for row in rows]))
    files = files_with(table, environment.paths.bronze, "seq", seqs.to_numpy(), game.bronze_keys)[:MOST_FILES]
    if not files:
        return rows
    schema = pa.schema([BRONZE.field(name) for name in _FOREIGN])
    found = parquet.dataset(files, schema).to_table(filter=pc.field("seq").isin(seqs)).to_pylist()
    by_place = {(row["game_key"], row["seq"], row["pos"]): row for row in found}
    return [{**by_place.get((row["game_key"], row["seq"], row["pos"]), {}), **row} for row in rows]


def _landed_since(environment: OpenEnvironment, game: Game, rows: list[dict[str, Any]]) -> set[tuple[int, int]] | None:
    """Return the places of refused rows that are in the game's table by now; None where that takes too many files."""
    folder = environment.paths.table(game.key)
    wanted = pa.Table.from_pylist([{name: row[name] for name in PLACES.names} for row in rows], schema=PLACES)
    try:
        table = open_table(folder)
    except TableNotFoundError:
        return set()
    if len(files_with(table, folder, "_seq", pc.unique(wanted.column("seq")).to_numpy())) > MOST_FILES:
        return None
    found = landed(table, folder, wanted)
    return set(zip(found.column("seq").to_pylist(), found.column("pos").to_pylist(), strict=True))


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6
