"""Shapes of documents that nobody declared."""

from hypothesis import given, settings

from pipeline.data.contracts.formats.json.scalar import parsed
from pipeline.data.contracts.formats.json.shapes import NOTHING, beyond, count, facts, form, joined
from pipeline.data.contracts.formats.json.superset import WHOLE_DOCUMENT, Superset, shape_of
from tests.unit.data.contracts.formats.json.document_world import DOCUMENTS, shape


def test_null_and_empty_are_nothing() -> None:
    """Null, `{}` and `[]` open no column."""
    assert shape(b'{"a":null,"b":{},"c":[],"d":[null,{"e":[]}],"f":{"77":null}}') == NOTHING


def test_a_shape_names_paths_and_kinds() -> None:
    """A variation is paths and kinds, with the version of the rules that found them."""
    document = b'{"a":1,"b":{"c":[2.5,1]},"d":[{"e":"x"}],"f":[1,"x"],"g":12345678901234567890,"h":9007199254740993}'
    expected = "shape/1\na:whole\nb.c[]:fraction\nd[].e:text\nf:json\ng:digits\nh:long"
    assert expected == form(shape(document))


def test_keys_that_look_like_ids_are_in_no_shape() -> None:
    """No player's id stands in the repository."""
    for key in ("4711", "-1", "ann@example.com", "0123456789abcdef", "a81bc81b-dead-4e5d-abff-90865d1e13b1", "k" * 256):
        assert form(shape(f'{{"a":{{"{key}":1,"gold":2}}}}'.encode())) == "shape/1\na.*:whole"


def test_a_document_with_an_id_as_its_key_is_no_map() -> None:
    """The document itself is never a map: it lands whole."""
    assert WHOLE_DOCUMENT is Superset().beyond(parsed(b'{"4711":1}'), 10)
    assert WHOLE_DOCUMENT is not Superset().beyond(parsed(b'{"@type":1}'), 11)
    assert Superset().beyond(parsed(b'{"4711":null}'), 10) == NOTHING


def test_an_object_of_many_keys_is_a_map() -> None:
    """More than 300 keys are no columns, whichever documents they stand in."""
    first, second = (
        shape_of(parsed(("{" + ",".join(f'"k{each}":1' for each in keys) + "}").encode()), ())
        for keys in (range(200), range(150, 301))
    )
    assert count(first) == 200
    assert list(facts(joined(first, second))) == [".*:whole"]


def test_numbers_are_told_apart_by_their_text() -> None:
    """Detection finds a number that no double holds before it is rounded."""
    kinds = {
        "5": "whole", "-0": "whole", "9007199254740992": "whole", "9007199254740993": "long",
        "9223372036854775807": "long", "9223372036854775808": "digits", "5.0": "fraction", "1e3": "fraction",
        "0.1234567890123456": "fraction", "0.12345678901234567890": "digits", "1e999": "digits",
        "1e99999999999999999999": "digits", "1" * 5000: "digits",
    }  # fmt: skip
    assert kinds == {text: next(iter(shape(f'{{"a":{text}}}'.encode()).objects["$"]["a"].kinds)) for text in kinds}


def test_keys_cannot_forge_a_path() -> None:
    """Different shapes have different forms, whatever characters keys have."""
    written = [b'{"a.b":1}', b'{"a":{"b":1}}', b'{"a[]":1}', b'{"a":[1]}', b'{"a:whole\\nb":1}', b'{"a":{"7":1}}',
               b'{"a":{"*":1}}', b'{"":1}', b'{"a":{"":1}}']  # fmt: skip
    assert len(written) == len({form(shape(each)) for each in written})


@settings(max_examples=50)
@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_the_join_is_a_union(first: bytes, second: bytes, third: bytes) -> None:
    """In whatever order and however often shapes are joined, the result is the same."""
    one, two, three = map(shape, (first, second, third))
    assert joined(one, two) == joined(two, one)
    assert joined(joined(one, two), three) == joined(one, joined(two, three))
    assert one == joined(one, one)
    assert joined(one, two) == joined(joined(one, two), two)


@settings(max_examples=50)
@given(DOCUMENTS, DOCUMENTS)
def test_the_rest_completes_the_join(first: bytes, second: bytes) -> None:
    """Nothing is beyond what a shape has, and what is beyond is all that a join adds."""
    known, other = shape(first), shape(second)
    more = beyond(other, known)
    assert joined(known, other) == joined(known, more)
    assert beyond(more, joined(known, other)) == NOTHING
    assert bool(more) == (joined(known, other) != known)
