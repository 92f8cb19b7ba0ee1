"""Avro schemas as registries keep them, with the types that they refer to put into one text."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.base.names import shown

_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


def inlined(main: str, references: Mapping[str, str]) -> tuple[bytes, str]:
    """Return a schema that needs no references, and the full name of its record.

    A schema without references stays as it is. Else each type is defined where it is first used.

    Raises:
        Refused: a text is no JSON, or is nested too deep; the payload is no record; or two types have one name.
    """
    try:
        schema = _parsed(main)
        if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
            raise Refused("The schema's payloads are no records, so they have no columns.")
        name = _full_name(schema, "")
        name.encode("utf-8")
        if not references:
            return main.encode("utf-8"), name
        types = dict[str, Any]()
        for text in (main, *references.values()):
            for found, definition in _definitions(_parsed(text)):
                if types.setdefault(found, definition) != definition:
                    raise Refused(f"The schema and its references define {shown(found)} in two ways.")
        whole = _Inlining(types).of(schema, "")
        return json.dumps(whole, separators=(",", ":")).encode("utf-8"), name
    except RecursionError as error:
        raise Refused("The schema is nested too deep.") from error
    except UnicodeEncodeError as error:
        raise Refused("The schema's text is no Unicode.") from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(f"The schema's text is no JSON: {error}") from error


class _Inlining:
    """Defines each type where it is first met and names it from then on."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._defined = set[str]()

    def of(self, schema: Any, namespace: str) -> Any:
        """Return a part of a schema, as it stands within this namespace."""
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return [self.of(each, namespace) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if _is_named(schema):
            return self._defined_once(schema, namespace)
        return _with_parts(schema, lambda part: self.of(part, namespace))

    def _named(self, name: str, namespace: str) -> Any:
        if name in _PRIMITIVE:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._types or full in self._defined:
            return full
        return self._defined_once(self._types[full], full.rpartition(".")[0])

    def _defined_once(self, schema: dict[str, Any], namespace: str) -> Any:
        full = _full_name(schema, namespace)
        if full in self._defined:
            return full
        self._defined.add(full)
        within, _, short = full.rpartition(".")
        parts = _with_parts(schema, lambda part: self.of(part, within))
        return {**parts, "name": short, "namespace": within}


def _definitions(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the full names of the types that a schema defines, each with a definition that needs no surroundings."""
    waiting = [(schema, "")]
    while waiting:
        part, namespace = waiting.pop()
        if isinstance(part, list):
            waiting += [(each, namespace) for each in part]
        elif isinstance(part, dict):
            if _is_named(part):
                full = _full_name(part, namespace)
                namespace = full.rpartition(".")[0]
                yield full, {**part, "name": full.rpartition(".")[2], "namespace": namespace}
            inner = list[Any]()
            _with_parts(part, inner.append)
            waiting += [(each, namespace) for each in inner]


def _with_parts(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a schema with its inner schemas changed."""
    changed = dict(schema)
    if not _is_named(schema) and "type" in schema and schema["type"] not in ("array", "map"):
        changed["type"] = change(schema["type"])
    for key in ("items", "values"):
        if key in schema:
            changed[key] = change(schema[key])
    if isinstance(fields := schema.get("fields"), list):
        changed["fields"] = [
            {**each, "type": change(each["type"])} if isinstance(each, dict) and "type" in each else each
            for each in fields
        ]
    return changed


def _is_named(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return isinstance(kind, str) and kind in _NAMED


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name, own = schema.get("name"), schema.get("namespace", namespace)
    if not isinstance(name, str) or not name or not isinstance(own, str | None):
        raise Refused("The schema holds a type without a name.")
    return name if "." in name or not own else f"{own}.{name}"
