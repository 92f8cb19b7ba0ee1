"""Clients that keep to HTTP/2 and to nothing else: they send half of a message, and wait."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS = 1, 4


class RawConnection:
    """One connection, on which frames are written by hand."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))

    def half_sent(self, number: int, method: str, token: str | None, whole: int, sent: int) -> None:
        """Begin a call, or a stream, with a message of which only the first bytes are sent."""
        headers = [
            (":method", "POST"), (":scheme", "http"), (":path", f"/turnout.v1.Edge/{method}"), (":authority", "edge"),
            ("content-type", "application/grpc"), ("te", "trailers"),
            *([] if token is None else [("authorization", f"Bearer {token}")]),
        ]  # fmt: skip
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers)
        message = b"\0" + struct.pack(">I", whole) + b"\x12" * sent
        self.socket.sendall(_frame(_HEADERS, _END_HEADERS, number, block) + _frame(_DATA, 0, number, message))

    def frames(self) -> Iterator[tuple[int, int, int]]:
        """Yield kind, flags and stream of each frame until the connection is closed."""
        with self.socket.makefile("rb") as file:
            while len(head := file.read(9)) == 9:
                kind, flags, stream = head[3], head[4], struct.unpack(">I", head[5:])[0]
                body = file.read(int.from_bytes(head[:3], "big"))
                yield kind, flags, stream
                if kind == _SETTINGS and not flags & 1:
                    self.socket.sendall(_frame(_SETTINGS, 1, 0, b""))
                elif kind == 6 and not flags & 1:
                    self.socket.sendall(_frame(6, 1, 0, body))

    def wait_for_end(self, number: int) -> None:
        """Return when the edge has ended a stream."""
        for kind, flags, stream in self.frames():
            if stream == number and (kind == _RST or (kind == _HEADERS and flags & _END_STREAM)):
                return
        raise AssertionError("the connection was closed")

    def wait_for_close(self) -> None:
        """Return when the edge has closed the connection."""
        try:
            for _ in self.frames():
                pass
        except ConnectionError:
            pass


@contextmanager
def raw(address: str) -> Iterator[RawConnection]:
    """Open a connection, and close it in the end."""
    made = RawConnection(address)
    try:
        yield made
    finally:
        made.socket.close()


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + body


def _text(value: str) -> bytes:
    """Return a short text as HPACK has it without compression."""
    assert len(value) < 127
    return bytes((len(value),)) + value.encode()
