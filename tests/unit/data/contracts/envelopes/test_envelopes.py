"""The contract of envelopes: which game a record belongs to, and what its payload is. Law L5."""

import datetime as dt
import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.data.contracts.envelopes.envelope import COLUMNS, Opened
from pipeline.data.contracts.envelopes.opening import ENVELOPES, open_records, payloads_of
from pipeline.data.contracts.envelopes.wrapper import open_wrappers
from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.profile import WRAPPER, SourceProfile, dumps, loads
from pipeline.lake.delta.quarantine import REASONS
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.data.contracts.envelopes.records_world import Header, binary, records

MOMENT = dt.datetime(2026, 5, 1, 12, 0, 0, 123_456, tzinfo=dt.UTC)
FIELDS = (
    ("event_id", "meta.id"),
    ("event_time", "meta.at"),
    ("game", "meta.studio"),
    ("payload", "body"),
    ("producer_id", "meta.node"),
    ("schema_id", "schema"),
    ("sequence", "seq"),
)


@cache
def protobuf_definition() -> bytes:
    """Return an envelope of a team: `meta` has the game, `body` the payload."""
    file = descriptor_pb2.FileDescriptorProto(
        name="event.proto", package="acme", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    meta, event = file.message_type.add(name="Meta"), file.message_type.add(name="Event")
    for number, name in enumerate(["studio", "id", "node"], 1):
        meta.field.add(name=name, number=number, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    for name, number, type_name in [("at", 4, ".google.protobuf.Timestamp")]:
        meta.field.add(
            name=name, number=number, type=Field.TYPE_MESSAGE, type_name=type_name, label=Field.LABEL_OPTIONAL
        )
    event.field.add(name="meta", number=1, type=Field.TYPE_MESSAGE, type_name=".acme.Meta", label=Field.LABEL_OPTIONAL)
    kinds = [("body", Field.TYPE_BYTES), ("schema", Field.TYPE_UINT64), ("seq", Field.TYPE_INT64)]
    kinds.append(("millis", Field.TYPE_INT64))
    for number, (name, kind) in enumerate(kinds, 2):
        event.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    event.field.add(name="tags", number=9, type=Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    well_known = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    submitted = descriptor_pb2.FileDescriptorSet(file=[well_known, file]).SerializeToString()
    return format_of("protobuf").canonical("acme.Event", submitted)


AVRO = json.dumps(
    {
        "type": "record",
        "name": "acme.Envelope",
        "fields": [
            {
                "name": "meta",
                "type": {
                    "type": "record",
                    "name": "Meta",
                    "fields": [
                        {"name": "studio", "type": {"type": "enum", "name": "Studio", "symbols": ["red", "blue"]}},
                        {"name": "id", "type": ["null", "string"]},
                        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                        {"name": "node", "type": "bytes"},
                    ],
                },
            },
            {"name": "body", "type": ["null", "bytes"]},
            {"name": "schema", "type": "int"},
            {"name": "seq", "type": "long"},
        ],
    }
).encode()


def avro(**fields: Any) -> bytes:
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(AVRO)), fields)
    return written.getvalue()


def event(**fields: Any) -> bytes:
    found: Any = message_factory.GetMessageClass(describe("acme.Event", protobuf_definition()))(**fields)
    written: bytes = found.SerializeToString()
    return written


PROTOBUF = SourceProfile(
    envelope="protobuf", definition=protobuf_definition(), definition_message="acme.Event", fields=FIELDS
)
AVRO_PROFILE = SourceProfile(
    envelope="avro",
    definition=format_of("avro").canonical("acme.Envelope", AVRO),
    definition_message="acme.Envelope",
    fields=FIELDS,
)
PROFILES: Mapping[str, SourceProfile] = {
    "wrapper": WRAPPER,
    "wrapper by topic": SourceProfile(routing="topic"),
    "none": SourceProfile(envelope="none", routing="key", framing="confluent", registry="r"),
    "none by header": SourceProfile(envelope="none", routing="header:game", framing="topic", registry="r"),
    "protobuf": PROTOBUF,
    "avro": AVRO_PROFILE,
    "json": SourceProfile(envelope="json", fields=(("event_id", "meta.id"), ("game", "game"), ("payload", "body"))),
}


def rows(opened: Opened) -> list[tuple[dict[str, Any], str | None]]:
    """Return the columns and the reason of each row; and check what holds for every envelope."""
    assert opened.batch.schema == COLUMNS
    reasons, details = opened.refused.to_pylist(), opened.detail.to_pylist()
    assert opened.batch.num_rows == len(reasons) == len(details)
    assert set(reasons) - {None} <= set(REASONS)
    assert [detail is None for detail in details] == [reason is None for reason in reasons]
    found = opened.batch.to_pylist()
    assert all(row == dict.fromkeys(COLUMNS.names) for row, why in zip(found, reasons, strict=True) if why is not None)
    return list(zip(found, reasons, strict=True))


GOOD = Wrapper(game="g", schema_id=1, payload=b"p", event_id="e").SerializeToString()
MESSAGES = [
    GOOD,
    Wrapper(game="\0", payload=b"p").SerializeToString(),
    event(meta={"studio": "s"}, body=b"b"),
    b"",
    None,
]
DOCUMENTS = [b'{"game":"g","meta":{"id":1},"body":[]}', b'{"game":"g","game":"h"}', b'{"game":"\xff"}']
VALUES = (
    st.sampled_from(MESSAGES)
    | st.sampled_from(DOCUMENTS)
    | st.sampled_from([b"\x02\x02\x02e\x06\x00\x02\x02p\x0e\x12"])
    | st.binary(max_size=12)
)


@pytest.mark.parametrize("name", PROFILES)
@given(st.lists(VALUES, max_size=6), st.sampled_from([None, b"", b"\xff", b"k", b"x" * 257]))
@example([None], None)
@example([GOOD, b"\xff", GOOD], b"k")
@settings(max_examples=25, deadline=None)
def test_neighbours_do_not_matter(name: str, values: list[bytes | None], key: bytes | None) -> None:
    """Law L5: what becomes of a record depends on it alone; null, empty and garbage get a reason, never an error."""
    profile = PROFILES[name]
    headers: list[Header] = [("game", key)]
    alone = [rows(open_records(records([value], key=key, headers=headers), profile))[0] for value in values]
    together = open_records(records(values, key=key, headers=headers), profile)
    assert rows(together) == alone
    assert [why for value, (_, why) in zip(values, alone, strict=True) if value is None] == [
        "tombstone"
    ] * values.count(None)


@pytest.mark.parametrize("name", PROFILES)
@given(st.lists(VALUES, max_size=6))
@settings(max_examples=20, deadline=None)
def test_split_sees_the_payload_that_ingest_saw(name: str, values: list[bytes | None]) -> None:
    """Law L5: bronze keeps a record's bytes, and a pass gets the same payload, time and id from them as ingest did."""
    opened = open_records(records(values, headers=[("game", b"g")]), PROFILES[name])
    accepted = [row for row, why in enumerate(opened.refused.to_pylist()) if why is None]
    payloads = payloads_of(binary([values[row] for row in accepted]), PROFILES[name])
    chosen = opened.batch.take(pa.array(accepted, pa.int64()))
    assert [payloads.payload, payloads.event_time, payloads.event_id] == [
        chosen.column(column) for column in ("payload", "event_time", "event_id")
    ]


def test_the_default_profile_is_todays_wrapper() -> None:
    """Law L5: a profile without settings means what rows without a profile mean."""
    values = [GOOD, None, b"", b"\xff", Wrapper(game="", payload=b"p").SerializeToString(), GOOD]
    assert rows(open_records(records(values), WRAPPER)) == rows(open_wrappers(binary(values)))


# ------------------------------------------------------------------------------------------------------------ routing


@pytest.mark.parametrize(
    ("routing", "game"),
    [
        ("field", "g"),
        ("topic", "from topic"),
        ("key", "from key"),
        ("header:first", "1"),
        ("header:with:colon", "2"),
        ("game:Chess: the game", "Chess: the game"),
        ("header:none", None),
        ("header:null", None),
        ("header:binary", None),
        ("header:long", None),
    ],
)
def test_routing(routing: str, game: str | None) -> None:
    """A record's game is where its profile says, whatever its envelope says; no valid name there is a refusal."""
    headers: list[Header] = [("first", b"1"), ("first", b"x"), ("with:colon", b"2"), ("null", None), ("null", b"x")]
    headers += [("binary", b"\xff"), ("long", b"x" * 257)]
    (found,) = rows(open_records(records([GOOD], headers=headers), SourceProfile(routing=routing)))
    assert (found[0]["game"], found[1]) == (game, None if game else "invalid_name")


def test_a_wrapper_that_another_part_routes_needs_no_name() -> None:
    """The wrapper's own name is not looked at then, neither at ingest nor at split."""
    value, profile = Wrapper(schema_id=3, payload=b"p").SerializeToString(), SourceProfile(routing="topic")
    ((row, why),) = rows(open_records(records([value]), profile))
    assert (row["game"], row["schema_id"], row["payload"], why) == ("from topic", 3, b"p", None)
    assert payloads_of(binary([value]), profile).payload.to_pylist() == [b"p"]


# ------------------------------------------------------------------------------------------------- kinds of envelopes


def test_no_envelope() -> None:
    """A value is its payload, also an empty one; it says nothing else."""
    profile = SourceProfile(envelope="none", routing="key")
    found = rows(open_records(records([b"x", b"", None]), profile))
    expected = dict.fromkeys(COLUMNS.names) | {"game": "from key"}
    assert found[:2] == [(expected | {"payload": b"x"}, None), (expected | {"payload": b""}, None)]
    assert found[2][1] == "tombstone"


def test_every_field_of_a_teams_message_arrives() -> None:
    """Fields are found by their paths, inside of messages too."""
    at = {"seconds": int(MOMENT.timestamp()), "nanos": 123_456_789}
    value = event(meta={"studio": "Шах", "id": "e", "node": "n", "at": at}, body=b"\xff\0", schema=7, seq=9, tags=["t"])
    assert rows(open_records(records([value]), PROTOBUF)) == [
        (
            {
                "game": "Шах",
                "schema_id": 7,
                "payload": b"\xff\0",
                "event_time": MOMENT,
                "event_id": "e",
                "producer_id": "n",
                "sequence": 9,
                "type": None,
            },
            None,
        )
    ]


def test_every_field_of_an_avro_record_arrives() -> None:
    """An enum and bytes are names too, and a union with null may be absent."""
    meta = {"studio": "blue", "id": None, "at": MOMENT, "node": b"n"}
    values = [
        avro(meta=meta, body=b"p", schema=7, seq=9),
        avro(meta=meta | {"id": "e", "node": b"\xff"}, body=None, schema=-1, seq=0),
    ]
    first = {
        "game": "blue",
        "schema_id": 7,
        "payload": b"p",
        "event_time": MOMENT.replace(microsecond=123_000),
        "event_id": None,
        "producer_id": "n",
        "sequence": 9,
        "type": None,
    }
    second = first | {"schema_id": -1, "payload": None, "event_id": "e", "producer_id": None, "sequence": None}
    assert rows(open_records(records(values), AVRO_PROFILE)) == [(first, None), (second, None)]
    assert rows(open_records(records([values[0] + b"x"]), AVRO_PROFILE))[0][1] == "malformed_wrapper"


def test_fields_without_a_fit_value_are_null() -> None:
    """An absent time, id or sequence is unknown; a number or a time that its column cannot hold is, too."""
    unfit = event(meta={"studio": "s"}, schema=2**64 - 1, seq=-1, millis=2**62)
    millis = replace(PROTOBUF, fields=tuple(sorted({**dict(FIELDS), "event_time": "millis"}.items())))
    nothing = dict.fromkeys(COLUMNS.names) | {"game": "s", "payload": b""}
    fit = event(meta={"studio": "s"}, schema=2**63 - 1)
    assert rows(open_records(records([unfit, fit]), PROTOBUF)) == [
        (nothing, None),
        (nothing | {"schema_id": 2**63 - 1}, None),
    ]
    assert rows(open_records(records([unfit]), millis)) == [(nothing, None)]
    timed = event(meta={"studio": "s"}, millis=-1)
    ((row, _),) = rows(open_records(records([timed]), millis))
    assert row["event_time"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    assert rows(open_records(records([event(body=b"b")]), PROTOBUF))[0][1] == "invalid_name"


def test_malformed_messages_say_why() -> None:
    """Another wire type, cut bytes and a nesting bomb are one malformed record each."""
    fine = event(meta={"studio": "s"}, body=b"b")
    bomb = b"\x83\x80\x01" * 300_000 + b"\x84\x80\x01" * 300_000
    found = rows(open_records(records([fine, fine[:-1], b"\x10\x01", bomb, b"", fine]), PROTOBUF))
    assert [why for _, why in found] == [None, *["malformed_wrapper"] * 4, None]


def test_every_envelope_is_in_the_contract() -> None:
    """A further envelope is in this suite too."""
    assert ENVELOPES.keys() == {profile.envelope for profile in PROFILES.values()}


# ----------------------------------------------------------------------------------------------------------- profiles


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_profile_is_one_text(profile: SourceProfile) -> None:
    """The store gives equal profiles one number: the text keeps everything, and does not follow the order of fields."""
    assert loads(dumps(profile)) == profile == pickle.loads(pickle.dumps(profile))
    turned = replace(profile, fields=profile.fields[::-1])
    assert dumps(turned) == dumps(profile)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "[" * 100_000, dumps(WRAPPER)[:-1], dumps(WRAPPER).replace("wrapper", "\\ud800", 1)[:-9],
        dumps(WRAPPER).replace('"definition":""', '"definition":"?"'),
        dumps(WRAPPER).replace('"registry":null', '"registry":5'),
        dumps(WRAPPER).replace('"fields":{}', '"fields":{"game":1}'),
        dumps(WRAPPER).replace('"fields":{}', '"fields":{},"newer":1'),
    ],
)  # fmt: skip
def test_a_damaged_profile_is_refused(text: str) -> None:
    """Law L14: a profile that cannot be read is never another profile."""
    with pytest.raises(Refused, match="profile of a source cannot be read"):
        loads(text)
