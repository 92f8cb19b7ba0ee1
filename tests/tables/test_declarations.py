"""Event types that were declared as their documents came, on real tables: no value moves, and it can be undone."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, update

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control import proposals
from pipeline.control.controller import KINDS
from pipeline.control.operations.declarations import declaration_of, propose_declaration
from pipeline.control.operations.definition import OperationProposal
from pipeline.control.operations.event_types import propose_types
from pipeline.control.operations.executor import tick
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registry import Registration
from pipeline.data.repair import asking
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import DemuxContext
from pipeline.data.streams.lookup import Lookup
from pipeline.data.streams.outage import CachedRegistry
from pipeline.data.streams.stream import Stream
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Schemas
from pipeline.store.database.states import OperationKind
from pipeline.store.database.tables import games
from pipeline.store.games import register_group
from pipeline.store.operations import Operation, operation, submit
from pipeline.store.schema_needs import OpenNeed
from tests.game_streams import LocalBronze, roster_of
from tests.tables.around_world import passes_of
from tests.tables.choices_world import CHESS, carried_out, context, is_clean, rebuild_is_the_same, rebuilt, refused
from tests.tables.foreign_world import BronzeRows
from tests.tables.merging_world import merged
from tests.tables.registering_world import (
    arrive,
    content,
    drive,
    killed_at,
    registry,
    resolve,
    shapes,
    supersets,
    world_of,
)
from tests.tables.shapes_world import GAME, KEY, by_tasks, gather, one_by_one, table, without_nulls
from tests.tables.value_world import ValueWorld

MOVES = [b'{"x":1,"a-b":{"c":[{"d":1}],"m":{"11":2}},"_q":true,"A":1,"a":"x"}', b'{"f":2.5}']
OWN = {"_seq", "_pos", "_event_id", "_event_time", "_source_time"}
AS_DECLARED = ("move", b'{"x":5.0}')
"""No column of the superset takes it, since 5.0 is a fraction; the schema does, by its value."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ValueWorld:
    """Chess, whose moves have landed. A replay finds the shapes that it lacks registered at once, as by a driver."""
    made = world_of(tmp_path, [("move", each) for each in MOVES])
    drive(made)

    def as_a_driver(_: Engine, needs: Sequence[OpenNeed]) -> None:
        resolve(made, *[Need(KEY, GAME, each.registry, each.writer, each.seq, each.pos) for each in needs])

    monkeypatch.setattr(asking, "ask_drivers", as_a_driver)
    return made


def proposed(world: ValueWorld, kind: OperationKind = OperationKind.DECLARE_TYPE) -> OperationProposal:
    return propose_declaration(kind, registry(world), world.engine, GAME, "move", "ann", "stable")


def declared(world: ValueWorld) -> Operation:
    done = carried_out(world, submit(world.engine, proposed(world).intent))
    assert done.state == "succeeded", done.outcome
    return done


def undone(world: ValueWorld, done: Operation) -> None:
    undo = proposals.undo(world.settings, world.engine, done, "ann", "a mistake")
    after = carried_out(world, submit(world.engine, undo.intent))
    assert after.state == "succeeded", after.outcome


def test_the_preview_shows_the_schema_and_what_becomes_of_documents(world: ValueWorld) -> None:
    """The operation says before it begins which schema it registers, which columns stay, and what is refused."""
    shown = "\n".join(proposed(world).lines)
    assert '"title": "move"' in shown
    assert "column(s) stay, and no value moves: " in shown
    assert "All others go to quarantine as malformed_payload." in shown
    assert [version for _, version, _ in supersets(world)] == [1]


def test_a_declared_type_keeps_its_columns(world: ValueWorld) -> None:
    """No value that the superset covers moves; pass, rebuild and single rows agree, and the type grows no more."""
    before = table(world)
    assert is_clean(world)
    declared(world)
    assert is_clean(world)
    arrive(world, [("move", MOVES[0]), ("move", b'{"new":1}'), ("move", b'{"f":3}'), AS_DECLARED])
    assert drive(world) == 0
    after = table(world)
    assert after[: len(before)] == before
    assert {key: each for key, each in after[2].items() if key not in OWN} == {
        key: each for key, each in before[0].items() if key not in OWN
    }
    assert (len(after), after[-1]["x"], refused(world)) == (5, 5, ["malformed_payload"])
    assert is_clean(world)
    assert one_by_one(world, world.paths.root / "one") == by_tasks(world, world.paths.root / "all", ())
    assert one_by_one(world, world.paths.root / "again") == [without_nulls(row) for row in after]
    rebuild_is_the_same(world)


def test_a_declaration_is_undone(world: ValueWorld) -> None:
    """Rows go by the superset again, what landed by the schema stays until a rebuild, and `verify --values` knows."""
    done = declared(world)
    arrive(world, [AS_DECLARED, ("move", b'{"new":1}')])
    drive(world)
    assert refused(world) == ["malformed_payload"]
    undone(world, done)
    landed = table(world)
    assert ([(row["x"], row["new"]) for row in landed], refused(world)) == (
        [(1, None), (None, None), (5, None), (None, 1)], []
    )  # fmt: skip
    assert is_clean(world)
    arrive(world, [("move", b'{"x":6.0,"new":2}')])
    drive(world)
    assert table(world)[:4] == [{**row, "x__v2": None} for row in landed]
    assert (table(world)[-1]["new"], table(world)[-1]["x__v2"]) == (2, 6.0)
    assert is_clean(world)
    with pytest.raises(Refused, match="is not declared as its documents came"):
        proposed(world, OperationKind.UNDECLARE_TYPE)
    rebuilt(world)
    assert [(row["x"], row["x__v2"]) for row in table(world)][2] == (None, 5.0)
    assert is_clean(world)


def test_rows_that_landed_by_a_schema_stay_as_it_is_declared_again(world: ValueWorld) -> None:
    """A second declaration moves nothing that landed by the first, though the superset has a place for it by now."""
    done = declared(world)
    arrive(world, [AS_DECLARED])
    drive(world)
    undone(world, done)
    arrive(world, [("move", b'{"x":6.0}')])
    drive(world)
    before = table(world)
    declared(world)
    arrive(world, [AS_DECLARED])
    assert drive(world) == 0
    assert table(world)[: len(before)] == before
    assert (table(world)[-1]["x"], table(world)[-1]["x__v2"]) == (None, 5.0)
    assert is_clean(world)


def test_columns_can_be_merged_after_a_declaration_was_withdrawn(world: ValueWorld) -> None:
    """L12: the rebuild of a merge reads by the superset what landed by a schema that the type no longer has.

    That schema is not declared again, as its columns are no longer the table's; one of the merged columns is.
    """
    first = declaration_of(registry(world).snapshot(), CHESS, "move").registration
    done = declared(world)
    arrive(world, [AS_DECLARED])
    drive(world)
    with pytest.raises(Refused, match="is declared: its columns stay as declared"):
        merged(world, "x")
    undone(world, done)
    arrive(world, [("move", b'{"x":6.5}')])
    drive(world)
    merge = merged(world, "x")
    assert [row["x"] for row in table(world)] == [1.0, None, 5.0, 6.5]
    assert is_clean(world)
    with pytest.raises(Refused, match="were merged since this schema was withdrawn"):
        registry(world).register_many([first])
    declared(world)
    arrive(world, [AS_DECLARED, ("move", b'{"x":7,"f":1.5}')])
    drive(world)
    assert [row["x"] for row in table(world)[4:]] == [5.0, 7.0]
    assert is_clean(world)
    rebuild_is_the_same(world)
    with pytest.raises(Refused, match="is declared: its columns stay as declared"):
        undone(world, merge)


@pytest.mark.parametrize("point", ["after_publish_id", "after_publish_placed", "after_store_commit"])
def test_a_declaration_that_was_killed_is_carried_on(world: ValueWorld, point: str) -> None:
    """A controller that was killed between two effects registers the same schema once."""
    begun = submit(world.engine, proposed(world).intent)
    with pytest.raises(BaseException, match=point), killed_at(point):
        tick(context(world), KINDS)
    assert carried_out(world, begun).state == "succeeded"
    assert [(each.format, each.schema_id) for each in registry(world).snapshot().of(KEY)][1:] == [("json", 2)]
    arrive(world, [AS_DECLARED])
    drive(world)
    assert is_clean(world)


def test_a_type_that_grew_since_the_preview_is_not_declared(world: ValueWorld) -> None:
    """The operation ends without effect after the type got another column."""
    shown = proposed(world)
    arrive(world, [("move", b'{"later":1}')])
    drive(world)
    begun = submit(world.engine, shown.intent)
    carried_out(world, begun)
    assert operation(world.engine, begun.operation_id).state == "failed"
    assert all(each.format != "json" for each in registry(world).snapshot().of(KEY))


@pytest.mark.proves("G198")
def test_a_declaration_with_a_breaking_change_needs_a_second_person(world: ValueWorld) -> None:
    """The operation registers no schema that lacks a column of the table where a second person must approve that."""
    whole = world.settings
    arrive(world, [("move", b'{"x":"text"}')])
    drive(world)  # the schema has the first column of `x`, not the one beside it
    world.settings = replace(whole, schemas=Schemas(second_person=True))
    ended = carried_out(world, submit(world.engine, proposed(world).intent))
    assert ended.state == "failed"
    assert "has a breaking change, which a second person must approve" in str(ended.outcome)
    assert all(each.format != "json" for each in registry(world).snapshot().of(KEY))
    world.settings = whole
    declared(world)


def test_a_declaration_without_a_breaking_change_needs_nobody_else(tmp_path: Path) -> None:
    """One person declares a type whose schema has each column of the table, also where breaking changes need two."""
    world = world_of(tmp_path, [("move", b'{"x":1}')])
    drive(world)
    world.settings = replace(world.settings, schemas=Schemas(second_person=True))
    declared(world)


def test_a_type_with_a_schema_of_its_own_stays_declared(world: ValueWorld) -> None:
    """A schema that a person wrote may have other columns, so neither operation takes the type."""
    definition = b'{"title":"move","type":"object","properties":{"x":{"type":"integer"},"more":{"type":"string"}}}'
    registry(world).register_many([Registration(GAME, "move", definition, format="json")])
    with pytest.raises(Refused, match="is declared already"):
        proposed(world)
    with pytest.raises(Refused, match="is not declared as its documents came"):
        proposed(world, OperationKind.UNDECLARE_TYPE)


def test_a_further_type_with_side_columns_is_declared(world: ValueWorld) -> None:
    """The columns of a further type lie in its struct column, which may have more members than the schema."""
    for document in (b'{"price":1,"of":{"a":1}}', b'{"price":"free","of":{"a":"x"}}'):
        arrive(world, [("sold", document)])
        gather(world, "sold")
        drive(world)
    before = table(world)
    proposal = propose_declaration(OperationKind.DECLARE_TYPE, registry(world), world.engine, GAME, "sold", "ann", "so")
    done = carried_out(world, submit(world.engine, proposal.intent))
    assert done.state == "succeeded", done.outcome
    arrive(world, [("sold", b'{"price":2.0}'), ("sold", b'{"price":3}')])
    assert drive(world) == 0
    assert table(world)[: len(before)] == before
    assert [row["sold"]["price"] for row in table(world)[-2:]] == [2, 3]
    assert is_clean(world)


@pytest.mark.parametrize("declares", [True, False])
def test_a_store_from_before_a_merge_gets_it_again(world: ValueWorld, *, declares: bool) -> None:
    """L1, L6: rows wait while a restored store lacks the merge that their table has, and land once it is known again.

    Also where the type was still declared then. No document has anything new, so only the table tells of the merge.
    """
    arrive(world, [("move", b'{"x":"text"}')])
    drive(world)
    done = declared(world) if declares else None
    back_up(world)
    if done is not None:
        undone(world, done)
    merged(world, "x")
    before = content(world)
    restore(world)
    world.streams.clear()
    arrive(world, [("move", b'{"x":9}')])
    registering = shapes(world)
    stream = caught_up(world, Lookup(world.engine, None, registering))
    assert (stream.other_columns, stream.decision.parked_at) == (frozenset({"move"}), None)
    for _ in range(4):
        registering.step()
    assert content(world) == before
    assert drive(world) == 0
    assert [row["x"] for row in table(world)] == ["1", None, "text", "9"]
    assert is_clean(world)


def caught_up(world: ValueWorld, lookup: Lookup) -> Stream:
    """Let a driver of the game's group catch up with bronze, and ask for what its stream waits for."""
    register_group(world.engine, "a", placing())
    with world.engine.begin() as connection:
        connection.execute(update(games).values(group_name="a"))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    roster, schemas = roster_of(world.settings, world.paths, world.engine), CachedRegistry(registry(world))
    driver = DemuxContext(spark, world.settings, roster, schemas, lambda _: None, lookup.want)
    bronze = LocalBronze(world.settings, world.paths, world.engine, lambda low, high, _: BronzeRows(world, low, high))
    with ThreadPoolExecutor(2) as pool:
        catch_up = CatchUp(driver, world.paths.root / "checkpoint", bronze, passes_of(world, "catch-up", pool))
        roster.sync()
        while catch_up.step(lambda _: world.seq, lambda _: world.seq):
            pass
    return roster.streams[KEY]


def back_up(world: ValueWorld) -> None:
    world.engine.dispose()
    shutil.copyfile(world.paths.control_db, world.paths.root / "copy.db")


def restore(world: ValueWorld) -> None:
    world.engine.dispose()
    for file in world.paths.root.glob("control.db*"):
        file.unlink()
    shutil.copyfile(world.paths.root / "copy.db", world.paths.control_db)


def test_a_withdrawn_declaration_stays_so_as_its_type_is_accepted_again(world: ValueWorld) -> None:
    """L5: withdrawing and accepting a type brings no schema back by which its next documents would be refused."""
    arrive(world, [("sold", b'{"price":1}')])
    gather(world, "sold")
    drive(world)
    proposal = propose_declaration(OperationKind.DECLARE_TYPE, registry(world), world.engine, GAME, "sold", "ann", "so")
    done = carried_out(world, submit(world.engine, proposal.intent))
    arrive(world, [("sold", b'{"price":2.0}')])
    drive(world)
    undone(world, done)
    for kind, state in ((OperationKind.WITHDRAW_TYPE, "withdrawn"), (OperationKind.ACCEPT_TYPE, "accepted")):
        decided = propose_types(kind, world.engine, world.paths.bronze, GAME, ["sold"], "ann", "of the studio")
        assert carried_out(world, submit(world.engine, decided.intent)).state == "succeeded"
        types = [(each.name, each.state) for each in game_types(registry(world).snapshot(), KEY)]
        assert types == [("move", "first"), ("sold", state)]
        assert is_clean(world)
    arrive(world, [("sold", b'{"price":3,"new":1}')])
    drive(world)
    assert refused(world) == []
    assert [row["sold"]["price"] for row in table(world)[2:]] == [1, 2, 3]
    assert is_clean(world)
    again = propose_declaration(OperationKind.DECLARE_TYPE, registry(world), world.engine, GAME, "sold", "ann", "so")
    assert carried_out(world, submit(world.engine, again.intent)).state == "succeeded"
    assert is_clean(world)


def test_commands_show_declare_and_withdraw(world: ValueWorld) -> None:
    """A dry run of each command prints its plan, and submits nothing."""
    env = ["--env-dir", str(world.paths.root), "--dry-run"]
    shown = CliRunner().invoke(cli, ["schemas", "declare", GAME, "--type", "move", *env])
    assert (shown.exit_code, "column(s) stay" in shown.output) == (0, True), shown.output
    declared(world)
    shown = CliRunner().invoke(cli, ["schemas", "undeclare", GAME, "--type", "move", *env])
    assert (shown.exit_code, "Rows that landed stay until a rebuild" in shown.output) == (0, True), shown.output
