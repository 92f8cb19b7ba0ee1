"""The chart of a gold table reads the newest closed windows from few files, and takes nothing unknown for 0."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest

from pipeline.api import gold
from pipeline.api.environment import OpenEnvironment
from pipeline.api.gold import MOST_WINDOWS, GoldSeries
from pipeline.data.derived.definitions import Aggregate, GoldDefinition
from pipeline.lake.delta import parquet
from pipeline.settings.tree import Paths, Settings
from tests.tables.gold_world import SALES, GoldWorld, write_gold
from tests.tables.silver_world import SOLD, Row

BY_MINUTE: Final = GoldDefinition(
    "by_minute", SOLD, 60, (Aggregate("sold", "count"), Aggregate("turnover", "sum", "points"))
)
KINDS: Final = {"sold": pa.int64(), "turnover": pa.int64()}
BEGIN: Final = 1_800_000_000


def read(folder: Path, definition: GoldDefinition) -> GoldSeries | None:
    return gold.read(OpenEnvironment(Settings(environment="test"), Paths(folder), cast("Any", None)), definition)


def write(folder: Path, rows: list[dict[str, Any]], until: int) -> None:
    write_gold(Paths(folder), "test", BY_MINUTE, KINDS, rows, until)


@pytest.mark.parametrize("by", [(), ("_event_id",)])
def test_a_series_has_the_numbers_of_the_table(tmp_path: Path, by: tuple[str, ...]) -> None:
    """Of several groups a window has one number where that is known: never a sum of distinct counts or percentiles."""
    world = GoldWorld(tmp_path, gold=replace(SALES, by=by))
    world.commit(Row("a", 0.0, event=0.0), Row("b", 0.0, event=10.0), Row("a", 9.0, event=130.0))
    world.commit(Row("c", 3.0, event=131.0), Row("d", 3.0, event=5000.0))
    world.carry()
    world.beat(300)
    world.close()
    found = read(tmp_path, replace(world.gold, silver=world.definition))
    assert found is not None
    rows = world.gold_contents()
    ends = [found.since + 60 * (number + 1) for number in range(len(found.values["sold"]))]
    for name, join in (("sold", sum), ("_rows", sum), ("turnover", sum), ("cheapest", min)):
        held = [[row[name] for row in rows if row["window_end"].timestamp() == end] for end in ends]
        known = [[float(value) for value in each if value is not None] for each in held]
        empty = 0.0 if name in {"sold", "_rows"} else None
        assert found.values[name] == tuple(join(each) if each else empty for each in known), name
    assert (found.until, found.whole) == (world.until, True)
    assert "last" not in found.values  # a text
    assert ({"buyers", "half", "most"} <= {*found.values}) is (by == ())


def test_a_window_without_rows_counts_zero_and_has_no_sum(tmp_path: Path) -> None:
    """Unknown is never zero: a closed window without rows has none of them, and an open window is not there at all."""
    rows = [{"end": BEGIN + 60 * at, "sold": at, "turnover": None if at == 1 else 7} for at in (1, 2, 4)]
    write(tmp_path, rows, BEGIN + 60 * 5)
    found = read(tmp_path, BY_MINUTE)
    assert found is not None
    assert found.values["sold"] == (1.0, 2.0, 0.0, 4.0, 0.0)
    assert found.values["turnover"] == (None, 7.0, None, 7.0, None)
    assert (found.since, found.until) == (BEGIN, BEGIN + 300)


def test_nothing_is_drawn_before_a_window_has_closed(tmp_path: Path) -> None:
    """No table and no closed window are no series; closed windows of which none has rows are one without a number."""
    assert read(tmp_path, BY_MINUTE) is None
    write(tmp_path, [], BEGIN)
    found = read(tmp_path, BY_MINUTE)
    assert found is not None
    assert (found.since, found.until, found.values["sold"]) == (BEGIN, BEGIN, ())


def test_a_reading_opens_the_files_of_the_newest_windows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's reading has a limit, however long the table is."""
    opened: list[str] = []
    dataset = parquet.dataset

    def noted(files: Any, columns: Any) -> Any:
        opened.extend(files)
        return dataset(files, columns)

    monkeypatch.setattr(parquet, "dataset", noted)
    rows = [{"end": BEGIN + 60 * at, "sold": at, "turnover": 1} for at in range(1, 201)]
    write(tmp_path, rows, BEGIN + 60 * 200)
    found = read(tmp_path, BY_MINUTE)
    assert found is not None
    assert found.values["sold"] == tuple(float(at) for at in range(201 - MOST_WINDOWS, 201))
    assert (len(opened), found.whole) == (MOST_WINDOWS, False)
    monkeypatch.setattr(gold, "_MOST_FILES", 10)
    found = read(tmp_path, BY_MINUTE)
    assert found is not None
    assert found.values["sold"] == tuple(float(at) for at in range(191, 201))
