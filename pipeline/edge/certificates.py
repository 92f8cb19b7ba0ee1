"""The edge's certificate, its key and the CA of its clients, read from files again whenever these change.

The process calls it, and gRPC before each handshake, in a thread of its own. No text of it has a file's content.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pipeline.base.errors import Refused

_MOST_BYTES: Final = 1024 * 1024  # of a file
_CURVES: Final = ("secp256r1", "secp384r1")  # gRPC fails each handshake with another curve, and with Ed25519
_RSA_BITS: Final = 2048
_Stamps: TypeAlias = tuple[object, ...]
_log: Final = logging.getLogger("turnout")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where certificates lie, in PEM form."""

    certificate: Path  # the edge's own comes first, then those between it and the root
    key: Path  # without a passphrase
    client_ca: Path | None = None  # roots that producers' certificates lead to


@dataclass(frozen=True, slots=True)
class EdgeCertificate:
    """A certificate that may be served, and what comes with it."""

    chain: bytes
    key: bytes
    client_ca: bytes | None
    expires_at: float  # Unix seconds
    lifetime: float  # seconds, from its beginning


class ServedCertificate:
    """The newest good certificate of some files; a bad new one never replaces it."""

    def __init__(self, files: CertificateFiles) -> None:
        """Read the files.

        Raises:
            Refused: they cannot be served.
        """
        self._files = files
        self.failed: Callable[[], object] = lambda: None  # called for each later change that cannot be served
        self._lock = threading.Lock()
        self._stamps: _Stamps | None = _stamps(files)  # of what is served; None: the files cannot be served as they are
        self._said = ""  # why not, as the log has it
        self.now = read(files, time.time())

    def look(self) -> bool:
        """Read the files if they have changed; return whether another certificate is served now."""
        with self._lock:
            stamps = _stamps(self._files)
            if stamps == self._stamps:
                return False
            # Each look tries files again that could not be served: rights, a mount or the clock may have changed.
            self._stamps = None
            try:
                self.now = read(self._files, time.time())
            except Refused as error:
                if str(error) != self._said:
                    self.failed()
                    _log.error("the edge keeps its last certificate: %s", error)
                self._said = str(error)
                return False
            self._stamps = stamps  # of before the reading: a change during it is read by the next look
            self._said = ""
            _log.info("the edge serves a new certificate, which expires on %s", _day(self.now.expires_at))
            return True

    def credentials(self, *, asks_clients: bool) -> grpc.ServerCredentials:
        """Return what a port serves; with `asks_clients` it closes connections without a certificate of the CA."""
        seen = self.now

        def newest() -> "grpc.ServerCertificateConfiguration | None":
            nonlocal seen
            self.look()
            if self.now is seen:
                return None
            seen = self.now
            return _configured(seen, asks_clients=asks_clients)

        return grpc.dynamic_ssl_server_credentials(
            _configured(seen, asks_clients=asks_clients),
            newest,  # type: ignore[arg-type]  # None is "as before", which its stubs leave out
            require_client_authentication=asks_clients,
        )


def read(files: CertificateFiles, now: float) -> EdgeCertificate:
    """Return what may be served at a time.

    Raises:
        Refused: a file cannot be read or is no PEM, the key is of another certificate, or the certificate is not valid.
    """
    chain, key = _content(files.certificate, "certificate"), _content(files.key, "key")
    own = _certificates(chain, files.certificate)[0]
    starts, ends = own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp()
    if now >= ends:
        raise Refused(f"The certificate {files.certificate} expired on {_day(ends)}. Renew it.")
    if now < starts:
        raise Refused(f"The certificate {files.certificate} is valid from {_day(starts)} on only. Look at the clock.")
    _require_pair(own, key, files)
    roots = None
    if files.client_ca is not None:
        roots = _content(files.client_ca, "CA of clients")
        if all(now >= each.not_valid_after_utc.timestamp() for each in _certificates(roots, files.client_ca)):
            raise Refused(f"All certificates of the CA {files.client_ca} have expired. Renew it.")
    return EdgeCertificate(chain, key, roots, ends, ends - starts)


def _require_pair(own: x509.Certificate, key: bytes, files: CertificateFiles) -> None:
    """Go on only if the key is the certificate's, and of a kind that gRPC serves.

    Raises:
        Refused: it is not, or it is no key without a passphrase.
    """
    try:
        private = load_pem_private_key(key, None)
    except TypeError:
        raise Refused(
            f"The key {files.key} has a passphrase. Write it without one: openssl pkey -in … -out …."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise Refused(f"{files.key} has no private key in PEM form.") from None
    is_served = isinstance(private, EllipticCurvePrivateKey) and private.curve.name in _CURVES
    if not is_served and not (isinstance(private, RSAPrivateKey) and private.key_size >= _RSA_BITS):
        raise Refused(f"gRPC cannot serve the key {files.key}: use P-256, P-384, or RSA of {_RSA_BITS} bits or more.")
    if private.public_key() != own.public_key():
        raise Refused(f"The key {files.key} does not belong to the certificate {files.certificate}.")


def _configured(certificate: EdgeCertificate, *, asks_clients: bool) -> "grpc.ServerCertificateConfiguration":
    roots = certificate.client_ca if asks_clients else None
    return grpc.ssl_server_certificate_configuration([(certificate.key, certificate.chain)], roots)


def _content(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Refused(f"The {what} {path} cannot be read: {error.strerror}.") from None
    if len(content) > _MOST_BYTES:
        raise Refused(f"The {what} {path} is larger than {_MOST_BYTES:,} bytes: is it another file?")
    return content


def _certificates(content: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise Refused(f"{path} has no certificate in PEM form.") from None


def _stamps(files: CertificateFiles) -> _Stamps:
    """Return what differs once one of the files was written or replaced."""
    return tuple(_stamp(each) for each in (files.certificate, files.key, files.client_ca) if each is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))
