"""A bucket of an S3 server, and a proxy before it that loses replies, as networks do."""

import atexit
import http.client
import multiprocessing
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import pytest

from pipeline.demo.object_server import ObjectServer
from tests.storage.served import KEY, SECRET, reached

Fault = Literal["unsaid", "stored and refused", "refused", "forbidden"]
"""The reply never comes although the request was served; it is an error although it was served; it was not served,
because the store is busy; or because the client has no right.
"""

FAULTS: Final[tuple[Fault, ...]] = ("unsaid", "stored and refused", "refused")
_BUSY: Final = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"
_DENIED: Final = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_UNSERVED: Final[dict[Fault, tuple[int, dict[str, str], bytes]]] = {
    "refused": (503, {}, _BUSY),
    "forbidden": (403, {}, _DENIED),
}
_SPAWN: Final = multiprocessing.get_context("spawn")
_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@contextmanager
def bucket() -> Iterator[str]:
    """Make an empty bucket on the S3 server of this process's tests, and yield the bucket's URL.

    The server is a process of its own: a library may hold the interpreter's lock until the server has answered.
    """
    with reached(_server(), f"tables-{uuid.uuid4()}") as url:
        yield url.removesuffix("/prod")


@lru_cache(maxsize=1)
def _server() -> ObjectServer:
    """Start the server that all buckets share, until this process ends: a start takes half a second."""
    folder = TemporaryDirectory()
    server = ObjectServer.start(Path(folder.name), KEY, SECRET)
    atexit.register(folder.cleanup)
    atexit.register(server.stop)
    return server


class _Patient(ThreadingHTTPServer):
    request_queue_size = 1024  # delta-rs opens some dozens of connections at once; with 5 some hear nothing for 30 s


class Proxy:
    """A proxy between clients and an S3 server: it counts requests, and loses the replies that `fault` names."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.removeprefix("http://")
        self.fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
        self.seen: Counter[str] = Counter()
        """Requests by method."""
        self.lost: Counter[tuple[str, Fault]] = Counter()
        """Faults by method and kind."""
        self.url = ""


@contextmanager
def proxied(upstream: str) -> Iterator[Proxy]:
    """Run a proxy before an endpoint, and let this process reach it only so."""
    proxy = Proxy(upstream)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            proxy.seen[self.command] += 1
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.fault(self.command, self.path)
            if fault is not None:
                proxy.lost[self.command, fault] += 1
            if fault is not None and fault in _UNSERVED:
                self._say(*_UNSERVED[fault])
                return
            status, headers, content = _served(proxy.upstream, self.command, self.path, dict(self.headers), body)
            if fault == "unsaid":
                self.close_connection = True
            elif fault == "stored and refused":
                self._say(503, {}, _BUSY)
            else:
                self._say(status, headers, content)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer  # noqa: N815 - names of the library

        def _say(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            length = next((value for name, value in headers.items() if name.lower() == "content-length"), None)
            self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                with suppress(BrokenPipeError):  # the client waits no longer
                    self.wfile.write(content)

    server = _Patient(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class Apart:
    """A proxy in a process of its own."""

    def __init__(self, loses: Event, pipe: Connection) -> None:
        self.loses: Final = loses
        """Faults happen while it is set."""
        self._pipe = pipe

    @property
    def lost(self) -> Counter[tuple[str, Fault]]:
        """Faults by method and kind."""
        self._pipe.send("lost")
        told: Counter[tuple[str, Fault]] = self._pipe.recv()
        return told


@contextmanager
def proxied_apart(upstream: str, fault: Callable[[str, str], Fault | None]) -> Iterator[Apart]:
    """Run a proxy in a process of its own, which a library that holds this one's interpreter does not stop.

    `fault` is pickled.
    """
    loses, (ours, theirs) = _SPAWN.Event(), _SPAWN.Pipe()
    process = _SPAWN.Process(target=_stand_between, args=(upstream, fault, loses, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", ours.recv())
            yield Apart(loses, ours)
    finally:
        ours.close()
        process.join(10)
        process.kill()
        process.join()


def _stand_between(upstream: str, fault: Callable[[str, str], Fault | None], loses: Event, pipe: Connection) -> None:
    with proxied(upstream) as proxy, suppress(EOFError):
        proxy.fault = lambda method, path: fault(method, path) if loses.is_set() else None
        pipe.send(proxy.url)
        while pipe.recv():
            pipe.send(proxy.lost)


def _served(
    upstream: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(upstream, timeout=60)
    try:
        connection.request(method, path, body, {k: v for k, v in headers.items() if k.lower() not in _HOP})
        with connection.getresponse() as response:
            return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()
