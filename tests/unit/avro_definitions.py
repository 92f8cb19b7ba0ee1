"""Avro definitions for tests of evolution."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline.contracts.columns import members
from pipeline.contracts.formats.supported import format_of
from pipeline.contracts.model import Field, Kind, Message
from pipeline.contracts.schemas import Schema

_PRIMITIVES = {
    "boolean": ("bool", pa.bool_(), ()),
    "int": ("int32", pa.int64(), ()),
    "long": ("int64", pa.int64(), ("int32",)),
    "float": ("float", pa.float64(), ("int32", "int64")),
    "double": ("double", pa.float64(), ("int32", "int64", "float")),
    "string": ("string", pa.string(), ("bytes",)),
    "bytes": ("bytes", pa.binary(), ("string",)),
}


def record(**fields: Any) -> dict[str, Any]:
    """Return a record of Avro; its fields are types, or (type, *aliases)."""
    listed = []
    for name, kind in fields.items():
        one, *aliases = kind if isinstance(kind, tuple) else (kind,)
        listed.append({"name": name, "type": one} | ({"aliases": aliases} if aliases else {}))
    return {"type": "record", "name": "R", "fields": listed}


def enum(*symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def avro(**fields: Any) -> Schema:
    """Return the schema of a record."""
    definition = _renamed(record(**fields), "R")
    return Schema(0, "avro", "R", format_of("avro").canonical("R", json.dumps(definition).encode()))


def _renamed(given: Any, name: str) -> Any:
    """Return a type in which each record and enum has a name of its own, as Avro demands."""
    if isinstance(given, list):
        return [_renamed(each, f"{name}_{index}") for index, each in enumerate(given)]
    if not isinstance(given, dict):
        return given
    own = {"name": name} if "name" in given else {}
    fields = [{**each, "type": _renamed(each["type"], f"{name}_{each['name']}")} for each in given.get("fields", ())]
    inside = {key: _renamed(given[key], f"{name}_{key}") for key in ("items", "values") if key in given}
    return {**given, **own, **inside, **({"fields": fields} if "fields" in given else {})}


class NamedFields:
    """A format whose fields are identified by name: as much of Avro as evolution sees."""

    def canonical(self, message: str, definition: bytes) -> bytes:
        return definition

    def message(self, schema: Schema) -> Message:
        return _message(json.loads(schema.definition))

    def columns(self, schema: Schema) -> pa.Schema:
        return pa.schema([(each.name, each.kind.type) for each in self.message(schema).fields if each.kind.type])


def _message(definition: Mapping[str, Any]) -> Message:
    return Message(tuple(_field(each) for each in definition["fields"]))


def _field(given: Mapping[str, Any]) -> Field:
    kind, optional = given["type"], False
    if isinstance(kind, list):
        (kind, optional) = next(each for each in kind if each != "null"), True
    one, inside, labels = _kind(kind)
    name, aliases = given["name"], frozenset(given.get("aliases", ()))
    return Field(name, name, name, one, optional, "a123456", {each: each for each in labels}, aliases, inside)


def _kind(kind: Any) -> tuple[Kind, Message | None, list[str]]:
    if isinstance(kind, str):
        values, type_, promotes = _PRIMITIVES[kind]
        return Kind(kind, "", values, type_, frozenset(promotes)), None, []
    if kind.get("logicalType") == "decimal":
        return Kind("decimal", "", "decimal", pa.decimal128(kind["precision"], kind["scale"])), None, []
    if kind["type"] == "enum":
        return Kind("enum", "", "enum", pa.string()), None, kind["symbols"]
    if kind["type"] == "record":
        held = _message(kind)
        type_ = pa.struct([pa.field(each.name, each.kind.type) for each in held.fields if each.kind.type])
        return Kind("record", "", "message", type_ if members(type_) else None), held, []
    inner, inside, labels = _kind(kind["items"] if kind["type"] == "array" else kind["values"])
    if kind["type"] == "array":
        listed = None if inner.type is None else pa.list_(pa.field("element", inner.type))
        return Kind(f"array of {inner.text}", "repeated", inner.values, listed, inner.promotes), inside, labels
    mapped = None if inner.type is None else pa.map_(pa.string(), inner.type)
    return Kind(f"map of {inner.text}", "map of string", inner.values, mapped, inner.promotes), inside, labels
