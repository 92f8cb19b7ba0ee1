"""Documents that nobody declared, for the tests of shapes and supersets."""

import json
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from pipeline.data.contracts.formats.json.decoder import Decoder
from pipeline.data.contracts.formats.json.definitions import canonical, rendered
from pipeline.data.contracts.formats.json.scalar import Fraction, Whole, parsed
from pipeline.data.contracts.formats.json.shapes import Shape
from pipeline.data.contracts.formats.json.superset import OTHER, Superset
from pipeline.data.contracts.schemas import Schema

_LEAVES = [
    "null", "true", "1", "-0", "7", "9007199254740993", "9223372036854775808", "1e400", "1.0", "1e3", "2.5",
    "0.12345678901234567890", '"x"', '"12"', '"\\u00e9"', "{}", "[]", "[null]", '[1,"a"]', "[1,2.5]", "[[1],[]]",
    "[9007199254740993]", '{"77":1}',
]  # fmt: skip
_KEYS = ["a", "b", "A", "a__v2", "c.d", "_seq", "", "123", "0123456789abcdef", "\x7fother", "k" * 256]


def _wide(first: int) -> str:
    return "{" + ",".join(f'"k{first + place}":{place % 2 or 2.5}' for place in range(200)) + "}"


def _object(members: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in members.items()) + "}"


_INNER = st.recursive(
    st.sampled_from([*_LEAVES, *map(_wide, (0, 150, 300))]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4).map(_object),
        st.lists(inner, max_size=3).map(lambda each: "[" + ",".join(each) + "]"),
    ),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(st.sampled_from(_KEYS), _INNER, max_size=4).map(lambda each: _object(each).encode())


def shape(document: bytes) -> Shape:
    """Return a document's shape, read without a superset."""
    return Superset(other=1).beyond(parsed(document), len(document))


def leaves(value: Any) -> Counter[str]:
    """Return the values of a document that are not null, as texts, however they are laid out."""
    if isinstance(value, dict):
        return sum((leaves(each) for each in value.values()), Counter())
    if isinstance(value, list):
        return sum((leaves(each) for each in value), Counter())
    if isinstance(value, Whole | Fraction) or value is None:
        return Counter() if value is None else Counter([str(value)])
    if isinstance(value, str) and value[:1] == "[":
        return leaves(parsed(value.encode()))
    return Counter([str(value)])


def decoder_of(superset: Superset) -> Decoder:
    """Return the decoder of a superset's declared schema."""
    definition = canonical("T", json.dumps(rendered(superset.declared())).encode())
    return Decoder(Schema(1, "json", "T", definition))


def binary(documents: list[bytes]) -> pa.BinaryArray:
    """Return documents as a decoder takes them."""
    return pa.array(documents, pa.binary())


def is_whole(split: dict[str, Any]) -> bool:
    """Return whether a document landed whole."""
    return OTHER in split
