"""The programs of docs/readers.md keep copies of a game's table and of its silver table, each row once."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline.lake.storage.location import Location
from tests.tables.readers_world import followed, program
from tests.tables.silver_world import SilverWorld


@pytest.fixture
def world(tmp_path: Path) -> SilverWorld:
    return SilverWorld(tmp_path)


def test_a_reader_with_delta_rs_has_each_row_once(world: SilverWorld) -> None:
    """Rows are added or replaced as the log says: merges, columns, generations and a cut log double and lose none."""
    changes = program("delta-rs")["changes"]
    positions: dict[str, Any] = {}
    copies: dict[str, list[dict[str, Any]]] = {}

    def follow(table: Location) -> tuple[list[dict[str, Any]], bool]:
        rows, again, positions[table.name] = changes(str(table), positions.get(table.name))
        held = [] if again else copies[table.name]
        names = rows.column_names
        copies[table.name] = [{name: row.get(name) for name in names} for row in held] + rows.to_pylist()
        assert not changes(str(table), positions[table.name])[0].num_rows, "it has all rows"
        return copies[table.name], again

    followed(world, follow)


def test_a_reader_with_duckdb_has_each_row_once(world: SilverWorld) -> None:
    """Rows and position of a copy are one transaction, which a second look does not change."""
    follow_table = program("duckdb")["follow"]
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")

        def follow(table: Location) -> tuple[list[dict[str, Any]], bool]:
            before = _oid(database, table.name)
            for _ in range(2):
                follow_table(database, str(table), table.name)
            rows = database.table(table.name).to_arrow_table().to_pylist()
            return rows, before != _oid(database, table.name)

        followed(world, follow)


def _oid(database: duckdb.DuckDBPyConnection, table: str) -> Any:
    return database.execute("SELECT table_oid FROM duckdb_tables() WHERE table_name = ?", [table]).fetchall()
