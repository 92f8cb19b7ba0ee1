"""Avro definitions: from submitted JSON to types, and from types to the canonical form.

JSON with the same meaning has one canonical form, hence one fingerprint. The form keeps names, aliases, defaults,
symbols and logical types, on which bytes, columns and evolution depend, and drops documentation and sort orders.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import first_lines, utf8
from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.formats.avro.types import (
    MAX_DIGITS,
    PLAIN,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    kind_name,
)
from pipeline.data.contracts.formats.definition_text import read_json

MAX_DEFINITION_BYTES: Final = 1024 * 1024
_MAX_PRECISION: Final = 2**31 - 1  # of Java
_MAX_JSON_DEPTH: Final = 160  # a level of records takes four: object, list of fields, field, union
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RECORDS: Final = frozenset({"record", "error"})
"""Kinds of records; a protocol throws an `error`."""
_NOTHING: Final = Primitive("null")
_LOGICAL: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"date", "time-millis"}),
    "long": frozenset({
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
        "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos",
    }),
    "string": frozenset({"uuid"}),
    "bytes": frozenset({"decimal"}),
    "fixed": frozenset({"decimal", "duration", "uuid"}),
}  # fmt: skip
_SIZES: Final = {"duration": 12, "uuid": 16}  # bytes of a fixed with this logical type


def canonical(message: str, definition: bytes) -> bytes:
    """Return the canonical form of a record's definition.

    Raises:
        Refused: it is no Avro schema, or its record has another name; with every reason.
    """
    return json.dumps(_rendered(_parsed(message, definition), set()), sort_keys=True, separators=(",", ":")).encode()


@lru_cache(maxsize=4096)
def describe(message: str, definition: bytes) -> Record:
    """Return the record of a canonical definition.

    Raises:
        Refused: it is no Avro schema, or its record has another name.
    """
    return _parsed(message, definition)


def refusal(message: str, reasons: Iterable[str]) -> Refused:
    """Return the refusal of a definition, with its reasons."""
    listed = "".join(f"\n  - {each}" for each in first_lines(list(reasons), 10))
    return Refused(f"The Avro schema of {shown(message)} is not usable; change it:{listed}")


def _parsed(message: str, definition: bytes) -> Record:
    if len(definition) > MAX_DEFINITION_BYTES:
        raise refusal(message, [f"it has {len(definition)} bytes, at most {MAX_DEFINITION_BYTES} are accepted"])
    reading = _Reading()
    root = reading.type(_json(message, definition), "", "")
    if reading.reasons:
        raise refusal(message, reading.reasons)
    match root:
        case Record() if root.name == message:
            return root
        case Record():
            raise refusal(message, [f"its record is {shown(root.name)}, not {shown(message)}"])
        case _:
            raise refusal(message, [f"it is {shown(kind_name(root))}, and a payload is a record"])


def _json(message: str, definition: bytes) -> Any:
    try:
        return read_json(utf8(definition), _MAX_JSON_DEPTH)
    except ValueError as error:
        raise refusal(message, [f"it is not JSON: {shown(str(error))}"]) from error


@dataclass(slots=True)
class _Reading:
    """Turns JSON into types, and collects every reason why it cannot."""

    reasons: list[str] = field(default_factory=list)
    named: dict[str, Type] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)  # records whose fields are being read

    def type(self, given: Any, namespace: str, path: str) -> Type:
        """Return the type of a piece of JSON; null where it is refused."""
        if isinstance(given, str):
            return self._known(given, namespace, path)
        if isinstance(given, list):
            return self._union(given, namespace, path)
        if not isinstance(given, dict) or not isinstance(given.get("type"), str):
            return self._refuse(path, "is not a type of Avro")
        kind = given["type"]
        if kind == "array":
            return Array(self.type(given.get("items"), namespace, path))
        if kind == "map":
            return Map(self.type(given.get("values"), namespace, path))
        if kind in {*_RECORDS, "enum", "fixed"}:
            return self._definition(kind, given, namespace, path)
        known = self._known(kind, namespace, path)
        return Primitive(kind, self._logical(kind, given, path)) if kind in PRIMITIVES else known

    def _refuse(self, path: str, why: str) -> Type:
        self.reasons.append(f"{path or 'the schema'}: {why}")
        return _NOTHING

    def _known(self, name: str, namespace: str, path: str) -> Type:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self.named and full not in self.open:
            full = name if name in self.named or name in self.open else full  # as Avro for Java does
        if full in self.open:
            return self._refuse(path, f"contains itself ({shown(full)}), a table cannot hold a recursive type")
        return self.named.get(full) or self._refuse(path, f"has the unknown type {shown(full)}")

    def _union(self, given: list[Any], namespace: str, path: str) -> Type:
        branches = tuple(self.type(each, namespace, path) for each in given)
        names = [kind_name(each) for each in branches]
        if not branches or "union" in names:
            return self._refuse(path, "is a union of nothing" if not branches else "is a union inside a union")
        if len(set(names)) != len(names) and not self.reasons:
            return self._refuse(path, "is a union with a type twice")
        return Union(branches)

    def _definition(self, kind: str, given: dict[str, Any], namespace: str, path: str) -> Type:
        full, inner = self._full_name(given.get("name"), given.get("namespace"), namespace, path)
        if full in self.named or full in self.open:
            return self._refuse(path, f"defines {shown(full)} a second time")
        if full in PRIMITIVES:
            return self._refuse(path, f"defines {shown(full)}, which is a type of Avro's")
        aliases = tuple(sorted({self._full_name(each, None, inner, path)[0] for each in self._aliases(given, path)}))
        if kind in _RECORDS:
            self.open.add(full)
            found: Type = Record(full, self._fields(given.get("fields"), inner, path), aliases)
            self.open.discard(full)
        elif kind == "enum":
            found = self._enum(full, given, aliases, path)
        else:
            found = self._fixed(full, given, aliases, path)
        self.named[full] = found
        return found

    def _full_name(self, name: Any, given_namespace: Any, namespace: str, path: str) -> tuple[str, str]:
        """Return a full name, and the namespace of the names inside."""
        if not isinstance(name, str) or not isinstance(given_namespace, str | None):
            self._refuse(path, "has a type without a name")
            return "", ""
        if given_namespace is not None and "." not in name:
            namespace = given_namespace
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if not all(_NAME.fullmatch(part) for part in full.split(".")):
            self._refuse(path, f"has a type with the name {shown(full)}, which is not a name of Avro")
        return full, full.rpartition(".")[0]

    def _aliases(self, given: dict[str, Any], path: str) -> list[str]:
        aliases = given.get("aliases")
        if aliases is None:
            return []
        if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
            self._refuse(path, "has aliases that are not a list of names")
            return []
        return aliases

    def _fields(self, given: Any, namespace: str, path: str) -> tuple[Field, ...]:
        if not isinstance(given, list):
            self._refuse(path, "is a record without a list of fields")
            return ()
        found: dict[str, Field] = {}
        for each in given:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                self._refuse(path, f"has a field with the name {shown(str(name))}, which is not a name of Avro")
                continue
            here = f"{path}.{name}" if path else name
            if name in found:
                self._refuse(here, "is there twice")
            default = json.dumps(each["default"], sort_keys=True) if "default" in each else None
            aliases = tuple(sorted(set(self._aliases(each, here))))
            found[name] = Field(name, self.type(each.get("type"), namespace, here), aliases, default)
        return tuple(found.values())

    def _enum(self, name: str, given: dict[str, Any], aliases: tuple[str, ...], path: str) -> Type:
        symbols, default = given.get("symbols"), given.get("default")
        if not isinstance(symbols, list) or not symbols:
            return self._refuse(path, "is an enum without symbols")
        if not all(isinstance(each, str) and _NAME.fullmatch(each) for each in symbols):
            return self._refuse(path, "is an enum with a symbol that is not a name of Avro")
        if len(set(symbols)) != len(symbols):
            return self._refuse(path, "is an enum with a symbol twice")
        if default is not None and default not in symbols:
            return self._refuse(path, "is an enum whose default is not a symbol")
        return Enum(name, tuple(symbols), aliases, default)

    def _fixed(self, name: str, given: dict[str, Any], aliases: tuple[str, ...], path: str) -> Type:
        size = _whole(given.get("size"))
        if size is None or not 1 <= size <= MAX_PAYLOAD_BYTES:
            return self._refuse(path, f"is a fixed whose size is not between 1 and {MAX_PAYLOAD_BYTES}")
        return Fixed(name, size, aliases, self._logical("fixed", given, path, size))

    def _logical(self, kind: str, given: dict[str, Any], path: str, size: int | None = None) -> Logical:
        """Return what a logical type adds; unknown ones and those of other types add nothing, as Avro demands."""
        name = given.get("logicalType")
        if not isinstance(name, str) or name not in _LOGICAL.get(kind, ()):
            return PLAIN
        if name != "decimal":
            return Logical(name) if size is None or size == _SIZES[name] else PLAIN
        precision, scale = _whole(given.get("precision")), _whole(given.get("scale", 0))
        most = _MAX_PRECISION if size is None else math.floor((8 * size - 1) * math.log10(2))
        if precision is None or not 1 <= precision <= most:
            self._refuse(path, f"is a decimal whose precision is not between 1 and {most}")
        elif scale is None or not 0 <= scale <= min(precision, MAX_DIGITS):
            self._refuse(path, f"is a decimal whose scale is not between 0 and {min(precision, MAX_DIGITS)}")
        else:
            return Logical(name, precision, scale)
        return PLAIN


def _whole(number: Any) -> int | None:
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _rendered(of: Type, written: set[str]) -> Any:
    """Return a type as JSON; a named type is written out where it comes first."""
    match of:
        case Primitive():
            return {"type": of.name, **_logical_keys(of.logical)} if of.logical.name else of.name
        case Array():
            return {"type": "array", "items": _rendered(of.items, written)}
        case Map():
            return {"type": "map", "values": _rendered(of.values, written)}
        case Union():
            return [_rendered(each, written) for each in of.branches]
    if of.name in written:
        return of.name
    written.add(of.name)
    # A name without a namespace would take that of the record around it.
    named: dict[str, Any] = {"name": of.name} if "." in of.name else {"name": of.name, "namespace": ""}
    named |= {"aliases": list(of.aliases)} if of.aliases else {}
    match of:
        case Fixed():
            return {"type": "fixed", **named, "size": of.size, **_logical_keys(of.logical)}
        case Enum():
            default = {} if of.default is None else {"default": of.default}
            return {"type": "enum", **named, "symbols": list(of.symbols), **default}
        case Record():
            return {"type": "record", **named, "fields": [_rendered_field(each, written) for each in of.fields]}


def _rendered_field(each: Field, written: set[str]) -> dict[str, Any]:
    rendered: dict[str, Any] = {"name": each.name, "type": _rendered(each.type, written)}
    if each.aliases:
        rendered["aliases"] = list(each.aliases)
    if each.default is not None:
        rendered["default"] = json.loads(each.default)
    return rendered


def _logical_keys(logical: Logical) -> dict[str, Any]:
    if not logical.name:
        return {}
    keys: dict[str, Any] = {"logicalType": logical.name}
    return keys if logical.name != "decimal" else {**keys, "precision": logical.precision, "scale": logical.scale}
