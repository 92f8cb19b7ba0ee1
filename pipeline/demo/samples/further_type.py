"""A sample under another name: the payloads of a further event type of a game."""

import json
import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from pipeline.demo.samples import avro, protobuf
from pipeline.demo.samples import json as json_sample
from pipeline.demo.samples.sample import Sample


class FurtherType:
    """The payloads of a sample as an event type of their own: the message's name ends with a number."""

    def __init__(self, base: Sample, number: int) -> None:
        """Rename the message; the payloads stay as they are."""
        self._base = base
        self.message, self.glue_format = f"{base.message}{number}", base.glue_format
        renamed = {"PROTOBUF": _protobuf, "AVRO": _avro, "JSON": _json}[base.glue_format]
        self.definition: bytes = renamed(base.definition, base.message, number)

    @property
    def text(self) -> str:
        """The definition as people write it."""
        if self.glue_format != "PROTOBUF":
            return self.definition.decode()
        own = self._base.message.rpartition(".")[2]
        return re.sub(rf"\b{own}\b", self.message.rpartition(".")[2], self._base.text)

    def event(self, chance: int, sequence: int, time: int) -> Any:
        """Return the content of one event."""
        return self._base.event(chance, sequence, time)

    def encode(self, event: Any) -> bytes:
        """Return the bytes of an event."""
        return self._base.encode(event)

    def broken(self, body: bytes, chance: int) -> bytes:
        """Return bytes that no parser accepts."""
        return self._base.broken(body, chance)

    def serializer(self, client: Any, settings: dict[str, Any]) -> Callable[..., Any]:
        """Return the sample's serializer for the renamed definition."""
        made = {"PROTOBUF": protobuf.serializer_of, "AVRO": avro.serializer_of, "JSON": json_sample.serializer_of}
        return made[self.glue_format](self, client, settings)


def _protobuf(definition: bytes, message: str, number: int) -> bytes:
    files, old = FileDescriptorSet.FromString(definition), f".{message}"
    for file in files.file:
        for each in file.message_type:
            _refer(each, old, f"{old}{number}")
            if f"{file.package}.{each.name}" == message:
                each.name = f"{each.name}{number}"
    return files.SerializeToString(deterministic=True)


def _refer(message: DescriptorProto, old: str, new: str) -> None:
    """Let fields name the renamed message, and those inside of it."""
    for field in message.field:
        if field.type_name == old or field.type_name.startswith(f"{old}."):
            field.type_name = field.type_name.replace(old, new, 1)
    for inner in message.nested_type:
        _refer(inner, old, new)


def _avro(definition: bytes, _: str, number: int) -> bytes:
    schema = json.loads(definition)
    return json.dumps({**schema, "name": f"{schema['name']}{number}"}).encode()


def _json(definition: bytes, _: str, number: int) -> bytes:
    schema = json.loads(definition)
    return json.dumps({**schema, "title": f"{schema['title']}{number}"}).encode()
