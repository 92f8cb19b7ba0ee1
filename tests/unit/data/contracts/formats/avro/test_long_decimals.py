"""Decimals of Avro with more digits than a column has, as Connect's default precision of 64 allows."""

import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.supported import columns
from pipeline.data.contracts.placing import placed
from pipeline.data.contracts.policies import DEFAULTS, parse_policies
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema
from pipeline.data.contracts.shape import table_schema
from tests.unit.data.contracts.formats.avro.avro_world import (
    FORMAT,
    Chance,
    assert_sound,
    decode,
    listed,
    schema,
    varint,
)
from tests.unit.data.contracts.formats.avro.definitions import avro
from tests.unit.data.contracts.formats.avro.definitions import decimal as decimal_type

CONNECT = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2, "connect.version": 1}
MOST = 10**38 - 1


def number(value: int, size: int = 0) -> bytes:
    """Return the bytes of a decimal, padded to a least number."""
    least = (value.bit_length() + 8) // 8
    return varint(max(least, size)) + value.to_bytes(max(least, size), "big", signed=True)


def rows(of: Schema, *contents: bytes) -> list[Any]:
    """Return the rows of payloads that both decoders take alike."""
    assert_sound(of, list(contents))
    found = decode(of, *contents)
    assert found.refused == []
    listed: list[Any] = found.batch.to_pylist()
    return listed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (MOST, None),
        (-MOST, None),
        (0, None),
        (MOST + 1, "1" + "0" * 36 + ".00"),
        (-MOST - 1, "-1" + "0" * 36 + ".00"),
        (10**64 - 1, "9" * 62 + ".99"),
        (-(10**63) - 7, "-1" + "0" * 60 + "0.07"),
    ],
)
@pytest.mark.proves("G241")
def test_a_decimal_lands_in_its_column_or_as_text_beside_it(value: int, text: str | None) -> None:
    """No digit is lost: a value lies in the column, or its exact text in `x__text`, among short ones and alone."""
    of = schema({"x": CONNECT, "i": "int"})
    own = None if text else Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -2))
    long, short = number(value) + varint(7), number(-1, 5) + varint(8)
    small = {"x": Decimal("-0.01"), "i": 8, "x__text": None}
    assert columns(of).names == ["x", "i", "x__text"]
    for neighbours in (0, 3, 200):
        found = rows(of, *[short] * neighbours, long, *[short] * neighbours)
        assert found == [small] * neighbours + [{"x": own, "i": 7, "x__text": text}] + [small] * neighbours


def test_a_text_has_the_scale_of_its_schema() -> None:
    """It is written in full, without an exponent, also where the scale is as large as a column's digits."""
    kinds = [{**CONNECT, "scale": scale} for scale in (0, 38)]
    of = schema({"whole": kinds[0], "part": kinds[1]})
    assert rows(of, number(10**40) + number(-(10**38)))[0] == {
        "whole": None,
        "part": None,
        "whole__text": "1" + "0" * 40,
        "part__text": "-1." + "0" * 38,
    }


def test_null_and_fixed_decimals_have_texts_too() -> None:
    """An optional decimal is null in both columns, or has one of them; a fixed is read as bytes are."""
    fixed = {"type": "fixed", "name": "F", "size": 27, "logicalType": "decimal", "precision": 64, "scale": 0}
    of = schema({"x": ["null", CONNECT], "f": fixed})
    long = (10**63).to_bytes(27, "big", signed=True)
    assert rows(of, varint(0) + long, varint(1) + number(10**50) + bytes(27), varint(1) + number(1) + long) == [
        {"x": None, "f": None, "x__text": None, "f__text": "1" + "0" * 63},
        {"x": None, "f": Decimal(0), "x__text": "1" + "0" * 48 + ".00", "f__text": None},
        {"x": Decimal("0.01"), "f": None, "x__text": None, "f__text": "1" + "0" * 63},
    ]


@pytest.mark.proves("G241")
def test_texts_lie_beside_their_decimals_at_any_depth() -> None:
    """In records, also those of lists and maps, and in unions the text is a member of the same struct."""
    inner = {"type": "record", "name": "P", "fields": listed({"d": CONNECT})}
    of = schema({
        "one": inner,
        "many": {"type": "array", "items": "P"},
        "map": {"type": "map", "values": "P"},
        "either": ["null", "string", CONNECT],
    })  # fmt: skip
    long, short = number(10**38), number(5)
    text, held = "1" + "0" * 36 + ".00", {"d": Decimal("0.05"), "d__text": None}
    beside = {"d": None, "d__text": text}
    many = varint(2) + long + short + varint(0)
    entries = varint(1) + varint(1) + b"k" + long + varint(0)
    assert rows(of, long + many + entries + varint(2) + long, short + varint(0) * 2 + varint(2) + short) == [
        {
            "one": beside,
            "many": [beside, held],
            "map": [("k", beside)],
            "either": {"string": None, "bytes": None, "bytes__text": text},
        },
        {
            "one": held,
            "many": [],
            "map": [],
            "either": {"string": None, "bytes": Decimal("0.05"), "bytes__text": None},
        },
    ]


@pytest.mark.parametrize("items", [CONNECT, ["null", CONNECT]])
@pytest.mark.parametrize("shape", ["array", "map"])
@pytest.mark.proves("G241")
def test_a_list_or_map_of_decimals_refuses_what_its_column_cannot_hold(shape: str, items: Any) -> None:
    """An item has no place for a text beside it: its row goes to quarantine, and no value is rounded."""
    of = schema({"xs": {"type": shape, "items" if shape == "array" else "values": items}})
    assert columns(of).names == ["xs"]
    before = (varint(1) + b"k" if shape == "map" else b"") + (varint(1) if isinstance(items, list) else b"")
    good, bad = (varint(1) + before + number(each) + varint(0) for each in (MOST, MOST + 1))
    assert_sound(of, [good, bad])
    assert [(each.row, each.detail) for each in decode(of, good, bad).refused] == [
        (1, "xs: a decimal has more than 38 digits, the most of a column")
    ]


@pytest.mark.proves("G241")
def test_a_value_beyond_its_precision_is_refused() -> None:
    """A text holds what the schema allows, at most 4,300 digits: the time for more grows with their square."""
    huge = {**CONNECT, "precision": 2**31 - 1, "scale": 0}
    of = schema({"x": CONNECT, "y": huge})
    good = number(10**64 - 1) + number(10**4300 - 1)
    before = time.process_time()
    bad = [number(10**64) + number(0), number(0) + number(-(10**4300)), number(0) + varint(10**6) + b"\x7f" * 10**6]
    assert_sound(of, [good, *bad])
    details = [each.detail for each in decode(of, good, *bad).refused]
    assert details == [
        "x: a decimal has more than 64 digits",
        *["y: a decimal has more than 4300 digits, the most of a text"] * 2,
    ]
    assert time.process_time() - before < 1


def test_an_excerpt_has_the_text() -> None:
    """A person sees the value that a list of rows in quarantine, or of rows with their texts, came from."""
    of = schema({"x": ["null", CONNECT], "y": CONNECT, "i": "int"})
    found = FORMAT.excerpt(of, varint(1) + number(10**38) + number(3) + varint(1))
    assert (found.fields, found.stopped) == ((("x", "1" + "0" * 36 + ".00"), ("y", "0.03"), ("i", "1")), None)


def test_a_field_keeps_its_name_and_the_text_gets_another_one() -> None:
    """Tables ignore case: a field named as the text's column would be is the producer's, and stays."""
    names = columns(schema({"x": CONNECT, "X__Text": "int"})).names
    assert names[:2] == ["x", "X__Text"]
    assert names[2].startswith("x__text__a")
    long = "n" * 255
    texts = columns(schema({long: CONNECT, f"{long[:-1]}m": CONNECT})).names[2:]
    assert texts[0] == f"{long[:235]}__text"
    assert texts[1].startswith(f"{long[:235]}__text__a")


def test_columns_of_texts_count() -> None:
    """The limit of a table's columns holds for what the table gets."""
    fields = {f"f{index}": CONNECT for index in range(500)}
    assert len(columns(schema(fields))) == 1000
    with pytest.raises(Exception, match="spreads into 1001 columns"):
        schema(fields | {"one": "int"})


# ------------------------------------------------------------------------------------------- one schema after another


def planned(
    held: tuple[tuple[Schema, FieldPlacement], ...], new: Schema, *words: str
) -> list[tuple[str, str, str | None]]:
    steps, _ = evolve(held, new, parse_policies(words))
    return [(str(step), f"{step.kind}: {step.policy}", step.column) for step in steps]


def test_a_plan_has_the_column_of_the_text() -> None:
    """A new decimal adds two columns, a removed one leaves both, and it finds both again."""
    first, plain = avro(i="int", x=decimal_type(64, 2)), avro(i="int")
    assert planned(((plain, PLAIN),), first) == [
        ("x: is new", "add: add", "x"),
        ("x__text: is new", "add: add", "x__text"),
    ]
    held = ((first, PLAIN), (plain, PLAIN))
    assert planned(held[:1], plain) == [
        ("x: removed", "remove: keep", "x"),
        ("x__text: removed", "remove: keep", "x__text"),
    ]
    assert planned(held, first) == [("x: is back", "add: add", "x"), ("x__text: is back", "add: add", "x__text")]
    assert table_schema(held).names == ["i", "x", "x__text"]


def test_a_decimal_that_grows_beyond_its_column_adds_only_the_text() -> None:
    """From 38 digits to Connect's 64 the column stays, and a smaller precision later stops to use the text."""
    narrow, wide = avro(x=decimal_type(38, 2)), avro(x=decimal_type(64, 2))
    assert planned(((narrow, PLAIN),), wide) == [("x__text: is new", "add: add", "x__text")]
    assert planned(((wide, PLAIN),), narrow) == [("x__text: removed", "remove: keep", "x__text")]
    assert planned(((wide, PLAIN),), avro(x=decimal_type(50, 2))) == []


def test_a_text_is_exact_whatever_column_its_decimal_has() -> None:
    """Another scale is another type with a side column by its policy; the text says its own scale."""
    first, second = avro(x=decimal_type(64, 2)), avro(x=decimal_type(64, 3))
    steps, placement = evolve(((first, PLAIN),), second, parse_policies(["incompatible=side-column"]))
    assert [(step.path, step.kind, step.column) for step in steps] == [("x", "incompatible", "x__v2")]
    batch = placed(decode(second, number(10**40), number(1)).batch, second, placement)
    table, refused = FORMAT.reference(second, dict(placement.names)).decode([number(10**40), number(1)])
    assert refused == {}
    assert batch.schema == table.schema
    assert batch.to_pylist() == table.to_pylist() == [
        {"x__v2": None, "x__text": "1" + "0" * 37 + ".000"},
        {"x__v2": Decimal("0.001"), "x__text": None},
    ]  # fmt: skip


def test_a_renamed_decimal_keeps_both_columns() -> None:
    """An alias leads to the column and to its text."""
    first, second = avro(x=decimal_type(64, 2)), avro(y=(decimal_type(64, 2), "x"))
    steps, placement = evolve(((first, PLAIN),), second, DEFAULTS)
    assert [(step.path, step.kind, step.policy, step.column) for step in steps] == [
        ("y", "rename", "keep", "x"),
        ("y__text", "rename", "keep", "x__text"),
    ]
    assert placement.names == (("y", "x"), ("y__text", "x__text"))
    assert evolve(((first, PLAIN), (second, placement)), second, DEFAULTS)[0] == ()


def test_a_column_of_that_name_is_never_shared() -> None:
    """A field that has or had the text's name keeps its column: by the policy the other one gets a side column."""
    named, long = avro(x__text="int"), avro(x=decimal_type(64, 2))
    why = "x__text: its name changed from x__text to x as text"
    assert (why, "reuse: refuse", None) in planned(((named, PLAIN),), long)
    assert (why, "reuse: side-column", "x__text__v2") in planned(((named, PLAIN),), long, "reuse=side-column")
    both = avro(x=decimal_type(64, 2), x__text="int")
    assert ("x__text: its name changed from x as text to x__text", "reuse: refuse", None) in planned(
        ((long, PLAIN),), both
    )
    _, placement = evolve(((long, PLAIN),), both, parse_policies(["reuse=side-column", "incompatible=side-column"]))
    landed = table_schema(((long, PLAIN), (both, placement)))
    assert [str(landed.field(name).type) for name in landed.names] == ["decimal128(38, 2)", "string", "int64", "string"]


# ------------------------------------------------------------------------------------------- by chance


def agree(seed: int) -> None:
    chance = Chance(seed, long_decimals=True)
    definition = chance.record()
    whole = [chance.payload(definition) for _ in range(5)]
    assert_sound(schema(definition), whole + [chance.mutant(each) for each in whole])


@pytest.mark.proves("G241")
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_decoders_agree_where_decimals_are_long(seed: int) -> None:
    """Law L5: the table has what `verify --values` expects, whatever types hold the decimals."""
    agree(seed)


@pytest.mark.long
@settings(max_examples=2_000, deadline=None)
@given(st.integers(0, 2**32))
def test_decoders_agree_where_many_decimals_are_long(seed: int) -> None:
    """The same in volume."""
    agree(seed)


def test_a_map_without_a_column_has_each_key_once() -> None:
    """Both decoders refuse a repeated key where the map's values are null."""
    of = schema({"i": "int", "m": {"type": "map", "values": "null"}})
    payload = varint(1) + varint(2) + (varint(1) + b"k") * 2 + varint(0)
    assert_sound(of, [payload])
    assert [each.detail for each in decode(of, payload).refused] == ["m: a map has a key twice"]
