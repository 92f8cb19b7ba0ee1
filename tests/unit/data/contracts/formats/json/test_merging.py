"""Merged columns of a key: what lands in them, and which id a row gets."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.json.choices import chosen
from pipeline.data.contracts.formats.json.coverage import first_version
from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.growth import as_of
from pipeline.data.contracts.formats.json.merging import DOUBLE, column_type, columns_of_keys, parted
from pipeline.data.contracts.formats.json.stored_supersets import dumps, loads
from pipeline.data.contracts.formats.json.superset import ANY, Superset
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder
from tests.unit.data.contracts.formats.json.document_world import DOCUMENTS, binary


def _all_merged(superset: Superset) -> Superset:
    for each in list(columns_of_keys(superset)):
        superset = chosen(superset, ("merge", each.path, DOUBLE if each.may_be_double else ANY))
    return superset


@settings(max_examples=60, deadline=None)
@given(st.lists(DOCUMENTS, min_size=1, max_size=5), st.lists(DOCUMENTS, max_size=3))
def test_a_merged_superset_covers_what_the_one_before_covered(before: list[bytes], after: list[bytes]) -> None:
    """Whatever landed lands after a merge, too, in at most as many columns; a column and the oracle give one id."""
    begun = Superset()
    for each in before:
        begun = gathered(begun, [each])
    merged = _all_merged(begun)
    assert merged.columns() <= begun.columns()
    assert loads(dumps(merged)) == merged
    grown = gathered(merged, [*before, *after])  # doubles do not hold all whole numbers
    was, now = UndeclaredDecoder(begun).decode(binary(before)), UndeclaredDecoder(grown).decode(binary(before))
    assert (now.rows.tolist(), now.uncovered.tolist()) == (was.rows.tolist(), [])
    assert now.versions is not None
    found = [first_version(grown, before[row], partial(as_of, grown)) for row in now.rows.tolist()]
    assert now.versions.tolist() == found
    assert merged is begun or _all_merged(merged) is merged


def test_text_takes_each_single_value_as_it_is_written() -> None:
    """Texts stay, numbers keep their digits, arrays of unlike elements are whole, and nothing is null."""
    begun = gathered(gathered(Superset(), [b'{"x":1}']), [b'{"x":"a"}', b'{"x":{"k":1}}', b'{"x":[1]}'])
    superset = chosen(begun, ("merge", "x", ANY))
    written = ["5.50", "-0", "true", "123456789012345678901", "0.12345678901234567890", '[1,"a"]', "null", '"b"']
    documents = [f'{{"x":{each}}}'.encode() for each in written]
    found = UndeclaredDecoder(superset).decode(binary(documents))
    column = found.batch.column("x").to_pylist()
    assert column == [*written[:-2], None, "b"]
    lists = UndeclaredDecoder(superset).decode(binary([b'{"x":[2]}', b'{"x":{"k":3}}'])).batch.to_pylist()
    assert [each["x"] for each in lists] == [None, None]
    assert (lists[0] != lists[1]) is True


def test_a_merge_happens_once_and_is_parted_once() -> None:
    """A choice that is made again changes nothing, also after what came later; names are never given away."""
    begun = gathered(gathered(Superset(), [b'{"x":1}']), [b'{"x":2.5}'])
    merged = chosen(begun, ("merge", "x", DOUBLE))
    later = gathered(merged, [b'{"x":9007199254740993}'])
    assert [(each.kind, each.name) for each in later.root.slots["x"]] == [("double", "x"), ("digits", "x__v3")]
    assert chosen(later, ("merge", "x", DOUBLE)) is later
    again = chosen(later, ("merge", "x", ANY))
    since = again.root.slots["x"][0].since
    undone = chosen(again, ("split", "x", str(since)))
    assert undone.root == later.root
    assert chosen(undone, ("split", "x", str(since))) is undone
    assert parted(undone, "x", merged.version).root.slots["x"][:2] == begun.root.slots["x"]


@pytest.mark.parametrize(
    ("kind", "column"), [("long", "long"), ("double", "double"), ("boolean", "boolean"), ("digits", "string")]
)
def test_columns_are_named_by_their_types(kind: str, column: str) -> None:
    """A plan says the types that the table has."""
    assert column_type(kind) == column


def test_an_unknown_kind_is_no_choice() -> None:
    """A superset refuses a choice that it does not know, as a later version may have written it."""
    with pytest.raises(ValueError, match="no kind of merged columns"):
        chosen(gathered(Superset(), [b'{"x":1}']), ("merge", "x", "decimal"))
