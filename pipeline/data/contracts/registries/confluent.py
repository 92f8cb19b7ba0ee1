"""A registry with Confluent's REST API: Confluent's own, Apicurio, Karapace, Redpanda.

Writers are ids of four bytes, GUIDs, or the names of topics and games, which have a newest schema.
"""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import shown
from pipeline.data.contracts.decoded import one_line
from pipeline.data.contracts.registries.answers import Absent, Answer, Found, Version, settled, version_of
from pipeline.data.contracts.registries.bounded_http import (
    ANONYMOUS,
    Conversation,
    Credentials,
    Reply,
    checked_url,
    conversation,
)
from pipeline.data.contracts.registries.kinds import found
from pipeline.data.contracts.registries.protobuf_sources import is_built_in, serialized

MAX_REFERENCES: Final = 256
MAX_REFERENCE_DEPTH: Final = 32

_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_NO_SCHEMA: Final = frozenset({40403})
_NO_SUBJECT: Final = frozenset({40401, 40402})
_BUSY: Final = frozenset({401, 403, 408, 429, 502, 503, 504})
_IDS: Final = "ids"  # in place of a subject


class ConfluentResolver:
    """Asks a registry with Confluent's REST API."""

    def __init__(
        self,
        url: str,
        *,
        credentials: Credentials = ANONYMOUS,
        context: ssl.SSLContext | None = None,
        seconds: float = 20.0,
        message: str | None = None,
    ) -> None:
        """Check the settings, and ask nothing yet.

        Args:
            url: the base address, with the path before `/schemas` and `/subjects`.
            credentials: a user with a password, or a token.
            context: what connections are checked by, see `bounded_http.tls`; None: the system's authorities.
            seconds: for one answer with its references.
            message: the protobuf message of writers that are names, where their file has several.

        Raises:
            Refused: the address is not valid.
        """
        self._url = checked_url(url)
        self._headers = {"Accept": _ACCEPT, **credentials.headers()}
        self._context = context
        self._seconds = seconds
        self._message = message

    def resolve(self, writer: bytes) -> Answer:
        """Ask for the schema of a writer."""
        return settled(lambda: self._answer(writer))

    def _answer(self, writer: bytes) -> Answer:
        with conversation(self._url, self._context, self._seconds) as talk:
            registry = _Registry(talk, self._url, self._headers)
            if writer[:1] == b"\x00" and len(writer) >= 5:
                number = int.from_bytes(writer[1:5])
                answer = registry.answer([f"/schemas/ids/{number}"], _NO_SCHEMA, indexed=True)
                if isinstance(answer, Found) and answer.version is None:
                    return replace(answer, version=version_of(_IDS, number))  # ids grow with age
                return answer
            if writer[:1] == b"\x01" and len(writer) >= 17:
                return registry.answer([f"/schemas/guids/{UUID(bytes=writer[1:17])}"], _NO_SCHEMA, indexed=True)
            return registry.answer(_newest(writer), _NO_SUBJECT, indexed=False, message=self._message)


@dataclass(frozen=True, slots=True)
class _Reference:
    name: str  # the type or file that the schema refers to
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class _Registered:
    kind: str
    text: str
    references: tuple[_Reference, ...]
    address: str  # under which it was found
    version: Version | None  # not all registries tell it


class _Registry:
    """One conversation with a registry."""

    def __init__(self, talk: Conversation, url: str, headers: Mapping[str, str]) -> None:
        self._talk = talk
        self._url = url
        self._headers = headers
        self._serializes = True  # until it has shown that it does not

    def answer(
        self, addresses: list[str], absent: frozenset[int], *, indexed: bool, message: str | None = None
    ) -> Answer:
        """Return the schema at the first address that has one; absent where the registry says so at each of them."""
        for address in addresses:
            registered = self._schema(address, absent)
            if registered is not None:
                texts = dict[str, str]()
                self._collect(registered, texts, {}, ())
                schema = found(registered.kind, self._text(registered), texts, indexed=indexed, message=message)
                return replace(schema, version=registered.version)
        return Absent(one_line(f"The registry has nothing at {' or '.join(addresses)}."))

    def _schema(self, address: str, absent: frozenset[int]) -> _Registered | None:
        """Return a schema; None only where the registry itself says with one of these codes that it has none."""
        reply = self._talk.send("GET", self._url + address, self._headers)
        content = _object(reply)
        if reply.status == 404 and content is not None and _code(content) in absent:
            return None
        if reply.status != 200:
            raise Transient(_no_answer(reply, content))
        told = content or {}
        text, kind, references = told.get("schema"), told.get("schemaType", "AVRO"), _references(told.get("references"))
        if not isinstance(text, str) or not isinstance(kind, str) or references is None:
            raise Transient("The registry's address answers with something else than a schema. Check its url.")
        return _Registered(kind, text, references, address, version_of(told.get("subject"), told.get("version")))

    def _collect(
        self,
        registered: _Registered,
        texts: dict[str, str],
        known: dict[str, _Reference],
        path: tuple[_Reference, ...],
    ) -> None:
        """Add the texts of all that a schema refers to, by name."""
        if len(path) > MAX_REFERENCE_DEPTH:
            raise Refused(f"The schema's references are nested more than {MAX_REFERENCE_DEPTH} deep.")
        for reference in registered.references:
            name = reference.name
            if is_built_in(name):
                continue
            if reference in path:
                raise Refused(f"The schema's references go in a circle, at {shown(name)}.")
            if known.setdefault(name, reference) != reference:
                raise Refused(f"The schema refers to two versions of {shown(name)}.")
            if name in texts:
                continue
            if len(known) > MAX_REFERENCES:
                raise Refused(f"The schema has more than {MAX_REFERENCES} references.")
            address = f"{_subject(reference.subject)}/{reference.version}?deleted=true"
            inner = self._schema(address, _NO_SUBJECT)
            if inner is None:
                raise Refused(f"The schema refers to {shown(name)}, which the registry does not have.")
            self._collect(inner, texts, known, (*path, reference))
            texts[name] = self._text(inner)

    def _text(self, registered: _Registered) -> str:
        """Return a schema's text; a protobuf file as base64 where the registry can give it."""
        if registered.kind != "PROTOBUF" or not self._serializes or serialized(registered.text) is not None:
            return registered.text
        again = f"{registered.address}{'&' if '?' in registered.address else '?'}format=serialized"
        reply = self._talk.send("GET", self._url + again, self._headers)
        if reply.status in _BUSY:  # what it would have given might differ from the text, and look like a contradiction
            raise Transient(_no_answer(reply, _object(reply)))
        text = (_object(reply) or {}).get("schema") if reply.status == 200 else None
        if isinstance(text, str) and serialized(text) is not None:
            return text
        self._serializes = False
        return registered.text


def _newest(writer: bytes) -> list[str]:
    """Return the addresses of a name's newest schema: by the strategy of topics, then by the name alone."""
    try:
        name = writer.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("The writer is neither an id nor a GUID nor a name.") from error
    names = [f"{name}-value", name] if name not in {"", ".", ".."} else [f"{name}-value"]  # those are other addresses
    return [f"{_subject(each)}/latest" for each in names]


def _subject(name: str) -> str:
    return f"/subjects/{quote(name, safe='')}/versions"


def _object(reply: Reply) -> dict[str, Any] | None:
    """Return what the registry says; None where it is no JSON object."""
    try:
        content = json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _code(content: Mapping[str, Any]) -> int | None:
    code = content.get("error_code")
    return code if isinstance(code, int) else None


def _references(content: Any) -> tuple[_Reference, ...] | None:
    """Return the references of a schema; None where they are none."""
    if content is None:
        return ()
    if not isinstance(content, list):
        return None
    references = list[_Reference]()
    for each in content:
        if not isinstance(each, dict):
            return None
        name, subject, version = each.get("name"), each.get("subject"), each.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
            return None
        if subject in {"", ".", ".."} or not _is_text(subject):
            return None
        references.append(_Reference(name, subject, version))
    return tuple(references)


def _is_text(value: str) -> bool:
    """Return whether a string of JSON has a form as UTF-8, as halves of surrogate pairs have not."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def _no_answer(reply: Reply, content: Mapping[str, Any] | None) -> str:
    """Return a sentence for an answer that says nothing about the schema."""
    if reply.status in {401, 403}:
        return (
            f"The registry refuses turnout's credentials ({reply.status}). Check the user and password, or the token."
        )
    if 300 <= reply.status < 400:
        return f"The registry's url leads to another address ({reply.status}). Set the address itself."
    if reply.status == 404:
        return "The registry's address answers 404 without saying that the schema is absent. Check its url."
    message = (content or {}).get("message")
    return f"The registry answers {reply.status}{f': {shown(message)}' if isinstance(message, str) else ''}."
