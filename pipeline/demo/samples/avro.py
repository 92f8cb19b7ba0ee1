"""Sample payloads in Avro, by the definitions in `avro_schemas`, written by fastavro."""

import hashlib
import io
import json
import random
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import fastavro

from pipeline.demo.samples.avro_schemas import avro_schema
from pipeline.demo.samples.sample import COUNTRIES, PREPARED, WORDS, Sample

_SOME_DAY: Final = 20_454  # days since 1970: 2026-01-01


class AvroSample:
    """The payloads of one family and version."""

    glue_format = "AVRO"

    def __init__(self, family: str, version: int, seed: int) -> None:
        """Fill the payloads by chance.

        Raises:
            Refused: there is no such family or version.
        """
        schema = avro_schema(family, version)
        self.message = f"{schema['namespace']}.{schema['name']}"
        self.text = json.dumps(schema)
        self.definition = self.text.encode()
        self._schema = fastavro.parse_schema(schema)
        draw = random.Random(f"avro payloads {seed} {family} {version}")
        self._prepared = [_value(schema, "", {}, draw) for _ in range(PREPARED)]

    def event(self, chance: int, sequence: int, time: int) -> Any:
        """Return the content of one event."""
        event = self._prepared[chance % len(self._prepared)]
        event["round"], event["ended_at"] = sequence, time
        return event

    def encode(self, event: Any) -> bytes:
        """Return the bytes of an event."""
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema, event)
        return out.getvalue()

    def broken(self, body: bytes, chance: int) -> bytes:
        """Return bytes that no strict Avro reader accepts: cut, longer than the record, or an endless length."""
        match chance % 3:
            case 0:
                return body[:-1]  # no encoding of a record is the beginning of another one's
            case 1:
                return body + b"\0"
            case _:
                return b"\xff" * 11 + hashlib.sha256(chance.to_bytes(8, "big")).digest()

    def serializer(self, client: Any, settings: dict[str, Any]) -> Callable[..., Any]:
        """Return confluent-kafka's serializer."""
        return serializer_of(self, client, settings)


def serializer_of(sample: Sample, client: Any, settings: dict[str, Any]) -> Callable[..., Any]:
    """Return confluent-kafka's serializer of a sample in Avro."""
    from confluent_kafka.schema_registry.avro import AvroSerializer

    serializer: Callable[..., Any] = AvroSerializer(client, sample.text, conf=settings)
    return serializer


def _value(kind: Any, name: str, known: dict[str, Any], draw: random.Random) -> Any:
    """Return a value of a type; `name` is its field's, `known` are the named types so far."""
    if isinstance(kind, list):
        return _value(draw.choice(kind), name, known, draw)
    if isinstance(kind, str):
        return _value(known[kind], name, known, draw) if kind in known else _primitive(kind, name, draw)
    if "name" in kind:
        known[kind["name"]] = kind
    match kind["type"]:
        case "record":
            return {field["name"]: _value(field["type"], field["name"], known, draw) for field in kind["fields"]}
        case "enum":
            return draw.choice(kind["symbols"])
        case "array":
            return [_value(kind["items"], name, known, draw) for _ in range(draw.randint(1, 3))]
        case "map":
            return {draw.choice(WORDS): _value(kind["values"], name, known, draw) for _ in range(draw.randint(1, 2))}
        case "fixed":
            return draw.randbytes(kind["size"])
    return _logical(kind, name, draw)


def _logical(kind: dict[str, Any], name: str, draw: random.Random) -> Any:
    match kind.get("logicalType"):
        case "decimal":
            return Decimal(draw.randint(-99_999, 99_999)).scaleb(-kind["scale"])
        case "uuid":
            return str(uuid.UUID(int=draw.getrandbits(128), version=4))
        case "date":
            return _SOME_DAY + draw.randint(0, 364)
        case "timestamp-micros":
            return 1_767_225_600_000_000 + draw.randint(0, 1_000_000)
    return _primitive(kind["type"], name, draw)


def _primitive(kind: str, name: str, draw: random.Random) -> Any:
    match kind:
        case "null":
            return None
        case "boolean":
            return draw.choice((False, True))
        case "float" | "double":
            return round(draw.uniform(0, 100), 2)
        case "bytes":
            return draw.randbytes(16)
        case "string" if name.endswith("_id"):
            return f"{draw.getrandbits(64):016x}"
        case "string":
            return draw.choice(COUNTRIES if name == "country" else WORDS)
        case "long":
            return draw.randint(1, 1 << draw.choice((9, 40)))  # also what an int cannot hold
    return draw.randint(1, 500)
