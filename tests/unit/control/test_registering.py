"""People register schemas: a plan, then the write, or a request that a second person approves."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control import gate
from pipeline.control.registering import proposals, requests, trust
from pipeline.control.registering.proposals import describe, propose, reject, review
from pipeline.control.registering.requests import SchemaRequest, SchemaRequestConflict, list_requests
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.policies import DEFAULTS, parse_policies
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.registry import LocalRegistry, Registered, Registration
from pipeline.data.contracts.schemas import Schema
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.access import Access
from pipeline.settings.tree import Roles, Schemas, Settings
from pipeline.store import audit
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import registrations
from pipeline.store.schema_needs import OpenNeed, RegistryHealth, read_states, write_needs, write_state
from pipeline.store.writers import lock
from tests.unit.data.contracts.definition_world import bundle, define

ALONE = Settings(roles=Roles(operators=("ann", "bob"), movers=("max",)))
TWO = replace(ALONE, schemas=Schemas(second_person=True))
SIDE = parse_policies(["incompatible=side-column"])
FIRST = Registration("Go", "t.M", bundle(define({"M": {"a": (1, "int32")}})))
GENTLE = replace(FIRST, definition=bundle(define({"M": {"a": (1, "int32"), "b": (2, "string")}})))
BREAKING = replace(FIRST, definition=bundle(define({"M": {"a": (1, "string")}})), policies=SIDE)
BOOL = bundle(define({"M": {"a": (1, "bool")}}))


PLACES: dict[str, Location] = {}


@pytest.fixture(autouse=True)
def bronze(tmp_path: Path) -> Iterator[None]:
    """Beside it new schemas get their ids."""
    PLACES["bronze"] = located(tmp_path / "bronze")
    yield
    PLACES.clear()


def register(settings: Settings, engine: Engine, *what: Any) -> Registered | SchemaRequest:
    return proposals.register(settings, engine, PLACES["bronze"], *what)


def approve(settings: Settings, engine: Engine, *what: Any) -> Registered:
    return proposals.approve(settings, engine, PLACES["bronze"], *what)


@pytest.fixture
def second_version(engine: Engine) -> SchemaRequest:
    """Return a breaking registration that waits for a second person."""
    register(TWO, engine, FIRST, "ann")
    waiting = register(TWO, engine, propose(TWO, engine, PLACES["bronze"], BREAKING).registration, "ann", "typo")
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
    shown = propose(ALONE, engine, PLACES["bronze"], FIRST)
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
    shown = propose(ALONE, engine, PLACES["bronze"], BREAKING)
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


def test_a_request_keeps_that_its_type_is_accepted(engine: Engine) -> None:
    """A second person approves the plan that was shown, also where it accepts a further event type."""
    register(TWO, engine, FIRST, "ann")
    waits = Schema(0, "protobuf", "t.Sold", bundle(define({"Sold": {"a": (1, "int32")}})))
    with writing(engine) as connection:
        given = unattended("Go", game_key("Go"), waits, DEFAULTS, registry="main")
        RegistrationBatch(connection, [given]).write()
    definition = bundle(define({"Sold": {"a": (1, "string")}}))
    wanted = Registration("Go", "t.Sold", definition, SIDE, new_type=True)
    asked = register(TWO, engine, propose(TWO, engine, PLACES["bronze"], wanted).registration, "ann", "they sell")
    assert isinstance(asked, SchemaRequest)
    assert (asked.new_type, list_requests(engine)[0].new_type) == (True, True)
    assert register(TWO, engine, asked.registration, "ann", "they sell").repeated  # type: ignore[union-attr]
    approve(TWO, engine, requests.request(engine, asked.request_id), "bob")
    types = game_types(LocalRegistry(engine).snapshot(), game_key("Go"))
    assert [(each.name, each.state, len(each.schemas)) for each in types] == [
        ("t.M", "first", 1),
        ("t.Sold", "accepted", 2),
    ]


@pytest.mark.proves("G198")
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
    assert review(engine, PLACES["bronze"], second_version).stale is None
    (listed,) = list_requests(engine)
    done = approve(TWO, engine, listed, "max", "agreed")
    assert (done.version, done.new) == (2, True)
    assert versions(engine) == [(1, "ann", None), (2, "ann", None)]
    decided = requests.request(engine, name)
    assert (decided.state, decided.decided_by, decided.decision_reason, decided.version, decided.definition) == (
        "approved", "max", "agreed", 2, b"",
    )  # fmt: skip
    assert acts(engine)[-6:] == [
        ("ann", "request a schema", "begun", None),
        ("ann", "request a schema", "ended", "succeeded"),
        ("ann", "approve a schema", "begun", None),
        ("ann", "approve a schema", "ended", "failed"),
        ("max", "approve a schema", "begun", None),
        ("max", "approve a schema", "ended", "succeeded"),
    ]


def test_another_name_of_the_requester_is_no_second_person(engine: Engine, second_version: SchemaRequest) -> None:
    """Four eyes: a person's name at the command line and their address in the app are one, as the settings say."""
    known = replace(TWO, access=Access(identities={"ann": "Ann@example.com", "eve": "eve@example.com"}))
    for name in ("ann@example.com", "Ann@Example.com"):
        settings = replace(known, roles=Roles(operators=("ann", name, "eve")))
        with pytest.raises(Refused, match="cannot approve your own request"):
            approve(settings, engine, second_version, name)
        assert "One of these must approve it: eve." in describe(settings, engine, second_version)
    assert reject(settings, engine, second_version, "Ann@Example.com", "no need").state == "withdrawn"


@pytest.mark.parametrize(
    ("settings", "registration"), [(TWO, FIRST), (TWO, GENTLE), (ALONE, GENTLE), (ALONE, BREAKING)]
)
def test_only_a_breaking_change_needs_a_second_person(
    engine: Engine, settings: Settings, registration: Registration
) -> None:
    """Only a breaking change waits, and only with the setting."""
    register(settings, engine, FIRST, "ann")
    assert isinstance(register(settings, engine, registration, "ann"), Registered)


@pytest.mark.proves("G198")
def test_a_registration_that_became_breaking_meanwhile_is_not_done(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the setting the plan that needs nobody is the very plan that is applied: a race opens no way around it."""
    register(TWO, engine, FIRST, "ann")
    acting = gate.acting

    def racing(*arguments: Any) -> Any:
        monkeypatch.undo()
        register(ALONE, engine, GENTLE, "bob")
        return acting(*arguments)

    monkeypatch.setattr(gate, "acting", racing)
    with pytest.raises(Refused, match="Review the plan again"):
        register(TWO, engine, replace(FIRST, definition=bundle(define({"M": {"a": (1, "int64")}}))), "ann")
    assert [row[1] for row in versions(engine)] == ["ann", "bob"]


@pytest.mark.proves("G198")
def test_a_request_is_approved_as_shown_or_not_at_all(engine: Engine, second_version: SchemaRequest) -> None:
    """A version that was registered since the request makes its plan another one: the request stays open for a no."""
    register(TWO, engine, GENTLE, "bob")
    stale = review(engine, PLACES["bronze"], second_version).stale
    assert stale is not None
    assert "Review the plan again" in stale
    with pytest.raises(Refused, match="Review the plan again"):
        approve(TWO, engine, second_version, "bob")
    assert requests.request(engine, second_version.request_id).state == "asked"
    assert acts(engine)[-1] == ("bob", "approve a schema", "ended", "failed")
    rejected = reject(TWO, engine, second_version, "bob", "again, please")
    assert (rejected.state, rejected.decided_by, rejected.version) == ("rejected", "bob", None)
    assert len(versions(engine)) == 2


@pytest.mark.proves("G198")
def test_of_two_decisions_the_first_counts(
    engine: Engine, second_version: SchemaRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An approval that comes after another decision registers nothing: both are one transaction."""
    acting = gate.acting

    def racing(*arguments: Any) -> Any:
        monkeypatch.undo()
        reject(TWO, engine, second_version, "bob", "no")
        return acting(*arguments)

    monkeypatch.setattr(gate, "acting", racing)
    for _ in range(2):  # at the same moment, and afterwards
        with pytest.raises(SchemaRequestConflict, match="was rejected by 'bob'"):
            approve(TWO, engine, second_version, "max")
    with pytest.raises(SchemaRequestConflict, match="was rejected by 'bob'"):
        reject(TWO, engine, requests.request(engine, second_version.request_id), "max", "no")
    assert len(versions(engine)) == 1


def test_a_requester_withdraws(engine: Engine, second_version: SchemaRequest) -> None:
    """The requester cannot reject a request, only withdraw it; both need a reason."""
    with pytest.raises(Refused, match="Enter a reason"):
        reject(TWO, engine, second_version, "ann", " ")
    assert reject(TWO, engine, second_version, "ann", "wrong file").state == "withdrawn"
    assert acts(engine)[-1] == ("ann", "withdraw a schema", "ended", "succeeded")


def test_a_request_is_written_once(
    engine: Engine, second_version: SchemaRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same request again is the one that waits; without a reason there is none, and nobody floods the list."""
    again = register(TWO, engine, BREAKING, "ann", "second click")
    assert again == replace(second_version, repeated=True)
    assert "waits already, with its first reason" in describe(TWO, engine, replace(second_version, repeated=True))[0]
    with pytest.raises(Refused, match="enter a reason for them"):
        register(TWO, engine, BREAKING, "bob")
    monkeypatch.setattr(requests, "_MOST_OPEN", 1)
    with pytest.raises(Refused, match="1 of your requests still wait"):
        register(TWO, engine, replace(BREAKING, definition=BOOL), "ann", "one more")
    assert isinstance(register(TWO, engine, replace(BREAKING, definition=BOOL), "bob", "other"), SchemaRequest)
    reject(TWO, engine, second_version, "bob", "no")
    listed = list_requests(engine)
    assert [each.state for each in listed] == ["asked", "rejected"]
    assert {each.definition for each in listed} == {b""}


def test_the_requester_hears_who_may_approve(engine: Engine, second_version: SchemaRequest) -> None:
    """A request that can never be approved says what is missing; without roles anybody else may."""
    lonely = replace(TWO, roles=Roles(operators=("ann",)))
    assert "Nobody else has the role operator" in describe(lonely, engine, second_version)[1]
    assert "Another person who can reach" in describe(replace(TWO, roles=Roles()), engine, second_version)[1]


def test_an_attempt_that_cannot_be_planned_is_audited(engine: Engine) -> None:
    """A definition that no table can hold, or a huge one, is refused and stands in the log as a failed act."""
    for bad in (b"\xff", bytes(1024 * 1024 + 1)):
        with pytest.raises(Refused):
            register(TWO, engine, replace(FIRST, definition=bad), "ann")
        assert acts(engine)[-2:] == [
            ("ann", "register a schema", "begun", None), ("ann", "register a schema", "ended", "failed"),
        ]  # fmt: skip


@pytest.mark.proves("G199")
def test_a_registry_is_trusted_again_as_it_was_seen(engine: Engine) -> None:
    """A person sees what was seen and what follows; the end of mistrust is audited with it, and only of that one."""
    with writing(engine) as connection:
        lock(connection)
        write_state(connection, RegistryHealth("main", "mistrusted", 5.0, "7 was ab, is cd", 5.0))
        write_state(connection, RegistryHealth("other", "ok", 5.0, None, 5.0))
    write_needs(engine, [OpenNeed("main", b"\x00\x00\x00\x00\x09", game_key("Go"), "Go", 6.0, 1, 0)])
    seen = trust.propose(engine, "main")
    assert seen.lines[0] == "7 was ab, is cd"
    assert seen.lines[2].endswith("Schemas that games wait for: 1, games that wait: 1.")
    with pytest.raises(Refused, match="needs the role operator"):
        trust.trust(TWO, engine, seen, "eve", "fine")
    with pytest.raises(Refused, match="Enter a reason"):
        trust.trust(TWO, engine, seen, "bob", "")
    assert acts(engine) == []
    with pytest.raises(Refused, match="Look again"):
        trust.trust(TWO, engine, replace(seen, seen=replace(seen.seen, since=4.0)), "bob", "fine")
    trust.trust(TWO, engine, seen, "bob", "a test wrote there")
    with engine.connect() as connection:
        assert read_states(connection)["main"].state == "ok"
    ended = list(audit.entries(engine))[-1]
    assert (ended.action, ended.targets, ended.outcome) == ("trust a registry", ("registry:main",), "succeeded")
    assert ended.detail == {"reason": "a test wrote there", "seen": "7 was ab, is cd", "since": 5.0}
    for name in ("main", "other", "nobody"):
        with pytest.raises(Refused, match="does not mistrust the registry"):
            trust.propose(engine, name)
