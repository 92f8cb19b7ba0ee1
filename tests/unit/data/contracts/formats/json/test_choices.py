"""Choices of people about supersets: a pinned type, and refused variations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.contracts.formats.json.choices import Unwanted, allowing, pinned, refusing, unpinned
from pipeline.data.contracts.formats.json.gathering import Gathering, gathered
from pipeline.data.contracts.formats.json.scalar import Misfit
from pipeline.data.contracts.formats.json.shapes import fingerprint, form
from pipeline.data.contracts.formats.json.splitting import NotCovered, split
from pipeline.data.contracts.formats.json.stored_supersets import dumps, loads
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder
from tests.unit.data.contracts.formats.json.document_world import DOCUMENTS, binary


def _reason(superset: Superset, document: bytes) -> str | None:
    try:
        split(superset, document)
    except Unwanted as unwanted:
        return unwanted.reason
    return None


def test_a_pinned_type_grows_no_more() -> None:
    """A pinned type refuses a document with something new, and registers its shape once it is unpinned."""
    begun = gathered(Superset(), [b'{"a":1}'])
    superset = loads(dumps(pinned(begun)))
    new = b'{"a":1,"b":{"c":"x"}}'
    assert (_reason(superset, b'{"a":2}'), _reason(superset, new)) == (None, "pinned_type")
    assert gathered(superset, [new]) is superset
    decoded = UndeclaredDecoder(superset).decode(binary([new, b'{"a":2}']))
    assert [(each.reason, each.detail) for each in decoded.refused] == [
        ("pinned_type", "its type is pinned, and it has something new: b.c:text")
    ]
    assert superset.root == begun.root
    again = unpinned(superset)
    assert again.version == begun.version + 2
    with pytest.raises(NotCovered):
        split(again, new)
    assert gathered(again, [new]).columns() == 2


def test_a_document_that_would_land_whole_is_new_to_a_pinned_type() -> None:
    """A pinned type opens no column, also not that of whole documents."""
    superset = pinned(gathered(Superset(), [b'{"a":1}']))
    with pytest.raises(Unwanted, match="it would land whole as text"):
        split(superset, b'{"4711":1}')


VARIATIONS = [
    (b'{"b":"x"}', b'{"b":"y"}', b'{"b":7}'),
    (b'{"b":{"c":[{"d":1}]}}', b'{"b":{"c":[{"d":2}]}}', b'{"b":{"c":[]}}'),
    (b'{"b":{"c":1}}', b'{"b":{"c":1,"123":1}}', b'{"b":{"e":1}}'),
    (b'{"a.b:c":[1]}', b'{"a.b:c":[2]}', b'{"a":1}'),
    (b'{"\\u00e9":true}', '{"é":false}'.encode(), b'{"e":true}'),
    (b'{"":1}', b'{"":2}', b'{"x":1}'),
]


@pytest.mark.parametrize(("first", "same", "other"), VARIATIONS)
def test_documents_of_a_refused_variation_are_refused(first: bytes, same: bytes, other: bytes) -> None:
    """A refusal holds for documents with a fact of the variation, and for no others; undone it holds for none."""
    begun = gathered(Superset(), [b'{"a":1}'])
    gathering = Gathering(begun)
    name = gathering.add(first)
    assert name is not None
    grown = gathered(gathering.superset(), [other, same])
    superset = loads(dumps(refusing(grown, name, form(gathering.variations[name]))))
    assert [_reason(superset, each) for each in (same, b'{"a":1}', other)] == ["refused_variation", None, None]
    decoded = UndeclaredDecoder(superset).decode(binary([same, other, first]))
    assert [(each.row, each.reason) for each in decoded.refused] == [(0, "refused_variation"), (2, "refused_variation")]
    assert Gathering(superset).add(same) is None
    assert (_reason(allowing(superset, name), same), allowing(superset, name).refused) == (None, ())


@given(st.lists(DOCUMENTS, min_size=1, max_size=4), DOCUMENTS, st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_a_variation_s_own_document_is_refused(before: list[bytes], new: bytes, after: list[bytes]) -> None:
    """Whatever the superset grew to, the document that began a variation has a fact of it."""
    gathering = Gathering(gathered(Superset(), before))
    if (name := gathering.add(new)) is None:
        return
    shape = gathering.variations[name]
    assert name == fingerprint(shape)
    superset = refusing(gathered(gathering.superset(), after), name, form(shape))
    assert _reason(superset, new) == "refused_variation"
    for each in after:
        try:
            lands = _reason(superset, each) is None
        except (Misfit, NotCovered):
            continue
        refused = UndeclaredDecoder(superset).decode(binary([each])).refused
        assert lands is not ("refused_variation" in [one.reason for one in refused])
