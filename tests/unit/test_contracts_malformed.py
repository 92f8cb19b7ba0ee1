"""Hostile payloads of every format: decoder and oracle refuse the same ones, and read the same of all others."""

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.contracts.formats.supported import FORMATS, columns, format_of
from tests.unit.malformed_world import WORLDS, World, mutant

WAYS = {
    "avro": {"huge", "negative", "unending", "off by one", "text", "boolean", "blocks"},
    "protobuf": {"wire type", "length", "unending", "tag", "group", "text", "packed"},
}
EACH = 10  # of one schema


def comparable(value: Any) -> Any:
    """Return a value in which columns and the entries of a map have an order: protobuf's have none."""
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in sorted(value.items())}
    if not isinstance(value, list):
        return value
    entries = [tuple(map(comparable, each)) if isinstance(each, tuple) else comparable(each) for each in value]
    return sorted(entries, key=repr) if entries and isinstance(entries[0], tuple) else entries


def refused_of(world: World, contents: list[bytes]) -> list[int]:
    """Return the places that are refused; demand that decoder and oracle agree on them and on all values."""
    one = format_of(world.schema.format)
    decoded = one.decoder(world.schema).decode(pa.array(contents, pa.binary()))
    decoded.batch.validate(full=True)
    expected, refused = one.reference(world.schema, {}).decode(contents)
    assert {each.row: each.reason for each in decoded.refused} == {row: why.reason for row, why in refused.items()}
    assert decoded.rows.tolist() == [row for row in range(len(contents)) if row not in refused]
    assert decoded.batch.schema == columns(world.schema)
    ours, theirs = (comparable(each.to_pylist()) for each in (decoded.batch, expected))
    assert repr(ours) == repr(theirs)  # as text, in which NaN equals itself and -0.0 differs from 0.0
    return sorted(refused)


def attack(name: str, inputs: int, *, same: bool) -> Counter[str]:
    """Decode so many damaged payloads and return how many were refused, by the way in which they were damaged."""
    refused: Counter[str] = Counter()

    @given(st.integers(0, 2**32))
    @settings(max_examples=inputs // EACH, deadline=None, derandomize=same, database=None, phases=[Phase.generate])
    def tries(seed: int) -> None:
        world, draw = WORLDS[name](seed), Random(seed)
        whole = [world.whole() for _ in range(4)]
        mutants = [mutant(world, draw) for _ in range(EACH)]
        places = refused_of(world, whole + [each.content for each in mutants])
        refused.update(mutants[place - len(whole)].how for place in places if place >= len(whole))

    tries()
    return refused


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_payloads_are_refused_as_the_oracle_refuses_them(name: str) -> None:
    """Laws L5, L6: the oracle refuses at least 500 of 1,000 damaged payloads, of each kind of damage, and so do we."""
    refused = attack(name, 1_000, same=True)
    assert refused.total() >= 500, refused
    assert WAYS[name] | {"cut", "grown", "flipped", "noise"} == set(refused)


@pytest.mark.long
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_payloads_are_refused_as_the_oracle_refuses_them(name: str) -> None:
    """The same of ten thousand, others in each run, of which 5,000 or more are refused."""
    assert attack(name, 10_000, same=False).total() >= 5_000
