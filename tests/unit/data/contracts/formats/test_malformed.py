"""Hostile payloads of every format: decoder and oracle refuse the same ones, and read the same of all others."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.formats.supported import FORMATS, columns, decoder, format_of
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import bundle, define
from tests.unit.data.contracts.formats.avro import avro_world
from tests.unit.data.contracts.formats.json import json_world
from tests.unit.data.contracts.formats.malformed_world import HUGE, WORLDS, World, comparable, mutant
from tests.unit.data.contracts.formats.peak_memory import at_most
from tests.unit.data.contracts.formats.protobuf.wire_world import varint

WAYS = {
    "avro": {"huge", "negative", "unending", "off by one", "text", "boolean", "blocks"},
    "json": {"type", "missing", "null", "twice", "undeclared", "symbol", "time", "text", "number", "two"},
    "protobuf": {"wire type", "length", "unending", "tag", "group", "text", "packed"},
}
EACH = 10  # of one schema


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
    """Decode `inputs` damaged payloads and return how many were refused, by the way in which they were damaged."""
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
@pytest.mark.proves("B1")
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


def bombs_of_avro() -> tuple[Schema, list[bytes]]:
    counts = [avro_world.varint(number) for number in (2**20 + 1, 2**31, 2**62, -(2**63))]
    point = {"type": "record", "name": "P", "fields": avro_world.listed({"x": "int"})}
    fields = {"s": "string", "xs": {"type": "array", "items": "null"}, "ps": {"type": "array", "items": point}}
    sizes = [each + b"abc" for each in counts] + [b"\0" + each + b"\0\0" for each in counts]
    swarm = b"\0\0" + avro_world.varint(2**19) + b"\2" * 2**19 + b"\0"
    return avro_world.schema(fields), sizes + [b"\0\0" + each + b"\0" for each in counts] + [swarm] * 2


def bombs_of_protobuf() -> tuple[Schema, list[bytes]]:
    file = define(
        {"M": {"s": (1, "string"), "xs": (2, "repeated int32"), "ps": (3, "repeated P")}, "P": {"x": (1, "int32")}}
    )
    sizes = [tag + varint(number) + b"abc" for tag in (b"\x0a", b"\x12", b"\x1a") for number in HUGE]
    return Schema(1, "protobuf", "t.M", canonical("t.M", bundle(file))), [*sizes, *[b"\x1a\0" * 2**18] * 2]


def bombs_of_json() -> tuple[Schema, list[bytes]]:
    point = json_world.obj(x={"type": "integer"})
    given = json_world.obj(s={"type": "string"}, xs={"type": "array", "items": point})
    deep = [each * 2**17 for each in (b"[", b'{"xs":', b'{"xs":[', b'{"s":[{')]
    swarm = b'{"xs":[' + b"{}," * 2**17 + b"{}]}"
    return json_world.schema(given), [*deep, *(each + b"]}" * 2**17 for each in deep), swarm, swarm]


BOMBS = {"avro": bombs_of_avro, "json": bombs_of_json, "protobuf": bombs_of_protobuf}


@pytest.mark.parametrize("name", FORMATS)
def test_declared_sizes_take_no_memory(name: str) -> None:
    """Law L6: counts and lengths beyond a payload are refused unread; two swarms of small messages land."""
    of, contents = BOMBS[name]()
    payloads = pa.array(contents, pa.binary())
    of_format = decoder(of)
    of_format.decode(payloads[-1:].slice(0, 0))
    with at_most(160):
        decoded = of_format.decode(payloads)
    assert decoded.rows.tolist() == [len(contents) - 2, len(contents) - 1]
