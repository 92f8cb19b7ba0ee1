"""Names that may become games: proposals and waiting names with their evidence, and what comes of a decision."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.control.controller import KINDS
from pipeline.control.onboarding.candidates import candidates, lines, propose
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.operations.onboarding import Wishes, approve
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.name_sketch import sketched
from pipeline.data.ingest.pending import reject
from pipeline.demo.samples.supported import payload_schema
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit
from pipeline.store.assignments import read_assignments
from pipeline.store.game_proposals import GameProposal, read_proposals
from pipeline.store.games import known_priorities, register_group
from pipeline.store.onboarding import OnboardingCandidate, onboard, onboarded, write_sketch
from pipeline.store.operations import operation, submit
from tests.onboarding_world import give_rules, rule

SETTINGS = Settings()
MESSAGE, DEFINITION = payload_schema("puzzle", 1)
_, SECOND_DEFINITION = payload_schema("puzzle", 2)
NEW = game_key("New")
PROPOSAL = GameProposal(
    NEW, "New", "ann", "next season", 200.0, "b", "high", ("analysts",), "protobuf", MESSAGE, DEFINITION
)


def test_a_proposal_is_listed_with_its_evidence(engine: Engine, tmp_path: Path) -> None:
    """Proposals come first; each name says what has arrived, which rule it matches, and where it would go."""
    for name in ("a", "b"):
        register_group(engine, name, placing())
    give_rules(engine, rule(name="studio", prefixes=("s/",), group="a", max_new_per_hour=0))
    write_sketch(engine, sketched(pa.array(["s/x", "spam"]), pa.array([7, 9]), 1.0, 10).dumps())
    proposed = propose(SETTINGS, engine, Paths(tmp_path).bronze, PROPOSAL)
    assert lines(proposed)[1] == f"  proposed by ann: next season (200 events/s, readers analysts, schema {MESSAGE})"
    found = candidates(SETTINGS, engine)
    assert [(each.game, each.rule, each.group) for each in found.names] == [
        ("New", None, "b"), ("spam", None, "a"), ("s/x", "studio", "a"),
    ]  # fmt: skip
    assert found.framings == ("envelope wrapper, framing wrapper",)
    write_sketch(engine, sketched(pa.array(["S/x"]), pa.array([7]), 1.0, 10).dumps())
    assert lines(candidates(SETTINGS, engine).names[1])[1] == "  nearly rule studio (prefix 's/')"
    again = propose(SETTINGS, engine, Paths(tmp_path).bronze, GameProposal(NEW, "New", "bob", "sooner"))
    assert (again.proposal and again.proposal.proposed_by, len(read_proposals(engine))) == ("bob", 1)
    assert [each.action for each in audit.entries(engine) if each.phase == "ended"][-2:] == ["propose a game"] * 2


@pytest.mark.parametrize(
    ("proposal", "expected"),
    [
        (GameProposal(game_key("x" * 300), "x" * 300, "ann", "r"), "cannot name a game"),
        (GameProposal(NEW, "New", "ann", "r", group="z"), "No such group: z"),
        (GameProposal(NEW, "New", "ann", ""), "Enter a reason"),
        (GameProposal(NEW, "New", "ann", "r", format="protobuf", message="a.B", definition=b"\xff"), "a.B"),
    ],
)
def test_a_proposal_without_a_chance_is_refused(
    engine: Engine, tmp_path: Path, proposal: GameProposal, expected: str
) -> None:
    """A person learns at once what the person who approves would be refused."""
    with pytest.raises(Refused, match=expected):
        propose(SETTINGS, engine, Paths(tmp_path).bronze, proposal)
    assert read_proposals(engine) == {}


def test_a_proposal_of_a_game_waits_for_nobody(engine: Engine, tmp_path: Path) -> None:
    """A name that became a game by itself, as by its first schema, leaves the list: nobody could decide about it."""
    propose(SETTINGS, engine, Paths(tmp_path).bronze, replace(PROPOSAL, group=None))
    assert [each.game for each in candidates(SETTINGS, engine).names] == ["New"]
    onboard(engine, [OnboardingCandidate(NEW, "New", "schema")])
    assert candidates(SETTINGS, engine).names == ()
    assert read_proposals(engine)[NEW].definition == DEFINITION, "an operation that is under way still registers it"


def test_an_approval_takes_what_was_proposed(engine: Engine, tmp_path: Path) -> None:
    """Group, priority and schema come from the proposal, which is decided then; wishes of who approves go first."""
    for name in ("a", "b"):
        register_group(engine, name, placing())
    paths = Paths(tmp_path)
    propose(SETTINGS, engine, paths.bronze, PROPOSAL)
    planned = approve(SETTINGS, engine, "New", Wishes(priority="low"), "bob", "yes")
    assert planned.lines[1] == f"schema {MESSAGE}; readers analysts"
    begun = submit(engine, planned.intent)
    world = ControlContext(SETTINGS, engine, paths)
    for _ in range(1_000):
        tick(world, KINDS)
        if operation(engine, begun.operation_id).state == "verifying":
            break
    assert (read_assignments(engine)[NEW].group, known_priorities(engine)[NEW]) == ("b", "low")
    assert LocalRegistry(engine).snapshot().games.keys() == {NEW}
    assert read_proposals(engine) == {}


def _propose_other(engine: Engine, paths: Paths) -> None:
    propose(SETTINGS, engine, paths.bronze, replace(PROPOSAL, proposed_by="eve", definition=SECOND_DEFINITION))


@pytest.mark.parametrize("decide", [_propose_other, lambda engine, _paths: reject(engine, "New", "eve", "no")])
def test_what_is_decided_after_an_approval_counts_more(
    engine: Engine, tmp_path: Path, decide: Callable[[Engine, Paths], None]
) -> None:
    """While no controller runs, no later schema is registered under the approver's name, and no rejection is undone."""
    register_group(engine, "b", placing())
    paths = Paths(tmp_path)
    propose(SETTINGS, engine, paths.bronze, PROPOSAL)
    begun = submit(engine, approve(SETTINGS, engine, "New", Wishes(), "bob", "yes").intent)
    decide(engine, paths)
    tick(ControlContext(SETTINGS, engine, paths), KINDS)
    assert operation(engine, begun.operation_id).state == "failed"
    assert onboarded(engine) == []
    assert LocalRegistry(engine).snapshot().games.keys() == set()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # a command ends, and its connections with it
def test_the_commands_propose_list_and_reject(engine: Engine, tmp_path: Path) -> None:
    """`games propose | pending | reject` by exact name, for people and for scripts."""

    def turnout(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["games", *arguments, "--env-dir", str(tmp_path)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "'New': nothing has arrived" in turnout("propose", "New", "--reason", "soon", "--events-per-second", "5")
    listed = json.loads(turnout("pending", "--samples", "--json"))
    (found,) = listed["candidates"]
    assert (found["game"], found["proposal"]["events_per_second"], found["schema_ids"]) == ("New", 5.0, [])
    assert "proposed by" in turnout("pending")
    assert "is rejected" in turnout("reject", "New")
    assert json.loads(turnout("pending", "--json"))["candidates"] == []
    assert onboarded(engine) == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_proposal_has_its_schema_in_the_format_of_its_file(engine: Engine, tmp_path: Path) -> None:
    """A JSON Schema is proposed by the same command as the other formats."""
    file = tmp_path / "lap.json"
    file.write_text('{"title": "acme.Lap", "type": "object", "properties": {"seconds": {"type": "number"}}}')
    words = ["games", "propose", "New", "--schema", str(file), "--message", "acme.Lap", "--reason", "soon"]
    done = CliRunner().invoke(cli, [*words, "--env-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert [each.format for each in read_proposals(engine).values()] == ["json"]
