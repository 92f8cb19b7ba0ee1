"""Documents that nobody declared, decoded by a superset."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.nothing import without_nothing
from pipeline.data.contracts.formats.json.scalar import parsed
from pipeline.data.contracts.formats.json.splitting import written_again
from pipeline.data.contracts.formats.json.stored_supersets import dumps, loads
from pipeline.data.contracts.formats.json.superset import Superset, lines
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder, declared_schema
from pipeline.data.contracts.formats.json.undeclared_format import UndeclaredFormat
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.data.contracts.shape import placed_columns
from tests.unit.data.contracts.formats.json.document_world import DOCUMENTS, binary

_LISTS = st.lists(DOCUMENTS, min_size=1, max_size=5)


def _decoded(superset: Superset, *documents: bytes) -> list[dict[str, object]]:
    """Return the values that documents have, by the property of their column."""
    read = UndeclaredDecoder(superset).decode(binary(list(documents)))
    assert [*read.refused, *read.uncovered] == []
    return [{key: value for key, value in row.items() if value is not None} for row in read.batch.to_pylist()]


def test_a_fraction_is_no_whole_number() -> None:
    """`5.0` waits for a column of doubles, also where it would land in one of longs by its value."""
    superset = gathered(Superset(), [b'{"a":1}'])
    read = UndeclaredDecoder(superset).decode(binary([b'{"a":1}', b'{"a":5.0}', b'{"a":1e3}', b'{"a":-0}']))
    assert read.uncovered.tolist() == [1, 2]
    assert read.rows.tolist() == [0, 3]


def test_a_text_is_no_number_that_landed_as_text() -> None:
    """A column of digits takes no text of a document."""
    superset = gathered(Superset(), [b'{"a":12345678901234567890}', b'{"b":[1,"x"]}'])
    read = UndeclaredDecoder(superset).decode(binary([b'{"a":"x"}', b'{"b":"[1]"}', b'{"a":22345678901234567890}']))
    assert read.uncovered.tolist() == [0, 1]


def test_a_document_takes_no_property_of_ours() -> None:
    """A key that is one of turnout's properties lands whole, however it is written."""
    superset = gathered(Superset(), [b'{"a":1}', b'{"a":"x"}', b'{"4711":1}'])
    for key in (b"a\x7f2", b"a\\u007f2", b"a\\u007F2"):
        ((_, whole),) = _decoded(superset, b'{"' + key + b'":"y"}')[0].items()
        assert whole == (b'{"' + key + b'":"y"}').decode()


def test_a_null_list_hides_no_empty_one() -> None:
    """A null list may have values beneath; it hides no empty list beside it, which lands as null."""
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 3], pa.int32()), pa.array([1, 2, 3]), mask=pa.array([True, False, False])
    )
    assert without_nothing(lists).to_pylist() == [None, None, [3]]
    same = pa.array([{"a": 1, "b": [1]}, {"a": 2, "b": None}])
    assert without_nothing(same) is same


def test_a_large_document_lands_whole_although_it_grows() -> None:
    """A document with 80,000 random keys is text of more than 1 MiB where it was written again."""
    wide = ("{" + ",".join(f'"k{each:05}":1' for each in range(88_000)) + "}").encode()
    superset = Superset(version=1, other=1)
    assert _decoded(superset, wide) == [{"_other__j9a2416": wide.decode()}]
    schema = Schema(1, UNDECLARED, "T", dumps(superset))
    table, refused = UndeclaredFormat().reference(schema, dict(superset.column_names())).decode([wide])
    assert (table.column("__other__").to_pylist(), refused) == ([wide.decode()], {})


def test_nothing_lands_as_null() -> None:
    """A value that opens no column lands as null once its column exists."""
    superset = gathered(Superset(), [b'{"a":{"b":1,"c":[1]},"l":[{"x":1}],"m":{"1":1},"n":[[1]]}'])
    nothing = [
        b"{}",
        b'{"a":{},"l":[],"m":{},"n":[]}',
        b'{"a":{"b":null,"c":[]},"l":[{}],"m":{"1":null},"n":[[],null]}',
    ]
    assert _decoded(superset, *nothing) == [{}, {}, {}]
    some = _decoded(superset, b'{"l":[{},{"x":1}],"m":{"1":null,"2":2},"n":[[],[1]]}')[0]
    assert list(some.values()) == [[None, {"x": 1}], [("2", 2)], [None, [1]]]


@settings(max_examples=25)
@given(_LISTS, _LISTS)
def test_a_batch_is_its_documents_one_by_one(known: list[bytes], documents: list[bytes]) -> None:
    """Whether a document lands, waits or is refused depends on it alone, and so do its values."""
    superset = gathered(Superset(), known)
    decoder = UndeclaredDecoder(superset)
    every = [*known, *documents, b"x", b'{"a":1,"a":2}']
    read = decoder.decode(binary(every))
    alone = [decoder.decode(binary([each])) for each in every]
    assert read.uncovered.tolist() == [row for row, each in enumerate(alone) if len(each.uncovered)]
    assert [each.row for each in read.refused] == [len(every) - 2, len(every) - 1]
    assert read.batch.to_pylist() == [row for each in alone for row in each.batch.to_pylist()]
    assert read.uncovered.tolist() == [
        row for row, each in enumerate(every[:-2]) if superset.beyond(parsed(each), len(each))
    ]
    covered = [each for row, each in enumerate(every[:-2]) if row not in read.uncovered]
    again = decoder.decode(binary([written_again(superset, each) for each in covered]))
    assert len(again.rows) <= len(covered)  # written documents have keys of ours: they are no documents


@settings(max_examples=50)
@given(_LISTS)
def test_a_superset_is_kept_as_text(documents: list[bytes]) -> None:
    """A registration keeps the superset, and its columns have the names that the superset gave them."""
    superset = gathered(gathered(Superset(), documents[:1]), documents)
    assert loads(dumps(superset)) == superset
    assert dumps(loads(dumps(superset))) == dumps(superset)
    placement = FieldPlacement(names=superset.column_names())
    placed = placed_columns(declared_schema("T", superset), placement)
    top = [line.split(" ")[-3] for line in lines(superset) if "struct." not in line.rsplit(" ", 4)[0]]
    assert {each.name for each in placed} - {"__other__"} == set(top)
    assert pa.schema(placed).names == [each.name for each in placed]
