"""One environment under ingest without Spark, and the rows that are handed to it."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from sqlalchemy import Engine

from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest import query
from pipeline.data.ingest.checkpoint import LandedBatches
from pipeline.data.ingest.query import Ingest
from pipeline.data.ingest.source_checks import verify_source
from pipeline.data.ingest.sources.kind import Begin
from pipeline.data.verify.balance import verify
from pipeline.lake.delta.bronze import BRONZE
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.tables.repair_world import CHESS, FIRST


def wrapper(name: str, size: int) -> bytes:
    return Wrapper(game=name, schema_id=1, payload=bytes(size)).SerializeToString()


def batch_of(rows: list[tuple[str, int]], first: int, files: list[str] | None = None) -> pa.RecordBatch:
    """Return rows (game, payload bytes) as a source gives them; with files, as the landing table does."""
    count = len(rows)
    topics = [f"file:/landing/{name}" for name in files] if files else ["t"] * count
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([wrapper(*row) for row in rows], pa.binary()),
        "topic": pa.array(topics, pa.string()),
        "partition": pa.nulls(count, pa.int32()) if files else pa.array([0] * count, pa.int32()),
        "offset": pa.nulls(count, pa.int64()) if files else pa.array(range(first, first + count), pa.int64()),
        "source_time": pa.nulls(count, pa.timestamp("us", "UTC")),
        "headers": pa.nulls(count, BRONZE.field("headers").type),
        "source_clock": pa.repeat("landing" if files else "broker", count),
    }
    return pa.RecordBatch.from_pydict(columns)


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
        patch.setattr("pipeline.data.ingest.batch_attempts.forget_refused", killing(None))


def start(world: World, ingest: Ingest) -> Begin:
    """Check the source as `Ingest.start` does before it begins to read."""
    landed = LandedBatches(ingest._bronze.transaction_version(ingest._batch_app), ingest._quarantine.cursor)
    number, query = ingest._generation, ingest._checkpoint / "query"
    return verify_source(world.settings, world.paths, world.engine, number, ingest._bronze, query, landed)


def landing_world(env: Path) -> World:
    """Make an environment whose ingest has landed the one commit of its landing table."""
    world = World(env)
    ingest = world.ingest()
    rows = {"key": pa.nulls(3, pa.binary()), "value": pa.array([b"x"] * 3)}
    write_deltalake(Path(world.paths.landing), pa.table(rows), mode="append")
    name = DeltaTable(world.paths.landing).file_uris()[0].rsplit("/", 1)[-1]
    start(world, ingest)
    landed: Any = Rows([batch_of([("Chess", 40)] * 3, 0, [name] * 3)])
    ingest._batch(landed, 0)
    return world
