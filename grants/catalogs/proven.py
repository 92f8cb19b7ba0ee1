"""Connections to the embedded catalog: nothing is sent on one before its other end has proven to know the token.

The catalog's port is free while it is down, and any user of the machine may take it. So each connection is tried, not
each client: the server may have gone since the last one. `sdk` uses this for requests on this machine.
"""

import hmac
import secrets
import socket
import time
from typing import Final

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from grants.catalog import CatalogUnavailable
from grants.proof import NONCE_BYTES, PROOF_PATH, proof

_OK: Final = b"HTTP/1.1 200 "
_MAX_BYTES: Final = 4_096  # of an answer; the catalog's has about 200


class ProvenAdapter(HTTPAdapter):
    """Sends requests of a session only on connections whose other end knows the catalog's token.

    `seconds` is what the whole proof may take.
    """

    def __init__(self, token: str, seconds: float) -> None:
        super().__init__()
        self.poolmanager.pool_classes_by_scheme = {"http": _pool_class(token, seconds)}


def _pool_class(token: str, seconds: float) -> type[HTTPConnectionPool]:
    class ProvenConnection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            try:
                if not _is_proven(self.sock, self.port, token, seconds):
                    raise CatalogUnavailable(
                        f"The server at 127.0.0.1:{self.port} is not this environment's catalog: it does not know "
                        "the token in its folder. No token was sent. Stop it, then start `turnout catalog serve`."
                    )
            except BaseException:
                self.close()
                raise

    class ProvenPool(HTTPConnectionPool):
        ConnectionCls = ProvenConnection

    return ProvenPool


def _is_proven(connection: socket.socket, port: int, token: str, seconds: float) -> bool:
    nonce = secrets.token_hex(NONCE_BYTES)
    expected = proof(token, port, nonce).encode()
    connection.sendall(f"GET {PROOF_PATH}{nonce} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    answer = _answer(connection, len(expected), seconds)
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.startswith(_OK) and hmac.compare_digest(body, expected)


def _answer(connection: socket.socket, proof_bytes: int, seconds: float) -> bytes:
    """Return an answer up to where it is complete, wrong, too long or late.

    The time counts for all of it: a time limit of the socket begins again with each byte, and an HTTP client waits for
    ever behind answers that only announce another.

    Raises:
        OSError: nothing came; the server may have ended just now, and the client tries again.
    """
    usual, ends_at = connection.gettimeout(), time.monotonic() + seconds
    answer = b""
    while not _is_enough(answer, proof_bytes) and (left := ends_at - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            piece = connection.recv(_MAX_BYTES)
        except TimeoutError:
            break
        if not piece and not answer:
            raise ConnectionResetError("the connection was closed without an answer")
        if not piece:
            break
        answer += piece
    if not answer:
        raise TimeoutError("timed out")
    connection.settimeout(usual)
    return answer


def _is_enough(answer: bytes, proof_bytes: int) -> bool:
    """Return whether an answer is complete, or can be no proof whatever follows."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return len(answer) >= _MAX_BYTES or not _OK.startswith(answer[: len(_OK)])
    wrong = not head.startswith(_OK) or f"content-length: {proof_bytes}".encode() not in head.lower().split(b"\r\n")
    return wrong or len(body) >= proof_bytes
