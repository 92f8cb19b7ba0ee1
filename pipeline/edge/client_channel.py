"""The connection of a client to an edge: with TLS or, on this machine, without; by a token or by a certificate.

It needs grpcio and protobuf alone.
"""

import ipaddress
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from protos.turnout.v1.edge_pb2 import FollowRequest, FollowResponse, PublishRequest, PublishResponse

_PUBLISH: Final = "/turnout.v1.Edge/Publish"
_FOLLOW: Final = "/turnout.v1.Edge/Follow"
_Stamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class EdgeTls:
    """Files in PEM form. They are read again when they change, so that a renewed certificate needs no new client."""

    roots: Path | str | None = None  # certificates that the edge's leads to; None: the public ones that gRPC brings
    certificate: Path | str | None = None  # of the producer, for an edge's --listen-mtls
    key: Path | str | None = None  # the certificate's, without a passphrase


class EdgeChannel:
    """One gRPC channel, opened again when its files have changed. Safe to use from any thread."""

    def __init__(self, address: str, token: str, tls: EdgeTls | None) -> None:
        """Read the files; connect with the first call.

        Raises:
            ValueError: a token would leave this machine without TLS, or only one of certificate and key is there.
            OSError: a file cannot be read.
        """
        if tls is None and not _stays_here(address):
            raise ValueError(f"{address} is another machine: give tls=EdgeTls(…), else the token goes unencrypted")
        if tls is not None and (tls.certificate is None) != (tls.key is None):
            raise ValueError("certificate and key go together: give both")
        self._address, self._tls = address, tls
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._lock = threading.Lock()
        self._stamps = self._seen()
        self._channel: Any = self._opened()
        self._publish = _publish(self._channel)

    def publish(self, request: PublishRequest, seconds: float) -> PublishResponse:
        """Send one request with a deadline.

        Raises:
            grpc.RpcError: it was not answered.
        """
        response: PublishResponse = self._newest()(request, timeout=seconds, metadata=self._metadata)
        return response

    def follow(self, request: FollowRequest) -> Any:
        """Open a stream of what becomes of events; a renewed certificate ends it as a lost connection does."""
        self._newest()
        call = self._channel.unary_stream(_FOLLOW, FollowRequest.SerializeToString, FollowResponse.FromString)
        return call(request, metadata=self._metadata)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def _newest(self) -> Any:
        """Return `Publish` of a channel whose files are as they are now; files that cannot be read change nothing."""
        if self._tls is None:
            return self._publish
        with self._lock:
            if (stamps := self._seen()) != self._stamps:
                try:
                    opened = self._opened()
                except OSError:  # the next call tries again
                    return self._publish
                self._stamps = stamps
                self._channel.close()
                self._channel, self._publish = opened, _publish(opened)
            return self._publish

    def _opened(self) -> grpc.Channel:
        options = [("grpc.max_receive_message_length", -1)]
        if self._tls is None:
            return grpc.insecure_channel(self._address, options)
        roots, key, chain = (
            None if each is None else Path(each).read_bytes()
            for each in (self._tls.roots, self._tls.key, self._tls.certificate)
        )
        return grpc.secure_channel(self._address, grpc.ssl_channel_credentials(roots, key, chain), options)

    def _seen(self) -> _Stamps:
        files = () if self._tls is None else (self._tls.roots, self._tls.certificate, self._tls.key)
        return tuple(_stamp(each) for each in files if each is not None)


def _publish(channel: Any) -> Any:
    return channel.unary_unary(_PUBLISH, PublishRequest.SerializeToString, PublishResponse.FromString)


def _stays_here(address: str) -> bool:
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return address.startswith("unix:") or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _stamp(path: Path | str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
