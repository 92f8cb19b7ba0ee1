"""Judges one row by its game's output contracts in plain Python: with no code of the masks that tasks use."""

import datetime as dt
import math
import re
import struct as packed
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.output_contracts.rules import LANDS, OWN, Bound, ContractRule, OutputContract, label

_STEP: Final = re.compile(r"([^\[\]]+)((?:\[\])*)")


def refusing(row: pa.Table, struct: str | None, contracts: Iterable[OutputContract]) -> list[str]:
    """Return the rules by which a row belongs in quarantine; the row is a table of one row."""
    return [
        label(contract, rule)
        for contract in contracts
        for rule in contract.rules
        if rule.action != LANDS and breaks(row, struct, rule)
    ]


def breaks(row: pa.Table, struct: str | None, rule: ContractRule) -> bool:
    """Return whether a row breaks a rule."""
    steps = [(found[1], len(found[2]) // 2) for each in rule.column.split(".") if (found := _STEP.fullmatch(each))]
    if struct is not None and steps[0][0] not in OWN:
        steps = [(struct, 0), *steps]
    columns = dict(zip(row.column_names, row.columns, strict=True))
    name, depth = steps[0]
    value, kind = (columns[name][0].as_py(), columns[name].type) if name in columns else (None, pa.null())
    reached = _spread(value, kind, depth, steps[1:], inside=True)
    return any(_is_bad(each, held, rule, inside=inside) for each, held, inside in reached)


def _spread(
    value: Any, kind: pa.DataType, depth: int, steps: Sequence[tuple[str, int]], *, inside: bool
) -> Iterator[tuple[Any, pa.DataType, bool]]:
    """Yield the values at the end of a path, with their type and whether what is around them is there."""
    if depth:
        for each in value if pa.types.is_list(kind) and value is not None else ():
            yield from _spread(each, kind.value_type, depth - 1, steps, inside=True)
        return
    if not steps:
        yield value, kind, inside
        return
    (name, below), rest = steps[0], steps[1:]
    known = pa.types.is_struct(kind) and kind.get_field_index(name) >= 0
    inner = kind.field(name).type if known else pa.null()
    member = value.get(name) if known and value is not None else None
    yield from _spread(member, inner, below, rest, inside=value is not None)


def _is_bad(value: Any, kind: pa.DataType, rule: ContractRule, *, inside: bool) -> bool:
    if value is None:
        return rule.required and (inside or not rule.within)
    if rule.skip is not None and (
        not value if (_is_of(kind, "list") or _is_of(kind, "binary")) else _same(value, rule.skip, kind)
    ):
        return False
    return any(wanted is not None and not good(value, kind) for wanted, good in _checks(rule))


def _checks(rule: ContractRule) -> list[tuple[Any, Callable[[Any, pa.DataType], bool]]]:
    """Return each check that a rule may have: what it wants, and whether a value has it."""
    return [
        (rule.type, lambda _, kind: _is_of(kind, rule.type or "")),
        (rule.min, lambda value, kind: _is_ordered(value, kind, rule.min) and value >= _bound(rule.min, value, kind)),
        (rule.max, lambda value, kind: _is_ordered(value, kind, rule.max) and value <= _bound(rule.max, value, kind)),
        (rule.pattern, lambda value, kind: pa.types.is_string(kind) and _fits(value, rule.pattern or "")),
        (rule.allowed or None, lambda value, kind: any(_same(value, each, kind) for each in rule.allowed)),
        (rule.forbidden or None, lambda value, kind: not any(_same(value, each, kind) for each in rule.forbidden)),
        (rule.min_length, lambda value, kind: _has_length(kind) and len(value) >= (rule.min_length or 0)),
        (rule.max_length, lambda value, kind: _has_length(kind) and len(value) <= (rule.max_length or 0)),
    ]


def _is_ordered(value: Any, kind: pa.DataType, bound: Bound | None) -> bool:
    """Return whether a value can be compared with a bound: numbers with numbers, days and moments with moments."""
    if isinstance(bound, str):
        return _is_of(kind, "date") or _is_of(kind, "timestamp")
    return _is_of(kind, "number") and not math.isnan(value)


def _bound(bound: Bound | None, value: Any, kind: pa.DataType) -> Any:
    """Return a bound so that comparing it is exact; beside a decimal or a short float it is what a person wrote."""
    if isinstance(bound, str):
        moment = dt.datetime.fromisoformat(bound)
        moment = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
        if isinstance(value, dt.datetime):
            return moment if value.tzinfo is not None else moment.replace(tzinfo=None)
        return _Moment(moment)
    if isinstance(value, Decimal):
        return Decimal(str(bound))
    return Decimal(_short(bound or 0, kind))


@dataclass(frozen=True, slots=True)
class _Moment:
    """A moment that a day is compared with by its first one."""

    at: dt.datetime

    def __le__(self, day: dt.date) -> bool:
        return self.at <= dt.datetime.combine(day, dt.time(), dt.UTC)

    def __ge__(self, day: dt.date) -> bool:
        return self.at >= dt.datetime.combine(day, dt.time(), dt.UTC)


def _short(number: float, kind: pa.DataType) -> float:
    """Return a fraction as a column of short floats holds it; other numbers, and other columns' ones, as they are."""
    form = {"float": "<f", "halffloat": "<e"}.get(str(kind))  # a machine's own "f" makes what is too large infinite
    if form is None or not isinstance(number, float):
        return number
    try:
        (held,) = packed.unpack(form, packed.pack(form, number))
    except OverflowError:
        return number
    return float(held)


_WORDS: Final[Mapping[str, re.Pattern[str]]] = {
    "boolean": re.compile("bool"),
    "integer": re.compile(r"u?int\d+|decimal\d+\(\d+, 0\)"),
    "number": re.compile(r"u?int\d+|float|halffloat|double|decimal\d+\(.*\)"),
    "string": re.compile("string"),
    "binary": re.compile("binary"),
    "date": re.compile(r"date\d+\[.*\]"),
    "timestamp": re.compile(r"timestamp\[.*\]"),
    "list": re.compile("list<.*>"),
    "map": re.compile("map<.*>"),
    "struct": re.compile("struct<.*>"),
}


def _is_of(kind: pa.DataType, word: str) -> bool:
    return _WORDS[word].fullmatch(str(kind)) is not None


def _has_length(kind: pa.DataType) -> bool:
    return any(_is_of(kind, word) for word in ("string", "binary", "list"))


def _fits(text: str, pattern: str) -> bool:
    """Return whether a whole text fits, by Arrow on one text: no other library has RE2's dialect."""
    return bool(pc.match_substring_regex(pa.scalar(text), rf"\A(?:{pattern})\z").as_py())


def _same(value: Any, allowed: Any, kind: pa.DataType) -> bool:
    """Return whether a value is an allowed one: of texts, truths and numbers each equals its own kind only."""
    if isinstance(allowed, str | bool) or isinstance(value, str | bool):
        return type(value) is type(allowed) and value == allowed
    if isinstance(value, Decimal):
        return bool(value == Decimal(str(allowed)))
    return isinstance(value, int | float) and bool(value == _short(allowed, kind))
