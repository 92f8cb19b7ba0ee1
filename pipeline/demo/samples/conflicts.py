"""Sample schemas with one field of another type, as a careless release has them: for the demo's faults."""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any, Final

import fastavro
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from pipeline.base.errors import Refused
from pipeline.demo.samples.json import value
from pipeline.demo.samples.supported import payload_schema


@dataclass(frozen=True, slots=True)
class ConflictingSchema:
    """A schema that takes a field of an earlier one for another type, and its payloads."""

    field: str
    message: str  # full name
    definition: bytes  # as `turnout schemas register` takes it
    payload: Callable[[int], bytes]  # of an event with this number


def conflicts(format_name: str, family: str, version: int) -> Iterator[ConflictingSchema]:
    """Yield the schemas of one family and version with a text turned into a number, one text at a time.

    Raises:
        Refused: there is no such format, family or version.
    """
    if format_name not in _CONFLICTS:
        raise Refused(f"No release breaks a game in {format_name!r}: choose one in {' or '.join(_CONFLICTS)}.")
    message, definition = payload_schema(family, version, format_name)
    return _CONFLICTS[format_name](message, definition)


def _protobuf(message: str, definition: bytes) -> Iterator[ConflictingSchema]:
    texts = [
        field.name
        for field in _message(FileDescriptorSet.FromString(definition), message).field
        if field.type == FieldDescriptorProto.TYPE_STRING
        and field.label != FieldDescriptorProto.LABEL_REPEATED
        and not field.HasField("oneof_index")
    ]
    for name in reversed(texts):
        files = FileDescriptorSet.FromString(definition)
        (field,) = (each for each in _message(files, message).field if each.name == name)
        field.type = FieldDescriptorProto.TYPE_INT64
        changed = files.SerializeToString(deterministic=True)
        yield ConflictingSchema(name, message, changed, _protobuf_payloads(files, message, name))


def _protobuf_payloads(files: FileDescriptorSet, message: str, name: str) -> Callable[[int], bytes]:
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    kind: Any = GetMessageClass(pool.FindMessageTypeByName(message))

    def payload(number: int) -> bytes:
        made: bytes = kind(**{name: number, "round": number}).SerializeToString(deterministic=True)
        return made

    return payload


def _message(files: FileDescriptorSet, full_name: str) -> DescriptorProto:
    (found,) = (each for file in files.file for each in file.message_type if f"{file.package}.{each.name}" == full_name)
    return found


def _avro(message: str, definition: bytes) -> Iterator[ConflictingSchema]:
    texts = [field["name"] for field in json.loads(definition)["fields"] if field["type"] == "string"]
    for name in reversed(texts):
        schema = json.loads(definition)
        (field,) = (each for each in schema["fields"] if each["name"] == name)
        field["type"] = "long"
        yield ConflictingSchema(name, message, json.dumps(schema).encode(), _avro_payloads(schema))


def _avro_payloads(schema: dict[str, Any]) -> Callable[[int], bytes]:
    from fastavro.utils import generate_one

    parsed = fastavro.parse_schema(schema)
    record = generate_one(parsed)

    def payload(_number: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, record)
        return out.getvalue()

    return payload


def _json(message: str, definition: bytes) -> Iterator[ConflictingSchema]:
    texts = [key for key, each in json.loads(definition)["properties"].items() if each == {"type": "string"}]
    for name in reversed(texts):
        schema = json.loads(definition)
        schema["properties"][name] = {"type": "integer"}
        yield ConflictingSchema(
            name, message, json.dumps(schema).encode(), _json_payloads(value(schema, "", Random(name)), name)
        )


def _json_payloads(document: dict[str, Any], name: str) -> Callable[[int], bytes]:
    def payload(number: int) -> bytes:
        return json.dumps(document | {name: number}).encode()

    return payload


_CONFLICTS: Final[Mapping[str, Callable[[str, bytes], Iterator[ConflictingSchema]]]] = MappingProxyType(
    {"protobuf": _protobuf, "avro": _avro, "json": _json}
)
