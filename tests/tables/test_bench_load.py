"""The figures that a measurement reads from bronze, on a real table."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from bench.load import arrivals, landed
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.tree import load


def rows(seq: int, keys: list[str]) -> pa.Table:
    """Return rows of a landing file of the seq's name, one for each game."""
    given = {
        "game_key": keys,
        "seq": [seq] * len(keys),
        "topic": [f"{seq}.parquet"] * len(keys),
        "source_time": [datetime.fromtimestamp(100 + seq, UTC)] * len(keys),
    }
    columns = {field.name: pa.array(given.get(field.name, [None] * len(keys)), field.type) for field in BRONZE}
    return pa.table(columns, schema=BRONZE)


def test_a_commit_of_several_seqs_has_them_all_at_once(tmp_path: Path) -> None:
    """A large micro-batch is several seqs in one commit, and each was in bronze when that commit was."""
    _, paths = load(tmp_path, {})
    table = CursorTable.create(paths.bronze, BRONZE, "turnout/local/bronze")
    for version, seqs in enumerate(([1], [2, 3, 4]), 1):
        files = [write_file(rows(seq, ["chess", "go"]), paths.bronze, ["seq", "game_key"]) for seq in seqs]
        table.commit(files, table.cursor, seqs[-1])
        os.utime(paths.bronze / "_delta_log" / f"{version:020}.json", (200 + version, 200 + version))
    work = arrivals(Path(paths.bronze))
    assert (
        list(zip(work.seq.tolist(), work.bronze_at.tolist(), strict=True))
        == [(1, 201.0), (2, 202.0), (3, 202.0), (4, 202.0)] * 2
    )
    written, reached = landed(paths)
    assert sorted(zip(written.tolist(), reached.tolist(), strict=True)) == [
        (101.0, 201.0),
        (102.0, 202.0),
        (103.0, 202.0),
        (104.0, 202.0),
    ]
