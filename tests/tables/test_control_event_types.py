"""Accepting and withdrawing event types as operations and commands."""

import json
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import duckdb
import pytest
from click.testing import CliRunner
from sqlalchemy import update

from listeners.sample import Lane, StreamState
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control import proposals
from pipeline.control.controller import KINDS
from pipeline.control.operations import settling
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.event_types import propose_types
from pipeline.control.operations.executor import tick
from pipeline.control.operations.nested_types import propose_nesting
from pipeline.control.output_contracts import proposals as contract_proposals
from pipeline.data.contracts.formats.json.format import JsonFormat
from pipeline.data.contracts.further_types import flattening, game_types
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.schemas import Schema
from pipeline.data.contracts.type_views import views
from pipeline.data.output_contracts.rules import ContractRule
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.opening import open_table
from pipeline.store.database.states import OperationKind
from pipeline.store.database.tables import games
from pipeline.store.games import generations, known_names, register_group
from pipeline.store.operations import Operation, operation, submit
from tests.tables.contracts_world import give
from tests.tables.registering_world import two_types
from tests.tables.repair_world import CHESS, Event, World, good, make_world
from tests.tables.types_world import SOLD, accept, come, event, withdraw
from tests.unit.data.contracts.registering_world import proto
from tests.unit.store.reports_world import write_streams


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Chess in group a, whose driver does not run; two sales wait."""
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    (sold,) = come(made, SOLD)
    made.ingest(good(1), event(sold, item="bow", price=5), event(sold, item="axe"))
    made.split()
    return made


def carried_out(world: World, begun: Operation) -> Operation:
    context = ControlContext(world.settings, world.engine, world.paths)
    for _ in range(8):
        tick(context, KINDS)
        wait(list(context.background_tasks._begun.values()))
    return operation(world.engine, begun.operation_id)


def accepted(world: World) -> Operation:
    proposal = propose_types(
        OperationKind.ACCEPT_TYPE, world.engine, world.paths.bronze, CHESS.key, ["Sold"], "ann", "they sell"
    )
    assert any("is a further event type of the game" in line for line in proposal.lines)
    return carried_out(world, submit(world.engine, proposal.intent))


@pytest.mark.proves("G240")
def test_a_type_is_accepted_with_its_rows_and_the_undo_withdraws_it(world: World) -> None:
    """One operation accepts a type and lands what waited; its undo makes the next rows wait again."""
    done = accepted(world)
    assert (done.state, done.outcome) == ("succeeded", done.outcome), done.outcome
    assert (len(world.rows()), world.refused()) == (3, [])
    undo = proposals.undo(world.settings, world.engine, done, "ann", "a mistake")
    undone = carried_out(world, submit(world.engine, undo.intent))
    assert undone.state == "succeeded", undone.outcome
    assert [each.state for each in game_types(world.registry.snapshot(), CHESS.key)] == ["first", "withdrawn"]


def test_the_first_type_is_nested_by_a_rebuild_and_flattened_again(world: World) -> None:
    """One operation moves the first type's fields into a column, of old rows, too, and its undo moves them back."""

    def columns() -> list[str]:
        fields = open_table(world.paths.table(CHESS.key)).schema().fields
        return sorted(each.name for each in fields if not each.name.startswith("_"))

    def require_right() -> None:
        wanted = Wanted(world.registry.snapshot())
        balance = verify(world.paths, world.environment, generations(world.engine), wanted=wanted)
        assert balance.problems == ()
        assert balance.values is not None
        assert balance.values.mismatches == 0

    accepted(world)
    assert columns() == ["points", "sold"]
    proposal = propose_nesting(world.engine, CHESS.key, "ann", "one column for each type")
    assert any("its fields lie in the column m" in line for line in proposal.lines)
    nested = carried_out(world, submit(world.engine, proposal.intent))
    assert nested.state == "succeeded", nested.outcome
    assert columns() == ["m", "sold"]
    (sold,) = [schema for each in game_types(world.registry.snapshot(), CHESS.key) for schema, _ in each.schemas][1:]
    world.ingest(good(2), event(sold, item="axe"))
    world.split()
    assert [each["m"] for each in world.contents() if each["_type"] == "t.M"] == [{"points": 1}, {"points": 2}]
    require_right()
    with pytest.raises(Refused, match="No event type of the game 'Chess' has its fields as columns"):
        propose_nesting(world.engine, CHESS.key, "ann")
    undo = proposals.undo(world.settings, world.engine, nested, "ann", "a mistake")
    undone = carried_out(world, submit(world.engine, undo.intent))
    assert undone.state == "succeeded", undone.outcome
    assert columns() == ["points", "sold"]
    require_right()


def test_landed_rows_that_stop_a_rebuild_end_the_operation_first(world: World) -> None:
    """L12: where the rebuild would be refused by a contract that is younger than the rows, nothing is registered.

    A nested type is not flattened either. Other contracts, and rules that the rows keep, are in nobody's way.
    """

    def require_refused(begun: Operation) -> None:
        before = game_types(world.registry.snapshot(), CHESS.key)
        done = carried_out(world, begun)
        assert done.state == "failed"
        assert "row 0 of seq 1 of 'Chess' breaks rule promise/low on column 'points', which stops" in str(done.outcome)
        assert game_types(world.registry.snapshot(), CHESS.key) == before

    def nests() -> Operation:
        return submit(world.engine, propose_nesting(world.engine, CHESS.key, "ann", "tidy").intent)

    accepted(world)
    give(world, ContractRule("low", "points", "stop", min=2))
    require_refused(nests())
    give(world, ContractRule("low", "points", "stop", min=1), ContractRule("all", "price", "stop", required=True))
    nested = carried_out(world, nests())
    assert nested.state == "failed", "the first type has no price"
    give(world, ContractRule("low", "points", "stop", min=1), ContractRule("high", "points", max=0))
    nested = carried_out(world, nests())
    assert nested.state == "succeeded", nested.outcome
    give(world, ContractRule("low", "points", "stop", min=2))
    require_refused(submit(world.engine, proposals.undo(world.settings, world.engine, nested, "ann", "no").intent))


def test_a_contract_is_not_applied_while_a_type_is_nested(world: World) -> None:
    """L5: nesting looks at contracts as it begins, as flattening does; a later rule would end its rebuild half-way."""

    def apply(low: int) -> None:
        rules = f"[{{column: points, action: stop, min: {low}}}]"
        file = f"version: 1\ncontracts: [{{name: c, games: [{CHESS.name}], rules: {rules}}}]"
        names, schemas = known_names(world.engine), world.registry.snapshot()
        plan = contract_proposals.plan(world.engine, world.paths, schemas, names, file)
        contract_proposals.apply(world.settings, world.engine, plan, "ann", "agreed")

    accepted(world)
    nests = submit(world.engine, propose_nesting(world.engine, CHESS.key, "ann", "tidy").intent)
    with pytest.raises(Refused, match=f"'Chess', .* apply it once nest-type {nests.operation_id[:8]} by ann has ended"):
        apply(2)
    nested = carried_out(world, nests)
    assert nested.state == "succeeded", nested.outcome
    apply(1)
    flattens = submit(world.engine, proposals.undo(world.settings, world.engine, nested, "ann", "no").intent)
    with pytest.raises(Refused, match=f"apply it once flatten-type {flattens.operation_id[:8]} by ann has ended"):
        apply(2)
    assert carried_out(world, flattens).state == "succeeded"


def test_a_first_type_in_json_cannot_be_nested(tmp_path: Path) -> None:
    """Law L1: documents that name no event type keep their columns, as no table has them in a struct column."""
    world = two_types(tmp_path / "env=json")
    with pytest.raises(Refused, match="'move' of the game 'Chess' is JSON and cannot be nested: a document"):
        propose_nesting(world.engine, "Chess", "ann")
    words = ["schemas", "accept-type", "Chess", "--nest", "--dry-run", "--env-dir", str(world.paths.root)]
    refused = CliRunner().invoke(cli, words)
    assert (refused.exit_code, "cannot be nested" in str(refused.exception)) == (1, True)
    world.engine.dispose()


def test_a_field_is_no_column_where_a_type_has_its_name(world: World) -> None:
    """A flattened type takes no other type's column; the plan says which field is in the way."""
    carried_out(world, submit(world.engine, propose_nesting(world.engine, CHESS.key, "ann", "tidy").intent))
    (points,) = come(world, proto("message Points { int64 p = 1; }"))
    accept(world, "Points")
    registry = world.registry
    with pytest.raises(Refused, match=r"The field 'points' of 't\.M' cannot be a column"):
        registry.plan_all(flattening(registry.snapshot(), CHESS.key, CHESS.name, "t.M", "ann"))
    assert points.message == "acme.Points"


def test_the_replay_waits_for_the_driver_to_report_the_new_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a pass refuses by the earlier set would be left behind by a replay before its end."""
    world.registry.snapshot()
    proposal = propose_types(OperationKind.ACCEPT_TYPE, world.engine, world.paths.bronze, CHESS.key, ["Sold"], "ann")
    condition = SimpleNamespace(liveness=SimpleNamespace(is_live=True))
    monkeypatch.setattr(settling, "read_group_liveness", lambda *_: {"a": condition})

    def report(schema_set: int | None) -> None:
        said = StreamState(
            CHESS.key, "a", Lane.RUN, "RUNNING", 0.0, 1, None, 0.0, None, None, 0, 0, None, 0.0, schema_set=schema_set
        )
        write_streams(world.engine, [said])

    before = world.registry.snapshot().version
    report(before)
    with world.engine.begin() as connection:
        connection.execute(update(games).values(group_name="a"))
    begun = submit(world.engine, proposal.intent)
    assert carried_out(world, begun).state == "running"
    report(None)
    assert carried_out(world, begun).state == "running", "unknown is not the new one"
    assert len(world.refused()) == 2
    report(world.registry.snapshot().version)
    assert carried_out(world, begun).state == "succeeded"
    assert world.refused() == []


def test_a_plan_that_changed_since_the_preview_is_not_carried_out(world: World) -> None:
    """The plan that a person saw is the plan that is carried out, or none."""
    proposal = propose_types(OperationKind.ACCEPT_TYPE, world.engine, world.paths.bronze, CHESS.key, ["Sold"], "ann")
    accepted(world)
    withdraw(world, "Sold")
    late = carried_out(world, submit(world.engine, proposal.intent))
    assert (late.state, "changed" in str(late.outcome)) == ("failed", True)


def test_types_and_views_are_listed(world: World) -> None:
    """The list counts rows of each type where they are, and each view has a type's rows with its own columns."""
    env = ["--env-dir", str(world.paths.root)]

    def listed() -> list[dict[str, object]]:
        result = CliRunner().invoke(cli, ["schemas", "types", "Chess", "--json", *env])
        assert result.exit_code == 0, result.output
        return json.loads(result.output)  # type: ignore[no-any-return]

    names = ("type", "state", "column", "rows", "refused")
    assert [tuple(each[name] for name in names) for each in listed()] == [
        ("t.M", "first", None, 1, 0), ("acme.Sold", "waits", None, 0, 2),
    ]  # fmt: skip
    accepted(world)
    assert [tuple(each[name] for name in names) for each in listed()] == [
        ("t.M", "first", None, 1, 0), ("acme.Sold", "accepted", "sold", 2, 0),
    ]  # fmt: skip
    types = game_types(world.registry.snapshot(), CHESS.key)
    made = views(CHESS.key, types, ("main", "games", CHESS.key), "folder")
    files = [unquote(each) for each in open_table(world.paths.table(CHESS.key)).file_uris()]
    with duckdb.connect() as database:
        for each in made:
            database.execute(
                each.duckdb.replace("delta_scan('folder')", f"read_parquet({files}, union_by_name = true)")
            )
        sales = database.execute(f'SELECT item, price FROM "{made[1].name}" ORDER BY _pos').fetchall()
        points = database.execute(f'SELECT points FROM "{made[0].name}"').fetchall()
    assert (sales, points) == ([("bow", 5), ("axe", 0)], [(1,)])
    assert f"`main`.`games`.`{CHESS.key}__sold`" in made[1].unity_catalog


CLICK = Schema(
    0,
    "json",
    "acme.Click",
    JsonFormat().canonical(
        "acme.Click",
        b"""{
    "type": "object", "properties": {"user-id": {"type": "string"}, "x": {"type": "integer"}}
}""",
    ),
)


def test_a_type_is_accepted_with_the_policies_that_its_columns_need(world: World) -> None:
    """JSON's keys may be no names of columns: a person says by the same command what becomes of them."""
    (click,) = come(world, CLICK)
    world.ingest(Event(CHESS, click.schema_id, b'{"user-id": "ann", "x": 1}'))
    world.split()
    wanted = (OperationKind.ACCEPT_TYPE, world.engine, world.paths.bronze, CHESS.key, ["Click"], "ann", "clicks")
    with pytest.raises(Refused, match=r"user-id.*name=side-column"):
        propose_types(*wanted)
    proposal = propose_types(*wanted, policies=["name=side-column"])
    done = carried_out(world, submit(world.engine, proposal.intent))
    assert done.state == "succeeded", done.outcome
    (landed,) = [row["click"] for row in world.contents() if row["click"] is not None]
    assert sorted(landed.values(), key=str) == [1, "ann"]


def test_a_type_is_accepted_with_the_policies_by_which_it_came(world: World) -> None:
    """A registry's policies hold for its schemas, whether their type was accepted before they came or after."""
    come(world, CLICK, policies=parse_policies(["name=side-column"]))
    proposal = propose_types(OperationKind.ACCEPT_TYPE, world.engine, world.paths.bronze, CHESS.key, ["Click"], "ann")
    assert carried_out(world, submit(world.engine, proposal.intent)).state == "succeeded"


@pytest.mark.parametrize("begins", [OperationKind.ACCEPT_TYPE, OperationKind.WITHDRAW_TYPE])
def test_types_of_a_game_that_has_sent_nothing_are_decided(tmp_path: Path, begins: OperationKind) -> None:
    """People register what a game will send before it sends; no driver has to report such a game."""
    world = make_world(tmp_path)
    come(world, SOLD)
    if begins == OperationKind.WITHDRAW_TYPE:
        accept(world, "Sold")
    proposal = propose_types(begins, world.engine, world.paths.bronze, CHESS.key, ["Sold"], "ann")
    done = carried_out(world, submit(world.engine, proposal.intent))
    assert done.state == "succeeded", done.outcome
