"""Who calls: a bearer token, or the one name in a client certificate. Pure but for what a call carries."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from pipeline.store.edge_producers import sha256_of

_BEARER: Final = "bearer "
_CERTIFICATE: Final = "x509_pem_cert"  # in gRPC's auth context: of a client that the CA vouches for


@dataclass(frozen=True, slots=True)
class Caller:
    """What a call says of its producer; the same for each call of a connection or with a token."""

    credential: str = ""  # a token's SHA-256, or a certificate's name as a file of producers has it; empty: neither
    expires_at: float | None = None  # Unix seconds: of the certificate
    has_certificate: bool = False
    problem: str = ""  # why the certificate names nobody


def caller_of(context: Any) -> Caller:
    """Return who calls. A connection with a certificate has that name alone: no token of its calls counts."""
    certificate = (context.auth_context() or {}).get(_CERTIFICATE)
    if certificate:
        return _certified(bytes(certificate[0]))
    token = _token(context)
    return Caller(sha256_of(token)) if token else Caller()


def name_of(certificate: x509.Certificate) -> str:
    """Return the name of a certificate's owner: `uri:…`, else `dns:…`, else `cn:…`.

    Raises:
        ValueError: it has no such name, or two of the first kind that it has.
    """
    uris, hosts = list[str](), list[str]()
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        hosts = [each.lower() for each in names.get_values_for_type(x509.DNSName)]
    except x509.ExtensionNotFound:
        pass
    common = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    for kind, title, found in (("uri", "URIs", uris), ("dns", "DNS names", hosts), ("cn", "common names", common)):
        if len(found) > 1:
            raise ValueError(f"the certificate has {len(found)} {title}, and turnout takes one")
        if found:
            return f"{kind}:{found[0]}"
    raise ValueError("the certificate has no URI, no DNS name and no common name")


@lru_cache(4_096)
def _certified(pem: bytes) -> Caller:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        name = name_of(certificate)
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        return Caller(has_certificate=True, problem=str(error))
    return Caller(name, certificate.not_valid_after_utc.timestamp(), has_certificate=True)


def _token(context: Any) -> str:
    """Return the bearer token of a call, empty without one."""
    for name, value in context.invocation_metadata() or ():
        if name == "authorization" and isinstance(value, str) and value[: len(_BEARER)].lower() == _BEARER:
            return value[len(_BEARER) :].strip()
    return ""
