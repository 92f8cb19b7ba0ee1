from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.writer import write_deltalake

from pipeline.data.ingest.sources.landing_times import LandingTimes
from pipeline.lake.storage.places import located


def _land(landing: Path) -> None:
    write_deltalake(landing, pa.table({"key": pa.array([b"k"]), "value": pa.array([b"v"])}), mode="append")


def _expected(landing: Path) -> dict[str, int]:
    actions = pa.table(DeltaTable(landing).get_add_actions(flatten=True)).to_pylist()
    return {row["path"]: row["modification_time"] * 1000 for row in actions}


def test_every_file_has_its_time_whenever_it_came(tmp_path: Path) -> None:
    """Latency begins when the source has the row: files there at the start and files that come later are known."""
    _land(tmp_path)
    times = LandingTimes(located(tmp_path))
    assert _expected(tmp_path) == dict(times.read())
    for _ in range(3):
        _land(tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    _land(tmp_path)
    assert _expected(tmp_path) == dict(times.read())
    assert len(times.read()) == 5


def test_only_what_was_read_long_before_is_forgotten(tmp_path: Path) -> None:
    """A backlog of hours keeps its times until it is read, however new the newest file is."""
    _land(tmp_path)
    times = LandingTimes(located(tmp_path))
    newest = max(times.read().values()) / 1e6
    times.consumed(newest - 86_400)
    times.consumed(None)
    assert len(times.read()) == 1
    times.consumed(newest + 3_601)
    assert not times.read()
