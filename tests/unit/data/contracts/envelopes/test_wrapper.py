import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.base.names import is_game_name
from pipeline.data.contracts.envelopes.envelope import COLUMNS
from pipeline.data.contracts.envelopes.wrapper import open_wrappers
from protos.turnout.v1.wrapper_pb2 import Wrapper


def raw(*contents: bytes | None) -> pa.BinaryArray:
    return pa.array(list(contents), pa.binary())


def opened(**fields: Any) -> dict[str, Any]:
    """Return the one row of a wrapper that must be fine."""
    result = open_wrappers(raw(Wrapper(**fields).SerializeToString()))
    assert result.refused.to_pylist() == [None]
    (row,) = result.batch.to_pylist()
    return dict(row)


def test_every_field_arrives() -> None:
    """Ingest reads a producer's wrapper unchanged, the payload byte for byte."""
    moment = dt.datetime(2026, 5, 1, 12, 0, 0, 123_456, tzinfo=dt.UTC)
    row = opened(
        game="Шах\u202e",
        schema_id=2**32 - 1,
        payload=b"\xff\0",
        event_time=moment,
        event_id="e",
        producer_id="p",
        sequence=7,
    )
    assert row == {
        "game": "Шах\u202e",
        "schema_id": 2**32 - 1,
        "payload": b"\xff\0",
        "event_time": moment,
        "event_id": "e",
        "producer_id": "p",
        "sequence": 7,
        "type": None,
    }


def test_what_was_left_out_is_null() -> None:
    """An absent time, id or sequence is unknown, not empty or 0; an absent payload is no bytes."""
    row = opened(game="g", schema_id=1)
    assert row == dict.fromkeys(COLUMNS.names) | {"game": "g", "schema_id": 1, "payload": b""}


@pytest.mark.parametrize(("sequence", "expected"), [(1, 1), (2**63 - 1, 2**63 - 1), (2**63, None), (2**64 - 1, None)])
def test_a_sequence_fits_or_is_null(sequence: int, expected: int | None) -> None:
    """A sequence beyond the column is unknown, never wrapped into another number."""
    assert opened(game="g", schema_id=1, sequence=sequence)["sequence"] == expected


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 253_402_300_800, -62_135_596_801])
def test_a_time_no_reader_could_show_is_null(seconds: int) -> None:
    """A producer's broken clock costs the event its time, not its place."""
    assert opened(game="g", schema_id=1, event_time={"seconds": seconds})["event_time"] is None


def test_refused_wrappers_keep_their_place() -> None:
    """There is one row out for each row in; a refused one is null and says why, its neighbours are untouched."""
    fine = Wrapper(game="g", schema_id=1).SerializeToString()
    nameless, zero, long = (Wrapper(game=game, schema_id=1).SerializeToString() for game in ("", "a\0", "x" * 257))
    result = open_wrappers(raw(fine, None, b"", b"\xff", nameless, fine, zero, long, fine))
    malformed, invalid = "malformed_wrapper", "invalid_name"
    assert result.refused.to_pylist() == [
        None, "tombstone", malformed, malformed, invalid, None, invalid, invalid, None,
    ]  # fmt: skip
    assert result.batch.column("game").to_pylist() == ["g", None, None, None, None, "g", None, None, "g"]
    assert result.batch.schema == COLUMNS
    assert [detail is None for detail in result.detail.to_pylist()] == [
        reason is None for reason in result.refused.to_pylist()
    ]
    empty = [row for row in result.batch.to_pylist() if row["game"] is None]
    assert empty == [dict.fromkeys(COLUMNS.names)] * 6


def test_slices_and_nothing_are_fine() -> None:
    """A slice is read by its own indices, and no wrappers give no rows of the right columns."""
    contents = raw(*(Wrapper(game=name).SerializeToString() for name in "abc"))
    assert open_wrappers(contents.slice(1)).batch.column("game").to_pylist() == ["b", "c"]
    nothing = open_wrappers(raw())
    assert (len(nothing.refused), nothing.batch.schema, nothing.batch.num_rows) == (0, COLUMNS, 0)
    assert open_wrappers(raw(None)).refused.to_pylist() == ["tombstone"]


def test_a_nesting_bomb_is_refused() -> None:
    """A wrapper of nested unknown groups, which would end the process, is one more malformed row."""
    fine = Wrapper(game="g", schema_id=1).SerializeToString()
    bomb = b"\x83\x80\x01" * 300_000 + b"\x84\x80\x01" * 300_000
    assert open_wrappers(raw(fine, bomb, fine)).refused.to_pylist() == [None, "malformed_wrapper", None]


WRAPPERS = st.builds(
    Wrapper,
    game=st.text(max_size=4),
    schema_id=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=4),
    event_id=st.text(max_size=2),
    sequence=st.integers(0, 2**64 - 1),
).map(lambda wrapper: wrapper.SerializeToString())


@settings(max_examples=80, deadline=None)
@example([b"\x80\x80\x80\x80\x10\x00"])  # a tag beyond 32 bits
@given(st.lists(WRAPPERS | st.binary(max_size=12), max_size=8))
def test_opened_is_what_the_plain_parser_says(contents: list[bytes]) -> None:
    """A good wrapper has the plain parser's values; a wrapper that this parser refuses is never good."""
    result = open_wrappers(raw(*contents))
    assert result.batch.num_rows == len(result.refused) == len(contents)
    for content, reason, row in zip(contents, result.refused.to_pylist(), result.batch.to_pylist(), strict=True):
        try:
            plain = Wrapper.FromString(content)
        except DecodeError:
            assert reason == "malformed_wrapper"
            continue
        if reason is None:
            assert (row["game"], row["schema_id"], row["payload"]) == (plain.game, plain.schema_id, plain.payload)
            assert (row["event_id"] or "", row["producer_id"] or "") == (plain.event_id, plain.producer_id)
            assert (row["sequence"] or 0) == (plain.sequence if plain.sequence < 2**63 else 0)
        else:
            assert (reason, content) == ("malformed_wrapper", b"") or not is_game_name(plain.game)


def part(content: bytes) -> bytes:
    """Return one occurrence of a wrapper's `event_time` as it is on the wire."""
    return b"\x22" + bytes([len(content)]) + content


SECONDS = st.sampled_from([b"", b"\x08\x00", b"\x08\x05", b"\x08\x80\x94\xeb\xdc\x03", b"\x08" + b"\xff" * 9 + b"\x01"])
NANOS = st.sampled_from([b"", b"\x10\x00", b"\x10\xe8\x07", b"\x10\xff\x93\xeb\xdc\x03"])
PARTS = st.lists(
    st.builds(lambda seconds, nanos, end: part(seconds + nanos + end), SECONDS, NANOS, SECONDS), max_size=4
)


@given(st.lists(PARTS, max_size=6), st.booleans())
@example([[part(b"\x08\x05"), part(b"\x10\xe8\x07")]], True)
@example([[part(b"\x08\x05")], [], [part(b"\x08\x05"), part(b"")]], True)
@settings(deadline=None, max_examples=200)
def test_a_time_that_comes_in_parts_is_put_together(wrappers: list[list[bytes]], known_good: bool) -> None:
    """Law L5: the parts of one `event_time` are merged by protobuf's rule, and the rows beside it have their own."""
    contents = [b"\x0a\x01g" + b"\x32\x01e".join(parts) for parts in wrappers]
    result = open_wrappers(pa.concat_arrays([raw(b"left out"), raw(*contents)])[1:], known_good=known_good)
    assert result.refused.null_count == len(contents)
    plain = [Wrapper.FromString(content) for content in contents]
    assert result.batch.column("event_time").cast(pa.int64()).to_pylist() == [
        each.event_time.seconds * 1_000_000 + each.event_time.nanos // 1000 if each.HasField("event_time") else None
        for each in plain
    ]
    assert result.batch.column("event_id").to_pylist() == [each.event_id or None for each in plain]
