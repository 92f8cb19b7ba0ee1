"""Repairs of a table whose protocol they cannot write."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.base.errors import Refused
from pipeline.base.names import stream_app_id
from pipeline.data.repair.rebuild import rebuild
from pipeline.lake.delta.log import publish_commit
from tests.tables.repair_world import CHESS, good, make_world


def test_a_rebuild_of_a_table_that_only_spark_can_write_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Laws L10 and L12: the refusal names the feature, and table, cursor and folder are what they were."""
    world = make_world(tmp_path)
    world.ingest(good(1), good(2))
    world.split()
    path = world.paths.table(CHESS.key)
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    assert publish_commit(path, DeltaTable(path).version() + 1, [{"protocol": features}])
    before = sorted(Path(path).glob("*.parquet"))
    with pytest.raises(Refused, match=r"only Spark can write.*InCommitTimestamp"):
        rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    table = DeltaTable(path)
    app_id = stream_app_id(world.environment, CHESS.key, 1)
    assert (table.transaction_version(app_id), table.to_pyarrow_table().num_rows) == (1, 2)
    assert sorted(Path(path).glob("*.parquet")) == before
