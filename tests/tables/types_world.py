"""Games that send several event types, on the small environment without Spark."""

from dataclasses import replace
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.further_types import accepting, withdrawing
from pipeline.data.contracts.given_ids import NewIds
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.schemas import Schema
from pipeline.store.database.engine import writing
from tests.tables.repair_world import CHESS, Event, World
from tests.unit.data.contracts.registering_world import proto

JOINED = proto("message M { int64 points = 1; }", "t")
"""The first type of Chess in every world: its schema 1."""
SOLD = proto("message Sold { string item = 1; int64 price = 2; }")
SOLD_LATER = proto("message Sold { string item = 1; int64 price = 2; bool gift = 3; }")
SALE = proto("message Sale { string item = 1; int64 price = 2; }")
LEFT = proto("message Left {}")


def come(world: World, *schemas: Schema, policies: Policies = DEFAULTS) -> list[Schema]:
    """Register schemas as a registry does, and return them with their ids."""
    with writing(world.engine) as connection:
        each = [unattended(CHESS.name, CHESS.key, one, policies, registry="main") for one in schemas]
        done = RegistrationBatch(connection, each, NewIds(connection, None)).write()
    return [replace(one, schema_id=id_.schema_id) for one, id_ in zip(schemas, done, strict=True)]


def event(schema: Schema, **values: Any) -> Event:
    """An event of Chess by a schema."""
    made = GetMessageClass(describe(schema.message, schema.definition))(**values)
    return Event(CHESS, schema.schema_id, made.SerializeToString())


def accept(world: World, *types: str) -> None:
    registry = world.registry
    registry.register_many(accepting(registry.snapshot(), CHESS.key, CHESS.name, types, "ann"))


def withdraw(world: World, *types: str) -> None:
    registry = world.registry
    registry.register_many(withdrawing(registry.snapshot(), CHESS.key, CHESS.name, types, "ann"))
