"""Definitions share their parts in the store, in a pickled set, and in memory."""

import json
import pickle

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts.formats.json.gathering import Gathering
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.messages import canonical, describe
from pipeline.data.contracts.formats.supported import prepare
from pipeline.data.contracts.parts import split
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import Schema, SchemaSet
from pipeline.store.database.tables import definition_parts
from tests.unit.data.contracts.definition_world import Fields, bundle, define

TYPES = 20
COMMON: dict[str, Fields] = {
    f"Part{number}": {f"a_rather_long_name_of_a_field_{each}": (each, "int32") for each in range(1, 30)}
    for number in range(5)
}


def client_file(**more: Fields) -> bytes:
    """Return a file with many types that hold the same parts."""
    events = {f"Event{number}": {"id": (1, "int64"), "e": (number + 2, "int32"),
                                 **{f"p{each}": (each + 100, f"Part{each}") for each in range(5)}}
              for number in range(TYPES)}  # fmt: skip
    return bundle(define({**events, **COMMON, **more}))


def schemas(definition: bytes) -> list[Schema]:
    names = [f"t.Event{number}" for number in range(TYPES)]
    return [Schema(number, "protobuf", name, canonical(name, definition)) for number, name in enumerate(names)]


def test_a_file_of_many_types_is_stored_and_pickled_once(engine: Engine) -> None:
    """Store and task hold a message once, whichever types reach it, and read back what was registered."""
    definition = client_file()
    registry = LocalRegistry(engine)
    for of in schemas(definition):
        registry.register(f"game {of.schema_id}", of.message, definition)
    held = LocalRegistry(engine).snapshot()
    assert [each.definition for each in held.schemas.values()] == [each.definition for each in schemas(definition)]
    assert pickle.loads(pickle.dumps(held)) == held
    assert len(pickle.dumps(held)) < 2 * len(definition)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(definition_parts)) == TYPES + len(COMMON)
    assert sum(len(each.definition) for each in held.schemas.values()) > 10 * len(definition)


def test_a_task_gets_many_supersets_in_few_bytes() -> None:
    """Law L13: a task gets each superset as it was registered, and a chain in a tenth of its bytes."""
    known, held = Superset(), dict[int, Schema]()
    for number in range(1, 101):
        gathering = Gathering(known)
        gathering.add(json.dumps({f"{sign}_{number}": 1 for sign in "abc"} | {"deep": {f"d{number}": "text"}}).encode())
        known = gathering.superset()
        held[number] = Schema(number, UNDECLARED, "Move", dumps(known))
    sent = SchemaSet(100, {game_key("Chess"): tuple(held)}, held)
    pickled = pickle.dumps(sent)
    assert pickle.loads(pickled) == sent
    assert sum(len(each.definition) for each in held.values()) > 10 * len(pickled)


def test_types_of_one_file_share_their_definitions_in_memory() -> None:
    """A message is in one pool and in one Arrow parser, however many decoders read it."""
    held = schemas(client_file())
    prepare(held)
    decoders = [Decoder(each) for each in held]
    assert len({id(describe(each.message, each.definition).file.pool) for each in held}) == 1
    assert len({id(each._parser._kept) for each in decoders}) == 1
    batch = decoders[7].decode(pa.array([b"\x08\x05\xa2\x06\x02\x08\x03"], pa.binary())).batch
    assert batch.column("p0").to_pylist()[0]["a_rather_long_name_of_a_field_1"] == 3
    assert batch.column("id").to_pylist() == [5]


def test_definitions_that_differ_never_share() -> None:
    """A later version of a message, or an enum's value of the same name, changes no definition that is in memory."""
    one = describe("t.M", canonical("t.M", bundle(define({"M": {"n": (1, "N")}, "N": {"a": (1, "int32")}}))))
    two = describe("t.M", canonical("t.M", bundle(define({"M": {"n": (1, "N")}, "N": {"a": (1, "string")}}))))
    for of, kind in ((one, 5), (two, 9)):
        inner = of.fields_by_name["n"].message_type
        assert inner is not None
        assert inner.fields_by_name["a"].type == kind
    enums = [define({"M": {"e": (1, "E")}}, {"E": {"ZERO": 0}}), define({"O": {"f": (1, "F")}}, {"F": {"ZERO": 0}})]
    for name, file in zip(("t.M", "t.O"), enums, strict=True):
        enum = describe(name, canonical(name, bundle(file))).fields[0].enum_type
        assert enum is not None
        assert [each.name for each in enum.values] == ["ZERO"]


def test_a_change_of_another_message_makes_no_schema() -> None:
    """A type's definition is what it reaches: another message of the file, or the file's name, is none of it."""
    renamed = FileDescriptorSet.FromString(client_file(Other={"x": (1, "string")}))
    renamed.file[0].name = "other.proto"
    assert schemas(renamed.SerializeToString()) == schemas(client_file())


@given(st.lists(st.binary(max_size=300)), st.binary(max_size=9))
def test_parts_joined_are_the_definition(contents: list[bytes], rest: bytes) -> None:
    """Whatever the bytes, they are cut without a loss; files are cut from each other."""
    files = [FileDescriptorSet(file=[FileDescriptorProto(name=each.hex())]).SerializeToString() for each in contents]
    assert list(split(b"".join(files))) == files
    assert b"".join(split(b"".join(files) + rest)) == b"".join(files) + rest
    assert split(b'{"type": "string"}') == (b'{"type": "string"}',)


def test_a_lost_part_is_named(engine: Engine) -> None:
    """A store that lacks a part of a schema says so, and no row is decoded with less."""
    LocalRegistry(engine).register("Go", "t.Event0", client_file())
    with engine.begin() as connection:
        connection.execute(definition_parts.delete())
    with pytest.raises(Refused, match="lacks a part of a schema"):
        LocalRegistry(engine).snapshot()
