"""`python -m bench.schemas`: what many message types of one protobuf file cost in memory and in the control store.

A made client file of a game: one message for each type and as many again for their parts, which hold each other, about
940 bytes a message. Each type is registered for a game of its own, as `turnout schemas register` does. The set is then
read and pickled as a task gets it. A new process, as a worker, decodes payloads of every type. See docs/performance.md.
"""

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from bench import machine
from bench.command import carry_out
from bench.text import table
from pipeline.data.contracts.formats.supported import decoder, prepare
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store

_WORKER_GOAL: Final = 300  # MiB a worker's memory grows to, also before it decodes
_SET_GOAL: Final = 2.0  # MiB of a pickled set
_MIB: Final = 2**20
_WORDS: Final = ("player", "session", "level", "weapon", "guild", "reward", "market", "region", "quest", "device")
_SCALARS: Final = ("int32", "int64", "string", "bool", "double", "uint32", "bytes", "float")
_LAYERS: Final = 4  # of parts: those of one hold those of the next


def client_file(types: int, messages: int, seed: int = 1) -> bytes:
    """Return a descriptor set with this number of messages, of which the first `types` are events."""
    chance = random.Random(seed)
    file = FileDescriptorProto(name="game/client.proto", package="acme.game", syntax="proto3")
    parts = messages - types
    layers = [range(types + parts * each // _LAYERS, types + parts * (each + 1) // _LAYERS) for each in range(_LAYERS)]
    for number in range(20):
        enum = file.enum_type.add(name=f"Kind{number}")
        for value in range(40):
            enum.value.add(name=f"KIND_{number}_{chance.choice(_WORDS).upper()}_{value}", number=value)
    for number in range(messages):
        message = file.message_type.add(name=f"{chance.choice(_WORDS).title()}Event{number}")
        for _ in range(22):
            _add(message, chance, chance.choice(_SCALARS))
        _add(message, chance, "enum").type_name = f".acme.game.Kind{chance.randrange(20)}"
        layer = next((each for each, held in enumerate(layers) if number in held), -1) + 1
        for _ in range((3, 2, 1, 1, 0)[layer]):
            field = _add(message, chance, "message")
            field.type_name = str(chance.choice(layers[layer]))  # its number until all names are known
            if chance.random() < 0.3:
                field.label = FieldDescriptorProto.LABEL_REPEATED
    for message in file.message_type:
        for field in message.field:
            if field.type_name.isdigit():
                field.type_name = f".acme.game.{file.message_type[int(field.type_name)].name}"
    return FileDescriptorSet(file=[file]).SerializeToString()


def _add(message: DescriptorProto, chance: random.Random, kind: str) -> FieldDescriptorProto:
    number = len(message.field) + 1
    name = f"{chance.choice(_WORDS)}_{chance.choice(_WORDS)}_of_{chance.choice(_WORDS)}_{number}"
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    return field


def measure(types: int, messages: int, folder: Path) -> dict[str, Any]:
    """Register all types, and return what they cost."""
    definition = client_file(types, messages)
    names = [f"acme.game.{each.name}" for each in FileDescriptorSet.FromString(definition).file[0].message_type[:types]]
    engine = open_store(*load(folder))
    before, begun = _memory(), time.monotonic()
    empty = _stored(folder)
    registry = LocalRegistry(engine)
    registry.register_many(Registration(f"game {number}", name, definition) for number, name in enumerate(names))
    registered = time.monotonic() - begun
    held = LocalRegistry(engine).snapshot()
    pickled = pickle.dumps(held.only(list(held.games)))
    driver, stored = _memory(), _stored(folder) - empty
    engine.dispose()
    (folder / "set").write_bytes(pickled)
    worker = _in_worker(folder / "set")
    return {
        "machine": machine.describe(),
        "types": types,
        "messages": messages,
        "file_bytes": len(definition),
        "register_seconds": round(registered, 2),
        "store_bytes": stored,
        "set_bytes": len(pickled),
        "driver_bytes": driver,
        "driver_grows_by": driver - before,
        **worker,
    }


def _in_worker(file: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.schemas", "--worker", str(file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def work(file: Path) -> dict[str, Any]:
    """Decode payloads of every type of a pickled set in this process."""
    before = _memory()
    schemas: SchemaSet = pickle.loads(file.read_bytes())  # noqa: S301 - of this measurement
    begun = time.monotonic()
    payloads = pa.array([b"", b"\x08\x01"] * 50, pa.binary())
    prepare(list(schemas.schemas.values()))
    for schema in schemas.schemas.values():
        decoder(schema).decode(payloads)
    return {
        "decode_seconds": round(time.monotonic() - begun, 2),
        "worker_bytes": _memory(),
        "worker_grows_by": _memory() - before,
    }


def report(result: dict[str, Any]) -> str:
    """Return the result as a table, with the goals."""
    mib = {name: result[name] / _MIB for name in ("set_bytes", "store_bytes", "driver_bytes", "worker_bytes")}
    held = mib["worker_bytes"] <= _WORKER_GOAL and mib["set_bytes"] <= _SET_GOAL
    listed = [[name.removesuffix("_bytes"), f"{value:.1f}"] for name, value in mib.items()]
    goal = f"{'HELD' if held else 'NOT held'}: a worker of {_WORKER_GOAL} MiB and a set of {_SET_GOAL:.0f} MiB"
    return "\n".join([table([f"MiB with {result['types']} types", "all"], listed), goal])


def _memory() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _stored(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file() and ".db" in each.name)


def main() -> None:
    """Measure, print a table, and with `--out` write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.schemas")
    parser.add_argument("--types", type=int, default=200)
    parser.add_argument("--messages", type=int, default=379)
    parser.add_argument("--work", type=Path, help="where its folder is made")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.worker is not None:
        print(json.dumps(work(options.worker)))
        return
    carry_out(options, lambda folder: measure(options.types, options.messages, folder), report)


if __name__ == "__main__":
    main()
