"""`turnout source probe`: says what a source's records look like, and which profile fits them.

Pure but for `probe`. Framings are declared, never guessed: this proposes settings to a person, and ingest uses what is
set. Reports counts and schema ids, and nothing else of what records hold.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pipeline.base.names import is_game_name
from pipeline.data.contracts.envelopes.wrapper import open_wrappers
from pipeline.data.contracts.profile import SCHEMA_ID_HEADER
from pipeline.data.ingest.document_paths import document_paths
from pipeline.data.ingest.sources.kind import SampledRecord, SourceKind

MOST: Final = 100
"""Records that are read."""

_DOCUMENTS: Final = "JSON documents"
_NAMED: Final = 5  # schema ids that are listed, the most frequent first
_WORTH: Final = 20  # a kind of record counts from one in this number on; rarer ones are bad records
_MOST_JSON_BYTES: Final = 1_000_000
_PLAIN: Final = re.compile(r"[!-~]{1,249}")  # header names that a line of TOML can hold as they are


@dataclass(frozen=True, slots=True)
class ProbedRecords:
    """What some of the records look like."""

    kind: str
    records: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Fit:
    """The profile that fits most of the records: settings of `[source]`, and the registry that they need."""

    records: int
    source: Mapping[str, str | Mapping[str, str]]
    registry: str | None = None  # its kind
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What was found."""

    source: str
    records: int
    looks: tuple[ProbedRecords, ...]
    fit: Fit | None
    reason: str  # one sentence

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        fit = None if self.fit is None else {
            "records": self.fit.records, "source": dict(self.fit.source), "registry": self.fit.registry,
            "remarks": list(self.fit.remarks),
        }  # fmt: skip
        looks = [{"kind": look.kind, "records": look.records, "detail": look.detail} for look in self.looks]
        return {
            "source": self.source, "records": self.records, "looks": looks, "fit": fit, "reason": self.reason,
            "toml": toml_of(self.fit),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shape:
    """One kind of record: how it is recognised, and the profile for it; None: turnout cannot read it."""

    kind: str
    is_like: Callable[[SampledRecord], bool]
    schema_of: Callable[[SampledRecord], str] | None = None
    framing: str | None = None
    unread: str = ""  # why no profile fits, as a sentence


def probe(source: SourceKind) -> ProbeReport:
    """Read some of the newest records of a source, and say what they look like.

    Raises:
        Refused: there is no such source, or its connection's options have no counterpart.
        Transient: it does not answer.
    """
    return judge(source.description, source.sample(MOST))


def judge(source: str, records: Sequence[SampledRecord]) -> ProbeReport:
    """Count what the records look like, and find the profile that fits most of them."""
    filled = [record for record in records if record.value]
    wrapped = _wrapped(filled)
    bare = [record for record, payload in zip(filled, wrapped, strict=True) if payload is None]
    found = _by_shape(bare)
    looks = [ProbedRecords("no value", sum(record.value is None for record in records))]
    looks.append(ProbedRecords("empty", sum(record.value == b"" for record in records)))
    looks.append(ProbedRecords("turnout's wrapper", len(filled) - len(bare)))
    looks += [ProbedRecords(shape.kind, len(members), _ids(shape, members)) for shape, members in found]
    looks = [look for look in looks if look.records]
    if not filled:
        return ProbeReport(
            source, len(records), tuple(looks), None, "The source has no record with a value to look at."
        )
    fit, reason = _fit(found, wrapped)
    if fit is not None and fit.records < len(filled):
        reason += f" {len(filled) - fit.records} of {len(filled)} records do not fit: ingest would quarantine them."
    return ProbeReport(source, len(records), tuple(looks), fit, reason)


def toml_of(fit: Fit | None, table: str = "source") -> list[str]:
    """Return the lines for turnout.toml; none where the default fits, or nothing does."""
    if fit is None or not fit.source:
        return []
    lines = [f"[{table}]", *(f"{name} = {_toml(value)}" for name, value in fit.source.items())]
    if fit.registry is not None:
        lines += ["", "[registries.main]", f'kind = "{fit.registry}"', *_ADDRESS[fit.registry]]
    return lines


def describe(report: ProbeReport, table: str = "source", *, is_there: bool = False) -> list[str]:
    """Return the report as lines of text, for a source that is `table` in turnout.toml, which has that or not."""
    lines = [f"{report.source}: looked at {report.records} of the newest records"]
    lines += [f"  {look.records:>4}  {look.kind}{f': {look.detail}' if look.detail else ''}" for look in report.looks]
    lines.append(report.reason)
    if report.fit is not None:
        lines += report.fit.remarks
    toml = toml_of(report.fit, table)
    if is_there and toml:  # a second table of one name is no TOML
        return [*lines, "", f"Set in turnout.toml, below [{table}]:", "", *toml[1:]]
    return [*lines, "", "Add to turnout.toml:", "", *toml] if toml else lines


_ADDRESS: Final[Mapping[str, tuple[str, ...]]] = {
    "confluent": ('url = "https://registry.example.com"',),
    "glue": ('region = "eu-west-1"',),
}
_REGISTRY_OF: Final[Mapping[str, str]] = {"confluent": "confluent", "glue": "glue"}


@dataclass(frozen=True, slots=True)
class _Payload:
    """The inside of a wrapper."""

    value: bytes
    schema_id: int


def _wrapped(records: Sequence[SampledRecord]) -> list[_Payload | None]:
    """Return the payload of each record that is a wrapper, None for the others."""
    opened = open_wrappers(pa.array([record.value for record in records], pa.binary()))
    payloads, ids = opened.batch.column("payload").to_pylist(), opened.batch.column("schema_id").to_pylist()
    return [
        None if refused is not None else _Payload(payload or b"", number or 0)
        for refused, payload, number in zip(opened.refused.to_pylist(), payloads, ids, strict=True)
    ]


def _fit(
    found: Sequence[tuple[_Shape, Sequence[SampledRecord]]], wrapped: Sequence[_Payload | None]
) -> tuple[Fit | None, str]:
    """Return the profile for the most frequent kind of record."""
    payloads = [payload for payload in wrapped if payload is not None]
    if len(payloads) * 2 >= len(wrapped):
        return _fit_wrapped(payloads)
    shape, members = max(found, key=lambda each: len(each[1]))
    if shape.kind == _DOCUMENTS:
        return _fit_documents(members)
    return (None, shape.unread) if shape.framing is None else _fit_bare(shape, members)


def _fit_wrapped(payloads: Sequence[_Payload]) -> tuple[Fit, str]:
    unnamed = [payload for payload in payloads if payload.schema_id == 0]
    named = len(payloads) - len(unnamed)
    if len(unnamed) * _WORTH >= len(payloads):
        framed = _by_shape([SampledRecord(payload.value, None) for payload in unnamed])
        shape, members = max(framed, key=lambda each: len(each[1]))
        if shape.framing is not None and len(members) * 2 > len(unnamed):
            framing = f"wrapper-or-{shape.framing}" if named * _WORTH >= len(payloads) else shape.framing
            fits = len(members) + (named if framing != shape.framing else 0)
            others = "" if framing == shape.framing else f", and {named} with turnout's schema ids"
            fit = Fit(fits, {"framing": framing, "registry": "main"}, _REGISTRY_OF[shape.framing])
            return fit, f"turnout's wrapper without schema ids, around {shape.kind}{others}."
    if len(unnamed) * 2 > len(payloads):
        return (
            Fit(len(payloads), {}),
            "turnout's wrapper, but without schema ids: schema 0 of each game must be registered, or ids must be set.",
        )
    return Fit(len(payloads), {}), "turnout's wrapper with turnout's schema ids: the default profile fits."


def _fit_bare(shape: _Shape, members: Sequence[SampledRecord]) -> tuple[Fit, str]:
    assert shape.framing is not None
    routing, remark = _routing(members)
    settings = {"envelope": "none", "routing": routing, "framing": shape.framing, "registry": "main"}
    remarks = (remark, "Put the registry's address and credentials in (docs/registries.md).")
    return Fit(len(members), settings, _REGISTRY_OF[shape.framing], remarks), f"{shape.kind}, without an envelope."


def _fit_documents(members: Sequence[SampledRecord]) -> tuple[Fit, str]:
    """Propose paths for JSON documents, for a person to check."""
    found = document_paths([json.loads(_bytes_of(record)) for record in members])
    settings: dict[str, str | Mapping[str, str]] = {"envelope": "json", "framing": "type"}
    remarks = ["Their shapes become columns; a JSON Schema that you declare goes first (docs/schemas.md)."]
    if "game" in found.fields:
        routing = f"Check the routing: each document names a game at {found.fields['game']} ({found.games} values)."
    else:
        settings["routing"], routing = _routing(members)
    remarks.insert(0, routing)
    if found.fields:
        settings["envelope_fields"] = dict(found.fields)
    if "type" in found.fields:
        remarks.insert(1, f"Check the event type: it is at {found.fields['type']} ({found.types} values).")
    else:
        remarks.insert(1, "Nothing in the documents looks like an event type, so each game has one.")
    if found.unit is not None:
        settings["envelope_time"] = found.unit
    return Fit(len(members), settings, None, tuple(remarks)), "JSON documents without a schema id."


def _toml(value: str | Mapping[str, str]) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    return f"{{ {', '.join(f'{name} = {json.dumps(path)}' for name, path in value.items())} }}"


def _routing(records: Sequence[SampledRecord]) -> tuple[str, str]:
    """Propose where the game's name is, for a person to check."""
    names = Counter(
        name
        for record in records
        for name, value in dict(record.headers).items()
        if _PLAIN.fullmatch(name) and name != SCHEMA_ID_HEADER and _is_name(value)
    )
    shared = sorted(name for name, count in names.items() if count == len(records))
    if shared:
        number = len({dict(record.headers)[shared[0]] for record in records})
        others = f"; so do {', '.join(shared[1:4])}" if shared[1:] else ""
        return (
            f"header:{shared[0]}",
            f"Check the routing: each record has the header {shared[0]} ({number} values{others}).",
        )
    keys = {record.key for record in records}
    if all(_is_name(record.key) for record in records) and len(keys) * 2 <= len(records):
        return "key", f"Check the routing: keys look like names ({len(keys)} values in {len(records)} records)."
    if all(record.topic is not None for record in records):
        return "topic", "Check the routing: nothing in the records looks like a game's name, so the topic is the game."
    return "game:NAME", "Check the routing: nothing in the records looks like a game's name. Put the game's name in."


def _is_name(value: bytes | None) -> bool:
    try:
        return value is not None and is_game_name(value.decode())
    except UnicodeDecodeError:
        return False


def _by_shape(records: Sequence[SampledRecord]) -> list[tuple[_Shape, list[SampledRecord]]]:
    """Return the shapes that occur, each with its records; a record has the first shape that it is like."""
    found: dict[str, tuple[_Shape, list[SampledRecord]]] = {}
    for record in records:
        shape = next(each for each in _SHAPES if each.is_like(record))
        found.setdefault(shape.kind, (shape, []))[1].append(record)
    return list(found.values())


def _ids(shape: _Shape, members: Sequence[SampledRecord]) -> str:
    if shape.schema_of is None:
        return ""
    counts = Counter(map(shape.schema_of, members)).most_common()
    listed = ", ".join(f"{each} ({count})" for each, count in counts[:_NAMED])
    more = f" and {len(counts) - _NAMED} more" if len(counts) > _NAMED else ""
    return f"schema {listed}{more}"


def _bytes_of(record: SampledRecord) -> bytes:
    return record.value or b""


def _guid_header(record: SampledRecord) -> bytes | None:
    value = dict(record.headers).get(SCHEMA_ID_HEADER)
    return value if value is not None and len(value) >= 17 and value[0] == 1 else None


def _is_json(record: SampledRecord, begins: bytes = b"{[") -> bool:
    text = _bytes_of(record)
    if len(text) > _MOST_JSON_BYTES or not (first := text.lstrip()[:1]) or first not in begins:
        return False
    try:
        json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    return True


_SHAPES: Final = (
    _Shape(
        f"a schema's GUID in the header {SCHEMA_ID_HEADER}", lambda record: _guid_header(record) is not None,
        lambda record: (_guid_header(record) or b"")[1:17].hex(), "confluent",
    ),
    _Shape(
        "Confluent's framing with an id",
        lambda record: _bytes_of(record)[:1] == b"\x00" and len(_bytes_of(record)) >= 5,
        lambda record: str(int.from_bytes(_bytes_of(record)[1:5])), "confluent",
    ),
    _Shape(
        "Confluent's framing with a GUID",
        lambda record: _bytes_of(record)[:1] == b"\x01" and len(_bytes_of(record)) >= 17,
        lambda record: _bytes_of(record)[1:17].hex(), "confluent",
    ),
    _Shape(
        "AWS Glue's framing",
        lambda record: _bytes_of(record)[:2] in {b"\x03\x00", b"\x03\x05"} and len(_bytes_of(record)) >= 18,
        lambda record: _bytes_of(record)[2:18].hex(), "glue",
    ),
    _Shape(
        "an Avro file", lambda record: _bytes_of(record)[:4] == b"Obj\x01",
        unread="Each record is a whole Avro file, which turnout does not read: produce single records.",
    ),
    _Shape(
        "Avro's single-object encoding", lambda record: _bytes_of(record)[:2] == b"\xc3\x01",
        unread="The records have Avro's single-object encoding, which turnout does not read.",
    ),
    _Shape(_DOCUMENTS, lambda record: _is_json(record, b"{")),
    _Shape(
        "JSON other than objects", _is_json,
        unread="The records are JSON, but no objects, which turnout does not read: produce an object for each event.",
    ),
    _Shape(
        "none of these", lambda _: True,
        unread="The records name no schema. If a topic or game has one schema, set source.framing to topic or game; if "
        "they are messages around the events, set source.envelope (docs/envelopes.md).",
    ),
)  # fmt: skip
