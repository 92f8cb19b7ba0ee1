"""The fault table, part B: poison. Each test is named by the fault's id; docs/faults.md has them all."""

import shutil
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from prometheus_client import CollectorRegistry

from listeners.join import Pass
from listeners.prometheus import Exposition
from pipeline.base.names import game_key
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.replay import replay_all
from pipeline.demo.simulator import game_names
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.faults.oracle import require_completeness
from tests.spark.change_world import FIRST, GAME, KEY, WIDER, Producer
from tests.unit.store.outage_world import away

pytestmark = pytest.mark.timeout(120)


def levels(world: Any) -> list[int]:
    return sorted(DeltaTable(world.paths.table(KEY)).to_pyarrow_table()["level"].to_pylist())


def arrive(world: Any, events: list[bytes]) -> None:
    """Let events come into bronze in one commit; nobody has split them yet."""
    rows = pa.table({"key": [None] * len(events), "value": events}, schema=LANDING)
    write_deltalake(str(world.paths.landing), rows, mode="append")
    world.ingest()


def replay(world: Any) -> None:
    schemas = LocalRegistry(world.engine).snapshot
    replay_all(world.paths, world.settings.environment, schemas, {KEY: GAME}, Selection(), dry_run=False)


@pytest.mark.proves("B1")
def test_b1_empty_payloads_and_noise_cost_themselves_only(world: Any) -> None:
    """B1: cut, random and empty payloads are each one row of quarantine with its bytes; the good beside them land."""
    producer, group = Producer(world), world.group("a")
    schema_id = producer.register(FIRST)
    good = [producer.event(schema_id, level=number) for number in (1, 2)]
    payload = Wrapper.FromString(good[0]).payload
    bad = [
        Wrapper(game=GAME, schema_id=schema_id, payload=each).SerializeToString()
        for each in (b"", payload[:-1], b"\xff" * 40, b"\x00")
    ]
    producer.send(group, [good[0], *bad, good[1]])
    assert levels(world) == [1, 2]
    assert dict(world.verify().by_reason) == {"empty_payload": 1, "malformed_payload": 3}
    kept = DeltaTable(world.paths.quarantine).to_pyarrow_table()["raw"].to_pylist()
    assert sorted(kept) == sorted(bad)
    assert group.streams[KEY].lane == "RUN"
    group.stop()


@pytest.mark.proves("B2")
def test_b2_rows_of_an_unknown_schema_wait_and_land_when_it_is_registered(world: Any) -> None:
    """B2: refused with a reason, not lost: a replay after the registration puts each into the table once."""
    producer, group = Producer(world), world.group("a")
    first = producer.register(FIRST)
    producer.classes[first + 1] = producer.classes[first]
    events = [producer.event(first + number % 2, level=number) for number in range(6)]
    producer.send(group, events)
    assert levels(world) == [0, 2, 4]
    assert dict(world.verify().by_reason) == {"unknown_schema": 3}
    assert producer.register(WIDER) == first + 1
    for _ in range(2):
        replay(world)
        assert levels(world) == [0, 1, 2, 3, 4, 5]
        assert dict(world.verify().by_reason) == {}
        group.stop()
    require_completeness(world.paths.root)
    require_completeness(world.paths.root)


@pytest.mark.parametrize("lane", ["RUN", "CATCHUP"])
@pytest.mark.proves("B3", "G50")
def test_b3_known_schemas_flow_on_while_the_store_is_away(world: Any, lane: str) -> None:
    """B3: passes and chunks go on with what they last heard; an unknown schema's rows wait for a replay."""
    producer, group = Producer(world), world.group("a")
    first = producer.register(FIRST)
    producer.send(group, [producer.event(first, level=1)])
    producer.classes[first + 1] = producer.classes[first]
    arrive(world, [producer.event(first, level=2)])
    arrive(world, [producer.event(first + 1, level=3)])
    if lane == "CATCHUP":
        shutil.rmtree(world.paths.checkpoints / "demux" / "a")  # the query begins at the last of the two
    assert producer.register(WIDER) == first + 1  # after the driver last heard
    with away(world.engine) as submitted:
        world.split(group)
    assert submitted
    assert levels(world) == [1, 2]
    assert {lane} == {game.lane for each in world.passes[1:] for game in each.games if game.committed_at}
    assert dict(world.verify().by_reason) == {"unknown_schema": 1}
    producer.send(group, [producer.event(first + 1, level=4)])
    replay(world)
    assert levels(world) == [1, 2, 3, 4]
    group.stop()
    require_completeness(world.paths.root)


@pytest.mark.proves("B24")
def test_b24_a_game_that_sends_nothing_but_poison_is_told_of_and_disturbs_nobody(world: Any) -> None:
    """B24: every row of it is in quarantine, its stream is not failed, and the alert's ratio is that of this game."""
    world.simulate(300, games=4, bad_share=0)
    names = game_names(4, 7, hostile=True)
    victim = game_key(names[0])
    world.ingest()
    group = world.group("a")
    world.split(group)
    before = {game.game_key: game.counts.landed for game in world.verify().games}
    world.simulate(300, games=4, bad_share=0)
    schema_id = LocalRegistry(world.engine).snapshot().games[victim][0]
    arrive(world, [Wrapper(game=names[0], schema_id=schema_id, payload=b"\xff" * 30).SerializeToString()] * 300)
    world.passes.clear()
    world.split(group)
    balance = world.verify()
    assert balance.complete
    after = {game.game_key: game.counts for game in balance.games}
    assert after[victim].quarantined == 300
    assert all(counts.landed > before[key] for key, counts in after.items() if key != victim)
    assert (group.streams[victim].lane, group.streams[victim].error) == ("RUN", None)
    assert refused_share(world.passes)[victim] > 0.5
    assert {key for key, share in refused_share(world.passes).items() if share > 0.01} == {victim}
    group.stop()
    require_completeness(world.paths.root)


def refused_share(passes: list[Any]) -> dict[str, float]:
    """Return the share of refused rows of each game, from what Prometheus is told."""
    exposition = Exposition(CollectorRegistry())
    for each in passes:
        exposition.add_pass(Pass(each, None))
    rows: dict[str, dict[str, float]] = {}
    for family in exposition.collect():
        if family.name == "turnout_stream_rows":
            for sample in family.samples:
                rows.setdefault(sample.labels["game"], {})[sample.labels["result"]] = sample.value
    return {game: counts.get("rejected", 0) / sum(counts.values()) for game, counts in rows.items()}
