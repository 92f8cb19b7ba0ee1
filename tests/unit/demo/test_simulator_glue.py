"""Glue's frames: AWS's own codec reads them, and the stand-in has the schemas that they name."""

import io
import itertools
import json
from collections.abc import Iterator

import fastavro
import pytest
from aws_schema_registry.codec import decode
from moto.server import ThreadedMotoServer

from pipeline.base.errors import Refused, Transient
from pipeline.demo.framings.glue import REGISTRY, GlueFraming
from pipeline.demo.framings.supported import RegistryAddress, foreign_framing
from pipeline.demo.samples.protobuf import message_class
from pipeline.demo.simulator import GOOD, SimulationPlan, Simulator, family, game_writings
from protos.turnout.v1.wrapper_pb2 import Wrapper


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_awss_codec_reads_glues_frames(endpoint: str) -> None:
    """Plain and compressed bodies are those events that were meant, under schema versions that Glue has."""
    plan = SimulationPlan(games=4, versions=2, events=120, formats=("protobuf", "avro"), framings=("glue",))
    framing = foreign_framing(plan.framings, RegistryAddress(glue_endpoint=endpoint))
    assert isinstance(framing, GlueFraming)
    writings, seen = game_writings(plan), set()
    for event in itertools.chain.from_iterable(Simulator(plan, {}, framing).batches(50)):
        wrapper = Wrapper.FromString(event.value)
        assert (wrapper.schema_id, event.kind) == (0, GOOD)
        body, writer = decode(wrapper.payload)
        found = framing.client.get_schema_version(SchemaVersionId=str(writer))
        assert (found["DataFormat"], found["SchemaDefinition"] != "") == (writings[event.game].format.upper(), True)
        if writings[event.game].format == "avro":
            schema = fastavro.parse_schema(json.loads(found["SchemaDefinition"]))
            value = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
            assert isinstance(value, dict)
            assert value["round"] == event.sequence
        else:
            version = next(each for each in (1, 2) if f"Version {each}" in found["SchemaDefinition"])
            assert message_class(family(event.game), version).FromString(body).round == event.sequence
        seen.add((found["DataFormat"], wrapper.payload[1]))
    assert seen == set(itertools.product(("PROTOBUF", "AVRO"), (0, 5)))


def test_a_second_run_finds_its_schemas(endpoint: str) -> None:
    """A schema that Glue has keeps its id, so that a continued run names no new ones."""
    plan = SimulationPlan(games=1, versions=1, events=1, framings=("glue",))
    heads = set()
    for _ in range(2):
        framing = GlueFraming(endpoint, "us-east-1")
        (event,) = next(Simulator(plan, {}, framing).batches(1))
        heads.add(Wrapper.FromString(event.value).payload[:18])
    assert len(heads) == 1


def test_glue_that_is_away_or_says_no_is_one_sentence(endpoint: str) -> None:
    """The error names the address and the call."""
    with pytest.raises(Transient, match=r"AWS Glue does not answer at http://127\.0\.0\.1:9"):
        GlueFraming("http://127.0.0.1:9", "us-east-1")
    framing = GlueFraming(endpoint, "us-east-1")
    framing.client.delete_registry(RegistryId={"RegistryName": REGISTRY})
    with pytest.raises(Refused, match="refused create_schema"):
        next(Simulator(SimulationPlan(events=1, framings=("glue",)), {}, framing).batches(1))
