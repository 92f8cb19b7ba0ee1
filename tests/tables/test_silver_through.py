"""Through which time a silver table is complete, against an oracle that knows all records."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.data.derived.carrying import DerivedStreams
from pipeline.data.derived.definitions import LATENESS, SilverDefinition
from pipeline.data.derived.held_ids import SilverMemory
from pipeline.data.derived.silver import Silver, SilverPosition
from pipeline.data.derived.silver_through import SilverThrough, silver_through
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.through import ThroughPair, closing_seq
from tests.tables.repair_world import CHESS
from tests.tables.silver_world import cut_log, merge
from tests.tables.through_world import ThroughWorld, random_step, through_world

POINTS: Final = SilverDefinition("points", "Chess")


@dataclass
class FollowedWorld:
    """Chess in a world that knows when the source took each record, with its silver table."""

    run: ThroughWorld
    cursors: dict[int, int] = field(default_factory=dict)  # the oracle's: of the game's table by version
    position: SilverPosition | None = None

    def note(self) -> None:
        """Let the oracle see which seq the game's table has reached."""
        self.cursors[open_table(self.run.world.paths.table(CHESS.key)).version()] = self.run.cursor(CHESS)

    def step(self) -> None:
        world = self.run.world
        table = world.paths.table(CHESS.key)
        driver = Silver(
            table,
            world.paths.silver / "points",
            world.environment,
            POINTS,
            world.registry.snapshot,
            memory=SilverMemory(1),
        )
        self.position = driver.step() or self.position

    def found(self, definition: SilverDefinition = POINTS) -> SilverThrough:
        world = self.run.world
        return silver_through(world.paths, world.environment, definition, self.run.clock.wall)

    def check(self) -> None:
        """The time is what the oracle says of the cursor that the game's table had at silver's version."""
        found = self.found()
        if self.position is None:
            assert (found.at, found.position) == (None, None)
            return
        assert found.position == self.position.version
        expected = self.run.expected(CHESS, self.cursors[self.position.version])
        assert found.at == pytest.approx(expected, abs=2e-6)
        for moment in () if found.at is None else (found.at, found.at - 1.0):
            seq = closing_seq(found.pairs, moment)
            assert seq is not None
            taken = [each.place for each in self.run.records if each.game == CHESS and each.at <= moment]
            assert all(self.run.seq_of[place] <= seq for place in taken), "bronze has them up to the closing seq"


@contextmanager
def followed_world(root: Path) -> Iterator[FollowedWorld]:
    with through_world(root) as run:
        yield FollowedWorld(run)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FollowedWorld]:
    with followed_world(tmp_path) as made:
        made.run.split(CHESS)
        made.note()
        made.step()
        for _ in range(2):
            made.run.beat()
            made.run.clock.tick(5)
        made.check()
        assert made.found().at is not None
        yield made


def trial(root: Path, seed: int, number: int) -> None:
    random = Random(seed)
    with followed_world(root) as world:
        for _ in range(number):
            random_step(world.run, random)
            if world.run.world.paths.table(CHESS.key).is_folder():
                world.note()
            if random.random() < 0.2:
                world.step()
            world.check()


@pytest.mark.parametrize("seed", range(2))
def test_silver_is_complete_through_what_its_game_was_at_its_version(tmp_path: Path, seed: int) -> None:
    """L8: the time is that of the game at the version that silver has read, and no later one."""
    trial(tmp_path, seed, 25)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_silver_is_complete_through_what_its_game_was_in_many_orders(tmp_path: Path) -> None:
    """L8: as the short one, over more orders of records, batches, heartbeats and clocks that go back."""
    for seed in range(20):
        trial(tmp_path / str(seed), 100 + seed, 80)


def test_a_silver_table_that_is_behind_has_an_earlier_time_than_its_game(world: FollowedWorld) -> None:
    """L8: a record that the game's table has and silver lacks holds back silver's time alone."""
    before, run = world.found().at, world.run
    run.produce(CHESS)
    run.land(9)
    run.split(CHESS)
    world.note()
    for _ in range(2):
        run.beat()
        run.clock.tick(5)
    assert world.found().at == before
    merge(run.world.paths.table(CHESS.key))
    world.note()
    world.check()
    world.step()
    world.check()
    assert (world.found().at or 0.0) > (before or 0.0)


def test_no_time_is_known_of_a_silver_table_that_is_made_again(world: FollowedWorld) -> None:
    """Unknown is no time: another definition, or a version that the game's log has lost, needs a new generation."""
    assert world.found(replace(POINTS, within=60)).at is None
    run = world.run
    table = run.world.paths.table(CHESS.key)
    for _ in range(12):
        run.produce(CHESS)
        run.land(9)
        run.split(CHESS)
        world.note()
    cut_log(table)
    assert world.found().at is None
    world.step()
    world.check()


def test_the_list_of_derived_streams_shows_their_times(world: FollowedWorld) -> None:
    """A person sees through which time a silver table is complete, and what became of its rows in a gold table."""
    run = world.run.world
    file = run.paths.root / "derived.yaml"
    file.write_text(
        "derived:\n- {name: hours, kind: gold, source: points, window: 1h, aggregates: {n: count}}\n"
        "- {name: points, kind: silver, game: Chess}\n- {name: new, kind: silver, game: Chess}\n"
    )

    def turnout(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["derived", *arguments, "--env-dir", str(run.paths.root)])
        assert done.exit_code == 0, done.output
        return done.output

    def listed() -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in json.loads(turnout("list", "--json").splitlines()[-1])["derived"]}

    turnout("apply", str(file), "--reason", "a test")
    shown = listed()
    at = world.found().at
    assert at is not None
    assert [shown[name]["through_time"] for name in ("points", "new")] == [pytest.approx(at), None]
    assert [shown["hours"][name] for name in ("source", "until", "late")] == ["points", None, None]
    DerivedStreams(run.settings, run.paths, run.engine, "a", lambda key: key == CHESS.key).finish()
    shown = listed()
    assert shown["hours"]["until"] == (at - LATENESS) // 3600 * 3600
    assert [shown["hours"][name] for name in ("counted", "late", "open", "error")] == [0, 0, 0, None]
    assert shown["hours"]["undated"] == shown["points"]["rows"] > 0, "the test's events have no time of their own"
    assert "0 late rows left out; 0 rows in open windows" in turnout("list")


def test_the_closing_seq_is_that_of_the_first_pair_with_the_moment() -> None:
    """A window ends at the first seq by which bronze has all that its source had taken; before, none is known."""
    pairs = [ThroughPair(4, 10.0, "{}"), ThroughPair(7, 20.0, "{}"), ThroughPair(9, 30.0, "{}")]
    assert [closing_seq(pairs, at) for at in (9.0, 10.0, 10.5, 20.0, 30.0, 30.5)] == [4, 4, 7, 7, 9, None]
