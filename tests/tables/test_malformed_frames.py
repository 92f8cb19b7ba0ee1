"""Damaged frames around damaged payloads, through ingest's task and a pass's: each lands or is refused, as it came."""

import json
from collections import Counter
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aws_schema_registry import codec
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import SerializationError
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.schemas import SchemaSet, Writer
from pipeline.data.ingest.profiled import NumberedProfile
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.data.verify.opening import Sources, Unopened, contents
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located
from tests.tables.profiled_world import CHESS, PROFILE, Record, landed
from tests.unit.data.contracts.formats.malformed_world import (
    GUID,
    ID,
    PATHS,
    UUID,
    WORLDS,
    World,
    comparable,
    framed,
    mutant,
)

ROWS = 50  # of one schema
Outcome = tuple[str | None, Any]
"""The reason for which a row is refused, or its values."""


class Answers(dict[tuple[str, bytes], Writer]):
    """A registry's answers: it has none of the ids that it is not known for."""

    def get(self, key: tuple[str, bytes], default: Any = None) -> Any:
        return super().get(key, Writer(refused="absent"))


def answers(framing: str, name: str) -> Answers:
    ids = [UUID] if framing == "glue" else [ID, GUID]
    if framing == "confluent" and name == "protobuf":
        first = {("main", each + b"\0"): Writer(1) for each in ids}
        return Answers({("main", each): Writer(indexed=True) for each in ids} | first)
    return Answers({("main", each): Writer(1) for each in ids})


def client_reads(framing: str, value: bytes) -> bool:
    """Return whether the framing's own client finds a writer in front of a value."""
    try:
        if framing == "glue":
            codec.decode(value[:1] + value[1:2].replace(b"\5", b"\0") + value[2:])  # ingest inflates nothing
        else:
            SchemaId("AVRO").from_bytes(_Whole(value))
    except (ValueError, codec.CodecException, SerializationError):
        return False
    return True


class _Whole(BytesIO):
    """Bytes of which a client gets as many as it asks for: it would take the half of a GUID or id for a whole one."""

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if len(found) != size:
            raise ValueError(size)
        return found


def expected(row: dict[str, Any], world: World, sources: Sources, framing: str) -> Outcome:
    """Return what becomes of a row of bronze, by the code of the value check and the framing's client."""
    if not client_reads(framing, row["raw"]):
        wrong = row["raw"][:1] != b"\3" or len(row["raw"]) < 18 or framing == "confluent"
        return "malformed_framing" if wrong else "bad_compression", None
    try:
        held = contents(row["raw"], row["profile"], row["registry"], row["writer"], sources)
    except Unopened as error:
        return error.reason, None
    table, refused = format_of(world.schema.format).reference(world.schema, {}).decode([held.payload])
    return (refused[0].reason, None) if refused else (None, comparable(table.to_pylist()[0]))


def outcomes(rows: list[dict[str, Any]], world: World, job: SplitJob) -> list[Outcome]:
    """Return what ingest and a pass make of rows of bronze; demand that each is in one place, as it came."""
    found: list[list[Outcome]] = [[(row["refused"], None)] if row["refused"] else [] for row in rows]
    schema = pa.schema([BRONZE.field(name) for name in READ])
    table = pa.Table.from_pylist([{name: row[name] for name in READ} for row in rows], schema)
    for done in split(iter(table.to_batches()), job):
        report = json.loads(done.column("report")[0].as_py())["games"].get(CHESS, {"files": [], "error": None})
        assert report["error"] is None
        assert not report.get("needs")
        for row in pa.ipc.open_stream(done.column("rejects")[0].as_py()).read_all().to_pylist():
            assert row["raw"] == rows[row["pos"]]["raw"]
            found[row["pos"]].append((row["reason"], None))
        for file in report["files"]:
            for row in pq.read_table(job.tables / CHESS / file["path"]).to_pylist():
                own = {name: value for name, value in row.items() if name not in OWN_COLUMNS.names}
                found[row["_pos"]].append((None, comparable(own)))
    assert {1} == {len(each) for each in found}
    return [each[0] for each in found]


def attack(folder: Path, framing: str, name: str, inputs: int, *, same: bool) -> Counter[str | None]:
    """Send `inputs` records through both tasks and return how many had each outcome."""
    reasons: Counter[str | None] = Counter()
    profile = SourceProfile("none", "key", framing, "main")
    known = answers(framing, name)

    @given(st.integers(0, 2**32))
    @settings(max_examples=inputs // ROWS, deadline=None, derandomize=same, database=None, phases=[Phase.generate])
    def tries(seed: int) -> None:
        world, draw = WORLDS[name](seed), Random(seed)
        records: list[Record] = []
        for _ in range(ROWS):
            payload = world.whole() if draw.random() < 0.7 else mutant(world, draw).content
            payload = payload if draw.random() < 0.93 else b""
            path = draw.choice(PATHS) if (framing, name) == ("confluent", "protobuf") else b""
            records.append((framed(framing, path + payload, draw), b"Chess", []))
        here = folder / str(seed)
        here.mkdir(exist_ok=True)
        rows = sorted(landed(here, records, NumberedProfile(PROFILE, profile))[1], key=lambda row: int(row["pos"]))
        assert Counter(row["raw"] for row in rows) == Counter(value for value, *_ in records)
        of_game = SchemaSet(1, {CHESS: (1,)}, {1: world.schema}, writers=known, profiles={PROFILE: profile})
        found = outcomes(rows, world, SplitJob({CHESS: 0}, of_game, located(here)))
        sources = Sources(known, of_game.profiles)
        for row, outcome in zip(rows, found, strict=True):
            assert repr(expected(row, world, sources, framing)) == repr(outcome), row
        reasons.update(reason for reason, _ in found)

    tries()
    return reasons


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(
    ("framing", "kinds"),
    [
        ("confluent", {"malformed_framing", "unknown_schema", "malformed_payload", None}),
        ("glue", {"malformed_framing", "bad_compression", "malformed_payload", "unknown_schema", None}),
    ],
)
@pytest.mark.proves("B21")
def test_damaged_frames_are_refused_as_they_came(tmp_path: Path, framing: str, kinds: set[str], name: str) -> None:
    """Laws L1, L4, L5: each of 250 records lands or is refused, once, as the framing's client and the oracle say."""
    reasons = attack(tmp_path, framing, name, 250, same=True)
    assert kinds <= set(reasons)
    assert reasons.total() == 250


@pytest.mark.long
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("framing", ["confluent", "glue"])
def test_many_damaged_frames_are_refused_as_they_came(tmp_path: Path, framing: str, name: str) -> None:
    """The same of 5,000, others in each run."""
    assert attack(tmp_path, framing, name, 5_000, same=False).total() == 5_000
