"""A flood of names, of any size."""

import gc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.writer import write_deltalake
from prometheus_client import CollectorRegistry

from listeners.join import Pass
from listeners.prometheus import Exposition
from pipeline.base.names import MALFORMED, game_key
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.ingest import pending
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.demo.samples.protobuf import message_class
from pipeline.demo.samples.supported import payload_schema
from pipeline.store.games import known_games
from protos.turnout.v1.wrapper_pb2 import Wrapper


def _register(world: Any, *names: str) -> int:
    registrations = [Registration(name, *payload_schema("puzzle", 1)) for name in names]
    return LocalRegistry(world.engine).register_many(registrations)[0].schema_id


def _event(name: str, schema_id: int = 1) -> bytes:
    payload = message_class("puzzle", 1)(round=1).SerializeToString()
    return Wrapper(game=name, schema_id=schema_id, payload=payload).SerializeToString()


def _land(world: Any, values: list[bytes]) -> None:
    rows = pa.table({"key": [None] * len(values), "value": values}, schema=LANDING)
    write_deltalake(str(world.paths.landing), rows, mode="append")


def _series(world: Any) -> int:
    """Return how many metric series the drivers of this world tell."""
    exposition = Exposition(CollectorRegistry())
    for landed in world.landed:
        refused = sum(landed.refused.values())
        exposition.add_ingest(
            seq=landed.seq, accepted=landed.rows - refused, refused=refused, committed_at=landed.committed_at
        )
    for each in world.passes:
        exposition.add_pass(Pass(each, None))
    return sum(len(family.samples) for family in exposition.collect())


def _memory(world: Any) -> dict[str, int]:
    """Return the bytes the driver holds: its Python process, and the live objects of its JVM."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    jvm = world.spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return {"python": resident, "jvm": runtime.totalMemory() - runtime.freeMemory()}


def require_a_flood_costs_nothing(world: Any, names: int) -> None:
    """Let a number of unknown names come, after the first 5,000, and compare what there is of everything."""
    real = [_event("real", _register(world, "real"))] * 100
    group = world.group("a")
    ingest = world.ingest_query()

    def flood(numbers: range) -> None:
        for start in range(numbers.start, numbers.stop, 25_000):
            chunk = numbers[start - numbers.start : start - numbers.start + 25_000]
            _land(world, [*(_event(f"flood {number:x}") for number in chunk), *real])
        ingest.start(once=True).awaitTermination()
        world.split(group)

    flood(range(5_000))
    before, series = _memory(world), _series(world)
    store_bytes = world.paths.control_db.stat().st_size
    flood(range(5_000, 5_000 + names))
    ingest.close()
    after = _memory(world)
    grown = {part: after[part] - before[part] for part in after}
    assert sum(grown.values()) < 25_000_000 + 250 * names, grown
    assert series == _series(world)
    assert {game_key("real")} == {path.name for path in Path(world.paths.tables).iterdir()}
    assert {"real"} == set(known_games(world.engine).values())
    assert {MALFORMED, game_key("real")} == set(ingest._last_seqs)
    assert world.paths.control_db.stat().st_size - store_bytes < 1_000_000
    seen = pending.pending(world.engine, world.settings.onboarding)
    assert len(seen.names) == 1_000
    assert seen.rows == 5_000 + names
    assert seen.distinct == pytest.approx(5_000 + names, rel=0.05)
    balance = world.verify()
    assert balance.complete
    assert dict(balance.by_reason) == {"unknown_game": 5_000 + names}
    assert balance.totals.landed == 100 * (1 + -(-names // 25_000))
    assert [game.game for game in balance.games] == [None, "real"]
