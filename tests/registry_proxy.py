"""A proxy before a real schema registry: adds GUIDs, which Apicurio lacks, and is slow or lies where a test says so."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

Said: TypeAlias = tuple[int, bytes]
"""Status and body."""


class RegistryProxy:
    """The proxy's behaviour, and the questions that it got."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.asked: list[str] = []
        self.instead: Callable[[str], Said | None] = lambda _path: None
        """The answer to a GET in place of the registry's; None: the registry's."""
        self.swapped: dict[str, str] = {}
        """Addresses that are answered with what is at another one."""
        self.open = threading.Event()
        """Questions wait while it is not set."""
        self.open.set()
        self.waiting = threading.Event()
        """Set when a question waits."""
        self._numbers: dict[str, int] = {}

    def answer(self, method: str, path: str, body: bytes | None) -> Said:
        if method == "GET":
            self.asked.append(path)
            if not self.open.is_set():
                self.waiting.set()
                self.open.wait(60)
            if (said := self.instead(path)) is not None:
                return said
        status, content = self._ask(method, self._known(self.swapped.get(path, path)), body)
        told = json.loads(content) if status == 200 and content else None
        if isinstance(told, dict) and isinstance(told.get("id"), int):
            guid = str(guid_of(told["id"]))
            self._numbers[guid] = told["id"]
            content = json.dumps({**told, "guid": guid}).encode()
        return status, content

    def _known(self, path: str) -> str:
        """Return the address of a GUID's schema in a registry without GUIDs."""
        address, _, guid = path.partition("/schemas/guids/")
        guid, mark, query = guid.partition("?")
        return f"{address}/schemas/ids/{self._numbers.get(guid, 2**31 - 1)}{mark}{query}" if guid else path

    def _ask(self, method: str, path: str, body: bytes | None) -> Said:
        connection = http.client.HTTPConnection(self.upstream.hostname or "", self.upstream.port, timeout=60)
        try:
            headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
            connection.request(method, f"{self.upstream.path}{path}", body, headers)
            with connection.getresponse() as response:
                return response.status, response.read()
        finally:
            connection.close()


def guid_of(number: int) -> UUID:
    return uuid5(NAMESPACE_URL, str(number))


def lying(content: Any, status: int = 200) -> Callable[[str], Said]:
    """Return an answer to all questions."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda _path: (status, body)


@contextmanager
def proxied(upstream: str) -> Iterator[tuple[RegistryProxy, str]]:
    """Run a proxy; gives its behaviour and its address."""
    proxy = RegistryProxy(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65_536  # else a page is two packets, of which the second waits 40 ms

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, content = proxy.answer(self.command, self.path, self.rfile.read(length) if length else None)
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_GET  # noqa: N815 - the standard library's names

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None: ...  # a client hung up, or the registry: then its client gets nothing

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy, f"http://127.0.0.1:{server.server_port}"
        finally:
            proxy.open.set()
            server.shutdown()
            thread.join()
