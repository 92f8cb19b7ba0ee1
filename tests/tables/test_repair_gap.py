"""A gap in bronze is a person's to accept: the cursor moves over what is lost and over nothing else."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.data.repair import rebuild as rebuilds
from pipeline.data.repair.gap import Accepted, accept_gap
from pipeline.data.repair.rebuild import Rebuilt, rebuild
from pipeline.data.repair.report import render_rebuilt
from pipeline.data.verify.report import render_balance
from pipeline.store import audit
from pipeline.store.stream_control import decided
from tests.tables.repair_world import CHESS, GO, World, good, make_world


def accept(world: World, reason: str = "restored nowhere") -> Accepted:
    return accept_gap(world.paths, world.environment, world.engine, world.registry.snapshot(), CHESS, "ann", reason)


def rebuilt(world: World) -> Rebuilt:
    return rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)


def lose(world: World, seq: int) -> None:
    DeltaTable(world.paths.bronze).delete(f"seq = {seq} and game_key = '{CHESS.key}'")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture
def applied(world: World) -> World:
    """Four commits of two games, of which chess has applied the first."""
    world.register(GO)
    for number in range(1, 5):
        world.ingest(good(number), good(number, GO))
    world.split(through=1)
    return world


@pytest.mark.proves("G56")
def test_the_cursor_moves_up_to_the_next_row_that_bronze_has(applied: World) -> None:
    """Law L4: the rows behind the gap connect then, and each of them lands."""
    lose(applied, 2)
    assert accept(applied) == Accepted(str(CHESS.key), 1, 2)
    applied.split()
    assert applied.rows() == [(1, 0), (3, 0), (4, 0)]
    history = DeltaTable(applied.paths.table(CHESS.key)).history()
    assert [each["turnout"] for each in history if each.get("turnout", "").startswith("gap")] == [
        "gap above seq 1 up to seq 2 accepted by ann: restored nowhere"
    ]
    assert decided(applied.engine)[CHESS.key].parked_at is None


@pytest.mark.proves("G56")
def test_an_accepted_gap_is_no_fault_and_hinders_no_rebuild(applied: World) -> None:
    """Verify and rebuild leave an accepted gap out and say so, also one in two parts, and after the rebuild."""
    lose(applied, 2)
    lose(applied, 3)
    broken = applied.verify()
    assert (broken.ok, broken.totals.broken_chain, broken.totals.accepted_gaps) == (False, 1, 0)
    accept(applied)
    applied.split()
    applied.split(GO)
    for _ in range(2):
        balance = applied.verify()
        assert (balance.problems, balance.totals.accepted_gaps) == ((), 1)
        assert "accepted gaps" in render_balance(balance)
        done = rebuilt(applied)
        assert (done.gaps, applied.rows()) == (1, [(1, 0), (4, 0)])
        assert "1 accepted gap(s) in bronze left out" in render_rebuilt(done)


def test_gaps_that_touch_are_one_and_others_are_still_faults(applied: World) -> None:
    """Gaps accepted one after the other connect; rows deleted by hand later are refused and named as before."""
    applied.split(through=1)
    lose(applied, 2)
    accept(applied)
    lose(applied, 3)
    accept(applied)
    applied.split()
    assert applied.verify().totals.broken_chain == 0
    assert rebuilt(applied).gaps == 1
    applied.ingest(good(5))
    applied.split()
    lose(applied, 4)
    assert applied.verify().totals.broken_chain == 1
    with pytest.raises(Refused, match="before seq 5"):
        rebuilt(applied)


@pytest.mark.proves("G56")
def test_a_lost_row_that_nobody_accepted_is_no_part_of_a_gap(applied: World) -> None:
    """A row that had landed and is deleted later was never accepted as lost: a rebuild would lose it."""
    lose(applied, 2)
    accept(applied)
    applied.split()
    lose(applied, 1)
    assert applied.verify().totals.broken_chain == 1
    with pytest.raises(Refused, match="before seq 3"):
        rebuilt(applied)


def test_rows_that_are_gone_at_the_end_are_moved_over(applied: World) -> None:
    """Seqs that ingest reported and bronze lacks are a gap too, though no row follows."""
    applied.split(through=3)
    lose(applied, 4)
    assert applied.verify().totals.bronze_holes == 1  # no row follows whose chain could be broken
    assert accept(applied) == Accepted(str(CHESS.key), 3, 4)
    assert applied.verify().totals.bronze_holes == 0
    applied.ingest(good(5))
    applied.split()
    assert applied.rows()[-1] == (5, 0)


def test_a_rebuild_leaves_out_an_accepted_gap_at_the_end(applied: World) -> None:
    """Law L12: what a person has accepted stays so, and the next row connects."""
    applied.split(through=3)
    lose(applied, 4)
    accept(applied)
    assert rebuilt(applied).cursor == 4
    applied.streams.clear()
    applied.ingest(good(5))
    applied.split()
    assert applied.rows()[-1] == (5, 0)
    assert applied.verify().ok


def test_a_gap_that_is_accepted_during_a_rebuild_stays_accepted(
    applied: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L15: the new generation is no further back than what a person has accepted, and the next row connects."""
    applied.split(through=3)
    lose(applied, 4)

    def meanwhile(_point: str) -> None:
        monkeypatch.setattr(rebuilds, "hit", lambda _point: None)
        accept(applied)

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    assert rebuilt(applied).cursor == 4
    applied.streams.clear()
    applied.ingest(good(5))
    applied.split()
    assert applied.rows()[-1] == (5, 0)


@pytest.mark.proves("G24")
def test_a_wrong_name_accepts_no_gap(applied: World) -> None:
    """Law L4: under another environment's name no cursor is found, and everything would seem to be lost."""
    version = DeltaTable(applied.paths.table(CHESS.key)).version()
    with pytest.raises(Refused, match="belongs to the environment"):
        accept_gap(applied.paths, "wrong", applied.engine, applied.registry.snapshot(), CHESS, "ann", "gone")
    assert DeltaTable(applied.paths.table(CHESS.key)).version() == version


def test_a_game_that_lost_its_first_rows_gets_a_table(world: World) -> None:
    """A game with no table yet is not stuck for ever, and a refusal leaves no empty table behind."""
    for number in (1, 2):
        world.ingest(good(number))
    with pytest.raises(Refused, match="No gap follows"):
        accept(world)
    assert not world.paths.table(CHESS.key).is_folder()
    lose(world, 1)
    assert accept(world) == Accepted(str(CHESS.key), 0, 1)
    world.split()
    assert world.rows() == [(2, 0)]


@pytest.mark.proves("G56")
def test_where_nothing_is_lost_nothing_is_moved(applied: World) -> None:
    """No row that bronze has is ever skipped."""
    with pytest.raises(Refused, match="No gap follows"):
        accept(applied)
    lose(applied, 3)
    with pytest.raises(Refused, match="No gap follows"):
        accept(applied)
    lose(applied, 2)
    applied.forget(CHESS)
    assert accept(applied) == Accepted(str(CHESS.key), 1, 3)
    with pytest.raises(Refused, match="No gap follows"):
        accept(applied)


def test_who_accepted_a_gap_stands_in_the_audit_log(applied: World) -> None:
    """Audited before and after it is done; a refusal is logged as failed, and without the log nothing is done."""
    accepting = ["stream", "accept-gap", "Chess", "--reason", " gone ", "--env-dir", str(applied.paths.root)]
    with pytest.raises(Refused, match="No gap follows"):
        CliRunner().invoke(cli, accepting, catch_exceptions=False)
    lose(applied, 2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit, "begin", _no_log)
        with pytest.raises(OSError, match="no log"):
            CliRunner().invoke(cli, accepting, catch_exceptions=False)
    assert DeltaTable(applied.paths.table(CHESS.key)).history()[0].get("turnout") is None
    CliRunner().invoke(cli, accepting, catch_exceptions=False)
    assert [
        (each.actor, each.action, each.targets, each.detail, each.phase, each.outcome)
        for each in audit.entries(applied.engine)
    ] == [
        (current_user(), "accept-gap", (f"game:{CHESS.key}",), {"reason": "gone"}, phase, outcome)
        for phase, outcome in (("begun", None), ("ended", "failed"), ("begun", None), ("ended", "succeeded"))
    ]
    assert audit.verify(applied.engine).unended == ()


def _no_log(*_arguments: object) -> None:
    raise OSError("no log")
