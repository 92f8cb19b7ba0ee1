"""An edge as a process before a real broker, and what the topic has in the end."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from pipeline.data.contracts.registry import LocalRegistry
from pipeline.demo.broker import Broker
from pipeline.demo.samples.supported import payload_schema
from pipeline.demo.server_process import free_ports
from pipeline.edge.client import EdgeClient
from pipeline.edge.client_channel import EdgeTls
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.platforms.local.child_processes import turnout
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.edge_producers import EdgeProducer, apply, read_producers, sha256_of
from protos.turnout.v1.wrapper_pb2 import Wrapper

GAME = "Chess"
TOKEN = "the token of chess"
SECONDS = 60.0


@dataclass(slots=True)
class EdgeProcess:
    """One edge, which may be killed and started again on its port."""

    folder: Path
    environ: Mapping[str, str]
    address: str
    log: Path
    options: Sequence[str] = ()
    tls: EdgeTls | None = None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is ready once it takes the token."""
        command = turnout("edge", "run", "--env-dir", str(self.folder), "--listen-token", self.address, "--name", "one",
                          *self.options)  # fmt: skip
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, env={**os.environ, **self.environ}, stdout=output, stderr=output, start_new_session=True
            )  # a fail-point kills the session

    def ready(self) -> None:
        with EdgeClient(self.address, TOKEN, tls=self.tls) as client:
            client.wait_until_ready(SECONDS)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(SECONDS)

    def said(self) -> str:
        return self.log.read_text("utf-8")


@contextmanager
def edge_before(
    broker: Broker, folder: Path, topic: str, partitions: int = 2, family: str = "puzzle", version: int = 3,
    options: Sequence[str] = (), tls: EdgeTls | None = None,
) -> Iterator[EdgeProcess]:  # fmt: skip
    """Run an edge before a topic of a broker, with one producer and one game with a schema of id 1."""
    environ = {
        "TURNOUT_SOURCE__KIND": "kafka", "TURNOUT_SOURCE__BOOTSTRAP_SERVERS": broker.address,
        "TURNOUT_SOURCE__TOPIC": topic,
    }  # fmt: skip
    ensure_topic(broker.address, topic, partitions)
    with edge_in(folder, environ, family, version, options, tls) as edge:
        yield edge


@contextmanager
def edge_in(
    folder: Path, environ: Mapping[str, str], family: str = "puzzle", version: int = 3,
    options: Sequence[str] = (), tls: EdgeTls | None = None,
) -> Iterator[EdgeProcess]:  # fmt: skip
    """Run an edge before the source of an environment, likewise."""
    settings, paths = load(folder, environ)
    engine = open_store(settings, paths)
    LocalRegistry(engine, paths.bronze).register(GAME, *payload_schema(family, version))
    producer = EdgeProducer("chess", sha256_of(TOKEN), games=(GAME,))
    apply(engine, [producer], read_producers(engine).number, "ann", "a test", action="apply", target="producers")
    engine.dispose()
    (port,) = free_ports(None)
    edge = EdgeProcess(folder, environ, f"127.0.0.1:{port}", folder / "edge.log", options, tls)
    edge.start()
    try:
        edge.ready()
        yield edge
    finally:
        if edge.process is not None and edge.process.poll() is None:
            edge.process.kill()
            edge.process.wait()


def event_ids(address: str, topic: str, partitions: int = 2) -> list[str]:
    """Return the event ids of all records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "test", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended = list[str](), set[int | None]()
    deadline = time.monotonic() + SECONDS
    while len(ended) < partitions:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.5):
            error, value = message.error(), message.value()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
            else:
                assert isinstance(value, bytes)
                found.append(Wrapper.FromString(value).event_id)
    consumer.close()
    return found


def metric(folder: Path, name: str) -> float:
    """Return the sum of a metric over its labels, as Prometheus would read it."""
    import json
    from urllib.request import urlopen

    (target,) = json.loads((folder / "targets" / "edge-one.json").read_text())[0]["targets"]
    with urlopen(f"http://{target}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(each) for each in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))
