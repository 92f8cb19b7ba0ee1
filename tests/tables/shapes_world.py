"""Documents that nobody declared, on the small environment without Spark; their shapes are registered by hand."""

import json
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.base.names import game_key
from pipeline.data.contracts.declared_types import SchemasByType, type_named
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.gathering import Gathering
from pipeline.data.contracts.formats.json.growth import grown
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.shapes import NOTHING
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.given_ids import NewIds
from pipeline.data.contracts.plans import RegistrationPlan
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.data.contracts.structs import free_name, taken_names
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.places import located
from pipeline.store.database.engine import writing
from tests.tables.value_world import ValueWorld, value_world

GAME = "Chess"
KEY = game_key(GAME)
FIELDS = (("game", "game"), ("payload", "data"), ("type", "type"))
BY_TYPE = SourceProfile(envelope="json", framing="type", fields=FIELDS)


def record(name: str, payload: bytes) -> bytes:
    """A record of Chess: a document in its envelope."""
    return b'{"game":"Chess","type":' + json.dumps(name).encode() + b',"data":' + payload + b"}"


def shapes_world(folder: Path, profile: SourceProfile = BY_TYPE) -> ValueWorld:
    world = value_world(folder)
    world.profile = profile
    world.names[GAME] = str(KEY)
    return world


def payloads(world: ValueWorld, name: str) -> list[bytes]:
    """Bronze's payloads of an event type, in order."""
    rows = open_table(world.paths.bronze).to_pyarrow_table(columns=["game_key", "seq", "pos", "writer", "raw"])
    rows = rows.filter(pc.field("game_key") == str(KEY))
    placed = world.registry.snapshot().placed(KEY)
    of_type = [
        (row["seq"], row["pos"], row["raw"].split(b',"data":', 1)[1][:-1])
        for row in rows.to_pylist()
        if row["writer"] is not None and type_named(placed, row["writer"].decode()) == name
    ]
    return [payload for _, _, payload in sorted(of_type)]


def known(world: ValueWorld, name: str) -> Superset:
    """The newest superset of an event type, an empty one without any."""
    placed = world.registry.snapshot().placed(KEY)
    every = [superset_of(each) for each, _ in placed if each.format == UNDECLARED and event_type(each.message) == name]
    return max(every, key=lambda each: each.version, default=Superset())


def gather(world: ValueWorld, name: str, most: int | None = None) -> None:
    """Register the shapes of the first documents of an event type, or of all that bronze has, until none is new."""
    if SchemasByType(world.registry.snapshot().placed(KEY)).known_version(name) is None:
        return
    while True:
        before = known(world, name)
        gathering = Gathering(before)
        for each in payloads(world, name)[:most]:
            gathering.add(each)
        after = gathering.superset()
        if after is before and before.version:
            return
        register(world, name, grown(before, NOTHING) if after is before else after)


def register(world: ValueWorld, name: str, superset: Superset) -> int:
    """Register a superset; further event types get a struct column at once."""
    placed = world.registry.snapshot().placed(KEY)
    mine = [at.struct for each, at in placed if event_type(each.message) == name]
    struct = mine[0] if mine else free_name(name, taken_names(placed)) if placed else None
    schema = Schema(0, UNDECLARED, name, dumps(superset))
    with writing(world.engine) as connection:
        checked = unattended(GAME, KEY, schema, DEFAULTS, registry=None)
        batch = RegistrationBatch(connection, [checked], NewIds(connection, None))
        version = max(batch._versions.values(), default=0) + 1
        placement = FieldPlacement(names=superset.column_names(), struct=struct)
        plan = RegistrationPlan(GAME, name, checked.fingerprint, version, new=True, steps=(), placement=placement)
        batch._insert(checked, plan, schema_id := batch._schema_id(checked))
    return schema_id


def table(world: ValueWorld) -> list[dict[str, Any]]:
    """The rows of Chess in their order, none without a table."""
    return world.contents() if exists(world.paths.table(KEY)) else []


def types(world: ValueWorld) -> dict[str, str]:
    """The leaf columns of Chess and their types."""
    if not exists(world.paths.table(KEY)):
        return {}
    schema = open_table(world.paths.table(KEY)).to_pyarrow_table().schema
    return dict(pair for each in schema for pair in _leaves(each.name, each.type))


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    if pa.types.is_map(kind):
        yield from _leaves(f"{path}.*", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}[]", kind.value_type)
    elif pa.types.is_struct(kind):
        for each in kind:
            yield from _leaves(f"{path}.{each.name}", each.type)
    else:
        yield path, str(kind)


def quarantine(world: ValueWorld) -> list[tuple[str, bytes]]:
    """The reasons and payloads of refused rows, in their order."""
    if not exists(world.paths.quarantine):
        return []
    rows = open_table(world.paths.quarantine).to_pyarrow_table().to_pylist()
    listed = sorted((row["seq"], row["pos"], row["reason"], row["raw"]) for row in rows)
    return [(reason, raw.split(b',"data":', 1)[-1][:-1]) for _, _, reason, raw in listed]


def one_by_one(world: ValueWorld, folder: Path) -> list[dict[str, Any]]:
    """The values that are not null of the rows that tasks make of each row of bronze alone, in their order."""
    return by_tasks(world, folder, range(world.offset))


def by_tasks(world: ValueWorld, folder: Path, cuts: Collection[int]) -> list[dict[str, Any]]:
    """The values that are not null of the rows that tasks make of the pieces of bronze between cuts, in their order."""
    rows = open_table(world.paths.bronze).to_pyarrow_table(columns=list(READ))
    rows = rows.sort_by([("seq", "ascending"), ("pos", "ascending")])
    job = SplitJob({KEY: 0}, world.registry.snapshot(), located(folder))
    found = list[dict[str, Any]]()
    ends = sorted({each for each in cuts if 0 < each < rows.num_rows})
    for start, end in pairwise([0, *ends, rows.num_rows]):
        (done,) = split(iter(rows.slice(start, end - start).combine_chunks().to_batches()), job)
        report = json.loads(done.column("report")[0].as_py())["games"].get(KEY)
        if report is None:  # ingest refused them
            continue
        assert (report["needs"], report["error"]) == ([], None)
        for file in report["files"]:
            found += pq.read_table(folder / KEY / file["path"]).to_pylist()
    found.sort(key=lambda row: (row["_seq"], row["_pos"]))
    return [without_nulls(row) for row in found]


def without_nulls(value: Any) -> Any:
    """A row without its null columns and members."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return (value[0], without_nulls(value[1])) if isinstance(value, tuple) else value
