"""The sample definitions as JSON Schemas: those in Avro, in so far as JSON has them.

Properties are added and enums grow, and nothing is removed or renamed: a reader with a newer version can read documents
of the one before, so that every registry accepts them. What is added is optional.
"""

from typing import Any

from pipeline.demo.samples.avro_schemas import avro_schema


def json_schema(family: str, version: int) -> dict[str, Any]:
    """Return a definition as a JSON Schema of draft 7, the newest that Apicurio compares.

    Raises:
        Refused: there is no such family or version.
    """
    newest = avro_schema(family, version)
    made = _object({}, avro_schema(family, 1)["fields"], required=True)
    for each in range(2, version + 1):
        _object(made, avro_schema(family, each)["fields"], required=False)
    title = f"{newest['namespace']}.json.{newest['name']}"  # another subject in a registry than the record's
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **made}


def _object(into: dict[str, Any], fields: list[dict[str, Any]], *, required: bool) -> dict[str, Any]:
    """Add a record's fields to an object's schema; a field that was renamed goes on under its first name."""
    properties = into.setdefault("properties", {})
    names = into.setdefault("required", [])
    into |= {"type": "object", "additionalProperties": False}
    known = set(properties)
    for field in fields:
        name = next((each for each in field.get("aliases", ()) if each in known), field["name"])
        properties[name] = _type(field["type"], properties.get(name, {}))
        if required and name not in names:
            names.append(name)
    return into


def _type(kind: Any, before: dict[str, Any]) -> dict[str, Any]:
    """Return a type of Avro as a schema; `before` is the one of the version before."""
    if isinstance(kind, list):
        valued = next(each for each in kind if each != "null")
        made = _type(valued, {})
        return {**made, "type": [made["type"], "null"]}
    if isinstance(kind, str):
        return {"type": _PRIMITIVES.get(kind, kind)} if kind != "Position" else dict(_POSITION)
    match kind:
        case {"type": "record", "fields": fields}:
            inner = {key: value for key, value in before.items() if key in {"properties", "required"}}
            return _object(inner, fields, required=not inner)
        case {"type": "enum", "symbols": symbols}:
            return {"type": "string", "enum": symbols}
        case {"type": "array", "items": items}:
            return {"type": "array", "items": _type(items, before.get("items", {}))}
        case {"type": "map", "values": values}:
            return {"type": "object", "additionalProperties": _type(values, {})}
        case {"logicalType": "timestamp-micros"}:
            return {"type": "string", "format": "date-time"}
        case {"logicalType": "decimal"}:
            return {"type": "number"}
    return {"type": "string"}  # bytes, fixed, dates and UUIDs


_PRIMITIVES = {"int": "integer", "long": "integer", "float": "number", "double": "number", "bytes": "string"}
_POSITION = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
