"""A game is onboarded by one operation: it can be watched, carried on after any kill, and undone."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from sqlalchemy import Engine, select

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, game_key
from pipeline.control import gate, proposals
from pipeline.control.controller import KINDS
from pipeline.control.onboarding.keeper import OnboardingKeeper
from pipeline.control.operations import executor as engine_module
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.operations.onboarding import Wishes, approve, rename
from pipeline.control.roles import CONTROLLER
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.derived import definitions
from pipeline.data.derived.definitions import Aggregate, Definition, GoldDefinition, SilverDefinition
from pipeline.data.ingest import name_sketch
from pipeline.data.ingest.onboarding import Onboarding
from pipeline.data.ingest.pending import pending
from pipeline.data.output_contracts.rules import ContractRule, OutputContract, dumps, loads
from pipeline.demo.samples.supported import payload_schema
from pipeline.health.facts.placing import placing
from pipeline.settings.source import Source
from pipeline.settings.tree import Paths, Roles, Settings
from pipeline.store import audit, derived
from pipeline.store.assignments import read_assignments
from pipeline.store.database.tables import operations
from pipeline.store.game_proposals import GameProposal, propose
from pipeline.store.games import known_priorities, record_seen, registered
from pipeline.store.onboarding import OnboardingCandidate, onboard, onboarded, write_sketch
from pipeline.store.operations import Operation, operation, steps, submit
from pipeline.store.output_contracts import apply, read_contracts
from pipeline.store.wanted_readers import read_ungranted, read_wanted
from tests.onboarding_world import give_rules, rule
from tests.unit.control.operations.move_world import Drivers

SETTINGS = Settings()
NEW = game_key("New")
EMPTY_SKETCH = name_sketch.EMPTY.dumps()
NO_WISHES = Wishes()
STEPS = ("onboard", "schema", "ingest", "land", "verify")


@pytest.fixture
def drivers(engine: Engine) -> Drivers:
    return Drivers(engine)


@pytest.fixture
def world(drivers: Drivers, tmp_path: Path) -> ControlContext:
    return ControlContext(SETTINGS, drivers.store, Paths(tmp_path))


def approved(drivers: Drivers, name: str = "New", wishes: Wishes = NO_WISHES) -> Operation:
    return submit(drivers.store, approve(SETTINGS, drivers.store, name, wishes, "ann", "asked for").intent)


def brought_on(drivers: Drivers, world: ControlContext, begun: Operation) -> Operation:
    """Let the controller and the drivers go on until the operation has ended."""
    for _ in range(100):
        tick(world, KINDS)
        now = operation(drivers.store, begun.operation_id)
        if not now.is_open:
            return now
        for name in "abc":
            drivers.boundary(name)
    raise AssertionError(steps(drivers.store, begun.operation_id))


def brought_on_by_dying(drivers: Drivers, world: ControlContext, begun: Operation, lives: int) -> None:
    """Let an operation end, though a controller is killed right after the write with this number."""
    left = lives

    def dies(real: Any) -> Any:
        def call(*arguments: object, **more: object) -> object:
            nonlocal left
            done = real(*arguments, **more)
            left -= 1
            if left == 0:
                raise KeyboardInterrupt  # as a kill: nothing catches it
            return done

        return call

    written = {name: dies(getattr(engine_module, name)) for name in ("change", "begin_step", "end_step")}
    for _ in range(100):
        try:
            with patch.multiple(engine_module, **written):
                tick(world, KINDS)
        except KeyboardInterrupt:
            continue
        for name in "abc":
            drivers.boundary(name)
        if not operation(drivers.store, begun.operation_id).is_open:
            break
    assert left <= 0


def _ids(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(select(operations.c.operation_id)))


def submitted(engine: Engine) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        rows = connection.execute(select(operations.c.actor, operations.c.reason))
        return [(row.actor, row.reason) for row in rows]


def test_an_approval_ends_when_the_stream_is_live(drivers: Drivers, world: ControlContext) -> None:
    """Name, group, priority and readers are given in one operation, which tells where the stream is live."""
    give_rules(drivers.store, rule("New", priority="low", readers=("analysts",)))
    done = brought_on(drivers, world, approved(drivers, wishes=Wishes("b", "high", ("dana",))))
    assert done.state == "succeeded"
    assert done.outcome == (
        "'New' is a game. Once the catalog has its table, an operation of access grants it to dana, "
        "analysts. Its stream is live in group b."
    )
    (game,) = onboarded(drivers.store)
    assert (game.candidate.how, game.candidate.actor, game.candidate.rule) == ("approval", "ann", "test")
    assert read_assignments(drivers.store)[NEW].group == "b"
    assert known_priorities(drivers.store)[NEW] == "high"
    wanted = [(each.principal, each.authorised_by, each.reason) for each in read_wanted(drivers.store)]
    assert wanted == [("analysts", "ann", "asked for"), ("dana", "ann", "asked for")]
    with pytest.raises(Refused, match="'New' is already a game"):
        approve(SETTINGS, drivers.store, "New", Wishes(), "bob")


@pytest.mark.parametrize("lives", range(1, 13))
def test_a_controller_killed_anywhere_carries_on(drivers: Drivers, world: ControlContext, lives: int) -> None:
    """Whatever was the last thing a controller wrote, the next one ends the operation, and each step is done once."""
    begun = approved(drivers, wishes=Wishes("b", None, ("dana",)))
    brought_on_by_dying(drivers, world, begun, lives)
    assert operation(drivers.store, begun.operation_id).state == "succeeded"
    journal = [(each.name, each.state) for each in steps(drivers.store, begun.operation_id)]
    assert journal == [(name, "done") for name in STEPS]
    assert [each.candidate.game for each in onboarded(drivers.store)] == ["New"]
    assert len(read_wanted(drivers.store)) == 1
    assert audit.verify(drivers.store).unended == ()


def test_undone_it_is_retired_and_its_readers_wait_for_nothing(drivers: Drivers, world: ControlContext) -> None:
    """Undo deletes nothing: the game keeps its rows and its name, and comes back by a restore."""
    done = brought_on(drivers, world, approved(drivers, wishes=Wishes(readers=("dana",))))
    proposal = proposals.undo(SETTINGS, drivers.store, done, "ann")
    assert (proposal.intent.kind, proposal.intent.targets) == ("retire", (f"game:{NEW}",))
    assert brought_on(drivers, world, submit(drivers.store, proposal.intent)).state == "succeeded"
    assert read_assignments(drivers.store)[NEW].retired_at is not None
    assert read_ungranted(drivers.store) == []


@pytest.mark.parametrize("lives", range(1, 6))
def test_an_undo_killed_anywhere_carries_on(drivers: Drivers, world: ControlContext, lives: int) -> None:
    """Whatever a controller wrote last, the next one retires the game, and a second undo changes nothing."""
    done = brought_on(drivers, world, approved(drivers, wishes=Wishes(readers=("dana",))))
    begun = submit(drivers.store, proposals.undo(SETTINGS, drivers.store, done, "ann").intent)
    brought_on_by_dying(drivers, world, begun, lives)
    assert operation(drivers.store, begun.operation_id).state == "succeeded"
    assert (retired := read_assignments(drivers.store)[NEW]).retired_at is not None
    assert read_ungranted(drivers.store) == []
    assert audit.verify(drivers.store).unended == ()
    again = submit(drivers.store, proposals.undo(SETTINGS, drivers.store, done, "bob").intent)
    assert brought_on(drivers, world, again).state == "succeeded"
    assert read_assignments(drivers.store)[NEW] == retired, "the second undo has nothing to do"


def test_two_approvals_of_one_name_make_one_game(drivers: Drivers, world: ControlContext) -> None:
    """The second of two people who looked at the same proposal is refused, and the first one's wishes hold."""
    looked = [approve(SETTINGS, drivers.store, "New", Wishes(each), each, "same time") for each in ("b", "c")]
    first = submit(drivers.store, looked[0].intent)
    assert submit(drivers.store, looked[0].intent).operation_id == first.operation_id
    with pytest.raises(Refused):
        submit(drivers.store, looked[1].intent)
    assert brought_on(drivers, world, first).state == "succeeded"
    assert _ids(drivers.store) == [first.operation_id]
    assert read_assignments(drivers.store)[NEW].group == "b"


def test_a_change_since_the_look_ends_it(drivers: Drivers, world: ControlContext) -> None:
    """A name that became a game meanwhile, or a rule that says something else now, is reviewed again."""
    begun = approved(drivers)
    give_rules(drivers.store, rule("New", readers=("everybody",)))
    assert "it has changed since you looked" in str(brought_on(drivers, world, begun).outcome)
    begun = approved(drivers)
    onboard(drivers.store, [OnboardingCandidate(GameKey(NEW), "New", "name")])
    assert "is already a game" in str(brought_on(drivers, world, begun).outcome)


def test_nobody_gives_access_by_an_approval_who_may_not(drivers: Drivers, tmp_path: Path) -> None:
    """Readers beside the rule's need an access admin, at the request and when the controller begins."""
    settings = Settings(roles=Roles(operators=("ann",), access_admins=("ada",)))
    with pytest.raises(Refused, match="'ann' may not approve a game with readers"):
        approve(settings, drivers.store, "New", Wishes(readers=("ann",)), "ann")
    forged = approve(SETTINGS, drivers.store, "New", Wishes(readers=("ann",)), "ann").intent
    world = ControlContext(settings, drivers.store, Paths(tmp_path))
    done = brought_on(drivers, world, gate.submit(settings, drivers.store, forged))
    assert (done.state, "may not approve" in str(done.outcome)) == ("failed", True)
    assert onboarded(drivers.store) == []


def test_a_renamed_game_is_one_operation(drivers: Drivers, world: ControlContext) -> None:
    """The new name gets group, priority, readers and schemas of the old one, which stays; the undo retires the new."""
    store, chess = drivers.store, game_key("Chess")
    world.registry.register("Chess", *payload_schema("racing", 1))
    world.registry.register("Chess", *payload_schema("racing", 2))
    known = [each for game, _, each, _ in registered(store) if game == "Chess"]
    brought_on(drivers, world, approved(drivers, "Chess", Wishes("b", "high", ("dana",))))
    with pytest.raises(Refused, match="No such game"):
        rename(SETTINGS, store, "Checkers", "New", "ann")
    with pytest.raises(Refused, match="already a game"):
        rename(SETTINGS, store, chess, "Chess", "ann")
    planned = rename(SETTINGS, store, "Chess", "New", "ann", "the studio renamed it")
    assert f"{chess} keeps its name and table" in planned.lines[1], "nothing else is to be said"
    renamed = brought_on(drivers, world, submit(store, planned.intent))
    assert renamed.state == "succeeded"
    assert {each.game_key: each.principal for each in read_wanted(store)} == {chess: "dana", NEW: "dana"}
    assignments = read_assignments(store)
    assert (assignments[NEW].group, assignments[chess].group, known_priorities(store)[NEW]) == ("b", "b", "high")
    assert [each for game, _, each, _ in registered(store) if game == "New"] == known
    undone = gate.submit(SETTINGS, store, proposals.undo(SETTINGS, store, renamed, "ann", "it was not").intent)
    assert brought_on(drivers, world, undone).state == "succeeded"
    away = {key for key, each in read_assignments(store).items() if each.retired_at is not None}
    assert away == {NEW}


def test_a_game_that_has_sent_nothing_is_renamed(drivers: Drivers, world: ControlContext) -> None:
    """A game that is known by its first schema alone gets a new name, too."""
    world.registry.register("Soon", *payload_schema("racing", 1))
    renamed = submit(drivers.store, rename(SETTINGS, drivers.store, "Soon", "New", "ann", "renamed").intent)
    assert brought_on(drivers, world, renamed).state == "succeeded"
    assert [game for game, *_ in registered(drivers.store)] == ["New", "Soon"]


def contracted(engine: Engine) -> list[tuple[str, ...]]:
    return [each.games for each in loads(read_contracts(engine).contracts)]


def test_a_renamed_game_keeps_its_output_contracts(drivers: Drivers, world: ControlContext) -> None:
    """The contracts for the old name, by it or by a prefix, are for the new one, once, before a row of it lands."""
    store, rules = drivers.store, (ContractRule("score", "score", "quarantine", min=0),)
    known = [
        OutputContract("0", ("Chess",), rules=rules),
        OutputContract("1", prefixes=("Ch",), rules=rules),
        OutputContract("2", ("Go",), rules=rules),
        OutputContract("3", ("Chess",), ("N",), rules=rules),
    ]
    apply(store, dumps(known), 0, "bob", "a promise")
    world.registry.register("Chess", *payload_schema("racing", 1))
    planned = rename(SETTINGS, store, "Chess", "New", "ann", "the studio renamed it")
    assert "output contracts 0, 1 are for it, too" in planned.lines[1]
    renamed = brought_on(drivers, world, submit(store, planned.intent))
    assert (renamed.state, contracted(store)) == ("succeeded", [("Chess", "New"), ("New",), ("Go",), ("Chess",)])
    acts = [each for each in audit.entries(store) if each.action == "apply output contracts" and each.operation_id]
    assert {(each.actor, each.operation_id) for each in acts} == {("ann", renamed.operation_id)}
    assert [each.rules for each in world.registry.snapshot().contracts[GameKey(NEW)]] == [rules] * 3
    before = read_contracts(store).number
    undone = submit(store, proposals.undo(SETTINGS, store, renamed, "ann", "it was not").intent)
    assert (brought_on(drivers, world, undone).state, read_contracts(store).number) == ("succeeded", before)


def test_a_renamed_game_gets_derived_tables_of_its_own(drivers: Drivers, world: ControlContext) -> None:
    """Each derived table of the old name has one of the new name beside it, by the same definition, paused if it is."""
    store, counts = drivers.store, (Aggregate("n", "count"),)
    sales, own = SilverDefinition("sales", "Chess", "Sold", 3600), SilverDefinition("sales_3", "New", "Sold", 3600)
    known: list[Definition] = [GoldDefinition("hours", sales, 3600, counts), sales, SilverDefinition("sales_2", "Go")]
    derived.apply(store, definitions.dumps(known), 0, "bob", "for readers")
    with store.begin() as connection:
        derived.pause_within(connection, "sales", "bob", "its mask is wrong")
    world.registry.register("Chess", *payload_schema("racing", 1))
    planned = rename(SETTINGS, store, "Chess", "New", "ann", "the studio renamed it")
    assert planned.lines[1] == "derived tables hours_2, sales_3 are for it: add them to the file of derived streams"
    renamed = brought_on(drivers, world, submit(store, planned.intent))
    assert renamed.state == "succeeded"
    after = definitions.loads(derived.read_definitions(store).definitions)
    assert after == (*known, GoldDefinition("hours_2", own, 3600, counts), own)
    paused = {name: (each.paused_by, each.reason) for name, each in derived.read_controls(store).items()}
    assert paused == dict.fromkeys(("sales", "sales_3"), ("bob", "its mask is wrong"))
    (act,) = {each.actor for each in audit.entries(store) if each.operation_id and "derived" in each.action}
    assert act == "ann"


@pytest.mark.parametrize("lives", range(1, 13))
def test_a_killed_rename_carries_contracts_over_once(drivers: Drivers, world: ControlContext, lives: int) -> None:
    """Whatever was the last thing a controller wrote, the new name has each contract, silver table and schema once."""
    derived.apply(drivers.store, definitions.dumps([SilverDefinition("sales", "Chess")]), 0, "bob", "for readers")
    apply(drivers.store, dumps([OutputContract("a", ("Chess",))]), 0, "bob", "a promise")
    world.registry.register("Chess", *payload_schema("racing", 1))
    begun = submit(drivers.store, rename(SETTINGS, drivers.store, "Chess", "New", "ann", "renamed").intent)
    brought_on_by_dying(drivers, world, begun, lives)
    assert operation(drivers.store, begun.operation_id).state == "succeeded"
    assert contracted(drivers.store) == [("Chess", "New")]
    silver = definitions.loads(derived.read_definitions(drivers.store).definitions)
    assert [(each.name, each.game) for each in silver] == [("sales", "Chess"), ("sales_2", "New")]
    assert [game for game, *_ in registered(drivers.store)] == ["Chess", "New"]
    assert audit.verify(drivers.store).unended == ()


def test_contracts_that_changed_since_the_look_end_a_rename(drivers: Drivers, world: ControlContext) -> None:
    """A person sees which contracts the new name gets before they ask for it."""
    world.registry.register("Chess", *payload_schema("racing", 1))
    planned = rename(SETTINGS, drivers.store, "Chess", "New", "ann", "renamed")
    apply(drivers.store, dumps([OutputContract("a", ("Chess",))]), 0, "bob", "a promise")
    ended = brought_on(drivers, world, submit(drivers.store, planned.intent))
    assert (ended.state, "it has changed since you looked" in str(ended.outcome)) == ("failed", True)
    assert contracted(drivers.store) == [("Chess",)]


def test_a_new_name_with_a_schema_of_its_own_is_refused(drivers: Drivers, world: ControlContext) -> None:
    """Of two first schemas of one game the second may be refused, so a new name comes without one of its own."""
    store = drivers.store
    world.registry.register("Chess", *payload_schema("racing", 1))
    planned = rename(SETTINGS, store, "Chess", "New", "ann", "renamed")
    propose(store, GameProposal(NEW, "New", "dora", "soon", format="avro", message="a.B", definition=b"x"))
    with pytest.raises(Refused, match=r"'New' is proposed with the schema 'a\.B', and a new name gets"):
        rename(SETTINGS, store, "Chess", "New", "ann", "renamed")
    ended = brought_on(drivers, world, submit(store, planned.intent))
    assert (ended.state, "is proposed with the schema" in str(ended.outcome)) == ("failed", True)
    assert [game for game, *_ in registered(store)] == ["Chess"]
    propose(store, GameProposal(NEW, "New", "dora", "soon", group="c"))
    world.registry.register("Own", *payload_schema("racing", 1))
    with pytest.raises(Refused, match="'Own' is already a game by its schema"):
        rename(SETTINGS, store, "Chess", "Own", "ann", "renamed")
    again = submit(store, rename(SETTINGS, store, "Chess", "New", "ann", "renamed").intent)
    assert brought_on(drivers, world, again).state == "succeeded"


def _schema(message: str, field: str, number: int, type_of: int) -> tuple[str, bytes]:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="acme", syntax="proto3")
    file.message_type.add(name=message).field.add(name=field, number=number, type=type_of, label=1)
    return f"acme.{message}", descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_a_renamed_game_keeps_policies(drivers: Drivers, world: ControlContext) -> None:
    """A schema that landed by a policy is registered by it again, and not a newer one whose rows go to quarantine."""
    store, name = drivers.store, "_level"
    chosen = parse_policies(["name=side-column", "incompatible=quarantine"])
    first = world.registry.register("Chess", *_schema("M", name, 1, 5), chosen)
    world.registry.register("Chess", *_schema("M", name, 1, 9), chosen)
    brought_on(drivers, world, approved(drivers, "Chess"))
    renamed = submit(store, rename(SETTINGS, store, "Chess", "New", "ann", "the studio renamed it").intent)
    done = brought_on(drivers, world, renamed)
    assert done.state == "succeeded", done.outcome
    assert [each for game, _, each, _ in registered(store) if game == "New"] == [first.schema_id]


def test_a_rule_needs_nobody(drivers: Drivers, world: ControlContext) -> None:
    """A name that a rule makes a game is onboarded by one operation of the controller, however often it looks."""
    give_rules(drivers.store, rule("Later", name="studio", prefixes=("s/",), group="c", readers=("analysts",)))
    ingest = Onboarding(drivers.store, SETTINGS.onboarding)
    ingest.note({"candidates": {"s/": ["s/one"]}, "sketch": EMPTY_SKETCH}, 1.0)
    ingest.admit(1.0)
    for _ in range(2):
        keeper = OnboardingKeeper(drivers.store, SETTINGS)
        keeper.look()
        keeper.look()
    assert submitted(drivers.store) == [(CONTROLLER, "onboarding rule studio")], "Later has sent nothing"
    (begun,) = [operation(drivers.store, each) for each in _ids(drivers.store)]
    assert brought_on(drivers, world, begun).state == "succeeded"
    assert read_assignments(drivers.store)[game_key("s/one")].group == "c"
    (wanted,) = read_wanted(drivers.store)
    assert (wanted.principal, wanted.reason, wanted.authorised_by) == ("analysts", "onboarding rule studio", "ann")
    record_seen(drivers.store, {game_key("Later"): "Later"}, 10, placing())
    keeper.look()
    assert len(submitted(drivers.store)) == 2


def test_a_rule_for_a_format_makes_a_game_without_a_person(drivers: Drivers, world: ControlContext) -> None:
    """A name waits until its format is known; then the controller makes it a game with the rule's group and readers."""
    give_rules(
        drivers.store,
        rule(name="documents", formats=("json",), group="c", readers=("analysts",), max_new_per_hour=1),
        rule(name="studio", prefixes=("s/",)),
    )
    sketch = name_sketch.sketched(pa.array(["Chess", "Go", "s/one"]), pa.array([9, 5, 3]), 1.0, 10)
    write_sketch(drivers.store, sketch.dumps())
    OnboardingKeeper(drivers.store, SETTINGS).look()
    assert onboarded(drivers.store) == [], "nothing says what format they have"
    waiting = {each.game: each for each in pending(drivers.store, SETTINGS.onboarding).names}
    assert "the rule 'documents' is for json only" in waiting["Chess"].why
    documents = Settings(source=Source(framing="type", envelope="json", envelope_fields={"game": "g"}))
    for _ in range(2):
        keeper = OnboardingKeeper(drivers.store, documents)
        keeper.look()
        keeper.look()
    (made,) = onboarded(drivers.store)
    assert (made.candidate.game, made.candidate.rule) == ("Chess", "documents"), "one an hour; s/one is ingest's"
    (begun,) = [operation(drivers.store, each) for each in _ids(drivers.store)]
    assert brought_on(drivers, world, begun).state == "succeeded"
    assert read_assignments(drivers.store)[game_key("Chess")].group == "c"
    assert [each.principal for each in read_wanted(drivers.store)] == ["analysts"]


def test_the_format_of_a_proposed_schema_counts(drivers: Drivers) -> None:
    """A name that waits becomes a game by the format of its proposal where the source carries any format."""
    give_rules(drivers.store, rule(name="documents", formats=("json",)))
    write_sketch(drivers.store, name_sketch.sketched(pa.array(["New"]), pa.array([9]), 1.0, 10).dumps())
    propose(drivers.store, GameProposal(NEW, "New", "ann", "soon", format="avro", message="a.B", definition=b"x"))
    OnboardingKeeper(drivers.store, SETTINGS).look()
    assert onboarded(drivers.store) == []
    propose(drivers.store, GameProposal(NEW, "New", "ann", "soon", format="json", message="a.B", definition=b"x"))
    OnboardingKeeper(drivers.store, SETTINGS).look()
    assert [each.candidate.game for each in onboarded(drivers.store)] == ["New"]


def test_an_approval_is_not_onboarded_again_by_its_rule(drivers: Drivers, world: ControlContext) -> None:
    """A person's approval of a name that a rule matches is one operation, not a second one of the controller."""
    give_rules(drivers.store, rule("New"))
    brought_on(drivers, world, approved(drivers))
    OnboardingKeeper(drivers.store, SETTINGS).look()
    assert submitted(drivers.store) == [("ann", "asked for")]
