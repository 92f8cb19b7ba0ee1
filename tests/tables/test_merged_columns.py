"""Columns of undeclared JSON that a person joins: one operation, one rebuild, one column from then on."""

from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, stream_app_id
from pipeline.cli.main import cli
from pipeline.control import proposals
from pipeline.control.operations.definition import OperationProposal
from pipeline.data.contracts.formats.json.merging import DOUBLE, columns_of_keys
from pipeline.data.contracts.formats.json.superset import ANY
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.type_views import views
from pipeline.data.output_contracts.rules import Action, ContractRule
from pipeline.data.repair.decoding import RowsWait
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.streams import lanes
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.data.variations.registering import Registrar, newest_supersets
from pipeline.lake.delta.columns import OtherColumns
from pipeline.lake.delta.table import CursorTable
from pipeline.store.operations import Operation, submit
from pipeline.store.stream_control import StreamControl
from tests.tables.choices_world import carried_out
from tests.tables.contracts_world import give
from tests.tables.merging_world import merged, mixed, proposed, require_laws, values
from tests.tables.registering_world import (
    Killed,
    arrive,
    content,
    drive,
    killed_at,
    registry,
    resolve,
    two_types,
    world_of,
)
from tests.tables.repair_world import CHESS
from tests.tables.shapes_world import GAME, KEY, quarantine, table, types
from tests.tables.value_world import ValueWorld


@pytest.fixture
def world(tmp_path: Path) -> ValueWorld:
    """Chess, whose moves had numbers as x, then texts, and y with and without a fraction."""
    return mixed(tmp_path / "env")


def test_columns_are_joined_as_text(world: ValueWorld, tmp_path: Path) -> None:
    """Laws L1, L5, L12: one rebuild makes one column of text, where later values land; each way to the table agrees."""
    assert values(world)[2:] == [{"x__v3": "a", "y__v2": 2.5}, {"x__v4": '[1,"b"]'}, {"x__v2": {"k": 5}}]
    ids = [row["_schema_id"] for row in table(world)]
    proposal = proposed(world, "x__v3")
    assert proposal.lines[0] == "'move' of 'Chess': x long, x__v3 string, x__v4 string → x string"
    assert "x__v3, x__v4: change queries" in proposal.lines[2]
    assert "the table is rebuilt" in proposal.lines[3]
    merged(world, "x__v3")
    assert values(world) == [
        {"x": "1", "y": 1}, {}, {"x": "a", "y__v2": 2.5}, {"x": '[1,"b"]'}, {"x__v2": {"k": 5}},
    ]  # fmt: skip
    after = [row["_schema_id"] for row in table(world)]
    assert [now == before for now, before in zip(after, ids, strict=True)] == [False, True, False, False, True]
    later = [b'{"x":true}', b'{"x":5.50}', b'{"x":"\xc3\xa9"}', b'{"x":12345678901234567890123}', b'{"x":[]}']
    arrive(world, [("move", each) for each in later])
    assert drive(world) == 0, "nothing is new"
    assert values(world)[5:] == [{"x": "true"}, {"x": "5.50"}, {"x": "é"}, {"x": "12345678901234567890123"}, {}]
    assert types(world)["x"] == "string"
    require_laws(world, tmp_path)


def view(world: ValueWorld) -> str:
    types_now = game_types(registry(world).snapshot(), KEY)
    (made,) = views(KEY, types_now, ("main", "games", "chess"), "folder")
    return made.duckdb


def test_views_show_a_merged_column_as_it_is(world: ValueWorld) -> None:
    """A view joins a column with its side columns until the table itself has one."""
    assert "coalesce" in view(world)
    merged(world, "x")
    merged(world, "y")
    assert "coalesce" not in view(world)


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (b"9007199254740992", "double"),
        (b"9007199254740993", "string"),
        (b"-9", "double"),
        (b"-9007199254740993", "string"),
    ],
)
def test_whole_numbers_become_doubles_if_these_hold_them(tmp_path: Path, first: bytes, kind: str) -> None:
    """Numbers that landed keep all their digits: as doubles if each is held, else as text."""
    world = world_of(tmp_path / "env", [("move", b'{"s":{"y":' + first + b"}}")])
    drive(world)
    arrive(world, [("move", b'{"s":{"y":2.5}}')])
    drive(world)
    assert f"→ s.y {kind}" in proposed(world, "s.y__v2").lines[0]
    merged(world, "s.y__v2")
    assert types(world)["s.y"] == kind
    found = [row["s"]["y"] for row in values(world)]
    assert found == ([float(first), 2.5] if kind == "double" else [first.decode(), "2.5"])
    arrive(world, [("move", b'{"s":{"y":9007199254740993}}')])
    drive(world)
    wanted = {"y__v3": "9007199254740993"} if kind == "double" else {"y": "9007199254740993"}
    assert values(world)[-1]["s"] == wanted, "no column gets the name of one that was joined"
    require_laws(world, tmp_path)


def test_rows_wait_for_the_rebuild(world: ValueWorld) -> None:
    """L6, L7: between the registration and the rebuild no row lands in a column of another type, and nothing parks."""
    before = table(world)
    Registrar(world.engine, world.paths.bronze, world.environment).choose(CHESS, "move", ("merge", "x", ANY))
    arrive(world, [("move", b'{"x":2}')])
    with pytest.raises(OtherColumns, match="were merged, or parted") as waits:
        world.split()
    assert table(world) == before
    failure = lanes.failure_of(waits.value)
    decision = StreamControl()
    for now in range(100):
        decision = lanes.failed(decision, failure, float(now), 0.5, charged=not failure.waits)
    assert (decision.parked_at, decision.failures) == (None, 0)
    rebuild(world.paths, world.environment, world.engine, registry(world).snapshot, CHESS)
    assert values(world)[-1] == {"x": "2"}


def test_no_commit_brings_a_merged_column_back(tmp_path: Path) -> None:
    """Laws L5, L12: where the first column was text, no type clashes; rows of the earlier set still find another table.

    Such as a driver's that had no control store while the column was merged.
    """
    world = world_of(tmp_path / "env", [("move", b'{"x":"a"}')])
    drive(world)
    arrive(world, [("move", b'{"x":1}')])
    drive(world)
    earlier, before = registry(world).snapshot(), table(world)
    Registrar(world.engine, world.paths.bronze, world.environment).choose(CHESS, "move", ("merge", "x", ANY))
    arrive(world, [("move", b'{"x":2}')])
    with pytest.raises(OtherColumns):
        world.split()
    assert table(world) == before
    rebuild(world.paths, world.environment, world.engine, registry(world).snapshot, CHESS)
    assert [row.get("x") for row in values(world)] == ["a", "1", "2"]
    app_id = stream_app_id(world.environment, GameKey(KEY), 2)
    opened = CursorTable.open(world.paths.table(KEY), app_id)
    assert opened is not None
    with pytest.raises(OtherColumns):
        opened.add_missing_columns(landing_schema(earlier, KEY))
    assert "x__v2" not in types(world)


def test_a_merge_is_undone_by_a_rebuild(world: ValueWorld, tmp_path: Path) -> None:
    """The undo parts the columns again. A value that landed meanwhile and fits none opens its own, and none is lost."""
    before, done = values(world), merged(world, "x")
    arrive(world, [("move", b'{"x":true}')])
    drive(world)
    proposal = proposals.undo(world.settings, world.engine, done, "ann", "a mistake")
    assert proposal.lines[0] == "'move' of 'Chess': x string → x long, x__v3 string, x__v4 string"
    undone = carried_out(world, submit(world.engine, proposal.intent))
    assert undone.state == "succeeded", undone.outcome
    assert values(world) == [*before, {"x__v5": True}]
    require_laws(world, tmp_path)
    again = proposals.undo(world.settings, world.engine, undone, "ann", "no mistake")
    assert carried_out(world, submit(world.engine, again.intent)).state == "succeeded"
    assert values(world)[-1] == {"x": "true"}


def test_the_later_merge_of_a_key_is_undone_first(world: ValueWorld) -> None:
    """An undo parts the columns of the merge that it names: while a later one of the key stands, it is refused."""

    def undo(done: Operation) -> OperationProposal:
        return proposals.undo(world.settings, world.engine, done, "ann", "a mistake")

    def undone(done: Operation) -> Operation:
        after = carried_out(world, submit(world.engine, undo(done).intent))
        assert after.state == "succeeded", after.outcome
        return after

    apart, first = values(world), merged(world, "y")
    arrive(world, [("move", b'{"y":9007199254740993}')])
    drive(world)
    between, second = values(world), merged(world, "y")
    with pytest.raises(Refused, match=f"again by merge-columns {second.operation_id[:8]} by ann: undo that first"):
        undo(first)
    undone(second)
    assert values(world) == between
    parted = undone(first)
    assert values(world) == [*apart, {"y": 9007199254740993}]
    with pytest.raises(Refused, match="is not merged"):
        undo(first)
    with pytest.raises(Refused, match="values that no double holds by now"):
        undo(parted)
    third = merged(world, "y")
    with pytest.raises(Refused, match=f"again by merge-columns {third.operation_id[:8]} by ann: undo that first"):
        undo(first)


def test_a_merge_that_joined_a_later_column_is_undone(world: ValueWorld) -> None:
    """A driver may open a column between the begin of a merge and its registration: the undo parts that one, too."""
    begun = submit(world.engine, proposed(world, "x").intent)
    with killed_at("before_commit_registration"), pytest.raises(Killed):
        carried_out(world, begun)
    arrive(world, [("move", b'{"x":true}')])
    drive(world)
    before = values(world)
    done = carried_out(world, begun)
    assert (done.state, values(world)[-1]) == ("succeeded", {"x": "true"}), done.outcome
    undo = proposals.undo(world.settings, world.engine, done, "ann", "a mistake")
    assert carried_out(world, submit(world.engine, undo.intent)).state == "succeeded"
    assert values(world) == before


POINTS: Final = [
    "after_publish_id", "after_publish_placed", "after_store_commit", "in_rebuild_switch", "after_switch_generation",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_merge_is_finished(world: ValueWorld, tmp_path: Path, point: str) -> None:
    """A controller that is killed between any two effects leaves an operation that the next one finishes, once."""
    begun = submit(world.engine, proposed(world, "x").intent)
    with killed_at(point), pytest.raises(Killed, match=point):
        carried_out(world, begun)
    done = carried_out(world, begun)
    assert done.state == "succeeded", done.outcome
    newest = superset_of(newest_supersets(registry(world).snapshot(), KEY)["move"])
    assert [each.kind for each in newest.root.slots["x"]] == [ANY, "struct"]
    assert newest.version == max(each.since for each in newest.root.slots["x"])
    require_laws(world, tmp_path)


def test_a_merge_that_cannot_be_is_refused_with_the_reason(world: ValueWorld) -> None:
    """A refusal names the columns that can be joined, or what is in the way; nothing is registered."""
    before = content(world)
    for column, of_type, why in [
        ("z", None, r"has the column 'z'\. Such have a side column: 'x', 'y'\."),
        ("x__v2.k", None, r"'x__v2\.k' of 'Chess' has no side column\. Such have a side column: 'x', 'y'\."),
        ("x", "sold", r"'sold' is no undeclared event type of 'Chess'\. Such are: 'move'\."),
    ]:
        with pytest.raises(Refused, match=why):
            proposed(world, column, of_type)
    assert content(world) == before
    proposal = proposed(world, "x")
    merged(world, "y")
    merged(world, "x")
    late = carried_out(world, submit(world.engine, proposal.intent))
    assert late.state == "failed", "the plan that a person saw is carried out, or none"
    with pytest.raises(Refused, match=r"has no side column\. Such have a side column: none"):
        proposed(world, "x")


@pytest.mark.parametrize(
    ("checks", "why"),
    [
        ({"column": "x", "min": 0}, "'x' as it is: as string"),
        ({"column": "x", "type": "integer"}, "'x' as it is: as string"),
        ({"column": "x", "allowed": (1, 2)}, "'x' as it is: as string"),
        ({"column": "x__v3", "required": True}, "'x__v3' as it is: without that column"),
        ({"column": "x", "required": True}, None),
        ({"column": "x__v3", "pattern": "a"}, "'x__v3' as it is: without that column"),
        ({"column": "x__v3", "pattern": "a", "action": "warn"}, "'x__v3' as it is: without that column"),
        ({"column": "x", "pattern": "[a-z]+"}, "'x' as it is: as string"),
        ({"column": "y", "min": 0}, None),
    ],
)
def test_a_merge_that_a_contract_would_refuse_is_not_begun(
    world: ValueWorld, checks: dict[str, Any], why: str | None
) -> None:
    """L5: a rebuild judges all rows, so a rule would refuse values that move, or check none any more."""
    actions: tuple[Action, ...] = ("quarantine", "stop")
    for action in actions:
        give(world, ContractRule("rule", **{"action": action, **checks}), types=("move",))
        if why is None:
            assert proposed(world, "x").lines
        else:
            with pytest.raises(Refused, match=why):
                proposed(world, "x")


@pytest.mark.parametrize("action", ["quarantine", "stop"])
@pytest.mark.parametrize("column", ["x", "x__v3"])
def test_an_undo_that_a_contract_would_refuse_is_not_begun(world: ValueWorld, action: Action, column: str) -> None:
    """L5: each row has a value in one of the parted columns, so a rule that requires one refuses rows that landed."""
    done = merged(world, "x")
    before = content(world)
    give(world, ContractRule("rule", column, action, required=True), types=("move",))
    with pytest.raises(Refused, match=f"promise/rule is for {column!r} as it is: as .* the rebuild would judge other"):
        proposals.undo(world.settings, world.engine, done, "ann", "a mistake")
    assert content(world) == before
    give(world, ContractRule("rule", column, "warn", required=True), types=("move",))
    assert proposals.undo(world.settings, world.engine, done, "ann", "a mistake").lines


def test_landed_rows_that_stop_a_rebuild_end_a_merge_first(world: ValueWorld) -> None:
    """L12: where the rebuild would be refused by a contract that is younger than the rows, nothing is registered."""
    before = content(world)
    give(world, ContractRule("low", "y", "stop", min=2), types=("move",))
    done = carried_out(world, submit(world.engine, proposed(world, "x").intent))
    assert done.state == "failed"
    assert "row 0 of seq 1 of 'Chess' breaks rule promise/low on column 'y', which stops" in str(done.outcome)
    assert content(world) == before
    arrive(world, [("move", b'{"x":9,"y":3}')])
    assert drive(world) == 0
    give(world, ContractRule("low", "y", "stop", min=1), types=("move",))
    merged(world, "x")


def test_the_command_shows_the_plan_first(world: ValueWorld) -> None:
    """`--dry-run` prints columns before and after and that it is one rebuild, and changes nothing."""
    before = content(world)
    words = ["schemas", "merge", GAME, "y", "--dry-run", "--env-dir", str(world.paths.root)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert "y long, y__v2 double → y double" in done.output
    assert "the table is rebuilt" in done.output
    assert content(world) == before


_VALUES: Final = st.sampled_from([
    "1", "-0", "2.5", "1e3", "9007199254740993", "0.1234567890123456789", "true", '"a"', '"1"', "null", "[]", '[1,"a"]',
    "[1]", '["a"]', '{"k":1}', '{"k":"x"}', "{}", "9223372036854775808",
])  # fmt: skip
_DOCUMENT: Final = st.dictionaries(st.sampled_from("abA"), _VALUES, max_size=3).map(
    lambda members: ("{" + ",".join(f'"{key}":{value}' for key, value in members.items()) + "}").encode()
)
_BATCHES: Final = st.lists(
    st.lists(st.tuples(st.sampled_from(["move", "sold"]), _DOCUMENT), min_size=1, max_size=4), min_size=2, max_size=4
)


def _merge_any(world: ValueWorld) -> None:
    """Join the columns of each key that has several, and rebuild."""
    registrar = Registrar(world.engine, world.paths.bronze, world.environment)
    for name, schema in newest_supersets(registry(world).snapshot(), KEY).items():
        for each in columns_of_keys(superset_of(schema)):
            kind = DOUBLE if each.may_be_double and "A" in each.path else ANY
            registrar.choose(CHESS, name, ("merge", each.path, kind))
    for _ in range(5):
        try:
            rebuild(world.paths, world.environment, world.engine, registry(world).snapshot, CHESS)
        except RowsWait:  # a double does not hold a number that landed
            resolve(world)
        else:
            return
    raise AssertionError("its needs are never answered")


def _require_function(folder: Path, batches: list[list[tuple[str, bytes]]], merges: set[int]) -> None:
    world = two_types(folder / "env")
    for number, batch in enumerate(batches):
        arrive(world, batch)
        drive(world)
        if number in merges:
            _merge_any(world)
    assert len(table(world)) + len(quarantine(world)) == world.offset
    require_laws(world, folder)
    world.engine.dispose()


@settings(max_examples=1, deadline=None)
@example(
    batches=[
        [("move", b'{"a":1,"A":1}'), ("sold", b'{"a":true}')],
        [("move", b'{"a":"x","A":2.5}'), ("sold", b'{"a":[1,"a"],"b":{"k":1}}')],
        [("move", b'{"a":{"k":1},"A":3}'), ("sold", b'{"a":0.1234567890123456789,"b":{"k":"x"}}')],
    ],
    merges={1, 2},
)
@given(batches=_BATCHES, merges=st.sets(st.integers(0, 3)))
def test_a_table_with_merged_columns_is_a_function_of_bronze(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, bytes]]], merges: set[int]
) -> None:
    """Laws L1, L5, L12: whenever columns were merged, passes, single rows, a lost store and a rebuild agree."""
    _require_function(tmp_path_factory.mktemp("merged"), batches, merges)


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(max_examples=40, deadline=None)
@given(batches=_BATCHES, merges=st.sets(st.integers(0, 3)))
def test_a_table_with_merged_columns_is_a_function_of_bronze_for_many_documents(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, bytes]]], merges: set[int]
) -> None:
    """Laws L1, L5, L12, for more documents and merges."""
    _require_function(tmp_path_factory.mktemp("merged"), batches, merges)
