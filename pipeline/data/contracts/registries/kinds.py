"""The kinds of schemas that registries keep, by the names that Confluent and Glue both use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.data.contracts.envelopes.index_paths import path_bytes
from pipeline.data.contracts.registries.answers import Found
from pipeline.data.contracts.registries.avro_sources import inlined
from pipeline.data.contracts.registries.json_sources import bundled
from pipeline.data.contracts.registries.protobuf_sources import descriptor_set, message_paths, only_message


class _Reader(Protocol):
    def __call__(self, text: str, imports: Mapping[str, str], *, indexed: bool, message: str | None) -> Found: ...


def found(kind: str, text: str, imports: Mapping[str, str], *, indexed: bool, message: str | None = None) -> Found:
    """Return a schema as turnout's format takes it.

    Args:
        kind: the registry's name of its kind.
        text: the schema as the registry keeps it.
        imports: all that it refers to, directly or not, by name.
        indexed: an index path says which message of a protobuf file a payload is.
        message: which one it is, where there is no index path and several messages.

    Raises:
        Refused: turnout cannot use the schema.
        Transient: it cannot be read just now.
    """
    reader = _READERS.get(kind)
    if reader is None:
        raise Refused(f"The registry has a schema of kind {shown(kind)}, which turnout does not read.")
    return reader(text, imports, indexed=indexed, message=message)


def avro(text: str, imports: Mapping[str, str], *, indexed: bool, message: str | None) -> Found:  # noqa: ARG001 - Avro has neither
    """Return a schema of Avro.

    Raises:
        Refused: turnout cannot use the schema.
    """
    definition, name = inlined(text, imports)
    return Found("avro", definition, {b"": name})


def json_schema(text: str, imports: Mapping[str, str], *, indexed: bool, message: str | None) -> Found:  # noqa: ARG001 - JSON has no index paths
    """Return a JSON Schema, whose title names the event type; `message` does where it has none.

    Raises:
        Refused: turnout cannot use the schema.
    """
    definition, name = bundled(text, imports, message)
    return Found("json", definition, {b"": name})


def protobuf(files: FileDescriptorSet, *, indexed: bool, message: str | None) -> Found:
    """Return a set of files, of which the last one has the payloads' messages.

    Raises:
        Refused: turnout cannot use the schema.
    """
    if not files.file or not files.file[-1].message_type:
        raise Refused("The schema has no messages.")
    main = files.file[-1]
    if indexed:
        messages = {path_bytes(path): name for path, name in message_paths(main).items()}
    else:
        messages = {b"": only_message(main, message)}
    return Found("protobuf", files.SerializeToString(deterministic=True), messages)


def _protobuf(text: str, imports: Mapping[str, str], *, indexed: bool, message: str | None) -> Found:
    return protobuf(descriptor_set(text, imports), indexed=indexed, message=message)


_READERS: Final[Mapping[str, _Reader]] = MappingProxyType({"AVRO": avro, "PROTOBUF": _protobuf, "JSON": json_schema})
