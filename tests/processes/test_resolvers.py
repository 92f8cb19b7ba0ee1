"""The contract of resolvers: whatever a registry does, the answer is one of four, in time, and never an exception."""

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import boto3
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts.columns import type_text
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.formats.supported import columns, format_of
from pipeline.data.contracts.registries.answers import Absent, Away, Found, Unusable
from pipeline.data.contracts.registries.bounded_http import Credentials, checked_url, tls
from pipeline.data.contracts.registries.confluent import ConfluentResolver
from pipeline.data.contracts.registries.folder import FolderResolver
from pipeline.data.contracts.registries.glue import GlueResolver
from pipeline.data.contracts.registries.protobuf_sources import descriptor_set
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import Schema as PayloadSchema
from pipeline.demo.registry import Registry
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.schema_needs import OpenNeed, write_needs
from tests.unit.data.contracts.formats.protobuf.file_world import class_of

Page: TypeAlias = Callable[[BaseHTTPRequestHandler], None]

PATIENT = 20.0
"""Seconds in which a busy machine answers."""
SECONDS = 0.3
"""For those that never end."""

ID_7 = b"\x00\x00\x00\x00\x07"
GUID = uuid.UUID("11111111-2222-4333-8444-555555555555")
LAP = '{"type":"record","name":"Lap","namespace":"acme","fields":[{"name":"n","type":"int"}]}'
LAP_JSON = '{"title":"acme.Lap","type":"object","properties":{"driver":{"$ref":"driver.json"}}}'


def schema_of(found: Found) -> PayloadSchema:
    (name,) = found.messages.values()
    return PayloadSchema(1, found.format, name, format_of(found.format).canonical(name, found.definition))


# ------------------------------------------------------------------------------------------------ a registry that lies


class Liar:
    """An HTTP server that answers by path, and everything else by `default`."""

    def __init__(self) -> None:
        self.pages = dict[str, Page]()
        self.default: Page = said(404, {"error_code": 40403, "message": "Schema not found"})
        self.asked = list[str]()
        self.headers = list[dict[str, str]]()
        self.stop = threading.Event()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.pages.get(request.path, self.default)(request)


def said(status: int, told: Any = None, body: bytes | None = None, **headers: str) -> Page:
    content = json.dumps(told).encode() if body is None else body

    def page(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return page


def avro(text: str = LAP, references: list[dict[str, Any]] | None = None) -> Page:
    return said(200, {"schema": text, "references": references or []})


def protobuf(text: str, references: list[dict[str, Any]] | None = None) -> Page:
    return said(200, {"schema": text, "schemaType": "PROTOBUF", "references": references or []})


def json_schema(text: str, references: list[dict[str, Any]] | None = None) -> Page:
    return said(200, {"schema": text, "schemaType": "JSON", "references": references or []})


@contextmanager
def lying(context: ssl.SSLContext | None = None) -> Iterator[tuple[Liar, str]]:
    liar = Liar()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65_536  # else a page is two packets, of which the second waits 40 ms

        def do_GET(self) -> None:
            liar.answer(self)

        do_POST = do_GET  # noqa: N815 - the standard library's name

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None: ...  # a client that hangs up is what these tests are about

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield liar, f"http{'' if context is None else 's'}://localhost:{server.server_port}"
        finally:
            liar.stop.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def liar() -> Iterator[Liar]:
    with lying() as (made, url):
        made.url = url  # type: ignore[attr-defined]
        yield made


def resolver(liar: Liar, **settings: Any) -> ConfluentResolver:
    return ConfluentResolver(liar.url, **{"seconds": PATIENT, **settings})  # type: ignore[attr-defined]


def dripping(liar: Liar, *, headers: bool) -> Page:
    """Say a little again and again, for ever."""

    def page(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n" if headers else b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n")
        while not liar.stop.wait(0.05):
            request.wfile.write(b"X-A: b\r\n" if headers else b" ")
            request.wfile.flush()

    return page


def endless(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    part = b"%x\r\n" % 2**20 + b" " * 2**20 + b"\r\n"
    while True:
        request.wfile.write(part)


def cut(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
    request.close_connection = True


def silent(liar: Liar) -> Page:
    def page(request: BaseHTTPRequestHandler) -> None:
        liar.stop.wait(30)

    return page


LIES: dict[str, tuple[Callable[[Liar], Page], type[Away] | type[Unusable], str]] = {
    "500": (lambda _: said(500, {"error_code": 50001}), Away, "answers 500"),
    "503": (lambda _: said(503, body=b"busy"), Away, "answers 503"),
    "429": (lambda _: said(429, {"message": "slow\n down"}, Retry_After="1"), Away, r"answers 429: 'slow\n down'"),
    "401": (lambda _: said(401, body=b""), Away, "refuses turnout's credentials"),
    "403": (lambda _: said(403, {"error_code": 40301}), Away, "refuses turnout's credentials"),
    "redirect": (lambda _: said(302, body=b"", Location="/schemas/ids/8"), Away, "leads to another address"),
    "404 of a proxy": (lambda _: said(404, body=b"<html>"), Away, "404 without saying"),
    "404 with another code": (lambda _: said(404, {"error_code": 404}), Away, "404 without saying"),
    "404 of a subject": (lambda _: said(404, {"error_code": 40401}), Away, "404 without saying"),
    "404 with a code of text": (lambda _: said(404, {"error_code": "40403"}), Away, "404 without saying"),
    "500 with the code": (lambda _: said(500, {"error_code": 40403}), Away, "answers 500"),
    "page": (lambda _: said(200, body=b"<html>hello</html>"), Away, "something else than a schema"),
    "no UTF-8": (lambda _: said(200, body=b"\xff\xfe\x00"), Away, "something else than a schema"),
    "nested": (lambda _: said(200, body=b"[" * 200_000), Away, "something else than a schema"),
    "empty": (lambda _: said(200, body=b""), Away, "something else than a schema"),
    "{}": (lambda _: said(200, {}), Away, "something else than a schema"),
    "schema that is a number": (lambda _: said(200, {"schema": 5}), Away, "something else than a schema"),
    "kind that is a list": (lambda _: said(200, {"schema": LAP, "schemaType": []}), Away, "something else"),
    "references that are text": (lambda _: said(200, {"schema": LAP, "references": "a"}), Away, "something else"),
    "reference without a version": (
        lambda _: said(200, {"schema": LAP, "references": [{"name": "a", "subject": "b", "version": "x"}]}),
        Away,
        "something else",
    ),
    "reference that is no text": (
        lambda _: avro(LAP, [{"name": "a", "subject": "\ud800", "version": 1}]),
        Away,
        "something else",
    ),
    "large": (lambda _: said(200, body=b" " * 11 * 2**20), Unusable, "more than 10 MiB"),
    "endless": (lambda _: endless, Unusable, "more than 10 MiB"),
    "cut": (lambda _: cut, Away, "does not answer"),
    "silent": (silent, Away, "did not answer in time"),
    "dripping": (lambda liar: dripping(liar, headers=False), Away, "did not answer in time"),
    "dripping headers": (lambda liar: dripping(liar, headers=True), Away, "did not answer in time"),
    "no JSON": (lambda _: avro("{"), Unusable, "no JSON"),
    "number": (lambda _: avro("5"), Unusable, "no records"),
    "nested schema": (lambda _: avro("[" * 200_000), Unusable, "nested too deep"),
    "name that is no text": (lambda _: avro(r'{"type":"record","name":"\ud800"}'), Unusable, "no Unicode"),
    "nameless": (lambda _: avro('{"type":"record","fields":[]}'), Unusable, "without a name"),
    "JSON Schema without a title": (lambda _: json_schema("{}"), Unusable, "no title"),
    "JSON Schema that is no JSON": (lambda _: json_schema("{"), Unusable, "no JSON"),
    "JSON Schema of anything": (lambda _: json_schema("true"), Unusable, "no objects"),
    "nested JSON Schema": (lambda _: json_schema('{"not":' * 100_000), Unusable, "nested too deep"),
    "kind of tomorrow": (lambda _: said(200, {"schema": "{}", "schemaType": "X\n"}), Unusable, r"'X\n'"),
    "no .proto": (lambda _: protobuf("hello"), Unusable, "no valid .proto file"),
    "file without messages": (lambda _: protobuf('syntax = "proto3";'), Unusable, "no messages"),
    "no descriptor": (lambda _: protobuf("AAAA"), Unusable, "no valid .proto file"),
    "/etc/passwd": (lambda _: protobuf('import "/etc/passwd"; message A {}'), Unusable, "File not found"),
}


@pytest.mark.parametrize("lie", LIES)
def test_whatever_a_registry_says_the_answer_is_in_time_and_no_exception(liar: Liar, lie: str) -> None:
    """L14: only the registry's own word makes a schema absent; all else is away or unusable, within the time."""
    page, kind, detail = LIES[lie]
    liar.default = page(liar)
    answer = resolver(liar, seconds=SECONDS if "in time" in detail else PATIENT).resolve(ID_7)
    assert isinstance(answer, kind)
    assert detail in answer.detail
    assert answer.detail.isprintable()
    assert len(answer.detail) <= 500


def test_nobody_listens(liar: Liar) -> None:
    """L14: a registry that is down has said nothing."""
    with lying() as (_, url):
        pass
    answer = ConfluentResolver(url, seconds=SECONDS).resolve(ID_7)
    assert isinstance(answer, Away)
    assert "does not answer" in answer.detail


def test_only_its_own_word_makes_a_schema_absent(liar: Liar) -> None:
    """L14: 404 with the code for a schema, and for each subject that a name may have."""
    assert isinstance(resolver(liar).resolve(ID_7), Absent)
    assert isinstance(resolver(liar).resolve(b"\x01" + GUID.bytes + b"\x04\x00\x02"), Absent)
    assert liar.asked == ["/schemas/ids/7", f"/schemas/guids/{GUID}"]
    liar.default = said(404, {"error_code": 40401})
    assert isinstance(resolver(liar).resolve(b"a/b?"), Absent)
    assert liar.asked[2:] == [f"/subjects/{name}/versions/latest" for name in ("a%2Fb%3F-value", "a%2Fb%3F")]
    assert isinstance(resolver(liar).resolve(b".."), Absent)
    assert liar.asked[4:] == ["/subjects/..-value/versions/latest"]


def test_no_name_and_no_id_is_no_question(liar: Liar) -> None:
    """Writers are hostile bytes: turnout asks nothing then."""
    assert isinstance(resolver(liar).resolve(b"\xff\xfe"), Unusable)
    assert not liar.asked


def test_avro_by_id_guid_and_name(liar: Liar) -> None:
    """A writer is found in each of the ways that framings name it, and its text is left as it is."""
    expected = Found("avro", LAP.encode(), {b"": "acme.Lap"})
    liar.pages = {
        "/schemas/ids/4294967295": avro(),
        f"/schemas/guids/{GUID}": avro(),
        "/subjects/laps-value/versions/latest": avro(),
        "/subjects/races/versions/latest": avro(),
    }
    liar.default = said(404, {"error_code": 40401})
    for writer in (b"\x00\xff\xff\xff\xff", b"\x01" + GUID.bytes, b"laps", b"races"):
        assert resolver(liar).resolve(writer) == expected


def test_references_of_json_schemas_become_one_schema(liar: Liar) -> None:
    """A definition needs nothing beside itself, whether a reference names another schema by its name or its address."""
    whole = {"type": "integer", "minimum": 0}
    driver = {"$id": "https://acme/driver.json", "type": "object", "properties": {
        "car": {"$ref": "car.json#/definitions/Car"}, "age": {"$ref": "#/$defs/Age"},
    }, "$defs": {"Age": whole}}  # fmt: skip
    car = {"definitions": {"Car": {"enum": ["A"]}}}
    main = {"title": "acme.Lap", "type": "object", "properties": {
        "driver": {"$ref": "https://acme/driver.json"}, "spare": {"$ref": "https://acme/car.json#/definitions/Car"},
        "ms": {"$ref": "#/$defs/Age"},
    }, "$id": "https://acme/lap.json", "$defs": {"Age": whole}}  # fmt: skip
    car_1 = {"name": "https://acme/car.json", "subject": "car", "version": 1}
    refer = [{"name": "https://acme/driver.json", "subject": "driver", "version": 3}, car_1]
    liar.pages = {
        "/schemas/ids/7": json_schema(json.dumps(main), refer),
        "/subjects/driver/versions/3?deleted=true": json_schema(json.dumps(driver), [car_1]),
        "/subjects/car/versions/1?deleted=true": json_schema(json.dumps(car)),
    }
    answer = resolver(liar).resolve(ID_7)
    assert isinstance(answer, Found)
    assert (answer.format, answer.messages) == ("json", {b"": "acme.Lap"})
    of = schema_of(answer)
    assert [f"{each.name} {type_text(each.type)}" for each in columns(of)] == [
        "driver struct<age: long, car: string>", "ms long", "spare string",
    ]  # fmt: skip
    liar.pages["/schemas/ids/7"] = json_schema(
        json.dumps({**main, "properties": {"x": {"$ref": "other.json"}}}), [car_1]
    )
    answer = resolver(liar).resolve(ID_7)
    assert isinstance(answer, Unusable)
    assert "'other.json'" in answer.detail


def test_references_of_avro_become_one_text(liar: Liar) -> None:
    """A definition needs nothing beside itself: each type is defined where it is first used."""
    driver = '{"type":"record","name":"Driver","namespace":"people","fields":[{"name":"c","type":"acme.Car"}]}'
    car = '{"type":"enum","name":"Car","namespace":"acme","symbols":["A"]}'
    main = json.loads(LAP)
    main["fields"] = [
        {"name": "d", "type": ["null", "people.Driver"], "default": None},
        {"name": "m", "type": {"type": "map", "values": "Car"}},
        {"name": "l", "type": {"type": "array", "items": "people.Driver"}},
    ]
    refer = [
        {"name": "people.Driver", "subject": "dri/ver", "version": 3},
        car_1 := {"name": "acme.Car", "subject": "car", "version": 1},
    ]
    liar.pages = {
        "/schemas/ids/7": avro(json.dumps(main), refer),
        "/subjects/dri%2Fver/versions/3?deleted=true": avro(driver, [car_1]),
        "/subjects/car/versions/1?deleted=true": avro(car),
    }
    answer = resolver(liar).resolve(ID_7)
    assert isinstance(answer, Found)
    car_defined = {"type": "enum", "name": "Car", "namespace": "acme", "symbols": ["A"]}
    assert json.loads(answer.definition)["fields"] == [
        {
            "name": "d",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Driver",
                    "namespace": "people",
                    "fields": [{"name": "c", "type": car_defined}],
                },
            ],
            "default": None,
        },
        {"name": "m", "type": {"type": "map", "values": "acme.Car"}},
        {"name": "l", "type": {"type": "array", "items": "people.Driver"}},
    ]
    assert liar.asked.count("/subjects/car/versions/1?deleted=true") == 1


OUTER = """syntax = "proto3";
package acme;
import "acme/car.proto";
message First { Car car = 1; }
message Outer { message N0 { int32 n = 1; message Deep {} } message N1 {} map<string, int32> m = 1; }
"""
CAR = 'syntax = "proto3"; package acme; message Car { int32 id = 1; }'
OUTER_MESSAGES = {
    b"\x00": "acme.First",
    b"\x02\x02": "acme.Outer",
    b"\x04\x02\x00": "acme.Outer.N0",
    b"\x04\x02\x02": "acme.Outer.N1",
    b"\x06\x02\x00\x00": "acme.Outer.N0.Deep",
}
CAR_1 = [{"name": "acme/car.proto", "subject": "car", "version": 1}]


def as_descriptor(definition: bytes, place: int) -> str:
    file = FileDescriptorSet.FromString(definition).file[place]
    file.name = "anything"
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_registry_is_away_also_in_the_middle_of_a_question(liar: Liar, status: int) -> None:
    """Its next answer would be the descriptor, which may order fields otherwise: a contradiction to the text."""
    liar.pages = {
        "/schemas/ids/7": protobuf(CAR),
        "/schemas/ids/7?format=serialized": said(status, {"message": "busy"}),
    }
    assert isinstance(resolver(liar).resolve(ID_7), Away)


def test_ids_say_the_age_of_their_schemas_where_the_registry_does_not(liar: Liar) -> None:
    """Schemas that are found together are registered by age: a number grows with each schema, a GUID does not."""
    liar.pages = {"/schemas/ids/7": protobuf(CAR)}
    found = resolver(liar).resolve(ID_7)
    assert isinstance(found, Found)
    assert found.version == ("ids", 7)


def test_protobuf_is_the_same_as_text_and_as_descriptors(liar: Liar) -> None:
    """One schema has one fingerprint however its registry keeps it, with each message's index path."""
    text = {
        "/schemas/ids/7": protobuf(OUTER, CAR_1),
        "/subjects/car/versions/1?deleted=true": protobuf(CAR),
    }
    liar.pages = dict(text)
    compiled = resolver(liar).resolve(ID_7)
    assert isinstance(compiled, Found)
    assert compiled.messages == OUTER_MESSAGES
    assert [path for path in liar.asked if "serialized" in path] == [
        "/subjects/car/versions/1?deleted=true&format=serialized"
    ]  # once: the registry does not know how
    expected = {name: canonical(name, compiled.definition) for name in OUTER_MESSAGES.values()}
    car, main = as_descriptor(compiled.definition, 0), as_descriptor(compiled.definition, 1)
    kept_as = [
        {"/schemas/ids/7": protobuf(main, CAR_1), "/subjects/car/versions/1?deleted=true": protobuf(car)},
        {"/schemas/ids/7": protobuf(main, CAR_1), "/subjects/car/versions/1?deleted=true": protobuf(CAR)},
        {"/schemas/ids/7": protobuf(OUTER, CAR_1), "/subjects/car/versions/1?deleted=true": protobuf(car)},
        {
            **text,
            "/schemas/ids/7?format=serialized": protobuf(main, CAR_1),
            "/subjects/car/versions/1?deleted=true&format=serialized": protobuf(car),
        },
    ]
    for liar.pages in kept_as:
        answer = resolver(liar).resolve(ID_7)
        assert isinstance(answer, Found)
        assert {name: canonical(name, answer.definition) for name in answer.messages.values()} == expected


def test_protobuf_by_name_is_one_message(liar: Liar) -> None:
    """Without an index path the message is the wanted one, or the only one."""
    liar.pages = {
        "/subjects/cars-value/versions/latest": protobuf(CAR),
        "/subjects/many-value/versions/latest": protobuf(CAR + "message Lap {}"),
    }
    found = resolver(liar).resolve(b"cars")
    assert isinstance(found, Found)
    assert found.messages == {b"": "acme.Car"}
    several = resolver(liar).resolve(b"many")
    assert isinstance(several, Unusable)
    assert "has 2 messages" in several.detail
    wanted = resolver(liar, message="acme.Lap").resolve(b"many")
    assert isinstance(wanted, Found)
    assert wanted.messages == {b"": "acme.Lap"}
    assert isinstance(resolver(liar, message="acme.Other").resolve(b"many"), Unusable)


def chain(length: int) -> dict[str, Page]:
    pages = {f"/subjects/s{n}/versions/1?deleted=true": avro(LAP, [step(n + 1)]) for n in range(length)}
    return {"/schemas/ids/7": avro(LAP, [step(0)]), **pages, f"/subjects/s{length}/versions/1?deleted=true": avro()}


def step(number: int) -> dict[str, Any]:
    return {"name": f"n{number}", "subject": f"s{number}", "version": 1}


def circle() -> dict[str, Page]:
    return {**chain(2), "/subjects/s2/versions/1?deleted=true": avro(LAP, [step(1)])}


def crowd() -> dict[str, Page]:
    pages = {f"/subjects/s{n}/versions/1?deleted=true": avro() for n in range(300)}
    return {**pages, "/schemas/ids/7": avro(LAP, [step(n) for n in range(300)])}


def quarrel() -> dict[str, Page]:
    second = {**step(0), "version": 2}
    return {**chain(1), "/schemas/ids/7": avro(LAP, [step(0), second])}


def dangling() -> dict[str, Page]:
    return {
        "/schemas/ids/7": avro(LAP, [step(0)]),
        "/subjects/s0/versions/1?deleted=true": said(404, {"error_code": 40402}),
    }


def outside() -> dict[str, Page]:
    return {
        "/schemas/ids/7": protobuf(OUTER, [{**CAR_1[0], "name": "../car.proto"}]),
        "/subjects/car/versions/1?deleted=true": protobuf(CAR),
    }


def option() -> dict[str, Page]:
    return {
        "/schemas/ids/7": protobuf(OUTER, [{**CAR_1[0], "name": "--python_out=/tmp"}]),
        "/subjects/car/versions/1?deleted=true": protobuf(CAR),
    }


def folder_and_file() -> dict[str, Page]:
    return {
        "/schemas/ids/7": protobuf(OUTER, [{**CAR_1[0], "name": "a"}, {"name": "a/b", "subject": "car", "version": 1}]),
        "/subjects/car/versions/1?deleted=true": protobuf(CAR),
    }


def missing() -> dict[str, Page]:
    return {"/schemas/ids/7": protobuf(OUTER)}


@pytest.mark.parametrize(
    ("pages", "detail"),
    [
        (circle, "go in a circle"),
        (lambda: chain(40), "more than 32 deep"),
        (crowd, "more than 256 references"),
        (quarrel, "two versions of 'n0'"),
        (dangling, "does not have"),
        (outside, "no name of a .proto file"),
        (option, "no name of a .proto file"),
        (folder_and_file, "beside each other"),
        (missing, "acme/car.proto"),
    ],
)
def test_references_are_bounded(liar: Liar, pages: Callable[[], dict[str, Page]], detail: str) -> None:
    """References of a hostile schema end, name no file outside, and give a reason."""
    liar.pages = pages()
    answer = resolver(liar).resolve(ID_7)
    assert isinstance(answer, Unusable)
    assert detail in answer.detail


def test_only_a_registry_with_the_right_certificate_is_believed(tmp_path: Path) -> None:
    """TLS: the registry shows a certificate of the given authority, and turnout its own if it asks for one."""
    own, other = certificate(tmp_path / "own.pem"), certificate(tmp_path / "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(own)
    with lying(context) as (liar, url):
        liar.pages = {"/schemas/ids/7": avro()}
        for settings, expected in (
            (tls(own, own), Found),
            (tls(own), Away),
            (tls(own, other), Away),
            (tls(other, own), Away),
            (None, Away),
        ):
            answer = ConfluentResolver(url, context=settings, seconds=5.0).resolve(ID_7)
            assert isinstance(answer, expected)
    assert liar.asked == ["/schemas/ids/7"]
    for wrong in ((tmp_path / "none.pem",), (own, tmp_path), (own, own, Path(__file__))):
        with pytest.raises(Refused, match="cannot be read"):
            tls(*wrong)


def certificate(file: Path) -> Path:
    """Write a new key and its certificate for localhost, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file.stem)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + made.public_bytes(Encoding.PEM)
    file.write_bytes(text)
    return file


def test_credentials_are_sent_and_never_shown(liar: Liar) -> None:
    """A registry gets the password or token; no sentence and no repr does."""
    liar.pages = {"/schemas/ids/7": avro()}
    for credentials, expected in (
        (Credentials(user="me", password="hunter2"), "Basic bWU6aHVudGVyMg=="),
        (Credentials(token="hunter2"), "Bearer hunter2"),
    ):
        assert isinstance(resolver(liar, credentials=credentials).resolve(ID_7), Found)
        assert liar.headers.pop()["authorization"] == expected
        assert "hunter2" not in repr(credentials)
    with pytest.raises(Refused) as refused:
        resolver(liar, credentials=Credentials(token="hunter2\n"))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "registry:8081",
        "ftp://a",
        "http://",
        "http://me:hunter2@a",
        "http://a:x",
        "http://a/?k=hunter2",
        "http://a b",
        "http://a\n",
        "http://ä",
        f"http://{'a' * 70}.b",
        "http://a..b",
        "http://[::1",
    ],
)
def test_a_wrong_address_is_refused_at_once(url: str) -> None:
    """A wrong setting is refused before the first question, without its password."""
    with pytest.raises(Refused) as refused:
        checked_url(url)
    assert "hunter2" not in str(refused.value)


# ----------------------------------------------------------------------------------------------------- a real registry


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with Registry.start(tmp_path_factory.mktemp("apicurio")) as registry:
        yield registry


@contextmanager
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as made:
        yield made


def confluent(registry: Registry) -> ConfluentResolver:
    return ConfluentResolver(registry.url)


def test_schemas_of_real_serializers_are_found(apicurio: Registry) -> None:
    """The schema of real bytes is found by their first five, and their index path names the message."""
    context = SerializationContext("laps", MessageField.VALUE)
    with client(apicurio) as registry:
        written = AvroSerializer(registry, LAP)({"n": 3}, context)
    assert written is not None
    assert confluent(apicurio).resolve(written[:5]) == Found("avro", LAP.encode(), {b"": "acme.Lap"})
    assert confluent(apicurio).resolve(b"laps") == Found("avro", LAP.encode(), {b"": "acme.Lap"})
    text = OUTER.replace('import "acme/car.proto";', CAR.partition("package acme;")[2])
    with lying() as (liar, url):
        liar.pages = {"/schemas/ids/7": protobuf(text)}
        compiled = ConfluentResolver(url).resolve(ID_7)
    assert isinstance(compiled, Found)
    context = SerializationContext("outer", MessageField.VALUE)  # Apicurio takes a subject's first format for all of it
    for message in ("acme.Car", "acme.First", "acme.Outer", "acme.Outer.N0", "acme.Outer.N1", "acme.Outer.N0.Deep"):
        of = class_of(message, compiled.definition)
        with client(apicurio) as registry:
            written = ProtobufSerializer(of, registry)(of(), context)
        assert written is not None
        found = confluent(apicurio).resolve(written[:5])
        assert isinstance(found, Found)
        assert found.messages[written[5:]] == message
        assert canonical(message, found.definition) == canonical(message, compiled.definition)


def test_a_real_registry_says_that_it_has_none(apicurio: Registry) -> None:
    """L14: absent where the registry says so; the GUIDs that this one has no address for are away."""
    assert isinstance(confluent(apicurio).resolve(b"\x00\x7f\xff\xff\xff"), Absent)
    assert isinstance(confluent(apicurio).resolve(b"no such topic"), Absent)
    assert isinstance(confluent(apicurio).resolve(b"\x01" + GUID.bytes), Away)


def test_real_references_are_found(apicurio: Registry) -> None:
    """References by subject and version, of every format, the protobuf ones as text."""
    car = Schema('{"type":"enum","name":"Car","namespace":"acme","symbols":["A"]}', "AVRO")
    main = '{"type":"record","name":"Race","namespace":"acme","fields":[{"name":"c","type":"acme.Car"}]}'
    race = Schema(main, "AVRO", [SchemaReference("acme.Car", "car", 1)])
    driver = Schema('{"type":"object","properties":{"age":{"type":"integer"}}}', "JSON")
    lap = Schema(LAP_JSON, "JSON", [SchemaReference("driver.json", "driver", 1)])
    outer = Schema(OUTER, "PROTOBUF", [SchemaReference("acme/car.proto", "acme/car.proto", 1)])
    with client(apicurio) as registry:
        registry.register_schema("car", car)
        race_id = registry.register_schema("race-value", race)
        registry.register_schema("driver", driver)
        lap_id = registry.register_schema("lap-value", lap)
        registry.register_schema("acme/car.proto", Schema(CAR, "PROTOBUF"))
        outer_id = registry.register_schema("outer-value", outer)
    found = confluent(apicurio).resolve(b"\x00" + race_id.to_bytes(4))
    assert isinstance(found, Found)
    assert found.messages == {b"": "acme.Race"}
    assert json.loads(found.definition)["fields"][0]["type"]["symbols"] == ["A"]
    found = confluent(apicurio).resolve(b"\x00" + lap_id.to_bytes(4))
    assert isinstance(found, Found)
    assert [type_text(each.type) for each in columns(schema_of(found))] == ["struct<age: long>"]
    found = confluent(apicurio).resolve(b"\x00" + outer_id.to_bytes(4))
    assert isinstance(found, Found)
    assert found.messages == OUTER_MESSAGES


@pytest.mark.long
def test_a_killed_registry_keeps_its_ids_and_its_folder(tmp_path: Path) -> None:
    """An id names one schema for ever, also after a kill, and no two registries share a folder."""
    with Registry.start(tmp_path) as registry:
        with client(registry) as opened:
            number = opened.register_schema("laps-value", Schema(LAP, "AVRO"))
        with pytest.raises(Refused, match="already runs"):
            Registry.start(tmp_path)
        registry._process.kill()
        registry._process.wait()
        assert isinstance(confluent(registry).resolve(b"\x00" + number.to_bytes(4)), Away)
    with Registry.start(tmp_path, registry.port) as registry:
        assert isinstance(confluent(registry).resolve(b"\x00" + number.to_bytes(4)), Found)


# ------------------------------------------------------------------------------------------------------- Glue, by moto


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and process.poll() is None:
                with socket.socket() as client, suppress(ConnectionRefusedError):
                    client.connect(("127.0.0.1", port))
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def aws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "hunter2")
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            patch.setenv(name, "/nonexistent")
        yield


@pytest.fixture(scope="module")
def lying_glue(aws: None) -> Iterator[tuple[Liar, GlueResolver]]:
    with lying() as (made, url):
        yield made, glue(url)


def glue(endpoint: str, **settings: Any) -> GlueResolver:
    return GlueResolver("eu-west-1", endpoint=endpoint, **{"seconds": PATIENT, **settings})


UUID_WRITER = b"\x03" + GUID.bytes


def test_glue_has_what_was_registered_and_nothing_else(moto: str, aws: None) -> None:
    """Versions are found by UUID and name, in both formats; absent is what Glue says it has not."""
    boto = boto3.client("glue", region_name="eu-west-1", endpoint_url=moto)
    boto.create_registry(RegistryName="mine")
    ids = dict[str, bytes]()
    for name, kind, text in (
        ("laps", "AVRO", LAP),
        ("cars", "PROTOBUF", CAR),
        ("any", "JSON", "{}"),
        ("json", "JSON", LAP_JSON),
    ):
        made = boto.create_schema(
            RegistryId={"RegistryName": "mine"},
            SchemaName=name,
            DataFormat=kind,
            Compatibility="NONE",
            SchemaDefinition=text,
        )
        ids[name] = b"\x03" + uuid.UUID(made["SchemaVersionId"]).bytes
    boto.close()
    patient = glue(moto, registry="mine")
    assert patient.resolve(ids["laps"]) == patient.resolve(b"laps") == Found("avro", LAP.encode(), {b"": "acme.Lap"})
    found = patient.resolve(ids["cars"])
    assert isinstance(found, Found)
    assert found.messages == {b"": "acme.Car"}
    assert isinstance(patient.resolve(ids["any"]), Unusable)
    assert patient.resolve(ids["json"]) == Found("json", LAP_JSON.encode(), {b"": "acme.Lap"})
    assert isinstance(patient.resolve(UUID_WRITER), Absent)
    assert isinstance(patient.resolve(b"elsewhere"), Absent)
    assert isinstance(patient.resolve("Block Party é".encode()), Unusable)  # no schema of Glue has such a name


def test_versions_of_glue_are_registered_by_age(moto: str, aws: None, tmp_path: Path) -> None:
    """Law L13: UUIDs do not tell which version is older, Glue's numbers do; all rows of one batch have a table."""
    boto = boto3.client("glue", region_name="eu-west-1", endpoint_url=moto)
    texts = [LAP, LAP.replace("int", "long"), LAP.replace("int", "long").replace("]", ',{"name":"s","type":"int"}]')]
    registry = {"RegistryName": "aged"}
    boto.create_registry(**registry)
    kept = {"SchemaName": "laps", "DataFormat": "AVRO", "Compatibility": "NONE"}
    made = boto.create_schema(RegistryId=registry, SchemaDefinition=texts[0], **kept)
    versions = [made["SchemaVersionId"]]
    own = {"SchemaName": "laps", **registry}
    later = (boto.register_schema_version(SchemaId=own, SchemaDefinition=text) for text in texts[1:])
    versions += [each["SchemaVersionId"] for each in later]
    boto.close()
    writers = [b"\x03" + uuid.UUID(each).bytes for each in versions]
    asked = glue(moto, registry="aged")
    assert [found.version and found.version.number for found in map(asked.resolve, writers)] == [1, 2, 3]  # type: ignore[union-attr]
    engine = open_store(*load(tmp_path, {}))
    for game, order in (("Chess", writers[::-1]), ("Go", [writers[1], writers[2], writers[0]])):
        turns = {writer: place for place, writer in enumerate(order)}
        now = time.time()
        needs = (OpenNeed("main", each, game_key(game), game, now, 1, turns[each]) for each in order)
        write_needs(engine, needs)
        Resolution(engine, {"main": asked}).step()
    schemas = LocalRegistry(engine).snapshot()
    ids = tuple(schemas.writers["main", each].schema_id for each in writers)
    assert schemas.games == {game_key("Chess"): ids, game_key("Go"): ids}
    assert not any(place.quarantined for held in schemas.placements.values() for place in held.values())
    engine.dispose()


def glue_error(status: int, code: str) -> Page:
    return said(status, {"__type": code, "Message": "hello"})


def glue_version(**told: Any) -> Page:
    return said(200, {"Status": "AVAILABLE", "DataFormat": "AVRO", "SchemaDefinition": LAP, **told})


GLUE_LIES: dict[str, tuple[Page, type[Absent] | type[Away] | type[Unusable]]] = {
    "not found": (glue_error(400, "EntityNotFoundException"), Absent),
    "not found by a broken server": (glue_error(500, "EntityNotFoundException"), Away),
    "denied": (glue_error(400, "AccessDeniedException"), Away),
    "throttled": (glue_error(400, "ThrottlingException"), Away),
    "503": (said(503, body=b"busy"), Away),
    "page": (said(200, body=b"<html>"), Away),
    "{}": (said(200, {}), Away),
    "list": (said(200, [1]), Away),
    "nested": (said(200, body=b"[" * 200_000), Away),
    "code that is a list": (said(400, {"__type": [1], "Message": {}}), Away),
    "code that is no text": (glue_error(400, "\ud800\n"), Away),
    "pending": (glue_version(Status="PENDING"), Away),
    "failure": (glue_version(Status="FAILURE"), Unusable),
    "deleting": (glue_version(Status="DELETING"), Unusable),
    "status of tomorrow": (glue_version(Status="X"), Away),
    "text that is a number": (glue_version(SchemaDefinition=5), Away),
    "redirect": (said(302, body=b"", Location="/"), Away),
    "large": (said(200, body=b" " * 11 * 2**20), Unusable),
    "endless": (endless, Unusable),
    "cut": (cut, Away),
}


@pytest.mark.parametrize("lie", GLUE_LIES)
def test_whatever_glue_says_the_answer_is_no_exception(lying_glue: tuple[Liar, GlueResolver], lie: str) -> None:
    """L14: EntityNotFoundException alone is absent; a version that is pending is waited for."""
    liar, resolver = lying_glue
    liar.default, kind = GLUE_LIES[lie]
    answer = resolver.resolve(UUID_WRITER)
    assert isinstance(answer, kind)
    assert "hunter2" not in answer.detail


def test_glue_that_drips_is_given_up(liar: Liar, aws: None) -> None:
    """An answer has one deadline, also through boto3."""
    liar.default = dripping(liar, headers=True)
    answer = glue(liar.url, seconds=SECONDS).resolve(UUID_WRITER)  # type: ignore[attr-defined]
    assert isinstance(answer, Away)
    assert "in time" in answer.detail


def test_glue_without_boto3_or_credentials_is_told(liar: Liar, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A resolver names what this machine lacks, and refuses no row for it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    answer = glue(liar.url).resolve(UUID_WRITER)  # type: ignore[attr-defined]
    assert isinstance(answer, Away)
    assert "credentials" in answer.detail
    with pytest.raises(Refused, match="region"):
        GlueResolver()
    with pytest.raises(Refused, match="holds a user"):
        GlueResolver("eu-west-1", endpoint="http://me:hunter2@a")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Refused, match="needs boto3"):
        GlueResolver("eu-west-1")


# ------------------------------------------------------------------------------------------------------------ a folder


def test_a_folder_has_the_files_of_writers(tmp_path: Path) -> None:
    """Ids, GUIDs and names are found by the names of files, each format by its suffix."""
    files = descriptor_set(OUTER, {"acme/car.proto": CAR})
    lap, compiled = LAP.encode(), files.SerializeToString()
    for name in ("7.avsc", f"{GUID}.avsc", "Block%20Party%2F%C3%A9.avsc"):
        (tmp_path / name).write_bytes(lap)
    (tmp_path / "9.json").write_text(LAP_JSON)
    (tmp_path / "untitled.json").write_text("{}")
    for name in ("8.desc", "outer.v1.desc"):
        (tmp_path / name).write_bytes(compiled)
    resolver = FolderResolver(tmp_path)
    for writer in (ID_7, b"\x01" + GUID.bytes + b"\x00", UUID_WRITER, "Block Party/é".encode()):
        assert resolver.resolve(writer) == Found("avro", lap, {b"": "acme.Lap"})
    assert resolver.resolve(b"\x00\x00\x00\x00\x09") == Found("json", LAP_JSON.encode(), {b"": "acme.Lap"})
    assert isinstance(resolver.resolve(b"untitled"), Unusable)
    titled = FolderResolver(tmp_path, message="acme.Lap").resolve(b"untitled")
    assert titled == Found("json", b"{}", {b"": "acme.Lap"})
    found = resolver.resolve(b"\x00\x00\x00\x00\x08")
    assert isinstance(found, Found)
    assert found.messages == OUTER_MESSAGES
    assert isinstance(resolver.resolve(b"outer.v1"), Unusable)  # it has two messages
    found = FolderResolver(tmp_path, message="acme.Outer").resolve(b"outer.v1")
    assert isinstance(found, Found)
    assert found.messages == {b"": "acme.Outer"}


def test_hostile_names_and_damaged_files_do_no_harm(tmp_path: Path) -> None:
    """Hostile names lead nowhere, damaged files have a reason, and a folder that is missing or empty is away."""
    folder = tmp_path / "schemas"
    resolver = FolderResolver(folder)
    assert isinstance(resolver.resolve(ID_7), Away)
    folder.mkdir()
    assert isinstance(resolver.resolve(ID_7), Away)
    (tmp_path / "secret.avsc").write_text(LAP)
    (folder / "other.txt").touch()
    for hostile in (b"../secret", b"..", b"", b"\xff", b"a" * 5000, b"x\x00y", str(tmp_path / "secret").encode()):
        assert isinstance(resolver.resolve(hostile), Absent)
    os.mkfifo(folder / "pipe.avsc")
    (folder / "inner.avsc").mkdir()
    assert isinstance(resolver.resolve(b"pipe"), Absent)
    assert isinstance(resolver.resolve(b"inner"), Absent)
    damaged = {"7.avsc": b"{", "8.avsc": b"\xff", "9.desc": b"\xff", "10.desc": b"", "11.avsc": b" " * 11 * 2**20}
    for name, content in damaged.items():
        (folder / name).write_bytes(content)
    (folder / "12.avsc").write_text(LAP)
    (folder / "12.desc").write_bytes(b"")
    for number in range(7, 13):
        assert isinstance(resolver.resolve(b"\x00" + number.to_bytes(4)), Unusable)
