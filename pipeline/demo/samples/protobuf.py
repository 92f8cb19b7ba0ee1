"""Sample payloads in protobuf, by the definitions in `protos/samples`. Each version adds fields to the one before.

The generated modules have a package per version, as one process has all of them. What the simulator sends and registers
has the package of version 1 in all versions: numbers go on only within one full name.
"""

import hashlib
import importlib
import random
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from pipeline.demo.samples.sample import COUNTRIES, PREPARED, WORDS, Sample, check_version

_MESSAGES: Final = {"puzzle": "LevelPlayed", "shooter": "MatchPlayed", "racing": "LapDriven"}
_MICROSECONDS: Final = 1_000_000


class ProtobufSample:
    """The payloads of one family and version."""

    glue_format = "PROTOBUF"

    def __init__(self, family: str, version: int, seed: int) -> None:
        """Fill the payloads by chance.

        Raises:
            Refused: there is no such family or version.
        """
        self._class = message_class(family, version)
        wanted: dict[str, FileDescriptor] = {}
        _collect_files(self._class.DESCRIPTOR.file, wanted)
        file_set = FileDescriptorSet()
        for item in wanted.values():
            item.CopyToProto(file_set.file.add())
        self.message: str = self._class.DESCRIPTOR.full_name
        self.definition: bytes = file_set.SerializeToString(deterministic=True)
        self._source = f"v{version}.proto"
        self._family, self._version = family, version
        draw = random.Random(f"payloads {seed} {family} {version}")
        self._prepared = [self._class() for _ in range(PREPARED)]
        for payload in self._prepared:
            _fill(payload, draw)

    @property
    def text(self) -> str:
        """The .proto file."""
        source = files(f"protos.samples.{self._family}").joinpath(self._source).read_bytes()
        return _of_one_package(source, self._family, self._version).decode()

    def event(self, chance: int, sequence: int, time: int) -> Any:
        """Return the content of one event."""
        message = self._prepared[chance % len(self._prepared)]
        message.round = sequence
        message.ended_at.seconds, micros = divmod(time, _MICROSECONDS)
        message.ended_at.nanos = micros * 1000
        return message

    def encode(self, event: Any) -> bytes:
        """Return the bytes of an event."""
        payload: bytes = event.SerializeToString(deterministic=True)
        return payload

    def broken(self, body: bytes, chance: int) -> bytes:
        """Return bytes no protobuf parser accepts: the payload without its last byte, or noise."""
        # The last byte of a message always belongs to its last field, so leaving it out breaks that field.
        return body[:-1] if chance % 2 else noise(chance)

    def serializer(self, client: Any, settings: dict[str, Any]) -> Callable[..., Any]:
        """Return confluent-kafka's serializer, which frames with the index path of the message."""
        return serializer_of(self, client, settings)


def serializer_of(sample: Sample, client: Any, settings: dict[str, Any]) -> Callable[..., Any]:
    """Return confluent-kafka's serializer of a sample in protobuf."""
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    pool = DescriptorPool()
    for each in FileDescriptorSet.FromString(sample.definition).file:
        pool.Add(each)
    made = GetMessageClass(pool.FindMessageTypeByName(sample.message))
    serializer: Callable[..., Any] = ProtobufSerializer(made, _RegistersText(client, sample.text), settings)

    def serialize(event: Any, context: Any) -> Any:
        return serializer(made.FromString(sample.encode(event)), context)

    return serialize


class _RegistersText:
    """A registry's client that registers the .proto file, as Java's serializers do.

    The serializer gives base64 of the descriptor, which Apicurio keeps but cannot compare with a further version.
    """

    def __init__(self, client: Any, text: str) -> None:
        self._client = client
        self._text = text

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def register_schema_full_response(self, subject: str, schema: Any, **options: Any) -> Any:
        from confluent_kafka.schema_registry import Schema

        text = Schema(self._text, schema.schema_type, schema.references)
        return self._client.register_schema_full_response(subject, text, **options)


@lru_cache(maxsize=64)
def message_class(family: str, version: int) -> type[Any]:
    """Return the class of a sample's messages, in a pool of their own.

    Raises:
        Refused: there is no such family or version.
    """
    check_version(family, version)
    generated: FileDescriptor = importlib.import_module(f"protos.samples.{family}.v{version}_pb2").DESCRIPTOR
    wanted: dict[str, FileDescriptor] = {}
    _collect_files(generated, wanted)
    pool = DescriptorPool()
    for each in wanted.values():
        content = _of_one_package(each.serialized_pb, family, version) if each is generated else each.serialized_pb
        pool.Add(FileDescriptorProto.FromString(content))
    message: type[Any] = GetMessageClass(pool.FindMessageTypeByName(f"samples.{family}.v1.{_MESSAGES[family]}"))
    return message


def _of_one_package(content: bytes, family: str, version: int) -> bytes:
    """Return a definition, as text or compiled, in the package of version 1; both names are equally long."""
    return content.replace(f"samples.{family}.v{version}".encode(), f"samples.{family}.v1".encode())


def noise(chance: int) -> bytes:
    """Return 9 to 40 bytes that begin with wire type 7, which does not exist."""
    digest = hashlib.sha256(chance.to_bytes(8, "big")).digest()
    return b"\x0f" + digest[: 8 + chance % 32]


def _collect_files(item: FileDescriptor, into: dict[str, FileDescriptor]) -> None:
    """Add a file after everything it imports: the order in which a descriptor pool takes them."""
    for dependency in item.dependencies:
        _collect_files(dependency, into)
    into.setdefault(item.name, item)


def _fill(message: Any, draw: random.Random) -> None:
    """Set every field of a message, and of each oneof the member that chance picks."""
    chosen = {oneof.name: draw.choice(oneof.fields).name for oneof in message.DESCRIPTOR.oneofs}
    for item in message.DESCRIPTOR.fields:
        if item.containing_oneof is not None and chosen[item.containing_oneof.name] != item.name:
            continue
        if item.message_type is not None and item.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, item.name), item.message_type, draw)
        elif item.is_repeated:
            for _ in range(draw.randint(1, 3)):
                if item.message_type is not None:
                    _fill(getattr(message, item.name).add(), draw)
                else:
                    getattr(message, item.name).append(_scalar(item, draw))
        elif item.message_type is not None:
            _fill(getattr(message, item.name), draw)
        else:
            setattr(message, item.name, _scalar(item, draw))


def _fill_map(entries: Any, entry: Any, draw: random.Random) -> None:
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for _ in range(draw.randint(1, 2)):
        name = _scalar(key, draw)
        if value.message_type is not None:
            _fill(entries[name], draw)
        else:
            entries[name] = _scalar(value, draw)


def _scalar(item: Any, draw: random.Random) -> Any:
    if item.enum_type is not None:
        return draw.choice(item.enum_type.values).number
    match item.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if item.type == FieldDescriptor.TYPE_BYTES:
            return draw.randbytes(16)
        case FieldDescriptor.CPPTYPE_STRING if item.name.endswith("_id"):
            return f"{draw.getrandbits(64):016x}"
        case FieldDescriptor.CPPTYPE_STRING:
            return draw.choice(COUNTRIES if item.name == "country" else WORDS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return draw.choice((False, True))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return round(draw.uniform(0, 100), 2)
        case _ if item.full_name == "google.protobuf.Timestamp.seconds":
            return 1_767_225_600
        case _:
            return draw.randint(1, 500)
