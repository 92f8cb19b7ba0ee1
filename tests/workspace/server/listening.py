"""The HTTP side: reads a request, knows its caller, meets faults, calls the handler, writes the journal."""

import contextlib
import socket
import sys
import traceback
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.workspace.server import control
from tests.workspace.server.calls import Answer, ApiError, Call, Json, as_json, failed, find, said
from tests.workspace.server.faults import Fault
from tests.workspace.server.peers import kill_peer
from tests.workspace.server.state import World

CONTROL: Final = "/_standin/"
_READS: Final = frozenset({"GET", "HEAD"})
_NOBODY: Final[Json] = {"id": "", "kind": "nobody", "name": "", "display": ""}


class Cut(Exception):
    """The connection ends here, without an answer."""


class Server(ThreadingHTTPServer):
    """Listens on loopback; a thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, world: World, port: int) -> None:
        """Listen on a port; 0 takes a free one."""

        class Handler(_Handler):
            pass

        Handler.world = world
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that go away."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    world: World
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the head and the body leave together
    disable_nagle_algorithm = True

    def answer(self) -> None:
        body = read_body(self.rfile, self.headers)
        try:
            answer = respond(self.world, self.command, self.path, self.headers, body, self.client_address[1])
        except Cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = do_PATCH = answer  # noqa: N815 - names of the library

    def log_message(self, *args: Any) -> None:
        """Keep quiet: the journal has all."""


def read_body(stream: Any, headers: Message) -> bytes:
    """Return a request's body, also where it comes in chunks.

    Raises:
        ConnectionError: the client went away before it had sent all.
    """
    if headers.get("Transfer-Encoding") != "chunked":
        length = int(headers.get("Content-Length") or 0)
        content: bytes = stream.read(length)
        if len(content) < length:
            raise ConnectionError("the client went away before it had sent all")
        return content
    parts = b""
    while size := int(stream.readline(), 16):
        parts += stream.read(size)
        stream.readline()
    stream.readline()
    return parts


def respond(world: World, method: str, target: str, headers: Message, body: bytes, peer: int) -> Answer:
    """Answer one request, which came from the port `peer`.

    Raises:
        Cut: a fault ends the connection.
    """
    parsed = urlsplit(target)
    query = dict(parse_qsl(parsed.query, keep_blank_values=True))
    path = unquote(parsed.path)
    plain = {name.lower(): value for name, value in headers.items()}
    if path.startswith(CONTROL):
        with world.lock:
            return control.answer(world, path.removeprefix(CONTROL), plain, body)
    with world.lock:
        who: str | None = None
        status: int | str = "cut"

        def answer_of(fault: Fault) -> Answer:
            nonlocal status
            status = fault.status
            return _faulty(world, fault, peer)

        fault = world.faults.due(method, target)
        try:
            if fault is not None and fault.when == "before":
                with contextlib.suppress(ApiError):
                    who = caller(world, plain.get("authorization", ""))["display"]
                return answer_of(fault)
            call = Call(world, world.data, _NOBODY, method, path, {}, query, plain, body)
            answer = _served(call, target)
            who = call.who["display"] or None
            if fault is not None:
                answer = answer_of(fault)
            status = answer.status
            return answer
        finally:
            world.faults.note(method, target, who, status)


def _served(call: Call, target: str) -> Answer:
    """Call the handler; all that goes wrong becomes an answer."""
    world = call.world
    try:
        found, parts = find(call.method, call.path)
        call.parts = parts
        if not found.open:
            call.who = caller(world, call.headers.get("authorization", ""))
        if (rate := world.faults.too_many(call.method, target)) is not None:
            return _refused(429, rate.retry_after)
        is_read = call.method in _READS
        past = None if is_read else world.faults.remember(world.data)
        call.data = world.faults.seen_by(target, world.data) if is_read else world.data
        answer = found.handler(call)
        world.faults.written(past)
        return answer if isinstance(answer, Answer) else as_json(answer)
    except ApiError as error:
        return said(error)
    except Exception:  # noqa: BLE001 - a bug of the stand-in must not look like a lost connection
        traceback.print_exc()
        return said(failed(500, f"The stand-in has a bug: {traceback.format_exc()[-600:]}"))


def caller(world: World, authorization: str) -> Json:
    """Return who has this token.

    Raises:
        ApiError: 401 without a token, with an unknown or an expired token, and for a principal that is not active.
    """
    scheme, _, token = authorization.partition(" ")
    kept = world.data.tokens.get(token.strip())
    if scheme.lower() != "bearer" or kept is None:
        raise ApiError(401, "UNAUTHENTICATED", "Credential was not sent or was of an unsupported type for this API.")
    if kept["expires"] is not None and kept["expires"] <= world.now():
        raise ApiError(401, "UNAUTHENTICATED", "The access token has expired.")
    who = world.data.principals.get(kept["principal"])
    if who is None or not who["active"]:
        raise ApiError(401, "UNAUTHENTICATED", "The principal of this token is not active.")
    return who


def _faulty(world: World, fault: Fault, peer: int) -> Answer:
    if fault.status == "kill":
        kill_peer(peer, urlsplit(world.url).port or 0)
    if fault.status in {"cut", "kill"}:
        raise Cut
    assert isinstance(fault.status, int)
    return _refused(fault.status, fault.retry_after)


def _refused(status: int, retry_after: int | None) -> Answer:
    answer = said(failed(status))
    extra = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Answer(answer.status, answer.body, {**answer.headers, **extra})
