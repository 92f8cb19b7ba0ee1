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
from pipeline.actor import current_user
from pipeline.errors import Refused
from pipeline.names import game_key
from pipeline.settings import Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.reports import record_round, source_backlog
from tests.browser.seed import HOSTILE, Seeded, fleet_of_forty, seed
from tests.unit.app_world import drawn_html, sign_in, started_app

ROOT = Path(__file__).parents[2]
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


def test_a_healthy_fleet_says_so(tmp_path: Path, opening: Opening) -> None:
    """When every stream runs, the first sentence says how many are healthy, and every game is in the table."""
    seed(tmp_path, [Seeded(f"game {n}", "a", {}) for n in range(6)], now=time.time(), history=False)
    app = opening()
    assert "6 streams healthy" in texts(app)
    assert "● group a: running" in texts(app)
    assert list(app.dataframe[0].value["status"]) == ["● running"] * 6
    assert "data as of" in app.markdown[-1].value + "".join(element.value for element in app.markdown)


def test_maintenance_has_a_tile_with_its_last_round(tmp_path: Path, opening: Opening) -> None:
    """Whether tables are maintained is seen beside the drivers: the process, and how its last round went."""
    seed(tmp_path, [Seeded("Chess", "a", {})], now=time.time(), history=False)
    store = open_store(Settings(), Paths(tmp_path))
    start_driver(store, "maintenance", "main", None)
    heartbeat(store, "maintenance", "main", "running", None)
    record_round(store, 1.0, ["tables/chess: OSError: no space"], tables=3, files_before=9, files_after=9)
    store.dispose()
    said = texts(opening())
    assert "maintenance: running" in said
    assert "and failed in 1 of 3 tables (tables/chess: OSError: no space)" in said


def test_a_failed_stream_comes_first(tmp_path: Path, opening: Opening) -> None:
    """A failed stream is named in the first sentence, counted, and the first row, with its error and a link by key."""
    games = [Seeded("good", "a", {}), Seeded("bad", "a", {"status": "FAILED", "last_error": "no space left"})]
    seed(tmp_path, games, now=time.time(), history=False)
    app = opening()
    assert "1 of 2 streams failing; group a degraded (1 of 2)" in texts(app)
    first = app.dataframe[0].value.iloc[0]
    assert (first["status"], first["game"], first["last error"]) == ("✗ failed", "bad", "no space left")
    assert first["page"] == game_key("bad")
    assert "✗ 1 failed" in [button.label for button in app.button]


def test_a_dead_driver_makes_its_games_unknown(tmp_path: Path, opening: Opening) -> None:
    """When a driver is silent its games are unknown, not running, and their lag is not a number."""
    ages = {"ingest": 1.0, "a": 1.0, "b": 120.0}
    games = [Seeded("alive", "a", {}), Seeded("lost", "b", {"status": "FAILED", "last_error": "no space"})]
    seed(tmp_path, games, now=time.time(), heartbeat_ages=ages, history=False)
    app = opening()
    assert "1 of 2 streams unknown; 1 group down (b)" in texts(app)
    assert "? group b: unknown" in texts(app)
    assert re.search(r"^is silent for 12\d s$", texts(app), re.MULTILINE)
    lost = app.dataframe[0].value.iloc[0]
    assert (lost["game"], lost["status"]) == ("lost", "? unknown")
    silent = r"its driver is silent for 12\d s; last report: FAILED; last error: no space"  # the page is drawn later
    assert re.fullmatch(silent, lost["last error"])
    assert lost[["lag", "rows/s", "p95 latency"]].isna().all()


def test_with_ingest_dead_no_game_runs_and_no_lag_is_zero(tmp_path: Path, opening: Opening) -> None:
    """Streams have all of bronze and nothing is read any more: the pages say so in one sentence, and show no lag."""
    games = [Seeded(name, "a", {"backlog_age_seconds": 0.0}) for name in ("one", "two")]
    ages = {"ingest": 120.0, "a": 1.0}
    seed(tmp_path, games, now=time.time(), heartbeat_ages=ages, history=False)
    app = opening()
    assert "2 streams level with bronze; ingest silent" in texts(app)
    rows = app.dataframe[0].value
    assert list(rows["status"]) == ["? unknown"] * 2
    assert rows["lag"].isna().all()
    assert "running" not in " ".join(button.label for button in app.button)
    shown = texts(opening("game", game=game_key("one")))
    assert re.search(r"\? Unknown.*; ingest is silent for 12\d s, so what waits in its source is unknown", shown)
    assert "check the group first" not in shown
    assert "0.0 s" not in shown


def test_a_late_source_is_one_sentence_and_the_lag_of_every_game(tmp_path: Path, opening: Opening) -> None:
    """What waits in the source is a floor of each game's lag, on all pages."""
    games = [Seeded(name, "a", {"backlog_age_seconds": 0.0}) for name in ("one", "two")]
    seed(tmp_path, games, now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        connection.execute(update(source_backlog).values(age_seconds=70.0, peak_seconds=70.0, rows=760_000))
    app = opening()
    sentence = "ingest is 70 s behind its source: 760,000 rows wait"
    assert f"2 streams level with bronze; {sentence}" in texts(app)
    assert texts(app).count(sentence) == 2, "the headline and the tile of ingest"
    rows = app.dataframe[0].value
    assert (list(rows["status"]), list(rows["lag"])) == (["▲ lagging"] * 2, [70.0] * 2)
    shown = texts(opening("game", game=game_key("one")))
    assert sentence in shown
    assert "1 min" in shown


def test_an_empty_store_says_what_to_do(tmp_path: Path, opening: Opening) -> None:
    """Without games the page says why it is empty and what to start."""
    seed(tmp_path, [], now=time.time(), heartbeat_ages={})
    app = opening()
    assert "No games yet; ingest was never started" in texts(app)
    assert "turnout simulate" in app.info[0].value
    assert "○ ingest: never started" in texts(app)


def test_a_missing_store_says_what_to_do(tmp_path: Path, opening: Opening) -> None:
    """Without a control store the page says which file is missing, and does not make one."""
    app = opening()
    assert "The control store is missing" in app.warning[0].value
    assert not Paths(tmp_path).control_db.exists()


def test_filters_are_restored_from_the_url(tmp_path: Path, opening: Opening) -> None:
    """A copied link shows what its sender saw: status, group, search and only-trouble are in the URL."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    assert list(opening(status="FAILED").dataframe[0].value["status"]) == ["✗ failed"] * 2
    assert set(opening(group="a").dataframe[0].value["group"]) == {"a"}
    assert list(opening(q="FJORD ar").dataframe[0].value["game"]) == ["Fjord arena"]
    assert len(opening(trouble="true").dataframe[0].value) == 5
    assert "No game matches" in opening(q="nothing like it").info[0].value


def test_a_count_is_a_filter(tmp_path: Path, opening: Opening) -> None:
    """Pressing a count shows only its games and writes the URL; pressing it again shows all."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    app = opening()
    app.button(key="count_STALLED").click().run()
    assert list(app.dataframe[0].value["status"]) == ["■ stalled"]
    assert app.query_params["status"] == "STALLED"
    app.button(key="count_STALLED").click().run()
    assert len(app.dataframe[0].value) == 40


def test_paused_data_stays_and_its_age_turns_amber(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While refresh is paused the data on screen is held, and its growing age is a warning, not a secret."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    app = opening()
    app.toggle(key="paused").set_value(True).run()
    st.cache_data.clear()
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    app.run()
    badges = "".join(element.value for element in app.markdown)
    assert "paused" in badges
    assert ":orange-badge[" in badges
    assert "1 stream healthy" in texts(app)


def test_a_store_that_breaks_keeps_the_last_data_on_screen(tmp_path: Path, opening: Opening) -> None:
    """When reading starts to fail the page keeps what it had and says that it is old, and why."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    app = opening()
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        tables.bronze_commits.drop(connection)
    st.cache_data.clear()
    app.run()
    assert "no such table" in app.error[0].value
    assert "The page shows the last reading." in app.error[0].value
    assert "1 stream healthy" in texts(app)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_inert(name: str, tmp_path: Path, opening: Opening) -> None:
    """A game's raw name reaches a page only as plain text, without invisible characters and beside its key."""
    seed(tmp_path, [Seeded(name, "a", {}), Seeded("other", "a", {})], now=time.time(), history=False)
    for app in (opening(), opening("game", game=game_key(name))):
        acting = [
            *app.markdown,
            *app.caption,
            *app.title,
            *app.header,
            *app.subheader,
            *app.info,
            *app.warning,
        ]
        drawn = "".join(element.value for element in acting if not element.value.startswith("<style>"))
        assert not any(part in drawn for part in ("<script", "**bold**", "javascript", "spoof"))
        assert "\u202e" not in texts(app)
    assert game_key(name) in texts(opening("game", game=game_key(name)))


def test_a_game_shows_verdict_evidence_and_history(tmp_path: Path, opening: Opening) -> None:
    """The page of a game in trouble says what is wrong, shows the numbers and what changed, and its neighbours."""
    seed(tmp_path, fleet_of_forty(), now=time.time())
    app = opening("game", game=game_key("Fjord arena"))
    seen = texts(app)
    assert "✗ Failed for 21 min; last commit 21 min ago, lag 21 min" in seen
    assert f"key {game_key('Fjord arena')}" in seen
    assert "Rejects by reason in this time: malformed_payload" in seen
    assert app.code[0].value.startswith("SchemaMismatch")
    assert "passes in this time committed nothing" in app.warning[0].value
    changes, schemas, neighbours = (element.value for element in app.dataframe)
    assert list(changes["to"]) == ["✗ failed", "● running", "… starting"]
    assert list(schemas["message"]) == ["samples.v1.Event6"]
    assert len(neighbours) == 19


def test_a_game_without_history_says_why(tmp_path: Path, opening: Opening) -> None:
    """Without metrics tables the charts' place says why it is empty, and the rest of the page stands."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    app = opening("game", game=game_key("one"))
    assert "No history yet" in app.info[0].value
    assert "● Running" in texts(app)


def test_unknown_games_are_told_apart(tmp_path: Path, opening: Opening) -> None:
    """A wrong link, no link and a registered game without events each have their own sentence."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    with open_store(Settings(), Paths(tmp_path)).begin() as connection:
        row = {"game_key": "quiet_x", "game": "quiet", "version": 1, "schema_id": 1, "created_at": 1.0}
        connection.execute(insert(tables.registrations).values(row))
    assert "There is no game with this key" in opening("game", game="nobody_x").warning[0].value
    assert "No game is chosen" in opening("game").info[0].value
    assert "no event of it has arrived" in opening("game", game="quiet_x").info[0].value


def test_a_broken_history_is_a_reason_and_not_an_empty_panel(tmp_path: Path) -> None:
    """A history that is there but cannot be read is refused with its reason."""
    seed(tmp_path, [], now=time.time())
    log = Paths(tmp_path).metrics / STREAM_BATCH.name / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("not json")
    environment = services.open_environment(["main.py", "--env-dir", str(tmp_path)], {})
    with pytest.raises(Refused, match="The history cannot be read"):
        services.game_trend(environment, "x", 900)


def test_the_environment_must_be_named() -> None:
    """Without `--env-dir` and without the variable the app says how to name an environment."""
    with pytest.raises(Refused, match="TURNOUT_ENV_DIR"):
        services.open_environment(["main.py"], {})


def test_the_app_never_loads_pyspark() -> None:
    """No module of the app imports pyspark, directly or not: the dashboard needs no JVM."""
    modules = ("app.state.services", "app.components.charts", "app.components.header", "app.components.fleet_table")
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
