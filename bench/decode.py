"""`python -m bench.decode`: how many payloads a core decodes in a second, by format.

Twenty columns with the same values in each format: numbers, texts, a nested record, an array, a map, an enum, times and
three fields that may be absent. Each contender turns the same array of payloads into columns, in turn, in one process;
its CPU time with all threads counts, that of the JVM with `--spark`. See docs/performance.md.
"""

import argparse
import json
import operator
import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, Final

import fastavro
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from pyspark.sql import SparkSession

from bench import machine
from bench.command import keep
from bench.spark_decoding import SparkDecoding, from_avro_of, from_json_of, session
from bench.text import number, table
from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder, declared_schema
from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.formats.supported import columns, decoder, format_of
from pipeline.data.contracts.schemas import Schema

_GOALS: Final = {"avro": 500_000, "json": 250_000}  # payloads a second on one core
_BY_SPARK: Final = 4  # times as many JSON documents as Spark's from_json
_FEW: Final = 20  # rows of a game in a pass of many games
_NAME: Final = "bench.Lap"
_DECLARED, _UNDECLARED = "json by the schema of a superset", "json that nobody declared"
_ON_TOP: Final = 1.05  # times as much CPU as by the declared schema, while all shapes are known
_FROM_JSON: Final = "json by Spark's from_json"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPTIONAL: Final = frozenset({"boost", "note", "gap"})
_AVRO: Final[dict[str, Any]] = {
    "player": "string",
    "lap": "int",
    "score": "long",
    "speed": "double",
    "grip": "float",
    "clean": "boolean",
    "car": "string",
    "track": "string",
    "replay": "bytes",
    "weather": {"type": "enum", "name": "Weather", "symbols": ["DRY", "WET", "SNOW"]},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "place": {"type": "record", "name": "Place", "fields": [{"name": name, "type": "double"} for name in ("x", "y")]},
    "sectors": {"type": "array", "items": "int"},
    "items": {"type": "map", "values": "long"},
    "boost": ["null", "int"],
    "note": ["null", "string"],
    "gap": ["null", "double"],
    "season": "int",
}
_PROTOBUF: Final[dict[str, str]] = {  # price in cents and day as a number: protobuf has neither type
    "player": "string", "lap": "int32", "score": "int64", "speed": "double", "grip": "float", "clean": "bool",
    "car": "string", "track": "string", "replay": "bytes", "weather": "Weather", "price": "int64", "day": "int32",
    "at": "google.protobuf.Timestamp", "place": "Place", "sectors": "repeated int32", "items": "ItemsEntry",
    "boost": "int32", "note": "string", "gap": "double", "season": "int32",
}  # fmt: skip


def values(rows: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return the values of `rows` payloads, the same for each seed."""
    chance = random.Random(seed)
    return [
        {
            "player": f"player-{chance.randrange(10**6):06}",
            "lap": chance.randrange(80),
            "score": chance.getrandbits(40),
            "speed": chance.random() * 300,
            "grip": chance.randrange(256) / 256,
            "clean": chance.random() < 0.9,
            "car": chance.choice(("falcon", "heron", "kestrel")),
            "track": f"track {chance.randrange(40)}",
            "replay": chance.randbytes(12),
            "weather": chance.randrange(3),
            "price": chance.randrange(10**7),
            "day": 20_000 + chance.randrange(1_000),
            "at": 1_790_000_000_000_000 + chance.randrange(10**12),
            "place": {"x": chance.random(), "y": chance.random()},
            "sectors": [chance.randrange(60_000) for _ in range(chance.randrange(5))],
            "items": {f"item{index}": chance.randrange(10**6) for index in range(chance.randrange(3))},
            "boost": chance.choice((None, chance.randrange(100))),
            "note": chance.choice((None, "well driven")),
            "gap": chance.choice((None, chance.random())),
            "season": 2026,
        }
        for _ in range(rows)
    ]


def avro_schema() -> Schema:
    """Return the definition in Avro."""
    given = {"type": "record", "name": _NAME, "fields": [{"name": name, "type": kind} for name, kind in _AVRO.items()]}
    return Schema(1, "avro", _NAME, format_of("avro").canonical(_NAME, json.dumps(given).encode()))


def avro_payloads(of: Schema, rows: list[dict[str, Any]]) -> list[bytes]:
    """Return the rows as fastavro writes them."""
    parsed = fastavro.parse_schema(json.loads(of.definition))
    symbols = _AVRO["weather"]["symbols"]
    written = []
    for row in rows:
        price = int(row["price"]).to_bytes(4, "big", signed=True)
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row | {"weather": symbols[row["weather"]], "price": price})
        written.append(buffer.getvalue())
    return written


def protobuf_schema() -> Schema:
    """Return the definition in protobuf."""
    file = FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    weather = file.enum_type.add(name="Weather")
    for value, symbol in enumerate(_AVRO["weather"]["symbols"]):
        weather.value.add(name=symbol, number=value)
    place = file.message_type.add(name="Place")
    for value, name in enumerate(("x", "y"), 1):
        place.field.add(name=name, number=value, type=_kind("double"), label=FieldDescriptorProto.LABEL_OPTIONAL)
    lap = file.message_type.add(name="Lap")
    entry = lap.nested_type.add(name="ItemsEntry")
    entry.options.map_entry = True
    for value, (name, kind) in enumerate({"key": "string", "value": "int64"}.items(), 1):
        entry.field.add(name=name, number=value, type=_kind(kind), label=FieldDescriptorProto.LABEL_OPTIONAL)
    for value, (name, given) in enumerate(_PROTOBUF.items(), 1):
        kind = given.removeprefix("repeated ")
        each = lap.field.add(name=name, number=value, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if given != kind or kind.endswith("Entry"):
            each.label = FieldDescriptorProto.LABEL_REPEATED
        if kind.islower() and "." not in kind:
            each.type = _kind(kind)
        else:
            each.type = _kind("enum" if kind == "Weather" else "message")
            each.type_name = "." + {"ItemsEntry": "bench.Lap.ItemsEntry"}.get(
                kind, kind if "." in kind else f"bench.{kind}"
            )
        if name in _OPTIONAL:
            each.proto3_optional = True
            each.oneof_index = len(lap.oneof_decl)
            lap.oneof_decl.add(name=f"_{name}")
    definition = FileDescriptorSet(file=[file]).SerializeToString()
    return Schema(1, "protobuf", _NAME, format_of("protobuf").canonical(_NAME, definition))


def protobuf_payloads(of: Schema, rows: list[dict[str, Any]]) -> list[bytes]:
    """Return the rows as google.protobuf writes them."""
    message: Any = message_factory.GetMessageClass(describe(of.message, of.definition))
    written = []
    for row in rows:
        at = {"seconds": row["at"] // 10**6, "nanos": row["at"] % 10**6 * 1000}
        written.append(message(**row | {"at": at}).SerializeToString())
    return written


def json_schema(*, maps: bool = True) -> Schema:
    """Return the definition as a JSON Schema; without maps the entries of `items` are a list of objects."""
    given = {name: _in_json(kind) for name, kind in _AVRO.items()}
    if not maps:
        item = {"key": {"type": "string"}, "value": {"type": "integer"}}
        given["items"] = {"type": "array", "items": {"type": "object", "properties": item}}
    required = [name for name in given if name not in _OPTIONAL]
    whole = {"title": _NAME, "type": "object", "properties": given, "required": required}
    return Schema(1, "json", _NAME, format_of("json").canonical(_NAME, json.dumps(whole).encode()))


def _in_json(kind: Any) -> dict[str, Any]:
    match kind:
        case [_, valued]:
            return _in_json(valued)
        case {"symbols": symbols}:
            return {"enum": symbols}
        case {"logicalType": "timestamp-micros"}:
            return {"type": "string", "format": "date-time"}
        case {"fields": fields}:
            return {"type": "object", "properties": {each["name"]: _in_json(each["type"]) for each in fields}}
        case {"items": items}:
            return {"type": "array", "items": _in_json(items)}
        case {"values": values}:
            return {"type": "object", "additionalProperties": _in_json(values)}
        case {"type": inner}:  # price in cents and day as a number: JSON has neither type
            return _in_json("int" if inner == "bytes" else inner)
    names = {"int": "integer", "long": "integer", "float": "number", "double": "number", "bytes": "string"}
    return {"type": names.get(kind, kind)}


def json_payloads(rows: list[dict[str, Any]], *, maps: bool = True) -> list[bytes]:
    """Return the rows as Python's json writes them, without white space; what is absent is left out."""
    symbols, written = _AVRO["weather"]["symbols"], []
    for row in rows:
        items = row["items"] if maps else [{"key": key, "value": value} for key, value in row["items"].items()]
        at = (_EPOCH + timedelta(microseconds=row["at"])).isoformat()
        named = {"weather": symbols[row["weather"]], "replay": row["replay"].hex(), "at": at, "items": items}
        document = {name: value for name, value in (row | named).items() if value is not None}
        written.append(json.dumps(document, separators=(",", ":")).encode())
    return written


def _kind(name: str) -> FieldDescriptorProto.Type.ValueType:
    return FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to decode."""

    work: Callable[[], int]  # decodes all payloads and returns how many there were
    clock: Callable[[], float] = time.process_time  # CPU seconds that it has used so far


def contenders(rows: int, spark: SparkSession | None = None) -> dict[str, Contender]:
    """Return what is measured, by name; Spark's function with a session only."""
    drawn = values(rows)
    avro, protobuf = avro_schema(), protobuf_schema()
    in_avro, in_protobuf = avro_payloads(avro, drawn), protobuf_payloads(protobuf, drawn)
    flat, in_json = json_schema(maps=False), json_payloads(drawn, maps=False)
    parsed = fastavro.parse_schema(json.loads(avro.definition))

    def by_fastavro() -> int:
        read = [fastavro.schemaless_reader(BytesIO(payload), parsed, None) for payload in in_avro]
        return int(pa.RecordBatch.from_pylist(read, schema=columns(avro)).num_rows)

    def by_turnout(of: Schema, contents: list[bytes], at_a_time: int = rows) -> Contender:
        held, decode = pa.array(contents, pa.binary()), decoder(of).decode
        batches = [held.slice(first, at_a_time) for first in range(0, rows, at_a_time)]
        return Contender(lambda: sum(int(decode(each).batch.num_rows) for each in batches))

    bad = [payload[:-1] if index % 100 == 0 else payload for index, payload in enumerate(in_avro)]
    cut = [payload[:-1] if index % 100 == 0 else payload for index, payload in enumerate(in_json)]
    twice = [b'{"lap":0,' + payload[1:] if index % 100 == 0 else payload for index, payload in enumerate(in_json)]
    superset = gathered(Superset(), json_payloads(values(1000), maps=False))
    undeclared, undecoded = UndeclaredDecoder(superset), pa.array(in_json, pa.binary())
    few = [undecoded.slice(first, _FEW) for first in range(0, rows, _FEW)]
    tall = drawn[0] | {"sectors": list(range(50_000))}
    found = {
        "avro": by_turnout(avro, in_avro),
        "avro, one in a hundred malformed": by_turnout(avro, bad),
        "avro, one array of 50,000": by_turnout(avro, [*in_avro[:-1], *avro_payloads(avro, [tall])]),
        "avro by fastavro": Contender(by_fastavro),
        f"avro, {_FEW} at a time": by_turnout(avro, in_avro, _FEW),
        "protobuf": by_turnout(protobuf, in_protobuf),
        f"protobuf, {_FEW} at a time": by_turnout(protobuf, in_protobuf, _FEW),
        "json": by_turnout(flat, in_json),
        f"json, {_FEW} at a time": by_turnout(flat, in_json, _FEW),
        "json, one in a hundred malformed": by_turnout(flat, cut),
        "json, one in a hundred malformed by a key twice": by_turnout(flat, twice),
        _DECLARED: by_turnout(declared_schema("", superset), in_json),
        _UNDECLARED: Contender(lambda: undeclared.decode(undecoded).batch.num_rows),
        f"{_DECLARED}, {_FEW} at a time": by_turnout(declared_schema("", superset), in_json, _FEW),
        f"{_UNDECLARED}, {_FEW} at a time": Contender(
            lambda: sum(undeclared.decode(each).batch.num_rows for each in few)
        ),
        "json with a map": by_turnout(json_schema(), json_payloads(drawn)),
    }
    if spark is not None:
        by_spark = SparkDecoding(spark, in_avro)
        found["avro by Spark's from_avro"] = Contender(
            lambda: by_spark.decode(from_avro_of(avro)), by_spark.cpu_seconds
        )
        found["avro, read by Spark and not decoded"] = Contender(by_spark.read, by_spark.cpu_seconds)
        documents = SparkDecoding(spark, in_json)
        found[_FROM_JSON] = Contender(lambda: documents.decode(from_json_of(flat)), documents.cpu_seconds)
    return found


def measure(each_one: Mapping[str, Contender], repeats: int) -> dict[str, list[float]]:
    """Return the payloads per CPU second of each contender, run by run; all take turns, the first turn is not kept."""
    pa.set_cpu_count(1)
    found: dict[str, list[float]] = {name: [] for name in each_one}
    for turn in range(repeats + 1):
        for name, contender in each_one.items():
            begun = contender.clock()
            decoded = contender.work()
            if turn:
                found[name].append(decoded / max(contender.clock() - begun, 0.001))
    return found


def report(rates: dict[str, list[float]]) -> str:
    """Return the rates as a table, with the goal."""
    listed = [[name, *(number(each / 1_000) for each in (median(of), min(of), max(of)))] for name, of in rates.items()]
    goals = [
        f"{_verdict(median(rates[name]) >= goal)}: at least {goal // 1_000:,} thousand payloads of {name} a second"
        for name, goal in _GOALS.items()
        if name in rates
    ]
    if _UNDECLARED in rates:
        on_top = median(map(operator.truediv, rates[_DECLARED], rates[_UNDECLARED]))
        goals.append(
            f"{_verdict(on_top <= _ON_TOP)}: what nobody declared takes {on_top:.3f} times the CPU, at most 1.05"
        )
    if _FROM_JSON in rates:
        held = median(rates["json"]) >= _BY_SPARK * median(rates[_FROM_JSON])
        goals.append(f"{_verdict(held)}: at least {_BY_SPARK} times as many JSON documents as Spark's from_json")
    return "\n".join([table(["thousand payloads per CPU second", "median", "least", "most"], listed), *goals])


def _verdict(held: bool) -> str:
    return "HELD" if held else "NOT held"


def main() -> None:
    """Measure, print a table and JSON, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.decode")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument(
        "--spark", action="store_true", help="measure Spark's from_avro and from_json as well; fetches its jar once"
    )
    parser.add_argument("--envelopes", action="store_true", help="open documents as envelopes, and decode nothing")
    parser.add_argument("--jars", type=Path, default=Path.home() / ".cache/turnout/bench", help="where the jar is kept")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.envelopes:
        rates = measure(import_module("bench.envelopes").contenders(options.rows), options.repeats)
    else:
        with session(options.jars) if options.spark else nullcontext() as spark:
            rates = measure(contenders(options.rows, spark), options.repeats)
    result = {
        "machine": machine.describe(),
        "load": machine.load_average(),
        "rows": options.rows,
        "payloads_per_cpu_second": rates,
    }
    print(json.dumps(result, indent=1))
    print(report(rates))
    keep(result, options.out)


if __name__ == "__main__":
    main()
