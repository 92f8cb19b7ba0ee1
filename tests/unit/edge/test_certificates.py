"""TLS of the edge: what it serves, what it refuses to start with, and how files change while it runs."""

import asyncio
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from pipeline.base.errors import Refused
from pipeline.edge import certificates
from pipeline.edge.certificates import CertificateFiles, ServedCertificate
from pipeline.edge.client import EdgeAcknowledged, EdgeClient, EdgeEvent, EdgeGaveUp
from pipeline.edge.client_channel import EdgeTls
from pipeline.edge.listening import parse_address, parse_ports
from pipeline.store.edge_producers import EdgeProducer
from tests.checkout import ROOT
from tests.unit.edge.edge_world import (
    GAME,
    METADATA,
    TOKEN,
    Running,
    edge_in_thread,
    known_of,
    payload,
    request,
    schema_of,
    with_edge,
    wrapper,
)
from tests.unit.edge.tls_world import DAY, Authority, Pair, replace_file, serial, served_serial

CA = Authority()


def other_key(files: CertificateFiles) -> None:
    files.key.write_bytes(CA.issue().key)


@pytest.mark.parametrize(
    ("pair", "spoil", "words"),
    [
        (CA.issue(), lambda files: files.certificate.unlink(), r"certificate .*edge\.pem cannot be read: No such file"),
        (CA.issue(), lambda files: files.key.unlink(), r"key .*edge\.key cannot be read: No such file"),
        (CA.issue(), lambda files: (files.key.unlink(), files.key.mkdir()), r"key .* cannot be read: Is a directory"),
        (CA.issue(), lambda files: files.certificate.write_bytes(b"secret"), "no certificate in PEM form"),
        (CA.issue(), lambda files: files.key.write_bytes(b"secret"), "no private key in PEM form"),
        (CA.issue(), lambda files: files.key.write_bytes(b"secret" * 1_000_000), "is it another file"),
        (CA.issue(), other_key, "does not belong to the certificate"),
        (CA.issue(passphrase=b"secret"), None, "has a passphrase"),
        (CA.issue(key=ed25519.Ed25519PrivateKey.generate()), None, "use P-256, P-384, or RSA"),
        (CA.issue(ends=-DAY / 2), None, "expired on 20"),
        (CA.issue(starts=DAY / 2), None, "is valid from"),
    ],
)
def test_an_edge_does_not_start_with_a_certificate_that_no_client_takes(
    pair: Pair, spoil: Callable[[CertificateFiles], Any] | None, words: str, tmp_path: Path
) -> None:
    """One sentence names the file and what is wrong with it, and has nothing of its content."""
    files = pair.write(tmp_path)
    if spoil is not None:
        spoil(files)
    with pytest.raises(Refused, match=words) as raised:
        ServedCertificate(files)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), (b"x", "no certificate"), (Authority(ends=-DAY / 2).pem, "All certificates")],
)
def test_a_ca_of_clients_is_needed_whole(content: bytes | None, words: str, tmp_path: Path) -> None:
    """A port for certificates never opens with roots to which none can lead."""
    files = replace(CA.issue().write(tmp_path), client_ca=tmp_path / "ca.pem")
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)
    with pytest.raises(Refused, match=words):
        ServedCertificate(files)


def test_a_new_certificate_is_served_while_streams_run_and_a_bad_one_never(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Open streams go on, new connections get the new certificate, and a broken file leaves the last one in place."""
    first, second, third = (CA.issue() for _ in range(3))
    certificate = ServedCertificate(first.write(tmp_path))
    failures = list[bool]()
    certificate.failed = lambda: failures.append(True)

    async def body(edge: Running) -> None:
        credentials = grpc.ssl_channel_credentials(CA.pem)
        async with grpc.aio.secure_channel(edge.token_address, credentials) as channel:
            stream = Running.stream_of(channel, METADATA)
            seen = list[int]()
            for pair, spoil in ((first, None), (second, None), (second, b"broken"), (third, None)):
                if spoil is None:
                    pair.write(tmp_path)
                else:
                    replace_file(tmp_path / "edge.key", spoil)
                await stream.write(request(wrapper()))
                assert (await stream.read()).acked[0].first_seq == 10
                seen.append(await asyncio.to_thread(served_serial, edge.token_address))
            assert seen == [serial(first), serial(second), serial(second), serial(third)]

    with_edge(body, certificate=certificate)
    assert failures == [True]
    assert [each.levelname for each in caplog.records if "keeps its last certificate" in each.message] == ["ERROR"]
    assert "broken" not in caplog.text


def test_files_that_could_not_be_served_are_served_once_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate that only the clock kept away, with files that change no more, is served; it is logged once."""
    certificate = ServedCertificate(CA.issue().write(tmp_path))
    failures = list[bool]()
    certificate.failed = lambda: failures.append(True)
    CA.issue(starts=timedelta(seconds=30)).write(tmp_path)
    assert [certificate.look() for _ in range(3)] == [False] * 3
    ahead = SimpleNamespace(time=lambda: time.time() + 60, strftime=time.strftime, gmtime=time.gmtime)
    monkeypatch.setattr(certificates, "time", ahead)
    assert [certificate.look() for _ in range(3)] == [True, False, False]
    assert failures == [True]
    assert [each.levelname for each in caplog.records if "keeps its last certificate" in each.message] == ["ERROR"]


def test_a_client_trusts_the_edge_by_its_roots_alone(tmp_path: Path) -> None:
    """With the edge's root events are acknowledged; with another one, or without TLS, nothing leaves the client."""
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    (tmp_path / "other.pem").write_bytes(Authority().pem)
    with edge_in_thread(certificate=ServedCertificate(CA.issue().write(tmp_path))) as edge:
        address = edge.token_address
        with EdgeClient(address, TOKEN, tls=EdgeTls(tmp_path / "ca.pem")) as client:
            assert isinstance(client.send(EdgeEvent(GAME, 1, payload())).result(30), EdgeAcknowledged)
        for tls in (EdgeTls(tmp_path / "other.pem"), EdgeTls(), None):
            with (
                EdgeClient(address, TOKEN, tls=tls, give_up_seconds=0.1, call_seconds=5.0) as client,
                pytest.raises(EdgeGaveUp),
            ):
                client.send(EdgeEvent(GAME, 1, payload())).result(30)
        assert len(edge.log.values) == 1


@pytest.mark.parametrize("address", ["edge.example.com:8470", "10.0.0.1:1", "[2001:db8::1]:2", "localhost.example:3"])
def test_a_client_sends_no_token_to_another_machine_in_the_clear(address: str) -> None:
    """Leaving out `tls` is an error there, not a leak."""
    with pytest.raises(ValueError, match="unencrypted"):
        EdgeClient(address, TOKEN)
    EdgeClient(address, TOKEN, tls=EdgeTls()).close()


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:70000", ":1", "127.0.0.1:x"])
def test_an_address_has_a_host_and_a_port(text: str) -> None:
    """Anything else is refused before a port opens."""
    with pytest.raises(Refused, match="HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no address"),
        ({"token": "0.0.0.0:8470"}, "Without TLS"),
        ({"token": "10.0.0.1:1"}, "Without TLS"),
        ({"token": "example.com:1"}, "Without TLS"),
        ({"token": "127.0.0.1:1", "certificate": Path("c")}, "go together"),
        ({"mtls": "127.0.0.1:1", "certificate": Path("c"), "key": Path("k")}, "--client-ca go together"),
        ({"mtls": "127.0.0.1:1", "client_ca": Path("a")}, "--tls-cert"),
        ({"token": "127.0.0.1:1", "health": "127.0.0.1:1"}, "the same"),
    ],
)
def test_tokens_never_cross_a_network_in_the_clear(options: dict[str, Any], words: str) -> None:
    """Without a certificate only loopback is listened on, and half of the options are refused."""
    with pytest.raises(Refused, match=words):
        parse_ports(**{"token": None, **options})


def test_an_edge_is_named_by_its_first_address() -> None:
    """Loopback goes without TLS, any address with it, and health without it anywhere."""
    for text in ("127.0.0.1:1", "[::1]:2", "localhost:3"):
        assert str(parse_ports(text).first) == text
    files: dict[str, Any] = {"certificate": Path("c"), "key": Path("k")}
    assert str(parse_ports("0.0.0.0:1", None, "0.0.0.0:2", **files).first) == "0.0.0.0:1"
    assert str(parse_ports(None, "[::]:4", client_ca=Path("a"), **files).first) == "[::]:4"


def test_the_documented_commands_make_what_edge_and_producer_need(tmp_path: Path) -> None:
    """The commands of openssl in docs/edge.md, copied, give an edge and a producer that it knows by certificate."""
    for commands in re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "edge.md").read_text("utf-8"), re.DOTALL):
        if "openssl" not in commands:
            continue
        subprocess.run(["sh", "-e"], input=commands.encode(), cwd=tmp_path, check=True, capture_output=True, timeout=60)
    files = CertificateFiles(tmp_path / "edge.pem", tmp_path / "edge.key", tmp_path / "ca.pem")
    producer = EdgeProducer("chess", games=(GAME,), certificate="uri:spiffe://games.example/chess")
    known = known_of(schema_of(), producers=[producer])
    tls = EdgeTls(tmp_path / "ca.pem", tmp_path / "chess.pem", tmp_path / "chess.key")
    with (
        edge_in_thread(known=known, certificate=ServedCertificate(files)) as edge,
        EdgeClient(edge.mtls_address.replace("127.0.0.1", "localhost"), tls=tls) as client,
    ):
        assert isinstance(client.send(EdgeEvent(GAME, 1, payload())).result(30), EdgeAcknowledged)
