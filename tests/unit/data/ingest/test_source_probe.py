"""`turnout source probe` says what records look like, and proposes settings."""

import gzip
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.cli.ingest import adopt_source, run_ingest
from pipeline.cli.simulation import simulate
from pipeline.cli.source import probe_source
from pipeline.data.ingest.document_paths import document_paths
from pipeline.data.ingest.source_probe import describe, judge, toml_of
from pipeline.data.ingest.sources.kind import SampledRecord
from pipeline.data.ingest.sources.supported import SOURCES, open_source
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source
from pipeline.settings.tree import load
from protos.turnout.v1.wrapper_pb2 import Wrapper

GUID = bytes(range(16))


def wrapper(schema_id: int, payload: bytes) -> bytes:
    return Wrapper(game="Ludo", schema_id=schema_id, payload=payload).SerializeToString()


def document(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


CASES: dict[str, tuple[list[SampledRecord], dict[str, Any], str | None]] = {
    "turnout": ([SampledRecord(wrapper(7, b"\x08\x01"), None)], {}, None),
    "framed in a wrapper": (
        [SampledRecord(wrapper(0, b"\x00\x00\x00\x00\x07\x08"), None)],
        {"framing": "confluent", "registry": "main"}, "confluent",
    ),
    "turnout's ids and framed payloads in one topic": (
        [
            SampledRecord(wrapper(0, b"\x00\x00\x00\x00\x07\x08"), None),
            *[SampledRecord(wrapper(7, b"\x08\x01"), None)] * 3,
        ],
        {"framing": "wrapper-or-confluent", "registry": "main"}, "confluent",
    ),
    "confluent by topic": (
        [SampledRecord(b"\x00\x00\x00\x00\x07\x06", b"\xff", (), "laps")],
        {"envelope": "none", "routing": "topic", "framing": "confluent", "registry": "main"}, "confluent",
    ),
    "confluent by key": (
        [SampledRecord(b"\x00\x00\x00\x00\x07\x06", b"Ludo", (), "laps")] * 2,
        {"envelope": "none", "routing": "key", "framing": "confluent", "registry": "main"}, "confluent",
    ),
    "a GUID in a header, the game in another": (
        [SampledRecord(b"\x06", None, (("__value_schema_id", b"\x01" + GUID), ("game", b"Ludo")), "laps")],
        {"envelope": "none", "routing": "header:game", "framing": "confluent", "registry": "main"}, "confluent",
    ),
    "a GUID as prefix": (
        [SampledRecord(b"\x01" + GUID + b"\x06", None)],
        {"envelope": "none", "routing": "game:NAME", "framing": "confluent", "registry": "main"}, "confluent",
    ),
    "glue": (
        [SampledRecord(b"\x03\x05" + GUID + b"x\x9c", None)],
        {"envelope": "none", "routing": "game:NAME", "framing": "glue", "registry": "main"}, "glue",
    ),
    "plain documents": (
        [
            SampledRecord(document(game="Chess", type="Joined", ts=1_777_636_800_123 + number, id=number), None)
            for number in range(3)
        ],
        {
            "envelope": "json", "framing": "type", "envelope_time": "ms",
            "envelope_fields": {"game": "game", "type": "type", "event_id": "id", "event_time": "ts"},
        }, None,
    ),
    "documents in documents": (
        [
            SampledRecord(
                document(
                    meta={"title_id": "Go", "eventName": "a.Sold", "at": "2026-05-01T12:00:00Z", "uuid": "e"},
                    data={"x": 1},
                ),
                None,
            )
        ],
        {
            "envelope": "json", "framing": "type", "envelope_time": "rfc3339",
            "envelope_fields": {
                "game": "meta.title_id", "type": "meta.eventName", "event_id": "meta.uuid", "event_time": "meta.at",
                "payload": "data",
            },
        }, None,
    ),
    "documents of one type, the game in a header": (
        [SampledRecord(document(points=1), None, (("game", b"Ludo"),), "laps")],
        {"envelope": "json", "framing": "type", "routing": "header:game"}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_profile_that_fits_is_proposed(name: str) -> None:
    """Issue 35: an operator gets the settings for a topic from its records, as lines that turnout.toml can hold."""
    records, wanted, registry = CASES[name]
    report = judge("the source", [*records, SampledRecord(None, None)])
    assert report.fit is not None
    assert (wanted, registry, len(records)) == (report.fit.source, report.fit.registry, report.fit.records)
    read = tomllib.loads("\n".join(toml_of(report.fit)))
    assert read.get("source", {}) == wanted
    assert read.get("registries", {}).get("main", {}).get("kind") == registry
    assert ("no value", 1) in [(look.kind, look.records) for look in report.looks]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b' [{"a": 1}]', "no objects"), (b"Obj\x01\x00", "Avro file"), (b"\xc3\x01" + bytes(8), "single-object"),
        (gzip.compress(b"x", mtime=0), "name no schema"), (b"\x00\x00\x07", "name no schema"),
    ],
)  # fmt: skip
def test_a_format_without_a_profile_is_named(value: bytes, words: str) -> None:
    """Unknown is never shown as fine: no profile is proposed for records that turnout cannot read."""
    report = judge("the source", [SampledRecord(value, None)])
    assert report.fit is None
    assert words in report.reason
    assert toml_of(report.fit) == []


def test_a_mixed_source_says_how_many_do_not_fit() -> None:
    """The most frequent kind decides, and the others are counted."""
    records = [SampledRecord(b"\x00\x00\x00\x00\x07\x06", None)] * 3 + [SampledRecord(wrapper(7, b""), None)]
    report = judge("the source", records)
    assert "1 of 4 records do not fit" in report.reason
    assert "schema 7 (3)" in "\n".join(describe(report))


def test_a_table_that_the_settings_have_is_not_printed_again() -> None:
    """The lines can be pasted: a second `[source]` would be no TOML, and another source has its own table."""
    report = judge("the source", [SampledRecord(b"\x00\x00\x00\x00\x07\x06", None)])
    printed = describe(report, is_there=True)
    assert "Set in turnout.toml, below [source]:" in printed
    assert "[source]" not in printed
    assert "[registries.main]" in printed
    assert "[sources.east]" in describe(report, "sources.east")


def test_an_empty_source_proposes_nothing(tmp_path: Path) -> None:
    """Nothing to look at proposes nothing; a missing landing table is refused, and not made."""
    assert judge("the source", []).fit is None
    with pytest.raises(Refused, match="no landing table"):
        open_source(Source(), located(tmp_path / "landing")).sample(10)
    assert not (tmp_path / "landing").exists()


HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(SampledRecord, st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=9), HEADERS), max_size=6
)


@pytest.mark.parametrize(
    ("value", "unit"),
    [(1_777_636_800, "s"), (1.7e9, "s"), (1_777_636_800_000, "ms"), (1_777_636_800_000_000, "us"), (1.7e18, "ns")],
)
def test_the_unit_of_times_follows_from_their_size(value: float, unit: str) -> None:
    """A unit is declared by a person; the size of numbers proposes it."""
    assert document_paths([{"time": value}]).unit == unit


def test_a_proposal_names_no_key_that_is_not_usual_and_no_value() -> None:
    """Keys may be names of players, and a path that few documents have is not the topic's."""
    documents = [SampledRecord(document(game="Secret", **{"Ann's": {"id": "x"}}), None) for _ in range(30)]
    report = judge("the source", [*documents, *[SampledRecord(document(game="G", id=1), None)] * 2])
    printed = "\n".join([*describe(report), json.dumps(report.as_dict())])
    assert "Secret" not in printed
    assert "Ann" not in printed
    assert "event_id" not in printed
    assert document_paths([{"game": True, "type": 1, "time": True, "id": [1], "payload": []}]).fields == {}
    assert document_paths([]).fields == {}


def test_proposed_settings_are_settings(tmp_path: Path) -> None:
    """The printed lines can be pasted as they are."""
    for records, _, registry in CASES.values():
        if registry is None:
            (tmp_path / "turnout.toml").write_text("\n".join(toml_of(judge("it", records).fit)))
            load(tmp_path, {})


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["game", "type", "meta", "ts", "id", "a.b", "payload"]), inner, max_size=4)
    ),
    max_leaves=6,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["game", "event", "meta", "time", "id"]), HOSTILE, max_size=4), max_size=4)
)
def test_any_documents_end_in_settings(documents: list[dict[str, Any]]) -> None:
    """Documents are hostile: whatever they hold, the lines for turnout.toml are TOML."""
    report = judge("the source", [SampledRecord(json.dumps(each).encode(), None) for each in documents])
    tomllib.loads("\n".join(toml_of(report.fit)))
    assert describe(report)


@given(RECORDS)
def test_any_bytes_are_counted_once_and_end_in_a_report(records: Sequence[SampledRecord]) -> None:
    """Names and payloads are hostile: no bytes end the command, and what it prints for turnout.toml is TOML."""
    report = judge("the source", records)
    assert sum(look.records for look in report.looks) == report.records == len(records)
    tomllib.loads("\n".join(toml_of(report.fit)))
    json.dumps(report.as_dict())
    assert describe(report)


@pytest.mark.parametrize("command", [run_ingest, adopt_source, probe_source, simulate], ids=lambda each: str(each.name))
def test_commands_offer_the_kinds_of_sources_that_there_are(command: click.Command) -> None:
    """A further kind is one module and its lines in `supported` and the setting; every command then offers it."""
    offered = [option.type.choices for option in command.params if isinstance(option.type, click.Choice)]
    assert [tuple(SOURCES)] == [tuple(each) for each in offered if "kafka" in each]
