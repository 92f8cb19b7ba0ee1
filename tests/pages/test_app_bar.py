"""The bar of every page: the palette that a letter opens, and the inbox that counts what waits for a person."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from app.bar import palette
from grants.applying import requests
from pipeline.base.names import game_key
from pipeline.health.facts.fleet import read_fleet
from pipeline.store import game_proposals, reopenings
from pipeline.store.database.states import OperationState
from pipeline.store.game_proposals import GameProposal
from pipeline.store.operations import Intent, change
from pipeline.store.operations import submit as submit_store
from tests.browser.seed import HOSTILE
from tests.unit.app.app_world import KEY, Opening, four_games, inbox_label, links, name_roles, pages_of

PAGES = {"fleet": "Fleet", "groups": "Groups", "audit": "Audit"}


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with four_games(tmp_path) as engine:
        yield engine


def found(app: AppTest) -> Sequence[str]:
    """Open the palette, and return its lines."""
    app.button(key="palette_open").click().run()
    assert not app.exception
    return app.selectbox(key="palette_chosen").options


def access(principal: str, key: str) -> list[Mapping[str, Any]]:
    return [{"principal": principal, "key": key, "read": True, "until": None, "reason": "numbers", "ticket": ""}]


@pytest.mark.parametrize("page", ["fleet", "groups", "access", "books"])
def test_the_palette_has_all_that_a_person_looks_for(page: str, store: Engine, opening: Opening) -> None:
    """On every page it lists games in trouble first, then pages, groups, actions, operations and the other games."""
    done = submit_store(store, Intent("pause", (f"game:{KEY['Go']}",), "ann", "why"))
    lines = found(opening(page))
    assert lines[0] == f"Risk · {KEY['Risk']} · ✗ failed"
    wanted = [
        "Books · page", "Group b · group", "Grant or revoke access… · action", "Drain group a… · action",
        f"Pause of Go · operation {done.operation_id[:8]} · ○ planned", f"Chess · {KEY['Chess']}",
    ]  # fmt: skip
    assert [each for each in lines if each in wanted] == wanted


def test_a_choice_opens_its_page(store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """A game's line opens its page; an action on a group opens the page of groups, which plans it in the drawer."""
    went: list[tuple[str, Mapping[str, str]]] = []
    monkeypatch.setattr(st, "switch_page", lambda page, query_params: went.append((page, query_params)))
    for chosen in (f"game:{KEY['Chess']}", "drain:a"):
        app = opening("audit")
        found(app)
        app.button(key="palette_open").click()  # a test draws the whole page again, not the palette alone
        app.selectbox(key="palette_chosen").set_value(chosen).run()
    assert went == [("views/game.py", {"game": KEY["Chess"]}), ("views/groups.py", {"steer": "a"})]
    assert app.session_state["links_asked"] == {"steer": "a", "do": "drain"}


def test_a_closed_palette_costs_nothing(store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is closed no line is made, and no list of them is sent."""

    def fail(*_: object) -> None:
        raise AssertionError("it is closed")

    with monkeypatch.context() as patched:
        patched.setattr(palette, "entries", fail)
        app = opening("audit")
    assert not app.exception
    assert "palette_chosen" not in [str(each.key) for each in app.selectbox]


def test_hostile_names_are_lines_like_others(store: Engine) -> None:
    """A line has a game's visible letters and its key; nothing that hides or turns text is in it."""
    submit_store(store, Intent("pause", (f"game:{game_key(HOSTILE[2])}",), HOSTILE[0]))
    made = palette.entries(PAGES, read_fleet(store), None)
    assert len({each.label for each in made.values()}) == len(made), "no two lines look alike"
    assert "\u202e" not in "".join(each.label for each in made.values())


def test_the_inbox_counts_all_that_waits(store: Engine, opening: Opening) -> None:
    """Stuck operations, requests of access, reopened days and proposed games are counted, each with its page."""
    assert inbox_label(opening("audit")) == "Inbox"
    begun = submit_store(store, Intent("pause", (f"game:{KEY['Chess']}",), "ann", "why"))
    change(store, change(store, begun, OperationState.RUNNING), OperationState.NEEDS_HUMAN, "Nobody tells of it.")
    requests.submit(store, "<b>eve</b>", access("bob", KEY["Go"]), "numbers")
    reopenings.submit(store, KEY["Ludo"], 20_000 * 86_400_000_000, 86_400, 1, "eve", "wrong")
    game_proposals.propose(store, GameProposal("new_x", "**New**", "dan", "for the launch"))
    app = opening("audit")
    assert inbox_label(app) == "Inbox :orange-badge[4]"
    said = [each.replace("\\", "") for each in links(app)]
    assert [each.partition(" · ")[0] for each in said] == [
        "Pause of Chess needs a person", "Grant bob", "Reopen 2024-10-04 Ludo", "Propose **New**",
    ]  # fmt: skip
    assert "<b>eve</b>" in said[1]


def test_people_without_a_role_see_the_inbox(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """The inbox needs no role: whoever may not decide sees that somebody has to."""
    name_roles(tmp_path, operators=["bob"])
    game_proposals.propose(store, GameProposal("new_x", "New", "dan", "for the launch"))
    assert inbox_label(opening("audit")) == "Inbox :orange-badge[1]"


def test_games_of_a_series_are_told_apart(store: Engine) -> None:
    """A long name is whole in the palette: what distinguishes the games of a series stands at its end, and is found."""
    series = "The Extraordinary Chronicles of the Seventh Amber Kingdom: Remastered Anniversary Edition"
    fleet = read_fleet(store)
    rows = tuple(
        replace(row, game_key=game_key(name), game=name)
        for row, name in zip(fleet.rows, (f"{series}, volume {part}" for part in (1, 2)), strict=False)
    )
    labels = [each.label for each in palette.entries(PAGES, replace(fleet, rows=rows), None).values()]
    assert [sum(f"volume {part} · " in label for label in labels) for part in (1, 2)] == [1, 1]
