"""The contract of framings: who wrote a payload, and what is left without the framing. Law L5 for rows of any bytes."""

import struct
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.envelopes import framing
from pipeline.data.contracts.envelopes.framing import FRAMINGS, Given
from pipeline.data.contracts.envelopes.index_paths import index_path, path_bytes
from pipeline.lake.delta.quarantine import REASONS

GUID = uuid.UUID("a51160f3-fa4f-4dbb-9215-d1c183ad4a57")
HEADER = "__value_schema_id"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Header = tuple[str, bytes | None]
Outcome = tuple[bytes | None, str | None, bytes | None, str | None]


def binary(values: Sequence[bytes | None]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def beside(
    count: int, *, headers: list[list[Header] | None] | None = None, ids: list[int | None] | None = None
) -> Given:
    pairs = (
        None
        if headers is None
        else [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers]
    )
    return Given(
        topic=pa.array(["räce"] * count, pa.string()),
        game=pa.array([f"game {number % 2}" for number in range(count)], pa.string()),
        schema_id=pa.array(ids or [7] * count, pa.int64()),
        headers=None if headers is None else pa.array(pairs, HEADERS),
        id_headers=(HEADER, "second"),
    )


def through(name: str, values: list[bytes | None], given: Given | None = None) -> list[Outcome]:
    """Return writer, ingest's reason, body and split's reason of each value; and that both say everything once."""
    given = given or beside(len(values))
    read = FRAMINGS[name].read(binary(values), given)
    assert [len(each) for each in (read.writers, read.refused, read.detail)] == [len(values)] * 3
    assert (read.writers.type, read.refused.type) == (pa.binary(), pa.string())
    writers, reasons, details = (each.to_pylist() for each in (read.writers, read.refused, read.detail))
    assert [writer is None for writer in writers] == [reason is not None for reason in reasons]
    assert [detail is None for detail in details] == [reason is None for reason in reasons]
    bodies: list[bytes | None] = []
    refused: dict[int, str] = {}
    for run in FRAMINGS[name].bodies(binary(values), read.writers):
        assert (run.start, run.bodies.type) == (len(bodies), pa.binary())
        bodies += run.bodies.to_pylist()
        refused |= {each.row: each.reason for each in run.refusals}
    assert len(bodies) == len(values)
    assert {*reasons, *refused.values()} - {None} <= set(REASONS)
    return [(writers[row], reasons[row], bodies[row], refused.get(row)) for row in range(len(values))]


def fine(writer: bytes, body: bytes | None) -> Outcome:
    return writer, None, body, None


# ----------------------------------------------------------------------------------------------------- every framing

FRAMED = [
    b"\0\0\0\0\1\6", b"\1" + GUID.bytes + b"\6", b"\3\0" + GUID.bytes + b"\6",
    b"\3\5" + GUID.bytes + zlib.compress(b"a"),
    b"\3\5" + GUID.bytes, b"\3\7" + GUID.bytes, b"\0\0\0\0", b"\1", b"{}", b"\xff" * 40, b"", None,
]  # fmt: skip
VALUES = st.sampled_from(FRAMED) | st.binary(max_size=24)


@pytest.mark.parametrize("name", FRAMINGS)
@given(st.lists(VALUES, max_size=6))
@example([None])
@settings(max_examples=60, deadline=None)
def test_neighbours_do_not_matter(name: str, values: list[bytes | None]) -> None:
    """Law L5: what becomes of a row depends on the row alone, and no bytes raise an error."""
    alone = [through(name, [value])[0] for value in values]
    given = beside(len(values))
    expected = [
        (given.game[row].as_py().encode() if name == "game" else each[0], *each[1:]) for row, each in enumerate(alone)
    ]
    assert through(name, values, given) == expected


@pytest.mark.parametrize("name", FRAMINGS)
def test_slices_are_read_by_their_own_places(name: str) -> None:
    """A slice of an array gives what its values give, whatever stands before it in the same memory."""
    whole = FRAMINGS[name].read(binary(FRAMED), beside(len(FRAMED))).writers.to_pylist()
    values = binary(FRAMED)[2:]
    read = FRAMINGS[name].read(values, beside(len(FRAMED) - 2))
    assert read.writers.to_pylist() == whole[2:]
    (run,) = FRAMINGS[name].bodies(values, read.writers)
    (again,) = FRAMINGS[name].bodies(binary(FRAMED[2:]), read.writers)
    assert (run.bodies, run.refusals) == (again.bodies, again.refusals)
    assert list(FRAMINGS[name].read(binary([]), beside(0)).writers) == []


def test_an_event_type_is_a_writer() -> None:
    """The envelope's event type stands in bronze; a profile that has no path for it has no bytes there."""
    types = pa.array(["Joined", "", "x" * 257, None], pa.string())
    read = FRAMINGS["type"].read(binary([b"{}"] * 4), replace(beside(4), type=types))
    assert read.writers.to_pylist() == [b"Joined", None, None, None]
    assert read.refused.to_pylist() == [None, *["malformed_framing"] * 3]
    assert through("type", [b"{}", b""]) == [fine(b"", b"{}"), fine(b"", None)]


# --------------------------------------------------------------------------------------------------------- confluent


def test_confluents_prefixes() -> None:
    """The id or the GUID before a payload is its writer, and what follows is the body, the index path included."""
    by_guid = b"\1" + GUID.bytes
    assert through("confluent", [b"\0\0\0\0\5\2\2", by_guid + b"\6", b"\0\xff\xff\xff\xff", by_guid]) == [
        fine(b"\0\0\0\0\5", b"\2\2"),
        fine(by_guid, b"\6"),
        fine(b"\0\xff\xff\xff\xff", b""),
        fine(by_guid, b""),
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "0 bytes, of which the framing needs 5"),
        (b"\0\0\0\0", "4 bytes, of which the framing needs 5"),
        (b"\1" + GUID.bytes[1:], "16 bytes, of which the framing needs 17"),
        (b'{"n":3}', "the first byte is 0x7b, as in JSON text; the framing begins with 0 or 1"),
        (b"\3" + b"x" * 30, "the first byte is 0x03; the framing begins with 0 or 1"),
    ],
)
def test_bytes_without_confluents_prefix(value: bytes, words: str) -> None:
    """A person sees in quarantine what stood where the id was expected."""
    read = FRAMINGS["confluent"].read(binary([value]), beside(1))
    assert (read.refused.to_pylist(), read.detail.to_pylist()) == (["malformed_framing"], [words])


def test_a_header_wins_over_a_prefix() -> None:
    """The first header of the first name that has a value names the writer; then the value is the body, all of it."""
    guid, other = b"\1" + GUID.bytes, b"\1" + bytes(16)
    headers: list[list[Header] | None] = [
        [("x", b"1"), (HEADER, guid), (HEADER, other)],
        [("second", other), (HEADER, guid)],
        [("second", other)],
        [(HEADER, None), (HEADER, guid)],  # the client looks at the first one only
        None,
        [],
        [(HEADER, guid + b"\4\0\2")],
    ]
    value = b"\0\0\0\0\1\6"
    assert through("confluent", [value] * 7, beside(7, headers=headers)) == [
        fine(guid, value),
        fine(guid, value),
        fine(other, value),
        *[fine(b"\0\0\0\0\1", b"\6")] * 3,
        fine(guid + b"\4\0\2", value),
    ]
    bare: list[bytes | None] = [b"\6", b"", None]  # nothing here is a prefix, and nothing must be
    assert through("confluent", bare, beside(3, headers=[[(HEADER, guid)]] * 3)) == [
        (guid, None, body, None) for body in bare
    ]


@pytest.mark.parametrize(
    ("path", "canonical"), [(b"\2\0", b"\0"), (b"\0", b"\0"), (b"\x82\0\2", b"\2\2"), (b"\2", None), (b"\0\0", None)]
)
def test_the_path_in_a_header_is_spelled_one_way(path: bytes, canonical: bytes | None) -> None:
    """One message has one writer, so that one question to the registry is enough; half a path is refused."""
    given = beside(1, headers=[[(HEADER, b"\1" + GUID.bytes + path)]])
    ((writer, reason, *_),) = through("confluent", [b"\0\0\0\0\1\6"], given)
    expected = canonical and b"\1" + GUID.bytes + canonical
    assert (writer, reason) == (expected, None if canonical else "malformed_framing")


@pytest.mark.parametrize("header", [b"", b"\1", b"\0\0\0\0\1", b"\2" + GUID.bytes, str(GUID).encode()])
def test_a_bad_header_is_not_passed_over(header: bytes) -> None:
    """The bytes of such a value are no prefix, though they may look like one."""
    given = beside(1, headers=[[(HEADER, header)]])
    assert through("confluent", [b"\0\0\0\0\1\6"], given)[0][:2] == (None, "malformed_framing")


# -------------------------------------------------------------------------------------------------------- index paths


@given(
    st.lists(st.lists(st.integers(0, 2**31 - 1) | st.just(0), min_size=1, max_size=5), max_size=5),
    st.binary(max_size=3),
)
@settings(max_examples=100, deadline=None)
@example([[0], [0] * 32, [2**31 - 1]], b"\xff")
def test_index_paths_are_those_of_the_client(paths: list[list[int]], rest: bytes) -> None:
    """Turnout finds the message that Confluent's client wrote, and its writer is the one that resolvers answer for."""
    written = []
    for path in paths:
        schema = SchemaId("PROTOBUF", 1)
        schema.message_indexes = path
        written.append(schema.id_to_bytes()[5:])
    assert written == [path_bytes(path) for path in paths]
    found = index_path(binary([path + rest for path in written]))
    assert (found.paths.to_pylist(), found.rests.to_pylist(), found.bad) == (written, [rest] * len(paths), [])


@given(st.lists(st.binary(max_size=8) | st.none(), max_size=6))
@settings(max_examples=150, deadline=None)
def test_hostile_index_paths(bodies: list[bytes | None]) -> None:
    """Bytes that are no path are refused one by one; all others give the path that the client reads."""
    found = index_path(binary(bodies))
    bad = {each.row for each in found.bad}
    for row, body in enumerate(bodies):
        path, rest = found.paths[row].as_py(), found.rests[row].as_py()
        assert ((path, rest) == (None, None)) == (row in bad)
        if path is not None:
            assert body is not None
            client = SchemaId("PROTOBUF")
            left = client.from_bytes(BytesIO(struct.pack(">bI", 0, 1) + body))
            assert (path, rest) == (path_bytes(client.message_indexes or []), left.read())


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\2", b"\4\0", b"\1\0", b"\3", b"\2\1", b"\xff" * 9),
        *(b"\x42" + b"\0" * 33, b"\2" + b"\x80" * 5 + b"\0", b"\2\x80\x80\x80\x80\x10"),
    ],
)
def test_paths_are_bounded(body: bytes) -> None:
    """A cut path, a negative number, more than 32 steps or 31 bits are no path: no time and no memory goes there."""
    ((row, reason, *_),) = index_path(binary([body])).bad
    assert (row, reason) == (0, "malformed_framing")


# --------------------------------------------------------------------------------------------------------------- glue


def glue(body: bytes, *, zipped: bool = True) -> bytes:
    return b"\3" + (b"\5" if zipped else b"\0") + GUID.bytes + (zlib.compress(body) if zipped else body)


def test_glues_payloads() -> None:
    """Compressed and plain payloads of one schema have one writer; an empty payload is a payload."""
    written_by = b"\3" + GUID.bytes
    assert through("glue", [glue(b"\6"), glue(b"\6", zipped=False), glue(b""), glue(b"", zipped=False)]) == [
        fine(written_by, b"\6"),
        fine(written_by, b"\6"),
        fine(written_by, b""),
        fine(written_by, b""),
    ]


@pytest.mark.proves("B20")
def test_damaged_glue_is_refused() -> None:
    """A cut or longer stream, a bomb, another version or compression: a reason each, and never half of a payload."""
    largest = bytes(MAX_PAYLOAD_BYTES)
    packed = glue(b"x" * 99)
    values = [packed[:-1], packed + b"x", packed[:18], packed[:18] + b"not zlib", glue(largest), glue(largest + b"x")]
    assert [(body, why) for _, _, body, why in through("glue", [*values, packed])] == [
        *[(None, "bad_compression")] * 4,
        (largest, None),
        (None, "bad_compression"),
        (b"x" * 99, None),
    ]
    for value, reason in [
        (b"\3\1" + GUID.bytes, "bad_compression"),
        (b"\2\0" + GUID.bytes, "malformed_framing"),
        (glue(b"", zipped=False)[:17], "malformed_framing"),
    ]:
        assert through("glue", [value]) == [(None, reason, None, reason)]


def test_many_bombs_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass never holds the inflated bytes of all its rows at once: a kilobyte of zlib may hold a megabyte."""
    monkeypatch.setattr(framing, "PIECE_BYTES", 2 * MAX_PAYLOAD_BYTES)
    values = binary([glue(bytes(MAX_PAYLOAD_BYTES))] * 5 + [glue(b"x" * MAX_PAYLOAD_BYTES + b"x")])
    runs = list(FRAMINGS["glue"].bodies(values, binary([b"\3" + GUID.bytes] * 6)))
    assert [(run.start, len(run.bodies), [each.row for each in run.refusals]) for run in runs] == [
        (0, 2, []),
        (2, 2, []),
        (4, 2, [5]),
    ]


# -------------------------------------------------------------------------------------------------------------- names


def test_names_and_numbers() -> None:
    """Where nothing is framed, the writer is the record's name or number; the body is the value, if it has bytes."""
    values: list[bytes | None] = [b"\0\0\0\0\1", b""]
    assert through("topic", values) == [fine("räce".encode(), b"\0\0\0\0\1"), fine("räce".encode(), None)]
    assert through("game", values) == [fine(b"game 0", b"\0\0\0\0\1"), fine(b"game 1", None)]
    ids = beside(5, ids=[0, 2**32 - 1, 2**32, -1, None])
    assert [each[:2] for each in through("wrapper", [b"x"] * 5, ids)] == [
        (b"\0\0\0\0\0", None),
        (b"\0\xff\xff\xff\xff", None),
        *[(None, "malformed_framing")] * 3,
    ]


# --------------------------------------------------------------------------------------- turnout's ids beside a frame

MIXED = ["wrapper-or-confluent", "wrapper-or-glue"]
NUMBERS = st.sampled_from([0, 1, 7, 2**32 - 1])


@pytest.mark.parametrize("name", MIXED)
@given(st.lists(st.tuples(VALUES, NUMBERS), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_the_number_alone_says_whether_a_frame_follows(name: str, rows: list[tuple[bytes | None, int]]) -> None:
    """No byte of a payload is guessed at: a row with a number is whole, one without is what the framing makes of it."""
    ids: list[int | None] = [number for _, number in rows]
    outcomes = through(name, [value for value, _ in rows], beside(len(rows), ids=ids))
    for (value, number), outcome in zip(rows, outcomes, strict=True):
        if number:
            assert outcome == (b"\xff" + number.to_bytes(4, "big"), None, value or None, None)
        elif not value:
            assert outcome[:2] == (None, "empty_payload")
        else:
            assert outcome == through(name.removeprefix("wrapper-or-"), [value])[0]
    read = FRAMINGS[name].read(binary([value for value, _ in rows]), beside(len(rows), ids=ids))
    assert read.own is not None
    assert read.own.to_pylist() == [number != 0 for _, number in rows]


def test_pieces_of_inflated_bodies_keep_turnouts_own_rows_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends where the framing ends one, and takes the rows along that have no frame."""
    monkeypatch.setattr(framing, "PIECE_BYTES", 8)
    packed = b"\3\5" + GUID.bytes + zlib.compress(b"eight by")
    values: list[bytes | None] = [b"own", packed, b"own too", packed[:-1], b"last"]
    outcomes = through("wrapper-or-glue", values, beside(5, ids=[1, 0, 2, 0, 3]))
    assert [each[2] for each in outcomes] == [b"own", b"eight by", b"own too", None, b"last"]
    assert [each[3] for each in outcomes] == [None, None, None, "bad_compression", None]
