"""A stream that an output contract stops: before the first seq that violates, exactly once, and until it changes."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path
from random import Random

import pytest

from listeners.sample import Lane
from pipeline.base.errors import Refused
from pipeline.data.output_contracts.rules import ContractRule
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.passes import Passes
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.store.stream_control import submit_retry
from tests.tables.contracts_world import Driver, driver_of, give, refused, stopped
from tests.tables.foreign_world import ForeignWorld, passes, points, world
from tests.tables.killed_world import fated
from tests.tables.repair_world import CHESS, GO, broken, copied, good
from tests.tables.replay_laws import run

__all__ = ["passes", "world"]  # fixtures

STOP = ContractRule("low", "points", "stop", min=0)
REFUSE = ContractRule("low", "points", "quarantine", min=0)
SECRET = -7_654_321


def ingest(world: ForeignWorld) -> None:
    """Give bronze five seqs: Chess breaks the rule in the third, behind a damaged row of it, and again in the fifth."""
    world.ingest(good(1), good(2), good(-1, GO))
    world.ingest(broken(), good(3), good(-2, GO))
    world.ingest(broken(), good(4), good(SECRET), good(-3, GO))
    world.ingest(good(5), broken())
    world.ingest(good(-6), good(7), good(-4, GO))


BEFORE = {(2, 0): "malformed_payload"}
AFTER = {**BEFORE, (3, 0): "malformed_payload", (3, 2): "contract", (4, 1): "malformed_payload", (5, 0): "contract"}


def reasons(world: ForeignWorld) -> dict[tuple[int, int], str]:
    return {place: reason for place, (reason, _) in refused(world).items()}


def require_stopped(world: ForeignWorld) -> None:
    """Require that the stream stands before its third seq, with none of the rows from there anywhere."""
    assert (points(world), reasons(world), len(world.refused())) == ([1, 2, 3], BEFORE, 1)
    assert points(world, GO) == [-1, -2, -3, -4], "other games go on"
    decision = stopped(world)
    assert decision.parked_at is not None
    said = "Output contract: row 2 of seq 3 of 'Chess' breaks rule promise/low on column 'points'"
    assert decision.evidence == f"{said}; the stream stopped before it"


def require_all_landed(world: ForeignWorld) -> None:
    """Require each row of Chess in its table or in quarantine, exactly once."""
    assert (points(world), reasons(world), len(world.refused())) == ([1, 2, 3, 4, 5, 7], AFTER, 5)
    assert points(world, GO) == [-1, -2, -3, -4]
    assert stopped(world).parked_at is None
    assert world.verify().problems == ()


@pytest.mark.parametrize("in_pass", [False, True])
@pytest.mark.proves("G290")
def test_a_contract_stops_its_stream_until_it_changes(world: ForeignWorld, passes: Passes, *, in_pass: bool) -> None:
    """Law L5: rows before the first seq that violates land, none from it on does; a changed contract lets it go on."""
    give(world, STOP)
    ingest(world)
    driver = driver_of(world, passes)
    if in_pass:
        driver.run_pass(world.seq)
        assert points(world, GO) == [-1, -2, -3, -4]
        assert refused(world) == {}
    driver.read_all()
    require_stopped(world)
    assert driver.lane() == Lane.QUARANTINED
    assert str(SECRET) not in str(stopped(world))
    before = stopped(world)
    give(world, STOP, ContractRule("high", "points", max=100))
    driver.read_all()
    require_stopped(world)
    assert stopped(world) == before, "a warning lets no stream try again"
    give(world, REFUSE)
    driver.read_all()
    require_all_landed(world)
    assert driver.lane() != Lane.QUARANTINED


def test_a_retry_stops_at_the_same_row(world: ForeignWorld, passes: Passes) -> None:
    """Law L5: what a pass does follows from bronze, cursor and pinned set, so a person's retry changes nothing."""
    give(world, STOP)
    ingest(world)
    driver = driver_of(world, passes)
    driver.read_all()
    first = stopped(world).parked_at
    submit_retry(world.engine, CHESS.key, "ann")
    assert stopped(world).parked_at is None
    driver.read_all()
    require_stopped(world)
    assert first is not None
    assert (stopped(world).parked_at or 0.0) > first


def test_a_rebuild_and_a_replay_pass_no_stop(world: ForeignWorld, passes: Passes) -> None:
    """Law L12: a rebuild lands no row behind a stop and loses none before it; a replay lands no row that breaks it."""
    world.ingest(good(1), good(2))
    world.ingest(good(-3), broken())
    driver = driver_of(world, passes)
    give(world, REFUSE)
    driver.read_all()
    give(world, STOP)
    assert {each.landed for each in run(world).values()} == {0}
    assert reasons(world) == {(2, 0): "contract", (2, 1): "malformed_payload"}
    with pytest.raises(Refused, match="row 0 of seq 2 of 'Chess' breaks rule promise/low on column 'points', which"):
        rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert (points(world), len(world.refused())) == ([1, 2], 2)
    assert world.verify().problems == ()


def begun(world: ForeignWorld, pool: Executor, chunk: int = 100, slice_bytes: int = 10_000_000) -> Driver:
    """Return a process that starts now."""
    quarantine = CursorTable.create(world.paths.quarantine, QUARANTINE, "test")
    passes = Passes(world.paths.tables, quarantine, pool, ActiveGames(world.paths.root / "checkpoint", "shared"))
    return driver_of(world, passes, chunk=chunk, slice_bytes=slice_bytes)


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def copy(world: ForeignWorld, root: Path) -> ForeignWorld:
    made = copied(world, root)
    held = ForeignWorld(made.paths, made.settings, made.engine, made.seq, made.last_seqs)
    held.writers, held.profiles = {}, {}
    return held


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.proves("G290")
def test_a_driver_killed_between_any_two_effects_stops_there_too(
    world: ForeignWorld, pool: Executor, tmp_path: Path, *, changes: bool, stride: int
) -> None:
    """Laws L4, L5: the next driver stops at the same seq, or lands the rest exactly once where the contract changed."""
    give(world, STOP)
    ingest(world)
    for number in count(1, stride):
        made = copy(world, tmp_path / str(number))
        with fated(made.engine, number) as fate:
            first = begun(made, pool)
            first.run_pass(2)
            first.run_pass(made.seq)
            first.read_all()
        if changes:
            give(made, REFUSE)
        begun(made, pool).read_all()
        if changes:
            require_all_landed(made)
        else:
            require_stopped(made)
        made.engine.dispose()
        if not fate.is_dead:
            points_passed = {"mid_data_files", "after_quarantine_write", "between_table_commits", "in_catch_up"}
            assert points_passed <= {*fate.passed}
            break


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.proves("G290")
def test_bronze_cut_differently_stops_at_the_same_row(
    world: ForeignWorld, pool: Executor, tmp_path: Path, seed: int
) -> None:
    """Law L5: passes, chunks and slices of any size find the same first row, and land the same rows before its seq."""
    random = Random(seed)
    give(world, STOP, ContractRule("one", "points", "stop", max=90))
    rows = [random.choices([1, -1, 99] if seq > 2 else [1, 2], k=random.randint(2, 4)) for seq in range(1, 6)]
    for arrived in (rows := [*rows, [1, -1]]):
        world.ingest(*(good(number) for number in arrived), good(1, GO))
    places = [(seq, pos, number) for seq, of in enumerate(rows, 1) for pos, number in enumerate(of)]
    seq, pos, number = min(each for each in places if not 0 <= each[2] <= 90)
    rule = "low" if number < 0 else "one"
    for attempt in range(6):
        made = copy(world, tmp_path / str(attempt))
        driver = begun(made, pool, random.choice([1, 2, 3, 100]), random.choice([1, 10_000_000]))
        cuts = sorted(random.sample(range(1, 7), random.randint(0, 3)))
        for _, high in pairwise([0, *cuts]):
            driver.run_pass(high)
        driver.read_all()
        assert points(made) == [number for of in rows[: seq - 1] for number in of]
        assert stopped(made).evidence == (
            f"Output contract: row {pos} of seq {seq} of 'Chess' breaks rule promise/{rule} on column 'points'; "
            f"the stream stopped before it"
        )
        assert points(made, GO) == [1] * 6
        made.engine.dispose()
