"""Pages tell more beside their first answer: logs of drivers, use of versions, past incidents."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from app.fleet import gathering
from app.game import queries as game_queries
from app.schemas import listing
from app.schemas import queries as schema_queries
from app.state import control_queries, judged
from app.state import series as history
from listeners import metrics_schema
from listeners.series import Series
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.operations import Intent, submit
from tests.browser.seed import Seeded, seed
from tests.tables.usage_world import AT, commit
from tests.unit.app.app_world import (
    KEY,
    Opening,
    again,
    drawn_alive,
    drawn_html,
    four_games,
    name_roles,
    pages_of,
    texts,
)
from tests.unit.app.fleet_world import incident, series
from tests.unit.data.contracts.catalogue_world import avro, register

UNKNOWN = "–"


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with four_games(tmp_path) as engine:
        yield engine


def opened(app: AppTest, expander: str) -> AppTest:
    """Open an expander whose inside is drawn only then."""
    app.session_state[expander] = True
    return again(app)


def frame(app: AppTest, column: str) -> list[str]:
    """Return a column of the first table that has it."""
    found = next(each.value for each in app.dataframe if column in each.value)
    return [str(each) for each in found[column]]


def away(*_: object, **__: object) -> None:
    raise Refused("it is away")


# ----------------------------------------------------------------------------------------------------------------- logs


@pytest.mark.parametrize("page", ["groups", "game"])
def test_a_log_is_read_once_it_is_opened(page: str, store: Engine, tmp_path: Path, opening: Opening) -> None:
    """The end of a driver's log is behind a closed expander; opened it is plain text, and says of which driver."""
    folder = Paths(tmp_path).logs
    folder.mkdir()
    (folder / "group-a.log").write_text("**bold** <script>\nno space left\npassword=hunter22\n")
    query = {"game": KEY["Chess"]} if page == "game" else {}
    app = opening(page, **query)
    assert not app.code
    app = opened(app, "logs")
    assert app.code[0].value == "**bold** <script>\nno space left\npassword=(hidden)"
    assert "Log of group a" in texts(app)
    assert "**bold" not in drawn_alive(app)
    app.selectbox(key="log_of").set_value("ingest").run()
    assert "No log on this machine: ingest.log" in texts(app)
    assert app.query_params["log"] == "ingest"


def test_a_link_opens_the_log_that_it_names(store: Engine, tmp_path: Path, opening: Opening) -> None:
    """The driver whose log is on screen stands in the URL; the page reports a driver that does not exist."""
    folder = Paths(tmp_path).logs
    folder.mkdir()
    (folder / "group-b.log").write_text("of b\n")
    app = opening("groups", log="group:b")
    assert [each.value for each in app.code] == ["of b"]
    (folder / "group-b.log").write_text("".join(f"{n}\n" for n in range(30)))
    st.cache_resource.clear()
    assert again(app).code[0].value.split() == [str(n) for n in range(5, 30)], "the newest are seen without scrolling"
    app.toggle(key="log_earlier").set_value(True).run()
    assert app.code[0].value.split() == [str(n) for n in range(5)]
    assert "a driver that is not here: group:gone" in texts(opening("groups", log="group:gone", steer="gone"))


def test_a_log_is_for_operators(store: Engine, tmp_path: Path, opening: Opening) -> None:
    """A person without the role reads which role it needs, and no line."""
    folder = Paths(tmp_path).logs
    folder.mkdir()
    (folder / "group-a.log").write_text("a line\n")
    name_roles(tmp_path, operators=["somebody-else"])
    app = opened(opening("groups"), "logs")
    assert "Logs are shown to operators" in texts(app)
    assert not app.code


# ------------------------------------------------------------------------------------------------------ use of versions


def use_of(app: AppTest) -> list[list[str]]:
    return [frame(app, column) for column in ("Version", "In the table", "First row, UTC")]


def test_the_use_of_each_version_is_counted(tmp_path: Path, opening: Opening) -> None:
    """Versions have the rows of the game's table and when their first came; a version without a row has 0."""
    engine = open_store(Settings(), Paths(tmp_path))
    register(engine, avro(player="string"), by="ann")
    register(engine, avro(player="string", rating="int"))
    engine.dispose()
    app = opened(opening("schemas", game=game_key("Chess")), f"schema_versions_{game_key('Chess')}")
    assert use_of(app) == [["2", "1"], ["0", "0"], [UNKNOWN, UNKNOWN]]
    commit(Path(Paths(tmp_path).table(game_key("Chess"))), 1, (1, 0), (1, 60))
    st.cache_resource.clear()
    assert use_of(again(app)) == [["2", "1"], ["0", "2"], [UNKNOWN, "2027-01-15 08:00"]]
    assert AT == 1_800_000_000


def test_the_list_of_schemas_has_the_rows_of_a_day(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each game has its rows a minute over 24 h; a game that no driver reported has no line, which is no zero."""
    asked: list[int] = []

    def read(_: object, seconds: int) -> Series:
        asked.append(seconds)
        return series([KEY["Chess"]])

    monkeypatch.setattr(listing, "series", read)
    app = opening("schemas")
    found = next(each.value for each in app.dataframe if "trend" in each.value).set_index("page")["trend"]
    assert set(asked) == {86_400}
    assert list(found[KEY["Chess"]]) == [600] * 20
    assert found[KEY["Go"]] is None
    monkeypatch.setattr(listing, "series", away)
    app = opening("schemas")
    assert frame(app, "trend") == ["None"] * 4
    assert "Rows of the last day are not known: it is away" in texts(app)


def test_use_that_cannot_be_read_is_a_dash(tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is away, or was read in part, leaves unknown numbers unknown, and the versions stay."""
    engine = open_store(Settings(), Paths(tmp_path))
    register(engine, avro(player="string"), by="ann")
    engine.dispose()
    expander, used = f"schema_versions_{game_key('Chess')}", schema_queries.used
    monkeypatch.setattr(schema_queries, "used", away)
    app = opened(opening("schemas", game=game_key("Chess")), expander)
    assert use_of(app) == [["1"], [UNKNOWN], [UNKNOWN]]
    assert "Use is not known: it is away" in texts(app)
    monkeypatch.setattr(schema_queries, "used", lambda *_: replace(used(*_), files_left=3))
    assert use_of(again(app)) == [["1"], [UNKNOWN], [UNKNOWN]], "not all was read: no row is not known to be none"
    assert "3 older files of several versions were not read" in texts(app)


# ----------------------------------------------------------------------------------------------------------- what ended


def test_fleet_lists_the_incidents_that_ended_in_a_day(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Incidents that have ended are a closed list with cause and length; where none is known there is no list."""
    seed(tmp_path, [Seeded("Chess", "a", {})], now=time.time(), history=False)
    now = time.time()
    over = incident([game_key("Chess")], since=now - 900, ended_at=now - 300)
    monkeypatch.setattr(judged, "incidents", lambda _: (over,))
    app = opening("fleet")
    assert "1 incident ended in the last 24 h" in [each.label for each in app.expander]
    assert (frame(app, "lasted"), frame(app, "what")) == (
        ["10 min"],
        ["Rows of 1 games refused since schema version 7"],
    )
    monkeypatch.setattr(judged, "incidents", away)
    assert not [each for each in opening("fleet").expander if "ended" in each.label]


# -------------------------------------------------------------------------------------------------- one panel at a time


def test_a_game_keeps_what_it_knew_and_says_until_when(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where history, operations and versions cannot be read, the last ones stay with their time; now is a dash."""
    made = series([KEY["Chess"]])
    shift = time.time() // 60 * 60 - made.since - made.slots * 60
    made = replace(made, since=made.since + shift)
    monkeypatch.setattr(history, "series", lambda *_: made)
    app = opening("game", game=KEY["Chess"])
    assert "· until" not in texts(app)
    monkeypatch.setattr(history, "series", away)
    monkeypatch.setattr(game_queries, "control_queries", SimpleNamespace(journal=away))
    monkeypatch.setattr(game_queries, "game_versions", away)
    said = texts(again(app))
    assert "Nobody knows which alerts" not in said, "no server is asked"
    for head in ("per second, landed and refused · until ", "newest first · until ", "1 version · until "):
        assert head in said
    assert "it is away" in said
    assert "Chess" in drawn_html(app)[0]


@pytest.mark.parametrize(
    ("page", "known", "unknown"),
    [
        ("fleet", "1 of 4 streams failing", ["No reading of the history", "Prometheus away since "]),
        ("game", "Chess", ["No history to draw", "Not known.", "Nobody knows which alerts fire for this game"]),
        ("groups", "Group b degraded", ["cannot be read"]),
        ("repairs", "1 stream parked", ["The minute tables cannot be read"]),
        ("access", "The catalog was never read", []),
    ],
)
def test_a_page_stands_without_metrics_catalog_and_prometheus(
    page: str,
    known: str,
    unknown: list[str],
    store: Engine,
    tmp_path: Path,
    opening: Opening,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the metrics tables damaged, the catalog away and no Prometheus each page answers, and names what is away."""
    monkeypatch.setenv("TURNOUT_ALERTS__PROMETHEUS_URL", "http://127.0.0.1:9")
    for table in metrics_schema.TABLES:
        log = Paths(tmp_path).metrics / table.name / "_delta_log"
        Path(log).mkdir(parents=True, exist_ok=True)
        for file in Path(log).iterdir():
            file.unlink()
        Path(log / f"{0:020}.json").write_text("not json")
    said = texts(opening(page, **({"game": KEY["Chess"]} if page == "game" else {})))
    assert known in said
    assert not [each for each in unknown if each not in said]


def test_repairs_without_a_history_have_no_zero(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of Repairs are of what is parked and refused; without the minutes the latter is a dash."""
    monkeypatch.setattr(history, "series", lambda *_: refusing(3))
    said = texts(opening("repairs"))
    assert "1 stream parked or waiting after a failure" in said
    assert " ".join(figure(said, "Rows refused, 1 h")) == "≥ 180 Chess: 100 % of them; complete until 08:00 UTC"
    assert figure(said, "Parked") == ["1", "Risk"]
    monkeypatch.setattr(history, "series", away)
    assert figure(texts(opening("repairs")), "Rows refused, 1 h") == [UNKNOWN, "it", "is", "away"]


def figure(said: str, label: str) -> list[str]:
    """Return the words of a figure, up to the next one."""
    words = said.partition(label)[2]
    for other in ("Parked", "Waiting after a failure", "Rows refused, 1 h", "Repairs open"):
        words = words.partition(other)[0]
    return words.replace("\xa0", " ").split()


def refusing(a_minute: int) -> Series:
    made = series([KEY["Chess"], KEY["Go"]])
    refused = made.refused.copy()
    refused[0, :] = a_minute
    return replace(made, refused=refused)


def test_fleet_keeps_its_charts_until_the_history_answers_again(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both charts keep the last good hour and say until when it goes."""
    seed(tmp_path, [Seeded("Chess", "a", {})], now=time.time(), history=False)
    monkeypatch.setattr(gathering, "series", lambda *_: series([game_key("Chess")]))
    app = opening("fleet")
    monkeypatch.setattr(gathering, "series", away)
    assert texts(again(app)).count(" until ") >= 2


def test_operations_that_nobody_carries_out_are_not_green(store: Engine, opening: Opening) -> None:
    """Without a controller open operations wait: the sentence says so, and its dot is warm."""
    submit(store, Intent("pause", (f"game:{KEY['Go']}",), "ann", "season reset"))
    app = opening("operations")
    assert drawn_html(app)[0].startswith("1 operation waits for a controller")
    drawn = "".join(each.value for each in app.html if not each.value.startswith("<style>"))
    assert "t-dot t-late" in drawn
    assert "t-dot t-well" not in drawn


def test_the_audit_log_that_cannot_be_read_can_still_be_verified(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged log has no entries to show, and is the one that a person wants to verify."""
    monkeypatch.setattr(control_queries, "audit_log", away)
    app = opening("audit")
    assert "Nothing known yet" in texts(app)
    assert app.button(key="verify").label == "Verify the log"
