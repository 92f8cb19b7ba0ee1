"""Sample payloads as JSON documents, by the definitions of `json_schemas`."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pipeline.demo.samples.json_schemas import json_schema
from pipeline.demo.samples.sample import COUNTRIES, PREPARED, WORDS, Sample

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SOME_TIME: Final = 1_767_225_600_000_000  # microseconds: 2026-01-01


class JsonSample:
    """The payloads of one family and version."""

    glue_format = "JSON"

    def __init__(self, family: str, version: int, seed: int) -> None:
        """Fill the payloads by chance.

        Raises:
            Refused: there is no such family or version.
        """
        schema = json_schema(family, version)
        self.message: str = schema["title"]
        self.text = json.dumps(schema)
        self.definition = self.text.encode()
        draw = random.Random(f"json payloads {seed} {family} {version}")
        self._prepared = [value(schema, "", draw) for _ in range(PREPARED)]

    def event(self, chance: int, sequence: int, time: int) -> Any:
        """Return the content of one event."""
        event = self._prepared[chance % len(self._prepared)]
        event["round"], event["ended_at"] = sequence, _text(time)
        return event

    def encode(self, event: Any) -> bytes:
        """Return the bytes of an event."""
        return json.dumps(event, separators=(",", ":")).encode()

    def broken(self, body: bytes, chance: int) -> bytes:
        """Return bytes that no strict reader of JSON accepts: cut, two documents, or a key twice."""
        match chance % 3:
            case 0:
                return body[:-1]
            case 1:
                return body + body
            case _:
                return body[:-1] + b',"round":' + str(chance % 1000).encode() + b"}"

    def serializer(self, client: Any, settings: dict[str, Any]) -> Callable[..., Any]:
        """Return what Confluent's serializer does: its own needs a validator of JSON Schema, which turnout does not."""
        return serializer_of(self, client, settings)


def serializer_of(sample: Sample, client: Any, settings: dict[str, Any]) -> Callable[..., Any]:
    """Return what Confluent's serializer of a sample in JSON does."""
    from confluent_kafka.schema_registry import Schema

    strategy, ids = settings["subject.name.strategy"], dict[str, bytes]()

    def serialize(event: Any, context: Any) -> bytes:
        subject = strategy(context, sample.message)
        if subject not in ids:
            number = client.register_schema(subject, Schema(sample.text, "JSON"))
            ids[subject] = b"\x00" + int(number).to_bytes(4, "big")
        return ids[subject] + sample.encode(event)

    return serialize


def value(schema: dict[str, Any], name: str, draw: random.Random) -> Any:
    """Return a value of a schema of the samples by chance; `name` is its property's."""
    kind = schema["type"]
    if isinstance(kind, list):
        return value({**schema, "type": kind[0]}, name, draw) if draw.random() < 0.5 else None
    if "enum" in schema:
        return draw.choice(schema["enum"])
    match kind:
        case "object" if "properties" in schema:
            present = [key for key in schema["properties"] if key in schema["required"] or draw.random() < 0.8]
            return {key: value(schema["properties"][key], key, draw) for key in present}
        case "object":
            return {
                draw.choice(WORDS): value(schema["additionalProperties"], name, draw) for _ in range(draw.randint(1, 2))
            }
        case "array":
            return [value(schema["items"], name, draw) for _ in range(draw.randint(1, 3))]
        case "boolean":
            return draw.choice((False, True))
        case "integer":
            return draw.randint(1, 1 << draw.choice((9, 40)))
        case "number":
            return round(draw.uniform(0, 100), 2)
    if schema.get("format") == "date-time":
        return _text(_SOME_TIME + draw.randint(0, 1_000_000))
    if name.endswith("_id"):
        return f"{draw.getrandbits(64):016x}"
    return draw.choice(COUNTRIES if name == "country" else WORDS)


def _text(time: int) -> str:
    """Return a time in microseconds as text of RFC 3339."""
    return (_EPOCH + timedelta(microseconds=time)).isoformat()
