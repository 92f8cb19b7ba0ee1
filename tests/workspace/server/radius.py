"""Checks passwords for PostgreSQL: a RADIUS server on loopback, which PostgreSQL asks at each login.

So a database credential is checked as Lakebase does it: at login only, by its expiry, and several live side by side.
PAP of RFC 2865; https://www.postgresql.org/docs/current/auth-radius.html says what PostgreSQL sends.
"""

import contextlib
import hashlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final

_ACCESS_REQUEST, _ACCEPT, _REJECT = 1, 2, 3
_USER_NAME, _USER_PASSWORD = 1, 2
_HEAD: Final = struct.Struct("!BBH16s")
_BLOCK: Final = 16


class Radius:
    """Answers PostgreSQL in a thread; `accepts` decides on a user's name and password."""

    def __init__(self, secret: str, accepts: Callable[[str, str], bool]) -> None:
        """Listen on a free port."""
        self._secret, self._accepts = secret.encode(), accepts
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            packet, sender = self._socket.recvfrom(4_096)
            with contextlib.suppress(struct.error, ValueError, KeyError):
                self._socket.sendto(self._answer(packet), sender)

    def _answer(self, packet: bytes) -> bytes:
        code, number, length, authenticator = _HEAD.unpack_from(packet)
        if code != _ACCESS_REQUEST:
            raise ValueError(code)
        fields = dict(_attributes(packet[_HEAD.size : length]))
        password = self._clear(fields[_USER_PASSWORD], authenticator).rstrip(b"\0")
        is_right = self._accepts(fields[_USER_NAME].decode(), password.decode("utf-8", "replace"))
        head = struct.pack("!BBH", _ACCEPT if is_right else _REJECT, number, _HEAD.size)
        return head + hashlib.md5(head + authenticator + self._secret).digest()

    def _clear(self, hidden: bytes, authenticator: bytes) -> bytes:
        clear, before = b"", authenticator
        for start in range(0, len(hidden), _BLOCK):
            block = hidden[start : start + _BLOCK]
            key = hashlib.md5(self._secret + before).digest()
            clear += bytes(a ^ b for a, b in zip(block, key, strict=True))
            before = block
        return clear


def _attributes(raw: bytes) -> Iterator[tuple[int, bytes]]:
    while raw:
        kind, length = raw[0], raw[1]
        yield kind, raw[2:length]
        raw = raw[length:]
