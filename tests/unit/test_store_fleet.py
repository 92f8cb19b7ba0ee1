"""What may be believed of the control store: unknown is never well, and the order is worst first."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, delete, update

from listeners.sample import STATUSES
from pipeline.errors import Refused
from pipeline.names import game_key
from pipeline.settings import Paths, Settings
from pipeline.store import tables
from pipeline.store.engine import open_store
from pipeline.store.fleet import (
    HEARTBEAT_LIMIT_SECONDS,
    TROUBLE,
    Driver,
    ReportedStream,
    judged,
    read_fleet,
    read_schemas,
)
from tests.browser.seed import Seeded, fleet_of_forty, seed

NOW = 1_800_000_000.0
DRIVER = Driver("group", "a", "localhost", 1, NOW - 600, NOW - 2, "running", None, 9)
TOLD = ReportedStream("a", "RUN", "RUNNING", NOW - 500, 9, NOW - 2, 1.0, 5.0, 2.0, 100, 0, None, NOW - 2)


@pytest.mark.parametrize(
    ("expected", "group", "told", "driver"),
    [
        ("RUNNING", "a", TOLD, DRIVER),
        ("RUNNING", "a", TOLD, replace(DRIVER, heartbeat_at=NOW - HEARTBEAT_LIMIT_SECONDS)),
        ("UNKNOWN", "a", TOLD, replace(DRIVER, heartbeat_at=NOW - HEARTBEAT_LIMIT_SECONDS - 0.1)),
        ("UNKNOWN", "a", TOLD, replace(DRIVER, state="failed")),
        ("UNKNOWN", "a", TOLD, replace(DRIVER, state="stopped")),
        ("UNKNOWN", "a", TOLD, None),
        ("UNKNOWN", "a", None, None),
        ("UNKNOWN", "a", replace(TOLD, status="SPLENDID"), DRIVER),
        ("UNKNOWN", "a", replace(TOLD, updated_at=NOW - HEARTBEAT_LIMIT_SECONDS - 0.1), DRIVER),
        ("STARTING", "a", None, DRIVER),
        ("STARTING", "a", replace(TOLD, group="b"), DRIVER),
        ("MISSING", None, None, None),
        ("MISSING", None, TOLD, DRIVER),
        ("FAILED", "a", replace(TOLD, status="FAILED"), DRIVER),
    ],
)
def test_a_word_counts_only_from_a_living_driver(
    expected: str, group: str | None, told: ReportedStream | None, driver: Driver | None
) -> None:
    """A stream's status is its driver's own word only while that driver is alive and carries it; else it is unknown."""
    verdict = judged(group, told, driver, NOW)
    assert expected == verdict.status
    assert (told is not None and expected == told.status) == (verdict.reason is None)


def test_unknown_and_missing_are_trouble() -> None:
    """What is not known counts as trouble, never as well."""
    assert {"UNKNOWN", "MISSING", "FAILED", "AT_RISK"} <= TROUBLE
    assert {"RUNNING", "PAUSED", "STARTING", "CATCHING_UP"}.isdisjoint(TROUBLE)


def test_a_dead_driver_takes_its_numbers_with_it(tmp_path: Path) -> None:
    """When a group's driver is silent its games are unknown and their lag, rates and latency are no longer told."""
    seed(tmp_path, fleet_of_forty(), now=NOW, heartbeat_ages={"ingest": 1, "a": 1, "b": 50}, history=False)
    fleet = read_fleet(open_store(Settings(), Paths(tmp_path)), NOW)
    dead = [row for row in fleet.rows if row.group == "b"]
    assert len(dead) == 20
    assert {"UNKNOWN"} == {row.verdict.status for row in dead}
    assert {None} == {row.live for row in dead}
    assert all(row.told is not None for row in dead)
    assert "UNKNOWN" not in {row.verdict.status for row in fleet.rows if row.group == "a"}


def test_rows_come_worst_first(tmp_path: Path) -> None:
    """The row that needs a person most is the first: by status, then by lag, unknown lag before known."""
    fleet_rows = (
        Seeded("calm", "a", {}),
        Seeded("late", "a", {"status": "LAGGING", "backlog_age_seconds": 70.0}),
        Seeded("later", "a", {"status": "LAGGING", "backlog_age_seconds": 700.0}),
        Seeded("blind", "a", {"status": "LAGGING", "backlog_age_seconds": None}),
        Seeded("broken", "a", {"status": "CRASH_LOOP"}),
        Seeded("lost", None, None),
    )
    seed(tmp_path, fleet_rows, now=NOW, history=False)
    fleet = read_fleet(open_store(Settings(), Paths(tmp_path)), NOW)
    assert [row.game for row in fleet.rows] == ["broken", "lost", "blind", "later", "late", "calm"]
    ranks = [STATUSES.index(row.verdict.status) for row in fleet.rows]
    assert sorted(ranks, reverse=True) == ranks


def test_a_group_without_a_driver_is_still_listed(tmp_path: Path) -> None:
    """A group that exists, runs or carries a game is listed, so that one that never started is seen."""
    seed(tmp_path, (Seeded("x", "c", {}),), now=NOW, heartbeat_ages={"ingest": 1, "a": 1}, history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        connection.execute(delete(tables.groups))
    fleet = read_fleet(engine, NOW)
    assert fleet.groups == ("a", "c")
    assert fleet.driver("group", "c") is None
    assert fleet.newest_bronze_seq == 840
    assert fleet.registered_games == 1


def test_null_stays_unknown(tmp_path: Path) -> None:
    """A null in the store is None to readers, never 0."""
    seed(tmp_path, (Seeded("x", "a", {}),), now=NOW, history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    nulls = dict.fromkeys(("last_commit_at", "backlog_age_seconds", "rows_per_second", "latency_p95_seconds"))
    with engine.begin() as connection:
        connection.execute(update(tables.streams).values(nulls))
    live = read_fleet(engine, NOW).rows[0].live
    assert live is not None
    assert (
        live.last_commit_at,
        live.backlog_age_seconds,
        live.rows_per_second,
        live.latency_p95_seconds,
    ) == (None,) * 4


def test_schemas_are_read_in_order_of_registration(tmp_path: Path) -> None:
    """A game's schemas come oldest first with what they mean; a game without any has none."""
    seed(tmp_path, (Seeded("x", "a", {}), Seeded("y", "a", {})), now=NOW, history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        key = game_key("x")
        connection.execute(
            tables.registrations.insert().values(game_key=key, game="x", version=2, schema_id=2, created_at=NOW)
        )
    found = read_schemas(engine, game_key("x"))
    assert [(version.version, version.schema_id, version.message) for version in found] == [
        (1, 1, "samples.v1.Event1"),
        (2, 2, "samples.v1.Event2"),
    ]
    assert read_schemas(engine, "nobody") == ()


def test_an_unreadable_store_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """A store that cannot be read gives one sentence with what to do, not an empty fleet."""
    engine = create_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(Refused, match=r"cannot be read: no such table.*Check the setting store\.url"):
        read_fleet(engine, NOW)
    with pytest.raises(Refused, match="cannot be read"):
        read_schemas(engine, "x")
