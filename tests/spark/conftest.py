"""One tuned session for all tests of this folder, and a small world to run real queries in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from listeners.sample import PassResult
from pipeline.data.ingest.query import Ingest, LandedRows
from pipeline.data.streams import bronze_to_game
from pipeline.data.streams.group import Group
from pipeline.data.verify.balance import Balance, verify
from pipeline.demo.simulate import Simulated, simulate
from pipeline.demo.simulator import SimulationPlan
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.games import generations, register_group
from tests.faults.faults import Faults


@pytest.fixture
def faults(failpoints: Path) -> Iterator[Faults]:
    """Fail-points to arm; none is armed when the test ends."""
    armed = Faults(failpoints)
    armed.forget()
    yield armed
    armed.forget()


def use_source(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queries of groups that start from now on, bounded ones too, read bronze by "delta" or by "tail"."""
    monkeypatch.setattr(
        bronze_to_game, "reads_tail", lambda bronze, _settings, *, once: source == "tail" and bronze.is_plain
    )


@pytest.fixture(params=["delta", pytest.param("tail", marks=pytest.mark.long)])
def each_source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with either source of a pass."""
    use_source(request.param, monkeypatch)
    return str(request.param)


@dataclass
class World:
    """One environment with real tables, and short ways to let everything in it happen."""

    spark: SparkSession
    settings: Settings
    paths: Paths
    engine: Engine
    landed: list[LandedRows] = field(default_factory=list)
    passes: list[PassResult] = field(default_factory=list)

    def simulate(self, events: int, games: int = 12, versions: int = 3, bad_share: float = 0.05) -> Simulated:
        plan = SimulationPlan(games=games, versions=versions, events=events, seed=7, bad_share=bad_share, hostile=True)
        return simulate(self.settings, self.paths, self.engine, plan, rate=None)

    def ingest_query(self) -> Ingest:
        return Ingest(self.spark, self.settings, self.paths, self.engine, self.landed.append)

    def ingest(self) -> None:
        """Ingest what is there; as supervision does, begin again where Spark's planner did not start in ten seconds."""
        for attempt in count(1):
            ingest = self.ingest_query()
            try:
                ingest.start(once=True).awaitTermination()
            except StreamingQueryException as error:
                if attempt == 3 or "Python worker failed to connect back" not in str(error):
                    raise
            else:
                ingest.close()
                return
            ingest.close()

    def group(self, name: str, publish: Callable[[PassResult], None] | None = None) -> Group:
        register_group(self.engine, name, placing())
        return Group(self.spark, self.settings, self.paths, self.engine, name, publish or self.passes.append)

    def split(self, group: Group) -> None:
        """Run the group over everything that is in bronze now."""
        group.start(once=True).awaitTermination()
        group.finish()

    def verify(self) -> Balance:
        return verify(self.paths, self.settings.environment, generations(self.engine))


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    settings, paths = load(tmp_path / "env", {})
    engine = open_store(settings, paths)
    yield World(spark, settings, paths, engine)
    engine.dispose()
