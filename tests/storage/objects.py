"""Stand-ins of object stores share this: objects in memory, their listing, and an HTTP server on loopback.

Of google_server.py, google_json.py and azure_server.py. A stand-in is one function from a request to its answer; it
is called under one lock, so requests are served one after another, as if each took no time.
"""

import base64
import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

PAGE: Final = 1000
"""Entries of a listing's page, where the client asks for no fewer."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client. The path is still percent-encoded, because a name may contain an encoded slash."""

    method: str
    path: str
    query: dict[str, str]
    headers: Message
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to a client. To HEAD the body is not sent, only its length."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


Respond = Callable[[Request], Answer]


@dataclass(frozen=True, slots=True)
class Stored:
    """One object. Each write has another, greater generation."""

    name: str
    content: bytes
    media_type: str
    generation: int
    modified: datetime

    @property
    def md5(self) -> bytes:
        return hashlib.md5(self.content).digest()

    @property
    def md5_tag(self) -> str:
        return f'"{self.md5.hex()}"'

    @property
    def moment(self) -> str:
        """When it was written, in the form of bodies."""
        return self.modified.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @property
    def last_modified(self) -> str:
        """When it was written, in the form of headers: https://www.rfc-editor.org/rfc/rfc9110#name-date-time-formats."""
        return format_datetime(self.modified, usegmt=True)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing. `token` is where the next page starts, None on the last one."""

    objects: list[Stored]
    prefixes: list[str]
    token: str | None


class Objects:
    """The objects of one bucket by name, and the parts of uploads that are not finished, by upload and part."""

    def __init__(self) -> None:
        self.named: dict[str, Stored] = {}
        self.uploads: dict[str, dict[str, bytes]] = {}
        self._generation = 0

    def put(self, name: str, content: bytes, media_type: str | None = None) -> Stored:
        now = time.time_ns() // 1000
        self._generation = max(self._generation + 1, now)
        modified = datetime.fromtimestamp(now / 1e6, UTC)
        stored = Stored(name, content, media_type or "application/octet-stream", self._generation, modified)
        self.named[name] = stored
        return stored

    def holds(self, name: str, generation: str | None) -> bool:
        """Say whether an object is of the generation that a client wants it to be: of 0 is what is not there."""
        stored = self.named.get(name)
        return generation is None or int(generation) == (stored.generation if stored else 0)

    def page(
        self,
        *,
        prefix: str,
        delimiter: str,
        token: str | None,
        limit: str | None,
        start: str = "",
        after: str | None = None,
    ) -> Page:
        """List names from `start` on, or after `after`, in the order of their bytes.

        Names with a delimiter behind the prefix are one entry: all up to that delimiter. The token hides the last
        name of the page before.
        """
        objects: list[Stored] = []
        prefixes: list[str] = []
        last = ""
        after = base64.b64decode(token).decode() if token else after
        for name in sorted(self.named):
            if name < start or (after is not None and name <= after) or not name.startswith(prefix):
                continue
            head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            group = prefix + head + found if found else None
            known = group is not None and prefixes[-1:] == [group]
            if not known and len(objects) + len(prefixes) == min(int(limit or PAGE), PAGE):
                return Page(objects, prefixes, base64.b64encode(last.encode()).decode())
            if group is None:
                objects.append(self.named[name])
            elif not known:
                prefixes.append(group)
            last = name
        return Page(objects, prefixes, None)


def ranged(wanted: str | None, stored: Stored, headers: dict[str, str]) -> Answer | None:
    """Answer with the bytes that `wanted` names, such as `bytes=0-9`, or all; None where the object has none of them.

    https://www.rfc-editor.org/rfc/rfc9110#name-range-requests
    """
    content, size = stored.content, len(stored.content)
    if wanted is None:
        return Answer(200, content, headers)
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start = int(first) if first else max(size - int(last), 0)
    stop = min(int(last) + 1, size) if first and last else size
    if start >= size:
        return None
    return Answer(206, content[start:stop], {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"})


def parts(request: Request) -> Iterator[tuple[Message, bytes]]:
    """Split a body of several parts (https://www.rfc-editor.org/rfc/rfc2046#section-5.1)."""
    boundary = f"\r\n--{request.headers.get_param('boundary')}".encode()
    for part in (b"\r\n" + request.body).split(boundary)[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        yield _headers(head), content


def batched(request: Request, respond: Respond, status: int) -> Answer:
    """Answer each of the requests that a batch holds, as Google and Azure do, in one body of several parts."""
    boundary = "batch_of_answers"
    lines: list[bytes] = []
    for headers, content in parts(request):
        line, _, rest = content.partition(b"\r\n")
        head, _, body = rest.partition(b"\r\n\r\n")
        method, target, _ = line.decode().split()
        answer = respond(_request(method, target, _headers(head), body))
        lines += [
            f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: {headers['Content-ID']}\r\n".encode(),
            f"HTTP/1.1 {answer.status} Said".encode(),
            *(f"{name}: {value}".encode() for name, value in answer.headers.items()),
            f"Content-Length: {len(answer.body)}\r\n".encode(),
            answer.body,
        ]
    lines.append(f"--{boundary}--\r\n".encode())
    return Answer(status, b"\r\n".join(lines), {"Content-Type": f"multipart/mixed; boundary={boundary}"})


@contextmanager
def serving(respond: Respond) -> Iterator[str]:
    """Run a server on loopback in threads of this process, and yield its URL.

    What the stand-in does not know is answered with 400: clients would ask again for minutes after 501.
    """
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # the head and the body leave together
        disable_nagle_algorithm = True

        def answer(self) -> None:
            request = _request(self.command, self.path, self.headers, self._body())
            try:
                with lock:
                    answer = respond(request)
            except (NotImplementedError, LookupError, ValueError) as error:
                reason = f"the stand-in does not know {self.command} {self.path}: {error!r}"
                answer = Answer(400, reason.encode(), {"Content-Type": "text/plain"})
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer  # noqa: N815 - names of the library

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                length = int(self.headers.get("Content-Length") or 0)
                content = self.rfile.read(length)
                if len(content) < length:
                    raise ConnectionError("the client went away before it had sent all")
                return content
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait; with the 5 of the library many writers at one time wait a second

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # clients may go away
            super().handle_error(request, client_address)


def _request(method: str, target: str, headers: Message, body: bytes) -> Request:
    parsed = urlsplit(target)
    return Request(method, parsed.path, dict(parse_qsl(parsed.query, keep_blank_values=True)), headers, body)


def _headers(head: bytes) -> Message:
    return BytesParser().parsebytes(head + b"\r\n\r\n", headersonly=True)
