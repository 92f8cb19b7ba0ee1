"""Requests that no browser would send: requests with any headers, and a tab without a browser."""

import http.client
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

Sent = Sequence[tuple[str, str]]
STREAM = "/_stcore/stream"
UPGRADE = (
    ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: str


@dataclass(frozen=True)
class Drawn:
    """The messages of one run of a page's script."""

    text: str
    fragments: tuple[str, ...]
    exceptions: tuple[str, ...]


def request(origin: str, path: str, headers: Sent = (), method: str = "GET") -> Answer:
    """Send one request with exactly these headers; the own host is named where none of them is a host."""
    place = urlsplit(origin)
    assert place.hostname is not None
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if not any(name == "Host" for name, _ in headers):
            connection.putheader("Host", place.netloc)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        with connection.getresponse() as answer:
            body = "" if answer.status == 101 else answer.read().decode("utf-8", "replace")
            return Answer(answer.status, answer.headers, body)
    finally:
        connection.close()


def shake_hands(origin: str, headers: Sent = ()) -> Answer:
    """Ask for the websocket of the pages: 101 is a connection."""
    return request(origin, STREAM, (*UPGRADE, *headers))


@contextmanager
def tab(origin: str, own: str, headers: Sent) -> Iterator[Callable[..., Drawn]]:
    """Open a tab, and yield what draws a page, or one fragment of it again; `own` is the origin it claims."""
    with connect(
        f"{origin.replace('http', 'ws')}{STREAM}",
        additional_headers=[*headers, ("Origin", own)],
        subprotocols=["streamlit"],  # type: ignore[list-item] # a str is one
        max_size=None,
    ) as socket:

        def draw(fragment: str = "", page: str = "", query: str = "") -> Drawn:
            message = BackMsg()
            message.rerun_script.fragment_id = fragment
            message.rerun_script.page_name = page
            message.rerun_script.query_string = query
            socket.send(message.SerializeToString())
            sent, fragments, exceptions = [], [], []
            while True:
                frame = socket.recv(timeout=150)  # the first page of a process loads everything
                assert isinstance(frame, bytes)
                parsed = ForwardMsg.FromString(frame)
                sent.append(frame.decode("utf-8", "replace"))
                fragments.append(parsed.delta.fragment_id)
                if parsed.delta.new_element.WhichOneof("type") == "exception":
                    exceptions.append(parsed.delta.new_element.exception.message)
                if parsed.WhichOneof("type") == "script_finished":
                    return Drawn("\n".join(sent), tuple(dict.fromkeys(filter(None, fragments))), tuple(exceptions))

        yield draw
