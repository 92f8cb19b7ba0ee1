"""Hostile requests against the process of an edge: what a client may send costs it neither its life nor its memory."""

import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.demo.samples.supported import sample
from pipeline.edge.client import EdgeAcknowledged, EdgeClient, EdgeEvent
from pipeline.edge.service import SERVICE
from protos.turnout.v1.edge_pb2 import PublishRequest
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.kafka.edge_world import GAME, TOKEN, EdgeProcess, edge_in

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

INPUTS = 5_000
WARM = 1_000
"""Inputs after which memory has the size that it keeps."""

GROWTH_BYTES = 48 * 1024 * 1024
"""Most growth afterwards: a leak of 16 KiB an input would be more."""

ANSWERS = {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
METADATA = (("authorization", f"Bearer {TOKEN}"),)


def nested(depth: int) -> bytes:
    """Return a message within a message within … of field 1; bytes that end too early where lengths grow too large."""
    raw = b""
    for _ in range(depth):
        size, length = len(raw), b""
        while size >= 0x80:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        raw = b"\x0a" + length + bytes([size]) + raw
    return raw


made = sample("protobuf", "puzzle", 3, 1)
GOOD = made.encode(made.event(1, 1, 1_700_000_000_000_000))
DEEP = [nested(depth) for depth in (100, 1_000, 10_000)]

payloads = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(DEEP),
    st.just(GOOD),
    st.builds(lambda cut: GOOD[:cut], st.integers(0, len(GOOD))),
    st.builds(lambda place, byte: GOOD[:place] + bytes([byte]) + GOOD[place + 1 :],
              st.integers(0, len(GOOD) - 1), st.integers(0, 255)),
    st.integers(0, 200_000).map(lambda size: b"\x0a" * size),
)  # fmt: skip
names = st.one_of(st.just(GAME), st.text(max_size=40), st.just("x" * 100_000))
wrappers = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda game, schema, payload, event: Wrapper(
            game=game, schema_id=schema, payload=payload, event_id=event
        ).SerializeToString(),
        names, st.integers(0, 3), payloads, st.text(max_size=40),
    ),
)  # fmt: skip
requests = st.one_of(
    st.binary(max_size=400),
    st.sampled_from(DEEP),
    st.builds(
        lambda first, those: PublishRequest(first_seq=first, wrappers=those).SerializeToString(),
        st.integers(0, 2**64 - 1), st.lists(wrappers, max_size=20),
    ),
)  # fmt: skip


def held_bytes(edge: EdgeProcess) -> int:
    assert edge.process is not None
    pages = int(Path(f"/proc/{edge.process.pid}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_5000_hostile_requests_leave_an_edge_as_it_was(tmp_path: Path) -> None:
    """Each gets an answer or a status of our own, the process goes on, and it holds no more memory than before."""
    with edge_in(tmp_path / "env", {}) as edge, grpc.insecure_channel(edge.address) as opened:
        channel: Any = opened  # its type asks for serialisers, which bytes need not have
        call, stream = channel.unary_unary(f"/{SERVICE}/Publish"), channel.stream_stream(f"/{SERVICE}/PublishStream")
        held, sent, codes = list[int](), 0, set[str]()

        @settings(max_examples=INPUTS, database=None)
        @given(raw=requests, by_stream=st.booleans())
        def send(raw: bytes, by_stream: bool) -> None:
            nonlocal sent
            sent += 1
            try:
                if by_stream:
                    list(stream(iter([raw]), metadata=METADATA, timeout=30))
                else:
                    call(raw, metadata=METADATA, timeout=30)
                code = "OK"
            except grpc.RpcError as error:
                code = error.code().name
            codes.add(code)
            assert code in ANSWERS, code
            if sent == WARM:
                held.append(held_bytes(edge))

        send()
        assert (sent >= INPUTS, codes >= {"OK", "INVALID_ARGUMENT"}) == (True, True)
        assert held_bytes(edge) - held[0] < GROWTH_BYTES
        with EdgeClient(edge.address, TOKEN) as client:
            outcome = client.send(EdgeEvent(GAME, 1, GOOD, event_id="good")).result(30)
        assert isinstance(outcome, EdgeAcknowledged)
        assert edge.end() == 0, edge.said()
        assert "Traceback" not in edge.said()
