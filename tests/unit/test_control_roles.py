"""Roles: who may steer what is decided in one place, and by the controller when it begins."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from pipeline.control import pauses
from pipeline.control.controller import KINDS
from pipeline.control.engine import World, tick
from pipeline.control.roles import CONTROLLER, may, require
from pipeline.errors import Refused
from pipeline.settings import Roles, load
from pipeline.store.decisions import decided
from pipeline.store.games import record_seen
from pipeline.store.operations import ask, operation
from pipeline.store.seats import seats

NAMED = Roles(operators=("olga",), movers=("max",))


@pytest.mark.parametrize(
    ("actor", "kind", "expected"),
    [
        ("olga", "retry", True),
        ("olga", "restart", True),
        ("olga", "move", False),
        ("olga", "stop", False),
        ("olga", "change a group", False),
        ("max", "retry", True),
        ("max", "move", True),
        ("eve", "retry", False),
        ("", "move", False),
        (CONTROLLER, "isolate", True),
    ],
)
def test_who_may_what(actor: str, kind: str, expected: bool) -> None:
    """Operators repair, movers also change who carries what, and whoever has no name in the settings may nothing."""
    assert may(NAMED, actor, kind) == expected


def test_every_kind_of_operation_needs_a_role() -> None:
    """A kind that somebody forgets to sort needs the stronger role: nothing is open by accident."""
    assert [kind for kind in KINDS if may(NAMED, "eve", kind)] == []
    assert may(NAMED, "max", "something new")
    assert not may(NAMED, "olga", "something new")


def test_where_nobody_is_named_everybody_may() -> None:
    """On a laptop whoever reaches the environment may steer it; one name in one list ends that for both."""
    assert may(Roles(), "eve", "move")
    assert not may(Roles(movers=("max",)), "eve", "retry")


def test_the_refusal_says_who_can_help() -> None:
    """The sentence names the role, and the setting that gives it."""
    with pytest.raises(
        Refused, match=r"'olga' may not move: it needs the role mover\. The setting roles\.movers names"
    ):
        require(NAMED, "olga", "move")


def test_a_role_that_was_taken_away_meanwhile_counts(engine: Engine, tmp_path: Path) -> None:
    """The controller checks again when it begins: who may no longer gets nothing done."""
    record_seen(engine, {"g": "G"}, 1)
    facts = pauses.plan("pause", ["g"], seats(engine), {})
    asked = ask(engine, pauses.wish("pause", facts, "olga", ""))
    settings, paths = load(tmp_path, {"TURNOUT_ROLES__MOVERS": '["max"]'})
    tick(World(settings, engine, paths), KINDS)
    assert "Nothing was done: 'olga' may not pause" in str(operation(engine, asked.operation_id).outcome)
    assert decided(engine) == {}
