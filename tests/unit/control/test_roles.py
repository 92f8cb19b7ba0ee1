"""Roles: who may steer what is decided in one place, and by the controller when it begins."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from pipeline.base.errors import Refused
from pipeline.control import roles
from pipeline.control.acts import DirectAct
from pipeline.control.controller import KINDS
from pipeline.control.gate import role_of
from pipeline.control.operations import pauses
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.roles import CONTROLLER, Role, current, require, same_person
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Roles, load
from pipeline.store import members
from pipeline.store.assignments import read_assignments
from pipeline.store.database.states import OperationKind
from pipeline.store.database.tables import role_members
from pipeline.store.games import record_seen
from pipeline.store.operations import operation, submit
from pipeline.store.stream_control import decided

NAMED = Roles(operators=("olga",), movers=("max",), access_admins=("ada",))
REPAIRS = {
    "pause", "resume", "retry", "replay", "dedupe", "rebuild", "restart",
    "onboard", "propose a game", "reject a game", "register a schema", "approve a schema", "reject a schema",
    "trust a registry", "give up a registry", "accept lost schemas", "set an own query", "accept a gap",
    "adopt a source", "break the demo", "accept-type", "withdraw-type", "nest-type", "flatten-type",
    "pin-variations", "unpin-variations", "refuse-variation", "allow-variation", "apply output contracts",
    "apply derived streams", "pause-derived", "resume-derived", "repair-derived",
    "close a day", "revoke an edge producer",
    "reopen a day", "approve a reopening", "reject a reopening",
    "merge-columns", "part-columns",
    "declare", "undeclare",
}  # fmt: skip
STEERS = {
    "move", "start", "stop", "retire", "restore", "isolate", "create a group", "change a group", "remove a group",
    "set a priority", "stop the environment", "apply onboarding rules", "apply edge producers",
}  # fmt: skip
ACCESS = {
    "access", "decide about a request", "ignore drift", "stop ignoring drift", "add a user", "relocate tables",
    "keep-views", "drop-views",
}  # fmt: skip


def may(had: Roles, actor: str, act: str) -> bool:
    return roles.may(had, actor, role_of(act))


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
        ("max", "access", False),
        (CONTROLLER, "isolate", True),
    ],
)
def test_who_may_what(actor: str, kind: str, expected: bool) -> None:
    """Operators repair, movers also change who carries what, and whoever has no name in the settings may nothing."""
    assert may(NAMED, actor, kind) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Ann@X.com", "ann@x.COM", True),
        ("straße@x.com", "strasse@x.com", False),
        ("\u212aim@x.com", "kim@x.com", False),
        ("Ann", "ann", False),
    ],
)
def test_who_is_one_person(one: str, other: str, expected: bool) -> None:
    """H2: addresses count without case of A to Z; what only Unicode folds together is another mailbox."""
    assert same_person(one, other) == expected


@pytest.mark.proves("H2")
def test_each_role_may_exactly_what_it_is_for() -> None:
    """H2: of all roles and acts exactly these cells are allowed; a mover gives no access, an admin moves nothing."""
    acts = {*map(str, OperationKind), *map(str, DirectAct)}
    assert acts == REPAIRS | STEERS | ACCESS
    allowed = {actor: {act for act in acts if may(NAMED, actor, act)} for actor in ("olga", "max", "ada", "eve", "")}
    assert allowed == {"olga": REPAIRS, "max": REPAIRS | STEERS, "ada": ACCESS, "eve": set(), "": set()}


def test_a_role_given_to_a_group_is_held_by_who_is_in_it_now(engine: Engine, tmp_path: Path) -> None:
    """Roles come from groups of the catalog, by name or by identity; who has left, or what is old news, has none."""
    settings, _ = load(
        tmp_path, {"TURNOUT_ROLES__MOVERS": '["group:crew", "max"]', "TURNOUT_ACCESS__REFRESH_SECONDS": "1"}
    )
    settings = replace(settings, access=replace(settings.access, identities={"root": "Ann@example.com"}))
    assert not may(current(settings, engine), "root", "move")
    members.keep(engine, {"crew": ["ann@example.com", "bob@example.com"], "others": ["eve"]})
    there = current(settings, engine)
    assert [may(there, who, "move") for who in ("root", "bob@example.com", "max", "eve", "")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    members.keep(engine, {"crew": ["bob@example.com"]})
    assert not may(current(settings, engine), "root", "move")
    with engine.begin() as connection:
        connection.execute(update(role_members).values(seen_at=role_members.c.seen_at - 63))
    assert [may(current(settings, engine), who, "move") for who in ("bob@example.com", "max")] == [False, True]


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
        require(NAMED, "olga", Role.MOVER, "move")


def test_a_role_that_was_taken_away_meanwhile_counts(engine: Engine, tmp_path: Path) -> None:
    """The controller checks again when it begins: who may no longer gets nothing done."""
    record_seen(engine, {"g": "G"}, 1, placing())
    facts = pauses.plan("pause", ["g"], read_assignments(engine), {})
    submitted = submit(engine, pauses.intent("pause", facts, "olga", ""))
    settings, paths = load(tmp_path, {"TURNOUT_ROLES__MOVERS": '["max"]'})
    tick(ControlContext(settings, engine, paths), KINDS)
    assert "Nothing was done: 'olga' may not pause" in str(operation(engine, submitted.operation_id).outcome)
    assert decided(engine) == {}
