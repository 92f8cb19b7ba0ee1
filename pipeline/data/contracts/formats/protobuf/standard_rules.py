"""The standard rules of protovalidate in a definition, as rules of output contracts. Pure.

A rule is translated only where it refuses the same values as protovalidate does; each other one is named, and is not
checked: CEL, oneofs, maps, formats such as URIs. `docs/contracts.md` lists both.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pipeline.data.contracts.formats.protobuf.fields import (
    SCALAR_MESSAGES,
    by_number,
    entry_of,
    enum_of,
    struct_of,
    value_names,
)
from pipeline.data.contracts.formats.protobuf.messages import describe, with_distinct_names
from pipeline.data.contracts.schemas import Schema
from pipeline.data.output_contracts.masks import whole_text
from pipeline.data.output_contracts.rules import ELEMENTS, ContractRule, GivenRules, Value
from protos.turnout.v1.standard_rules_pb2 import FieldRules, MessageRules, OneofRules, RuledOptions

MOST_RULES: Final = 200
"""Rules of one definition that are checked: each costs every row a mask."""

_Held = TypeVar("_Held", bound=Message)
_IF_ZERO, _ALWAYS = 1, 3  # of `ignore`
_PREDEFINED: Final = 1000  # the first number of rules that people define
_ANY: Final = "(?s:.*)"
_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_FORMATS: Final[Mapping[str, str]] = {
    "email": (
        r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
        r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*"
    ),
    "ipv4": rf"{_OCTET}(?:\.{_OCTET}){{3}}",
    "protobuf_dot_fqn": r"(?:\.[A-Za-z_][A-Za-z_0-9]*)+",
    "protobuf_fqn": r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*",
    "tuuid": "[0-9a-fA-F]{32}",
    "ulid": "[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}",
    "uuid": "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
}
"""Formats of texts that RE2 says exactly."""
_SAY_NOTHING: Final = frozenset({"example", "long_example", "strict"})  # examples, and how another rule is meant
_FLOATS: Final[Mapping[str, Any]] = {"float": np.float32, "double": np.float64}
_KINDS: Final[Mapping[int, str]] = {
    FieldDescriptor.TYPE_FLOAT: "float", FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_INT32: "int32", FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32", FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_SINT32: "sint32", FieldDescriptor.TYPE_SINT64: "sint64",
    FieldDescriptor.TYPE_FIXED32: "fixed32", FieldDescriptor.TYPE_FIXED64: "fixed64",
    FieldDescriptor.TYPE_SFIXED32: "sfixed32", FieldDescriptor.TYPE_SFIXED64: "sfixed64",
    FieldDescriptor.TYPE_BOOL: "bool", FieldDescriptor.TYPE_STRING: "string", FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_ENUM: "enum",
}  # fmt: skip
_WRAPPERS: Final = frozenset({"bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64"})


def given_rules(schema: Schema) -> GivenRules:
    """Return the standard rules of a schema's message, at the paths of its columns, and what is not checked."""
    reading = _Reading()
    message, given = with_distinct_names(schema.message, schema.definition), describe(schema.message, schema.definition)
    reading.message(message, given, "")
    if len(reading.rules) > MOST_RULES:
        reading.unchecked += [f"{each.column}: beyond {MOST_RULES} rules" for each in reading.rules[MOST_RULES:]]
    return GivenRules(tuple(reading.rules[:MOST_RULES]), tuple(dict.fromkeys(reading.unchecked)))


class _Reading:
    """Gathers the rules of a message and of those within it."""

    def __init__(self) -> None:
        self.rules: list[ContractRule] = []
        self.unchecked: list[str] = []

    def message(self, message: Descriptor, given: Descriptor, path: str) -> None:
        """Read a message; `given` is as defined, with the names that its rules use; `path` ends with a dot."""
        where = path.removesuffix(".") or "the message"
        own, listed = self._read(message, MessageRules, where), set[str]()
        self._note(where, [each.name for each, _ in own.ListFields()], own)
        for each in own.oneof:
            listed.update(each.fields)  # their zero values break nothing, unless they say otherwise
        for oneof in message.oneofs:
            if self._read(oneof, OneofRules, f"{path}{oneof.name}").required:
                self.unchecked.append(f"{path}{oneof.name}: required, of a oneof")
        for field in by_number(message):
            as_given = given.fields_by_number[field.number]
            self._field(field, as_given, path, skips=as_given.name in listed)

    def _field(self, field: FieldDescriptor, given: FieldDescriptor, path: str, *, skips: bool) -> None:
        column = f"{path}{field.name}"
        rules = self._read(field, FieldRules, column)
        if not rules.HasField("ignore"):
            rules.ignore = _IF_ZERO if skips else 0
        if rules.ignore == _ALWAYS:
            return
        inner, inner_given = struct_of(field), struct_of(given)
        if entry_of(field) is not None:
            rules.ClearField("ignore")
            self._note(column, [f"{_named(each.name)} of a map" for each, _ in rules.ListFields()])
            within = _Reading()
            if inner is not None and inner_given is not None:
                within.message(inner, inner_given, f"{column}.")
            self.unchecked += [f"{each.column}: within a map" for each in within.rules] + within.unchecked
            return
        element = column
        if field.is_repeated:
            element = f"{column}{ELEMENTS}"
            items = self._repeated(field, rules, column)
            if items.ignore == _ALWAYS:
                return
        else:
            self._value(field, rules, column)
        if inner is not None and inner_given is not None:
            self.message(inner, inner_given, f"{element}.")

    def _repeated(self, field: FieldDescriptor, rules: FieldRules, column: str) -> FieldRules:
        """Read the rules of a list; return those of its elements."""
        held, checks = rules.repeated_rules, dict[str, Any]()
        self._note(column, ["cel"] * bool(rules.cel or rules.cel_expression), rules)
        kind = rules.WhichOneof("type")
        if kind not in {None, "repeated_rules"}:
            self._note(column, [f"{_named(str(kind))}, which is not for lists"])
        self._note(column, ["unique"] * held.unique, held)
        least = max(held.min_items, int(rules.required))
        if least:
            checks["min_length"] = least
        if held.HasField("max_items"):
            checks["max_length"] = held.max_items
        if rules.ignore == _IF_ZERO and not rules.required:
            checks["skip"] = ""
        self._add(column, {**checks})
        if held.HasField("items"):
            self._value(field, held.items, f"{column}{ELEMENTS}", element=True)
        return held.items

    def _value(self, field: FieldDescriptor, rules: FieldRules, column: str, *, element: bool = False) -> None:
        """Read the rules of one value: of a field, or of each element of a list."""
        if rules.ignore == _ALWAYS:
            return
        self._note(column, ["cel"] * bool(rules.cel or rules.cel_expression), rules)
        kind, zero, enum = _kind(field), _zero(field), enum_of(field)
        checks, more = dict[str, Any](), list[tuple[str, dict[str, Any]]]()
        which = rules.WhichOneof("type")
        held = None if which is None else getattr(rules, which)
        if which is not None and (kind is None or which != f"{kind}_rules"):
            self._note(column, [f"{_named(which)} rules"])
        elif isinstance(held, Message):
            unsaid = [*_unsaid(kind or "", held, checks, more, enum)]
            self._note(column, unsaid, held)
        skips = rules.ignore == _IF_ZERO and (element or not field.has_presence)  # with presence only unset is skipped
        if rules.required and not element:
            if field.has_presence:
                checks |= {"required": True, "within": True}
            elif kind in {"float", "double"}:
                self._note(column, ["required, of a number with a negative zero"])
                skips = False
            else:
                more.append(("required", {"min_length": 1} if kind in {"string", "bytes"} else {"forbidden": (zero,)}))
                skips = False
        if skips and (checks or more):
            if kind in {None, "float", "double"} or _is_wrapper(field):
                self._note(column, [f"{kind or 'message'} rules with ignore"])
                checks, more = {}, []
            else:
                checks["skip"] = zero
                more = [(name, {**each, "skip": zero}) for name, each in more]
        self._add(column, checks)
        for name, each in more:
            self._add(column, each, name)

    def _add(self, column: str, checks: Mapping[str, Any], name: str = "") -> None:
        if not checks.keys() - {"skip", "within"}:
            return
        pattern = checks.get("pattern")
        if pattern is not None and not _compiles(pattern):
            self._note(column, [f"{name or 'pattern'}, which RE2 does not take"])
            return
        named = f"protovalidate:{column}{name and ':'}{name}"
        self.rules.append(ContractRule(named, column, **checks))

    def _note(self, column: str, names: Collection[str], held: Message | None = None) -> None:
        """Note rules that are not translated, and any that this turnout does not know."""
        self.unchecked += [f"{column}: {each}" for each in names]
        unknown: Any = () if held is None else UnknownFieldSet(held)
        for number in sorted({each.field_number for each in unknown}):
            of = "a predefined rule" if number >= _PREDEFINED else f"rule {number} of a later protovalidate"
            self.unchecked.append(f"{column}: {of}")

    def _read(self, of: Any, kind: type[_Held], column: str) -> _Held:
        """Return the rules in the options of a field, message or oneof; none where they are not readable."""
        parts = RuledOptions.FromString(of.GetOptions().SerializeToString()).rules
        try:
            return kind.FromString(b"".join(parts))
        except DecodeError:
            self.unchecked.append(f"{column}: rules that are not valid")
            return kind()


def _kind(field: FieldDescriptor) -> str | None:
    """Return which rules are for a field's values; None: none that are translated."""
    if field.message_type is None:
        return _KINDS.get(field.type)
    return SCALAR_MESSAGES[field.message_type.full_name] if _is_wrapper(field) else None


def _is_wrapper(field: FieldDescriptor) -> bool:
    inner = field.message_type
    return inner is not None and SCALAR_MESSAGES.get(inner.full_name) in _WRAPPERS


def _zero(field: FieldDescriptor) -> Value:
    """Return the zero value of a field as its column has it; of bytes an empty text stands for it."""
    if field.enum_type is not None:
        return value_names(field.enum_type).get(0, "0")
    kind = _kind(field)
    return "" if kind in {"string", "bytes"} else False if kind == "bool" else 0


def _named(rules: str) -> str:
    return rules.removesuffix("_rules")


def _unsaid(
    kind: str,
    held: Message,
    checks: dict[str, Any],
    more: list[tuple[str, dict[str, Any]]],
    enum: EnumDescriptor | None,
) -> Iterator[str]:
    """Add what rules check, to `checks` and in further rules of their own; yield the names of the rest."""
    found = {each.name: value for each, value in held.ListFields() if each.name not in _SAY_NOTHING}
    names = {} if enum is None else value_names(enum)
    if found.pop("defined_only", False):
        more.append(("defined_only", {"allowed": tuple(names.values())}))
    if kind != "bytes":
        for key, name, check in (
            ("const", "const", "allowed"), ("among", "in", "allowed"), ("not_among", "not_in", "forbidden"),
        ):  # fmt: skip
            if (given := found.pop(key, None)) is None:
                continue
            listed = [given] if key == "const" else list(given)
            if any(isinstance(each, float) and not math.isfinite(each) for each in listed):
                yield f"{name}, of a number that is not finite"
            else:
                columns = listed if enum is None else [names.get(each, str(each)) for each in listed]
                more.append((name, {check: tuple(columns)}))
    if kind == "string":
        yield from _texts(found, more)
    if kind in {"string", "bytes"}:
        exact = found.pop("len", None)
        lengths = found.pop("min_len", 0), found.pop("max_len", None)
        least, most = lengths if exact is None else (exact, exact)
        checks |= {"min_length": least} if least else {}
        checks |= {"max_length": most} if most is not None else {}
    elif kind not in {"bool", "enum"}:
        yield from _range(kind, found, checks)
    yield from (name for name, value in found.items() if value is not False)


def _texts(found: dict[str, Any], more: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    for name, pattern in _FORMATS.items():
        if found.pop(name, False):
            more.append((name, {"pattern": pattern}))
    for name, before, after in (("prefix", "", _ANY), ("suffix", _ANY, ""), ("contains", _ANY, _ANY)):
        if (text := found.pop(name, None)) is not None:
            more.append((name, {"pattern": f"{before}{_quoted(text)}{after}"}))
    if (pattern := found.pop("pattern", None)) is not None:
        if r"\Q" in pattern or r"\C" in pattern:
            yield "pattern, with a quotation or single bytes"
        else:
            more.append(("pattern", {"pattern": f"{_ANY}(?:{pattern}){_ANY}" if _compiles(pattern) else pattern}))


def _quoted(text: str) -> str:
    """Return a pattern of RE2 for a text as it is."""
    return re.sub(r"[^A-Za-z0-9]", lambda found: f"\\x{{{ord(found[0]):x}}}", text)


def _range(kind: str, found: dict[str, Any], checks: dict[str, Any]) -> Iterator[str]:
    """Add a range; yield its name where two inclusive bounds cannot say it."""
    names = [name for name in ("gt", "gte", "lt", "lte") if name in found]
    bounds = {name: found.pop(name) for name in names}
    finite = found.pop("finite", False)
    if any(isinstance(each, float) and not math.isfinite(each) for each in bounds.values()):
        yield f"{' and '.join(names)}, of a number that is not finite"
        bounds = {}
    low, high = (
        next((bounds[name] for name in pair if name in bounds), None) for pair in (("gt", "gte"), ("lt", "lte"))
    )
    if low is not None and high is not None and high < low:
        yield f"{' or '.join(names)}, which is outside of a range"
        bounds, low, high = {}, None, None
    if low is not None:
        checks["min"] = low if "gte" in bounds else _next(kind, low, up=True)
    if high is not None:
        checks["max"] = high if "lte" in bounds else _next(kind, high, up=False)
    if finite:
        most = float(np.finfo(_FLOATS[kind]).max)
        checks["min"], checks["max"] = max(checks.get("min", -most), -most), min(checks.get("max", most), most)


def _next(kind: str, bound: float, *, up: bool) -> float:
    """Return the next value of a kind of number."""
    if (of := _FLOATS.get(kind)) is None:
        return bound + 1 if up else bound - 1
    with np.errstate(over="ignore"):  # behind the largest one is infinity
        return float(np.nextafter(of(bound), of(math.inf if up else -math.inf)))


def _compiles(pattern: str) -> bool:
    try:
        for each in (pattern, whole_text(pattern)):
            pc.match_substring_regex(pa.array([""]), each)
    except pa.ArrowInvalid:
        return False
    return True
