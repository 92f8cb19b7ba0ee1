"""The schemas of the matrix in all formats, and registries that keep them. Others' encoders write the payloads."""

import base64
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import fastavro
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from pipeline.data.contracts.formats.protobuf.messages import canonical, describe
from pipeline.data.contracts.registries.answers import Absent, Answer, Away, settled
from pipeline.data.contracts.registries.folder import FolderResolver
from pipeline.data.contracts.registries.kinds import found
from tests.tables.matrix_cases import Enum, F, Many, MapOf, Record, Row
from tests.unit.data.contracts.definition_world import bundle, define

# -------------------------------------------------------------------------------------------------------------- formats


@dataclass(frozen=True)
class Written:
    """One schema in one format: its definition, and the text under which a registry keeps it."""

    format: str
    fields: tuple[F, ...]

    @property
    def definition(self) -> bytes:
        if self.format == "protobuf":
            return bundle(_proto(self.fields))
        return json.dumps(_avro(self.fields) if self.format == "avro" else _json(self.fields)).encode()

    @property
    def kind(self) -> str:
        return self.format.upper()

    @property
    def text(self) -> str:
        if self.format != "protobuf":
            return self.definition.decode()
        return base64.b64encode(_proto(self.fields).SerializeToString()).decode()

    def payloads(self, rows: Iterable[Row]) -> list[bytes]:
        if self.format == "protobuf":
            make = GetMessageClass(describe("t.M", canonical("t.M", self.definition)))
            return [make(**row).SerializeToString() for row in rows]
        if self.format == "json":
            return [json.dumps(row).encode() for row in rows]
        schema = fastavro.parse_schema(_avro(self.fields))
        found = []
        for row in rows:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, dict(row))
            found.append(out.getvalue())
        return found


def _proto(fields: Sequence[F]) -> FileDescriptorProto:
    messages: dict[str, dict[str, tuple[int, str]]] = {"Another": {}, "M": {}}
    enums: dict[str, dict[str, int]] = {}

    def kind(name: str, of: Any) -> str:
        match of:
            case str():
                return {"int": "int32", "long": "int64"}.get(of, of)
            case Enum(values, numbers):
                enums[f"E{name}"] = dict(zip(values, numbers or range(len(values)), strict=True))
                return f"E{name}"
            case Many(item):
                return f"repeated {kind(name, item)}"
            case MapOf(item):
                return f"map<string, {kind(name, item)}>"
            case Record(inside):
                fill(f"R{name}", inside)
                return f"R{name}"
        raise AssertionError(of)

    def fill(message: str, inside: Iterable[F]) -> None:
        messages[message] = {}
        for each in inside:
            optional = "optional " if each.optional else ""
            messages[message][each.name] = (each.number, optional + kind(each.name, each.type))

    fill("M", fields)
    return define(messages, enums)


def _avro(fields: Sequence[F]) -> dict[str, Any]:
    def kind(name: str, of: Any) -> Any:
        match of:
            case str():
                return {"bool": "boolean"}.get(of, of)
            case Enum(values):
                return {"type": "enum", "name": f"E{name}", "symbols": list(values)}
            case Many(item):
                return {"type": "array", "items": kind(name, item)}
            case MapOf(item):
                return {"type": "map", "values": kind(name, item)}
            case Record(inside):
                return record(f"R{name}", inside)
        raise AssertionError(of)

    def record(name: str, inside: Iterable[F]) -> dict[str, Any]:
        listed = []
        for each in inside:
            one = kind(each.name, each.type)
            given = {"name": each.name, "type": ["null", one] if each.optional else one}
            given |= {} if each.alias is None else {"aliases": [each.alias]}
            listed.append(given | ({} if each.default is None else {"default": each.default}))
        return {"type": "record", "name": name, "fields": listed}

    return {**record("M", fields), "namespace": "t"}


def _json(fields: Sequence[F]) -> dict[str, Any]:
    def kind(of: Any) -> dict[str, Any]:
        match of:
            case str():
                named = {"int": "integer", "long": "integer", "float": "number", "double": "number", "bool": "boolean"}
                return {"type": named.get(of, of)}
            case Enum(values):
                return {"type": "string", "enum": list(values)}
            case Many(item):
                return {"type": "array", "items": kind(item)}
            case MapOf(item):
                return {"type": "object", "additionalProperties": kind(item)}
            case Record(inside):
                return record(inside)
        raise AssertionError(of)

    def record(inside: Iterable[F]) -> dict[str, Any]:
        return {"type": "object", "properties": {each.name: kind(each.type) for each in inside}}

    return {**record(fields), "title": "t.M"}


# ----------------------------------------------------------------------------------------------------------- registries


@dataclass
class Shelf:
    """A registry in memory that reads its schemas as the real clients do, and has only some of them yet."""

    schemas: dict[bytes, tuple[str, str]] = field(default_factory=dict)  # id → kind and text
    away: set[bytes] = field(default_factory=set)  # ids for which it gives errors
    silent: bool = True

    def put(self, writer: bytes, kind: str, text: str) -> None:
        self.schemas[writer] = kind, text

    def resolve(self, writer: bytes) -> Answer:
        own = writer[: {0: 5, 1: 17}.get(writer[0], len(writer))]
        if self.silent or own in self.away:
            return Away("It does not answer.")
        if own not in self.schemas:
            return Absent("There is none.")
        kind, text = self.schemas[own]
        indexed = own[0] in (0, 1)
        return settled(lambda: found(kind, text, {}, indexed=indexed, message=None if indexed else "t.M"))


class Folder(FolderResolver):
    """A registry of files, of which some are not there yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, message="t.M")
        self.folder, self.silent = folder, True
        self.away = set[bytes]()
        self.held: list[tuple[bytes, str, str]] = []

    def put(self, writer: bytes, kind: str, text: str) -> None:
        self.held.append((writer, kind, text))

    def resolve(self, writer: bytes) -> Answer:
        if not self.silent:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "README").touch()
            here = [each for each in self.held if each[0] not in self.away]
            for each in here:
                self._write(*each)
                self.held.remove(each)
        return super().resolve(writer)

    def _write(self, writer: bytes, kind: str, text: str) -> None:
        match writer[0]:
            case 0:
                name = str(int.from_bytes(writer[1:]))
            case 1 | 3:
                name = str(UUID(bytes=writer[1:]))
            case _:
                name = quote(writer, safe="")
        if kind == "PROTOBUF":
            proto = FileDescriptorProto.FromString(base64.b64decode(text))
            content = FileDescriptorSet(file=[proto]).SerializeToString()
        else:
            content = text.encode()
        suffix = {"PROTOBUF": "desc", "AVRO": "avsc", "JSON": "json"}[kind]
        (self.folder / f"{name}.{suffix}").write_bytes(content)
