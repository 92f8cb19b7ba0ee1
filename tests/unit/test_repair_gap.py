"""A gap in bronze is a person's to accept: the cursor moves over what is lost and over nothing else."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.errors import Refused
from pipeline.repair.gap import Accepted, accept_gap
from pipeline.store import audit
from pipeline.store.stream_control import decided
from tests.unit.repair_world import CHESS, GO, World, good, make_world


def accept(world: World, reason: str = "restored nowhere") -> Accepted:
    return accept_gap(world.paths, world.environment, world.engine, world.registry.snapshot(), CHESS, "ann", reason)


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


def test_the_cursor_moves_up_to_the_next_row_that_bronze_has(applied: World) -> None:
    """Law L4: the rows behind the gap connect then, and each of them lands."""
    lose(applied, 2)
    assert accept(applied) == Accepted(str(CHESS.key), 1, 2)
    applied.split()
    assert applied.rows() == [(1, 0), (3, 0), (4, 0)]
    history = DeltaTable(applied.paths.table(CHESS.key)).history()
    assert [each["turnout"] for each in history if "turnout" in each] == [
        "gap up to seq 2 accepted by ann: restored nowhere"
    ]
    assert decided(applied.engine)[CHESS.key].parked_at is None


def test_rows_that_are_gone_at_the_end_are_moved_over(applied: World) -> None:
    """What ingest told and bronze no longer has is a gap too, though no row follows it."""
    applied.split(through=3)
    lose(applied, 4)
    assert accept(applied) == Accepted(str(CHESS.key), 3, 4)
    applied.ingest(good(5))
    applied.split()
    assert applied.rows()[-1] == (5, 0)


def test_a_game_that_lost_its_first_rows_gets_a_table(world: World) -> None:
    """A game with no table yet is not stuck for ever, and a refusal leaves no empty table behind."""
    for number in (1, 2):
        world.ingest(good(number))
    with pytest.raises(Refused, match="lost nothing"):
        accept(world)
    assert not world.paths.table(CHESS.key).exists()
    lose(world, 1)
    assert accept(world) == Accepted(str(CHESS.key), 0, 1)
    world.split()
    assert world.rows() == [(2, 0)]


def test_where_nothing_is_lost_nothing_is_moved(applied: World) -> None:
    """No row that bronze has is ever skipped, and nobody accepts a loss without a reason."""
    with pytest.raises(Refused, match="lost nothing"):
        accept(applied)
    lose(applied, 3)
    with pytest.raises(Refused, match="lost nothing"):
        accept(applied)
    lose(applied, 2)
    with pytest.raises(Refused, match="Say why"):
        accept(applied, " ")
    applied.forget(CHESS)
    assert accept(applied) == Accepted(str(CHESS.key), 1, 3)
    with pytest.raises(Refused, match="lost nothing"):
        accept(applied)


def test_who_accepted_a_gap_stands_in_the_audit_log(applied: World) -> None:
    """Begun before it is done, ended after; what is refused has failed, and without the log nothing is done."""
    with pytest.raises(Refused, match="Bronze has lost nothing"):
        accept(applied)
    lose(applied, 2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit, "begin", _no_log)
        with pytest.raises(OSError, match="no log"):
            accept(applied)
    assert DeltaTable(applied.paths.table(CHESS.key)).history()[0].get("turnout") is None
    accept(applied)
    assert [
        (each.actor, each.action, each.targets, each.phase, each.outcome) for each in audit.entries(applied.engine)
    ] == [
        ("ann", "accept-gap", (f"game:{CHESS.key}",), phase, outcome)
        for phase, outcome in (("begun", None), ("ended", "failed"), ("begun", None), ("ended", "succeeded"))
    ]
    assert audit.verify(applied.engine).unended == ()


def _no_log(*_arguments: object) -> None:
    raise OSError("no log")
