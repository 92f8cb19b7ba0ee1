"""The optional column of headers in a landing table: routed by and framed with, as a topic's headers are."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.ingest.bronze_writer import IngestJob, SourceJob, land
from pipeline.data.ingest.profiled import NumberedProfile
from pipeline.data.ingest.sources.landing import Landing
from pipeline.data.ingest.sources.landing_files import names_in_files, read_files
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source
from pipeline.settings.tree import Onboarding

GUID = b"\x01" + bytes(range(16))
PAIRS: list[list[tuple[str, bytes | None]] | None] = [
    [("game", b"Chess"), ("__value_schema_id", GUID), ("game", b"go")], None, [], [("game", None)],
]  # fmt: skip
AS_LIST = BRONZE.field("headers").type
AS_MAP = pa.map_(pa.string(), pa.binary())
BY_HEADER = Source(envelope="none", routing="header:game", framing="confluent", registry="main")


def landing_table(folder: Path, kind: pa.DataType) -> None:
    """Write a table with a row for each of `PAIRS`, in two files with other sizes of row groups."""
    given: list[Any] = [
        each and [{"key": name, "value": value} for name, value in each] if kind == AS_LIST else each for each in PAIRS
    ]
    for rows in (given[:1], given[1:]):
        columns = {"key": pa.nulls(len(rows), pa.binary()), "value": [b"{}"] * len(rows)}
        table = pa.table({**columns, "headers": pa.array(rows, kind)}, schema=LANDING.append(pa.field("headers", kind)))
        write_deltalake(folder, table, mode="append")


def read(folder: Path) -> list[pa.RecordBatch]:
    table = DeltaTable(folder)
    paths = sorted(pa.table(table.get_add_actions()).column("path").to_pylist())
    files = pa.record_batch({"topic": pa.array(paths, pa.string())})
    return list(read_files(iter([files]), located(folder), names_in_files(table), frozenset()))


@pytest.mark.parametrize("kind", [AS_MAP, AS_LIST], ids=["map", "list"])
def test_headers_of_a_landing_table_come_as_a_topics(tmp_path: Path, kind: pa.DataType) -> None:
    """Law L1: a map and a list give the same headers, in their order, duplicates and nulls included."""
    landing_table(tmp_path, kind)
    Landing(BY_HEADER, located(tmp_path)).check()
    batches = read(tmp_path)
    assert all(batch["headers"].type == AS_LIST for batch in batches)
    found = [
        each and [(one["key"], one["value"]) for one in each]
        for batch in batches
        for each in batch["headers"].to_pylist()
    ]
    assert sorted(map(str, PAIRS)) == sorted(map(str, found))
    sampled = Landing(BY_HEADER, located(tmp_path)).sample(10)
    assert sorted(len(record.headers) for record in sampled) == [0, 0, 1, 3]


def test_a_landing_row_is_routed_and_framed_by_its_headers(tmp_path: Path) -> None:
    """Law L13: the first header of a name counts, and a GUID in a header is the row's writer."""
    landing_table(tmp_path, AS_MAP)
    profile = SourceProfile(envelope="none", routing="header:game", framing="confluent", registry="main")
    job = IngestJob(
        seq=1, last_seqs={}, known={"Chess": game_key("Chess")}, onboarding=Onboarding(),
        bronze=located(tmp_path / "bronze"), quarantine=located(tmp_path / "quarantine"), bronze_files=1,
        sources=(SourceJob(NumberedProfile(1, profile), {}, located(tmp_path)),),
    )  # fmt: skip
    (report,) = [json.loads(row["report"][0].as_py()) for row in land(iter(read(tmp_path)), job)]
    rows = [row for file in report["files"] for row in pq.read_table(tmp_path / "bronze" / file["path"]).to_pylist()]
    (landed,) = [row for row in rows if row["refused"] is None]
    assert (landed["game"], landed["writer"]) == ("Chess", GUID)
    assert [each["key"] for each in landed["headers"]] == ["game", "__value_schema_id", "game"]
    assert {row["refused"] for row in rows} == {None, "invalid_name"}
    assert len(rows) == len(PAIRS)


def test_fields_of_headers_may_have_other_names_in_files(tmp_path: Path) -> None:
    """Tables with mapped columns name fields of a list in their files by other names."""
    kind = pa.list_(pa.struct([("col-4", pa.binary()), ("col-3", pa.string())]))
    rows = pa.array([[{"col-3": "game", "col-4": b"Chess"}], None], kind)
    pq.write_table(pa.table({"col-1": [b"v", b"w"], "col-2": rows}), tmp_path / "a.parquet")
    names = {"key": "key", "value": "col-1", "headers": "col-2", "headers.key": "col-3", "headers.value": "col-4"}
    batch = pa.record_batch({"topic": ["a.parquet"]})
    (found,) = read_files(iter([batch]), located(tmp_path), names, frozenset())
    assert found["headers"].to_pylist() == [[{"key": "game", "value": b"Chess"}], None]


def test_names_of_headers_are_text_in_bronze_whatever_a_file_claims(tmp_path: Path) -> None:
    """A file may claim that any bytes are text: bronze gets text that every reader decodes."""
    broken = pa.array([b"g\xff"], pa.binary()).view(pa.string())
    given = pa.MapArray.from_arrays([0, 1], broken, pa.array([b"Chess"], pa.binary()))
    pq.write_table(pa.table({"value": [b"v"], "headers": given}), tmp_path / "a.parquet")
    batch = pa.record_batch({"topic": ["a.parquet"]})
    names = {name: name for name in ("key", "value", "headers")}
    (found,) = read_files(iter([batch]), located(tmp_path), names, frozenset())
    assert found["headers"].to_pylist() == [[{"key": "g�", "value": b"Chess"}]]


@pytest.mark.parametrize("kind", [pa.string(), pa.map_(pa.string(), pa.string()), None])
def test_other_headers_are_refused_before_a_row_is_read(tmp_path: Path, kind: pa.DataType | None) -> None:
    """A column of another type, and none where the profile routes by a header, is named with what is expected."""
    schema = LANDING if kind is None else LANDING.append(pa.field("headers", kind))
    write_deltalake(tmp_path, schema.empty_table())
    with pytest.raises(Refused, match=r"wrong columns: expected key binary, value binary, headers map<string, binary>"):
        Landing(BY_HEADER, located(tmp_path)).check()
    if kind is None:
        Landing(replace(BY_HEADER, routing="key"), located(tmp_path)).check()


def test_a_landing_table_that_ingest_makes_has_the_column_that_the_profile_needs(tmp_path: Path) -> None:
    """Where ingest creates the table, its own check accepts it."""
    for source in (BY_HEADER, Source()):
        landing = Landing(source, located(tmp_path / source.framing))
        landing.check()
        landing.check()
    assert [field.name for field in DeltaTable(tmp_path / "wrapper").schema().fields] == LANDING.names
