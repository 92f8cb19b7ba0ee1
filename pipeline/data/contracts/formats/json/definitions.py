"""Declared JSON Schemas: from submitted JSON to types, and from types to the canonical form.

Drafts 4 to 2020-12. JSON with the same meaning has one canonical form, hence one fingerprint: references are resolved,
annotations dropped, properties and symbols sorted. Keywords that only restrict values stay; nothing reads them yet.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import first_lines, utf8
from pipeline.data.contracts.formats.definition_text import read_json
from pipeline.data.contracts.formats.json.types import (
    Checks,
    JsonArray,
    JsonEnum,
    JsonMap,
    Nothing,
    Object,
    Property,
    Scalar,
    Type,
)
from pipeline.data.contracts.model import MAX_COLUMNS, MAX_DEPTH

MAX_DEFINITION_BYTES: Final = 1024 * 1024
_MAX_JSON_DEPTH: Final = 200  # a level takes up to five: properties, schema, list of a union, branch, definitions
_MOST_REFERENCES: Final = 64  # that lead from one to the next
_MOST_TYPES: Final = 10_000  # references to references could make millions

_CHECKS: Final = frozenset({
    "const", "contains", "contentEncoding", "contentMediaType", "contentSchema", "dependencies", "dependentRequired",
    "dependentSchemas", "else", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "if", "maxContains",
    "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties",
    "minimum", "multipleOf", "not", "pattern", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    "uniqueItems",
})  # fmt: skip
"""Keywords that restrict values without a column of their own."""
_UNSUPPORTED: Final = ("patternProperties", "prefixItems", "additionalItems", "$dynamicRef", "$recursiveRef")
_SHAPES: Final = frozenset({"type", "properties", "additionalProperties", "items", "required"})
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_NULL: Final = Nothing()


def canonical(message: str, definition: bytes) -> bytes:
    """Return the canonical form of an event type's JSON Schema.

    Raises:
        Refused: it is no JSON Schema of objects, has another title, or fits no table; with every reason.
    """
    form = {"title": message, **rendered(_parsed(message, definition))}
    return json.dumps(form, sort_keys=True, separators=(",", ":")).encode()


@lru_cache(maxsize=4096)
def describe(message: str, definition: bytes) -> Object:
    """Return the object of a canonical definition.

    Raises:
        Refused: it is no JSON Schema of objects, or has another title.
    """
    return _parsed(message, definition)


def refusal(message: str, reasons: Iterable[str]) -> Refused:
    """Return the refusal of a definition, with its reasons."""
    listed = "".join(f"\n  - {each}" for each in first_lines(list(reasons), 10))
    return Refused(f"The JSON Schema of {shown(message)} is not usable; change it:{listed}")


def _parsed(message: str, definition: bytes) -> Object:
    if len(definition) > MAX_DEFINITION_BYTES:
        raise refusal(message, [f"it has {len(definition)} bytes, at most {MAX_DEFINITION_BYTES} are accepted"])
    try:
        given = read_json(utf8(definition), _MAX_JSON_DEPTH)
    except ValueError as error:
        raise refusal(message, [f"it is not JSON: {shown(str(error))}"]) from error
    reading = _Reading(given)
    try:
        root = reading.type(given, "", 0)
    except _TooMuch as error:
        raise refusal(message, [f"it spreads into more than {MAX_COLUMNS} columns"]) from error
    if not reading.reasons and not isinstance(root, Object):
        reading.reasons.append("it describes no object with properties, and a payload is one")
    title = given.get("title") if isinstance(given, dict) else None
    if title is not None and title != message:
        reading.reasons.append(f"its title is {shown(str(title))}, not {shown(message)}")
    if reading.reasons or not isinstance(root, Object):
        raise refusal(message, reading.reasons)
    return replace(root, nullable=False)


class _TooMuch(Exception):
    """A schema holds more types than any table has columns."""


@dataclass(slots=True)
class _Reading:
    """Reads a schema's types, and collects why they are not usable."""

    root: Any
    reasons: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)  # the references that led here
    count: int = 0

    def type(self, given: Any, path: str, depth: int) -> Type:
        """Return the type of a schema at a path; `depth` counts the objects, maps and arrays around it."""
        self.count += 1
        if self.count > _MOST_TYPES:
            raise _TooMuch
        if not isinstance(given, dict):
            return self._refuse(path, "has no type: declare one" if isinstance(given, bool) else "is no schema")
        if (reference := given.get("$ref")) is not None:
            return self._referred(reference, given, path, depth)
        for keyword in _UNSUPPORTED:
            if keyword in given:
                return self._refuse(path, f"has {keyword}, which turnout does not support")
        for keyword in ("oneOf", "anyOf", "allOf"):
            if keyword in given:
                return self._joined(keyword, given, path, depth)
        return self._plain(given, path, depth)

    def _refuse(self, path: str, why: str) -> Type:
        self.reasons.append(f"{shown(path) if path else 'the schema'}: {why}")
        return _NULL

    def _referred(self, reference: Any, given: Mapping[str, Any], path: str, depth: int) -> Type:
        if beside := sorted(set(given) & (_SHAPES | {"oneOf", "anyOf", "allOf"})):
            return self._refuse(path, f"has {beside[0]} beside a $ref, which turnout does not support")
        if not isinstance(reference, str):
            return self._refuse(path, "has a $ref that is no text")
        if reference in self.open:
            return self._refuse(path, f"contains itself ({shown(reference)}), a table cannot hold a recursive type")
        if len(self.open) == _MOST_REFERENCES:
            return self._refuse(path, f"has references of which more than {_MOST_REFERENCES} lead to each other")
        found, target = self._target(reference)
        if not found:
            return self._refuse(path, f"refers to {shown(reference)}, which the schema does not define")
        self.open.append(reference)
        made = self.type(target, path, depth)
        self.open.pop()
        return replace(made, checks=tuple(sorted({*made.checks, *_checks(given)})))

    def _target(self, reference: str) -> tuple[bool, Any]:
        """Return whether the schema has what a local reference names, and that."""
        base = self.root.get("$id", self.root.get("id")) if isinstance(self.root, dict) else None
        if isinstance(base, str) and base:
            reference = reference.removeprefix(base.removesuffix("#"))
        if reference != "#" and not reference.startswith("#/"):
            return False, None
        here = self.root
        for part in reference[2:].split("/") if reference != "#" else []:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(here, list) and key.isdecimal() and int(key[:6]) < len(here):
                here = here[int(key[:6])]
            elif isinstance(here, dict) and key in here:
                here = here[key]
            else:
                return False, None
        return True, here

    def _joined(self, keyword: str, given: Mapping[str, Any], path: str, depth: int) -> Type:
        """Return the type of a choice between one type and null, or between numbers or between texts."""
        branches = given[keyword]
        if not isinstance(branches, list) or not branches:
            return self._refuse(path, f"has {keyword} without a list of schemas")
        beside = sorted(set(given) & (_SHAPES - {"type"} | {"oneOf", "anyOf", "allOf"} - {keyword}))
        if beside:
            return self._refuse(path, f"has {beside[0]} beside {keyword}, which turnout does not support")
        made = [self.type(each, path, depth) for each in branches]
        valued = [each for each in made if not isinstance(each, Nothing)]
        nullable = len(valued) < len(made) or any(each.nullable for each in valued)
        if keyword == "allOf" and len(made) > 1:
            return self._refuse(path, "joins several schemas (allOf), which turnout does not support")
        if not valued:
            return _NULL
        one = _one(valued)
        if one is None:
            return self._refuse(path, f"is one of several types ({keyword}), which no column can hold")
        return replace(one, nullable=nullable, checks=tuple(sorted({*one.checks, *_checks(given)})))

    def _plain(self, given: Mapping[str, Any], path: str, depth: int) -> Type:
        names = given.get("type")
        named = [names] if isinstance(names, str) else names
        if named is not None and not (
            isinstance(named, list) and named and all(isinstance(each, str) and each in _TYPES for each in named)
        ):
            return self._refuse(path, f"has a type that JSON Schema does not know: {shown(json.dumps(names)[:80])}")
        symbols = _symbols(given)
        kinds = set(named) if named is not None else _implied(given, symbols)
        nullable = "null" in kinds and (symbols is None or None in symbols)
        kinds -= {"null"}
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        if not kinds:
            return _NULL if nullable else self._refuse(path, "has no type: declare one")
        if len(kinds) > 1:
            return self._refuse(path, f"has several types ({', '.join(sorted(kinds))}), which no column can hold")
        (kind,) = kinds
        checks = _checks(given)
        match kind:
            case "object":
                return self._object(given, path, depth + 1, nullable, checks)
            case "array":
                return self._array(given, path, depth + 1, nullable, checks)
            case "string":
                return self._string(given, symbols, path, nullable, checks)
            case _:
                return Scalar(kind, nullable, checks)

    def _string(
        self, given: Mapping[str, Any], symbols: list[Any] | None, path: str, nullable: bool, checks: Checks
    ) -> Type:
        if symbols is not None:
            texts = {each for each in symbols if each is not None}
            if not texts or not all(isinstance(each, str) and _is_text(each) for each in texts):
                return self._refuse(path, "is an enum of texts with another value")
            return JsonEnum(tuple(sorted(texts)), nullable, _without(checks, "enum", "const", "format"))
        if given.get("format") == "date-time":
            return Scalar("date-time", nullable, _without(checks, "format"))
        return Scalar("string", nullable, checks)

    def _array(self, given: Mapping[str, Any], path: str, depth: int, nullable: bool, checks: Checks) -> Type:
        if depth > MAX_DEPTH:
            return self._refuse(path, f"nests deeper than {MAX_DEPTH} levels")
        if isinstance(given.get("items"), list):
            return self._refuse(path, "has a schema for each item, which turnout does not support")
        if "items" not in given:
            return self._refuse(path, "is an array of anything: declare its items")
        items = self.type(given["items"], path, depth)
        if isinstance(items, Nothing) and not self.reasons:
            return self._refuse(path, "is an array of nothing but nulls")
        return JsonArray(items, nullable, checks)

    def _object(self, given: Mapping[str, Any], path: str, depth: int, nullable: bool, checks: Checks) -> Type:
        if depth > MAX_DEPTH:
            return self._refuse(path, f"nests deeper than {MAX_DEPTH} levels")
        properties, more, required = (given.get(key) for key in ("properties", "additionalProperties", "required"))
        if not isinstance(properties, dict | None):
            return self._refuse(path, "has properties that are no object")
        required = [] if required is None else required
        if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
            return self._refuse(path, "has required properties that are no list of keys")
        if isinstance(more, dict) and more:
            if properties:
                return self._refuse(
                    path, "has both properties and additionalProperties, which turnout does not support"
                )
            values = self.type(more, path, depth)
            if isinstance(values, Nothing) and not self.reasons:
                return self._refuse(path, "is a map of nothing but nulls")
            return JsonMap(values, nullable, _required(required, checks))
        if not properties and more is not False:
            return self._refuse(path, "is an object of anything: declare its properties, or additionalProperties")
        if missing := sorted(set(required) - set(properties or ())):
            return self._refuse(path, f"requires {shown(missing[0])}, which is not among its properties")
        found = []
        for key, each in sorted((properties or {}).items()):
            if not _is_text(key):
                return self._refuse(path, f"has the property {shown(key)}, which is no text")
            found.append(Property(key, self.type(each, f"{path}.{key}" if path else key, depth), key in required))
        return Object(tuple(found), nullable, checks)


def _one(valued: Sequence[Type]) -> Type | None:
    """Return the type that all of these are, None where no column holds them."""
    if len(valued) == 1:
        return valued[0]
    if all(isinstance(each, JsonEnum) for each in valued):
        symbols = {symbol for each in valued if isinstance(each, JsonEnum) for symbol in each.symbols}
        return JsonEnum(tuple(sorted(symbols)))
    if all(isinstance(each, Scalar) and each.name in {"integer", "number"} for each in valued):
        return Scalar("number" if any(each != valued[0] for each in valued) else valued[0].name)  # type: ignore[union-attr]
    return valued[0] if all(each == valued[0] for each in valued) else None


def _symbols(given: Mapping[str, Any]) -> list[Any] | None:
    """Return the values of an enum, None where there is none."""
    if "const" in given:
        return [given["const"]]
    listed = given.get("enum")
    return listed if isinstance(listed, list) else None


def _implied(given: Mapping[str, Any], symbols: list[Any] | None) -> set[str]:
    """Return the types of a schema that does not name one."""
    if symbols is not None:
        return {_kind(each) for each in symbols}
    if "properties" in given or "additionalProperties" in given:
        return {"object"}
    return {"array"} if "items" in given else set()


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _checks(given: Mapping[str, Any]) -> Checks:
    return tuple(sorted((key, json.dumps(given[key], sort_keys=True)) for key in _CHECKS & set(given)))


def _without(checks: Checks, *keywords: str) -> Checks:
    return tuple(each for each in checks if each[0] not in keywords)


def _required(required: list[str], checks: Checks) -> Checks:
    """Return the checks of a map, with the keys that it must have."""
    return tuple(sorted({*checks, ("required", json.dumps(sorted(required)))})) if required else checks


def _is_text(value: str) -> bool:
    """Return whether a string of JSON has a form as UTF-8, as halves of surrogate pairs have not."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def rendered(of: Type) -> dict[str, Any]:
    """Return a type as JSON Schema."""
    checks = {key: json.loads(text) for key, text in of.checks}
    made: dict[str, Any] = {}
    match of:
        case Nothing():
            return checks | {"type": "null"}
        case Scalar():
            kind = {"date-time": "string"}.get(of.name, of.name)
            made = {"format": "date-time"} if of.name == "date-time" else {}
        case JsonEnum():
            kind, made = "string", {"enum": [*of.symbols, *([None] if of.nullable else [])]}
        case JsonArray():
            kind, made = "array", {"items": rendered(of.items)}
        case JsonMap():
            kind, made = "object", {"additionalProperties": rendered(of.values)}
        case Object():
            kind, made = "object", {
                "properties": {each.key: rendered(each.type) for each in of.properties},
                "additionalProperties": False,
            }  # fmt: skip
            if required := sorted(each.key for each in of.properties if each.required):
                made["required"] = required
    return checks | made | {"type": ["null", kind] if of.nullable else kind}
