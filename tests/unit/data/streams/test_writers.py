"""The writer that the settings name; tests/spark/test_writers.py has the promises of both."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import Refused
from pipeline.data.streams.writing.writers import DirectWriter, writer_for
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Demux, Paths, load


@pytest.mark.proves("G41")
def test_the_spark_writer_needs_leases(tmp_path: Path) -> None:
    """Law L10: where only the lease closes a gap, turning leases off is refused, with the way out."""
    assert load(tmp_path, {"TURNOUT_DEMUX__WRITER": "spark"})[0].demux.writer == "spark"
    with pytest.raises(Refused, match=r"demux\.writer: expected 'direct' where store\.leases is false"):
        load(tmp_path, {"TURNOUT_DEMUX__WRITER": "spark", "TURNOUT_STORE__LEASES": "false"})


@pytest.mark.proves("G43")
def test_what_an_earlier_driver_staged_is_deleted(tmp_path: Path) -> None:
    """Law L9: files that no commit took are orphans; a driver begins with an empty staging folder, with any writer."""
    staging = tmp_path / "staging"
    (staging / "chess").mkdir(parents=True)
    (staging / "chess" / "part-1.parquet").touch()
    no_spark: Any = None
    writer = writer_for(Demux(), Paths(tmp_path), no_spark, staging, lambda _key: True)
    assert writer == DirectWriter(located(tmp_path / "tables"), Demux().checkpoint_interval)
    assert not staging.exists()
