"""A micro-batch larger than a task may hold: it becomes several seqs, and a large task of a pass several files."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.names import MALFORMED, game_key
from pipeline.data.ingest.bronze_writer import IngestJob, SourceJob, land
from pipeline.data.maintenance.readers import Reader, passed_seq
from pipeline.data.streams.bronze_files import files_of
from pipeline.data.streams.stream import Link, connects, merged
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Onboarding
from tests.tables import repair_world
from tests.tables.ingest_world import batch_of, wrapper

NAMES = ("chess", "go", "poker", "unknown")
KEYS = {name: game_key(name) for name in NAMES[:3]}

HEADS: dict[str, int] = {KEYS["chess"]: 3, MALFORMED: 6}


def landed(folder: Path, batches: list[pa.RecordBatch], **job: Any) -> list[dict[str, Any]]:
    fields = {"seq": 7, "last_seqs": HEADS, "bronze_files": 2, "known": KEYS, **job}
    work = IngestJob(
        onboarding=Onboarding(), bronze=located(folder / "bronze"), quarantine=located(folder / "quarantine"), **fields
    )
    return [json.loads(row["report"][0].as_py()) for row in land(iter(batches), work)]


def read(folder: Path, reports: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return (file, row) of everything that would be committed to bronze."""
    return [
        (file["path"], row)
        for report in reports
        for file in report["files"]
        for row in pq.read_table(folder / "bronze" / file["path"]).to_pylist()
    ]


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 300)), max_size=8), max_size=5),
    slice_bytes=st.integers(1, 3_000),
)
@pytest.mark.proves("G20")
def test_slices_are_consecutive_seqs_with_an_unbroken_chain(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int]]], slice_bytes: int
) -> None:
    """Laws L1 and L2: each row is there once, pos counts within seq, the chain leads on, one file per game and seq."""
    folder = tmp_path_factory.mktemp("land")
    firsts = [sum(len(each) for each in batches[:at]) for at in range(len(batches))]
    reports = landed(
        folder,
        [batch_of(rows, first) for rows, first in zip(batches, firsts, strict=True)],
        slice_bytes=slice_bytes,
    )
    rows = read(folder, reports)
    sent = [wrapper(*row) for each in batches for row in each]
    assert [report["seq"] for report in reports] == list(range(7, 7 + len(reports)))
    assert [row["raw"] for _, row in sorted(rows, key=lambda each: each[1]["offset"])] == sent
    assert [row["offset"] for _, row in sorted(rows, key=lambda each: (each[1]["seq"], each[1]["pos"]))] == list(
        range(len(sent))
    )
    places: dict[int, list[int]] = defaultdict(list)
    files: dict[tuple[str, int], set[str]] = defaultdict(set)
    links: dict[str, list[Link]] = defaultdict(list)
    for file, row in rows:
        places[row["seq"]].append(row["pos"])
        files[row["game_key"], row["seq"]].add(file)
        links[row["game_key"]].append(Link(row["seq"], row["prev_seq"]))
    assert all(sorted(each) == list(range(len(each))) for each in places.values())
    assert all(len(each) == 1 for each in files.values())
    for key, each in links.items():
        assert merged(each)[0].prev_seq == HEADS.get(key, 0)
        assert connects(6, merged(each))
    refused = [
        (row["seq"], row["pos"])
        for report in reports
        if report["quarantine"]
        for row in pq.read_table(folder / "quarantine" / report["quarantine"]["path"]).to_pylist()
    ]
    assert sorted(refused) == sorted((row["seq"], row["pos"]) for _, row in rows if row["refused"])


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=20),
    batch_rows=st.integers(1, 6),
    slice_bytes=st.integers(1, 1_500),
)
def test_rows_of_a_landing_file_are_counted_over_slices(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], batch_rows: int, slice_bytes: int
) -> None:
    """Law L1: a row's number in its landing file is the same however the micro-batch is cut."""
    folder = tmp_path_factory.mktemp("land")
    events = [("chess", at) for at in range(len(rows))]
    batches = [
        batch_of(events[at : at + batch_rows], 0, rows[at : at + batch_rows]) for at in range(0, len(rows), batch_rows)
    ]
    times = {"a": 3_000_000, "b": 1_000_000, "c": 2_000_000}
    reports = landed(folder, batches, sources=(SourceJob(landing_times=times),), slice_bytes=slice_bytes)
    seen: Counter[str] = Counter()
    expected = {}
    for (_, size), name in zip(events, rows, strict=True):
        expected[wrapper("chess", size)] = (name, seen[name])
        seen[name] += 1
    assert expected == {row["raw"]: (row["topic"], row["offset"]) for _, row in read(folder, reports)}


def test_a_batch_that_fits_is_one_seq(tmp_path: Path) -> None:
    """The common case is as it was: one micro-batch, one seq, at most `ingest.bronze_files` files."""
    (report,) = landed(tmp_path, [batch_of([("chess", 9), ("go", 9)], 0), batch_of([("poker", 9)], 2)])
    assert (report["seq"], report["rows"]) == (7, 3)
    assert len(report["files"]) <= 2


@pytest.fixture
def world(tmp_path: Path) -> repair_world.World:
    return repair_world.make_world(tmp_path)


@pytest.mark.proves("G20")
def test_a_task_with_many_rows_splits_them_slice_by_slice(world: repair_world.World) -> None:
    """Laws L4 and L5: the slices of a task together report the rows, links and refusals of the task as a whole."""
    world.register()
    for number in range(4):
        events = [repair_world.good(10 * number + at) for at in range(5)]
        world.ingest(*events, repair_world.broken())
    key = repair_world.CHESS.key
    rows = pa.table(CursorTable.open(world.paths.bronze, "any")._table.to_pyarrow_table(columns=list(READ)))  # type: ignore[union-attr]
    rows = rows.cast(pa.schema([BRONZE.field(name) for name in READ]))
    outcomes = []
    for slice_bytes in (1, 500, 10_000_000):
        job = SplitJob({key: 1}, world.registry.snapshot(), world.paths.tables, slice_bytes=slice_bytes)
        done = list(split(iter(rows.to_batches()), job))
        reports = [json.loads(each.column("report")[0].as_py()) for each in done]
        games = [report["games"][key] for report in reports if key in report["games"]]
        rejects = pa.concat_tables([pa.ipc.open_stream(each.column("rejects")[0].as_py()).read_all() for each in done])
        landed = [
            (row["_seq"], row["_pos"])
            for game in games
            for file in game["files"]
            for row in pq.read_table(world.paths.tables / key / file["path"]).to_pylist()
        ]
        outcomes.append(
            (
                sorted(landed),
                merged([Link(*link) for game in games for link in game["links"]]),
                sorted(zip(rejects["seq"].to_pylist(), rejects["pos"].to_pylist(), strict=True)),
                max(report["seq_to"] for report in reports),
            )
        )
        assert (len(done) == 1) == (slice_bytes == 10_000_000)
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert len(outcomes[0][0]) == 15


def test_readers_of_a_commit_of_several_seqs_lose_nothing(tmp_path: Path) -> None:
    """Laws L2 and L7: catch-up finds each seq of such a commit; maintenance leaves all of it to its readers."""
    bronze = CursorTable.create(located(tmp_path / "bronze"), BRONZE, "app")
    written = {}
    for before, seqs in ((0, [1]), (1, [2, 3, 4]), (4, [5])):
        files = []
        for seq in seqs:
            row = {"game_key": KEYS["chess"], "seq": seq, "pos": 0, "prev_seq": seq - 1}
            files.append(write_file(pa.Table.from_pylist([row], schema=BRONZE), bronze.path, ["seq", "game_key"]))
            written[seq] = str(bronze.path / files[-1].path)
        bronze.commit(files, before or None, seqs[-1])
    for low in range(6):
        for high in range(low + 1, 6):
            found = files_of(bronze.path, bronze.version, "app", low, high, [KEYS["chess"]])
            assert {written[seq] for seq in range(low + 1, high + 1)} == set(found)
    assert [passed_seq(bronze.path, "app", bronze.version, Reader("r", at, 0.0)) for at in (1, 2, 3)] == [0, 1, 4]


def test_no_headers_are_null_in_bronze(tmp_path: Path) -> None:
    """Law L1: an empty list, which a source hands over as a null costs too much there, is a record without headers."""
    batch = batch_of([("chess", 9)] * 4, 0)
    one = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    headers = pa.array([[], one, None, []], batch.schema.field("headers").type)
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", headers)
    rows = read(tmp_path, landed(tmp_path, [batch]))
    assert [None, one, None, None] == [row["headers"] for _, row in rows]
