"""No field's name can clash with a name that is used on the way into its game's table, or on any table after."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.schemas import Schema
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.data.streams.writing.job import READ
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.rewrite import table_files
from pipeline.store.games import Game
from tests.checkout import ROOT
from tests.tables.maintenance_world import SETTINGS, maintain
from tests.tables.repair_world import BROKEN, Event, Message, World, make_world
from tests.unit.data.contracts.definition_world import Fields

PIPELINE = ROOT / "pipeline"
FOLDERS = (
    "data", "data/streams", "data/repair", "data/maintenance", "data/verify", "data/contracts", "lake/delta", "base",
    "platforms/session", "settings", "telemetry",
)  # fmt: skip
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
OF_READERS = (
    "_metadata", "_change_type", "_commit_version", "_commit_timestamp", "_file", "_rescued_data", "filename",
    "file_row_number", "file_index", "rowid", "row_id", "__index_level_0__", "__filename", "__fragment_index",
    "__batch_index", "__last_in_fragment", "index", "element", "entries", "array", "map", "struct", "select", "order",
    "table", "path", "size_bytes", "modification_time", "num_records", "min", "max", "null_count", "partition_values",
    "___", "_1", "___2",
)  # fmt: skip
"""Names that mean something to Spark, Delta, DuckDB, Arrow or pandas."""


def used() -> set[str]:
    """Return the names that the code uses as texts: whole texts that could be a column's, and the words of queries."""
    assert all((PIPELINE / folder).is_dir() for folder in FOLDERS), "a folder has moved"
    modules = [path for folder in FOLDERS for path in (PIPELINE / folder).glob("*.py")] + list(PIPELINE.glob("*.py"))
    texts = [
        node.value
        for path in modules
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    queries = {word for text in texts if "SELECT" in text or "FROM" in text for word in WORD.findall(text)}
    whole = {
        part for text in texts if re.fullmatch(r"[\w.]+", text) for part in text.split(".") if WORD.fullmatch(part)
    }
    return queries | whole | {*OWN_COLUMNS.names, *READ, *BRONZE.names, *QUARANTINE.names, *OF_READERS}


MAX = 300  # fields of a message


@cache
def spelled() -> list[list[str]]:
    """Return all names and other spellings of them, in groups without two that differ by case or underscores only."""
    groups: list[dict[str, str]] = []
    variants = {
        variant
        for name in used()
        for variant in (name, name.upper(), name.lstrip("_"), f"_{name}")
        if WORD.fullmatch(variant)
    }
    for name in sorted(variants):
        bare = name.lower().replace("_", "")
        free = next((group for group in groups if bare not in group and len(group) < MAX), None)
        if free is None:
            groups.append({bare: name})
        else:
            free[bare] = name
    return [list(group.values()) for group in groups]


LENIENT = parse_policies(["name=side-column"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("names"))


def message(names: Sequence[str]) -> Message:
    """Return a message with a text field of each name, and a number."""
    fields: dict[str, tuple[int, str]] = {name: (number, "string") for number, name in enumerate(names, 1)}
    return Message({**fields, "zz_last": (999, "int64")})


def event(game: Game, schema_id: int, made: Message, number: int) -> Event:
    """Return an event with another text in each field."""
    values: dict[str, Any] = {name: f"{number}/{name}" for name in made.fields if name != "zz_last"}
    return Event(game, schema_id, made.payload(**values, zz_last=number))


def columns(world: World, game: Game, schema_id: int, made: Message) -> Iterator[tuple[str, str]]:
    """Yield each field with the column that it has in its game's table."""
    schemas = world.registry.snapshot()
    schema: Schema = schemas.schemas[schema_id]
    names = dict(schemas.placement(game.key, schema_id).names)
    for field in describe(schema.message, schema.definition).fields:
        assert field.name in made.fields
        yield field.name, names.get(field.name, field.name)


def check(world: World, game: Game, schema_id: int, made: Message, numbers: Sequence[int]) -> None:
    """Read the table with delta-rs and DuckDB, by its log and by its files: every value is where its field is."""
    table = DeltaTable(world.paths.table(game.key))
    held = [field.name for field in table.schema().fields]
    assert len({name.lower() for name in held}) == len(held)
    assert held[: len(OWN_COLUMNS)] == OWN_COLUMNS.names
    dataset = table.to_pyarrow_dataset()
    folder = world.paths.table(game.key)
    files = [str(folder / each.path) for each in table_files(table)]
    assert dataset is not None
    with duckdb.connect() as database:
        database.register("held", dataset)
        readings = [
            table.to_pyarrow_table().to_pylist(),
            database.sql("FROM held").to_arrow_table().to_pylist(),
            database.sql("FROM read_parquet(?, union_by_name = true)", params=[files]).to_arrow_table().to_pylist(),
        ]
    for rows in readings:
        assert sorted(row["zz_last"] for row in rows) == sorted(numbers)
        for field, column in columns(world, game, schema_id, made):
            if field != "zz_last":
                assert {row[column] for row in rows} == {f"{number}/{field}" for number in numbers}
                assert not column.startswith("_")


@dataclass(frozen=True)
class Many:
    """A game with the names of one group, whose second schema has them."""

    game: Game
    schema_id: int
    message: Message


def begun(world: World, number: str, names: Sequence[str]) -> Many:
    """Let three events come: the first two before their schema, and so into quarantine."""
    game, second = Game(game_key(f"Names {number}"), f"Names {number}"), message(names)
    world.registry.register(game.name, "t.M", message([]).descriptor_set, LENIENT)
    newest = max(world.registry.snapshot().schemas) + 1
    world.ingest(event(game, newest, second, 1), Event(game, newest, BROKEN))
    world.ingest(event(game, newest, second, 2))
    world.split(game)
    assert world.registry.register(game.name, "t.M", second.descriptor_set, LENIENT).schema_id == newest
    world.ingest(event(game, newest, second, 3))
    world.split(game)
    return Many(game, newest, second)


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.proves("B29", "G81")
def test_a_field_may_have_any_name_that_is_used_on_its_way(world: World, share: int) -> None:
    """B29, law L6: pass, replay, rebuild, maintenance and verify never take a payload's column for one of theirs."""
    every = [begun(world, f"{number} of {share}", names) for number, names in enumerate(spelled()[::share])]

    def hold(numbers: Sequence[int]) -> None:
        for each in every:
            check(world, each.game, each.schema_id, each.message, numbers)

    hold([3])
    schemas, known = world.registry.snapshot, {str(each.game.key): each.game.name for each in every}
    replay_all(world.paths, world.environment, schemas, known, Selection(), dry_run=False)
    hold([1, 2, 3])
    maintain(world.paths, settings=replace(SETTINGS, environment=world.environment))
    hold([1, 2, 3])
    for each in every:
        assert rebuild(world.paths, world.environment, world.engine, schemas, each.game).rows == 3
    hold([1, 2, 3])
    assert world.verify().problems == ()


@pytest.mark.proves("G81")
def test_our_own_names_are_refused_or_renamed_and_no_other_name_is(world: World) -> None:
    """Law L6: what begins with `_` is ours; every other name is a field's to have, without any policy."""
    ours = {name.lower() for name in OWN_COLUMNS.names}
    assert all(name.startswith("_") for name in ours)
    free = Game(game_key("Free names"), "Free names")
    for names in spelled():
        own = [name for name in names if not name.startswith("_")]
        world.registry.register(f"{free.name} {names[0]}", "t.M", message(own).descriptor_set)
    for name in ("_seq", "_SEQ", "_pos", "_anything"):
        fields: Fields = {name: (1, "string")}
        with pytest.raises(Refused, match="belong to the table's own columns"):
            world.registry.register(free.name, "t.M", Message(fields).descriptor_set)
