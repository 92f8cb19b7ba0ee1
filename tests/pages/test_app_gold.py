"""The chart of a gold table on the Game page: numbers for those who may see the rows, and no zero for the unknown."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.game import gold_chart
from app.game.sight import ACTION
from pipeline.base.actor import current_user
from pipeline.store import audit
from tests.browser.game_world import failing_game, with_gold
from tests.tables.repair_world import CHESS, World
from tests.unit.app.app_world import Opening, name_roles, pages_of, texts

OTHERS = 3  # charts of the page: rows, backlog and latency


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = failing_game(tmp_path, time.time())
    with_gold(made, time.time())
    yield made
    made.engine.dispose()


def test_a_gold_table_is_drawn_as_far_as_it_is_known(world: World, opening: Opening) -> None:
    """A link chooses table and column; a table without a closed window says so, and is no row of zeros."""
    app = opening("game", game=str(CHESS.key), rows="derived", column="clock")
    assert "windows of 1 min · computed through" in texts(app)
    column = app.selectbox(key="gold_column_moves_by_minute")
    assert (column.value, len(column.options)) == ("clock", 4)
    assert charts(app) == OTHERS + 1
    app = opening("game", game=str(CHESS.key), rows="derived", gold="moves_by_hour")
    assert "No window has closed yet." in texts(app)
    assert "over all move" in texts(app)
    assert charts(app) == OTHERS


def test_numbers_of_gold_are_hidden_from_people_who_may_not_see_the_rows(
    world: World, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law of sight: without SELECT on the game's table nothing is read, and a look at numbers is in the audit log."""
    name_roles(world.paths.root, operators=[current_user()])
    with monkeypatch.context() as patched:
        patched.setattr(gold_chart, "_series", None)  # reading would fail
        app = opening("game", game=str(CHESS.key), rows="derived")
    assert "Its numbers are hidden." in texts(app)
    assert charts(app) == OTHERS
    assert not looks(world)
    with (world.paths.root / "turnout.toml").open("a") as settings:
        settings.write("\n[access]\noperators_see_values = true\n")
    app = opening("game", game=str(CHESS.key), rows="derived")
    assert charts(app) == OTHERS + 1
    assert looks(world) == [{"rows": "gold moves_by_minute", "by": "the setting access.operators_see_values"}]


def charts(app: AppTest) -> int:
    return len(app.get("vega_lite_chart"))


def looks(world: World) -> list[dict[str, object]]:
    found = audit.entries(world.engine)
    return [dict(each.detail) for each in found if each.action == ACTION and each.phase == "begun"]
