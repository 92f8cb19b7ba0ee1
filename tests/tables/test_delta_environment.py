"""A bronze that another environment has written is refused by whoever would continue it, before anything is changed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from pipeline.base.errors import Refused
from pipeline.base.names import bronze_app_id, ingest_app_id
from pipeline.data.ingest.adopt import adopt
from pipeline.data.streams.group import Group
from pipeline.data.verify.balance import verify
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.store import sources
from pipeline.store.processes.drivers import record_commit
from tests.tables.ingest_world import World, landing_world, start

WRONG = (
    r"bronze belongs to the environment 'local', which has written it up to seq 1, but the setting environment is "
    r"'prod'\. Set it to 'local'"
)


def begin_ingest(world: World) -> None:
    start(world, world.ingest())


def adopt_source(world: World) -> None:
    adopt(world.settings, world.paths, world.engine, accept_loss=True)


def drive(world: World) -> None:
    spark: Any = None
    Group(spark, world.settings, world.paths, world.engine, "main", lambda _: None)


def check(world: World) -> None:
    verify(world.paths, world.settings.environment)


def state(world: World) -> tuple[object, ...]:
    """State that a wrong name must not change: the tables' versions, the checkpoint, and the records of sources."""
    files = sorted(str(each) for each in world.paths.checkpoints.rglob("*"))
    versions = tuple(DeltaTable(each).version() for each in (world.paths.bronze, world.paths.quarantine))
    return versions, files, sources.generations(world.engine), sources.identity(world.engine, 1)


@pytest.mark.parametrize("act", [begin_ingest, adopt_source, drive, check])
@pytest.mark.proves("G24")
def test_a_wrong_name_is_refused_and_changes_nothing(tmp_path: Path, act: Callable[[World], None]) -> None:
    """Laws L1, L5: no seq is given twice, quarantine keeps its rows, and no game is split a second time."""
    world = landing_world(tmp_path / "env")
    record_commit(world.engine, 1, 3, 3, None)
    before = state(world)
    refused = DeltaTable(world.paths.quarantine).to_pyarrow_table().num_rows
    assert refused == 3
    world.settings = replace(world.settings, environment="prod")
    with pytest.raises(Refused, match=WRONG):
        act(world)
    assert before == state(world)
    assert refused == DeltaTable(world.paths.quarantine).to_pyarrow_table().num_rows
    world.settings = replace(world.settings, environment="local")
    assert world.ingest().head_seq == 1


def bronze(folder: Path, environment: str) -> CursorTable:
    return CursorTable.create(located(folder / "bronze"), BRONZE, bronze_app_id(environment))


def test_a_damaged_bronze_is_one_sentence_of_verify(tmp_path: Path) -> None:
    """Whose bronze it is cannot be read of a damaged log: verify says that it is damaged."""
    world = landing_world(tmp_path / "env")
    for checkpoint in Path(world.paths.bronze / "_delta_log").glob("*.checkpoint.parquet"):
        checkpoint.unlink()  # one of the newest commit would say what is cut
    newest = max(Path(world.paths.bronze / "_delta_log").glob("0*.json"))
    newest.write_bytes(newest.read_bytes()[:30])
    Path(world.paths.bronze / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)
    with pytest.raises(Refused, match="bronze cannot be opened"):
        check(world)


def test_who_wrote_last_owns_it(tmp_path: Path) -> None:
    """Where two names gave seqs of one bronze, the name that gave the last one goes on."""
    require_own(located(tmp_path / "none"), "a")
    bronze(tmp_path, "a")
    require_own(located(tmp_path / "bronze"), "b")
    bronze(tmp_path, "a").commit([], None, 3, also={ingest_app_id("a", 1): 9})
    bronze(tmp_path, "b").commit([], None, 103)
    require_own(located(tmp_path / "bronze"), "b")
    with pytest.raises(Refused, match="environment 'b', which has written it up to seq 103"):
        require_own(located(tmp_path / "bronze"), "a")


@pytest.mark.parametrize("by_delta_rs", [False, True])
@pytest.mark.proves("G24")
def test_the_owner_is_known_when_its_commits_are_cleaned_away(tmp_path: Path, by_delta_rs: bool) -> None:
    """The newest checkpoint keeps the transactions; commits after it are read, too."""
    table = bronze(tmp_path, "a")
    for seq in range(1, 31):
        table.commit([], table.cursor, seq)
    if by_delta_rs:
        DeltaTable(table.path).create_checkpoint()
    last = max(Path(table.path / "_delta_log").glob("*.checkpoint.parquet")).name[:20]
    for file in Path(table.path / "_delta_log").glob("*.json"):
        if file.stem <= last:
            file.unlink()
    with pytest.raises(Refused, match="environment 'a', which has written it up to seq 30"):
        require_own(table.path, "b")
    table.commit([], 30, 31)
    with pytest.raises(Refused, match="up to seq 31"):
        require_own(table.path, "b")
    require_own(table.path, "a")
    moved = CommitProperties(app_transactions=[Transaction("turnout/b/bronze/lost/1/after", 99)])
    DeltaTable(table.path).delete("seq < 0", commit_properties=moved)
    require_own(table.path, "a")


def test_parts_of_a_checkpoint_whose_writer_died_tell_nothing(tmp_path: Path) -> None:
    """Law L5: readers pass such parts by; the part without transactions would make the bronze anybody's."""
    table = bronze(tmp_path, "a")
    for seq in range(1, 4):
        table.commit([], table.cursor, seq)
    part = table.path / "_delta_log" / f"{table.version:020}.checkpoint.0000000001.0000000002.parquet"
    pq.write_table(pa.table({"add": pa.array([{"path": "x"}])}), part)
    with pytest.raises(Refused, match="environment 'a', which has written it up to seq 3"):
        require_own(table.path, "b")


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_a_checkpoint_that_cannot_be_read_is_one_sentence(tmp_path: Path, left: float) -> None:
    """Ingest asks whose bronze it is first of all: the file is named, with the way out."""
    table = bronze(tmp_path, "a")
    table.commit([], None, 1)
    DeltaTable(table.path).create_checkpoint()
    (checkpoint,) = Path(table.path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[: int(checkpoint.stat().st_size * left)])
    with pytest.raises(
        Refused, match=f"{checkpoint.name} cannot be read, so the environment of this bronze is unknown"
    ):
        require_own(table.path, "a")
