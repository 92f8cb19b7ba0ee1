"""A game with two event types, the driver that carries its derived streams, and the commands of people."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.data.derived.carrying import DerivedStreams
from pipeline.lake.delta.opening import open_table
from tests.tables.repair_world import Event, World, make_world
from tests.tables.types_world import SOLD, accept, come, event

FILE = """\
derived:
- {name: first, kind: silver, game: Chess, type: M}
- {name: sold, kind: silver, game: Chess, type: Sold, mask: {item: hash}}
- {name: broken, kind: silver, game: Chess, type: Sold, mask: {price: drop}}
"""


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


def driver(world: World, *games: str, group: str = "a") -> DerivedStreams:
    return DerivedStreams(world.settings, world.paths, world.engine, group, lambda key: key in games)


def event_of(schema_id: int, **values: Any) -> Event:
    return event(replace(SOLD, schema_id=schema_id), **values)


RULE = """\
derived: []
rules:
- {name: all, prefixes: [Ch], dedupe: {within: 1h}, mask: {item: hash, gift: drop}}
"""


def made(world: World) -> dict[str, str]:
    """Return the name of the table of each event type that a rule has one for."""
    return {each["type"]: each["name"] for each in listed(world).values()}
