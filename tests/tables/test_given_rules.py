"""Rules of protovalidate in a definition, switched on by a contract: passes, rebuilds and verify decide alike."""

import json
from pathlib import Path

import pytest

from pipeline.api.contracts import of_game
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.data.contracts.schemas import Schema
from pipeline.data.output_contracts.rules import OutputContract, Switch, dumps, label
from pipeline.data.repair.rebuild import rebuild
from pipeline.store import output_contracts
from pipeline.store.output_contracts import read_contracts
from tests.tables.contracts_world import command, refused, values
from tests.tables.repair_world import CHESS, World, good, make_world
from tests.tables.replay_laws import run
from tests.tables.types_world import accept, come, event
from tests.unit.data.contracts.formats.protobuf.ruled_world import DEFINITION, schema_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def switch(world: World, action: Switch) -> None:
    contract = OutputContract("promise", (CHESS.name,), protovalidate=action)
    output_contracts.apply(world.engine, dumps([contract]), read_contracts(world.engine).number, "ann", "a test")


def come_ruled(world: World, name: str = "Nested") -> Schema:
    """Register a message with rules as a further type of Chess, which lies in a struct column."""
    (ruled,) = come(world, schema_of(name))
    accept(world, name)
    return ruled


def test_a_definition_judges_its_rows_if_a_contract_says_so(world: World) -> None:
    """Laws L5 and L12: a pass, a rebuild, a replay and verify refuse the same rows, and none without the switch."""
    ruled = come_ruled(world)
    events = [event(ruled, a={"b": 0, "c": "ab"}), event(ruled, a={"c": "b"}), good(-1)]
    world.ingest(*events)
    world.split()
    assert (world.rows(), refused(world)) == ([(1, 0), (1, 1), (1, 2)], {})
    switch(world, "quarantine")
    world.ingest(*events)
    world.split()
    assert [place for place in world.rows() if place[0] == 2] == [(2, 0), (2, 2)]
    said = "breaks the output contract promise/protovalidate:"
    assert refused(world) == {(2, 1): ("contract", f"{said}a.b; {said}a.c:prefix")}
    assert values(world) == ([], 0, {}, {"contract": 1})
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert sorted(refused(world)) == [(1, 1), (2, 1)]
    assert values(world) == ([], 0, {}, {"contract": 2})
    switch(world, "warn")
    assert [(each.landed, dict(each.refused)) for each in run(world).values()] == [(2, {})]


def test_a_stop_of_a_definition_refuses_a_rebuild(world: World) -> None:
    """A landed row that breaks such a rule would end the new generation before it, so the rebuild is refused."""
    ruled = come_ruled(world)
    world.ingest(event(ruled, a={"c": "b"}))
    world.split()
    switch(world, "stop")
    with pytest.raises(Refused, match="protovalidate:a"):
        rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)


def test_a_person_sees_what_is_checked_and_what_is_not(world: World, tmp_path: Path) -> None:
    """Plans and `show` name each rule of the definition, and each that is not translated."""
    ruled = come_ruled(world, "Unchecked")
    world.ingest(event(ruled, a=1), event(ruled, h="é"))
    world.split()
    file = tmp_path / "contracts.yaml"
    file.write_text("version: 1\ncontracts:\n- {name: promise, games: [Chess], protovalidate: quarantine}\n")
    said = command(world, "plan", str(file))
    assert "promise checks by protovalidate ruled.Unchecked: NOT CHECKED: 'the message: cel'" in said
    assert "ruled.Unchecked: column h; name protovalidate:h; action quarantine; min_length 1" in said
    assert "1 of the newest 2 rows would go to quarantine by promise/protovalidate:h" in said
    command(world, "apply", str(file), "--reason", "agreed")
    shown = json.loads(command(world, "show", "Chess", "--json"))
    assert shown["broken"] == {"promise/protovalidate:h": 1}
    assert any("'c: uri'" in line for line in shown["lines"])
    page = of_game(OpenEnvironment(world.settings, world.paths, world.engine), CHESS.key, CHESS.name)
    assert [label(each, rule) for each in page.contracts for rule in each.rules] == ["promise/protovalidate:h"]
    assert "c: uri" in page.unchecked


def test_a_plan_shows_the_rules_of_a_game_without_rows(world: World, tmp_path: Path) -> None:
    """A person decides about the rules of a definition before the first record makes its name a game."""
    world.registry.register("Racer", "ruled.Email", DEFINITION)
    file = tmp_path / "contracts.yaml"
    file.write_text("version: 1\ncontracts:\n- {name: mail, games: [Racer, Nobody], protovalidate: stop}\n")
    said = command(world, "plan", str(file))
    assert (
        "'Racer': mail checks by protovalidate ruled.Email: column a; name protovalidate:a:email; action stop" in said
    )
    assert "'Nobody': mail checks by protovalidate nothing yet" in said
