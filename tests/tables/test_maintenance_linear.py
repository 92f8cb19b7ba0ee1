"""The cost of a thorough round, in rows read, not in seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipeline.base.names import MALFORMED, game_key, stream_app_id
from pipeline.data.maintenance import run
from pipeline.data.maintenance.report import TableReport
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings
from tests.tables.maintenance_world import ROWS, content, game_rows

SETTINGS = Settings(environment="test", maintenance=Maintenance(small_files=10_000))
NOBODYS = 500
"""Rows of no game: names that are none, and names that could not be read."""

LANDED, REFUSED = 1_000, 2_000
"""The first seq of rows that are in their game's table as well, and of such as are not."""


def refused(rows: list[tuple[str | None, int]]) -> pa.Table:
    """Return rows of quarantine from before their games were known: all under the key of no game."""
    given: dict[str, list[Any]] = {
        "game_key": [MALFORMED] * len(rows),
        "game": [name for name, _ in rows],
        "seq": [seq for _, seq in rows],
        "pos": [0] * len(rows),
        "reason": ["unknown_game"] * len(rows),
        "raw": [b"?"] * len(rows),
    }
    columns = [pa.array(given.get(field.name, [None] * len(rows)), field.type) for field in QUARANTINE]
    return pa.table(columns, schema=QUARANTINE)


def world(paths: Paths, games: int) -> None:
    """Give games two landed rows each; one of them is also in quarantine, as is a row that has not landed."""
    names = [f"Game {number}" for number in range(games)]
    for number, name in enumerate(names):
        app = stream_app_id("test", game_key(name), 1)
        table = CursorTable.create(paths.table(game_key(name)), ROWS, app)
        table.commit([write_file(game_rows(number, LANDED + number), table.path, ["_seq"])], None, LANDED + number)
    rows: list[tuple[str | None, int]] = [(f"nobody {seq}" if seq % 2 else None, seq) for seq in range(NOBODYS)]
    rows += [(name, LANDED + number) for number, name in enumerate(names)]
    later: list[tuple[str | None, int]] = [(name, REFUSED + number) for number, name in enumerate(names)]
    quarantine = CursorTable.create(paths.quarantine, QUARANTINE, "turnout/test/quarantine/a")
    for part in (rows, later):
        quarantine.append([write_file(refused(part), paths.quarantine, ["seq", "game_key"])])


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the rows of quarantine that are read from files from now on."""
    read: list[int] = []
    real = pq.read_table

    def read_table(source: Any, *arguments: Any, **options: Any) -> pa.Table:
        rows = real(source, *arguments, **options)
        if "quarantine" in str(source):
            read.append(rows.num_rows)
        return rows

    def datasets(make: Any) -> Any:
        def dataset(source: Any, *arguments: Any, **options: Any) -> Any:
            made = make(source, *arguments, **options)
            read.extend([made.count_rows()] if "quarantine" in str(source) else [])
            return made

        return dataset

    monkeypatch.setattr(pq, "read_table", read_table)
    monkeypatch.setattr(ds, "dataset", datasets(ds.dataset))
    return lambda: sum(read)


@pytest.mark.parametrize("games", [2, 12])
@pytest.mark.proves("G145")
def test_rows_of_no_game_are_read_as_often_however_many_games_there_are(
    tmp_path: Path, rows_read: Callable[[], int], games: int
) -> None:
    """Rows of no game may be any game's, and are not looked through for each of them."""
    paths = Paths(tmp_path)
    world(paths, games)
    report = TableReport("quarantine")
    run._quarantine(SETTINGS, paths, thorough=True)(report)
    assert report.rows_removed == games
    assert rows_read() <= 5 * (NOBODYS + 2 * games)
    left = [(row["game"], row["seq"]) for row in content(Path(paths.quarantine)) if str(row["game"]).startswith("Game")]
    assert sorted(left) == sorted((f"Game {number}", REFUSED + number) for number in range(games))
    assert len(content(Path(paths.quarantine))) == NOBODYS + games
