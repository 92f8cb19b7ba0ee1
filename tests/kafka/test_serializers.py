"""Records of confluent-kafka's own serializers, through a real registry and a real broker, land with equal values."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession

from pipeline.base.names import game_key
from pipeline.data.contracts.registries.protobuf_sources import descriptor_set
from pipeline.data.contracts.registries.supported import resolution_of
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.query import Ingest
from pipeline.data.streams.group import Group
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.demo.broker import Broker
from pipeline.demo.registry import Registry
from pipeline.health.facts.placing import placing
from pipeline.settings.registries import RegistrySettings
from pipeline.store.games import generations, register_group
from tests.kafka.topic_world import TopicWorld, topic_world
from tests.onboarding_world import give_rules, rule
from tests.registry_proxy import RegistryProxy, proxied

Serializer: TypeAlias = Callable[..., bytes | None]

EVENTS = 40  # of each game

CAR_AVRO = {"type": "record", "name": "Car", "namespace": "acme", "fields": [{"name": "id", "type": "int"}]}
LAP: dict[str, Any] = {
    "type": "record",
    "name": "Lap",
    "namespace": "acme",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "gap", "type": ["null", "double"], "default": None},
        {"name": "sectors", "type": {"type": "array", "items": "long"}},
        {"name": "tyre", "type": {"type": "enum", "name": "Tyre", "symbols": ["SOFT", "HARD"]}},
        {"name": "raw", "type": "bytes"},
        {"name": "car", "type": CAR_AVRO},
    ],
}
WIDER = {**LAP, "fields": [{"name": "n", "type": "long"}, *LAP["fields"][1:], {"name": "wet", "type": "boolean"}]}
REFERRING = {**LAP, "name": "Race", "fields": [*LAP["fields"][:-1], {"name": "car", "type": "acme.Car"}]}

CAR = 'syntax = "proto3"; package acme; message Car { int32 id = 1; }'
OUTER = """syntax = "proto3";
package acme;
import "acme/car.proto";
message First { int32 n = 1; }
message Outer {
  message Lap {
    int64 n = 1;
    string name = 2;
    optional double gap = 3;
    repeated int64 sectors = 4;
    bytes raw = 5;
    Car car = 6;
  }
}
"""


def values(number: int) -> dict[str, Any]:
    """Return one event's values, which both formats have."""
    return {
        "n": number * (-1) ** number,
        "name": "é\0😀"[: number % 4] * 3,
        "gap": None if number % 3 == 0 else number / 7,
        "sectors": [2**40 + number] * (number % 3),
        "raw": bytes([number]) * (number % 2),
        "car": {"id": number},
    }


def lap(number: int) -> dict[str, Any]:
    return values(number) | {"tyre": ("SOFT", "HARD")[number % 2]}


class Producer:
    """Serializes events of games and sends them, as a producer of the field does."""

    def __init__(self, world: TopicWorld, client: SchemaRegistryClient) -> None:
        self.world, self.client = world, client
        self.kafka = world.producer()
        self.sent: dict[str, list[dict[str, Any]]] = {}
        files = descriptor_set(OUTER, {"acme/car.proto": CAR})
        pool = DescriptorPool()
        for file in files.file:
            pool.Add(file)
        self.lap = GetMessageClass(pool.FindMessageTypeByName("acme.Outer.Lap"))
        self.first = GetMessageClass(pool.FindMessageTypeByName("acme.First"))

    def avro(self, schema: dict[str, Any], **options: Any) -> Serializer:
        references = [SchemaReference("acme.Car", "car", 1)] if schema is REFERRING else []
        made: Serializer = AvroSerializer(
            self.client, Schema(json.dumps(schema), "AVRO", references), conf=_conf(**options)
        )
        return made

    def protobuf(self, kind: Any, **options: Any) -> Serializer:
        made: Serializer = ProtobufSerializer(kind, self.client, _conf(**options))
        return made

    def send(self, game: str, serializer: Serializer, event: Any, expected: dict[str, Any]) -> None:
        headers: list[tuple[str, bytes]] = [("trace", b"1")]
        context = SerializationContext(self.world.topic, MessageField.VALUE, headers)  # type: ignore[arg-type]
        self.kafka.produce(self.world.topic, serializer(event, context), game.encode(), headers=headers)  # type: ignore[arg-type]
        self.sent.setdefault(game, []).append(expected)


def _conf(**options: Any) -> dict[str, Any]:
    # Apicurio takes a subject's first format for all of its schemas.
    return {"subject.name.strategy": topic_record_subject_name_strategy, **options}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RegistryProxy, str]]:
    with Registry.start(tmp_path_factory.mktemp("registry")) as apicurio, proxied(apicurio.url) as made:
        yield made


@pytest.fixture
def framed(
    spark: SparkSession, broker: Broker, registry: tuple[RegistryProxy, str], tmp_path: Path
) -> Iterator[TopicWorld]:
    """A topic whose records are payloads with Confluent's framing, and whose keys name their games."""
    world = topic_world(spark, broker, tmp_path / "env", 2)
    source = replace(world.settings.source, envelope="none", routing="key", framing="confluent", registry="main")
    games = ("avro", "avro by guid", "avro with references", "nested", "nested by guid", "first")
    world.settings = replace(
        world.settings,
        source=source,
        registries={"main": RegistrySettings(url=registry[1])},
    )
    give_rules(world.engine, rule(*games))
    yield world
    world.engine.dispose()


def rows_of(world: TopicWorld, game: str, names: list[str]) -> list[dict[str, Any]]:
    table = DeltaTable(world.paths.table(game_key(game))).to_pyarrow_table(columns=names)
    return in_order(table.to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: abs(int(row["n"])))


@pytest.mark.proves("G190")
def test_values_of_real_serializers_land_as_they_were_sent(
    framed: TopicWorld, registry: tuple[RegistryProxy, str]
) -> None:
    """Issue 35: ids and GUIDs, evolving and referring schemas, nested messages: each row by its own writer's schema."""
    with SchemaRegistryClient({"url": registry[1], "max.retries": 0}) as client:
        client.register_schema("car", Schema(json.dumps(CAR_AVRO), "AVRO"))
        producer = Producer(framed, client)
        guid = {"schema.id.serializer": header_schema_id_serializer}
        older, newer, by_guid = producer.avro(LAP), producer.avro(WIDER), producer.avro(LAP, **guid)
        referring = producer.avro(REFERRING)
        nested, nested_by_guid = producer.protobuf(producer.lap), producer.protobuf(producer.lap, **guid)
        first = producer.protobuf(producer.first)
        for number in range(EVENTS):
            event = lap(number)
            wet = {"wet": number % 4 == 1}
            if number % 2:
                producer.send("avro", newer, event | wet, event | wet)
            else:
                producer.send("avro", older, event, event | {"wet": None})
            producer.send("avro by guid", by_guid, event, event)
            producer.send("avro with references", referring, event, event)
            message = producer.lap(**values(number))
            producer.send("nested", nested, message, values(number))
            producer.send("nested by guid", nested_by_guid, message, values(number))
            producer.send("first", first, producer.first(n=number), {"n": number})
        assert producer.kafka.flush(30) == 0
    needs: list[Any] = []
    ingest = Ingest(framed.spark, framed.settings, framed.paths, framed.engine, framed.landed.append, needs.extend)
    ingest.start(once=True).awaitTermination()
    ingest.close()
    assert {need.game for need in needs} == producer.sent.keys()
    register_group(framed.engine, "a", placing())
    resolution = resolution_of(framed.engine, framed.settings, framed.paths.bronze)
    publish = framed.passes.append
    group = Group(framed.spark, framed.settings, framed.paths, framed.engine, "a", publish, resolution=resolution)
    framed.split(group)
    group.stop()
    for game, sent in producer.sent.items():
        assert rows_of(framed, game, list(sent[0])) == in_order(sent), game
    wanted = Wanted(LocalRegistry(framed.engine, framed.paths.bronze).snapshot)
    balance = verify(framed.paths, framed.settings.environment, generations(framed.engine), wanted=wanted)
    assert balance.complete, balance.problems
    assert balance.values is not None
    assert (balance.values.rows, balance.values.mismatches) == (6 * EVENTS, 0)
