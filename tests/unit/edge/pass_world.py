"""A pass over events, by the very code of its tasks: the oracle for the edge's refusals."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from pipeline.base.names import game_key
from pipeline.data.contracts.decoded import PAYLOAD
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.output_contracts.kinds import KINDS
from pipeline.data.output_contracts.rules import ACTIONS, ContractRule, OutputContract
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.edge.known import Known
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.edge.edge_world import GAME


def promising(known: Known, *contracts: OutputContract) -> Known:
    """Return a look at a store in which the one game has these contracts."""
    return replace(known, schemas=replace(known.schemas, contracts={game_key(GAME): contracts}))


def quarantined(schemas: SchemaSet, wrappers: Sequence[bytes], folder: Path) -> Mapping[int, tuple[str, ...]]:
    """Return which events a pass sends to quarantine, with reason, detail and field; each has a seq of its own.

    Events that break a rule named `stop…` are left out: a pass stops before them.
    """
    key, count = game_key(GAME), len(wrappers)
    given: dict[str, list[Any]] = {
        "game_key": [key] * count, "game": [GAME] * count, "seq": [*range(count)], "pos": [0] * count,
        "raw": [*wrappers], "schema_id": [Wrapper.FromString(each).schema_id for each in wrappers],
        "prev_seq": [*range(-1, count - 1)],
    }  # fmt: skip
    fields = [BRONZE.field(name) for name in READ]
    columns = [pa.array(given.get(each.name, [None] * count), each.type) for each in fields]
    rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    (done,) = split(iter([rows]), SplitJob({key: -1}, schemas, located(folder)))
    report = json.loads(done.column("report")[0].as_py())["games"][key]
    assert report["error"] is None
    rejects = pa.ipc.open_stream(done.column("rejects")[0].as_py()).read_all().to_pylist()
    return {
        each["seq"]: (each["reason"], each["detail"], each["field"] or PAYLOAD)
        for each in rejects
        if "/stop" not in each["detail"]
    }


def rules_by_chance(columns: pa.Schema, draw: Random) -> tuple[ContractRule, ...]:
    """Return rules for columns of a payload, some at paths that it lacks; names begin with what they do."""
    paths = ["gone", "_event_id", "_event_time", *_paths_of(columns)]
    return tuple(
        ContractRule(
            f"{action}{number}",
            draw.choice(paths),
            action,
            required=draw.random() < 0.3,
            type=draw.choice([None, None, *KINDS]),
            min=draw.choice([None, None, 0, 0.1, "2026-01-01"]),
            max=draw.choice([None, None, 7, 2**31, "2026-01-01"]),
            pattern=draw.choice([None, None, None, "[a-z]*"]),
            allowed=draw.choice([(), (), (0, 1, "a", "", True)]),
            max_length=draw.choice([None, None, 3]),
        )
        for number in range(draw.randrange(1, 6))
        for action in draw.choices(ACTIONS, weights=(1, 4, 1))
    )


def _paths_of(columns: pa.Schema) -> list[str]:
    return [each for field in columns if "." not in field.name for each in _paths(field.name, field.type)]


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    yield path
    if pa.types.is_struct(kind):
        for each in kind:
            if "." not in each.name:
                yield from _paths(f"{path}.{each.name}", each.type)
    elif pa.types.is_list(kind):
        yield from _paths(f"{path}[]", kind.value_type)
