"""Serves the bridge's metrics over HTTP, and lists it for a Prometheus of this machine."""

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app

from listeners.otlp.sender import send
from pipeline.base.errors import Refused
from pipeline.settings.tree import Paths, Settings
from pipeline.telemetry.bridge.bridge import WAIT_SECONDS, Bridge
from pipeline.telemetry.driver import otlp_headers, remove_target, write_target

KIND = "bridge"
"""The target label `kind` of a bridge, by which the rules of drivers leave it out."""

_TIMEOUT: Final = "HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS"
_Start = Callable[..., Any]


def serve(
    settings: Settings, paths: Paths, bind: str, port: int, stop: threading.Event, said: Callable[[str], None]
) -> None:
    """Answer `/metrics` for all drivers of an environment until `stop` is set, and send them by OTLP if that is set.

    Args:
        settings: of the environment.
        paths: of the environment.
        bind: the address of this machine to listen on.
        port: 0 picks a free one.
        stop: ends it.
        said: gets the address in a sentence once it listens.

    Raises:
        Refused: the address cannot be used, or the headers for OTLP cannot be read.
    """
    headers, registry = otlp_headers(settings.metrics), CollectorRegistry()
    bridge = Bridge(settings, paths, registry)
    try:
        server = _listening(_answering(bridge, registry), bind, port)
    except BaseException:
        bridge.close()
        raise

    def fresh() -> Iterable[Metric]:
        bridge.refresh()
        return registry.collect()

    address = f"{bind}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="serve-metrics")
    sender = None
    target = paths.target(KIND, "main")
    thread.start()
    try:
        if settings.metrics.otlp_endpoint:
            endpoint = settings.metrics.otlp_endpoint
            sender = send(fresh, endpoint, headers, KIND, {"kind": KIND}, counts_since=None)
        write_target(target, address, {"kind": KIND})
        said(f"metrics of all drivers: http://{address}/metrics")
        stop.wait()
    finally:
        remove_target(target, address)
        server.shutdown()
        server.server_close()
        thread.join()
        if sender is not None:
            sender.stop()
        bridge.close()


def _answering(bridge: Bridge, registry: CollectorRegistry) -> Callable[[dict[str, Any], _Start], Iterable[bytes]]:
    """Return the WSGI application: 503 with one sentence where nothing at all is known, so that `up` is 0."""
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        if environ.get("PATH_INFO") not in {"/metrics", "/"}:
            return _said(start, "404 Not Found", "Metrics are at /metrics.")
        bridge.refresh(_patience(environ))
        if (failure := bridge.failure()) is not None:
            return _said(start, "503 Service Unavailable", failure)
        body: Iterable[bytes] = metrics(environ, start)
        return body

    return answer


def _patience(environ: dict[str, Any]) -> float:
    """Return how long a scrape may wait for a reading: half of what Prometheus gives it, as its header says."""
    try:
        return min(WAIT_SECONDS, max(0.0, float(environ[_TIMEOUT]) / 2))
    except (KeyError, ValueError):
        return WAIT_SECONDS


def _said(start: _Start, status: str, sentence: str) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{sentence}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log no scrape."""


def _listening(application: Any, bind: str, port: int) -> WSGIServer:
    if not bind:
        raise Refused("The address to listen on is empty. Name one with --bind, such as 127.0.0.1.")
    try:
        return make_server(bind, port, application, _Server, _Quiet)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Refused(
            f"Metrics cannot be served on {bind} port {port}: {reason}. Choose another with --bind and --port."
        ) from error
