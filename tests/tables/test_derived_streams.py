"""A driver carries the derived streams of its games, from the file that a person applies to the list of lags."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.control.derived.proposals import plan
from pipeline.data.derived.carrying import DerivedStreams
from pipeline.data.derived.definitions import dumps
from pipeline.data.derived.held_ids import HeldIds, IdRoom
from pipeline.data.derived.uniqueness import read_unique_by
from pipeline.data.output_contracts.rules import OutputContract
from pipeline.data.output_contracts.rules import dumps as dumps_contracts
from pipeline.data.repair.rebuild import rebuild
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import read_fleet
from pipeline.lake.delta.opening import open_table
from pipeline.store import derived as store
from pipeline.store import output_contracts
from pipeline.store.output_contracts import read_contracts
from tests.tables.derived_world import RULE, apply, contents, driver, event_of, listed, made, turnout, world
from tests.tables.repair_world import CHESS, GO, World, good
from tests.tables.types_world import SALE, accept, come, event, withdraw
from tests.unit.data.contracts.registering_world import proto
from tests.unit.store.outage_world import away

__all__ = ["world"]  # a fixture

GOLD = "\n- {{name: g, kind: gold, source: a, window: 1h, aggregates: {{n: {}}}}}"


def test_applied_streams_are_carried_by_the_driver_of_the_game(world: World) -> None:
    """Each type of a game gets its own flat table, by the driver that holds the game and by no other one."""
    sold = 2
    assert "sold has the columns _seq, _pos, _event_time, _event_id, _source_time, item, price" in apply(world)
    assert "Nothing to change" in apply(world)
    assert [each.get("rows") for each in listed(world).values()] == [None, None, None]
    world.ingest(good(1), event_of(sold, item="a", price=3), good(2))
    world.split()
    driver(world, GO.key).finish()
    assert not (world.paths.silver / "sold").is_folder()
    carrying = driver(world, CHESS.key)
    carrying.finish()
    assert [row["points"] for row in contents(world, "first")] == [1, 2]
    (row,) = contents(world, "sold")
    assert (row["_seq"], row["_pos"], row["price"], len(row["item"])) == (1, 1, 3, 64)
    known = listed(world)["sold"]
    assert (known["rows"], known["behind"], known["lag_seconds"], known["error"]) == (1, 0, 0, None)
    world.ingest(good(3), event_of(sold, item="a", price=4))
    world.split()
    carrying.look()
    assert [row["price"] for row in contents(world, "sold")] == [3, 4]
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    carrying.look()
    assert [row["price"] for row in contents(world, "sold")] == [3, 4]
    assert listed(world)["sold"]["generation"] == 2


def test_the_silver_tables_of_a_driver_share_one_room_for_ids(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids in memory are bounded for the process, whatever the number of its tables."""
    turns, turn = list[tuple[int, int]](), IdRoom.turn

    def noted(room: IdRoom, ids: HeldIds) -> int:
        turns.append((id(room), id(ids)))
        return turn(room, ids)

    monkeypatch.setattr(IdRoom, "turn", noted)
    silver = "\n- {{name: {}, kind: silver, game: Chess, type: Sold, dedupe: {{within: 1h}}}}"
    apply(world, "derived:" + silver.format("a") + silver.format("b"))
    world.ingest(event_of(2, item="a", price=3))
    world.split()
    driver(world, CHESS.key).finish()
    assert len({ids for _, ids in turns}) == 2
    assert len({room for room, _ in turns}) == 1


def test_a_stream_that_fails_stands_still_alone(world: World) -> None:
    """Law L6: a failing stream says why, the game's other streams go on, and it goes on once its cause is gone."""
    apply(world)
    world.ingest(good(1), event_of(2, item="a", price=3))
    world.split()
    carrying = driver(world, CHESS.key)
    (world.paths.silver / "broken" / "_delta_log").make()
    bad = Path(str(world.paths.silver), "broken", "_delta_log", "00000000000000000000.json")
    bad.write_text("damaged")
    carrying.finish()
    assert len(contents(world, "sold")) == 1
    stopped = listed(world)["broken"]
    assert stopped["error"]
    assert stopped["failed_at"]
    assert "STANDS STILL" in turnout(world, "derived", "list")
    bad.unlink()
    driver(world, CHESS.key).finish()
    assert listed(world)["broken"]["error"] is None
    assert "price" not in contents(world, "broken")[0]


def test_silver_counts_the_rows_that_break_a_promise_of_uniqueness(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L3: the number lies in silver's own log beside its cursor; where no silver table checks, people read that."""
    placed, when = World._placed, datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(World, "_placed", lambda *about: {**placed(*about), "source_time": when})
    seen, contract = read_contracts(world.engine).number, OutputContract("sales", (CHESS.name,), unique="item")
    promised = [contract, replace(contract, name="moves", event_types=("t.M",))]
    output_contracts.apply(world.engine, dumps_contracts(promised), seen, "ann", "agreed")
    apply(world, "derived:\n- {name: sold, kind: silver, game: Chess, type: Sold, dedupe: {id: item, within: 1h}}")
    world.ingest(event_of(2, item="a", price=3), event_of(2, item="a", price=4), good(1))
    world.split()

    def shown() -> list[str]:
        return [line for line in turnout(world, "contracts", "show", "Chess").splitlines() if "is unique" in line]

    promise = "# sales: item is unique"
    unknown = f"{promise}: how many second rows silver sold has left out is not known: see `turnout derived list`"
    assert shown() == [unknown, "# moves: item is unique in 't.M': NOT CHECKED: no silver table names this type"]
    carrying = driver(world, CHESS.key)
    carrying.finish()
    assert shown()[0] == f"{promise}: NOT UNIQUE: silver sold has left out 1 second row within 1 h 0 min of the first"
    world.ingest(event_of(2, item="b", price=5), event_of(2, item="a", price=6))
    world.split()
    carrying.finish()
    assert listed(world)["sold"]["duplicates"] == 2
    assert "2 second rows left out" in turnout(world, "derived", "list")
    fleet = read_fleet(world.engine)
    checked = read_unique_by(world.engine, (row.game for row in fleet.rows))
    (found,) = read_controller_metrics(world.engine, fleet, (), checked).derived
    assert (found.duplicates, list(found.unique_by)) == (2, ["sales"])
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    driver(world, CHESS.key).finish()
    assert (listed(world)["sold"]["duplicates"], listed(world)["sold"]["generation"]) == (2, 2)


def test_streams_are_carried_while_the_store_is_away(world: World) -> None:
    """B3: an outage of the control store stops no derived stream that its driver knows; a stranger carries none."""
    apply(world)
    world.ingest(good(1), event_of(2, item="a", price=3))
    world.split()
    carrying = driver(world, CHESS.key)
    carrying.finish()
    world.ingest(good(2), event_of(2, item="a", price=4))
    world.split()
    with away(world.engine) as calls:
        driver(world, CHESS.key).look()
        assert [row["price"] for row in contents(world, "sold")] == [3]
        carrying.look()
        assert [row["points"] for row in contents(world, "first")] == [1, 2]
        assert [row["price"] for row in contents(world, "sold")] == [3, 4]
    assert calls
    carrying.look()
    assert (listed(world)["sold"]["rows"], listed(world)["sold"]["error"]) == (2, None)


def test_a_driver_that_may_have_old_schemas_waits_for_the_store(world: World) -> None:
    """B3: rows of a type that was accepted since, and those that a rebuild moved, wait; none is lost or misread."""

    def columns() -> set[str]:
        return {each.name for each in open_table(world.paths.silver / "first").schema().fields}

    apply(world)
    world.ingest(good(1), event_of(2, item="a", price=3))
    world.split()
    settings = replace(world.settings, derived=replace(world.settings.derived, step_rows=1))
    carrying = DerivedStreams(settings, world.paths, world.engine, "a", lambda key: key == CHESS.key)
    carrying.finish()
    before, had = contents(world, "first"), columns()
    world.ingest(good(2))
    world.split()
    (gift,) = come(world, proto("message Gift { int64 worth = 1; }"))
    accept(world, "Gift")
    world.ingest(good(3), event(gift, worth=9))
    world.split()
    with away(world.engine):
        carrying.look()
        assert (contents(world, "first"), columns()) == (before, had), "the new type's column would be the first one's"
    carrying.look()
    assert [row["points"] for row in contents(world, "first")] == [1, 2, 3]
    assert columns() == had
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    with away(world.engine):
        carrying.look()
    assert listed(world)["first"]["generation"] == 1
    carrying.look()
    assert [row["points"] for row in contents(world, "first")] == [1, 2, 3]
    assert (listed(world)["first"]["generation"], listed(world)["first"]["error"]) == (2, None)


def test_a_stream_that_is_removed_keeps_its_table(world: World) -> None:
    """A table without a definition stays as it was, and the list does not have it."""
    apply(world)
    world.ingest(good(1))
    world.split()
    carrying = driver(world, CHESS.key)
    carrying.finish()
    assert "- first: its table stays, and gets no more rows" in apply(world, "derived: []")
    world.ingest(good(2))
    world.split()
    carrying.finish()
    assert (len(contents(world, "first")), listed(world)) == (1, {})


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ("{name: a, kind: silver, game: Checkers}", "no game is named 'Checkers'"),
        ("{name: a, kind: silver, game: Chess, type: Lost}", "no one event type 'Lost'"),
        ("{name: a, kind: silver, game: Chess, type: M, mask: {email: drop}}", "has no column 'email'"),
        ("{name: a, kind: silver, game: Chess, type: M, mask: {_seq: drop}}", "cannot be masked"),
        ("{name: a, kind: silver, game: Chess, dedupe: {within: 1h, id: nope}}", "has no column 'nope'"),
        (
            "{name: a, kind: silver, game: Chess, dedupe: {within: 1h}, mask: {_event_id: drop}}",
            "drops _event_id, by which it compares rows",
        ),
        (
            "{name: a, kind: silver, game: Chess, type: M}" + GOLD.format("{sum: nope}"),
            "Silver a has no column 'nope', which gold g needs",
        ),
        (
            "{name: a, kind: silver, game: Chess, type: M, mask: {_event_time: drop}}" + GOLD.format("count"),
            "Silver a has no column '_event_time', which gold g needs",
        ),
    ],
)
def test_a_stream_that_cannot_be_is_refused_before_it_is_applied(world: World, stream: str, reason: str) -> None:
    """The plan refuses what a driver would stand still for, and nothing is written."""
    file = world.paths.root / "derived.yaml"
    file.write_text(f"derived:\n- {stream}")
    command = ["derived", "apply", str(file), "--reason", "x", "--env-dir", str(world.paths.root)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code != 0
    assert reason in f"{result.output} {result.exception}"
    assert listed(world) == {}


def test_a_rule_makes_a_table_for_each_event_type_without_anybody(world: World) -> None:
    """Types that come after the file was applied get their tables at the driver's next look, masked from the start."""
    lines = apply(world, RULE)
    names = made(world)
    assert sorted(names) == ["acme.Sold", "t.M"]
    assert f"+ {names['acme.Sold']}: of 'Chess', type 'acme.Sold', by a rule" in lines
    world.ingest(good(1), event_of(2, item="a", price=3))
    world.split()
    carrying = driver(world, CHESS.key)
    carrying.finish()
    assert [row["points"] for row in contents(world, names["t.M"])] == [1]
    come(world, SALE)
    accept(world, "Sale")
    world.ingest(event(replace(SALE, schema_id=3), item="b", price=9))
    world.split()
    driver(world, GO.key).finish()
    assert made(world).keys() == {"t.M", "acme.Sold", "acme.Sale"}, "the driver of another group knows the same tables"
    carrying.finish()
    (row,) = contents(world, made(world)["acme.Sale"])
    assert (row["price"], len(row["item"])) == (9, 64)
    withdraw(world, "Sale")
    carrying.finish()
    assert made(world) == names
    assert "gets no more rows: its event type was withdrawn" in turnout(world, "derived", "list")


def test_types_that_a_cap_leaves_out_are_named(world: World) -> None:
    """A person sees in plan and list which event type has no table, and which setting is the cause."""
    caps = replace(world.settings.derived, tables_per_game=1)
    settings = replace(world.settings, derived=caps)
    proposal = plan(settings, world.engine, world.registry.snapshot(), ["Chess"], RULE)
    assert any("'Chess' gets no table for 'acme.Sold': derived.tables_per_game is 1" in line for line in proposal.lines)
    store.apply(world.engine, dumps(proposal.entries), proposal.seen.number, "ann", "a test", proposal.plan_tables)
    assert [each["type"] for each in listed(world).values()] == ["t.M"]
    said = turnout(world, "derived", "list")
    assert "acme.Sold of Chess by a rule: NO TABLE: derived.tables_per_game is 1" in said
    carrying = DerivedStreams(settings, world.paths, world.engine, "a", lambda key: key == CHESS.key)
    carrying.finish()
    assert [each["type"] for each in listed(world).values()] == ["t.M"]
    driver(world, CHESS.key).finish()
    assert made(world).keys() == {"t.M", "acme.Sold"}, "a driver with a higher cap makes it"


def test_two_drivers_at_once_keep_one_list_of_tables(world: World) -> None:
    """Two drivers that plan at the same moment write one after the other, and neither takes the other's table away."""
    apply(world, RULE)
    drivers = [driver(world, CHESS.key), driver(world, CHESS.key)]
    world.ingest(good(1), event_of(2, item="a", price=3))
    world.split()
    for each in range(5):
        come(world, proto(f"message New{each} {{ int64 x = 1; }}"))
        accept(world, f"New{each}")
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: one.finish(), drivers))
    tables = store.read_rule_tables(world.engine)
    assert sorted(each.number for each in tables) == list(range(1, 8))
    assert [row["price"] for row in contents(world, made(world)["acme.Sold"])] == [3]
