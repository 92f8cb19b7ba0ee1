"""The ingest query's own code over local rows: whatever is killed and however a batch is cut, each row lands once."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from sqlalchemy import Engine

from pipeline.contracts.registry import LocalRegistry
from pipeline.delta.data_files import write_file
from pipeline.delta.quarantine import QUARANTINE
from pipeline.errors import Transient
from pipeline.health.status import PASS_LIMIT_SECONDS
from pipeline.ingest import query
from pipeline.ingest.bronze_writer import IngestJob
from pipeline.ingest.checkpoint import Landed, require_bronze
from pipeline.ingest.query import Ingest
from pipeline.settings import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.processes.drivers import commits_between
from pipeline.verify.balance import verify
from tests.tables.repair_world import CHESS, FIRST
from tests.tables.test_ingest_slices import batch_of

ROWS = 12


class Rows:
    """A frame of local rows: as much of Spark's as the ingest query uses."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def coalesce(self, _: int) -> "Rows":
        return self

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> "Rows":  # noqa: N802 - Spark's name
        return Rows(list(task(iter(self._batches))))

    def collect(self) -> list[Any]:
        return [SimpleNamespace(report=text) for each in self._batches for text in each["report"].to_pylist()]


def rows_of(batch_id: int, backwards: bool) -> Rows:
    """Return a micro-batch as Spark plans it again and again; its two landing files may come in either order."""
    names = ["Chess", "unknown", "Chess", "Chess", "unknown", "Chess"]
    events = [(name, 40 * at) for at, name in enumerate(names)]
    parts = [batch_of(events, 0, [f"{batch_id}-{file}.parquet"] * len(events)) for file in (0, 1)]
    return Rows(parts[::-1] if backwards else parts)


class World:
    """An environment whose batches are landed, killed and repeated."""

    def __init__(self, env: Path) -> None:
        self.settings: Settings
        self.paths: Paths
        self.settings, self.paths = load(env, {})
        self.engine: Engine = open_store(self.settings, self.paths)

    def ingest(self) -> Ingest:
        spark: Any = None
        return Ingest(spark, self.settings, self.paths, self.engine, lambda _: None)

    def require_exact(self, batches: int) -> None:
        """Each row is in bronze once, each refused one in quarantine once, and the chain is unbroken."""
        balance = verify(self.paths, self.settings.environment)
        assert balance.ok, balance.problems
        assert balance.totals.bronze_rows == ROWS * batches
        table = DeltaTable(self.paths.bronze).to_pyarrow_table(columns=["topic", "offset"]).to_pylist()
        assert {1} == set(Counter((row["topic"], row["offset"]) for row in table).values())
        refused = DeltaTable(self.paths.quarantine).to_pyarrow_table(columns=["seq", "pos"])
        assert refused.num_rows == balance.totals.quarantined == 4 * batches


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with one registered game and nothing ingested; making one takes a second."""
    env = tmp_path_factory.mktemp("template") / "env"
    world = World(env)
    LocalRegistry(world.engine).register(CHESS.name, "t.M", FIRST.descriptor_set)
    world.ingest()
    world.engine.dispose()
    return env


class Killed(BaseException):
    """The process ends here."""


def killing(call: Callable[..., object] | None = None) -> Callable[..., None]:
    def die(*arguments: object, **named: object) -> None:
        if call is not None:
            call(*arguments, **named)
        raise Killed

    return die


STEPS = ("", "task", "before quarantine", "after quarantine", "before bronze", "after bronze", "reporting", "delete")


def arm(ingest: Ingest, step: str, patch: pytest.MonkeyPatch) -> None:
    """Let the process die at a step; without one it lives."""
    place, _, what = step.rpartition(" ")
    if what in {"quarantine", "bronze"}:
        table = ingest._quarantine if what == "quarantine" else ingest._bronze
        patch.setattr(table, "commit", killing(table.commit if place == "after" else None))
    elif step == "task":
        patch.setattr(query, "land", killing(None))
    elif step == "reporting":
        patch.setattr(ingest, "_remember", killing(None))
    elif step == "bronze with rows":  # and not the commit that gives up an attempt
        real = ingest._bronze.commit
        patch.setattr(
            ingest._bronze, "commit", lambda files, *rest, **more: (killing() if files else real)(files, *rest, **more)
        )
    elif step == "delete":
        patch.setattr("pipeline.ingest.batch_attempts.forget_refused", killing(None))


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
        require_bronze(ingest._checkpoint / "query", Landed(known, None), ingest._bronze.table_id)
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
