"""The envelope `json`: what it opens is what a plain parser says, one document at a time."""

import datetime as dt
import json
import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.envelopes.document import MOST_LEVELS, DocumentEnvelope
from pipeline.data.contracts.envelopes.envelope import COLUMNS, Opened
from pipeline.data.contracts.envelopes.opening import open_records, payloads_of
from pipeline.data.contracts.profile import SourceProfile, dumps, loads
from pipeline.data.verify.document import document_time
from pipeline.data.verify.opening import Sources, contents
from tests.unit.data.contracts.envelopes.records_world import binary, records

FIELDS = (
    ("event_id", "meta.id"),
    ("event_time", "meta.at"),
    ("game", "game"),
    ("payload", "body"),
    ("producer_id", "meta"),
    ("schema_id", "v"),
    ("sequence", "n"),
)
PROFILE = SourceProfile(envelope="json", fields=FIELDS)
WHOLE = SourceProfile(envelope="json", fields=(("game", "game"), ("schema_id", "v")))


def opened(*values: bytes | None, profile: SourceProfile = PROFILE) -> Opened:
    return open_records(records(values), replace(profile, routing="game:Chess") if profile == PROFILE else profile)


def column(name: str, *texts: str, unit: str = "ms") -> list[Any]:
    """Return what a column has for values written so at its path."""
    values = [f'{{"x":{text}}}'.encode() for text in texts]
    profile = SourceProfile(envelope="json", routing="game:Chess", fields=((name, "x"),), time_unit=unit)
    found = opened(*values, profile=profile)
    assert found.refused.null_count == len(values)
    values_of: list[Any] = found.batch.column(name).to_pylist()
    return values_of


def test_the_fields_of_a_document_arrive() -> None:
    """Fields are found by their paths, inside of objects too; the payload keeps every byte, spaces and digits alike."""
    body = '{"a" : 1.50,\n "ü": [1, {"game": 7}]}'
    text = f' {{"v": 7, "game": "Шах", "body": {body} , "n":9, "meta": {{"id": "e", "at": 1777636800123}}}} '
    found = open_records(records([text.encode()]), PROFILE)
    assert found.batch.to_pylist() == [
        {
            "game": "Шах",
            "schema_id": 7,
            "payload": body.encode(),
            "event_time": dt.datetime(2026, 5, 1, 12, 0, 0, 123_000, tzinfo=dt.UTC),
            "event_id": "e",
            "producer_id": None,
            "sequence": 9,
            "type": None,
        }
    ]


def test_without_a_path_the_payload_is_the_document() -> None:
    """A plain topic of flat documents needs no object around the event."""
    text = b'{"game": "Go", "v": 3, "points": 1}\n'
    found = open_records(records([text, None]), WHOLE)
    assert found.batch.column("payload").to_pylist() == [text, None]
    assert found.batch.column("game").to_pylist() == ["Go", None]
    assert payloads_of(binary([text]), WHOLE).payload.to_pylist() == [text]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "truncated"), (b"[1]", "object"), (b"null", "object"), (b'{"game":"a"} {}', "trailing"),
        (b'{"game":"a","x":NaN}', "invalid"), (b'{"game":"a","x":"\xff"}', "not UTF-8 at byte 17"),
        (b'{"game":"a","x":"\\ud800"}', "half of a surrogate pair"), (b'{"\\uDC00":1}', "half of a surrogate pair"),
        (b'{"game":"\\ud83d\\u0041"}', "half of a surrogate pair"), (b'{"game":"\\ud83d\\ude00","x', "truncated"),
        (b'{"x":"\\\\ud800', "truncated"), (b'{"game":"a","game":"a"}', "2 times"),
        (b'{"game":"a","\\u0067ame":"b"}', "2 times"), (b'{"meta":{"id":1,"i\\u0064":2}}', "2 times"),
        (b'{"meta":[{"id":1}]}', "object"), (b'{"game":"a","x":01}', "invalid number"),
        (b'\xef\xbb\xbf{"game":"a"}', "invalid character"),
        (b'{"game":"a","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "deeper than 64"),
        (b'{"game":"a","x":"' + b"y" * MAX_PAYLOAD_BYTES + b'"}', "larger than"),
    ],
)  # fmt: skip
def test_other_bytes_are_refused(value: bytes, words: str) -> None:
    """A record that cannot be opened has its reason, and its neighbours are opened."""
    fine = b'{"game":"a","body":1}'
    found = opened(fine, value, fine)
    assert found.refused.to_pylist() == [None, "malformed_wrapper", None]
    assert words in found.detail[1].as_py()
    assert found.detail[1].as_py() == opened(value).detail[0].as_py()
    assert found.batch.column("payload").to_pylist() == [b"1", None, b"1"]


def test_levels_are_those_of_a_slices_rows() -> None:
    """A slice of records opens as it would alone, whatever lies before and behind it in memory."""
    deep, flat = (b'{"game":"a","x":%s1%s}' % (b"[" * each, b"]" * each) for each in (MOST_LEVELS, MOST_LEVELS - 1))
    batch = binary([deep, flat, deep, flat, deep])
    for start, wanted in ((1, [None, "malformed_wrapper", None]), (0, ["malformed_wrapper", None]), (3, [None])):
        found = DocumentEnvelope(WHOLE).open(batch.slice(start, len(wanted)))
        assert found.refused.to_pylist() == wanted
    assert DocumentEnvelope(WHOLE).open(binary([deep])).refused.to_pylist() == ["malformed_wrapper"]


def test_levels_are_counted_outside_of_texts() -> None:
    """The bound holds for levels, and not for brackets in a text or side by side."""
    deep = "[" * (MOST_LEVELS - 1) + "]" * (MOST_LEVELS - 1)
    many = "[" + ",".join(["{}"] * 100) + "]"
    values = [f'{{"body":{body}}}'.encode() for body in (deep, f"[{deep}]", many, json.dumps("[" * 100))]
    assert opened(*values).refused.to_pylist() == [None, "malformed_wrapper", None, None]


def test_a_key_twice_elsewhere_is_not_the_envelopes() -> None:
    """The payload's decoder judges the payload, with the same words for a source without an envelope."""
    value = b'{"game":"a","body":{"game":1,"id":2,"game":3},"x":1,"x":2}'
    assert opened(value).refused.to_pylist() == [None]


@pytest.mark.parametrize(
    "document",
    [
        b'{"game":"a","game":"b","x":{"game":1}}',
        b'{"game":"a","m":{"id":1,"id":2},"x":0}',
        b'{"game":"a","m":{"id":1},"m":{"id":1},"x":{"m":1}}',
        b'{"x":{"x":[{"x":1},{"x":1}]},"game":"a","x":{"x":[{"x":1},{"x":1}]}}',
    ],
)
def test_a_key_twice_is_refused_whatever_the_values_hold(document: bytes) -> None:
    """Keys inside of values hide no key that the document has twice where a path leads."""
    fields = (("event_id", "m.id"), ("game", "game"), ("payload", "x"), ("producer_id", "m"), ("type", "x"))
    profile = SourceProfile(envelope="json", fields=fields)
    assert opened(document, profile=profile).refused.to_pylist() == ["malformed_wrapper"]
    once = b'{"m":{"id":{"m":1,"game":1}},"game":"a","x":{"x":{"x":1},"game":[{"game":1},{"id":1}]}}'
    assert opened(once, profile=profile).refused.to_pylist() == [None]


@pytest.mark.parametrize("name", ["game", "event_id", "producer_id"])
def test_names_are_texts_or_whole_numbers(name: str) -> None:
    """Ids that are numbers here and texts there are one; other values are absent."""
    texts = ('"a"', '"\\u00e9\\n"', "12", "-9223372036854775809", "1.0", "1e3", "true", "{}", '""', "null", "[1]")
    names = column("event_id", *texts)
    assert names == ["a", "é\n", "12", "-9223372036854775809", *[None] * 7]
    if name != "game":
        assert names == column(name, *texts)


def test_numbers_are_whole_by_their_text() -> None:
    """A number that int64 does not hold is null; sequences start at 1."""
    texts = ("7", str(2**63 - 1), str(-(2**63)), str(2**63), "9" * 30, "1.0", '"7"', "0")
    assert column("schema_id", *texts) == [7, 2**63 - 1, -(2**63), None, None, None, None, 0]
    assert column("sequence", *texts) == [7, 2**63 - 1, *[None] * 6]


def test_times_have_the_declared_unit() -> None:
    """A unit is declared, never guessed; fractions are cut to microseconds, years are 1 to 9999."""
    at = dt.datetime(2026, 5, 1, 12, 0, 0, 123_456, tzinfo=dt.UTC)
    micros = (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    written = {"s": f"{micros}999e-9", "ms": f"{micros / 1000:.3f}", "us": str(micros), "ns": f"{micros}999"}
    for unit, text in written.items():
        assert column("event_time", text, '"1"', "1e999999999", "-1e99", "true", unit=unit) == [at, *[None] * 4]
    before = at.replace(year=1969, month=12, day=31, hour=23, minute=59, second=59, microsecond=999_999)
    assert column("event_time", "-1", "-999", "-1e0", unit="ns") == [before] * 3
    texts = ("2026-05-01T12:00:00.1234569Z", "2026-05-01t14:00:00.123456+02:00", "2026-05-01 12:00:00.123456z")
    bad = ("2026-02-30T12:00:00Z", "2026-05-01T12:00:00", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "x")
    zones = ("2026-05-01T12:00:00+00:60", "2026-05-01T12:00:00+24:00", "2026-05-01 12:00:00-23:99")
    found = column("event_time", *map(json.dumps, (*texts, *bad, *zones)), "1", unit="rfc3339")
    assert found == [*[at] * 3, *[None] * 9]
    assert [document_time(json.dumps(each), "rfc3339") for each in (*bad, *zones)] == [None] * 8
    assert column("event_time", '"2026-05-01T12:00:00.123456Z"', unit="rfc3339") == [at]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "rfc3339"])
def test_a_unit_is_part_of_the_profile(unit: str) -> None:
    """Rows keep the unit that they landed with; a profile of an earlier version is the text that it was."""
    profile = replace(PROFILE, time_unit=unit)
    assert loads(dumps(profile)) == profile
    assert ("time_unit" in dumps(profile)) == (unit != "ms")


# ------------------------------------------------------------------------------------------------- the plain parser


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
KEYS = st.sampled_from(["game", "body", "meta", "id", "at", "v", "n", "x", "é"])
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
TEXTS = st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent),
    st.dictionaries(KEYS, JSON, max_size=6), st.booleans(), st.sampled_from([None, 1]),
).filter(lambda text: re.search("[\ud800-\udfff]", text) is None)  # fmt: skip
PIECES = st.sampled_from(
    [
        b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e", b"\xff", b"\n", b" ", b"null",
        b"NaN", b"\\ud83d", b"\\ude00", b"\\u0067", b'"game":"b",', b'"id":1,', b"2026-05-01T12:00:00Z", b"\x00",
    ]
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Return a document, or what is left of one after a few bytes were put in or taken out."""
    value = draw(TEXTS).encode()
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(value)))
        value = value[:at] + draw(PIECES) + value[at + draw(st.integers(0, 2)) :]
    return value


class Twice(Exception):
    """A key of a path stands there twice."""


def plain(value: bytes, profile: SourceProfile) -> bool:
    """Return whether the standard library reads a JSON object in which each path leads to one value, or to none."""

    def pairs(found: list[tuple[str, Any]]) -> Any:
        return {key: [each for name, each in found if name == key] for key, _ in found}

    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        root = json.loads(value.decode(), object_pairs_hook=pairs, parse_constant=refuse)
        json.dumps(root, ensure_ascii=False).encode()  # no half of a pair of surrogates
    except ValueError:
        return False
    for _, path in profile.fields:
        inside = [root]
        for key in path.split("."):
            if inside[0] is not None and not isinstance(inside[0], dict):
                return False
            inside = (inside[0] or {}).get(key, [None])
            if len(inside) > 1:
                return False
    return isinstance(root, dict)


@given(st.lists(documents(), max_size=6), st.sampled_from(["ms", "rfc3339"]), st.booleans())
@example([b'{"game":"a","x":"\xff"}', b'{"game":"a"}'], "ms", False)
@example([b'{"meta":{"at":"2026-05-01T12:00:00Z","id":""},"body":null}'], "rfc3339", False)
@settings(max_examples=40, deadline=None)
def test_opened_is_what_the_plain_parser_says(values: list[bytes], unit: str, whole: bool) -> None:
    """Law L5: a document opens if the standard library reads it, and then ingest, split and verify see one payload."""
    profile = replace(WHOLE if whole else PROFILE, routing="game:Chess", time_unit=unit)
    found = open_records(records(values), profile)
    good = [row for row, why in enumerate(found.refused.to_pylist()) if why is None]
    assert good == [row for row, value in enumerate(values) if plain(value, profile)]
    chosen = found.batch.take(pa.array(good, pa.int64()))
    names = ("payload", "event_time", "event_id")
    split = payloads_of(binary([values[row] for row in good]), profile)
    assert [split.payload, split.event_time, split.event_id] == [chosen.column(name) for name in names]
    sources = Sources({}, {1: profile})
    plainly = [contents(values[row], 1, None, b"\0\0\0\0\7", sources) for row in good]
    assert [each or None for each in chosen.column("payload").to_pylist()] == [each.payload for each in plainly]
    assert chosen.column("event_id").to_pylist() == [each.event_id for each in plainly]
    assert chosen.column("event_time").cast(pa.int64()).to_pylist() == [each.event_time for each in plainly]
    assert found.batch.schema == COLUMNS
