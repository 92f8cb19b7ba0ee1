"""An environment that is fed, failed at and brought back, again and again."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from pyspark.errors import StreamingQueryException

from pipeline.base.failpoints import Injected
from pipeline.base.names import game_key
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.maintenance.run import one_round
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.demo.samples.supported import payload_schema
from pipeline.demo.simulate import register_samples
from pipeline.demo.simulator import SimulationPlan, Simulator, family, game_names
from pipeline.settings.maintenance import Maintenance
from pipeline.store.games import Game
from pipeline.store.stream_control import submit_control, submit_retry
from tests.faults.faults import Faults
from tests.faults.oracle import ProducerLog, judge, mirrored, produce, report

GAMES: Final = 12
_EAGER = Maintenance(small_files=3, bronze_commits=2, bronze_age_minutes=0.0)


class Life:
    """One such environment; the test's process is the driver of ingest and of group a.

    Besides its games there are `late` ones, which send from the beginning and are registered later, one by one.
    """

    def __init__(self, world: Any, faults: Faults, events: int, late: int = 0) -> None:
        self.world, self.faults = world, faults
        plan = SimulationPlan(games=GAMES, versions=4, events=events, seed=11, bad_share=0.02, hostile=True)
        self.late = game_names(GAMES + late, plan.seed, hostile=True)[GAMES:]
        known = register_samples(world.engine, plan)
        ids = {(family(game), version): schema_id for (game, version), schema_id in known.items()}
        versions = range(1, plan.versions + 1)
        unknown = {(game, version): ids[family(game), version] for game in self.late for version in versions}
        self.simulator = Simulator(replace(plan, games=GAMES + late), {**known, **unknown})
        self.log = ProducerLog(world.paths.root / "acknowledged.jsonl")
        self.group = world.group("a")
        self._changes = 0
        self._registered: str | None = None  # the last late game that was

    def produce(self, events: int) -> None:
        produce(self.simulator, self.world.paths.landing, self.log, events)

    def attempt(self) -> bool:
        """Ingest and split what is there; tell whether nothing failed. A failure leaves only what is on disk."""
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
            self.retry_all()
        raise AssertionError("the environment does not come to rest")

    def restart(self) -> None:
        """End the group and begin it anew: only what is on disk is known."""
        self.group.stop()
        self.group = self.world.group("a")

    def retry_all(self) -> None:
        for key in self.group.streams:
            submit_retry(self.world.engine, key, "test")

    # The ways to the fail-points that no pass leads to by itself.

    def fall_behind(self) -> None:
        """Let the group's query pass by what is in bronze, so that all of it is catch-up's; then catch up."""
        for key in self.group.streams:
            submit_control(self.world.engine, key, "test", desired="paused")
        self.attempt()
        for key in self.group.streams:
            submit_control(self.world.engine, key, "test", desired="running")
        self.attempt()

    def change_schema(self) -> None:
        """Give a game's newest schema one more field; the next commit of its table adds the column."""
        self._changes += 1
        game = self.simulator.games[self._changes % GAMES]
        message, descriptor = payload_schema(family(game), self.simulator.plan.versions)
        LocalRegistry(self.world.engine).register(game, message, with_field(message, descriptor, self._changes))
        self.attempt()

    def rebuild(self) -> None:
        """Make a game's table anew beside the group that owns it."""
        self.attempt()
        self._changes += 1
        name = self.simulator.games[self._changes % GAMES]
        with suppress(Injected):
            rebuild(
                self.world.paths,
                self.world.settings.environment,
                self.world.engine,
                LocalRegistry(self.world.engine).snapshot,
                Game(game_key(name), name),
            )

    def replay(self) -> None:
        """Replay quarantine, after one more late game was registered unless the last replay was cut short."""
        self.attempt()
        if self.late and not self._is_unfinished():
            game = self.late.pop()
            versions = range(1, self.simulator.plan.versions + 1)
            registrations = [Registration(game, *payload_schema(family(game), version)) for version in versions]
            LocalRegistry(self.world.engine).register_many(registrations)
            self._registered = game
        with suppress(Injected):
            self._replay(dry_run=False)

    def maintain(self) -> None:
        """Keep the tables small."""
        self.attempt()
        one_round(replace(self.world.settings, maintenance=_EAGER), self.world.paths, time.time(), thorough=True)

    def _is_unfinished(self) -> bool:
        return any(each.done.landed or each.done.present for each in self._replay(dry_run=True))

    def _replay(self, *, dry_run: bool) -> Any:
        names = [*self.simulator.games[:GAMES], *([self._registered] if self._registered else [])]
        return replay_all(
            self.world.paths,
            self.world.settings.environment,
            LocalRegistry(self.world.engine).snapshot,
            {game_key(name): name for name in names},
            Selection(),
            dry_run=dry_run,
        )


WAYS: Final[Mapping[str, Callable[[Life], object]]] = {
    "after_bronze_write": Life.attempt,
    "after_schema_pin": Life.attempt,
    "after_quarantine_write": Life.attempt,
    "mid_data_files": Life.attempt,
    "between_table_commits": Life.attempt,
    "after_table_commits": Life.attempt,
    "in_schema_change": Life.change_schema,
    "in_catch_up": Life.fall_behind,
    "in_rebuild_switch": Life.rebuild,
    "in_replay": Life.replay,
    "in_maintenance": Life.maintain,
}
"""How a life gets to each fail-point."""


_SEVERAL_HITS: Final = {"mid_data_files", "between_table_commits", "in_maintenance"}  # in each life's step
_TWO_HITS: Final = {"in_schema_change", "in_catch_up", "in_rebuild_switch", "in_replay"}  # before and after the act


def fail_everywhere(world: Any, faults: Faults, count: int, events: int, life_number: int = 0) -> Counter[str]:
    """Live with `count` faults, spread over all points, and return how many went off at each.

    Raises:
        AssertionError: a row was lost, doubled, misrouted or corrupted, or verify finds a fault.
    """
    life = Life(world, faults, events, late=count // (2 * len(WAYS)) + 1)
    draw = random.Random(5 + life_number)
    life.produce(events // count)
    life.rest()  # so that there are games to change, to rebuild and to tend
    for number in range(1, count):
        point = list(WAYS)[(life_number * (count - 1) + number) % len(WAYS)]
        life.produce(events // count)
        latest = 3 if point in _SEVERAL_HITS else 2 if point in _TWO_HITS else 1
        faults.arm(point, "raise", draw.randint(1, latest))
        WAYS[point](life)
        if number % 4 == 3:
            life.rest()
    life.rest()
    verdict, fired = judge(world.paths.root, life.log, mirrored(world.paths)), faults.fired()
    report(verdict, fired)
    assert verdict.clean, verdict
    assert verdict.events == events // count * count
    return fired


def with_field(message: str, descriptor: bytes, number: int) -> bytes:
    files = FileDescriptorSet.FromString(descriptor)
    package, _, name = message.rpartition(".")
    for file in files.file:
        for each in file.message_type:
            if file.package == package and each.name == name:
                each.field.add(
                    name=f"added_{number}",
                    number=1000 + number,
                    type=FieldDescriptorProto.TYPE_STRING,
                    label=FieldDescriptorProto.LABEL_OPTIONAL,
                )
    return files.SerializeToString(deterministic=True)
