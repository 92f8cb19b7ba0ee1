"""Between a merge's registration and the switch of its rebuild: the old table serves, and every tool knows it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.base.errors import Refused
from pipeline.control import proposals as operation_proposals
from pipeline.control.output_contracts import proposals
from pipeline.data.contracts.formats.json.merging import DOUBLE
from pipeline.data.contracts.formats.json.superset import ANY
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.repair.decoding import RowsWait
from pipeline.data.repair.dedupe import dedupe
from pipeline.data.variations.registering import newest_supersets
from pipeline.lake.delta.columns import OtherColumns
from pipeline.store.games import known_names
from pipeline.store.operations import submit
from tests.tables.around_world import PHASES, Around, around
from tests.tables.choices_world import carried_out, is_clean, rebuilt
from tests.tables.merging_world import chosen, merged, mixed, proposed, values
from tests.tables.registering_world import arrive, registry, resolve
from tests.tables.repair_world import CHESS
from tests.tables.shapes_world import GAME, KEY, quarantine, table
from tests.tables.value_world import ValueWorld


@pytest.fixture
def world(tmp_path: Path) -> ValueWorld:
    """Chess, whose moves had numbers as x, then texts, and y with and without a fraction."""
    made = mixed(tmp_path / "env")
    assert is_clean(made)
    return made


def merged_by(world: ValueWorld, key: str) -> str:
    """Return the superset that merged the columns of a key."""
    slots = superset_of(newest_supersets(registry(world).snapshot(), KEY)["move"]).root.slots[key]
    return str(max(each.since for each in slots if each.joined))


def require_waiting(world: ValueWorld, document: bytes) -> None:
    """Let a row arrive, which waits, as the table has not the columns of the newest superset."""
    before = table(world)
    arrive(world, [("move", document)])
    with pytest.raises(OtherColumns):
        world.split()
    assert table(world) == before
    assert is_clean(world)


def require_one_rebuild(world: ValueWorld) -> None:
    """Compare the table with that of a rebuild; each row of bronze is there or in quarantine."""
    before = table(world)
    assert len(before) + len(quarantine(world)) == world.offset
    assert is_clean(world)
    rebuilt(world)
    assert table(world) == before


def test_verify_reads_a_table_by_the_merges_that_it_names(world: ValueWorld) -> None:
    """L12: before and after the switch of a rebuild, of merges and of their undos, no row is accused."""
    chosen(world, "merge", "x", ANY)
    require_waiting(world, b'{"x":true}')
    chosen(world, "merge", "y", DOUBLE)
    require_waiting(world, b'{"y":9007199254740993}')
    with pytest.raises(RowsWait):
        rebuilt(world)
    resolve(world)
    assert is_clean(world), "the shape of a waiting row is registered after the merge"
    rebuilt(world)
    assert is_clean(world)
    chosen(world, "split", "x", merged_by(world, "x"))
    require_waiting(world, b'{"x":2}')
    with pytest.raises(RowsWait):
        rebuilt(world)
    resolve(world)
    assert is_clean(world), "a shape is registered after the undo"
    chosen(world, "pin")
    assert is_clean(world), "a later choice changes no columns"
    rebuilt(world)
    assert is_clean(world)
    assert [row.get("y") for row in values(world)[:3]] == [1.0, None, 2.5]


@pytest.mark.parametrize("column", ["x", "x__v3", "_schema_id"])
def test_a_wrong_value_is_found_before_the_switch(world: ValueWorld, column: str) -> None:
    """`verify --values` compares the rows of a table that waits for its rebuild with bronze, too."""
    chosen(world, "merge", "x", ANY)
    place = (2, 0) if column == "x__v3" else (1, 0)
    world.alter(GAME, column, lambda value: value * 2, place)
    found = world.check().values
    assert found is not None
    assert [(each.column, each.seq, each.pos) for each in found.named] == [(column, *place)]


def test_dedupe_keeps_the_copy_that_bronze_gives_before_the_switch(world: ValueWorld) -> None:
    """L4: copies that differ are judged by the columns that their table has."""
    before = table(world)
    place = before[0]["_seq"], before[0]["_pos"]

    def doubled(rows: pa.Table) -> pa.Table:
        wrong = [{**row, "x": 7} for row in rows.to_pylist() if (row["_seq"], row["_pos"]) == place]
        return pa.Table.from_pylist([*wrong, *rows.to_pylist()], schema=rows.schema)

    world.rewrite(GAME, place, doubled)
    chosen(world, "merge", "x", ANY)
    done = dedupe(world.paths, world.environment, registry(world).snapshot, CHESS)
    assert (done.removed, done.differing) == (1, 1)
    assert table(world) == before


def test_rows_that_wait_leave_no_files(world: ValueWorld) -> None:
    """A pass and a replay that found other columns come again within seconds: they delete the files that they wrote."""

    def files() -> set[str]:
        return {each.name for each in Path(world.paths.table(KEY)).glob("*.parquet")}

    with ThreadPoolExecutor(2) as pool:
        made = Around(world, pool)
        before = files()
        chosen(world, "merge", "x", ANY)
        arrive(world, [("move", b'{"x":true}')])
        made.passes()
        made.replay(1)
    assert made.waited == 3
    assert files() == before


def test_a_contract_is_not_applied_during_a_merge(world: ValueWorld) -> None:
    """L5: a merge looks at contracts as it begins; a later one could move all rows to quarantine at its switch."""

    def apply(game: str) -> None:
        rules = "[{column: x, action: quarantine, min: 0}]"
        file = f"version: 1\ncontracts: [{{name: c, games: [{game}], rules: {rules}}}]"
        plan = proposals.plan(world.engine, world.paths, registry(world).snapshot(), known_names(world.engine), file)
        proposals.apply(world.settings, world.engine, plan, "ann", "agreed")

    begun = submit(world.engine, proposed(world, "x").intent)
    with pytest.raises(Refused, match=f"'Chess', .* apply it once merge-columns {begun.operation_id[:8]} by ann has"):
        apply(GAME)
    apply("Go")
    assert carried_out(world, begun).state == "succeeded"
    apply(GAME)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("phase", range(PHASES))
def test_drivers_go_on_around_a_merge(world: ValueWorld, phase: int) -> None:
    """Laws L1, L5, L6, L12: whatever lands, arrives or is replayed between two effects, the table is that of a rebuild.

    Two owners of the group pass, one of them with the schemas of its pass before, and no row is accused at any time.
    """
    with around(world, phase) as merging:
        done = merged(world, "x")
    require_one_rebuild(world)
    with around(world, phase) as parting:
        undo = operation_proposals.undo(world.settings, world.engine, done, "ann", "a mistake")
        assert carried_out(world, submit(world.engine, undo.intent)).state == "succeeded"
    require_one_rebuild(world)
    for each in (merging, parting):
        assert each.waited, "rows came between a registration and its switch"
        assert each.replayed, "a refused row landed"
