"""The Schemas page: trouble first, versions compared, and nothing of what producers wrote acts on the page."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from pipeline.base.names import game_key
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store, writing
from pipeline.store.schema_needs import OpenNeed, RegistryHealth, write_needs, write_state
from pipeline.store.writers import lock
from tests.browser.seed import HOSTILE
from tests.unit.app.app_world import Opening, again, drawn_alive, drawn_html, links, pages_of, texts
from tests.unit.data.contracts.catalogue_world import avro, register

CHESS = game_key("Chess")


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    """Return a store with Chess, whose third version refuses rows, and Go, which is well."""
    engine = open_store(*load(tmp_path))
    register(engine, avro(player="string", rating="int"), by="ann")
    register(engine, avro(player="string", rating="long", clock="int"))
    register(engine, avro(player="int", rating="long", clock="int"), "incompatible=quarantine", by="bob")
    register(engine, avro(stones="int"), game="Go")
    yield engine
    engine.dispose()


def table(app: AppTest, column: str) -> list[str]:
    """Return a column of the list of games."""
    found = next(each for each in app.dataframe if "page" in each.value)
    return [each[0] if column == "state" else str(each) for each in found.value[column]]


def away(engine: Engine, state: str, detail: str = "connection refused", registry: str = "main") -> None:
    with writing(engine) as connection:
        lock(connection)
        now = time.time()
        write_state(connection, RegistryHealth(registry, state, now - 60, detail, now, now + 5))  # type: ignore[arg-type]


def test_the_headline_says_trouble_first(store: Engine, opening: Opening) -> None:
    """Rows in quarantine, a registry that is away since when, and waiting games stand in the first sentence."""
    away(store, "away")
    write_needs(store, [OpenNeed("main", b"\x00\x00\x00\x00\x07", game_key("Ludo"), "Ludo", time.time() - 30, 1, 0)])
    app = opening("schemas")
    headline = drawn_html(app)[0]
    assert headline.startswith("Rows of version 3 of Chess go to quarantine since ")
    assert "registry main is away since " in headline
    assert "1 game waits for a schema: Ludo" in headline
    assert "▲ away · main" in texts(app)
    assert "connection refused" in texts(app)
    assert table(app, "state") == ["✗ refuses rows", "△ waits", "● registered"]
    assert table(app, "change")[0].startswith("version 3: player: its type changed from string to int")


def test_an_environment_without_trouble_says_how_much_there_is(tmp_path: Path, opening: Opening) -> None:
    """A calm page counts what is registered, and claims no row that lands: a driver may stand still."""
    engine = open_store(*load(tmp_path))
    register(engine, avro(stones="int"), game="Go")
    assert "1 game, 1 schema version: none is quarantined" in texts(opening("schemas"))
    engine.dispose()


def test_any_two_versions_are_compared_by_the_url(store: Engine, opening: Opening) -> None:
    """The URL names game and versions; the words, the text and what the table got are of these two."""
    app = opening("schemas", game=CHESS, **{"from": "1", "to": "2"})
    assert "What changes from version 1 to version 2" in texts(app)
    assert "widen · rating: its type changed from int to long" in texts(app)
    assert "✓ clock: is new (add: add) → column clock long" in texts(app)
    (diff,) = [each.value for each in app.html if "t-diff" in each.value and "<pre" in each.value]
    assert re.findall(r'<i class="[^"]*">(.*)\n', diff) == [
        "  t.M (avro)",
        "    player: string",
        "-   rating: int",
        "+   rating: long",
        "+   clock: int",
    ]


def test_the_newest_change_is_compared_by_default_and_choices_reach_the_url(store: Engine, opening: Opening) -> None:
    """Without versions in the URL the last two are compared; another choice stands in the URL, the default does not."""
    app = opening("schemas", game=CHESS)
    assert "What changes from version 2 to version 3" in texts(app)
    assert "✗ Rows of version 3 go to quarantine since " in texts(app)
    assert "Replay its refused rows, once they can land" in links(app)
    app.selectbox(key=f"schema_from_{CHESS}").set_value("1").run()
    assert "What changes from version 1 to version 3" in texts(app)
    assert {name: app.query_params[name] for name in app.query_params} == {"game": CHESS, "from": "1"}
    app.button(key="close_game").click().run()
    assert not list(app.query_params)
    assert "Open a game of the list" in app.info[0].value


def test_versions_that_are_not_there_are_reported(store: Engine, opening: Opening) -> None:
    """A link to a version or game that does not exist says so, and the page stands."""
    app = opening("schemas", game=CHESS, to="9")
    assert "to “9”" in "".join(each.value.replace("\\", "") for each in app.warning)
    assert "There is no game with this key" in "".join(each.value for each in opening("schemas", game="gone").warning)


def test_search_finds_by_name_format_message_and_schema_id(store: Engine, opening: Opening) -> None:
    """Each part of what the list shows finds the game; a search without a result has its own sentence."""
    app = opening("schemas")
    for text, games in (("ches", ["Chess"]), ("T.m", ["Chess", "Go"]), ("4", ["Go"]), ("avro", ["Chess", "Go"])):
        app.text_input(key="schemas_find").set_value(text).run()
        assert table(app, "game") == games
    app.text_input(key="schemas_find").set_value("nothing like it").run()
    assert "No game matches these filters." in [each.value for each in app.info]


def test_a_damaged_definition_hides_nothing_else(store: Engine, opening: Opening) -> None:
    """One damaged definition is a sentence at its game; the list and the other games are as they were."""
    with store.begin() as connection:
        damaged = "SELECT parts FROM schemas WHERE schema_id = 3"  # it has one part
        connection.exec_driver_sql(f"UPDATE definition_parts SET content = x'00' WHERE digest = ({damaged})")
        connection.exec_driver_sql("UPDATE placements SET quarantined = NULL")
    app = opening("schemas", game=CHESS)
    assert table(app, "game") == ["Go", "Chess"]
    assert table(app, "change")[1].startswith("cannot be read: ")
    assert app.warning


def test_nothing_that_producers_wrote_acts(tmp_path: Path, opening: Opening) -> None:
    """Names of games and answers of registries that look like Markdown or HTML are text, wherever they stand."""
    engine = open_store(*load(tmp_path))
    for name in HOSTILE:
        register(engine, avro(a="int"), game=name, by=HOSTILE[1])
        register(engine, avro(a="string"), "incompatible=quarantine", game=name)
        write_needs(
            engine, [OpenNeed("main", name.encode()[:30], game_key(name), name, 1.0, 1, 0, 2.0, 1, 2.0, HOSTILE[0])]
        )
    away(engine, "mistrusted", HOSTILE[1])
    for name in HOSTILE:
        app = opening("schemas", game=game_key(name))
        assert not any(part in drawn_alive(app) for part in ("<script", "**bold", "](", ":red[", "javascript:"))
        assert "\u202e" not in texts(app)
    engine.dispose()


def test_the_page_keeps_what_it_had_when_the_store_goes_away(store: Engine, opening: Opening) -> None:
    """When reading fails the page says why and keeps its data."""
    app = opening("schemas", game=CHESS)
    with store.begin() as connection:
        for name in ("registrations", "writers", "schemas"):
            connection.exec_driver_sql(f"ALTER TABLE {name} RENAME TO gone_{name}")
    st.cache_resource.clear()
    again(app)
    assert "The page shows the last reading." in "".join(each.value for each in app.error)
    assert table(app, "game") == ["Chess", "Go"]
