"""The first superset of a chain that covers a document, found in decoded columns."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.json.caps import Caps
from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.growth import as_of, grown
from pipeline.data.contracts.formats.json.scalar import parsed
from pipeline.data.contracts.formats.json.shapes import NOTHING
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder
from tests.unit.data.contracts.formats.json.document_world import DOCUMENTS, binary

_RANGES = st.lists(st.lists(DOCUMENTS, min_size=1, max_size=4), min_size=1, max_size=5)


def _first(superset: Superset, document: bytes) -> int:
    """Return the version of the first superset that covers a document, by trying each."""
    read = parsed(document)
    tried = range(1, superset.version + 1)
    return next(each for each in tried if not as_of(superset, each).beyond(read, len(document)))


def _agree(ranges: list[list[bytes]], most_columns: int = 1000) -> list[int]:
    superset = Superset(caps=Caps(columns=most_columns))
    for each in ranges:
        superset = gathered(superset, each)
    superset = superset if superset.version else grown(superset, NOTHING)
    documents = [each for one in ranges for each in one]
    read = UndeclaredDecoder(superset).decode(binary(documents))
    assert read.versions is not None
    found: list[int] = read.versions.tolist()
    assert found == [_first(superset, documents[row]) for row in read.rows.tolist()]
    return found


@settings(max_examples=25)
@given(_RANGES)
def test_columns_give_the_first_superset_of_a_row(ranges: list[list[bytes]]) -> None:
    """A row's id is that of the first superset that covers it, whichever decodes it."""
    _agree(ranges)


def test_keys_beside_a_full_struct_came_with_it() -> None:
    """A key that would have been a member waits for the superset by which it lands in the map; an id does not."""
    many = "{" + ",".join(f'"k{each}":1' for each in range(301)) + "}"
    ranges = [[b'{"o":{"a":1}}'], [b'{"o":{"17":1}}'], [b'{"o":' + many.encode() + b"}"]]
    assert _agree([*ranges, [b'{"o":{"new":1}}', b'{"o":{"18":1}}']]) == [1, 2, 3, 3, 2]


def test_documents_that_land_whole_have_the_id_of_the_superset_that_let_them() -> None:
    """A document with an id as a key lands whole since the first such one, others since the superset was closed."""
    late = [b'{"a":1,"x":2}', b'{"4711":1}', b'{"a":5}', b'{"b":[{}],"a":null}']
    assert _agree([[b'{"a":1}'], [b'{"4711":1}'], [b'{"c":3}'], [b'{"d":4}'], late], 2) == [1, 2, 3, 4, 4, 2, 1, 1]
