"""An environment that is fed, failed at and brought back, again and again."""

from typing import Any

from pyspark.errors import StreamingQueryException

from pipeline.failpoints import Injected
from pipeline.ingest.simulate import register_samples
from pipeline.ingest.simulator import Plan, Simulator
from pipeline.store.decisions import ask_retry
from tests.faults.faults import Faults
from tests.faults.oracle import ProducerLog, produce


class Life:
    """One such environment; the test's process is the driver of ingest and of group a."""

    def __init__(self, world: Any, faults: Faults, events: int) -> None:
        self.world, self.faults = world, faults
        plan = Plan(games=12, versions=4, events=events, seed=11, bad_share=0.02)
        self.simulator = Simulator(plan, register_samples(world.engine, plan))
        self.log = ProducerLog(world.paths.root / "acknowledged.jsonl")
        self.group = world.group("a")

    def produce(self, events: int) -> None:
        produce(self.simulator, self.world.paths.landing, self.log, events)

    def attempt(self) -> bool:
        """Ingest and split what is there; tell whether nothing failed. What failed leaves only what is on disk."""
        try:
            self.world.ingest()
            self.world.split(self.group)
        except (Injected, StreamingQueryException):
            self.restart()
            return False
        return True

    def rest(self) -> None:
        """Let everything come to rest."""
        self.faults.disarm()
        for _ in range(5):
            if self.attempt() and not any(stream.error for stream in self.group.streams.values()):
                return
            self._retry_all()
        raise AssertionError("the environment does not come to rest")

    def fall_behind(self) -> None:
        """Let the group miss what is in bronze, so that the next attempt catches up."""
        self.world.ingest()
        for stream in self.group.streams.values():
            stream.behind = True

    def restart(self) -> None:
        """End the group and begin it anew: only what is on disk is known."""
        self.group.stop()
        self.group = self.world.group("a")

    def _retry_all(self) -> None:
        for key in self.group.streams:
            ask_retry(self.world.engine, key, "test")
