"""The tab *Derived* of the Game page: a stream is paused, resumed and repaired by buttons, after a preview."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from pipeline.base.actor import current_user
from pipeline.store import derived
from pipeline.store.operations import list_operations
from tests.browser.game_world import failing_game, with_derived
from tests.tables.repair_world import CHESS
from tests.unit.app.app_world import Opening, name_roles, pages_of, texts


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    """Return the store of a game with derived streams."""
    world = failing_game(tmp_path, time.time())
    with_derived(world, time.time())
    yield world.engine
    world.engine.dispose()


def tab(opening: Opening) -> AppTest:
    st.cache_data.clear()
    st.cache_resource.clear()
    return opening("game", game=str(CHESS.key), rows="derived")


def row(app: AppTest, name: str) -> dict[str, Any]:
    """Return what the table of streams says of one."""
    found = next(each.value for each in app.dataframe if "Generation" in each.value)
    (at,) = found.index[found["Table"] == f"silver/{name}"]
    return {str(column): found.at[at, column] for column in found.columns}


def test_a_stream_is_paused_and_resumed_after_a_look_at_the_preview(store: Engine, opening: Opening) -> None:
    """The preview names the effect, the confirmation submits it, and the table names the person and the reason."""
    app = tab(opening)
    app.selectbox(key="derived_stream").select("moves").run()
    app.button(key="derived_pause-derived").click().run()
    assert "1 to pause. Its driver ends a running commit" in texts(app)
    next(each for each in app.button if each.label == "Pause the stream").click().run()
    (asked,) = [each for each in list_operations(store) if each.kind == "pause-derived"]
    assert (asked.targets, asked.actor) == (("derived:moves",), current_user())
    with store.begin() as connection:
        derived.pause_within(connection, "moves", "ann", "wrong <b>mask")
    app = tab(opening)
    shown = row(app, "moves")
    assert (shown["State"], shown["Rows"], shown["Behind"]) == (["‖ paused"], "160\u202f000", "–")
    assert shown["Reason"].startswith("by ann for ")
    assert "wrong <b>mask" in shown["Reason"]
    app.selectbox(key="derived_stream").select("moves").run()
    assert "derived_pause-derived" not in [each.key for each in app.button]
    app.button(key="derived_resume-derived").click().run()
    assert "paused by ann: wrong <b>mask" in texts(app)


def test_a_repair_asks_for_a_reason(store: Engine, opening: Opening) -> None:
    """A preview names the generation with its rows; a stream without a table has a refusal instead."""
    app = tab(opening)
    app.selectbox(key="derived_stream").select("moves_late").run()
    app.button(key="derived_repair-derived").click().run()
    assert "generation 3 with 160,000 rows" in texts(app)
    next(each for each in app.button if each.label == "Repair the stream").click().run()
    assert "Enter a reason" in " ".join(each.value for each in app.warning)
    assert list_operations(store) == []
    app.selectbox(key="derived_stream").select("moves_new").run()
    app.button(key="derived_repair-derived").click().run()
    assert "has no table yet" in " ".join(each.value for each in app.warning)


@pytest.mark.usefixtures("store")
def test_buttons_are_disabled_without_the_role(opening: Opening, tmp_path: Path) -> None:
    """People without the role cannot begin an operation on a stream."""
    name_roles(tmp_path, operators=["bob"])
    found = [each for each in tab(opening).button if str(each.key).startswith("derived_")]
    assert [each.disabled for each in found] == [True, True]
