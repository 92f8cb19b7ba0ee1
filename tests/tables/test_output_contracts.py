"""Output contracts on the small environment without Spark: passes, replays, rebuilds and verify decide alike."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control.operations.event_types import propose_types
from pipeline.data.output_contracts.rules import ContractRule, OutputContract, dumps
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.data.streams.writing.job import SplitJob
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.opening import open_table
from pipeline.store import output_contracts
from pipeline.store.database.states import OperationKind
from pipeline.store.games import record_seen
from pipeline.store.output_contracts import read_contracts
from tests.tables.contracts_world import command, give, refused, values
from tests.tables.repair_world import CHESS, GO, World, good, make_world, split_rows
from tests.tables.replay_laws import run
from tests.tables.types_world import SOLD, accept, come, event


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


LOW = ContractRule("low", "points", "quarantine", min=0)
HIGH = ContractRule("high", "points", max=10)


def test_a_row_that_breaks_a_rule_waits_in_quarantine(world: World) -> None:
    """Each row is in the table or in quarantine, never both (L5), and the detail names the rule."""
    give(world, LOW, HIGH)
    world.ingest(good(1), good(-1), good(11), good(-2, GO))
    world.split()
    assert world.rows() == [(1, 0), (1, 2)]
    assert refused(world)[1, 1] == ("contract", "breaks the output contract promise/low")
    assert values(world) == ([], 0, {}, {"contract": 1, "unknown_game": 1})


def test_a_changed_contract_lands_waiting_rows(world: World) -> None:
    """A replay judges by the contracts of today; rows that landed before a stricter one stay, and verify agrees."""
    give(world, LOW)
    world.ingest(good(1), good(-1), good(-5))
    world.split()
    assert {each.landed for each in run(world).values()} == {0}
    give(world, ContractRule("low", "points", "quarantine", min=-3))
    assert values(world) == ([], 0, {"contract": 1}, {"contract": 1})
    assert [(each.landed, dict(each.refused)) for each in run(world).values()] == [(1, {"contract": 1})]
    assert world.rows() == [(1, 0), (1, 1)]
    give(world, ContractRule("low", "points", "quarantine", min=100))
    assert values(world) == ([], 0, {}, {"contract": 1})
    assert world.rows() == [(1, 0), (1, 1)]


@pytest.mark.parametrize("typed", [False, True])
def test_passes_rebuilds_and_single_rows_decide_alike(world: World, *, typed: bool) -> None:
    """Law L5: the same rows have the same outcome by a pass, by a rebuild and one by one, also within a struct."""
    (sold,) = come(world, SOLD)
    accept(world, "Sold")
    events = [
        good(1),
        good(-1),
        *(event(sold, item=item, price=price) for item, price in (("a", 3), ("", 3), ("b", -3))),
    ]
    rules = (
        ContractRule("price", "price", "quarantine", min=0),
        ContractRule("item", "item", "quarantine", min_length=1),
    )
    if typed:
        give(world, *rules, types=("acme.Sold",))
    else:
        give(world, LOW, *rules)
    world.ingest(*events)
    world.split()
    landed = world.rows()
    assert landed == ([(1, 0), (1, 1), (1, 2)] if typed else [(1, 0), (1, 2)])
    before, waiting = world.contents(), refused(world)
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert (world.contents(), refused(world)) == (before, waiting)
    rows = open_table(world.paths.bronze).to_pyarrow_table().combine_chunks()
    for place in range(rows.num_rows):
        one = rows.slice(place, 1)
        job = SplitJob({CHESS.key: 0}, world.registry.snapshot(), world.paths.tables)
        report, rejects = split_rows(one, job)
        where = one["seq"][0].as_py(), one["pos"][0].as_py()
        expected = [waiting[where]] if where in waiting else []
        assert [(each["reason"], each["detail"]) for each in rejects.to_pylist()] == expected
        assert len(report[CHESS.key]["files"]) == (where in landed)
    assert values(world) == ([], 0, {}, {"contract": len(waiting)})


def test_a_pinned_set_has_the_contracts_of_its_number(world: World) -> None:
    """L5: a pass that is repeated after a contract changed decides as it did."""
    world.ingest(good(-1))
    numbers = []
    for rule in (LOW, HIGH):
        give(world, rule)
        numbers.append(world.registry.latest_version())
    assert numbers == [2, 3]
    registry, rows = world.registry, open_table(world.paths.bronze).to_pyarrow_table()

    def rejected(version: int) -> int:
        job = SplitJob({CHESS.key: 0}, registry.snapshot(version).only([CHESS.key]), world.paths.tables)
        return len(split_rows(rows, job)[1])

    assert [rejected(version) for version in (3, 2, 1)] == [0, 1, 0]
    newest = registry.snapshot()
    assert not newest.judges_as(registry.snapshot(2), CHESS.key)
    assert newest.judges_as(registry.snapshot(2), GO.key)
    assert landing_schema(newest, CHESS.key).equals(landing_schema(registry.snapshot(1), CHESS.key))


def test_a_task_counts_the_rows_that_break_each_rule(world: World) -> None:
    """Metrics tell warnings, of which nothing else remains; a game without a contract reports none."""
    world.register(GO)
    give(world, LOW, HIGH)
    world.ingest(good(11), good(12), good(-1), good(11, GO))
    rows = open_table(world.paths.bronze).to_pyarrow_table()
    job = SplitJob({CHESS.key: 0, GO.key: 0}, world.registry.snapshot(), world.paths.tables)
    report, _ = split_rows(rows, job)
    assert report[CHESS.key]["broken"] == {"promise/high": 2, "promise/low": 1}
    assert report[CHESS.key]["types"] == {"t.M": [2, 1]}
    assert "broken" not in report[GO.key]


FILE = """\
version: 1
contracts:
- name: promise
  games: [Chess]
  rules:
  - {column: points, min: 0, max: MAX, action: quarantine}
"""


def test_a_person_plans_applies_and_reads_contracts(world: World, tmp_path: Path) -> None:
    """A plan tells which newest rows break a rule; above half of them need its hash; a bad file changes nothing."""
    world.ingest(good(1), good(2), good(3))
    world.split()
    file = tmp_path / "contracts.yaml"
    file.write_text(FILE.replace("MAX", "1"))
    said = command(world, "plan", str(file))
    assert "'Chess': 2 of the newest 3 rows would go to quarantine by promise/points, MORE THAN HALF" in said
    assert "more than half" in command(world, "apply", str(file), "--reason", "r", code=2)
    assert read_contracts(world.engine).number == 0
    file.write_text(FILE.replace("MAX", "2"))
    command(world, "apply", str(file), "--reason", "agreed with BI")
    assert "Nothing to change" in command(world, "plan", str(file))
    shown = command(world, "show")
    assert "max: 2" in shown
    assert json.loads(command(world, "show", "Chess", "--json"))["broken"] == {"promise/points": 1}
    file.write_text(shown.replace("max: 2", "maximum: 2"))
    assert "line 10: 'maximum' is not a field" in command(world, "apply", str(file), "--reason", "r", code=2)
    assert read_contracts(world.engine).number == 2
    file.write_text(FILE.replace("MAX", "1"))
    plan = command(world, "plan", str(file)).split()[-1]
    command(world, "apply", str(file), "--reason", "meant so", "--plan", plan)
    world.ingest(good(2), good(1))
    world.split()
    assert world.rows() == [(1, 0), (1, 1), (1, 2), (2, 1)]


def test_a_stop_that_a_newest_row_breaks_needs_the_hash(world: World, tmp_path: Path) -> None:
    """One such row among many shows that the next one would stop the stream: a plan says it, and `apply` asks."""
    world.ingest(*[good(number) for number in range(1, 11)])
    world.split()
    file = tmp_path / "contracts.yaml"
    file.write_text(FILE.replace("MAX", "9").replace("quarantine", "stop"))
    said = command(world, "plan", str(file))
    assert "'Chess': 1 of the newest 10 rows would stop the stream by promise/points" in said
    assert "would stop the stream" in command(world, "apply", str(file), "--reason", "r", code=2)
    assert read_contracts(world.engine).number == 0
    command(world, "apply", str(file), "--reason", "meant so", "--plan", said.split()[-1])
    world.ingest(good(3), good(10))
    world.split()
    assert world.rows()[-1] == (1, 9)


def test_rules_that_together_refuse_most_rows_need_the_hash(world: World, tmp_path: Path) -> None:
    """Each rule refuses less than half of the newest rows, both together more: nothing is applied without `--plan`."""
    world.ingest(*[good(number) for number in range(10)])
    world.split()
    record_seen(world.engine, {CHESS.key: CHESS.name}, 1, placing())
    file = tmp_path / "contracts.yaml"
    rules = "[{name: low, column: points, min: 4, action: quarantine}, {column: points, max: 5, action: quarantine}]"
    file.write_text(f"version: 1\ncontracts:\n- {{name: c, games: [Chess], rules: {rules}}}\n")
    given = ["contracts", "apply", str(file), "--reason", "x", "--env-dir", str(world.paths.root)]
    done = CliRunner().invoke(cli, given)
    assert isinstance(done.exception, Refused), done.output
    assert "more than half" in str(done.exception)
    assert read_contracts(world.engine).number == 0


def test_a_plan_names_mistyped_names(world: World, tmp_path: Path) -> None:
    """A mistyped game, event type or column checks nothing, so the plan names it."""
    world.ingest(good(1), good(2))
    world.split()
    record_seen(world.engine, {CHESS.key: CHESS.name}, 1, placing())
    file = tmp_path / "contracts.yaml"
    rules = "rules: [{column: points, min: 0}, {column: pionts, max: 5}]"
    file.write_text(
        f"version: 1\ncontracts:\n- {{name: c, games: [Chess, Chesss], {rules}}}\n"
        f"- {{name: t, games: [Chess], event_types: [Nope], {rules}}}\n"
    )
    said = command(world, "plan", str(file))
    assert "c: no game is named 'Chesss' yet" in said
    assert "c/pionts: the newest rows of 'Chess' have no column 'pionts'" in said
    assert "t: none of the newest rows of 'Chess' is of its event types" in said
    assert said.count("have no column") == 1


def test_the_acceptance_of_a_type_names_the_readers_of_what_it_breaks(world: World) -> None:
    """A contract for every event type is for an accepted one, too: its plan says who needs a column that it lacks."""
    come(world, SOLD)
    contract = OutputContract(
        "all", (CHESS.name,), rules=(ContractRule("points", "points", required=True),), readers=("BI",)
    )
    output_contracts.apply(world.engine, dumps([contract]), 0, "ann", "agreed")
    record_seen(world.engine, {CHESS.key: CHESS.name}, 1, placing())
    proposal = propose_types(OperationKind.ACCEPT_TYPE, world.engine, None, CHESS.name, ["Sold"], "ann")
    assert "! all/points: 'points' would be missing: each new row would be counted. Readers: 'BI'." in proposal.lines
