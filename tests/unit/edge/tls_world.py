"""Authorities, certificates and their files, as an operator makes them with openssl."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from pipeline.edge.certificates import CertificateFiles

Key: TypeAlias = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
LOOPBACK: Final = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
DAY: Final = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key in PEM form."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str = "edge") -> CertificateFiles:
        """Write both as a renewal does: each file replaced at once, the key first."""
        folder.mkdir(exist_ok=True)
        files = CertificateFiles(folder / f"{name}.pem", folder / f"{name}.key")
        replace_file(files.key, self.key)
        replace_file(files.certificate, self.certificate)
        return files


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA."""

    name: str = "games"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    ends: dt.timedelta = 30 * DAY

    @property
    def pem(self) -> bytes:
        """Its own certificate."""
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = _builder(self.name, self.name, self.key, -DAY, self.ends).add_extension(constraints, critical=True)
        return _pem(made.sign(self.key, hashes.SHA256()))

    def issue(
        self,
        common_name: str = "edge",
        names: Sequence[x509.GeneralName] = LOOPBACK,
        *,
        starts: dt.timedelta = -DAY,
        ends: dt.timedelta = DAY,
        key: Key | None = None,
        passphrase: bytes | None = None,
        common_names: Sequence[str] = (),
    ) -> Pair:
        """Return a certificate that it signed."""
        own = key or ec.generate_private_key(ec.SECP256R1())
        made = _builder(self.name, common_name, own, starts, ends, common_names)
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
        return Pair(_pem(made.sign(self.key, hashes.SHA256())), _key(own, passphrase))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole, under its name at once."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def uri(value: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(value)


def host(value: str) -> x509.GeneralName:
    return x509.DNSName(value)


def served_serial(address: str) -> int:
    """Return the serial number of the certificate that a port serves."""
    host, _, port = address.rpartition(":")
    return x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode()).serial_number


def serial(pair: Pair) -> int:
    """Return the serial number of a certificate."""
    return x509.load_pem_x509_certificate(pair.certificate).serial_number


def _builder(
    issuer: str, subject: str, key: Any, starts: dt.timedelta, ends: dt.timedelta, more: Sequence[str] = ()
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    names = [x509.NameAttribute(NameOID.COMMON_NAME, each) for each in (subject, *more) if each]
    return (
        x509.CertificateBuilder()
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .subject_name(x509.Name(names))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + starts)
        .not_valid_after(now + ends)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(key: Key, passphrase: bytes | None) -> bytes:
    hidden: serialization.KeySerializationEncryption = (
        serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
