"""The Fleet page as Streamlit runs it: over a real control store, and where one reading after another fails."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import streamlit as st
from sqlalchemy import update
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.testing.v1 import AppTest

from app.components import links
from app.fleet import gathering
from app.state import judged, services
from listeners.series import Series
from pipeline.api import fleet as fleet_queries
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.health.facts.fleet import Fleet
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.database.report_tables import source_backlog
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.reports import record_round
from tests.browser.seed import HOSTILE, Seeded, fleet_of_forty, seed
from tests.unit.app.app_world import Opening, again, drawn_html, forget_readings, pages_of
from tests.unit.app.fleet_world import incident, series

UNKNOWN = "–"


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    """Open a page of an environment in which causes are judged, and none was found."""
    monkeypatch.setattr(judged, "incidents", lambda _: ())
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


def words(app: AppTest) -> str:
    return "\n".join([*(each.value for each in app.text), *drawn_html(app)])


def rows(app: AppTest) -> pd.DataFrame:
    return app.dataframe[0].value


def statuses(app: AppTest) -> list[str]:
    return [word for cell in rows(app)["status"] for word in cell]


def hour_of(names: list[str]) -> Series:
    made = series(sorted(map(game_key, names)))
    shift = time.time() // 60 * 60 - made.since - made.slots * 60
    object.__setattr__(made, "since", made.since + shift)
    return made


# ------------------------------------------------------------------------------------------------------------- sentence


def test_a_healthy_fleet_says_so(tmp_path: Path, opening: Opening) -> None:
    """When every stream runs, the first sentence says how many are healthy, and the table has every game by name."""
    seed(tmp_path, [Seeded(f"game {n}", "a", {}) for n in range(6)], now=time.time(), history=False)
    app = opening("fleet")
    assert "6 streams healthy" in words(app)
    assert "No incident" in words(app)
    assert statuses(app) == ["● running"] * 6
    assert list(rows(app)["game"]) == [f"game {n}" for n in range(6)]


def test_the_cells_never_contradict_the_sentence(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is true of one moment: sentence, grid, counts and table show one reading of a fleet that changes."""
    names = [f"game {number:02}" for number in range(20)]
    seed(tmp_path, [Seeded(name, "a", {}) for name in names], now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    left = iter(names)

    def changing(environment: services.Environment) -> Fleet:
        """Return the fleet, in which each reading finds one more stream that fails."""
        fails = tables.streams.c.game_key == game_key(next(left))
        with engine.begin() as connection:
            connection.execute(update(tables.streams).where(fails).values(status="FAILED"))
        return fleet_queries.read(services.opened(environment))

    changing.clear = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(services, "fleet", changing)
    app = opening("fleet")
    engine.dispose()
    failing = statuses(app).count("✗ failed")
    assert 0 < failing < len(names)
    assert f"{failing} of 20 streams failing" in words(app)
    assert app.button_group(key="fleet_status").options == [f"✗ failed {failing}", f"● running {20 - failing}"]
    (grid,) = (each.proto.alt for each in app.get("vega_lite_chart") if "One cell per game" in each.proto.alt)
    assert f"{failing} of 20 streams failing" in grid


def test_every_part_of_the_page_is_drawn_at_each_refresh(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is drawn less often than the sentence would contradict it meanwhile; the header has its own time."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    intervals: list[float] = []
    enqueue = ScriptRunContext.enqueue

    def remember(context: ScriptRunContext, message: Any) -> None:
        if message.WhichOneof("type") == "auto_rerun":
            intervals.append(message.auto_rerun.interval)
        enqueue(context, message)

    monkeypatch.setattr(ScriptRunContext, "enqueue", remember)
    opening("fleet", every="2s")
    assert sorted(intervals) == [2.0, 2.0, 10.0]


def test_numbers_stay_while_no_state_changes_and_states_never(tmp_path: Path, opening: Opening) -> None:
    """A new number alone does not send the large table again; a new status is in it at once, as in the sentence."""
    seed(tmp_path, [Seeded(name, "a", {}) for name in ("one", "two")], now=time.time(), history=False)
    app = opening("fleet")
    engine = open_store(Settings(), Paths(tmp_path))
    before = rows(app)
    with engine.begin() as connection:
        connection.execute(update(tables.streams).values(rows_per_second=77.0))
    again(app)
    assert rows(app).equals(before)
    with engine.begin() as connection:
        changed = tables.streams.c.game_key == game_key("two")
        connection.execute(update(tables.streams).where(changed).values(status="FAILED"))
    again(app)
    engine.dispose()
    assert statuses(app) == ["✗ failed", "● running"]
    assert list(rows(app)["rows"]) == ["77", "77"]


def test_a_failed_stream_comes_first(tmp_path: Path, opening: Opening) -> None:
    """A failed stream is in the first sentence, has a line of its own, is counted by a filter, and is the first row."""
    games = [Seeded("good", "a", {}), Seeded("bad", "a", {"status": "FAILED", "last_error": "no space left"})]
    seed(tmp_path, games, now=time.time(), history=False)
    app = opening("fleet")
    assert "1 of 2 streams failing" in words(app)
    assert "bad failed" in words(app)
    assert "its 1 neighbour is well" in words(app)
    first = rows(app).iloc[0]
    assert (list(first["status"]), first["game"], first["cause"]) == (["✗ failed"], "bad", "no space left")
    assert app.button_group(key="fleet_status").options == ["✗ failed 1", "● running 1"]


def test_a_dead_driver_makes_its_games_unknown(tmp_path: Path, opening: Opening) -> None:
    """When a driver is silent its games are unknown, not running, their numbers are none, and the group is one line."""
    ages = {"ingest": 1.0, "a": 1.0, "b": 120.0}
    games = [Seeded("alive", "a", {}), Seeded("lost", "b", {"status": "FAILED", "last_error": "no space"})]
    seed(tmp_path, games, now=time.time(), heartbeat_ages=ages, history=False)
    app = opening("fleet")
    assert "1 of 2 streams unknown" in words(app)
    assert "Group b is silent for 12" in words(app)
    lost = rows(app).iloc[0]
    assert (lost["game"], list(lost["status"])) == ("lost", ["? unknown"])
    assert "last report: FAILED" in lost["cause"]
    assert lost[["backlog", "rows", "p99"]].isna().all()


def test_with_ingest_dead_no_game_runs_and_no_backlog_is_zero(tmp_path: Path, opening: Opening) -> None:
    """Streams have all of bronze and nothing is read any more: the page says so in one line, and shows no backlog."""
    games = [Seeded(name, "a", {"backlog_age_seconds": 0.0}) for name in ("one", "two")]
    seed(tmp_path, games, now=time.time(), heartbeat_ages={"ingest": 120.0, "a": 1.0}, history=False)
    app = opening("fleet")
    assert "Ingest silent" in words(app)
    assert words(app).count("Ingest is silent for 12") == 1
    assert statuses(app) == ["? unknown"] * 2
    assert rows(app)["backlog"].isna().all()


def test_a_late_source_is_one_line_and_the_backlog_of_every_game(tmp_path: Path, opening: Opening) -> None:
    """A late source is one problem, and a floor of each game's backlog."""
    games = [Seeded(name, "a", {"backlog_age_seconds": 0.0}) for name in ("one", "two")]
    seed(tmp_path, games, now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        connection.execute(update(source_backlog).values(age_seconds=70.0, peak_seconds=70.0, rows=760_000))
    engine.dispose()
    app = opening("fleet")
    assert "ngest is 70 s behind its source: 760,000 rows wait" in words(app)
    assert (statuses(app), list(rows(app)["backlog"])) == (["▲ lagging"] * 2, ["1 min"] * 2)


def test_maintenance_that_fails_is_a_line(tmp_path: Path, opening: Opening) -> None:
    """A process that no game depends on, such as maintenance, has its line where it needs a person."""
    seed(tmp_path, [Seeded("Chess", "a", {})], now=time.time(), history=False)
    store = open_store(Settings(), Paths(tmp_path))
    start_driver(store, "maintenance", "main", None)
    heartbeat(store, "maintenance", "main", "failed", None, "no space")
    record_round(store, 1.0, ["tables/chess: OSError: no space"], tables=3, files_before=9, files_after=9)
    store.dispose()
    assert "Maintenance has failed: no space" in words(opening("fleet"))


def test_an_empty_store_says_what_to_do(tmp_path: Path, opening: Opening) -> None:
    """Without games the page says why it is empty and what to start, and nothing of it is green or zero."""
    seed(tmp_path, [], now=time.time(), heartbeat_ages={})
    app = opening("fleet")
    assert "Ingest was never started" in words(app)
    assert "turnout simulate" in app.info[0].value
    assert "t-dot t-well" not in "".join(each.value for each in app.html if not each.value.startswith("<style>"))


# -------------------------------------------------------------------------------------------------------------- filters


def test_filters_are_restored_from_the_url(tmp_path: Path, opening: Opening) -> None:
    """A copied link shows what its sender saw: status, group, search, order and only-trouble are in the URL."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    assert statuses(opening("fleet", status="FAILED")) == ["✗ failed"] * 2
    assert set(rows(opening("fleet", group="a"))["group"]) == {"a"}
    assert list(rows(opening("fleet", q="FJORD ar"))["game"]) == ["Fjord arena"]
    assert len(rows(opening("fleet", trouble="true"))) == 5
    assert rows(opening("fleet", sort="name")).iloc[0]["game"].startswith("**bold**")
    assert "No game matches" in words(opening("fleet", q="nothing like it"))
    assert "“boredom”" in "".join(each.value for each in opening("fleet", status="boredom").warning)


def test_the_range_of_the_charts_is_in_the_url(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link's range is that of all charts and trends, also after a choice; the default leaves the URL."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    read: list[int] = []

    def remember(_: object, seconds: int) -> Series:
        read.append(seconds)
        return hour_of(["one"])

    monkeypatch.setattr(gathering, "series", remember)
    app = opening("fleet", range="6h")
    assert (set(read), app.query_params["range"]) == ({21_600, 900}, "6h")
    app.button_group(key="range").set_value("24h").run()
    assert app.query_params["range"] == "24h"
    app.button_group(key="range").set_value("1h").run()
    assert "range" not in app.query_params
    assert read[-1] == 3_600


def test_a_count_is_a_filter(tmp_path: Path, opening: Opening) -> None:
    """Choosing a status shows only its games and writes the URL by the status, not by its label with a count."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    app = opening("fleet")
    app.button_group(key="fleet_status").set_value(["STALLED"]).run()
    assert statuses(app) == ["■ stalled"]
    assert app.query_params["status"] == "STALLED"
    app.button_group(key="fleet_status").set_value([]).run()
    assert len(rows(app)) == 40
    assert "status" not in app.query_params
    app.button(key="fleet_only_trouble").click().run()
    assert (len(rows(app)), app.query_params["trouble"]) == (5, "true")


def test_a_name_in_the_table_opens_its_game(tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """A click opens the game that the clicked text names, whichever row holds it by now; an unknown text opens none."""
    seed(tmp_path, [Seeded(name, "a", {}) for name in ("Chess", "chess", "Go")], now=time.time(), history=False)
    app = opening("fleet")
    label = f"chess · {game_key('chess')}"
    assert set(rows(app)["game"]) == {"Go", label, f"Chess · {game_key('Chess')}"}
    went: list[dict[str, str]] = []
    monkeypatch.setattr(st, "switch_page", lambda _, query_params: went.append(query_params))
    column = links.named_game_column("Game", "fleet", 100)
    known: dict[str, Any] = {"fleet_named": app.session_state["fleet_named"]}
    for clicked in (label, "nobody"):
        monkeypatch.setattr(st, "session_state", {**known, column.key: {"row": 0, "label": clicked}})
        column.on_click(*column.args)
    assert went == [{"game": game_key("chess")}]


def test_the_next_step_of_an_incident_opens_its_page(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incident has one button with its action, which opens the page that owns it with what is chosen there."""
    seed(tmp_path, [Seeded("Chess", "a", {"status": "FAILED"})], now=time.time(), history=False)
    monkeypatch.setattr(judged, "incidents", lambda _: (incident([game_key("Chess")]),))
    app = opening("fleet")
    assert "Rows of 1 games refused since schema version 7" in words(app)
    went: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(st, "switch_page", lambda page, query_params: went.append((page, query_params)))
    next(button for button in app.button if button.label == "Review schema 7").click().run()
    assert went == [("views/schemas.py", {"game": game_key("Chess")})]
    assert rows(app).iloc[0]["next"] == "Review schema 7"


# ------------------------------------------------------------------------------------------------------------- failures


def test_each_panel_fails_alone(tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the series, the incidents and the alerts do not answer, each says so, is no zero, and the rest goes on."""
    seed(tmp_path, [Seeded("Chess", "a", {})], now=time.time(), history=False)

    def away(*_: object) -> None:
        raise Refused("it is away")

    monkeypatch.setattr(gathering, "series", away)
    monkeypatch.setattr(judged, "incidents", away)
    monkeypatch.setattr(gathering, "control_queries", SimpleNamespace(journal=away))
    app = opening("fleet")
    said = words(app)
    assert "1 stream level with bronze" in said
    assert "Earlier incidents are not known: it is away" in said
    assert said.count("No reading of the history") == 2
    assert "No incident" not in said
    assert len(rows(app)) == 1


def test_a_slow_history_does_not_hold_what_the_store_says(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence, the data's age and the troubles are sent before anything outside of the control store is read."""
    seed(tmp_path, [Seeded("good", "a", {}), Seeded("bad", "a", {"status": "FAILED"})], now=time.time(), history=False)
    sent: list[bytes] = []
    before: list[bytes] = []
    enqueue = ScriptRunContext.enqueue

    def remember(context: ScriptRunContext, message: Any) -> None:
        sent.append(message.SerializeToString())
        enqueue(context, message)

    def slow(*_: object) -> Series:
        before.append(b"".join(sent))
        return hour_of(["good", "bad"])

    monkeypatch.setattr(ScriptRunContext, "enqueue", remember)
    monkeypatch.setattr(gathering, "series", slow)
    opening("fleet")
    for text in (b"1 of 2 streams failing", b"data as of", b"bad failed"):
        assert text in before[0]
    assert b'<dl class="t-figures' not in before[0]


def test_a_store_that_breaks_keeps_the_last_data_and_then_knows_nothing(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When reading fails the page keeps what it had and says so; after three refreshes nothing counts as known."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    monkeypatch.setattr(gathering, "series", lambda *_: hour_of(["one"]))
    app = opening("fleet")
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        tables.bronze_commits.drop(connection)
    engine.dispose()
    forget_readings()
    app.run()
    assert "The control store does not answer" in words(app)
    assert "no such table" in words(app)
    assert "1 stream healthy" in words(app)
    later = time.time() + 240
    monkeypatch.setattr(time, "time", lambda: later)
    app.run()
    said = words(app)
    assert "Nothing known for 4 min" in said
    assert "then: 1 stream healthy" in said
    drawn = "".join(each.value for each in app.html if not each.value.startswith("<style>"))
    assert "t-dot t-blind" in drawn
    assert "t-dot t-well" not in drawn
    assert drawn.count("t-none") >= 3, "the slots since then are hatched"
    assert "t-faded" in drawn
    assert statuses(app) == ["? unknown"]


def test_paused_data_stays_and_its_age_turns_amber(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While refresh is paused the data on screen is held, and its growing age is a warning, not a secret."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    app = opening("fleet")
    app.toggle(key="paused").set_value(True).run()
    forget_readings()
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    app.run()
    badges = "".join(element.value for element in app.markdown)
    assert "paused" in badges
    assert ":orange-badge[" in badges
    assert "1 stream healthy" in words(app)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_inert(name: str, tmp_path: Path, opening: Opening) -> None:
    """A game's raw name reaches the page only as text, without invisible characters, and beside its key."""
    games = [Seeded(name, "a", {"status": "FAILED", "last_error": name}), Seeded("other", "a", {})]
    seed(tmp_path, games, now=time.time(), history=False)
    app = opening("fleet")
    acting = [*app.markdown, *app.caption, *app.title, *app.header, *app.subheader, *app.info, *app.warning]
    drawn = "".join(element.value for element in acting)
    assert not any(part in drawn for part in ("<script", "**bold**", "javascript", "spoof"))
    assert "\u202e" not in words(app) + "".join(rows(app)["game"])
