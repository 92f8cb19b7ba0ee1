"""Output contracts on the small environment: put in force, what they refuse, and a driver that meets their stops."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from click.testing import CliRunner

from listeners.sample import Lane
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.output_contracts.rules import ContractRule, OutputContract, dumps
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import DemuxContext, committed
from pipeline.data.streams.outage import CachedRegistry
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import Demux, Settings
from pipeline.store import output_contracts
from pipeline.store.games import generations
from pipeline.store.output_contracts import read_contracts
from pipeline.store.stream_control import StreamControl, decided
from tests.game_streams import roster_of
from tests.tables.foreign_world import BronzeRows, ForeignWorld, catch_up_by
from tests.tables.repair_world import CHESS, World


def give(
    world: World, *rules: ContractRule, types: tuple[str, ...] = (), games: tuple[str, ...] = (CHESS.name,)
) -> None:
    """Put one contract in force, as `turnout contracts apply` does."""
    contract = OutputContract("promise", games, event_types=types, rules=rules)
    seen = read_contracts(world.engine).number
    output_contracts.apply(world.engine, dumps([contract] if rules else []), seen, "ann", "a test")


def refused(world: World) -> dict[tuple[int, int], tuple[str, str]]:
    rows = (
        open_table(world.paths.quarantine).to_pyarrow_table().to_pylist() if world.paths.quarantine.is_folder() else []
    )
    return {(row["seq"], row["pos"]): (row["reason"], row["detail"]) for row in rows}


@dataclass
class Driver:
    """A group's driver without Spark: passes over the seqs that a test names, and catch-up."""

    world: ForeignWorld
    passes: Passes
    roster: Roster
    schemas: CachedRegistry
    catch_up: CatchUp
    slice_bytes: int
    frontier: int = field(default=0)

    def run_pass(self, high: int) -> None:
        """Let the shared query have a micro-batch up to a seq, as `Demux` does."""
        self.roster.sync()
        pinned = self.schemas.snapshot(self.schemas.latest())
        streams = self.roster.for_pass(self.frontier)
        rows = BronzeRows(self.world, self.frontier, high, self.slice_bytes)
        try:
            outcome = self.passes.apply(rows, streams, pinned, Lane.RUN, repeated=False)
            self.frontier = high
            landed = committed(outcome)
            for key in landed:
                streams[key].complete_through = high
            self.roster.settle(outcome.failures, landed, len(streams))
        finally:
            self.roster.end_pass()

    def read_all(self) -> None:
        """Catch up with all of bronze."""
        self.roster.sync()
        head = self.world.seq
        while self.catch_up.step(lambda _: head, lambda _: head):
            pass

    def lane(self) -> Lane:
        return self.roster.streams[CHESS.key].lane


def driver_of(world: ForeignWorld, passes: Passes, *, chunk: int = 100, slice_bytes: int = 10_000_000) -> Driver:
    """Return a driver that starts now; `chunk` is the most seqs that catch-up reads at once."""
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    settings = Settings(demux=Demux(catchup_seqs=chunk))
    roster = roster_of(settings, world.paths, world.engine)
    schemas = CachedRegistry(LocalRegistry(world.engine, world.paths.bronze))
    context = DemuxContext(spark, settings, roster, schemas, lambda _: None)
    catch_up = catch_up_by(context, world, passes, slice_bytes)
    return Driver(world, passes, roster, schemas, catch_up, slice_bytes)


def stopped(world: World) -> StreamControl:
    """Return what is decided about Chess."""
    return decided(world.engine).get(CHESS.key, StreamControl())


def values(world: World) -> tuple[list[str], int, dict[str, int], dict[str, int]]:
    """Return problems, mismatches, and quarantined rows that land today or do not, by `turnout verify --values`."""
    wanted = Wanted(world.registry.snapshot())
    balance = verify(world.paths, world.environment, generations(world.engine), wanted=wanted)
    assert balance.values is not None
    found = balance.values
    return [str(each) for each in balance.problems], found.mismatches, dict(found.decodable), dict(found.undecodable)


def command(world: World, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["contracts", *arguments, "--env-dir", str(world.paths.root)])
    if code:
        assert isinstance(done.exception, Refused), done.output
        return str(done.exception)
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.output
