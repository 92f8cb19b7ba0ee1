"""The pages as Streamlit runs them, over a real control store and real metrics tables."""

import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import insert, update
from streamlit.testing.v1 import AppTest

from app.state import services
from listeners.metrics_schema import STREAM_BATCH
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.database.report_tables import source_backlog
from tests.browser.seed import HOSTILE, Seeded, seed
from tests.checkout import ROOT
from tests.unit.app.app_world import drawn_html, sign_in, started_app

Opening = Callable[..., AppTest]


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    """Open a page of the app over the test's environment."""
    monkeypatch.setenv("TURNOUT_ENV_DIR", str(tmp_path))
    monkeypatch.setenv("TURNOUT_METRICS__HEARTBEAT_SECONDS", "30")  # nobody beats while the test takes its time
    monkeypatch.chdir(ROOT)
    sign_in(monkeypatch, current_user())
    st.cache_data.clear()
    st.cache_resource.clear()

    def open_page(page: str = "fleet", **query: str) -> AppTest:
        app = started_app(seconds=20)
        if page == "game":
            app = app.switch_page("views/game.py")
        app.query_params.update(query)
        app.run()
        assert not app.exception
        return app

    yield open_page
    st.cache_data.clear()
    st.cache_resource.clear()


def texts(app: AppTest) -> str:
    return "\n".join([*(element.value for element in app.text), *drawn_html(app)])


def test_with_ingest_dead_no_game_runs_and_no_lag_is_zero(tmp_path: Path, opening: Opening) -> None:
    """A stream has all of bronze and nothing is read any more: its page says so, and shows no lag."""
    games = [Seeded(name, "a", {"backlog_age_seconds": 0.0}) for name in ("one", "two")]
    ages = {"ingest": 120.0, "a": 1.0}
    seed(tmp_path, games, now=time.time(), heartbeat_ages=ages, history=False)
    shown = texts(opening("game", game=game_key("one")))
    assert re.search(r"\? unknown .*ingest is silent for 12\d s, so what waits in its source is unknown", shown)
    assert "Look at group" not in shown
    assert "0.0 s" not in shown


@pytest.mark.parametrize(("ahead", "said"), [(3630, "1 h 0 min ahead of"), (-3630, "1 h 0 min behind")])
@pytest.mark.proves("G134")
def test_a_wrong_clock_of_the_dashboard_is_named(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch, ahead: int, said: str
) -> None:
    """A page whose machine's clock is an hour off names the clock, and does not call fresh data an hour old."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() + ahead)
    (badge,) = [each.value for each in opening().markdown if "data as of" in each.value]
    assert f"; the clock of this dashboard is {said} that of the control store" in badge
    assert " old" not in badge


def test_a_late_source_is_one_sentence_and_the_lag_of_every_game(tmp_path: Path, opening: Opening) -> None:
    """The source's backlog is a floor of a game's lag, also on its page."""
    games = [Seeded(name, "a", {"backlog_age_seconds": 0.0}) for name in ("one", "two")]
    seed(tmp_path, games, now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        connection.execute(update(source_backlog).values(age_seconds=70.0, peak_seconds=70.0, rows=760_000))
    shown = texts(opening("game", game=game_key("one")))
    assert "ingest is 70 s behind its source: 760,000 rows wait" in shown
    assert "1 min" in shown


def test_a_missing_store_says_what_to_do(tmp_path: Path, opening: Opening) -> None:
    """Without a control store the page says which file is missing, and does not make one."""
    app = opening()
    assert "The control store is missing" in app.warning[0].value
    assert not Paths(tmp_path).control_db.exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_inert(name: str, tmp_path: Path, opening: Opening) -> None:
    """A game's raw name reaches a page only as plain text, without invisible characters and beside its key."""
    seed(tmp_path, [Seeded(name, "a", {}), Seeded("other", "a", {})], now=time.time(), history=False)
    app = opening("game", game=game_key(name))
    acting = [*app.markdown, *app.caption, *app.title, *app.header, *app.subheader, *app.info, *app.warning]
    drawn = "".join(element.value for element in acting if not element.value.startswith("<style>"))
    assert not any(part in drawn for part in ("<script", "**bold**", "javascript", "spoof"))
    assert "\u202e" not in texts(app)
    assert game_key(name) in texts(app)


def test_unknown_games_are_told_apart(tmp_path: Path, opening: Opening) -> None:
    """A wrong link, no link and a registered game without events each have their own sentence.

    Nobody is sent to a producer whose events may wait in the source.
    """
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    with open_store(Settings(), Paths(tmp_path)).begin() as connection:
        row = {"game_key": "quiet_x", "game": "quiet", "version": 1, "schema_id": 1, "created_at": 1.0}
        connection.execute(insert(tables.registrations).values(row))
    assert "There is no game with this key" in opening("game", game="nobody_x").warning[0].value
    assert "No game is chosen" in opening("game").info[0].value
    empty = opening("game", game="quiet_x")
    assert "no event of it has reached bronze. Nothing waits in the source" in empty.info[0].value.replace("\\", "")
    assert "No event of quiet in bronze yet" in texts(empty)
    assert "No such game" not in texts(empty)
    with open_store(Settings(), Paths(tmp_path)).begin() as connection:
        connection.execute(update(source_backlog).values(age_seconds=24.0, peak_seconds=24.0, rows=27_150))
    services.forget()
    waits = opening("game", game="quiet_x").info[0].value.replace("\\", "")
    assert "Ingest runs, and events appear after its next commit; " in waits
    assert "producer" not in waits


def test_a_broken_history_is_a_reason_and_not_an_empty_panel(tmp_path: Path) -> None:
    """A history that is there but cannot be read is refused with its reason."""
    seed(tmp_path, [], now=time.time())
    log = Paths(tmp_path).metrics / STREAM_BATCH.name / "_delta_log"
    Path(log).mkdir(parents=True)
    Path(log / f"{0:020}.json").write_text("not json")
    environment = services.open_environment(["main.py", "--env-dir", str(tmp_path)], {})
    with pytest.raises(Refused, match="The history cannot be read"):
        services.game_trend(environment, "x", 900)


def test_the_environment_must_be_named() -> None:
    """Without `--env-dir` and without the variable the app says how to name an environment."""
    with pytest.raises(Refused, match="TURNOUT_ENV_DIR"):
        services.open_environment(["main.py"], {})


def test_the_app_never_loads_pyspark() -> None:
    """No module of the app imports pyspark, directly or not: the dashboard needs no JVM."""
    modules = ("app.state.services", "app.components.header", "app.fleet.glance", "app.fleet.listing")
    code = f"import sys, {', '.join(modules)}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_no_module_of_the_app_hides_another() -> None:
    """Streamlit puts `app/` first on the path, so no module there has the name of a package of ours or of Python's."""
    taken = set(sys.stdlib_module_names) | {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert not taken & {path.stem for path in (ROOT / "app").iterdir() if path.stem not in {"__init__", "__pycache__"}}


def test_the_server_is_closed_by_default() -> None:
    """Streamlit tells nobody, shows no internals, and has no second way in beside its pages."""
    config = tomllib.loads((ROOT / "app" / "streamlit.toml").read_text("utf-8"))
    assert (config["server"]["enableCORS"], config["server"]["enableXsrfProtection"]) == (True, True)
    assert (config["server"]["enableAgentApi"], config["server"]["enableStaticServing"]) == (False, False)
    assert config["browser"]["gatherUsageStats"] is False
    assert (config["client"]["toolbarMode"], config["client"]["showErrorDetails"]) == ("minimal", "none")
    assert {"light", "dark"} <= config["theme"].keys()
