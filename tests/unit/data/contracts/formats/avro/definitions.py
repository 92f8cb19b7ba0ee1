"""Avro definitions for tests of evolution."""

import json
from typing import Any

from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.schemas import Schema


def record(**fields: Any) -> dict[str, Any]:
    """Return a record of Avro; its fields are types, or (type, *aliases)."""
    listed = []
    for name, kind in fields.items():
        one, *aliases = kind if isinstance(kind, tuple) else (kind,)
        listed.append({"name": name, "type": one} | ({"aliases": aliases} if aliases else {}))
    return {"type": "record", "name": "R", "fields": listed}


def enum(*symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


def logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


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
