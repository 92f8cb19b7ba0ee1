"""A folder of files as a registry: `WRITER.avsc`, `WRITER.json` with a JSON Schema, and `WRITER.desc` of protoc.

A file's WRITER is the decimal id, the GUID or UUID, or the topic's or game's name in the quoting of URLs.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import quote
from uuid import UUID

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import shown
from pipeline.data.contracts.formats.supported import FORMATS
from pipeline.data.contracts.registries.answers import Absent, Answer, Found, settled
from pipeline.data.contracts.registries.bounded_http import MAX_BYTES
from pipeline.data.contracts.registries.kinds import avro, json_schema, protobuf


class FolderResolver:
    """Looks for files in one folder, not in the folders inside it."""

    def __init__(self, folder: Path, *, message: str | None = None) -> None:
        """Keep the folder, and read nothing yet.

        Args:
            folder: holds the files.
            message: the protobuf message of writers that have no index path, where their file has several.
        """
        self._folder = folder
        self._message = message

    def resolve(self, writer: bytes) -> Answer:
        """Look for the schema of a writer."""
        return settled(lambda: self._answer(writer))

    def _answer(self, writer: bytes) -> Answer:
        name, indexed = _name(writer)
        wanted = {f"{name}{suffix}": reader for suffix, reader in _READERS.items()}
        try:
            with os.scandir(self._folder) as entries:
                # Names are compared, and no path is made of a writer. One that is here may be a folder or a pipe.
                files = [(entry.name, entry.name in wanted and entry.is_file()) for entry in entries]
            present = [file for file, matches in files if matches]
            if not files:
                raise Transient(f"The registry's folder {shown(str(self._folder))} is empty: it may not be mounted.")
            if not present:
                return Absent(f"The registry's folder has no {' and no '.join(shown(file) for file in wanted)}.")
            if len(present) > 1:
                raise Refused(f"The registry's folder has both {' and '.join(shown(file) for file in present)}.")
            with (self._folder / present[0]).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise Transient(f"The registry's folder cannot be read: {first_line(error)}.") from error
        if len(content) > MAX_BYTES:
            raise Refused(f"{shown(present[0])} has more than {MAX_BYTES // 1024 // 1024} MiB.")
        return wanted[present[0]](content, indexed, self._message)


def _name(writer: bytes) -> tuple[str, bool]:
    """Return a writer's name in the folder, and whether an index path follows its id."""
    if writer[:1] == b"\x00" and len(writer) >= 5:
        return str(int.from_bytes(writer[1:5])), True
    if writer[:1] == b"\x01" and len(writer) >= 17:
        return str(UUID(bytes=writer[1:17])), True
    if writer[:1] == b"\x03" and len(writer) == 17:
        return str(UUID(bytes=writer[1:17])), False
    return quote(writer, safe=""), False


def _avsc(content: bytes, _indexed: bool, _message: str | None) -> Found:
    return avro(_text(content, ".avsc"), {}, indexed=False, message=None)


def _json(content: bytes, _indexed: bool, message: str | None) -> Found:
    return json_schema(_text(content, ".json"), {}, indexed=False, message=message)


def _text(content: bytes, suffix: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"The {suffix} file is not UTF-8.") from error


def _desc(content: bytes, indexed: bool, message: str | None) -> Found:
    try:
        files = FileDescriptorSet.FromString(content)
    except DecodeError as error:
        raise Refused("The .desc file is no descriptor set of protoc.") from error
    return protobuf(files, indexed=indexed, message=message)


_READERS: Final[Mapping[str, Callable[[bytes, bool, str | None], Found]]] = MappingProxyType(
    {
        suffix: reader
        for name, reader in (("avro", _avsc), ("json", _json), ("protobuf", _desc))
        for suffix in FORMATS[name].suffixes
    }
)
