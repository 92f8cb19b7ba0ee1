"""The kinds of schemas that registries keep, by the names that Confluent and Glue both use."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from pipeline.contracts.registries.answers import Found
from pipeline.contracts.registries.avro_sources import inlined
from pipeline.contracts.registries.protobuf_sources import descriptor_set, message_paths, only_message, path_bytes
from pipeline.errors import Refused
from pipeline.names import shown

_Reader: TypeAlias = Callable[[str, Mapping[str, str], bool, str | None], Found]


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
    return reader(text, imports, indexed, message)


def _avro(text: str, imports: Mapping[str, str], _indexed: bool, _message: str | None) -> Found:
    definition, name = inlined(text, imports)
    return Found("avro", definition, {b"": name})


def _protobuf(text: str, imports: Mapping[str, str], indexed: bool, message: str | None) -> Found:
    files = descriptor_set(text, imports)
    main = files.file[-1]
    if not main.message_type:
        raise Refused("The schema has no messages.")
    if indexed:
        messages = {path_bytes(path): name for path, name in message_paths(main).items()}
    else:
        messages = {b"": only_message(main, message)}
    return Found("protobuf", files.SerializeToString(deterministic=True), messages)


def _json(_text: str, _imports: Mapping[str, str], _indexed: bool, _message: str | None) -> Found:
    raise Refused("JSON Schema payloads are not read yet.")


_READERS: Final[Mapping[str, _Reader]] = MappingProxyType({"AVRO": _avro, "PROTOBUF": _protobuf, "JSON": _json})
