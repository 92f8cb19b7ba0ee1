"""An edge before a real broker: acknowledged events are in the topic, and it ends in order."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import AdminClient
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pipeline.base.errors import Refused
from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.demo.broker import Broker
from pipeline.demo.samples.supported import sample
from pipeline.demo.server_process import free_ports
from pipeline.edge.client import (
    EdgeAcknowledged,
    EdgeClient,
    EdgeEvent,
    EdgeGaveUp,
    EdgeOutcome,
    EdgeRejected,
)
from pipeline.edge.client_channel import EdgeTls
from pipeline.edge.listening import parse_ports
from pipeline.edge.process import run_edge
from pipeline.lake.kafka import acknowledged
from pipeline.lake.kafka.acknowledged import AcknowledgedProducer, Delivered
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.settings.tree import load
from protos.turnout.v1.edge_pb2 import FollowResponse
from tests.checkout import ROOT
from tests.kafka.edge_world import GAME, TOKEN, edge_before, event_ids, metric
from tests.unit.data.contracts.formats.protobuf.wire_world import varint
from tests.unit.edge.tls_world import Authority, serial, served_serial


def payload(sequence: int) -> bytes:
    made = sample("protobuf", "puzzle", 3, 1)
    return made.encode(made.event(sequence, sequence, 1_700_000_000_000_000))


def test_acknowledged_events_are_in_the_topic_and_a_drain_loses_none(broker: Broker, tmp_path: Path) -> None:
    """An edge under load ends by SIGTERM within seconds with exit code 0; each acknowledged event is in the topic."""
    with edge_before(broker, tmp_path, "edge-drain") as edge:
        client = EdgeClient(edge.address, TOKEN, give_up_seconds=1.0, batch_events=50)
        futures = [client.send(EdgeEvent(GAME, 1, payload(number), event_id=f"e{number}")) for number in range(2_000)]
        bad = client.send(EdgeEvent(GAME, 1, b"\xff", event_id="bad"))
        assert client.flush(60)
        assert isinstance(bad.result(), EdgeRejected)
        assert metric(tmp_path, "turnout_edge_accepted_events_total") == 2_000
        assert metric(tmp_path, "turnout_edge_refused_events_total") == 1
        stop = threading.Event()

        def load_on() -> None:
            number = 2_000
            while not stop.is_set():
                futures.append(client.send(EdgeEvent(GAME, 1, payload(number), event_id=f"e{number}")))
                number += 1

        sender = threading.Thread(target=load_on)
        sender.start()
        assert edge.end() == 0, edge.said()
        stop.set()
        sender.join()
        client.close(0.0)
        acknowledged = {
            each.result().event_id
            for each in futures
            if each.exception() is None and isinstance(each.result(), EdgeAcknowledged)
        }
        assert len(acknowledged) >= 2_000
        found = event_ids(broker.address, "edge-drain")
        assert acknowledged - set(found) == set()
        assert "bad" not in found
        assert not (tmp_path / "targets" / "edge-one.json").exists()


def test_a_payload_of_1_mib_is_taken_and_one_of_a_byte_more_is_not(broker: Broker, tmp_path: Path) -> None:
    """Caps of gRPC, of Kafka's client and of the topic lie above that of a pass."""

    def of(size: int) -> bytes:
        """Return an unknown text, number 1023, which a table leaves out."""
        return b"\xfa\x3f" + varint(size - 5) + b"x" * (size - 5)

    with edge_before(broker, tmp_path, "edge-large") as edge, EdgeClient(edge.address, TOKEN) as client:
        fits = client.send(EdgeEvent(GAME, 1, of(MAX_PAYLOAD_BYTES), event_id="fits")).result(60)
        over = client.send(EdgeEvent(GAME, 1, of(MAX_PAYLOAD_BYTES + 1), event_id="over")).result(60)
        assert isinstance(fits, EdgeAcknowledged), fits
        assert isinstance(over, EdgeRejected)
        assert over.reason == "malformed_payload"
        assert event_ids(broker.address, "edge-large") == ["fits"]


def test_health_and_reflection_answer_and_a_revocation_counts(broker: Broker, tmp_path: Path) -> None:
    """Any client finds the service by reflection; a revoked token is refused within 10 s, also on open streams."""
    from click.testing import CliRunner

    from pipeline.cli.main import cli

    with edge_before(broker, tmp_path, "edge-health") as edge, grpc.insecure_channel(edge.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="turnout.v1.Edge")
        assert health.Check(asked, timeout=20).status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflection.ServerReflectionInfo(iter([question]), timeout=20)
        assert "turnout.v1.Edge" in {each.name for each in answer.list_services_response.service}
        idle = threading.Event()

        def requests() -> Any:
            idle.wait(60)
            yield b""

        plain: Any = channel
        opened = plain.stream_stream("/turnout.v1.Edge/PublishStream")
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        stream = opened(requests(), metadata=metadata, timeout=30)
        follower = plain.unary_stream("/turnout.v1.Edge/Follow")(b"", metadata=metadata, timeout=30)
        assert FollowResponse.FromString(next(follower)).token
        began = time.monotonic()
        done = CliRunner().invoke(
            cli, ["edge", "producers", "revoke", "chess", "--reason", "leaked", "--env-dir", str(tmp_path)]
        )
        assert done.exit_code == 0, done.output
        for each in (stream, follower):
            with pytest.raises(grpc.RpcError) as raised:
                next(each)
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        idle.set()
        assert time.monotonic() - began < 10
        client = EdgeClient(edge.address, TOKEN)
        with pytest.raises(EdgeGaveUp, match="revoked"):
            client.send(EdgeEvent(GAME, 1, payload(1))).result(30)
        client.close(5)


def test_the_program_of_the_documentation_runs(broker: Broker, tmp_path: Path) -> None:
    """A developer copies the lines, fills in address and schema, and sees an acknowledged event."""
    program, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "edge.md").read_text("utf-8"), re.DOTALL)
    with edge_before(broker, tmp_path, "edge-docs", family="shooter", version=1) as edge:
        for given, own in (
            ("127.0.0.1:8470", edge.address), ('"Chess", 11,', '"Chess", 1,'),
        ):  # fmt: skip
            assert given in program
            program = program.replace(given, own)
        environ = {**os.environ, "EDGE_TOKEN": TOKEN}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("EdgeAcknowledged(event_id=")
        assert len(event_ids(broker.address, "edge-docs")) == 100


def test_records_without_room_are_counted_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """No report comes for a record that the client has not queued: the batch ends all the same, once, as full."""
    monkeypatch.setattr(acknowledged, "_QUEUE_RECORDS", 100)
    ensure_topic(broker.address, "edge-full", 1)
    producer = AcknowledgedProducer(broker.address, "edge-full", {}, 20.0)
    ended: queue.Queue[Delivered] = queue.Queue()
    producer.send([b"k"] * 5_000, [b"v"] * 5_000, ended.put)
    assert ended.get(timeout=60).is_full
    producer.send([b"k"] * 10, [b"v"] * 10, ended.put)
    whole = ended.get(timeout=60)
    assert whole.error is None
    assert sum(last - first + 1 for first, last in whole.offsets.values()) == 10
    assert producer.close(10.0) == 0
    assert ended.empty()


def test_a_topic_made_again_has_another_id_at_once(broker: Broker) -> None:
    """Answers name the topic that took the records: offsets of a recreated topic begin at 0 again."""
    ensure_topic(broker.address, "edge-anew", 1)
    producer = AcknowledgedProducer(broker.address, "edge-anew", {}, 20.0)
    before = producer.topic_id
    assert before
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics(["edge-anew"])["edge-anew"].result(30)
    while "edge-anew" in admin.list_topics(timeout=10).topics:
        admin.poll(0.05)
    ensure_topic(broker.address, "edge-anew", 1)
    until = time.monotonic() + 30
    while producer.topic_id == before:
        assert time.monotonic() < until
        admin.poll(0.05)
    assert producer.topic_id
    producer.close(1.0)


def test_certificates_change_under_load_and_no_event_is_lost(broker: Broker, tmp_path: Path) -> None:
    """Every acknowledged event is in the topic over three renewals; probes ask a port of their own without TLS."""
    authority, (health_port,) = Authority(), free_ports(None)
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    files = authority.issue().write(tmp_path)
    options = (
        "--tls-cert", str(files.certificate), "--tls-key", str(files.key), "--listen-health", f"0.0.0.0:{health_port}",
    )  # fmt: skip
    tls, stop, futures = EdgeTls(tmp_path / "ca.pem"), threading.Event(), list[Future[EdgeOutcome]]()
    with edge_before(broker, tmp_path, "edge-tls", options=options, tls=tls) as edge:
        client = EdgeClient(edge.address, TOKEN, tls=tls, batch_events=20, queue_events=100)

        def load_on() -> None:
            while not stop.is_set():
                futures.append(client.send(EdgeEvent(GAME, 1, payload(len(futures)), event_id=f"e{len(futures)}")))

        thread = threading.Thread(target=load_on)
        thread.start()
        for _ in range(3):
            renewed, sent = authority.issue(), len(futures)
            renewed.write(tmp_path)
            assert served_serial(edge.address) == serial(renewed)
            edge.ready()
            while len(futures) < sent + 200:
                assert not stop.wait(0.01)
        (tmp_path / "edge.key").write_bytes(b"broken")
        while "no private key" not in edge.said():
            assert not stop.wait(0.05)
        assert metric(tmp_path, "turnout_edge_certificate_errors_total") > 0
        edge.ready()
        stop.set()
        thread.join()
        assert client.close(60)
        assert metric(tmp_path, "turnout_edge_certificate_expires_timestamp_seconds") > time.time()
        with grpc.insecure_channel(f"127.0.0.1:{health_port}") as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            asked = health_pb2.HealthCheckRequest(service="turnout.v1.Edge")
            assert health.Check(asked, timeout=20).status == health_pb2.HealthCheckResponse.SERVING
        assert edge.end() == 0, edge.said()
        assert "keeps its last certificate" in edge.said()
        assert "PRIVATE KEY" not in edge.said()
    assert all(isinstance(each.result(0), EdgeAcknowledged) for each in futures)
    assert sorted(event_ids(broker.address, "edge-tls")) == sorted(f"e{number}" for number in range(len(futures)))


def test_an_edge_without_a_topic_to_write_to_does_not_start(broker: Broker, tmp_path: Path) -> None:
    """Each source that an edge cannot serve is refused in a sentence, before it listens."""
    kafka = {"TURNOUT_SOURCE__KIND": "kafka", "TURNOUT_SOURCE__BOOTSTRAP_SERVERS": broker.address}
    for environ, words in (
        ({"TURNOUT_SOURCE__PATH": str(tmp_path / "typo")}, "no landing table"),
        ({**kafka, "TURNOUT_SOURCE__TOPIC": "typo"}, "does not exist"),
        ({**kafka, "TURNOUT_SOURCE__TOPIC_PATTERN": "a.*"}, "one topic"),
        ({**kafka, "TURNOUT_SOURCE__ENVELOPE": "none", "TURNOUT_SOURCE__ROUTING": "key",
          "TURNOUT_SOURCE__FRAMING": "game"}, "turnout's own wrappers|registry"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=words):
            run_edge(*load(tmp_path, environ), parse_ports("127.0.0.1:0"), "one")


def test_the_newest_signal_that_matters_is_the_first(broker: Broker, tmp_path: Path) -> None:
    """Ctrl-C drains as SIGTERM does."""
    with edge_before(broker, tmp_path, "edge-interrupt") as edge:
        assert edge.end(signal.SIGINT) == 0, edge.said()
