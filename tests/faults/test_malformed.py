"""Hostile input through the whole of it: whatever bytes arrive, no stream stops and every message is accounted for."""

import os
import sys
import zlib
from collections import Counter
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.demo.producer import write_landing
from pipeline.demo.simulate import register_samples
from pipeline.demo.simulator import Event, SimulationPlan, Simulator
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.faults.oracle import require_completeness

BATCH = 500
INPUTS = int(os.environ.get("PROOF_MALFORMED", "5000"))

pytestmark = pytest.mark.timeout(300 + INPUTS // 10)


def _messages(games: list[str], good: list[bytes], ids: list[int]) -> st.SearchStrategy[bytes]:
    """Wrappers from plain noise to almost right: cut, flipped, doubled, with a payload of another kind or none."""
    valid = st.sampled_from(good)
    cut = st.builds(lambda whole, share: whole[: int(len(whole) * share)], valid, st.floats(0, 1))
    flipped = st.builds(_flip, valid, st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=8))
    doubled = st.builds(lambda one, other: one + other, valid, valid)
    wrapped = st.builds(
        lambda game, schema, payload: Wrapper(game=game, schema_id=schema, payload=payload).SerializeToString(),
        st.one_of(st.sampled_from(games), st.text(max_size=300).filter(_encodes)),
        st.one_of(st.sampled_from(ids), st.integers(0, 2**31 - 1)),
        st.one_of(st.binary(max_size=120), st.just(b""), st.just(b"\x0a\x7f" * 100), st.just(b"\x0b" * 150)),
    )
    return st.one_of(st.binary(max_size=200), cut, flipped, doubled, wrapped)


def _encodes(text: str) -> bool:
    return text.isprintable() or text == ""


def _flip(whole: bytes, places: list[tuple[float, int]]) -> bytes:
    changed = bytearray(whole)
    for share, bits in places:
        if changed:
            changed[min(int(len(changed) * share), len(changed) - 1)] ^= bits
    return bytes(changed)


def _hostile(plan: SimulationPlan, ids: dict[tuple[str, int], int]) -> list[bytes]:
    """Return the same messages in every run: as many as Hypothesis is asked to try."""
    simulator = Simulator(plan, ids)
    good = [event.value for batch in simulator.batches(400) for event in batch]
    made: list[bytes] = []

    @given(_messages(list(simulator.games), good, sorted(set(ids.values()))))
    @settings(max_examples=INPUTS, derandomize=True, deadline=None, phases=[Phase.generate], database=None)
    def tries(message: bytes) -> None:
        made.append(message)

    tries()
    return made


@pytest.mark.proves("B1", "G167")
def test_no_input_stops_a_stream_and_every_one_is_accounted_for(world: Any) -> None:
    """Fault cases B1 to B14 at random: garbage, cut and flipped messages land or are refused, once each."""
    plan = SimulationPlan(games=6, versions=4, events=400, seed=21, hostile=True)
    messages = _hostile(plan, register_samples(world.engine, plan))
    group = world.group("a")
    for start in range(0, len(messages), BATCH):
        part = messages[start : start + BATCH]
        write_landing(world.paths.landing, iter([[Event(None, message, "", 0, "") for message in part]]))
        world.ingest()
        world.split(group)
        assert not [stream.error for stream in group.streams.values() if stream.error], start
    balance = world.verify()
    assert balance.complete
    assert balance.totals.bronze_rows == len(messages) >= INPUTS
    assert balance.totals.landed > 0
    require_completeness(world.paths.root)
    sys.stdout.write(f"\n{len(messages)} inputs: {balance.totals.landed} landed, {dict(balance.by_reason)}\n")
    raw = DeltaTable(world.paths.bronze).to_pyarrow_table(columns=["raw"]).column("raw").to_pylist()
    assert Counter(map(zlib.crc32, raw)) == Counter(map(zlib.crc32, messages))
