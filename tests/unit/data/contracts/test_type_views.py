"""Views of event types are statements that people run: no name of a type is more than a text in them."""

from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.data.contracts.registry import LocalRegistry, Registration
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
