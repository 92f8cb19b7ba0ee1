"""`turnout edge run`: the process of one edge, from its lease to its drain. The command line calls it."""

import asyncio
import logging
import re
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from sqlalchemy import Engine

from listeners.prometheus import serve
from pipeline.base.errors import Refused
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.edge.certificates import ServedCertificate
from pipeline.edge.following.tail import FollowTail
from pipeline.edge.kind import KIND
from pipeline.edge.known import Knowledge
from pipeline.edge.listening import EdgeAddress, EdgePorts
from pipeline.edge.logs.log import EdgeLog
from pipeline.edge.logs.supported import log_of
from pipeline.edge.messages import MAX_REQUEST_BYTES
from pipeline.edge.metrics import EdgeMetrics
from pipeline.edge.service import MAX_STREAM_SECONDS, SERVICE, EdgeService
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import DRIVER_CONNECTIONS, open_store
from pipeline.store.database.states import ProcessState
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import leased
from pipeline.telemetry.driver import remove_target, write_target
from protos.turnout.v1 import edge_pb2

GRACE_SECONDS: Final = 5.0
"""How long a drain waits for open calls, and again for the log's reports."""

_FATAL_SECONDS: Final = 1.0  # between two looks at the producer
OPTIONS: Final = (
    # Above our own cap, so that we refuse what is too large and count it; gRPC refuses what is larger still.
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES + 1024 * 1024),
    ("grpc.so_reuseport", 0),  # else a second edge binds the same port, and nobody is warned
    ("grpc.max_concurrent_streams", 200),  # of one connection
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.absolute_max_metadata_size", 16 * 1024),
    ("grpc.max_connection_idle_ms", 300_000),  # without a call
    # A connection outlives the CA of its handshake, and holds what was sent halfway: it is ended, and cut after a grace
    # in which all its streams have ended in order.
    ("grpc.max_connection_age_ms", 1_200_000),
    ("grpc.max_connection_age_grace_ms", round(MAX_STREAM_SECONDS * 1_000) + 60_000),
)
"""Options of gRPC's server."""

_MOST_CALLS: Final = 20_000  # of all clients: far above what we admit, as gRPC's refusals have no reason
_MOST_CHECKS: Final = 100  # of health, on the port of its own

_NAME: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:\[\]_-]{0,39}")

_log: Final = logging.getLogger("turnout")


def edge_name(text: str) -> str:
    """Return a name for an edge.

    Raises:
        Refused: it cannot be one.
    """
    if not _NAME.fullmatch(text):
        raise Refused(f"{text!r} cannot name an edge: use 1 to 40 letters, digits and any of '.:[]_-'. Give --name.")
    return text


def run_edge(settings: Settings, paths: Paths, ports: EdgePorts, name: str, run_id: int | None = None) -> int:
    """Serve producers until SIGTERM or Ctrl-C; return the exit code, 1 where Kafka's client has ended for good.

    Raises:
        Refused: the source cannot take events from an edge, an address is in use, another edge has the name, or the
            certificate cannot be served.
    """
    _raise_file_limit()
    certificate = None if ports.files is None else ServedCertificate(ports.files)
    engine = open_store(settings, paths, connections=DRIVER_CONNECTIONS)
    with leased(engine, settings.store, KIND, name, run_id):
        return asyncio.run(
            _Edge(settings, paths, engine, log_of(settings, paths), ports, certificate, name, run_id).run()
        )


def _raise_file_limit() -> None:
    """Let as many connections in as the system allows this process; its soft limit is often 1,024."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):  # it stays as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Edge:
    """One edge, from its first port to its last."""

    def __init__(
        self, settings: Settings, paths: Paths, engine: Engine, log: EdgeLog, ports: EdgePorts,
        certificate: ServedCertificate | None, name: str, run_id: int | None,
    ) -> None:  # fmt: skip
        self._settings, self._paths, self._engine, self._log = settings, paths, engine, log
        self._ports, self._certificate, self._name, self._run_id = ports, certificate, name, run_id
        self._metrics = EdgeMetrics()
        if certificate is not None:
            certificate.failed = self._metrics.certificate_errors.inc

    async def run(self) -> int:
        refuses = self._settings.edge.unknown_games == "refuse"
        knowledge = Knowledge(self._engine, self._paths.bronze, refuses_unknown=refuses)
        tail = FollowTail(self._engine, self._paths, self._settings.environment)
        service = EdgeService(self._settings.edge, knowledge.now, self._log, self._metrics, tail)
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=_MOST_CALLS)
        checks: Any = health.aio.HealthServicer()  # type: ignore[attr-defined]  # its stubs lack it
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        names = (edge_pb2.DESCRIPTOR.services_by_name["Edge"].full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        server.add_generic_rpc_handlers((service.handler(),))
        places = self._listen(server)
        health_server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=_MOST_CHECKS)
        health_pb2_grpc.add_HealthServicer_to_server(checks, health_server)
        if self._ports.health is not None:
            places.append(f"{_bound(health_server, self._ports.health, None)} for health")
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError, RuntimeError):  # not the main thread, as in tests
                loop.add_signal_handler(each, stopping.set)
        with self._served_metrics() as metrics_address, self._heartbeats(metrics_address):
            await server.start()
            await health_server.start()
            for checked in ("", SERVICE):
                await checks.set(checked, health_pb2.HealthCheckResponse.SERVING)
            knowledge.start(lambda known: _soon(loop, service.learn, known))
            _log.info("the edge %s listens on %s", self._name, ", ".join(places))
            code = await self._until(stopping)
            await checks.enter_graceful_shutdown()
            service.drain()
            await server.stop(GRACE_SECONDS)
            await health_server.stop(None)
        knowledge.stop()
        left = await asyncio.to_thread(self._log.close, GRACE_SECONDS)
        service.close()
        if left:
            _log.warning("%d events were given up unacknowledged: their clients send them again", left)
        return code

    def _listen(self, server: grpc.aio.Server) -> list[str]:
        """Open the ports for producers; return their addresses, in words."""
        certificate, places = self._certificate, list[str]()
        if self._ports.token is not None:
            credentials = None if certificate is None else certificate.credentials(asks_clients=False)
            places.append(f"{_bound(server, self._ports.token, credentials)} for tokens")
        if self._ports.mtls is not None and certificate is not None:
            credentials = certificate.credentials(asks_clients=True)
            places.append(f"{_bound(server, self._ports.mtls, credentials)} for certificates")
        if certificate is not None:
            self._metrics.served(certificate.now.expires_at, certificate.now.lifetime)
        return places

    async def _until(self, stopping: asyncio.Event) -> int:
        """Wait for a signal to stop, or for the end of Kafka's client; return the exit code."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _FATAL_SECONDS)
            if stopping.is_set():
                return 0
            if self._certificate is not None:  # also without new connections, so that a bad file is seen at once
                await asyncio.to_thread(self._certificate.look)
                self._metrics.served(self._certificate.now.expires_at, self._certificate.now.lifetime)
            if (fatal := self._log.fatal) is not None:
                _log.error("Kafka's producer has ended for good (%s): start the edge again", fatal)
                return 1

    @contextmanager
    def _served_metrics(self) -> Iterator[str]:
        bind = self._settings.metrics.bind
        try:
            port, stop = serve(self._metrics.registry, bind)
        except (OSError, ValueError) as error:
            raise Refused(f"{error}. The setting is metrics.bind.") from error
        target = self._paths.target(KIND, self._name)
        write_target(target, f"{bind}:{port}", {"kind": KIND, "edge": self._name})
        try:
            yield f"{bind}:{port}"
        finally:
            remove_target(target, f"{bind}:{port}")
            stop()

    @contextmanager
    def _heartbeats(self, metrics_address: str) -> Iterator[None]:
        """Send heartbeats while the block runs, and record how it ended."""
        start_driver(self._engine, KIND, self._name, metrics_address, self._run_id)
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended,), name="heartbeat", daemon=True)
        thread.start()
        state: ProcessState = "failed"
        try:
            yield
            state = "stopped"
        finally:
            ended.set()
            thread.join()
            with tolerate_store_outage("the end of the edge is not recorded"):
                heartbeat(self._engine, KIND, self._name, state, None, self._log.fatal)

    def _beat(self, ended: threading.Event) -> None:
        while True:
            with tolerate_store_outage("this heartbeat is not recorded"):
                heartbeat(self._engine, KIND, self._name, "running", None)
            if ended.wait(self._settings.metrics.heartbeat_seconds):
                return


def _bound(server: grpc.aio.Server, address: EdgeAddress, credentials: grpc.ServerCredentials | None) -> str:
    """Bind an address; return it with its port.

    Raises:
        Refused: it cannot be listened on.
    """
    try:
        if credentials is None:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), credentials)
    except RuntimeError as error:
        raise Refused(f"{address} cannot be listened on: is it in use? Choose another port.") from error
    return str(EdgeAddress(address.host, port))


def _soon(loop: asyncio.AbstractEventLoop, call: object, *arguments: object) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call, *arguments)  # type: ignore[arg-type]  # any callable
