"""Requests to a registry that nobody vouches for: bounded in time and size, without redirects, proxies or compression.

`httpcore2` comes with confluent-kafka's registry client. The client itself reads answers of any size, and waits for
each part of them again.
"""

import base64
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore2

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import shown

MAX_BYTES: Final = 10 * 1024 * 1024
"""Most bytes of all answers to one question: a schema with its references."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How turnout proves who it is; a user with a password, a token, or nothing."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        """Return the request's headers.

        Raises:
            Refused: the token has characters that no header can carry.
        """
        if self.token is not None:
            if not self.token.isascii() or not self.token.isprintable():
                raise Refused("The registry's token holds characters that no token has. Check for a line break.")
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is None:
            return {}
        pair = f"{self.user}:{self.password or ''}".encode()
        return {"Authorization": "Basic " + base64.b64encode(pair).decode("ascii")}


ANONYMOUS: Final = Credentials()


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever its status."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def checked_url(url: str) -> str:
    """Return the base address of a registry without a slash at its end.

    Raises:
        Refused: it is no such address, or has a user or password in it, which logs would show.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise Refused("The registry's url is no address. Write it as https://host:port/path.") from error
    if parts.username is not None or parts.password is not None:
        raise Refused("The registry's url holds a user or password. Set user and password on their own.")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise Refused("The registry's url is no address. Write it as https://host:port/path.")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise Refused(f"The registry's url {shown(url)} holds characters that no address has.")
    return url.rstrip("/")


def tls(ca: Path | None = None, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return what a connection is checked by: the authorities in a file or the system's, and turnout's certificate.

    Raises:
        Refused: a file cannot be read, or holds something else.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(str(each) for each in (ca, certificate, key) if each is not None)
        raise Refused(f"The registry's certificates cannot be read from {files}: {first_line(error)}.") from error
    return context


@lru_cache(maxsize=1)
def _system_tls() -> ssl.SSLContext:
    """Return the system's authorities; loading them takes some 50 ms."""
    return tls()


class Conversation:
    """The requests of one question, which share a deadline and the bytes that answers may have."""

    def __init__(self, pool: httpcore2.ConnectionPool, origin: str, deadline: float) -> None:
        """Use `conversation`."""
        self._pool = pool
        self._origin = origin
        self._deadline = deadline
        self._left = MAX_BYTES

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
        """Send one request.

        Raises:
            Transient: no answer came within the time.
            Refused: the answer is too large.
        """
        given = {name.lower(): value for name, value in headers.items()}
        wanted = list({"user-agent": "turnout", **given, "accept-encoding": "identity"}.items())
        try:
            with self._pool.stream(method, url, headers=wanted, content=body) as response:
                return Reply(response.status, tuple(response.headers), self._read(response.iter_stream()))
        except httpcore2.TimeoutException as error:
            raise Transient(f"The registry at {self._origin} did not answer in time.") from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol, OSError) as error:
            raise Transient(f"The registry at {self._origin} does not answer: {first_line(error)}.") from error

    def _read(self, parts: Iterable[bytes]) -> bytes:
        collected = bytearray()
        for part in parts:
            collected += part
            self._left -= len(part)
            if self._left < 0:
                raise Refused(f"The registry's answers have more than {MAX_BYTES // 1024 // 1024} MiB.")
            if time.monotonic() > self._deadline:
                raise Transient(f"The registry at {self._origin} did not answer in time.")
        return bytes(collected)


@contextmanager
def conversation(url: str, context: ssl.SSLContext | None, seconds: float) -> Iterator[Conversation]:
    """Hold connections to the registry at this address for one question, which ends after `seconds`."""
    deadline = time.monotonic() + seconds
    parts = urlsplit(url)
    if context is None and parts.scheme == "https":
        context = _system_tls()
    with httpcore2.ConnectionPool(context, network_backend=_Backend(deadline), max_connections=1) as pool:
        yield Conversation(pool, f"{parts.scheme}://{parts.netloc}", deadline)


class _Backend(httpcore2.SyncBackend):
    """Connections that end at a deadline, however the other side stretches what it says."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the deadline counts
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        left = _left(self._deadline, httpcore2.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, left, local_address, socket_options), self._deadline)


class _Stream(httpcore2.NetworkStream):
    """A connection each of whose steps gets the time that is left."""

    def __init__(self, inner: httpcore2.NetworkStream, deadline: float) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - the deadline counts
        return self._inner.read(max_bytes, _left(self._deadline, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - the deadline counts
        self._inner.write(buffer, _left(self._deadline, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - the deadline counts
    ) -> httpcore2.NetworkStream:
        left = _left(self._deadline, httpcore2.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(deadline: float, passed: type[httpcore2.TimeoutException]) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise passed
    return left
