"""The cost of a sketch of names, for any number of them."""

import gc
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.base.names import GameKey
from pipeline.data.ingest import pending
from pipeline.data.ingest.bronze_writer import IngestJob, land
from pipeline.data.ingest.onboarding import Onboarding
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Onboarding as Limits
from pipeline.settings.tree import load
from pipeline.store import onboarding as store
from pipeline.store.database.engine import open_store
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.onboarding_world import give_rules, rule

NOW = 1_800_000_000.0


def _task(tmp_path: Path, names: Sequence[str], known: dict[str, GameKey], prefixes: tuple[str, ...], seq: int) -> Any:
    """Land one row of each name, as an executor does, and return the report."""
    values = [Wrapper(game=name, schema_id=1, payload=b"x").SerializeToString() for name in names]
    count = len(values)
    rows = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "source_time": pa.nulls(count, pa.timestamp("us", "UTC")),
        "headers": pa.nulls(count, BRONZE.field("headers").type),
        "source_clock": pa.nulls(count, pa.string()),
    }
    job = IngestJob(
        seq=seq,
        last_seqs={"malformed_wrapper": seq - 1},
        known=known,
        onboarding=Limits(),
        prefixes=prefixes,
        bronze=located(tmp_path / "bronze"),
        quarantine=located(tmp_path / "quarantine"),
        bronze_files=2,
    )
    return json.loads(next(land(iter([pa.RecordBatch.from_pydict(rows)]), job))["report"][0].as_py())


def _resident_bytes() -> int:
    gc.collect()
    pa.default_memory_pool().release_unused()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def require_names_cost_next_to_nothing(tmp_path: Path, batches: int) -> None:
    """Let fifty thousand names come in each batch; `tests/soak` has a million in all."""
    limits = Limits()
    engine = open_store(*load(tmp_path / "env", {}))
    give_rules(engine, rule(prefixes=("name 7",)))
    ingest = Onboarding(engine, limits)
    last_seqs: dict[str, int] = {}
    resident, longest = 0, 0
    for seq in range(1, batches + 1):
        names = [f"name {number * 2_654_435_761 % 2**40:x}" for number in range(seq * 50_000, (seq + 1) * 50_000)]
        known = dict(ingest.known(ingest.admit(NOW + seq)))
        report = _task(tmp_path, names, known, ingest.prefixes, seq)
        shutil.rmtree(tmp_path / "bronze")
        shutil.rmtree(tmp_path / "quarantine")
        last_seqs.update(dict.fromkeys(report["counts"], seq))
        ingest.note(report["unknown"], NOW + seq)
        longest = max(longest, len(str(report)))
        if seq == 1:
            resident = _resident_bytes()
    ingest.close()
    grown = _resident_bytes() - resident
    seen = pending.pending(engine, limits, NOW)
    assert grown < 50_000_000
    assert len(store.onboarded(engine)) == 10  # an hour's games of the one prefix
    assert len(last_seqs) <= 11
    assert longest < 200_000
    assert len(seen.names) == 1_000
    assert seen.distinct == pytest.approx(batches * 50_000, rel=0.05)
    kept = store.read_sketch(engine)
    assert kept is not None
    assert len(kept) < 200_000
    engine.dispose()
