"""Guards the pages' reading of series: closed minutes only, shared by viewers, and a reason where there are none."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st

from app.state import series as series_of
from app.state.readings import Reading
from app.state.services import Environment
from listeners.metrics_schema import STREAM_MINUTE
from listeners.metrics_table import MetricsTables
from listeners.sample import StreamMinute
from pipeline.api import series as queries
from pipeline.api.series import RANGES, settled_seconds
from pipeline.base.errors import Refused
from pipeline.settings.tree import Metrics, Paths, Settings
from tests.unit.app.fleet_world import series as fleet_series

NOW = 1_767_600_000.0  # 2026-01-05 08:00, a whole hour
MINUTE = StreamMinute(NOW, "chess_a", "eu-1", 4, 0, 1, 1, (), 2.0, "RUNNING")
SETTLED = settled_seconds(Metrics())


@pytest.fixture(autouse=True)
def _nothing_cached() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(Settings(), Paths(tmp_path), "store")


def written(environment: Environment, *minutes: StreamMinute) -> None:
    tables = MetricsTables(environment.paths.metrics, "group-eu-1")
    for each in minutes:
        tables.add(each)
    assert tables.flush()


def at(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    monkeypatch.setattr(time, "time", lambda: now)


@pytest.mark.parametrize("range_seconds", RANGES)
def test_each_range_ends_at_the_last_closed_minute(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, range_seconds: int
) -> None:
    """Pages: a minute is shown once every driver had the time to write it, in each range."""
    written(environment, MINUTE, replace(MINUTE, at=NOW + 60))
    at(monkeypatch, NOW + 120 + SETTLED - 1)
    early = series_of.series(environment, range_seconds)
    assert (early.until, early.rows.sum()) == (NOW + 60, 4)
    assert RANGES[range_seconds] == (early.slot_seconds, early.slots)
    assert series_of.series(environment, range_seconds) is early  # of all viewers
    st.cache_resource.clear()
    at(monkeypatch, NOW + 120 + SETTLED)
    assert series_of.series(environment, range_seconds).rows.sum() == 8


def test_an_environment_without_a_driver_has_no_games(environment: Environment) -> None:
    """Pages: before the first report nothing is known, which is no error and not zero."""
    series = series_of.series(environment, 900)
    assert (series.games, series.slots) == ((), 15)
    assert all(number != number for number in series.total("rows"))  # noqa: PLR0124 - nan


def test_a_damaged_table_gets_a_reason(environment: Environment) -> None:
    """Pages: the panel says what cannot be read; the rest of the page goes on."""
    written(environment, MINUTE)
    log = environment.paths.metrics / STREAM_MINUTE.name / "_delta_log"
    for file in Path(log).glob("*.json"):
        file.write_text("{")
    with pytest.raises(Refused, match="minute tables cannot be read"):
        series_of.series(environment, 900)


def test_a_panel_says_until_when_its_numbers_go_and_why() -> None:
    """Old numbers, and those of other tables than before, are never shown without since when and the reason."""
    made = fleet_series(["chess"])
    now = made.since + 3600
    assert series_of.about(Reading(made, now), now) == ""
    gone = Reading(made, now - 120, "the table stream_minute was read before and is gone", now - 100)
    assert series_of.about(gone, now) == " · until 07:58: the table stream_minute was read before and is gone"
    assert series_of.about(Reading(None, None, "gone", now), now) == ""
    other = replace(made, replaced_at=now - 600)
    said = " · since 07:50 from other tables: the metrics folder was moved or made again"
    assert series_of.about(Reading(other, now), now) == said
    assert series_of.about(Reading(replace(made, replaced_at=made.since - 1), now), now) == "", "all of it is newer"


def test_a_metrics_folder_that_is_moved_away_gets_a_reason(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages: within seconds the panels know that their table is gone, and where to look."""
    written(environment, MINUTE)
    clock = iter(float(second) for second in range(0, 600, 15))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert series_of.series(environment, 900) is not None
    Path(str(environment.paths.metrics)).rename(Path(str(environment.paths.root)) / "away")
    reader = series_of._reader(environment)
    with pytest.raises(Refused, match=r"the table \w+ was read before and is gone.*Check .*metrics"):
        queries.read(reader, Metrics(), environment.paths, 900)
