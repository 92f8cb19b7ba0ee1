"""The facts that a judgement of health gets."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from listeners.sample import StreamState
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.judgement import Judgement, judge_fleet
from pipeline.health.verdicts.liveness import HeldLease, ProcessRun
from pipeline.health.verdicts.processes import FleetFacts
from pipeline.health.verdicts.reported import AssignedGame, GroupIntent
from pipeline.store.rows import Driver, SourceGap, SourceReading

NOW = 1_800_000_000.0
INGEST = Driver("ingest", "main", "host", 7, NOW - 600, NOW - 2, "running", None, 9)
DRIVER = Driver("group", "a", "host", 1, NOW - 600, NOW - 2, "running", None, 9, run_id=1)
CONTROLLER = Driver("controller", "main", "host", 5, NOW - 600, NOW - 2, "running", None, None)
REPORTED = StreamState("g", "a", "RUN", "RUNNING", NOW - 500, 9, NOW - 2, 1.0, 5.0, 2.0, 100, 0, None, NOW - 2)
LEASE = HeldLease(DRIVER.process, NOW - 600, NOW + 20)
RUN = ProcessRun(1, NOW - 610, None, died=False, message=None)
LEVEL = SourceReading(NOW - 2, 0.0, 0.0, 0, 60.0)
SUPERVISED, BY_HAND = GroupIntent("running", "local"), GroupIntent("running")


@dataclass(frozen=True)
class Given:
    """A fleet of one group with one game; None leaves a part out."""

    driver: Driver | None = DRIVER
    lease: HeldLease | None = LEASE
    run: ProcessRun | None = RUN
    intent: GroupIntent | None = SUPERVISED
    reported: StreamState | None = REPORTED
    controller: Driver | None = CONTROLLER
    games: int = 1
    waiting: int = 0
    ingest: Driver = INGEST
    newest_bronze_at: float | None = None
    source: SourceReading | None = LEVEL
    gaps: Sequence[SourceGap] = ()
    past: tuple[ProcessRun, ...] = ()  # runs that ended

    def judge(self) -> Judgement:
        drivers = {
            (each.kind, each.name): each for each in (self.ingest, self.driver, self.controller) if each is not None
        }
        game = AssignedGame("g", "a", self.reported)
        return judge_fleet(
            FleetFacts(
                now=NOW,
                drivers=drivers,
                leases={("group", "a"): self.lease} if self.lease is not None else {},
                runs={("group", "a"): self.run} if self.run is not None else {},
                ended={("group", "a"): self.past},
                groups={"a": self.intent} if self.intent is not None else {},
                games=[game] * self.games,
                waiting_operations=self.waiting,
                newest_bronze_at=self.newest_bronze_at,
                source=self.source,
                gaps=self.gaps,
            ),
            registered(),
        )

    def group(self) -> tuple[str, str | None]:
        state = self.judge().driver("group", "a")
        assert state is not None
        return state.liveness.state, state.liveness.reason

    def game(self) -> tuple[str, str | None]:
        verdict = self.judge().games["g"]
        return verdict.status, verdict.reason


ages = st.sampled_from([-3600.0, -5.0, 0.0, 2.0, 14.0, 20.0, 600.0])
processes = st.tuples(st.just("host"), st.integers(1, 3))


def drivers(kind: str, name: str) -> st.SearchStrategy[Driver | None]:
    made = st.builds(
        lambda process, started, heartbeat_age, state, error: Driver(
            kind, name, process[0], process[1], NOW - started, NOW - heartbeat_age, state, error, 9, run_id=process[1]
        ),
        processes, ages, ages, st.sampled_from(["starting", "running", "failed", "stopped", "skewed", "purple"]),
        st.sampled_from([None, "it broke"]),
    )  # fmt: skip
    return st.none() | made
