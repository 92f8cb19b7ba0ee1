"""One derived stream is paused, resumed and repaired by itself: by a command, the controller, and its driver."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from sqlalchemy import update

from pipeline.cli.main import cli
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.data.derived.carrying import DerivedStreams
from pipeline.data.repair.rebuild import rebuild
from pipeline.health.facts.placing import placing
from pipeline.store.audit import entries
from pipeline.store.database.tables import games
from pipeline.store.games import register_group
from pipeline.store.operations import Operation, list_operations
from tests.tables.derived_world import RULE, apply, contents, driver, event_of, listed, made, turnout, world
from tests.tables.repair_world import CHESS, World, good
from tests.tables.silver_world import hooked, killed

__all__ = ["world"]  # a fixture

STREAMS = """\
derived:
- {name: first, kind: silver, game: Chess, type: M}
- {name: sold, kind: silver, game: Chess, type: Sold}
- {name: sales, kind: gold, source: sold, window: 1h, aggregates: {n: count}}
"""


def land(world: World, *prices: int) -> None:
    """Land sales in Chess's table, a version for each."""
    for price in prices:
        world.ingest(good(price), event_of(2, item="a", price=price))
        world.split()


def begun(world: World, text: str = STREAMS) -> DerivedStreams:
    """Return the driver of Chess, with streams that have carried one sale."""
    register_group(world.engine, "a", placing())
    apply(world, text)
    land(world, 1)
    carrying = driver(world, CHESS.key)
    carrying.finish()
    return carrying


def ask(world: World, *arguments: str) -> None:
    """Submit an operation on derived streams, and let the controller decide it."""
    turnout(world, "derived", *arguments, "--no-wait")
    advance(world)


def advance(world: World) -> Operation:
    """Let the controller look, and return the newest operation."""
    tick(ControlContext(world.settings, world.engine, world.paths), KINDS)
    return max(list_operations(world.engine), key=lambda each: each.requested_at)


def refused(world: World, *arguments: str) -> str:
    result = CliRunner().invoke(cli, ["derived", *arguments, "--no-wait", "--env-dir", str(world.paths.root)])
    assert result.exit_code != 0
    return f"{result.output} {result.exception}"


def prices(world: World, name: str = "sold") -> list[int]:
    return [row["price"] for row in contents(world, name)]


def standing(world: World, name: str = "sold") -> tuple[Any, ...]:
    """Return how a stream is listed: its standing, rows and lag."""
    found = listed(world)[name]
    return found["standing"], found["rows"], found["lag_seconds"]


def test_a_paused_stream_stands_alone_until_it_is_resumed(world: World) -> None:
    """Its table gets no row, all else goes on, and the list names it as paused, with the person and the reason."""
    carrying = begun(world)
    ask(world, "pause", "sold", "--reason", "its mask is wrong")
    assert advance(world).state == "verifying", "no driver has said that it stands"
    assert "its driver has yet to end a commit" in turnout(world, "derived", "list")
    carrying.look()
    assert advance(world).state == "succeeded"
    assert standing(world) == ("paused", 1, 0.0), "it lacks nothing yet"
    land(world, 2)
    carrying.finish()
    assert (prices(world), len(contents(world, "first"))) == ([1], 2)
    said = turnout(world, "derived", "list")
    assert f"PAUSED by {advance(world).actor} for " in said
    assert ": its mask is wrong" in said
    found = listed(world)["sold"]
    assert (found["standing"], found["rows"], found["behind"], found["error"]) == ("paused", 1, None, None)
    assert found["lag_seconds"] > 0
    assert listed(world)["sales"]["standing"] == "held"
    assert "sales: gold of sold" in said
    assert "waits, as its silver table sold is paused" in said
    assert "is paused already" in turnout(world, "derived", "pause", "sold", "--no-wait")
    ask(world, "resume", "sold")
    carrying.look()
    assert advance(world).state == "succeeded"
    assert prices(world) == [1, 2]
    assert standing(world) == ("level", 2, 0.0)
    assert standing(world, "sales")[0] == "level"
    acts = [(each.action, each.targets, each.outcome) for each in entries(world.engine) if each.phase == "ended"]
    assert acts[-2:] == [
        ("pause-derived", ("derived:sold",), "succeeded"), ("resume-derived", ("derived:sold",), "succeeded")
    ]  # fmt: skip


def test_a_pause_is_heard_between_two_commits(world: World) -> None:
    """The driver ends the commit that runs, and begins no other one, however many versions are left to read."""
    world.settings = replace(world.settings, derived=replace(world.settings.derived, step_rows=1))
    carrying = begun(world)
    land(world, 2, 3, 4)
    waits = iter(["first"] * 3 + ["sold"])  # streams that commit next

    def pause(point: str) -> None:
        if point == "before_draft_commit" and next(waits, None) == "sold":
            ask(world, "pause", "sold")

    with hooked(pause):
        carrying.finish()
    assert (prices(world), standing(world)[0]) == ([1, 2], "paused")
    assert len(contents(world, "first")) == 4


def test_a_pause_outlives_its_driver_and_a_move(world: World) -> None:
    """Another driver shows the stream as paused with the rows of before, and lands no row."""
    former = begun(world)
    ask(world, "pause", "sold")
    land(world, 2)
    with world.engine.begin() as connection:
        connection.execute(update(games).values(group_name="b"))
    former.look()
    assert advance(world).state == "verifying", "the former driver has said so, which carries the game no more"
    then = driver(world, CHESS.key, group="b")
    then.look(whole=True)
    assert standing(world)[:2] == ("paused", 1)
    assert listed(world)["sold"]["group_name"] == "b"
    assert prices(world) == [1]
    then.finish()
    assert (standing(world)[:2], advance(world).state) == (("paused", 1), "succeeded")
    ask(world, "resume", "sold")
    then.finish()
    assert prices(world) == [1, 2]


def test_a_paused_stream_that_failed_is_paused_and_tried_at_once_when_resumed(world: World) -> None:
    """A pause ends the alert about a failing stream; a resume waits for no retry."""
    carrying = begun(world)
    log = Path(str(world.paths.silver), "sold", "_delta_log")
    bad = log / f"{len(list(log.glob('*.json'))):020}.json"
    bad.write_text("damaged")
    land(world, 2)
    carrying.look()
    assert standing(world)[0] == "stopped"
    ask(world, "pause", "sold")
    carrying.look()
    assert (standing(world)[0], advance(world).state) == ("paused", "succeeded")
    bad.unlink()
    ask(world, "resume", "sold")
    carrying.look()
    assert (prices(world), standing(world)) == ([1, 2], ("level", 2, 0.0))


def test_a_paused_table_of_a_rule_that_leaves_force_comes_back_paused(world: World) -> None:
    """The store keeps the pause while no rule chooses the type; then nothing lands until a person resumes."""
    carrying = begun(world, RULE)
    name = made(world)["acme.Sold"]
    ask(world, "pause", name, "--reason", "<b>wrong")
    carrying.look()
    assert advance(world).state == "succeeded"
    apply(world, "derived: []")
    carrying.finish()
    assert "No such derived stream" in refused(world, "resume", name)
    assert "is paused by" in apply(world, RULE)
    land(world, 2)
    for each in (carrying, driver(world, CHESS.key)):
        each.finish()
        assert (prices(world, name), standing(world, name)[0]) == ([1], "paused")
    assert ": <b>wrong" in turnout(world, "derived", "list")
    ask(world, "resume", name)
    carrying.finish()
    assert (prices(world, name), advance(world).state) == ([1, 2], "succeeded")


def test_a_repair_begins_one_generation_and_its_gold_follows(world: World) -> None:
    """All rows come again in one commit that readers see whole; the outcome says what the table has then."""
    carrying = begun(world)
    ask(world, "repair", "sold", "--reason", "a file is damaged")
    before = listed(world)["sold"]["table_id"]
    assert (advance(world).state, listed(world)["sold"]["generation"]) == ("verifying", 1)
    carrying.look()
    done = advance(world)
    assert (done.state, done.outcome) == ("succeeded", "Repaired: sold. sold has generation 2 with 1 rows.")
    found = listed(world)["sold"]
    assert (found["generation"], found["table_id"], prices(world)) == (2, before, [1])
    for each in (carrying, driver(world, CHESS.key)):
        land(world, 2)
        each.finish()
    assert listed(world)["sold"]["generation"] == 2, "what was asked for is done"
    assert listed(world)["first"]["generation"] == 1


def test_a_driver_that_is_killed_within_a_repair_leaves_one_generation_or_the_next(world: World) -> None:
    """Between any two effects the table is whole, and the next driver begins that generation if it is not there."""
    begun(world)
    for number in range(1, 100):
        ask(world, "repair", "sold", "--reason", "again")
        was_killed = killed(driver(world, CHESS.key).finish, number)
        assert prices(world) == [1]
        driver(world, CHESS.key).finish()
        assert (listed(world)["sold"]["generation"], advance(world).state) == (number + 1, "succeeded")
        if not was_killed:
            break
    assert number > 5, "there are fewer effects than a new generation has"


def test_a_repair_that_another_generation_was_faster_than_does_nothing(world: World) -> None:
    """A repair replaces the generation that a person saw: after a rebuild of the game it fails, and no table moves."""
    carrying = begun(world)
    turnout(world, "derived", "repair", "sold", "--reason", "damaged", "--no-wait")
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    carrying.finish()
    done = advance(world)
    assert (done.state, str(done.outcome).startswith("Nothing was done")) == ("failed", True)
    carrying.finish()
    assert listed(world)["sold"]["generation"] == 2


def test_an_impossible_act_is_refused_with_the_reason(world: World) -> None:
    """An unknown stream, a repair of a paused stream or of no table, and a repair without a reason submit nothing."""
    begun(world, STREAMS.replace("first", "other"))
    apply(world)
    assert "No such derived stream: sales, x." in refused(world, "pause", "x", "sales")
    assert "Say why you" in refused(world, "repair", "sold")
    assert "first has no table yet" in refused(world, "repair", "first", "--reason", "y")
    assert "is not paused" in turnout(world, "derived", "resume", "sold", "--no-wait")
    ask(world, "pause", "sold")
    assert "belong to another open operation" in refused(world, "resume", "sold")
    driver(world, CHESS.key).look()
    assert advance(world).state == "succeeded"
    assert "is paused: resume it, then repair it" in refused(world, "repair", "sold", "--reason", "y")


def test_a_stream_that_leaves_force_ends_its_operation(world: World) -> None:
    """A controller does not wait for a stream that nobody carries any more; the pause stays for its name."""
    begun(world)
    ask(world, "pause", "sold")
    apply(world, "derived: []")
    done = advance(world)
    assert (done.state, done.outcome) == ("failed", "Not in force any more: sold. The decision stays.")


def test_a_resume_waits_for_a_report_that_is_newer_than_it(world: World) -> None:
    """A report from before the resume, of a driver that never saw the pause, does not end the operation."""
    begun(world)
    ask(world, "pause", "sold")
    turnout(world, "ops", "cancel", advance(world).operation_id, "--reason", "by mistake")
    ask(world, "resume", "sold")
    assert advance(world).state == "verifying"
    driver(world, CHESS.key).look()
    assert advance(world).state == "succeeded"


def test_a_pause_is_undone_by_a_resume(world: World) -> None:
    """`turnout ops undo` takes a pause of a derived stream back as it does of a game."""
    carrying = begun(world)
    ask(world, "pause", "sold")
    carrying.look()
    paused = advance(world)
    turnout(world, "ops", "undo", paused.operation_id, "--no-wait")
    advance(world)
    carrying.look()
    assert (advance(world).state, standing(world)[0]) == ("succeeded", "level")
