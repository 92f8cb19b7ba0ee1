"""Columns of silver tables while the game's table changes."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import game_key
from pipeline.data.contracts.schemas import FieldPlacement, SchemaSet
from pipeline.data.derived.definitions import Aggregate, GoldDefinition, SilverDefinition
from pipeline.data.derived.flat import FlatType, flat_type, require_layout
from pipeline.data.derived.gold_columns import gold_schema
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from tests.tables.silver_world import avro

CHESS = game_key("Chess")
ITEM: dict[str, Any] = {"type": "record", "name": "Item", "fields": [{"name": "id", "type": "string"}]}
SOLD = avro(1, "acme.Sold", {"phone": "string", "item": ITEM})
CALLED = SilverDefinition("called", "Chess", mask=(("phone", "hash"), ("item.id", "drop")))
ITEM_KIND = pa.struct([("id", pa.string())])


def schemas(placement: FieldPlacement | None = None, *more: FieldPlacement) -> SchemaSet:
    """Chess with Sold, placed so, and with further schemas of it, which have a field `pack` each."""
    known = {1: SOLD, **{at: avro(at, "acme.Sold", {"pack": ITEM}) for at, _ in enumerate(more, 2)}}
    placed = {1: placement or FieldPlacement(), **dict(enumerate(more, 2))}
    return SchemaSet(1, {CHESS: tuple(known)}, known, {CHESS: placed})


def table(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    """The columns of Chess's table."""
    return pa.schema([*OWN_COLUMNS, *columns])


def flat(*columns: tuple[str, pa.DataType], definition: SilverDefinition = CALLED) -> FlatType:
    """The silver columns over a table with phone, item and more."""
    return flat_type(table(("phone", pa.string()), ("item", ITEM_KIND), *columns), schemas(), definition)


@pytest.mark.parametrize(
    ("column", "masked"),
    [
        (("phone__v2", pa.int64()), {"phone__v2": "hash"}),
        (("phone__v3", pa.decimal128(20, 0)), {"phone__v3": "hash"}),
        (("phone__v2", pa.float64()), {}),
        (("phone__v2", pa.list_(pa.string())), {}),
        (("phone__v2", pa.struct([("home", pa.string()), ("work", pa.int64())])), {}),
        (("item__v2", pa.struct([("id", pa.string())])), {}),
        (("item__v2", pa.struct([("id__v2", pa.int64())])), {}),
        (("item__v2", pa.list_(pa.struct([("id", pa.string())]))), {}),
        (("item__v2", pa.map_(pa.string(), pa.string())), {}),
        (("item__v2", pa.string()), {}),
    ],
)
def test_a_mask_holds_for_what_continues_its_field(column: tuple[str, pa.DataType], masked: dict[str, str]) -> None:
    """A masked value reaches no reader in clear because its producer sends another kind of it."""
    before = {each.name for each in flat().columns}
    found = flat(column)
    assert {each.name: each.mask for each in found.columns if each.name not in before} == masked
    assert all(found.schema.field(name).type == pa.string() for name in masked)


def test_a_field_whose_name_only_begins_like_a_masked_one_stays() -> None:
    """A mask hides no field that it does not mean."""
    found = flat(("phone2", pa.string()), ("phone__voice", pa.string()), ("headphone__v2", pa.string()))
    assert {each.name for each in found.columns if each.mask is None} >= {"phone2", "phone__voice", "headphone__v2"}


def test_a_rules_mask_holds_within_a_list() -> None:
    """A list of messages with a masked field is left out, as no part of a list can be."""
    rule = replace(CALLED, mask=(("pack.id", "hash"),), rule="flat")
    before = flat(definition=rule).schema.names
    assert flat(("pack", pa.list_(ITEM_KIND)), definition=rule).schema.names == before
    assert flat(("pack", pa.string()), definition=rule).schema.names == [*before, "pack"]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())])
def test_an_id_has_one_value(kind: pa.DataType) -> None:
    """A definition that compares by a list is refused with a sentence before a row comes."""
    with pytest.raises(Refused, match=r"cannot compare rows by tags, which is (array|map)<.*: name a column"):
        flat(("tags", kind), definition=SilverDefinition("called", "Chess", within=60, id="tags"))


def test_rows_are_not_compared_by_half_of_an_id() -> None:
    """Each event once: where the values of the id lie in two columns, silver stands still and says so."""
    by_phone = SilverDefinition("called", "Chess", within=60, id="phone")
    assert flat(definition=by_phone).id == "phone"
    with pytest.raises(Refused, match=r"further values in 'phone__v2'.* cannot compare rows by it"):
        flat(("phone__v2", pa.int64()), definition=by_phone)


@pytest.mark.parametrize(
    ("placement", "columns"),
    [
        (FieldPlacement(struct="sold"), [("phone", pa.string())]),
        (FieldPlacement(struct="sold"), [("phone", pa.string()), ("sold", pa.struct([("phone", pa.string())]))]),
        (FieldPlacement(), [("sold", pa.struct([("phone", pa.string())]))]),
        (FieldPlacement(), [("sold", pa.struct([("item", ITEM_KIND)]))]),
        (FieldPlacement(), [("phone", pa.string()), ("sold", pa.struct([("phone", pa.string())]))]),
    ],
)
def test_silver_waits_while_nesting_is_half_done(
    placement: FieldPlacement, columns: list[tuple[str, pa.DataType]]
) -> None:
    """Law L5 for silver: no row loses its fields, or shows a masked one, between a nest and its rebuild."""
    with pytest.raises(Transient, match="waits for the game's rebuild"):
        require_layout(table(*columns), schemas(placement), CALLED)


@pytest.mark.parametrize(
    ("set_of", "columns"),
    [
        (schemas(), [("phone", pa.string()), ("item", ITEM_KIND), ("gone", pa.string())]),
        (schemas(FieldPlacement(struct="sold")), [("sold", pa.struct([("phone", pa.string())]))]),
        (schemas(FieldPlacement(struct="sold")), []),
        (schemas(), [("phone", pa.string()), ("foreign", pa.struct([("a", pa.string())]))]),
        (
            schemas(FieldPlacement(struct="sold")),
            [("sold", pa.struct([("phone", pa.string())])), ("foreign", pa.string())],
        ),
        (schemas(FieldPlacement(), FieldPlacement(quarantined="withdrawn", landed=True)), [("pack", ITEM_KIND)]),
    ],
)
def test_silver_waits_for_no_rebuild_that_nobody_makes(
    set_of: SchemaSet, columns: list[tuple[str, pa.DataType]]
) -> None:
    """Columns of older schemas stay in a table, and hold no stream up."""
    require_layout(table(*columns), set_of, CALLED)


def test_gold_misses_no_values_of_a_field_in_silence() -> None:
    """A sum says so where a part of its field's values lies in another column; naming that column lets it go on."""
    silver = pa.schema([("_event_time", pa.timestamp("us", "UTC")), ("price", pa.int64()), ("price__v2", pa.float64())])
    half = GoldDefinition("sales", CALLED, 60, (Aggregate("turnover", "sum", "price"),))
    with pytest.raises(Refused, match=r"further values of a field in 'price__v2'"):
        gold_schema(silver, half)
    whole = replace(half, aggregates=(*half.aggregates, Aggregate("more", "sum", "price__v2")))
    assert "more" in gold_schema(silver, whole).names
