"""Small tables for the tests of maintenance, written as the hot path writes them."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.schema import Schema

from pipeline.base.names import bronze_app_id, game_key, stream_app_id
from pipeline.data.maintenance import run
from pipeline.data.maintenance.report import Round
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.rewrite import TableFile, table_files
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings

DAY = 86_400.0
LATER = 8 * DAY
"""After file retention, from now."""

WANTED = Maintenance(small_files=3, bronze_commits=4, bronze_age_minutes=0.0)
SETTINGS = Settings(environment="test", maintenance=WANTED)
GAMES = {str(game_key(name)): name for name in ("Chess", "Go", "Ludo")}
CHESS, GO, LUDO = GAMES
ROWS = pa.schema([("_seq", pa.int64()), ("_pos", pa.int32()), ("name", pa.string())])
APP = stream_app_id("test", game_key("Chess"), 1)


def file(path: str, size: int = 1, seqs: tuple[int, int] | None = None, modified_ms: int = 0) -> TableFile:
    low, high = ({}, {}) if seqs is None else ({"seq": seqs[0]}, {"seq": seqs[1]})
    return TableFile(path, size, None, modified_ms, {}, low, high)


def game_rows(*seqs: int, pos: int = 0) -> pa.Table:
    return pa.table({"_seq": list(seqs), "_pos": [pos] * len(seqs), "name": [f"r{seq}" for seq in seqs]}, schema=ROWS)


def game_table(path: Path, commits: int, *, plain: bool = True) -> CursorTable:
    """Return an open table of one game, one row and file per commit."""
    if not plain:
        DeltaTable.create(path, Schema.from_arrow(ROWS), configuration={"delta.enableChangeDataFeed": "true"})
    table = CursorTable.create(located(path), ROWS, APP, checkpoint_interval=1000)
    for seq in range(1, commits + 1):
        table.commit([write_file(game_rows(seq), located(path), ["_seq"])], seq - 1 or None, seq)
    return table


def bronze_rows(seq: int, prev: int, keys: tuple[str, ...] = (LUDO, CHESS, GO), each: int = 2) -> pa.Table:
    places = [(key, pos) for pos, key in enumerate(key for key in keys for _ in range(each))]
    now = int(time.time() * 1e6)
    given = {
        "game_key": [key for key, _ in places],
        "game": [GAMES[key] for key, _ in places],
        "seq": [seq] * len(places),
        "pos": [pos for _, pos in places],
        "prev_seq": [prev] * len(places),
        "ingest_time": [now] * len(places),
        "raw": [f"{key}/{seq}/{pos}".encode() for key, pos in places],
    }
    columns = [
        pa.array(given[name], pa.int64()).cast(field.type)
        if name == "ingest_time"
        else pa.array(given.get(name, [None] * len(places)), field.type)
        for name, field in zip(BRONZE.names, BRONZE, strict=True)
    ]
    return pa.table(columns, schema=BRONZE)


def bronze_table(path: Path, commits: int) -> CursorTable:
    """Return bronze with two files per commit: Ludo's rows in one, Chess's and Go's in the other."""
    table = CursorTable.create(located(path), BRONZE, bronze_app_id("test"), checkpoint_interval=1000)
    for seq in range(1, commits + 1):
        rows = [bronze_rows(seq, seq - 1, keys) for keys in ((LUDO,), (CHESS, GO))]
        files = [write_file(part, located(path), ["seq", "game_key"], "zstd") for part in rows]
        table.commit(files, seq - 1 or None, seq)
    return table


def quarantine_rows(*places: tuple[str, int, int, float]) -> pa.Table:
    rows = [
        {
            "game_key": key, "game": GAMES[key], "seq": seq, "pos": pos,
            "reason": "malformed_payload", "quarantined_at": int(at * 1e6), "raw": b"?",
        }
        for key, seq, pos, at in places
    ]  # fmt: skip
    columns = [
        pa.array([row.get(name) for row in rows], pa.int64()).cast(field.type)
        if name == "quarantined_at"
        else pa.array([row.get(name) for row in rows], field.type)
        for name, field in zip(QUARANTINE.names, QUARANTINE, strict=True)
    ]
    return pa.table(columns, schema=QUARANTINE)


def content(path: Path) -> list[dict[str, Any]]:
    rows = DeltaTable(path).to_pyarrow_table()
    keys = [name for name in ("game_key", "_seq", "seq", "_pos", "pos") if name in rows.column_names]
    return list((rows.sort_by([(name, "ascending") for name in keys]) if keys else rows).to_pylist())


def on_disk(path: Path) -> set[str]:
    return {found.name for found in Path(path).glob("*.parquet")}


def live(path: Path) -> set[str]:
    return {each.path for each in table_files(DeltaTable(path))}


def maintain(
    paths: Paths, *, after: float = 0.0, thorough: bool = True, settings: Settings = SETTINGS, said: run.Said = tuple
) -> Round:
    done = run.one_round(settings, paths, time.time() + after, thorough=thorough, readers_said=said)
    assert [report.error for report in done.tables if report.error] == []
    return done


def checkpoint_of(paths: Paths, table_id: Any, *, next_version: int, batches: int = 1) -> Path:
    query = paths.checkpoints / "demux" / "a" / "query"
    for name in ("offsets", "commits"):
        (query / name).mkdir(parents=True, exist_ok=True)
    for batch in range(batches):
        offset = {
            "sourceVersion": 1,
            "reservoirId": str(table_id),
            "reservoirVersion": next_version + batch,
            "index": -1,
        }
        (query / "offsets" / str(batch)).write_text("v1\n{}\n" + json.dumps(offset))
    (query / "commits" / "0").write_text("v1\n{}")
    return query


def full_world(paths: Paths) -> dict[str, list[dict[str, Any]]]:
    game_table(Path(paths.table(CHESS)), 5)
    game_table(Path(paths.table(GO)), 5)
    bronze_table(Path(paths.bronze), 6)
    table = CursorTable.create(paths.quarantine, QUARANTINE, "turnout/test/quarantine/a")
    for seq in range(4):
        table.append([write_file(quarantine_rows((LUDO, seq, 0, 1.0)), paths.quarantine, ["seq", "game_key"])])
    return contents(paths)


def contents(paths: Paths) -> dict[str, list[dict[str, Any]]]:
    places = (paths.bronze, paths.quarantine, paths.table(CHESS), paths.table(GO))
    return {path.name: content(Path(path)) for path in places}
