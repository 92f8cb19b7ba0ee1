"""Producers on the Access page: their states, and the two acts on them."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from app.access import producers
from app.state import services
from pipeline.api.edge_producers import ProducersOverview
from pipeline.store import audit
from pipeline.store.edge_producers import EdgeProducer, ProducerSet, apply, read_producers
from pipeline.store.processes.drivers import heartbeat, start_driver
from tests.browser.seed import HOSTILE
from tests.unit.app.app_world import Opening, again, drawn_alive, fill, four_games, name_roles, pages_of, texts

CHESS = EdgeProducer("chess", "ab" * 32, ("Chess",), certificate="uri:spiffe://games.example/chess")
NOW = 1_000_000.0


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with four_games(tmp_path) as engine:
        yield engine


def give(store: Engine, *them: EdgeProducer) -> None:
    apply(store, them, read_producers(store).number, "ann", "a test", action="apply edge producers", target="producers")


def column(app: AppTest, name: str) -> list[str]:
    (table,) = [each.value for each in app.dataframe if "Producer" in each.value.columns]
    return list(table[name])


def warned(app: AppTest) -> str:
    return "\n".join(each.value for each in (*app.warning, *app.error)).replace("\\", "")


def test_each_producer_has_a_state_and_what_ends_stands_first() -> None:
    """Pure: unknown is never shown as running, and a revoked producer never has a good state."""
    soon, gone = replace(CHESS, name="soon", expires_at=NOW + 3_600), replace(CHESS, name="gone", revoked=True)
    over, free = replace(CHESS, name="over", expires_at=NOW - 1), EdgeProducer("free", "cd" * 32, prefixes=("",))
    seen = ProducersOverview(ProducerSet(3, (gone, free, soon, over), "ann", NOW - 60), {}, NOW)
    assert [(each["Producer"], str(each["State"])[0]) for each in producers.lines(seen)] == [
        ("over", "▲"), ("soon", "△"), ("free", "●"), ("gone", "✗"),
    ]  # fmt: skip
    assert producers.about(seen).endswith("no edge runs")
    assert "2 edges, last heard of" in producers.about(replace(seen, edges={"a": 9.0, "b": 1.0}))
    assert producers.about(replace(seen, known=ProducerSet())).startswith("none was ever applied")


def test_a_producer_is_added_as_its_preview_says(store: Engine, opening: Opening) -> None:
    """It joins those in force, in the name of the person who confirms, and the audit log has the act."""
    give(store, CHESS)
    start_driver(store, "edge", "one", None)
    heartbeat(store, "edge", "one", "running", None)
    app = opening("access", view="producers")
    assert "1 edge, last heard of" in texts(app)
    assert column(app, "Token") == ["abababab…"]
    app.segmented_control(key="producer_by").set_value("certificate").run()
    app.text_input(key="producer_name").set_value("go")
    app.text_input(key="producer_credential").set_value("Go.example")
    app.text_area(key="producer_games").set_value("Go\nGo 2")
    app.button(key="preview_producer").click().run()
    assert "The producer cannot be added" in warned(app)
    assert "is no certificate; use uri:spiffe" in texts(app)
    app.text_input(key="producer_credential").set_value("dns:go.example")
    app.button(key="preview_producer").click().run()
    assert "+ go: certificate dns:go.example; games Go, Go 2" in texts(app)
    assert read_producers(store).number == 1
    fill(app, reason="season 2")
    app.button(key="ask_edge_producers").click().run()
    assert "✓ go may send events." in texts(app)
    known = read_producers(store)
    assert (known.producers[1], known.actor) == (
        EdgeProducer("go", games=("Go", "Go 2"), certificate="dns:go.example"), services.actor(),
    )  # fmt: skip
    newest = [*audit.entries(store)][-1]
    assert (newest.action, newest.actor, newest.phase) == ("apply edge producers", services.actor(), "ended")


def test_a_producer_is_revoked_with_a_reason(store: Engine, opening: Opening) -> None:
    """The preview names what is refused from then on; without a reason nothing is written."""
    give(store, CHESS, EdgeProducer("go", "cd" * 32, ("Go",)))
    app = opening("access", view="producers")
    app.selectbox(key="producer_revoked").set_value("chess").run()
    app.button(key="preview_producer_revoked").click().run()
    assert "chess: its token and certificate are refused for ever" in texts(app)
    app.button(key="ask_edge_producers").click().run()
    assert "Enter a reason" in warned(app)
    fill(app, reason="the key leaked")
    app.button(key="ask_edge_producers").click().run()
    assert [(each.name, each.revoked) for each in read_producers(store).producers] == [("go", False), ("chess", True)]
    assert column(again(app), "State") == ["● may send", "✗ revoked"]


def test_producers_of_another_person_are_not_overwritten(store: Engine, opening: Opening) -> None:
    """Where others were applied after the preview, nothing is written and the page says it."""
    app = opening("access", view="producers")
    app.text_input(key="producer_name").set_value("go")
    app.text_input(key="producer_credential").set_value("cd" * 32)
    app.checkbox(key="producer_all").check()
    app.button(key="preview_producer").click().run()
    give(store, CHESS)
    fill(app, reason="season 2")
    app.button(key="ask_edge_producers").click().run()
    assert "Other producers were applied after you looked" in warned(app)
    assert [each.name for each in read_producers(store).producers] == ["chess"]


def test_foreign_names_are_only_shown_and_a_person_without_the_role_only_looks(
    store: Engine, tmp_path: Path, opening: Opening
) -> None:
    """Names reach the page as text; both buttons are disabled for a viewer."""
    give(store, EdgeProducer("odd", games=HOSTILE, certificate=f"cn:{HOSTILE[0][:60]}"))
    name_roles(tmp_path, operators=["somebody-else"], movers=["somebody-else"])
    app = opening("access", view="producers")
    assert not any(part in drawn_alive(app) for part in ("<script", "**bold", "](", ":red[", "javascript:"))
    for key in ("preview_producer", "preview_producer_revoked"):
        assert app.button(key=key).disabled, key


def test_nobody_may_send_until_a_producer_is_there(store: Engine, opening: Opening) -> None:
    """An empty list names its effect."""
    del store
    assert "every edge refuses every call" in texts(opening("access", view="producers", at=str(time.time())))
