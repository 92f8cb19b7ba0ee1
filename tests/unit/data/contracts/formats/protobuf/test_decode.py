import datetime as dt
import decimal
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.data.contracts.columns import merge
from pipeline.data.contracts.decoded import MAX_DETAIL, MAX_PAYLOAD_BYTES, malformed
from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.formats.protobuf.parsing import Parser
from pipeline.data.contracts.formats.supported import decoder
from pipeline.data.contracts.placing import pad
from pipeline.data.contracts.schemas import PLAIN, Schema
from pipeline.data.contracts.shape import table_schema
from tests.unit.data.contracts.definition_world import Fields
from tests.unit.data.contracts.formats.protobuf.event_world import (
    CORRUPT,
    DECODER,
    EVENTS,
    WHOLE,
    M,
    event_of,
    message_class,
    payloads,
    plain_accepts,
    schema,
)


def moment(at: Any) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(seconds=at.seconds, microseconds=at.nanos // 1000)


def sub_values(sub: Any) -> dict[str, Any]:
    return {
        "u": decimal.Decimal(sub.u),
        "us": list(sub.us),
        "at": moment(sub.at) if sub.HasField("at") else None,
        "gone": True if sub.HasField("gone") else None,
    }


def values(event: Any) -> dict[str, Any]:
    """Return what the plain parser says, in the table's types."""
    return {
        "u32": event.u32,
        "u64": decimal.Decimal(event.u64),
        "name": event.name,
        "blob": event.blob,
        "at": moment(event.at) if event.HasField("at") else None,
        "took": event.took.seconds * 1_000_000 + event.took.nanos // 1000 if event.HasField("took") else None,
        "kind": {0: "ZERO", 1: "ONE"}.get(event.kind, str(event.kind)),
        "sub": sub_values(event.sub) if event.HasField("sub") else None,
        "subs": [sub_values(each) for each in event.subs],
        "by_id": {decimal.Decimal(key): sub_values(each) for key, each in event.by_id.items()},
        "kinds": [{0: "ZERO", 1: "ONE"}.get(each, str(each)) for each in event.kinds],
        "ratio": event.ratio,
        "maybe": event.maybe if event.HasField("maybe") else None,
        "boxed": decimal.Decimal(event.boxed.value) if event.HasField("boxed") else None,
        "flags": list(event.flags),
        "nothing": True if event.HasField("nothing") else None,
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        row["by_id"] = dict(row["by_id"])
    return rows


@settings(max_examples=80, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=4))
def test_valid_payloads_decode_to_what_the_plain_parser_says(fields: list[dict[str, Any]]) -> None:
    """Every field of every kind keeps its value: unsigned numbers exact, absent ones null, unknown enum values told."""
    events = [event_of(each) for each in fields]
    contents = [event.SerializeToString() for event in events]
    decoded = DECODER.decode(payloads(*contents))
    assert decoded.rows.tolist() == list(range(len(contents)))
    assert rows_of(decoded.batch) == [values(event) for event in events]
    assert decoded.refused == []


@settings(max_examples=150, deadline=None)
@example(b"\x80\x80\x80\x80\x10\x00")  # a tag beyond 32 bits, which the Arrow parser alone takes
@given(CORRUPT)
@pytest.mark.proves("B1", "G52")
def test_corrupt_payloads_are_refused_exactly_when_the_plain_parser_does(content: bytes) -> None:
    """B1: corrupt bytes never become a row; bytes that the plain parser accepts do, unless times or types are wrong."""
    decoded = DECODER.decode(payloads(content))
    if decoded.refused:
        assert [(each.row, each.reason) for each in decoded.refused] == [(0, "malformed_payload")]
        assert not plain_accepts(content) or re.search("a time out of range|wire type", decoded.refused[0].detail)
    assert decoded.batch.num_rows + len(decoded.refused) == 1
    assert plain_accepts(content) or decoded.refused


@settings(max_examples=50, deadline=None)
@given(
    st.lists(CORRUPT | st.none() | st.just(b"") | EVENTS.map(lambda f: event_of(f).SerializeToString()), max_size=12)
)
@pytest.mark.proves("G71")
def test_neighbours_do_not_matter(contents: list[bytes | None]) -> None:
    """A payload decodes, or is refused with the same words, as it would alone; each row is in exactly one place."""
    together = DECODER.decode(payloads(*contents))
    assert sorted([*together.rows.tolist(), *(each.row for each in together.refused)]) == list(range(len(contents)))
    alone = [DECODER.decode(payloads(content)) for content in contents]
    refused = {row: each.refused[0][1:] for row, each in enumerate(alone) if each.refused}
    assert {each.row: each[1:] for each in together.refused} == refused
    good = [each.batch for each in alone if not each.refused]
    assert repr(together.batch.to_pylist()) == repr([row for batch in good for row in batch.to_pylist()])


def test_slices_are_read_from_their_own_start() -> None:
    """A slice of a larger array is decoded by its own indices."""
    contents = [M(u32=number).SerializeToString() for number in range(1, 7)]
    decoded = DECODER.decode(payloads(*contents[:3], b"\xff", None, *contents[3:]).slice(2, 4))
    assert decoded.batch.column("u32").to_pylist() == [3, 4]
    assert decoded.rows.tolist() == [0, 3]
    assert [(each.row, each.reason) for each in decoded.refused] == [(1, "malformed_payload"), (2, "empty_payload")]


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 253_402_300_800, -62_135_596_801])
@pytest.mark.parametrize("place", ["at", "sub", "subs", "by_id"])
def test_a_time_no_reader_could_show_is_refused(seconds: int, place: str) -> None:
    """A time outside the years 1 to 9999, at any depth, refuses its own row and no other."""
    bad, fine = M(u32=1), M(u32=2, at={"seconds": 1}, subs=[{"at": {"seconds": 1}}, {}])
    target = {
        "at": lambda: bad.at,
        "sub": lambda: bad.sub.at,
        "subs": lambda: bad.subs.add().at,
        "by_id": lambda: bad.by_id[7].at,
    }
    target[place]().seconds = seconds
    decoded = DECODER.decode(payloads(*(each.SerializeToString() for each in (fine, bad, fine))))
    assert decoded.rows.tolist() == [0, 2]
    assert decoded.refused == [malformed(1, f"a time out of range in {place}", place)]


def test_an_endless_duration_is_refused() -> None:
    """A duration that does not fit is refused, never clipped to the largest number."""
    decoded = DECODER.decode(
        payloads(M(took={"seconds": 2**62}).SerializeToString(), M(took={"seconds": 3}).SerializeToString())
    )
    assert decoded.batch.column("took").to_pylist() == [3_000_000]
    assert decoded.refused == [malformed(0, "a time out of range in took", "took")]


def test_bombs_are_refused_or_decoded_but_never_crash() -> None:
    """Size, nesting and a swarm of empty messages stay harmless."""
    swarm = b"\x4a\x00" * (MAX_PAYLOAD_BYTES // 2)
    contents = [
        swarm,
        swarm + b"\x4a\x00",
        b"\x83\x80\x01" * 300_000,
        b"\x42" * 1_000_000,
        M(u32=1).SerializeToString(),
    ]
    decoded = DECODER.decode(payloads(*contents))
    assert decoded.rows.tolist() == [0, 4]
    assert decoded.batch.column("subs").value_lengths().to_pylist() == [MAX_PAYLOAD_BYTES // 2, 0]
    assert [each.reason for each in decoded.refused] == ["malformed_payload"] * 3
    assert decoded.refused[0].detail.startswith("larger than 1048576 bytes")
    assert all(0 < len(each.detail) <= MAX_DETAIL and each.detail.isprintable() for each in decoded.refused)


class _Broken:
    """Stands for the Arrow parser and fails in a given way on payloads that hold a mark."""

    def __init__(self, real: Any, error: Callable[[], BaseException]) -> None:
        self.real, self.error = real, error

    def array_to_record_batch(self, array: pa.BinaryArray) -> pa.RecordBatch:
        if any(b"mark" in content for content in array.to_pylist()):
            raise self.error()
        return self.real.array_to_record_batch(array)


def _panicking(error: Callable[[], BaseException]) -> Decoder:
    broken = Decoder(WHOLE)
    broken._parser._handler = _Broken(broken._parser._handler, error)
    return broken


def test_a_panic_of_the_parser_refuses_only_its_row() -> None:
    """A panic, which is no Exception, is a failure to decode that row; the rows around it land."""
    panic = type("PanicException", (BaseException,), {})
    contents = [M(u32=1, name="mark" if number == 5 else "x").SerializeToString() for number in range(9)]
    decoded = _panicking(lambda: panic("assertion\nfailed " + "y" * 900)).decode(payloads(*contents))
    assert decoded.rows.tolist() == [0, 1, 2, 3, 4, 6, 7, 8]
    assert decoded.refused == [malformed(5, ("assertion failed " + "y" * 900)[:MAX_DETAIL])]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, TypeError])
def test_what_is_no_bad_payload_goes_through(error: type[BaseException]) -> None:
    """Stopping the process, or a fault of the code, is never booked as a bad row."""
    with pytest.raises(error):
        _panicking(error).decode(payloads(M(name="mark").SerializeToString()))


def test_a_stricter_arrow_parser_wins() -> None:
    """Where the two parsers disagree (an old-syntax text that is no UTF-8) the row is refused and the rest lands."""
    old = schema({"M": {"name": (1, "string")}}, syntax="proto2")
    decoded = Decoder(old).decode(payloads(b"\x0a\x01a", b"\x0a\x01\xff", b"\x0a\x01b"))
    assert decoded.rows.tolist() == [0, 2]
    assert [each.row for each in decoded.refused] == [1]


def test_nothing_good_still_has_columns() -> None:
    """A batch without a good row has the right columns and no rows."""
    for contents in ([], [None, None], [b"\xff", b"\xff"]):
        decoded = DECODER.decode(payloads(*contents))
        assert decoded.batch.num_rows == 0
        assert decoded.batch.schema == DECODER.arrow_schema
        assert decoded.rows.dtype == np.int64


def test_columns_are_what_delta_can_hold(tmp_path: Any) -> None:
    """The columns carry no unsigned number, duration, empty struct or required field, and Delta takes them."""
    decoded = DECODER.decode(payloads(M(u64=2**64 - 1, subs=[{"us": [2**32 - 1]}]).SerializeToString()))
    text = str(DECODER.arrow_schema)
    assert not [word for word in ("uint", "duration", "struct<>") if word in text]
    assert all(field.nullable for field in DECODER.arrow_schema)
    write_deltalake(tmp_path / "table", pa.Table.from_batches([decoded.batch]))


def test_one_decoder_per_schema_and_process() -> None:
    """Equal schemas, also after a trip through pickle, share one decoder."""
    assert decoder(schema()) is decoder(schema())
    assert decoder(schema()) is not decoder(schema(schema_id=2))


V1: dict[str, Fields] = {
    "M": {"a": (1, "uint32"), "sub": (5, "Sub"), "subs": (6, "repeated Sub"), "m": (7, "map<string, Sub>")}
}
V1["Sub"] = {"x": (2, "int32")}
V2: dict[str, Fields] = {
    "M": {**V1["M"], "b": (3, "string")},
    "Sub": {**V1["Sub"], "w": (1, "uint64"), "z": (9, "bool")},
}


def test_old_and_new_payloads_share_one_table() -> None:
    """The table is the union in order of registration, at every depth, and batches of each version fit it."""
    old, new = schema(V1, 1), schema(V2, 2)
    table = table_schema([(old, PLAIN), (new, PLAIN)])
    assert table.names == ["a", "sub", "subs", "m", "b"]
    assert [each.name for each in table.field("sub").type] == ["x", "w", "z"]
    one = message_class(old)(a=1, sub={"x": 2}, subs=[{"x": 3}])
    one.m["k"].x = 4
    two = message_class(new)(a=1, b="b", sub={"x": 2, "w": 5, "z": True}, subs=[{"w": 6}])
    two.m["k"].w = 7
    none = {"x": 0, "w": decimal.Decimal(0), "z": False}
    (first,) = pad(Decoder(old).decode(payloads(one.SerializeToString())).batch, table).to_pylist()
    (second,) = pad(Decoder(new).decode(payloads(two.SerializeToString())).batch, table).to_pylist()
    absent = {"w": None, "z": None}
    assert first == {
        "a": 1,
        "sub": {"x": 2, **absent},
        "subs": [{"x": 3, **absent}],
        "m": [("k", {"x": 4, **absent})],
        "b": None,
    }
    assert second["sub"] == {"x": 2, "w": decimal.Decimal(5), "z": True}
    assert second["subs"] == [{**none, "w": decimal.Decimal(6)}]
    assert second["m"] == [("k", {**none, "w": decimal.Decimal(7)})]


def test_the_union_is_stable() -> None:
    """Merging is idempotent, a version seen twice adds nothing, and a table only ever grows at its end."""
    first, second = (schema(V1, 1), PLAIN), (schema(V2, 2), PLAIN)
    one, two = table_schema([first]), table_schema([first, second])
    assert merge(two, two) == two
    assert merge(two, one) == two
    assert table_schema([first, second, first]) == two
    assert two.names[: len(one.names)] == one.names


def test_a_batch_that_fits_is_returned_as_it_is() -> None:
    """Padding costs nothing when nothing is missing."""
    batch = DECODER.decode(payloads(M(u32=1).SerializeToString())).batch
    assert pad(batch, DECODER.arrow_schema) is batch


def test_padding_never_drops_or_retypes() -> None:
    """A column, also a nested one, that the target lacks or types otherwise is an error, never a silent loss."""
    batch = pa.RecordBatch.from_pylist([{"s": {"x": 1, "y": 2}}])
    with pytest.raises(ValueError, match="lacks"):
        pad(batch, pa.schema([("s", pa.struct([("x", pa.int64())]))]))
    with pytest.raises(ValueError, match="lacks"):
        pad(batch, pa.schema([("t", pa.int64())]))
    with pytest.raises(Refused, match=r"s\.x"):
        pad(batch, pa.schema([("s", pa.struct([("x", pa.string()), ("y", pa.int64())]))]))


def test_a_message_that_cannot_become_columns_is_refused_with_its_name() -> None:
    """A parser that cannot be made says for which message, instead of panicking."""
    assert Parser(describe("t.M", WHOLE.definition)).schema.names[0] == "u32"
    with pytest.raises(Refused, match=r"t\.X"):
        Decoder(Schema(1, "protobuf", "t.X", WHOLE.definition))
