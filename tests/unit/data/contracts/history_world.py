"""Versions of one schema, registered one after another."""

from collections.abc import Mapping, Sequence

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.layout import Registered
from pipeline.data.contracts.plans import Step
from pipeline.data.contracts.policies import DEFAULTS, Policies, parse_policies
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define

ENUMS = {"E": {"ZERO": 0, "ONE": 1}}
Edits = Mapping[str, Mapping[str, tuple[int, str] | None]]
BASE: dict[str, dict[str, tuple[int, str]]] = {
    "M": {
        "id": (1, "uint64"),
        "tags": (2, "repeated string"),
        "pos": (3, "Pos"),
        "hits": (4, "repeated Pos"),
        "by_name": (5, "map<string, Pos>"),
        "kind": (6, "E"),
        "at": (7, "wkt:Timestamp"),
        "maybe": (8, "optional int32"),
        "level": (9, "int32"),
        "kills": (10, "uint32"),
        "scores": (11, "repeated int32"),
        "ranks": (12, "map<string, sint32>"),
    },
    "Pos": {"x": (1, "float"), "y": (2, "float")},
}


def changed(
    edits: Edits, base: Mapping[str, Mapping[str, tuple[int, str]]] = BASE
) -> dict[str, dict[str, tuple[int, str]]]:
    """Return a definition with fields set, or removed where the edit is None."""
    result = {name: dict(fields) for name, fields in base.items()}
    for name, fields in edits.items():
        for field, spec in fields.items():
            result.setdefault(name, {}).pop(field, None)
            if spec is not None:
                result[name][field] = spec
    return result


def schema(
    messages: Mapping[str, Fields],
    enums: Mapping[str, Mapping[str, int]] = ENUMS,
    reserved: Sequence[int] = (),
    reserved_names: Sequence[str] = (),
) -> Schema:
    file: FileDescriptorProto = define(messages, enums)
    for number in reserved:
        file.message_type[0].reserved_range.add(start=number, end=number + 1)
    file.message_type[0].reserved_name.extend(reserved_names)
    return Schema(0, "protobuf", "t.M", canonical("t.M", bundle(file)))


def choose(*words: str) -> Policies:
    return parse_policies(words)


def grown(*definitions: Schema, policies: Policies = DEFAULTS) -> Registered:
    """Return a game's schemas after registering these in turn; none may be refused."""
    held: Registered = ()
    for each in definitions:
        steps, placement = evolve(held, each, policies)
        assert not [str(step) for step in steps if step.policy == "refuse"]
        held = (*held, (each, placement))
    return held


def reported(steps: Sequence[Step]) -> list[tuple[str, str, str | None]]:
    return [(step.path, f"{step.kind}: {step.policy}", step.column) for step in steps]
