"""Masks of output contracts agree with a plain judgement, row by row."""

import datetime as dt
import math
import pickle
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.names import game_key
from pipeline.data.output_contracts.kinds import KINDS
from pipeline.data.output_contracts.masks import broken, judge, map_on_the_way, type_at, unsuited
from pipeline.data.output_contracts.rules import ContractRule, OutputContract, by_game, dumps, loads, stopping
from pipeline.data.verify.promises import breaks, refusing

_SALE: Final = pa.struct(
    [("price", pa.int64()), ("tags", pa.list_(pa.string())), ("deep", pa.struct([("at", pa.float64())]))]
)
_COLUMNS: Final = pa.schema(
    [
        ("_event_id", pa.string()),
        ("points", pa.int64()),
        ("small", pa.int32()),
        ("ratio", pa.float64()),
        ("half", pa.float32()),
        ("money", pa.decimal128(10, 2)),
        ("huge", pa.decimal128(20, 0)),
        ("mode", pa.string()),
        ("done", pa.bool_()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("sold", _SALE),
        ("items", pa.list_(_SALE)),
        ("grid", pa.list_(pa.list_(pa.int32()))),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
)
_PATHS: Final = (
    *_COLUMNS.names, "sold.price", "sold.tags", "sold.tags[]", "sold.deep.at", "items[].price", "items[].tags[]",
    "grid[]", "grid[][]", "gone", "gone.below", "gone[]", "points.below", "points[]", "sold.gone", "items[].gone",
)  # fmt: skip
_BIG: Final = 2**53 + 1
_LARGEST: Final = float(np.finfo(np.float32).max)
_NUMBERS: Final = (
    0, 1, -1, 0.5, 0.1, 2**31, -(2**31) - 1, _BIG, float(_BIG), 2**63, 10**25, -(10**400), 1e300, -0.0, 1e39, -1e39,
)  # fmt: skip
_TIMES: Final = (
    "2026-01-01", "2026-01-01T12:00:00Z", "2026-01-01T00:00:00+02:00", "2026-01-01T12:00:00.000001", "9999-12-31 23:59",
)  # fmt: skip
_NOON: Final = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
_TEXTS: Final = ("", "a", "ab", "é🎮", "1", "a\nb", "true")


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({each.name: _values(each.type) for each in kind})
    if pa.types.is_list(kind):
        return st.none() | st.lists(_values(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        return st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), max_size=2).map(
            lambda d: [*d.items()]
        )
    plain: dict[str, st.SearchStrategy[Any]] = {
        "string": st.sampled_from(_TEXTS),
        "bool": st.booleans(),
        "binary": st.sampled_from([b"", b"a", b"\xff\x00"]),
        "date32[day]": st.sampled_from([dt.date(2026, 1, 1), dt.date(2025, 12, 31), dt.date(2026, 1, 2)]),
        "timestamp[us, tz=UTC]": st.sampled_from([_NOON.replace(hour=hour) for hour in (0, 12)]),
        "timestamp[us]": st.sampled_from(
            [_NOON.replace(tzinfo=None, hour=hour, microsecond=micros) for hour, micros in ((0, 0), (12, 0), (12, 1))]
        ),
        "int64": st.sampled_from([0, 1, -1, 7, _BIG, 2**63 - 1, -(2**63)]),
        "int32": st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]),
        "double": st.sampled_from([0.0, -0.0, 0.1, 0.5, float(2**53), 1e300, math.nan, math.inf, -math.inf]),
        "float": st.sampled_from(
            [0.0, -0.0, float(np.float32(0.1)), 0.5, math.nan, math.inf, -math.inf, _LARGEST, -_LARGEST]
        ),
        "decimal128(10, 2)": st.sampled_from(
            [Decimal("0.10"), Decimal("0.50"), Decimal("-1.00"), Decimal("99999999.99")]
        ),
        "decimal128(20, 0)": st.sampled_from([Decimal(0), Decimal(2**63), Decimal(10**20 - 1)]),
    }
    return st.none() | plain[str(kind)]


_RULES: Final = st.builds(
    ContractRule,
    name=st.just("rule"),
    column=st.sampled_from(_PATHS),
    action=st.just("quarantine"),
    required=st.booleans(),
    type=st.none() | st.sampled_from([*KINDS]),
    min=st.none() | st.sampled_from([*_NUMBERS, *_TIMES]),
    max=st.none() | st.sampled_from([*_NUMBERS, *_TIMES]),
    pattern=st.none() | st.sampled_from(["", "a", "a|b", "[a-z]+", "(?s).*", "."]),
    allowed=st.lists(st.sampled_from([*_NUMBERS, *_TEXTS, True, False]), max_size=3).map(tuple),
    min_length=st.none() | st.integers(1, 3),
    max_length=st.none() | st.integers(1, 3),
    forbidden=st.lists(st.sampled_from([*_NUMBERS, *_TEXTS, True, False]), max_size=3).map(tuple),
    within=st.booleans(),
    skip=st.none() | st.sampled_from([0, "", "a", False, 0.1]),
)  # fmt: skip
_ROW: Final = st.fixed_dictionaries({each.name: _values(each.type) for each in _COLUMNS})


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(_ROW, max_size=4), rules=st.lists(_RULES, min_size=1, max_size=6), struct=st.none() | st.just("sold")
)
def test_masks_decide_as_a_plain_judgement(
    rows: list[dict[str, Any]], rules: list[ContractRule], struct: str | None
) -> None:
    """Law L5: tasks judge batches and verify judges rows, and both say the same of nulls, NaN, structs and lists."""
    table = pa.Table.from_pylist([{"_event_id": "first"}, *rows], schema=_COLUMNS)[1:]  # an offset, as slices have
    for rule in rules:
        mask = broken(table, rule, struct)
        found = [False] * len(rows) if mask is None else mask.tolist()
        assert found == [breaks(table.slice(place, 1), struct, rule) for place in range(len(rows))], rule


@settings(max_examples=150, deadline=None)
@given(row=_ROW, rule=_RULES)
def test_a_rule_for_other_kinds_is_broken_by_each_value(row: dict[str, Any], rule: ContractRule) -> None:
    """A plan that says that a new type breaks a rule says it of every value."""
    for column in (each for each in _COLUMNS if row[each.name] is not None):
        own = replace(rule, column=column.name, required=False, skip=None)
        if unsuited(column.type, own):
            assert broken(pa.Table.from_pylist([row], schema=_COLUMNS), own, None) is not None, own
        assert type_at(_COLUMNS, column.name) == column.type


@pytest.mark.parametrize(
    ("rule", "rows", "expected"),
    [
        ({"column": "points", "required": True}, [{"points": 0}, {"points": None}, {}], [False, True, True]),
        ({"column": "points", "min": 0.5, "max": _BIG}, [{"points": 0}, {"points": _BIG}, {"points": _BIG + 1}, {}],
         [True, False, True, False]),
        ({"column": "ratio", "max": 1}, [{"ratio": 1.0}, {"ratio": math.nan}, {"ratio": 2.0}], [False, True, True]),
        ({"column": "mode", "pattern": "a|bc"}, [{"mode": "a"}, {"mode": "abc"}, {"mode": "bc"}, {}],
         [False, True, False, False]),
        ({"column": "sold.price", "min": 1}, [{"sold": {"price": 0}}, {"sold": None}, {"sold": {"price": 1}}],
         [True, False, False]),
        ({"column": "items[].price", "required": True},
         [{"items": []}, {"items": None}, {"items": [{"price": 1}, None]}, {"items": [{"price": 1}]}],
         [False, False, True, False]),
        ({"column": "mode", "allowed": ("a", 1)}, [{"mode": "a"}, {"mode": "1"}], [False, True]),
        ({"column": "small", "type": "integer"}, [{"small": 1}, {}], [False, False]),
        ({"column": "mode", "type": "integer"}, [{"mode": "1"}, {}], [True, False]),
        ({"column": "money", "min": 0.01, "max": 19.99},
         [{"money": Decimal(each)} for each in ("0.00", "0.01", "19.99", "20.00")], [True, False, False, True]),
        ({"column": "money", "allowed": (0.1, 0.25)},
         [{"money": Decimal(each)} for each in ("0.10", "0.25", "0.20")], [False, False, True]),
        ({"column": "half", "min": 0.1, "max": 0.1, "allowed": (0.1,)},
         [{"half": 0.1}, {"half": 0.125}], [False, True]),
        ({"column": "half", "max": 2**24 + 1}, [{"half": 2.0**24}, {"half": 2.0**24 + 2}], [False, True]),
        ({"column": "half", "min": -1e39, "max": 1e39},
         [{"half": each} for each in (-math.inf, -_LARGEST, _LARGEST, math.inf)], [True, False, False, True]),
        ({"column": "half", "allowed": (1e39, -1e39)},
         [{"half": each} for each in (-math.inf, -_LARGEST, _LARGEST, math.inf)], [True] * 4),
        ({"column": "at", "min": "2026-01-01T12:00:00Z", "max": "2026-01-01T14:00:00+01:00"},
         [{"at": _NOON.replace(hour=hour)} for hour in (11, 12, 13, 14)], [True, False, False, True]),
        ({"column": "day", "min": "2026-01-01T12:00:00", "max": "2026-01-02"},
         [{"day": dt.date(2026, 1, day)} for day in (1, 2, 3)], [True, False, True]),
        ({"column": "points", "min": "2026-01-01"}, [{"points": 5}, {}], [True, False]),
        ({"column": "gone", "min": 1}, [{}], [False]),
        ({"column": "gone", "required": True}, [{}], [True]),
    ],
)  # fmt: skip
def test_values_break_a_rule(rule: dict[str, Any], rows: list[dict[str, Any]], expected: list[bool]) -> None:
    """A null breaks `required` alone, NaN is in no range, and an absent column is null."""
    made = ContractRule("rule", action="quarantine", **rule)
    table = pa.Table.from_pylist(rows, schema=_COLUMNS)
    mask = broken(table, made, None)
    assert ([False] * len(rows) if mask is None else mask.tolist()) == expected
    assert [breaks(table.slice(place, 1), None, made) for place in range(len(rows))] == expected


def test_only_quarantine_refuses() -> None:
    """A warning counts its rows and refuses none; the detail names each rule that refuses the row, and no value."""
    rules = (
        ContractRule("low", "points", "quarantine", min=0),
        ContractRule("mode", "mode", "quarantine", allowed=("a",)),
        ContractRule("high", "points", "warn", max=10),
    )
    contract = OutputContract("chess", games=("Chess",), rules=rules)
    rows = [{"points": -7, "mode": "secret"}, {"points": 77, "mode": "a"}, {"points": 5, "mode": "a"}]
    verdict = judge(pa.Table.from_pylist(rows, schema=_COLUMNS), [contract], None)
    said = "breaks the output contract chess/low; breaks the output contract chess/mode"
    assert verdict.details() == [(0, said)]
    assert {name: mask.tolist() for name, mask in verdict.broken.items()} == {
        "chess/low": [True, False, False], "chess/mode": [True, False, False], "chess/high": [False, True, False],
    }  # fmt: skip
    first = pa.Table.from_pylist(rows[:1], schema=_COLUMNS)
    assert refusing(first, None, [contract]) == ["chess/low", "chess/mode"]


def test_a_stop_refuses_and_names_its_column() -> None:
    """Law L5: a row that stops its stream never lands by a replay either, and the stop names rule and column."""
    rules = (ContractRule("low", "points", "stop", min=0), ContractRule("high", "points", "stop", max=10))
    contract, rows = OutputContract("chess", games=("Chess",), rules=rules), [{"points": -7}, {"points": 5}]
    verdict = judge(pa.Table.from_pylist(rows, schema=_COLUMNS), [contract], None)
    assert verdict.stopping == {"chess/low": "points"}
    assert verdict.details() == [(0, "breaks the output contract chess/low")]
    assert refusing(pa.Table.from_pylist(rows[:1], schema=_COLUMNS), None, [contract]) == ["chess/low"]


def test_only_the_rules_that_stop_count_for_a_stopped_stream() -> None:
    """A stopped stream goes on once such a rule changes, and not for a warning or another game's name."""
    stop, warn = ContractRule("low", "points", "stop", min=0), ContractRule("high", "points", max=10)
    first = stopping([OutputContract("c", ("Chess",), rules=(stop,))])
    beside = [OutputContract("c", ("Chess", "Go"), rules=(stop, warn)), OutputContract("d", rules=(warn,))]
    assert stopping(beside) == first
    others = (replace(stop, min=-1), replace(stop, action="quarantine"), warn)
    assert {stopping([OutputContract("c", rules=(each,))]) for each in others}.isdisjoint({first})
    assert stopping([OutputContract("c", rules=(warn,))]) == ""


@pytest.mark.parametrize(
    ("path", "struct", "inside"),
    [
        ("map.a", None, "map"), ("map[]", None, "map"), ("deep[].tags.a", None, "deep[].tags"), ("map", None, None),
        ("gone.a", None, None), ("tags.a", "sold", "sold.tags"), ("_event_time.a", "sold", None),
    ],
)  # fmt: skip
def test_a_path_into_a_map_is_found(path: str, struct: str | None, inside: str | None) -> None:
    """A rule on a path that no table can have would check nothing, so it is found before it is applied."""
    of = pa.map_(pa.string(), pa.int64())
    tagged = pa.struct([("tags", of)])
    columns = pa.schema([("map", of), ("deep", pa.list_(tagged)), ("sold", tagged)])
    assert map_on_the_way(columns, ContractRule("rule", path, required=True), struct) == inside


def test_games_share_their_contracts() -> None:
    """A set with a thousand games of one contract is pickled with it once."""
    contract = OutputContract("all", prefixes=("g",), rules=(ContractRule("a", "a", required=True),))
    assert loads(dumps([contract])) == (contract,)
    names = {game_key(f"g{number}"): f"g{number}" for number in range(100)} | {game_key("other"): "other"}
    found = by_game([contract], names)
    assert (len(found), len({id(each) for each in found.values()})) == (100, 1)
    assert len(pickle.dumps([*found.values()])) < 1_500
