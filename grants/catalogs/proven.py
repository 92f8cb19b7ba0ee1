"""Connections to the embedded catalog: nothing is sent on one before its other end has proven to know the token.

The catalog's port is free while it is down, and any user of the machine may take it. So each connection is tried, not
each client: the server may have gone since the last one. `sdk` uses this for requests on this machine.
"""

import hmac
import secrets
import socket
from http.client import HTTPException, HTTPResponse

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from grants.catalog import CatalogUnavailable
from grants.proof import NONCE_BYTES, PROOF_PATH, proof


class ProvenAdapter(HTTPAdapter):
    """Sends requests of a session only on connections whose other end knows the catalog's token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.poolmanager.pool_classes_by_scheme = {"http": _pool_class(token)}


def _pool_class(token: str) -> type[HTTPConnectionPool]:
    class ProvenConnection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            try:
                if not _is_proven(self.sock, self.port, token):
                    raise CatalogUnavailable(
                        f"What listens at 127.0.0.1:{self.port} is not this environment's catalog: it does not know "
                        "the token in its folder. No token was sent. Stop it, then start `turnout catalog serve`."
                    )
            except BaseException:
                self.close()
                raise

    class ProvenPool(HTTPConnectionPool):
        ConnectionCls = ProvenConnection

    return ProvenPool


def _is_proven(connection: socket.socket, port: int, token: str) -> bool:
    nonce = secrets.token_hex(NONCE_BYTES)
    expected = proof(token, port, nonce).encode()
    connection.sendall(f"GET {PROOF_PATH}{nonce} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    answer = HTTPResponse(connection, method="GET")
    try:
        answer.begin()
        return hmac.compare_digest(answer.read(len(expected) + 1), expected)
    except OSError:  # also of a server that ends just now: the client tries again
        raise
    except HTTPException:
        return False
    finally:
        answer.close()
