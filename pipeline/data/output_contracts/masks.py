"""Output contracts as masks of `pyarrow.compute`: which rows of a table break a rule. Pure; a task calls it.

`pipeline/data/verify/promises.py` judges a row at a time, without any code of this module.
"""

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.output_contracts.kinds import KINDS
from pipeline.data.output_contracts.rules import ELEMENTS, LANDS, OWN, Bound, ContractRule, OutputContract, Value, label

Mask: TypeAlias = npt.NDArray[np.bool_]
_Rows: TypeAlias = npt.NDArray[np.int64]
_DIGITS: Final = 2000  # a double has at most 1,100, written out


@dataclass(slots=True)
class BrokenRules:
    """What the rules of contracts say of some rows."""

    broken: dict[str, Mask] = field(default_factory=dict)  # by rule, of those that some rows break
    refused: Mask | None = None  # rows for quarantine; None: none
    refusing: list[str] = field(default_factory=list)  # the rules that refuse rows
    stopping: dict[str, str] = field(default_factory=dict)  # of them, those that stop streams, with their columns

    def rules_of(self, row: int) -> list[str]:
        """Return the rules by which a row is refused."""
        return [name for name in self.refusing if self.broken[name][row]]

    def details(self) -> list[tuple[int, str]]:
        """Return each refused row, and which rules it breaks."""
        if self.refused is None:
            return []
        rows = np.flatnonzero(self.refused)
        named = [(f"breaks the output contract {name}", self.broken[name][rows]) for name in self.refusing]
        return [
            (row, "; ".join(sentence for sentence, mask in named if mask[place]))
            for place, row in enumerate(rows.tolist())
        ]


def judge(rows: pa.Table, contracts: Sequence[OutputContract], struct: str | None) -> BrokenRules:
    """Judge rows of one event type.

    Args:
        rows: in the columns of their game's table.
        contracts: those that are for them.
        struct: the column of their event type's fields; None: they are columns of the table.
    """
    verdict, columns = BrokenRules(), dict[str, _Column]()
    for contract in contracts:
        for rule in contract.rules:
            column = columns.get(rule.column)
            if column is None:
                column = columns[rule.column] = _column_at(rows, rule.column, struct)
            mask = _broken(column, rule, rows.num_rows)
            if mask is None:
                continue
            verdict.broken[name := label(contract, rule)] = mask
            if rule.action == LANDS:
                continue
            verdict.refusing.append(name)
            verdict.refused = mask if verdict.refused is None else verdict.refused | mask
            if rule.action == "stop":
                verdict.stopping[name] = rule.column
    return verdict


def broken(rows: pa.Table, rule: ContractRule, struct: str | None) -> Mask | None:
    """Return the rows that break a rule, None where none does."""
    return _broken(_column_at(rows, rule.column, struct), rule, rows.num_rows)


def _broken(column: "_Column", rule: ContractRule, rows: int) -> Mask | None:
    bad = _bad(column, rule)
    if bad is None or column.parents is None:
        return bad
    mask = np.zeros(rows, dtype=np.bool_)
    mask[column.parents[bad]] = True
    return mask


def has_column(rows: pa.Table, rule: ContractRule, struct: str | None) -> bool:
    """Return whether the rows of one event type, given as `broken` takes them, have the column of a rule."""
    return not pa.types.is_null(_column_at(rows, rule.column, struct).values.type)


def type_at(columns: pa.Schema, path: str) -> pa.DataType | None:
    """Return the type of a rule's column below those of its event type; None: there is no such column."""
    kind = _column_at(columns.empty_table(), path, None).values.type
    return None if pa.types.is_null(kind) else kind


def unsuited(kind: pa.DataType, rule: ContractRule) -> bool:
    """Return whether a rule is for other kinds of columns, so that each value of this type breaks it."""
    is_number, is_time = KINDS["number"](kind), KINDS["date"](kind) or KINDS["timestamp"](kind)
    is_text, types = KINDS["string"](kind), {type(each) for each in rule.allowed}
    fitting: set[type] = (
        {int, float} if is_number else {str} if is_text else {bool} if KINDS["boolean"](kind) else set()
    )
    has_length = is_text or KINDS["binary"](kind) or KINDS["list"](kind)
    wanted = (
        (rule.type, rule.type is not None and KINDS[rule.type](kind)),
        *((each, is_time if isinstance(each, str) else is_number) for each in (rule.min, rule.max)),
        (rule.pattern, is_text),
        (rule.allowed or None, bool(types & fitting)),
        *((each, has_length) for each in (rule.min_length, rule.max_length)),
    )
    return any(given is not None and not suits for given, suits in wanted)


def map_on_the_way(columns: pa.Schema, rule: ContractRule, struct: str | None) -> str | None:
    """Return the map that a rule's path leads into, which no rule can; None where it leads into none.

    Args:
        columns: of a game's table.
        rule: the rule.
        struct: as `judge` takes it.
    """
    names = rule.column.split(".")
    if struct is not None and names[0] not in OWN:
        names = [struct, *names]
    kind: pa.DataType = pa.struct(list(columns))
    for place, name in enumerate(names):
        bare = name.rstrip(ELEMENTS)
        if pa.types.is_map(kind):
            return ".".join(names[:place])
        if not pa.types.is_struct(kind) or (at := kind.get_field_index(bare)) < 0:
            return None
        kind = kind.field(at).type
        for _ in range((len(name) - len(bare)) // len(ELEMENTS)):
            if pa.types.is_map(kind):
                return ".".join([*names[:place], bare])
            kind = kind.value_type if pa.types.is_list(kind) else pa.null()
    return None


@dataclass(frozen=True, slots=True)
class _Column:
    """The values at a column's path."""

    values: pa.Array
    around: pa.Array | None  # the structs that they are members of; None: they are columns, or elements
    parents: _Rows | None  # of which row each is; None: each row has one


def _column_at(rows: pa.Table, path: str, struct: str | None) -> _Column:
    """Return what is at a column's path.

    A column that is not there is null in every row; a list that is not there has no element.
    """
    names = path.split(".")
    if struct is not None and names[0] not in OWN:
        names = [struct, *names]
    values: pa.Array = pa.nulls(0)
    around: pa.Array | None = None
    parents: _Rows | None = None
    for place, name in enumerate(names):
        bare = name.rstrip(ELEMENTS)
        around = None if place == 0 else values
        values = _column(rows, bare) if place == 0 else _member(values, bare)
        for _ in range((len(name) - len(bare)) // len(ELEMENTS)):
            around = None
            values, of = _elements(values)
            parents = of if parents is None else parents[of]
    return _Column(values, around, parents)


def _column(rows: pa.Table, name: str) -> pa.Array:
    place = rows.schema.get_field_index(name)
    if place < 0:
        return pa.nulls(rows.num_rows)
    column = rows.column(place)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _member(values: pa.Array, name: str) -> pa.Array:
    if not pa.types.is_struct(values.type) or (place := values.type.get_field_index(name)) < 0:
        return pa.nulls(len(values))
    return pc.struct_field(values, [place])


def _elements(values: pa.Array) -> tuple[pa.Array, _Rows]:
    """Return the elements of lists, and in which list each is."""
    if not pa.types.is_list(values.type):
        return pa.nulls(0), np.empty(0, dtype=np.int64)
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    return pc.list_flatten(values), np.repeat(np.arange(len(values), dtype=np.int64), sizes)


def _bad(column: _Column, rule: ContractRule) -> Mask | None:
    """Return the values that break a rule; None: none does. A null breaks `required` alone."""
    values, bad = column.values, None
    if rule.required and values.null_count:
        lacking = pc.is_null(values)
        if rule.within and column.around is not None:
            lacking = pc.and_(lacking, pc.is_valid(column.around))
        bad = _numpy(lacking) if lacking.true_count else None
    if values.null_count == len(values):
        return bad
    checks = [
        None if rule.type is None else _all(values, bad=not KINDS[rule.type](values.type)),
        None if rule.min is None else _in_range(values, rule.min, below=True),
        None if rule.max is None else _in_range(values, rule.max, below=False),
        None if rule.pattern is None else _like(values, rule.pattern),
        None if not rule.allowed else _among(values, rule.allowed),
        None if not rule.forbidden else _not_among(values, rule.forbidden),
        None if rule.min_length is None else _has_length(values, rule.min_length, below=True),
        None if rule.max_length is None else _has_length(values, rule.max_length, below=False),
    ]
    kept = [each for each in checks if each is not None]
    if not kept:
        return bad
    good = reduce(pc.and_, kept)
    if rule.skip is not None:
        good = pc.or_kleene(good, _is_skipped(values, rule.skip))
    if values.null_count:
        good = pc.or_kleene(good, pc.is_null(values))
    if good.true_count == len(good):
        return bad
    wrong = ~_numpy(good)
    return wrong if bad is None else bad | wrong


def _numpy(mask: pa.BooleanArray) -> Mask:
    found: Mask = mask.to_numpy(zero_copy_only=False)
    return found


def _all(values: pa.Array, *, bad: bool) -> pa.BooleanArray | None:
    """Return that every value breaks a rule, such as a check for another kind of column, or that none does."""
    return pc.is_null(values) if bad else None


def _in_range(values: pa.Array, bound: Bound, *, below: bool) -> pa.BooleanArray | None:
    """Return which values are on the right side of an inclusive bound; exact, and NaN is on none."""
    kind, compare = values.type, pc.greater_equal if below else pc.less_equal
    if isinstance(bound, str):
        return _in_time(values, dt.datetime.fromisoformat(bound), below=below)
    if pa.types.is_floating(kind):
        return compare(values, pa.scalar(_as_float(bound, kind, up=below), kind))
    if pa.types.is_integer(kind):
        return _within(values, math.ceil(bound) if below else math.floor(bound), below=below)
    if pa.types.is_decimal(kind):
        with localcontext() as context:
            context.prec = _DIGITS
            step = Decimal(1).scaleb(-kind.scale)
            exact = _written(bound).quantize(step, ROUND_CEILING if below else ROUND_FLOOR)
        return _within(values, exact, below=below)
    return _all(values, bad=True)


def _written(number: float) -> Decimal:
    """Return a number as a person wrote it: 0.01 is a hundredth, which no double is."""
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def _within(values: pa.Array, bound: int | Decimal, *, below: bool) -> pa.BooleanArray | None:
    """Compare with a bound of the values' own type; one beyond the type decides for all of them."""
    try:
        scalar = pa.scalar(bound, values.type)
    except (pa.ArrowInvalid, OverflowError):
        return _all(values, bad=(bound > 0) == below)
    return (pc.greater_equal if below else pc.less_equal)(values, scalar)


def _in_time(values: pa.Array, bound: dt.datetime, *, below: bool) -> pa.BooleanArray | None:
    """Return which days or moments are on the right side of one; a day is its first moment, UTC."""
    kind, moment = values.type, bound.replace(tzinfo=bound.tzinfo or dt.UTC).astimezone(dt.UTC)
    if pa.types.is_timestamp(kind):
        scalar = pa.scalar(moment if kind.tz else moment.replace(tzinfo=None), kind)
    elif pa.types.is_date(kind):
        is_later = below and moment.time() != dt.time()
        if is_later and moment.date() == dt.date.max:
            return _all(values, bad=True)
        scalar = pa.scalar(moment.date() + dt.timedelta(days=int(is_later)), kind)
    else:
        return _all(values, bad=True)
    return (pc.greater_equal if below else pc.less_equal)(values, scalar)


def _as_float(bound: float, kind: pa.DataType, *, up: bool) -> np.floating:
    """Return a bound as a float column has it: a fraction as a person wrote it, so that 0.1 is the column's own 0.1.

    Of a whole number that the column lacks, and beyond its largest, it is the next one on the inner side.
    """
    near = _nearest(bound, kind)
    if isinstance(bound, float) and np.isfinite(near):
        return near
    is_outside = float(near) < bound if up else float(near) > bound
    inner: np.floating = np.nextafter(near, type(near)(math.inf if up else -math.inf)) if is_outside else near
    return inner


def _nearest(number: float, kind: pa.DataType) -> np.floating:
    """Return the nearest value that a float column can have; infinite beyond its largest."""
    of: Callable[[float], np.floating] = kind.to_pandas_dtype()
    try:
        with np.errstate(over="ignore"):
            return of(number)
    except OverflowError:
        return of(math.inf if number > 0 else -math.inf)


def _like(values: pa.Array, pattern: str) -> pa.BooleanArray | None:
    if not pa.types.is_string(values.type):
        return _all(values, bad=True)
    return pc.match_substring_regex(values, whole_text(pattern))


def whole_text(pattern: str) -> str:
    """Return a pattern for a search that finds a whole text or nothing."""
    return rf"\A(?:{pattern})\z"


def _among(values: pa.Array, allowed: Sequence[Value]) -> pa.BooleanArray | None:
    """Return which values are allowed, without conversions between texts and numbers."""
    kind = values.type
    numbers = [each for each in allowed if not isinstance(each, bool | str)]
    if pa.types.is_boolean(kind):
        return _is_in(values, [each for each in allowed if isinstance(each, bool)])
    if pa.types.is_string(kind):
        return _is_in(values, [each for each in allowed if isinstance(each, str)])
    if pa.types.is_floating(kind):
        near = [_nearest(each, kind) for each in numbers]
        pairs = [(each, of) for each, of in zip(near, numbers, strict=True) if np.isfinite(each)]
        own = [each for each, of in pairs if isinstance(of, float) or float(each) == of]
        signed = [zero for each in own if each == 0 for zero in (0.0, -0.0)]
        return _is_in(values, [*own, *signed])
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        fitting = [_exact(each, kind) for each in numbers]
        return _is_in(values, [each for each in fitting if each is not None])
    return _all(values, bad=True)


def _exact(number: float, kind: pa.DataType) -> int | Decimal | None:
    """Return a number as a column's type has it; None where it has no such value."""
    if not pa.types.is_integer(kind):
        exact: int | Decimal = _written(number)
    elif (exact := int(number)) != number:
        return None
    try:
        pa.scalar(exact, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None
    return exact


def _not_among(values: pa.Array, forbidden: Sequence[Value]) -> pa.BooleanArray | None:
    found = _among(values, forbidden)
    return None if found is None else pc.invert(found)


def _is_skipped(values: pa.Array, skip: Value) -> pa.BooleanArray:
    """Return which values break no check: one value, and of bytes and lists any that is empty."""
    if pa.types.is_binary(values.type) or pa.types.is_list(values.type):
        return _has_length(values, 0, below=False)
    return _among(values, [skip])


def _is_in(values: pa.Array, allowed: Sequence[object]) -> pa.BooleanArray:
    return pc.is_in(values, value_set=pa.array(allowed, values.type))


def _has_length(values: pa.Array, bound: int, *, below: bool) -> pa.BooleanArray | None:
    kind = values.type
    if pa.types.is_string(kind):
        lengths = pc.utf8_length(values)
    elif pa.types.is_binary(kind):
        lengths = pc.binary_length(values)
    elif pa.types.is_list(kind):
        lengths = pc.list_value_length(values)
    else:
        return _all(values, bad=True)
    return (pc.greater_equal if below else pc.less_equal)(lengths, bound)
