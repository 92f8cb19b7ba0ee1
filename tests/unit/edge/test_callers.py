"""Producers by certificate: one name each, from the certificate that the CA signed and from nothing else."""

import asyncio
import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from pipeline.edge.callers import name_of
from pipeline.edge.certificates import ServedCertificate
from pipeline.edge.client import EdgeAcknowledged, EdgeClient, EdgeEvent
from pipeline.edge.client_channel import EdgeTls
from pipeline.store.edge_producers import EdgeProducer
from tests.unit.edge.edge_world import (
    GAME,
    METADATA,
    PRODUCER,
    Body,
    Running,
    ended,
    known_of,
    payload,
    request,
    schema_of,
    with_edge,
    wrapper,
)
from tests.unit.edge.tls_world import DAY, Authority, Pair, host, uri

CA = Authority()
SPIFFE = "spiffe://games.example/chess"
BY_NAME = EdgeProducer("chess-mtls", games=(GAME,), certificate=f"uri:{SPIFFE}")
KNOWN = known_of(schema_of(), producers=[PRODUCER, BY_NAME])


@pytest.mark.parametrize(
    ("common_names", "names", "expected"),
    [
        (["cn"], [uri(SPIFFE)], f"uri:{SPIFFE}"),
        (["cn"], [host("b"), uri(SPIFFE), host("a")], f"uri:{SPIFFE}"),
        (["cn"], [host("Chess.Example")], "dns:chess.example"),
        (["Chess servers"], [], "cn:Chess servers"),
        (["uri:spiffe://a/b"], [], "cn:uri:spiffe://a/b"),
        (["cn"], [uri(SPIFFE), uri("spiffe://games.example/go")], "2 URIs"),
        (["cn"], [host("a"), host("b")], "2 DNS names"),
        (["a", "b"], [], "2 common names"),
        ([""], [], "no URI, no DNS name and no common name"),
    ],
)
def test_a_certificate_has_one_name_or_none(
    common_names: Sequence[str], names: Sequence[x509.GeneralName], expected: str
) -> None:
    """A URI counts before a DNS name, and that before the common name; two of the kind that counts are refused."""
    pair = CA.issue(common_names[0], names, common_names=common_names[1:])
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    if expected.startswith(("uri:", "dns:", "cn:")):
        assert name_of(certificate) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            name_of(certificate)


def with_certificates(folder: Path, body: Body) -> None:
    """Run a body with an edge that has a port for certificates."""
    files = replace(CA.issue().write(folder), client_ca=folder / "ca.pem")
    (folder / "ca.pem").write_bytes(CA.pem)
    with_edge(body, known=KNOWN, certificate=ServedCertificate(files))


def channel(address: str, pair: Pair | None) -> grpc.aio.Channel:
    key, chain = (None, None) if pair is None else (pair.key, pair.certificate)
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(CA.pem, key, chain))


def test_a_producer_sends_by_its_certificate(tmp_path: Path) -> None:
    """Events are acknowledged by the certificate's name alone; a token beside it gives no other rights."""

    async def body(edge: Running) -> None:
        async with channel(edge.mtls_address, CA.issue("x", [uri(SPIFFE)])) as own:
            response = await replace(edge, channel=own).publish(request(wrapper(), wrapper(game="Go")), ())
            assert [each.last_seq for each in response.acked] == [10]
            assert [(each.reason, each.seq) for each in response.refused] == [("not_allowed", 11)]
            assert "chess-mtls" in response.refused[0].detail
        async with channel(edge.mtls_address, CA.issue("nobody", [])) as own:
            status = await ended(replace(edge, channel=own).publish(request(wrapper()), METADATA))
            assert status[:2] == ("UNAUTHENTICATED", "UNKNOWN_CERTIFICATE")
        async with channel(edge.mtls_address, CA.issue("x", [host("a"), host("b")])) as own:
            status = await ended(replace(edge, channel=own).publish(request(wrapper()), METADATA))
            assert status[:2] == ("UNAUTHENTICATED", "UNUSABLE_CERTIFICATE")

    with_certificates(tmp_path, body)


@pytest.mark.parametrize(
    "pair",
    [
        None,
        Authority().issue("x", [uri(SPIFFE)]),
        CA.issue("x", [uri(SPIFFE)], ends=-DAY / 2),
        CA.issue("x", [uri(SPIFFE)], starts=DAY / 2),
    ],
    ids=["none", "another CA's", "expired", "not valid yet"],
)
def test_a_connection_without_a_certificate_of_the_ca_is_closed(pair: Pair | None, tmp_path: Path) -> None:
    """No handler of the edge sees it, whatever its token is."""

    async def body(edge: Running) -> None:
        async with channel(edge.mtls_address, pair) as own:
            code, reason, _ = await ended(replace(edge, channel=own).publish(request(wrapper())))
        assert (code, reason) == ("UNAVAILABLE", "")
        assert edge.log.values == []

    with_certificates(tmp_path, body)


def test_the_token_port_asks_for_no_certificate(tmp_path: Path) -> None:
    """A certificate that a client offers there is not requested, so the token alone counts."""

    async def body(edge: Running) -> None:
        async with channel(edge.token_address, CA.issue("x", [uri(SPIFFE)])) as own:
            there = replace(edge, channel=own)
            assert (await there.publish(request(wrapper()))).acked[0].first_seq == 10
            assert (await ended(there.publish(request(wrapper()), ())))[1] == "UNKNOWN_TOKEN"

    with_certificates(tmp_path, body)


def test_a_certificate_that_expires_ends_calls_and_streams_of_its_connection(tmp_path: Path) -> None:
    """A connection outlives the certificate of its handshake; its calls do not, and an idle stream ends by a look."""

    async def body(edge: Running) -> None:
        short = CA.issue("x", [uri(SPIFFE)], ends=dt.timedelta(seconds=2))
        async with channel(edge.mtls_address, short) as own:
            there, stream = replace(edge, channel=own), Running.stream_of(own)
            await stream.write(request(wrapper()))
            assert (await stream.read()).acked[0].first_seq == 10
            async with asyncio.timeout(20):
                while True:
                    try:
                        await there.publish(request(wrapper()), ())
                    except grpc.aio.AioRpcError:
                        break
            assert (await ended(there.publish(request(wrapper()), ())))[:2] == (
                "UNAUTHENTICATED",
                "CERTIFICATE_EXPIRED",
            )
            edge.service.learn(KNOWN)
            assert (await ended(stream.read()))[:2] == ("UNAUTHENTICATED", "CERTIFICATE_EXPIRED")

    with_certificates(tmp_path, body)


def test_a_revocation_ends_streams_of_both_ports(tmp_path: Path) -> None:
    """The next look at the store ends them with a status, and no other producer's stream."""

    async def body(edge: Running) -> None:
        async with (
            channel(edge.mtls_address, CA.issue("x", [uri(SPIFFE)])) as by_name,
            channel(edge.token_address, None) as by_token,
        ):
            streams = Running.stream_of(by_name), Running.stream_of(by_token, METADATA)
            for stream in streams:
                await stream.write(request(wrapper()))
                await stream.read()
            edge.service.learn(known_of(schema_of(), producers=[PRODUCER, replace(BY_NAME, revoked=True)]))
            assert (await ended(streams[0].read()))[:2] == ("UNAUTHENTICATED", "CERTIFICATE_REVOKED")
            await streams[1].write(request(wrapper()))
            await streams[1].read()
            edge.service.learn(known_of(schema_of(), producers=[replace(PRODUCER, revoked=True)]))
            assert (await ended(streams[1].read()))[:2] == ("UNAUTHENTICATED", "TOKEN_REVOKED")

    with_certificates(tmp_path, body)


def test_a_client_follows_its_renewed_certificate(tmp_path: Path) -> None:
    """A certificate that was replaced on disk is used without a new client."""

    async def body(edge: Running) -> None:
        CA.issue("nobody", []).write(tmp_path, "client")
        tls = EdgeTls(tmp_path / "ca.pem", tmp_path / "client.pem", tmp_path / "client.key")

        def send() -> None:
            with EdgeClient(edge.mtls_address, tls=tls) as client:
                error = client.send(EdgeEvent(GAME, 1, payload())).exception(30)
                assert "UNKNOWN_CERTIFICATE" in str(error) or "no producer has" in str(error)
                CA.issue("x", [uri(SPIFFE)]).write(tmp_path, "client")
                client.wait_until_ready(30)
                assert isinstance(client.send(EdgeEvent(GAME, 1, payload())).result(30), EdgeAcknowledged)

        await asyncio.to_thread(send)

    with_certificates(tmp_path, body)
