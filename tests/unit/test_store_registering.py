"""People register schemas: a plan, then the write, or a request that a second person approves."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, select

from pipeline.contracts.policies import parse_policies
from pipeline.contracts.registry import Registered, Registration
from pipeline.control.registering import requests
from pipeline.control.registering.proposals import approve, describe, propose, register, reject, review
from pipeline.control.registering.requests import SchemaRequest
from pipeline.errors import Refused
from pipeline.names import game_key
from pipeline.settings import Roles, Schemas, Settings
from pipeline.store import audit
from pipeline.store.database.tables import registrations
from tests.unit.test_contracts_messages import bundle, define

ALONE = Settings(roles=Roles(operators=("ann", "bob"), movers=("max",)))
TWO = replace(ALONE, schemas=Schemas(second_person=True))
SIDE = parse_policies(["incompatible=side-column"])
FIRST = Registration("Go", "t.M", bundle(define({"M": {"a": (1, "int32")}})))
GENTLE = replace(FIRST, definition=bundle(define({"M": {"a": (1, "int32"), "b": (2, "string")}})))
BREAKING = replace(FIRST, definition=bundle(define({"M": {"a": (1, "string")}})), policies=SIDE)


@pytest.fixture
def second_version(engine: Engine) -> SchemaRequest:
    """Return a breaking registration that waits for a second person."""
    register(TWO, engine, FIRST, "ann")
    waiting = register(TWO, engine, propose(TWO, engine, BREAKING).registration, "ann", "typo")
    assert isinstance(waiting, SchemaRequest)
    return waiting


def versions(engine: Engine) -> list[tuple[Any, ...]]:
    columns = (registrations.c.version, registrations.c.actor, registrations.c.registry)
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(*columns).order_by(registrations.c.registration_id))]


def acts(engine: Engine) -> Sequence[tuple[str, str, str, str | None]]:
    return [(each.actor, each.action, each.phase, each.outcome) for each in audit.entries(engine)]


def test_a_registration_is_shown_then_done_and_audited(engine: Engine) -> None:
    """The preview writes nothing; the write is audited before and after, and the version keeps who registered it."""
    shown = propose(ALONE, engine, FIRST)
    assert (shown.possible, shown.needs_approval, shown.lines[-1]) == (True, False, f"plan {shown.plan.hash}")
    assert (versions(engine), acts(engine)) == ([], [])
    done = register(ALONE, engine, shown.registration, "ann", "new game")
    assert isinstance(done, Registered)
    assert versions(engine) == [(1, "ann", None)]
    begun, ended = audit.entries(engine)
    assert (begun.action, begun.targets, begun.phase) == ("register a schema", (f"game:{game_key('Go')}",), "begun")
    assert begun.detail == {
        "game": "Go", "message": "t.M", "format": "protobuf", "policies": [], "plan": shown.plan.hash,
        "reason": "new game",
    }  # fmt: skip
    assert (ended.phase, ended.outcome, ended.detail) == ("ended", "succeeded", begun.detail)


def test_a_plan_that_changed_since_it_was_shown_is_not_applied(engine: Engine) -> None:
    """Another version that was registered between makes it another plan, which nobody has seen."""
    register(ALONE, engine, FIRST, "ann")
    shown = propose(ALONE, engine, BREAKING)
    register(ALONE, engine, GENTLE, "bob")
    with pytest.raises(Refused, match="Review the plan again"):
        register(ALONE, engine, shown.registration, "ann")
    assert [row[1] for row in versions(engine)] == ["ann", "bob"]
    assert acts(engine)[-1] == ("ann", "register a schema", "ended", "failed")


def test_without_the_role_nobody_registers_or_decides(engine: Engine, second_version: SchemaRequest) -> None:
    """A person without a role neither registers, requests, approves nor rejects, and leaves no entry."""
    before = len(acts(engine))
    tried: Sequence[Callable[[], object]] = (
        lambda: register(TWO, engine, GENTLE, "eve"),
        lambda: register(TWO, engine, BREAKING, "eve", "please"),
        lambda: approve(TWO, engine, second_version, "eve"),
        lambda: reject(TWO, engine, second_version, "eve", "no"),
    )
    for act in tried:
        with pytest.raises(Refused, match="needs the role operator"):
            act()
    assert (len(acts(engine)), len(versions(engine))) == (before, 1)


def test_a_breaking_change_waits_for_a_second_person(engine: Engine, second_version: SchemaRequest) -> None:
    """With the setting a breaking plan is requested; nothing is registered before another person approves it."""
    assert second_version.state == "asked"
    assert second_version.plan[1].startswith("! a: its type changed")
    assert [row[0] for row in versions(engine)] == [1]
    name = second_version.request_id[:8]
    assert describe(TWO, engine, second_version) == (
        f"Request {name} waits: nothing is registered yet.",
        "One of these must approve it: bob, max.",
        f"They approve it with `turnout schemas approve {name}` or on the page Schemas.",
    )
    with pytest.raises(Refused, match="cannot approve your own request"):
        approve(TWO, engine, second_version, "ann")
    assert review(engine, second_version).stale is None
    done = approve(TWO, engine, second_version, "max", "agreed")
    assert (done.version, done.new) == (2, True)
    assert versions(engine) == [(1, "ann", None), (2, "ann", None)]
    decided = requests.request(engine, name)
    assert (decided.state, decided.decided_by, decided.decision_reason, decided.version) == (
        "approved", "max", "agreed", 2,
    )  # fmt: skip
    assert acts(engine)[-4:] == [
        ("ann", "request a schema", "begun", None),
        ("ann", "request a schema", "ended", "succeeded"),
        ("max", "approve a schema", "begun", None),
        ("max", "approve a schema", "ended", "succeeded"),
    ]
