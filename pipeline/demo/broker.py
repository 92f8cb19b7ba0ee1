"""A real Kafka broker of one node (KRaft), run from the project's jars for the demo and for tests.

Listens on the loopback interface only, without encryption or authentication: never for production.
"""

import base64
import os
import re
import subprocess
import time
import uuid
from pathlib import Path
from typing import Final, Self, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from pipeline.base.errors import Refused
from pipeline.demo.server_process import HOST, ServerProcess, claimed, free_ports, launch
from pipeline.platforms.local.jars import java_executable, kafka_jars

_READY_SECONDS = 60.0
_FORMAT_SECONDS = 60.0
_JVM: Final = ("-Xms128m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")

# Paths are relative to the folder, where the broker is started: a properties file would garble some absolute ones.
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs=data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""

_LOGGING: Final = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1}: %m%n%throwable{1}
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
"""


class Broker(ServerProcess):
    """A running broker; ends with `stop`, or as a context manager.

    Its folder holds `data`, `broker.log`, `server.properties` and `log4j2.properties`. Starting again on the same
    folder keeps topics, messages and committed offsets.
    """

    @classmethod
    def start(cls, folder: Path, port: int | None = None) -> Self:
        """Start a broker that keeps its state in `folder` and return once it answers, after 3 to 10 seconds.

        Without a port, a free one is taken.

        Raises:
            Refused: the port is taken, jars or Java are missing, or the broker does not come up.
        """
        port, controller_port = free_ports(port, 1)
        folder.mkdir(parents=True, exist_ok=True)
        folder, log = folder.resolve(), folder.resolve() / "broker.log"
        with claimed(folder, "broker") as lock, log.open("ab") as output:
            (folder / "log4j2.properties").write_text(_LOGGING, "utf-8")
            properties = _PROPERTIES.format(host=HOST, port=port, controller_port=controller_port)
            (folder / "server.properties").write_text(properties, "utf-8")
            cluster_id = _format(folder, log)
            mark = log.stat().st_size
            # Kafka's own lock comes too late: a second broker has damaged the data by then.
            process = launch(_java("kafka.Kafka", "server.properties"), folder, output, lock)
        broker = cls(process, port, log)
        try:
            broker._wait_until_ready(cluster_id, mark)
        except BaseException:
            broker.stop()
            raise
        return broker

    @property
    def address(self) -> str:
        """What clients call bootstrap servers."""
        return f"{HOST}:{self.port}"

    def _wait_until_ready(self, cluster_id: str, mark: int) -> None:
        """Return when the broker answers as a member of its own cluster: another one may hold the port by now."""
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0, "reconnect.backoff.max.ms": 200})
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise Refused(f"The Kafka broker failed to start: {_reason(self.log, mark)}. Log: {self.log}")
            try:
                answer = client.list_topics(timeout=0.5)
            except KafkaException:
                continue  # not up yet; the attempt itself has waited
            # The client declares the id as None, which its type checker takes literally.
            if cast("str | None", answer.cluster_id) == cluster_id and answer.brokers:
                return
            client.poll(0.1)
        raise Refused(
            f"The Kafka broker does not answer at {self.address} after {_READY_SECONDS:.0f} seconds: "
            f"{_reason(self.log, mark)}. Log: {self.log}"
        )


def _java(main: str, *arguments: str) -> list[str]:
    logging = "-Dlog4j2.configurationFile=log4j2.properties"
    jars = os.pathsep.join(str(jar) for jar in kafka_jars())
    return [java_executable(), *_JVM, logging, "-cp", jars, main, *arguments]


def _format(folder: Path, log: Path) -> str:
    """Prepare an empty data folder once, and return the cluster's id."""
    identity = folder / "data" / "meta.properties"
    if not identity.exists():
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = _java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", "server.properties")
        mark = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            try:
                code = subprocess.run(
                    command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, timeout=_FORMAT_SECONDS
                ).returncode
            except subprocess.TimeoutExpired as error:
                raise Refused(
                    f"Preparing {folder / 'data'} takes over {_FORMAT_SECONDS:.0f} seconds. Try again."
                ) from error
        if code != 0:
            raise Refused(f"Kafka cannot prepare {folder / 'data'}: {_reason(log, mark)}. Log: {log}")
    match = re.search(r"^cluster\.id=(.+)$", identity.read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise Refused(f"{identity} names no cluster. Delete {folder / 'data'} to begin with an empty broker.")
    return match.group(1).strip()


def _reason(log: Path, mark: int) -> str:
    """Return the line of the log, from `mark` on, that most likely says why."""
    with log.open("rb") as file:
        file.seek(mark)
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    worst = [line for line in lines if re.search(r"\b(ERROR|FATAL)\b|Exception|Error:", line)]
    return (worst or lines or ["no output"])[-1][:400]
