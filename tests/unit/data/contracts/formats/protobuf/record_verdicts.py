"""Records what the real protovalidate says about random messages of `ruled.proto`, into `verdicts.json`.

Not a test: protovalidate is no dependency. In an environment of its own, from this folder:

    pip install protovalidate==2.1.0 protobuf==7.36.0 grpcio-tools==1.85.1
    python record_verdicts.py [SEED [MESSAGES]] > verdicts.json
"""

import ast
import base64
import json
import math
import random
import subprocess
import sys
import tempfile
import zlib
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

_TEXTS = (
    "", "a", "b", "ab", "abc", "abcd", "é🎮", "é🎮é🎮", "1", "a\nb", "b\n", "a\n", "B7", "xb7x", "xa", "a.\nz",
    "a.b\nz", "axb\nz", "é(\\", "xé(\\y", "e(\\", "a@b", "a@b.c", "a@b.", "a@-b", "@b", "a@b\n", "A.b+c@ex-am.ple.org",
    "a b@c", "a@" + "x" * 63, "a@" + "x" * 64,
    "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-42661417400",
    "123E4567-E89B-12D3-A456-426614174000", "123e4567e89b12d3a456426614174000", "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "01ARZ3NDEKTSV4RRFFQ69G5FAU", "1.2.3.4", "01.2.3.4",
    "255.255.255.255", "256.1.1.1", "1.2.3", "1.2.3.4.5", "0.0.0.0", "1.2.3.4\n", "1.2.3.4/8", "a.b", "a..b", ".a.b",
    ".", "a.1b", "_a._b", ".a", "٣", "a" * 300,
)  # fmt: skip
_INTEGERS = (
    0, 1, -1, 2, -2, -3, -4, 4, 5, 6, 7, 2**31 - 1, -(2**31),
    2**32 - 1, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 2**64 - 2,
)  # fmt: skip
_FLOATS = (
    0.0, -0.0, 0.1, 0.10000000149011612, 0.10000000894069672, 0.09999999403953552, 5e-324, -5e-324, 1e-45, -1e-45, -1.5,
    2.0, -1.5000001192092896, 1.0, -1.0, 3.4028234663852886e38, 1.7976931348623157e308, -1.7976931348623157e308, 1e300,
    math.nan, 1.0000000000000002e300, math.inf, -math.inf,
)  # fmt: skip
_SIZES = {FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31), FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63),
          FieldDescriptor.CPPTYPE_UINT32: (0, 2**32), FieldDescriptor.CPPTYPE_UINT64: (0, 2**64)}  # fmt: skip


def _value(field: Any, chance: random.Random) -> Any:
    kind = field.cpp_type
    if kind in _SIZES:
        low, high = _SIZES[kind]
        return chance.choice([each for each in _INTEGERS if low <= each < high])
    if kind in {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}:
        return chance.choice(_FLOATS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return chance.choice([0, 1, 2, 7, 8])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.choice([b"", b"a", b"ab", b"\xff\x00", b"abc"])
    return chance.choice(_TEXTS)


def _fill(message: Any, chance: random.Random) -> Any:
    for field in message.DESCRIPTOR.fields:
        is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        if chance.random() < 0.15:
            continue
        if field.is_repeated:
            for _ in range(chance.choice([0, 1, 1, 2, 3])):
                held = getattr(message, field.name)
                _fill(held.add(), chance) if is_message else held.append(_value(field, chance))
        elif is_message:
            held = getattr(message, field.name)
            held.SetInParent()
            _fill(held, chance)
        else:
            setattr(message, field.name, _value(field, chance))
    return message


def _definition(folder: Path) -> bytes:
    """Compile `ruled.proto` beside the definition of the rules that is in protovalidate's own module."""
    root = Path(find_spec("protovalidate").submodule_search_locations[0])  # type: ignore[union-attr,index]
    tree = ast.parse((root / "_gen/buf/validate/validate_pb.py").read_text())
    calls = [
        each for each in ast.walk(tree) if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "file_desc"
    ]
    rules = FileDescriptorProto.FromString(calls[0].args[0].value)  # type: ignore[attr-defined]
    known = FileDescriptorSet()
    for name in (*rules.dependency, "google/protobuf/wrappers.proto"):
        Default().FindFileByName(name).CopyToProto(known.file.add())
    known.file.append(rules)
    (folder / "known.binpb").write_bytes(known.SerializeToString())
    run = [sys.executable, "-m", "grpc_tools.protoc", f"--descriptor_set_in={folder / 'known.binpb'}"]
    run += [f"-I{Path.cwd()}", "--include_imports", f"--descriptor_set_out={folder / 'out.binpb'}", "ruled.proto"]
    subprocess.run(run, check=True)
    return (folder / "out.binpb").read_bytes()


def main(seed: int = 1, messages: int = 24) -> None:
    """Print the verdicts as JSON: by message, payloads in base64 that are right and that are wrong."""
    for name in ("descriptor", "duration", "field_mask", "timestamp", "wrappers"):
        import_module(f"google.protobuf.{name}_pb2")  # into the default pool
    with tempfile.TemporaryDirectory() as folder:
        definition = _definition(Path(folder))
    files = FileDescriptorSet.FromString(definition).file
    for file in files:
        if not file.name.startswith("google/"):
            Default().AddSerializedFile(file.SerializeToString())
    chance, validator, found = random.Random(seed), import_module("protovalidate").Validator(), {}
    for each in next(file for file in files if file.name == "ruled.proto").message_type:
        if each.name == "Unchecked":
            continue
        made = GetMessageClass(Default().FindMessageTypeByName(f"ruled.{each.name}"))
        verdicts: dict[bytes, bool] = {made().SerializeToString(): not validator.collect_violations(made())}
        for _ in range(messages * 4):
            one = _fill(made(), chance)
            if len(verdicts) < messages:
                verdicts[one.SerializeToString()] = not validator.collect_violations(one)
        found[each.name] = {
            word: [base64.b64encode(payload).decode() for payload, good in verdicts.items() if good == wanted]
            for word, wanted in (("right", True), ("wrong", False))
        }
    recorded = {
        "by": f"protovalidate {version('protovalidate')}, record_verdicts.py {seed} {messages}",
        "definition": base64.b64encode(zlib.compress(definition, 9)).decode(),
        "verdicts": found,
    }
    sys.stdout.write(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
