"""Where an edge listens: tokens on one port, client certificates on another, health on a third. Pure but for ports."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.errors import Refused
from pipeline.edge.certificates import CertificateFiles


@dataclass(frozen=True, slots=True)
class EdgeAddress:
    """Where an edge listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether nothing sent there leaves the machine."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class EdgePorts:
    """The addresses of one edge, and the files of its certificate."""

    token: EdgeAddress | None  # producers with bearer tokens
    mtls: EdgeAddress | None = None  # producers with client certificates
    health: EdgeAddress | None = None  # grpc.health.v1 alone, without TLS
    files: CertificateFiles | None = None

    @property
    def first(self) -> EdgeAddress:
        """The address by which the edge is named."""
        found = self.token or self.mtls
        assert found is not None  # parse_ports has seen to it
        return found


def parse_ports(
    token: str | None,
    mtls: str | None = None,
    health: str | None = None,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    client_ca: Path | None = None,
) -> EdgePorts:
    """Return where an edge listens, as its options have it.

    Raises:
        Refused: an address is none, a token would cross a network in the clear, or options lack their partners.
    """
    if token is None and mtls is None:
        raise Refused("The edge has no address for producers. Give --listen-token, --listen-mtls or both.")
    if (certificate is None) != (key is None):
        raise Refused("--tls-cert and --tls-key go together. Give both.")
    if (mtls is None) != (client_ca is None):
        raise Refused("--listen-mtls and --client-ca go together. Give both.")
    if mtls is not None and certificate is None:
        raise Refused("--listen-mtls needs the edge's own certificate. Give --tls-cert and --tls-key.")
    files = None if certificate is None or key is None else CertificateFiles(certificate, key, client_ca)
    by_token, by_certificate, checked = (
        None if each is None else parse_address(each) for each in (token, mtls, health)
    )
    ports = EdgePorts(by_token, by_certificate, checked, files)
    if ports.token is not None and ports.files is None and not ports.token.is_loopback:
        raise Refused(
            f"Without TLS the edge listens on loopback addresses only, and {ports.token.host} is another. "
            f"Give --tls-cert and --tls-key, or listen on 127.0.0.1."
        )
    named = [str(each) for each in (ports.token, ports.mtls, ports.health) if each is not None and each.port]
    if len({*named}) < len(named):
        raise Refused("Two of the edge's addresses are the same. Give each a port of its own.")
    return ports


def parse_address(text: str) -> EdgeAddress:
    """Return an address.

    Raises:
        Refused: it is no HOST:PORT.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65_535:
        raise Refused(f"{text!r} is no address: write HOST:PORT, such as 127.0.0.1:8470.")
    return EdgeAddress(host, int(port))
