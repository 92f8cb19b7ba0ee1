"""An environment of four games and the pages over it, for the tests of the pages that steer."""

import functools
import html
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import PageLink

from app.gate import Person
from app.person import identity
from app.state import previews, services
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.base.actor import current_user
from pipeline.base.names import game_key
from pipeline.settings.tree import Paths, Settings
from pipeline.store import stream_control
from pipeline.store.database.engine import open_store
from pipeline.store.operations import Intent, Operation
from tests.browser.seed import Seeded, seed
from tests.checkout import ROOT

Opening = Callable[..., AppTest]


def is_shown(line: str, preview: Preview) -> bool:
    """Return whether a page shows a line of a command: as it is, or by the change of the target that it is about."""
    about = line.removeprefix("left out: ")
    if any(about in drawn for drawn in preview.lines):
        return True
    named = {target.partition(":")[2] for target in preview.intent.targets}
    changes = sum(mark == "+" for mark, _ in preview.diff)
    return about.removeprefix("group ").partition(":")[0] in named and changes == len(named)


@contextmanager
def pages_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    """Open a page of the app over the test's environment."""
    monkeypatch.setenv("TURNOUT_ENV_DIR", str(tmp_path))
    monkeypatch.setenv("TURNOUT_METRICS__HEARTBEAT_SECONDS", "30")  # nobody beats while the test takes its time
    monkeypatch.chdir(ROOT)
    sign_in(monkeypatch, current_user())
    st.cache_data.clear()
    st.cache_resource.clear()

    def open_page(page: str, **query: str) -> AppTest:
        app = started_app().switch_page(f"views/{page}.py")
        app.query_params.update(query)
        return again(app)

    yield open_page
    st.cache_data.clear()
    st.cache_resource.clear()


def started_app(*, seconds: int = 30) -> AppTest:
    """Return the app, of which nothing is drawn yet.

    An `AppTest` looks for components in all installed packages, and knows the pages once it has drawn the first of
    them: three quarters of the time of opening a page. Both are the same each time, so they are found out once.
    """
    app = AppTest.from_file(ROOT / "app" / "main.py", default_timeout=seconds)
    known = _known()
    app._bidi_component_manager, app._registered_pages = known._bidi_component_manager, known._registered_pages
    return app


@functools.cache
def _known() -> AppTest:
    app = AppTest.from_file(ROOT / "app" / "main.py", default_timeout=30).run()
    assert any("url_pathname" in page for page in app._registered_pages.values())
    return app


def sign_in(monkeypatch: pytest.MonkeyPatch, name: str, *, by_platform: bool = False) -> None:
    """Let somebody act on the pages, as the gate before them would: no server runs in these tests."""
    monkeypatch.setattr(identity, "person", lambda: Person(name, by_platform=by_platform))


def forget_readings() -> None:
    """Let pages read again what viewers share."""
    st.cache_data.clear()
    st.cache_resource.clear()


def again(app: AppTest) -> AppTest:
    """Look again, at what the store holds now."""
    services.forget()
    app.run()
    assert not app.exception
    return app


@contextmanager
def four_games(tmp_path: Path) -> Iterator[Engine]:
    """Return the store of an environment with four games in two groups, one game of which is parked."""
    games = [Seeded("Chess", "a", {}), Seeded("Go", "a", {}), Seeded("Ludo", "b", {})]
    broken = {"status": "FAILED", "lane": "QUARANTINED", "last_error": "no space left"}
    seed(tmp_path, [*games, Seeded("Risk", "b", broken)], now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    parked = stream_control.StreamControl(
        parked_at=time.time(), failures=3, failure_class="poison", evidence="bad rows of seq 5"
    )
    stream_control.record_failures(engine, {KEY["Risk"]: parked})
    yield engine
    engine.dispose()


KEY = {name: game_key(name) for name in ("Chess", "Go", "Ludo", "Risk")}


def submit(environment: Environment, intent: Intent) -> Operation:
    """Submit an intent as a page does for its signed-in person."""
    done = previews.submit(environment, Preview(intent, (), 1, 0.0))
    assert isinstance(done, Operation)
    return done


def texts(app: AppTest) -> str:
    return "\n".join([*(element.value for element in (*app.text, *app.caption)), *drawn_html(app)])


def drawn_html(app: AppTest) -> list[str]:
    """Return the words of all HTML on the page; fail if a foreign name opened a tag in it."""
    pages = [each.value for each in app.html if not each.value.startswith("<style>")]
    assert not [page for page in pages if re.search(r"<(script|img|a|svg|iframe)\b|<[^>]* on[a-z]+=", page)]
    return [html.unescape(re.sub(r"<[^>]*>", " ", page)).strip() for page in pages]


def links(app: AppTest) -> list[str]:
    return [each.label for each in app.get("page_link") if isinstance(each, PageLink)]


def inbox_label(app: AppTest) -> str:
    """Return what the button of the inbox says."""
    labels: list[str] = [str(each.proto.popover.label) for each in app.get("popover")]
    (label,) = [each for each in labels if each.startswith("Inbox")]
    return label


def drawn_alive(app: AppTest) -> str:
    """Return what could act of all that is drawn as Markdown: without what a backslash holds."""
    acting = [*app.markdown, *app.caption, *app.title, *app.subheader, *app.info, *app.warning, *app.error]
    drawn = "".join([*(each.value for each in acting if not each.value.startswith("<style>")), *links(app)])
    return re.sub(r"\\.", "", drawn)


def choose(app: AppTest, names: list[str], group: str | None = None, box: str = "move_games") -> AppTest:
    app.multiselect(key=box).set_value([KEY[name] for name in names])
    if group is not None:
        app.selectbox(key="move_to").set_value(group)
    return app


def fill(app: AppTest, reason: str = "", typed: str = "") -> AppTest:
    for field in app.text_input:
        if str(field.key).startswith("reason_"):
            field.set_value(reason)
        if str(field.key).startswith("typed_"):
            field.set_value(typed)
    return app


def name_roles(folder: Path, **roles: list[str]) -> None:
    lines = [f"{name} = {json.dumps(actors)}" for name, actors in roles.items()]
    (folder / "turnout.toml").write_text("\n".join(["[roles]", *lines]))
