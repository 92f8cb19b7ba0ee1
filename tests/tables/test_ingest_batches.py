"""The ingest query's own code over local rows: whatever is killed and however a batch is cut, each row lands once."""

import shutil
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from pipeline.base.errors import Transient
from pipeline.data.ingest import query
from pipeline.data.ingest.bronze_writer import IngestJob
from pipeline.data.ingest.checkpoint import LandedBatches, require_bronze
from pipeline.data.verify.balance import verify
from pipeline.health.verdicts.status import PASS_LIMIT_SECONDS
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.store.processes.drivers import commits_between
from tests.tables.ingest_world import Killed, Rows, World, arm, rows_of, template
from tests.tables.repair_world import CHESS

__all__ = ["template"]  # a fixture


STEPS = ("", "task", "before quarantine", "after quarantine", "before bronze", "after bronze", "reporting", "delete")


lives = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from([150, 400, 900, 10_000]), st.booleans(), st.booleans()),
    max_size=5,
)


@effort(max_examples=10, deadline=None)
@given(lives=lives)
@pytest.mark.proves("G21")
def test_a_batch_lands_once_through_any_lives(
    template: Path, tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[str, int, bool, bool]]
) -> None:
    """Laws L1 and L5: killed at any step, cut and ordered otherwise each time, in one process or another."""
    world = World(shutil.copytree(template, tmp_path_factory.mktemp("lives") / "env"))
    ingest = world.ingest()
    batch_id = 0
    for step, slice_bytes, backwards, restarts in [*lives, *[("", 10_000, False, True)] * 2]:
        if restarts:
            ingest = world.ingest()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(query, "IngestJob", partial(IngestJob, slice_bytes=slice_bytes))
            arm(ingest, step, patch)
            try:
                ingest._batch(rows_of(batch_id, backwards), batch_id)  # type: ignore[arg-type]
            except (Killed, Transient):
                continue
        batch_id += 1
    assert batch_id >= 1
    world.require_exact(batch_id)
    world.engine.dispose()


def test_a_batch_without_rows_is_committed_without_a_seq(template: Path, tmp_path: Path) -> None:
    """Law L1: bronze has every batch of the checkpoint since the first with rows; before it, nothing can be lost."""
    world = World(shutil.copytree(template, tmp_path / "env"))
    ingest = world.ingest()
    for batch_id, known in enumerate((None, 1, 2)):
        ingest._batch(Rows([]) if batch_id != 1 else rows_of(1, backwards=False), batch_id)  # type: ignore[arg-type]
        assert ingest._bronze.transaction_version(ingest._batch_app) == known
        require_bronze(ingest._checkpoint / "query", LandedBatches(known, None), ingest._bronze.table_id)
    assert ingest.head_seq == 1
    world.require_exact(1)


CUT, WHOLE = 150, 10_000
KILLED_BETWEEN = "before bronze"


@pytest.mark.parametrize(
    "lives",
    [
        [(KILLED_BETWEEN, CUT)],
        [(KILLED_BETWEEN, WHOLE), ("bronze with rows", WHOLE)],
        [(KILLED_BETWEEN, CUT), ("delete", CUT)],
        [(KILLED_BETWEEN, CUT), ("delete", CUT), ("bronze with rows", WHOLE)],
    ],
    ids=["several seqs", "repetition", "while given up", "repetition after a cut giving up"],
)
def test_verify_accuses_no_batch_that_ingest_has_yet_to_land(
    template: Path, tmp_path: Path, lives: list[tuple[str, int]]
) -> None:
    """Law L5: refused rows of a batch that was killed before bronze are ahead, however it is cut; no others are."""
    world = World(shutil.copytree(template, tmp_path / "env"))
    world.ingest()._batch(rows_of(0, backwards=False), 0)  # type: ignore[arg-type]
    for step, slice_bytes in lives:
        ingest = world.ingest()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(query, "IngestJob", partial(IngestJob, slice_bytes=slice_bytes))
            arm(ingest, step, patch)
            with pytest.raises(Killed):
                ingest._batch(rows_of(1, backwards=False), 1)  # type: ignore[arg-type]
    balance = verify(world.paths, world.settings.environment)
    assert (balance.problems, balance.totals.ahead) == ((), 4)
    stray = pa.Table.from_pylist([{"game_key": str(CHESS.key), "seq": 50, "pos": 0}], schema=QUARANTINE)
    ingest._quarantine.append([write_file(stray, world.paths.quarantine, ["seq", "game_key"])])
    balance = verify(world.paths, world.settings.environment)
    assert (balance.totals.phantom, balance.totals.ahead) == (1, 4)
    world.engine.dispose()


def test_verify_accuses_no_first_batch_above_seqs_without_rows(template: Path, tmp_path: Path) -> None:
    """Law L5: bronze may end with seqs of no row, as after an adoption; the batch above them is ahead."""
    world = World(shutil.copytree(template, tmp_path / "env"))
    ingest = world.ingest()
    ingest._batch(rows_of(0, backwards=False), 0)  # type: ignore[arg-type]
    ingest._bronze.commit([], ingest._bronze.cursor, 5)
    ingest = world.ingest()
    with pytest.MonkeyPatch.context() as patch:
        arm(ingest, KILLED_BETWEEN, patch)
        with pytest.raises(Killed):
            ingest._batch(rows_of(1, backwards=False), 1)  # type: ignore[arg-type]
    balance = verify(world.paths, world.settings.environment)
    assert (balance.problems, balance.totals.ahead) == ((), 4)
    world.engine.dispose()


def test_each_commit_states_from_when_on_ingest_was_there(template: Path, tmp_path: Path) -> None:
    """Rows that waited for ingest's start are known by it: that lasts until the first batch has landed."""
    world = World(shutil.copytree(template, tmp_path / "env"))
    ingest = world.ingest()
    ingest._batch(rows_of(0, backwards=False), 0)  # type: ignore[arg-type]
    ingest = world.ingest()
    begun = time.time()
    ingest._start.note(begun)
    for batch_id in (1, 2):
        ingest._batch(rows_of(batch_id, backwards=False), batch_id)  # type: ignore[arg-type]
    unknown, first, second = (each.read_since for each in commits_between(world.engine, 1, 3))
    assert (unknown, first) == (None, begun + PASS_LIMIT_SECONDS)
    assert second is not None
    assert begun < second < time.time()
    world.engine.dispose()
