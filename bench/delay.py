"""A proxy before an S3 server, in a process of its own: it adds a latency to each request and counts them by client.

Its own work, about half a millisecond of CPU per request, is on the same machine as what is measured.
"""

import http.client
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any, Final

KINDS: Final = ("ours", "arrow", "spark", "spark lists")
"""Whose requests: turnout's and delta-rs' client, Arrow's reader, and Spark's, of which listings are counted apart."""

_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}  # "host" is signed, so it is kept


class Delay:
    """The running proxy."""

    def __init__(self, address: str, upstream: str, counts: "SynchronizedArray[int]") -> None:
        self.address, self.upstream, self._counts = address, upstream, counts

    def requests(self) -> Mapping[str, int]:
        """Return how many requests each kind of client has made until now."""
        return {kind: self._counts[at] for at, kind in enumerate(KINDS)}


@contextmanager
def delayed(upstream: str, latency_ms: float) -> Iterator[Delay]:
    """Run the proxy before a server's address."""
    context = multiprocessing.get_context("spawn")
    counts: SynchronizedArray[int] = context.Array("q", len(KINDS))
    ours, its = context.Pipe()
    process = context.Process(target=_serve, args=(upstream.removeprefix("http://"), latency_ms / 1000, counts, its))
    process.start()
    try:
        yield Delay(f"http://127.0.0.1:{ours.recv()}", upstream, counts)
    finally:
        process.kill()
        process.join()


def _kind(agent: str, path: str) -> int:
    if "aws-sdk-java" in agent or "Hadoop" in agent:
        return KINDS.index("spark lists" if "list-type=2" in path else "spark")
    return KINDS.index("arrow" if "aws-sdk-cpp" in agent else "ours")


def _serve(upstream: str, delay: float, counts: "SynchronizedArray[int]", back: Any) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.connection_up = http.client.HTTPConnection(upstream, timeout=60)

        def finish(self) -> None:
            self.connection_up.close()
            super().finish()

        def answer(self) -> None:
            with counts.get_lock():
                counts[_kind(self.headers.get("User-Agent", ""), self.path)] += 1
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(delay)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            self.connection_up.request(self.command, self.path, body, headers)
            response = self.connection_up.getresponse()
            content = response.read()
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            length = response.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                with suppress(BrokenPipeError):  # the client wanted only its beginning
                    self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer  # noqa: N815 - names of the library

    class Server(ThreadingHTTPServer):
        request_queue_size = 1024  # delta-rs opens some dozens of connections at once; with 5 some wait for seconds

    server = Server(("127.0.0.1", 0), Handler)
    back.send(server.server_port)
    server.serve_forever()
