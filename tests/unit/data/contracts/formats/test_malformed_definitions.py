"""Hostile definitions of every format end in one sentence, in time: by command, and by a registry's answer."""

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.data.contracts.formats.avro.columns import suffix
from pipeline.data.contracts.formats.json.columns import suffix as json_suffix
from pipeline.data.contracts.formats.supported import FORMATS, format_of
from pipeline.data.contracts.registries.answers import Found
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.json.json_world import obj
from tests.unit.data.contracts.registries.resolution_world import CHESS, World

MAKE = dict[str, Callable[[], bytes]]


def avro(*fields: tuple[str, Any]) -> bytes:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "t.M", "fields": listed}).encode()


def of_each_other(length: int, last: str, fields: int = 1) -> bytes:
    """Return messages of which each holds the next one, some times over, and the last this type."""
    names = ["M", *(f"N{index}" for index in range(length)), last]
    messages: dict[str, Fields] = {
        outer: {f"f{index}": (index + 1, inner) for index in range(fields)}
        for outer, inner in itertools.pairwise(names)
    }
    return bundle(define(messages))


def imports(length: int) -> bytes:
    """Return files of which each imports the next one."""
    home = define({"M": {"a": (1, "int32")}})
    home.dependency.append("f0.proto")
    files = [FileDescriptorProto(name=f"f{index}.proto", syntax="proto3") for index in range(length)]
    for index, file in enumerate(files[:-1]):
        file.dependency.append(f"f{index + 1}.proto")
    return bundle(home, *files)


def in_a_circle() -> bytes:
    one, two = define({"M": {"a": (1, "int32")}}), FileDescriptorProto(name="two.proto", syntax="proto3")
    one.dependency.append("two.proto")
    two.dependency.append("t.proto")
    return bundle(one, two)


def lists(depth: int) -> Any:
    return {"type": "array", "items": lists(depth - 1)} if depth else "int"


def json_of(given: dict[str, Any]) -> bytes:
    return json.dumps(given).encode()


def json_lists(depth: int) -> Any:
    return {"type": "array", "items": json_lists(depth - 1)} if depth else {"type": "string"}


TWINS: Fields = {"a_b": (1, "int32"), "aB": (2, "int32"), "aB__f2": (3, "int32")}


def numbers(count: int) -> Fields:
    return {f"f{index}": (index + 1 if index < 18_999 else index + 2_000, "int32") for index in range(count)}


HOSTILE: dict[str, MAKE] = {
    "avro": {
        "10 MB": lambda: b" " * 10_000_000,
        "nested": lambda: b'{"type":' * 100_000,
        "10,000 fields": lambda: avro(*((f"f{index}", "int") for index in range(10_000))),
        "5,000 branches": lambda: avro(("u", [{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(5_000)])),
        "of itself": lambda: avro(("a", {"type": "record", "name": "N", "fields": [{"name": "b", "type": "t.M"}]})),
        "lists of lists": lambda: avro(("a", lists(60))),
        "an endless number": lambda: avro(("a", "int")).replace(b'"int"', b"9" * 500_000),
        "a hostile name": lambda: avro(("a\x1b[31m\n", "int")),
        "half a letter": lambda: avro(("\ud800", "int")),
        "a name twice": lambda: avro(("a", "int"), ("a", "long")),
        "names that collide": lambda: avro(("id", "int"), ("ID", "int"), (f"ID__{suffix('ID')}", "int")),
    },
    "json": {
        "10 MB": lambda: b" " * 10_000_000,
        "nested": lambda: b'{"not":' * 100_000,
        "10,000 properties": lambda: json_of(obj(**{f"p{index}": {"type": "string"} for index in range(10_000)})),
        "a billion columns": lambda: json_of(obj(a={"$ref": "#/$defs/d30"}) | {"$defs": {"d0": {"type": "string"}} | {
            f"d{n + 1}": obj(a={"$ref": f"#/$defs/d{n}"}, b={"$ref": f"#/$defs/d{n}"}) for n in range(30)
        }}),
        "of itself": lambda: json_of(obj(a={"$ref": "#"})),
        "1,000 references": lambda: json_of(obj(a={"$ref": "#/$defs/d0"}) | {"$defs": {
            f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1_000)
        }}),
        "lists of lists": lambda: json_of(obj(a=json_lists(60))),
        "an endless number": lambda: json_of(obj(a={"type": "integer", "maximum": 1})).replace(b"1", b"9" * 500_000),
        "a hostile name": lambda: json_of({**obj(a={"type": "string"}), "title": "a\x1b[31m\n"}),
        "half a letter": lambda: json_of(obj(**{"\ud800": {"type": "string"}})),
        "half a symbol": lambda: json_of(obj(a={"enum": ["\ud800"]})),
        "a name twice": lambda: b'{"type":"object","properties":{"a":{"type":"null"},"a":{"type":"null"}}}',
        "names that collide": lambda: json_of(obj(**{
            name: {"type": "string"} for name in ("a", "A", f"A__{json_suffix('a')}")
        })),
    },
    "protobuf": {
        "10 MB": lambda: b"\n" * 10_000_000,
        "nested": lambda: b"\x0a\x7f" * 100_000,
        "20,000 fields": lambda: bundle(define({"M": numbers(20_000)})),
        "1,001 fields": lambda: bundle(define({"M": numbers(1_001)})),
        "a billion columns": lambda: of_each_other(30, "int32", fields=2),
        "of itself": lambda: of_each_other(20, "M"),
        "1,000 levels": lambda: of_each_other(1_000, "int32"),
        "10,000 files": lambda: imports(10_000),
        "500 files": lambda: imports(500),
        "files in a circle": in_a_circle,
        "a hostile name": lambda: bundle(define({"M": {"a\x1b[31m\n": (1, "int32")}})),
        "a name twice": lambda: bundle(define({"M": {"a": (1, "int32")}}, {"M": {"ZERO": 0}})),
        "names that collide": lambda: bundle(define({"M": TWINS})),
    },
}  # fmt: skip
CASES = [(name, what) for name, cases in HOSTILE.items() for what in cases]
FEW = CASES[::6]  # all of them have their sentence from one place


def assert_plain(sentence: str) -> None:
    """Demand what a terminal can show: reasons may be a list, of a bounded length."""
    assert sentence.replace("\n  - ", "").isprintable()
    assert len(sentence) < 2_500


@pytest.mark.parametrize(("name", "what"), CASES)
def test_a_hostile_definition_is_refused_in_a_sentence(name: str, what: str) -> None:
    """No definition ends the process, takes its memory or writes to a person's terminal."""
    definition = HOSTILE[name][what]()
    begun = time.process_time()
    with pytest.raises(Refused) as caught:
        format_of(name).canonical("t.M", definition)
    assert time.process_time() - begun < 5
    assert_plain(str(caught.value))


def test_the_command_refuses_them_in_a_sentence(tmp_path: Path) -> None:
    """`turnout schemas register` registers nothing and says why, whatever the file holds."""
    open_store(*load(tmp_path)).dispose()
    for name, what in FEW:
        path = tmp_path / "hostile"
        path.write_bytes(HOSTILE[name][what]())
        given = ["--env-dir", str(tmp_path), "--game", "Go", "--message", "t.M", "--format", name, str(path)]
        done = CliRunner().invoke(cli, ["schemas", "register", *given])
        assert isinstance(done.exception, Refused), what
        assert_plain(str(done.exception))


def test_the_answer_of_a_registry_is_refused_for_its_writer(engine: Engine) -> None:
    """Law L14: rows of such a writer go to quarantine with the reason, and the resolver goes on."""
    writers = {
        number.to_bytes(5, "big"): Found(name, HOSTILE[name][what](), {b"": "t.M"})
        for number, (name, what) in enumerate(FEW)
    }
    world = World(engine, dict(writers))
    resolution = world.resolution()
    resolution.note([CHESS._replace(writer=writer) for writer in writers])
    for _ in range(3):  # a step ends with answers of 16 MiB
        world.after(resolution, 0)
    answers = world.schemas.writers
    assert {("main", writer) for writer in writers} == set(answers)
    for answer in answers.values():
        assert answer.refused is not None
        assert answer.refused.isprintable()
        assert "which turnout cannot use" in answer.refused


def test_every_format_is_attacked() -> None:
    """A further format needs hostile definitions here as well."""
    assert set(HOSTILE) == set(FORMATS)
