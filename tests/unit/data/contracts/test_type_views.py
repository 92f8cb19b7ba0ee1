"""Views of event types are statements that people run."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.contracts.schemas import PLAIN, Schema
from pipeline.data.contracts.side_columns import joined_fields
from pipeline.data.contracts.type_views import views
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store

COLUMNS = b'{"type": "object", "properties": {"a": {"type": "integer"}}}'


@pytest.mark.parametrize(
    ("title", "spark", "comment"),
    [
        ("Player's move", r"'Player\'s move'", "-- Player's move, Unity Catalog"),
        (r"a\' OR 1=1 --", r"'a\\\' OR 1=1 --'", r"-- a\' OR 1=1 --, Unity Catalog"),
        ("a\nDROP TABLE b;", "'a\nDROP TABLE b;'", r"-- a\nDROP TABLE b;, Unity Catalog"),
    ],
)
def test_a_title_of_a_json_schema_is_a_text(title: str, spark: str, comment: str, tmp_path: Path) -> None:
    """A backslash escapes in Spark's SQL, where a doubled quote may join two texts, and not in DuckDB's."""
    settings, paths = load(tmp_path)
    registry = LocalRegistry(open_store(settings, paths), paths.bronze)
    registry.register_many([Registration("Go", title, COLUMNS, format="json")])
    done = CliRunner().invoke(cli, ["schemas", "views", "Go", "--env-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    unity, embedded = done.stdout.split("WHERE _type IN (")[1:]
    assert unity.startswith(f"{spark});\n-- ")
    assert done.stdout.startswith(f"{comment}\nCREATE ")
    literal = embedded.rstrip().removesuffix(");")
    assert duckdb.execute(f"SELECT {literal}").fetchall() == [(title,)]


def test_a_column_and_its_side_columns_are_one() -> None:
    """The view of a JSON type has one column for each property, as the wider type, or as text if either is text."""
    superset = gathered(Superset(), [b'{"id":1,"at":1,"tags":[1],"n":{"a":1}}'])
    superset = gathered(superset, [b'{"id":"x","at":2.5,"tags":"y"}', b'{"id":true}'])
    schema = Schema(1, UNDECLARED, "acme.Sold", dumps(superset))
    own = pa.schema([
        ("at", pa.int64()), ("id", pa.int64()), ("n", pa.struct([("a", pa.int64())])), ("tags", pa.list_(pa.int64())),
        ("at__v2", pa.float64()), ("id__v2", pa.string()), ("id__v3", pa.bool_()), ("tags__v2", pa.string()),
    ])  # fmt: skip
    found = [[each.name for each in held] for held in joined_fields([(schema, PLAIN)], own)]
    assert found == [["at", "at__v2"], ["id", "id__v2", "id__v3"], ["n"], ["tags"], ["tags__v2"]]


def test_a_view_joins_a_declared_property_s_columns(tmp_path: Path) -> None:
    """DuckDB reads the rows of both schemas in one column."""
    settings, paths = load(tmp_path)
    registry = LocalRegistry(open_store(settings, paths), paths.bronze)
    policies = parse_policies(["incompatible=side-column", "widen=side-column"])
    for kind in ("integer", "number", "string"):
        registry.register_many(
            [Registration("Go", "t.M", COLUMNS.replace(b"integer", kind.encode()), policies, format="json")]
        )
    (only,) = game_types(registry.snapshot(), game_key("Go"))
    (view,) = views("go", [only], ("main", "games", "go"), "folder")
    rows = "(VALUES (7, NULL, NULL), (NULL, 2.5, NULL), (NULL, NULL, 'x')) AS t(a, a__v2, a__v3)"
    query = view.duckdb.partition(" AS\n")[2].replace("delta_scan('folder')", rows).partition("\nWHERE")[0]
    for each in ("_seq", "_pos", "_schema_id", "_event_time", "_event_id", "_source_time", "_type"):
        query = query.replace(f"  {each},\n", "")
    assert duckdb.execute(query).fetchall() == [("7",), ("2.5",), ("x",)]
    assert (
        "coalesce(CAST(`a` AS STRING), CAST(`a__v2` AS STRING), CAST(`a__v3` AS STRING)) AS `a`" in view.unity_catalog
    )
