"""The word of a group's card: what its driver suffers, then drained, draining or progressing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, update
from sqlalchemy import Table as SqlTable

from app.components import group_state
from app.components.group_state import GroupState
from app.state import control_queries, judged, services
from pipeline.store.database import tables
from pipeline.store.operations import Intent
from pipeline.store.operations import submit as submit_store
from tests.unit.app.app_world import KEY, Opening, four_games, pages_of, texts


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with four_games(tmp_path) as engine:
        yield engine


def state(store: Engine, name: str) -> GroupState:
    folder = str(Path(str(store.url.database)).parent)
    services.forget()
    environment = services.open_environment([], {"TURNOUT_ENV_DIR": folder})
    steering = control_queries.steering(environment)
    return group_state.of(steering, judged.of_fleet(environment, steering.fleet), name)


def write(store: Engine, table: SqlTable, name: str, **values: object) -> None:
    column = table.c.game_key if "game_key" in table.c else table.c.name
    with store.begin() as connection:
        connection.execute(update(table).where(column == name).values(values))


def test_a_group_that_drains_says_how_many_games_are_left(store: Engine, opening: Opening) -> None:
    """From the moment a drain is open until the last game has left it is draining, then drained; its card says so."""
    assert state(store, "a") == GroupState("● running")
    moved = {"assignments": {KEY["Chess"]: "b", KEY["Go"]: "b"}, "desired": {"a": ["running", "drained"]}}
    targets = ("group:a", f"game:{KEY['Chess']}", f"game:{KEY['Go']}")
    submit_store(store, Intent("move", targets, "ann", "new machine", moved))
    assert state(store, "a") == GroupState(group_state.DRAINING, "2 games left by ann")
    assert state(store, "b") == GroupState(group_state.PROGRESSING, "2 games come by ann")
    assert "» draining" in texts(opening("groups"))
    for key in (KEY["Chess"], KEY["Go"]):
        write(store, tables.games, key, group_name="b")
    assert state(store, "a") == GroupState(group_state.DRAINED, "takes no games")


def test_an_isolated_game_does_not_look_like_a_drain(store: Engine) -> None:
    """A group that takes no more games and loses none is not draining: nothing is under way."""
    write(store, tables.groups, "a", desired="drained")
    assert state(store, "a") == GroupState("● running", "takes no more games, 2 games stay")


def test_a_group_under_an_operation_progresses(store: Engine) -> None:
    """The card names an open operation on the whole group with its actor, or counts the games that come back."""
    write(store, tables.streams, KEY["Chess"], status="CATCHING_UP", lane="CATCHUP")
    assert state(store, "a") == GroupState(group_state.PROGRESSING, "1 game catching up")
    submit_store(store, Intent("restart", ("group:b",), "ann", "new jar"))
    assert state(store, "b") == GroupState(group_state.PROGRESSING, "restart by ann")


def test_a_card_names_the_phase_of_the_table(store: Engine) -> None:
    """The card counts games by the statuses of the table beside it: a game starts, or catches up, on both."""
    write(store, tables.streams, KEY["Chess"], status="STARTING")
    assert state(store, "a") == GroupState(group_state.PROGRESSING, "1 game starting")
    write(store, tables.streams, KEY["Go"], status="CATCHING_UP", lane="CATCHUP")
    assert state(store, "a") == GroupState(group_state.PROGRESSING, "1 game starting, 1 game catching up")


def test_trouble_of_a_driver_hides_all_else(store: Engine) -> None:
    """A drained group whose driver is dead looks dead; a group without any report is unknown, never drained."""
    write(store, tables.groups, "a", desired="drained")
    write(store, tables.drivers, "a", heartbeat_at=1.0)
    assert state(store, "a").word not in {group_state.DRAINED, group_state.DRAINING, "● running"}
    assert state(store, "nobody") == GroupState("–")


def test_every_word_has_a_tone() -> None:
    """The pills of the table have a colour for each word of a card."""
    assert {group_state.DRAINED, group_state.DRAINING, group_state.PROGRESSING, "–"} <= set(group_state.TONES)
