"""A driver carries the derived streams of its games, from the file that a person applies to the list of lags."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.data.derived.carrying import DerivedStreams
from pipeline.data.repair.rebuild import rebuild
from pipeline.lake.delta.opening import open_table
from tests.tables.repair_world import CHESS, GO, Event, World, good, make_world
from tests.tables.types_world import SOLD, accept, come, event

FILE = """\
derived:
- {name: first, kind: silver, game: Chess, type: M}
- {name: sold, kind: silver, game: Chess, type: Sold, mask: {item: hash}}
- {name: broken, kind: silver, game: Chess, type: Sold, mask: {price: drop}}
"""
GOLD = "\n- {{name: g, kind: gold, source: a, window: 1h, aggregates: {{n: {}}}}}"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    come(made, SOLD)
    accept(made, "Sold")
    return made


def turnout(world: World, *arguments: str) -> str:
    result = CliRunner().invoke(cli, [*arguments, "--env-dir", str(world.paths.root)])
    assert result.exit_code == 0, result.output
    return result.output


def apply(world: World, text: str = FILE) -> str:
    file = world.paths.root / "derived.yaml"
    file.write_text(text)
    return turnout(world, "derived", "apply", str(file), "--reason", "a test")


def listed(world: World) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(turnout(world, "derived", "list", "--json"))["derived"]}


def contents(world: World, name: str) -> list[dict[str, Any]]:
    rows = open_table(world.paths.silver / name).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["_seq"], row["_pos"]))


def driver(world: World, *games: str) -> DerivedStreams:
    return DerivedStreams(world.settings, world.paths, world.engine, "a", lambda key: key in games)


def event_of(schema_id: int, **values: Any) -> Event:
    return event(replace(SOLD, schema_id=schema_id), **values)


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
