"""Choices live in the URL: a link restores them, and the page names unknown values of a link."""

import ast
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import pytest
import streamlit as st
from sqlalchemy import Engine
from streamlit.runtime.state.query_params import QueryParams
from streamlit.testing.v1 import AppTest

from app.components import links
from pipeline.control import gate
from pipeline.health.facts.placing import placing
from pipeline.store.games import register_group
from pipeline.store.groups import Group, create
from pipeline.store.operations import Intent, list_operations, submit
from tests.browser.seed import HOSTILE
from tests.checkout import ROOT
from tests.tables.repair_world import CHESS, GO, World, broken, early, good, make_world
from tests.unit.app.app_world import KEY, Opening, again, choose, drawn_alive, four_games, pages_of, texts


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with four_games(tmp_path) as engine:
        yield engine


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world with two refused rows of Chess."""
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    made.ingest(good(1), early(2), broken())
    made.split()
    return made


@pytest.fixture
def over_world(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(world.paths.root, monkeypatch) as opened:
        yield opened


def link(opening: Opening, page: str, **query: str | list[str]) -> AppTest:
    return opening(page, **query)


def warned(app: AppTest) -> str:
    return "\n".join(each.value.replace("\\", "") for each in app.warning)


# -------------------------------------------------------------------------------------------------------------- choices


def test_what_is_chosen_for_a_move_is_in_the_link_and_back(store: Engine, opening: Opening) -> None:
    """Games by their keys, where they shall go and the group that is steered make a link that chooses them shared."""
    app = choose(opening("groups"), ["Chess", "Go"], "b").run()
    app.selectbox(key="steered_group").set_value("a").run()
    expected: dict[str, str | list[str]] = {"games": [KEY["Chess"], KEY["Go"]], "to": "b", "steer": "a"}
    assert app.query_params == expected
    shared = link(opening, "groups", **expected)
    assert shared.multiselect(key="move_games").value == [KEY["Chess"], KEY["Go"]]
    assert shared.selectbox(key="move_to").value == "b"
    assert shared.selectbox(key="steered_group").value == "a"
    assert shared.query_params == expected
    shared.button(key="preview_move").click().run()
    assert "2 to move" in texts(shared)


def test_an_act_of_an_incident_is_previewed_once(store: Engine, opening: Opening) -> None:
    """A button elsewhere opens the preview of an act on a group, once: dropped, it does not come back."""
    app = opening("groups", steer="a")
    app.session_state["links_asked"] = {"steer": "a", "do": "drain"}
    assert "What drain would do" in texts(app.run())
    app.button(key="dropped_groups_group").click().run()
    assert "What drain would do" not in texts(app.run())
    assert app.query_params == {"steer": "a"}


def test_an_act_of_an_incident_stays_out_of_the_url(
    store: Engine, opening: Opening, went: list[tuple[str, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload of the page, or a link that is shared, opens no preview by itself."""
    asked: dict[str, object] = {}
    monkeypatch.setattr(st, "session_state", asked)
    links.open_page("groups", {"steer": "a", "do": "drain"})
    assert went == [("views/groups.py", {"steer": "a"})]
    assert asked["links_asked"] == {"steer": "a", "do": "drain"}


def test_a_choice_that_is_taken_back_leaves_the_link(store: Engine, opening: Opening) -> None:
    """The URL says what is chosen now, and nothing where nothing is."""
    app = choose(link(opening, "groups", games=[KEY["Chess"], KEY["Go"]]), ["Go"]).run()
    assert app.query_params == {"games": KEY["Go"]}
    assert choose(app, []).run().query_params == {}


def test_a_new_group_takes_no_choice_back(store: Engine, opening: Opening) -> None:
    """Boxes that get another group to choose keep what was chosen before."""
    app = opening("groups")
    app.selectbox(key="steered_group").set_value("a")
    app.selectbox(key="move_to").set_value("b").run()
    create(store, Group("0new"), "ann", "", placing())
    assert "0new" in again(app).selectbox(key="move_to").options
    assert (app.selectbox(key="steered_group").value, app.selectbox(key="move_to").value) == ("a", "b")
    assert app.query_params == {"steer": "a", "to": "b"}


def interrupted() -> None:
    """Draw a page; with `held` a click elsewhere ends the run between what a link lays into a box and the box."""
    import streamlit as st
    from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
    from streamlit.runtime.scriptrunner import RerunData, RerunException

    from app.components import links

    links.take("steer", "box", ["a", "b"])
    held = st.session_state.pop("held", None)
    if held is not None:
        sent = WidgetStates(widgets=[WidgetState(id=box, string_value=value) for box, value in held.items()])
        raise RerunException(RerunData(query_string="steer=b", widget_states=sent))
    st.selectbox("Group", ["a", "b"], index=None, key="box")
    links.keep({"steer": "box"})


@pytest.mark.parametrize("before", [None, "a"])
def test_a_run_that_is_interrupted_loses_nothing_of_a_link(before: str | None) -> None:
    """Law: the browser is sent what a link lays into a box until a run has drawn it; its old value is no choice.

    It would show the old box, and send that back as if a person had chosen it: the choice left the URL.
    """
    app, held = AppTest.from_function(interrupted), {}
    if before is not None:
        app.query_params["steer"] = before
        app.run()
        held = {app.selectbox(key="box").id: before}
    app.session_state["held"] = held
    app.query_params["steer"] = "b"
    app.run()
    assert app.selectbox(key="box").proto.set_value
    assert (app.selectbox(key="box").value, app.query_params) == ("b", {"steer": "b"})
    app.selectbox(key="box").set_value("a").run()
    assert app.query_params == {"steer": "a"}, "what a person chooses goes on to count"


def test_an_url_that_comes_late_takes_no_choice_back(store: Engine, opening: Opening) -> None:
    """A run that the browser asked for before it knew the new URL changes nothing; a link that is opened does."""
    app = choose(opening("groups"), ["Chess"]).run()
    app.query_params.clear()
    app.run()
    assert app.multiselect(key="move_games").value == [KEY["Chess"]]
    assert app.query_params == {"games": KEY["Chess"]}, "another run brings the newer one again"
    app.query_params.clear()
    app.selectbox(key="move_to").set_value("b").run()
    assert app.query_params == {"games": KEY["Chess"], "to": "b"}, "no older URL comes back with another choice"
    app.run()
    app.query_params["games"] = KEY["Ludo"]
    app.run()
    assert app.multiselect(key="move_games").value == [KEY["Ludo"]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, list[str]]]:
    """Return each URL that the pages send to the browser, which may come back with any of them."""
    urls: list[dict[str, list[str]]] = []
    real = QueryParams._send_query_param_msg

    def record(params: QueryParams) -> None:
        real(params)
        urls.append(parse_qs(urlencode(params._query_params, doseq=True)))

    monkeypatch.setattr(QueryParams, "_send_query_param_msg", record)
    return urls


@pytest.mark.parametrize("page", ["groups", "fleet"])
def test_no_url_with_old_values_is_ever_sent(
    page: str, store: Engine, opening: Opening, sent: list[dict[str, list[str]]]
) -> None:
    """A run that began with an older URL sends none in which only some of what is chosen is new.

    The browser would ask with it, and it would look like a link to the old values: under load choices were lost so.
    """
    app = opening(page, steer="a") if page == "groups" else opening(page, status="FAILED")
    if page == "groups":
        app.selectbox(key="steered_group").set_value("b").run()
        fresh = {"steer": ["b"]}
    else:
        app.pills(key="fleet_status").set_value(["RUNNING"]).run()
        fresh = {"status": ["RUNNING"]}
    assert sent == [fresh]
    sent.clear()
    app.query_params.clear()
    app.query_params.update({"steer": "a"} if page == "groups" else {"status": "FAILED"})  # asked for before it came
    app.segmented_control(key="range").set_value("6h").run()
    assert sent
    assert all(each == {**fresh, "range": ["6h"]} for each in sent)


@pytest.mark.parametrize("name", ["gone_x1", *HOSTILE])
def test_what_a_link_names_that_is_not_here_is_said(name: str, store: Engine, opening: Opening) -> None:
    """It is told of as text, chosen nowhere, and stays in the link through other choices until it is taken out."""
    app = link(opening, "groups", games=[KEY["Chess"], name], to=name, steer=name)
    assert "The link names unknown values, which were ignored: steer “" in warned(app)
    assert not any(part in drawn_alive(app) for part in ("<script", "**bold** [", "](", ":red[", "javascript:"))
    assert "\u202e" not in warned(app)
    assert app.multiselect(key="move_games").value == [KEY["Chess"]]
    assert app.selectbox(key="move_to").value is None
    choose(app, ["Chess", "Go"]).run()
    assert app.query_params["games"] == [KEY["Chess"], KEY["Go"], name]
    app.button(key="forget_unknown").click().run()
    assert app.query_params == {"games": [KEY["Chess"], KEY["Go"]]}
    assert "The link names" not in warned(app)


@pytest.mark.parametrize("page", sorted((ROOT / "app" / "views").glob("*.py")), ids=lambda page: page.stem)
def test_no_page_draws_a_text_by_accident(page: Path) -> None:
    """Streamlit draws every text that stands alone in a page's file: only the first, its docstring, may."""
    alone = [each for each in ast.parse(page.read_text("utf-8")).body if isinstance(each, ast.Expr)]
    assert [each.lineno for each in alone[1:] if isinstance(each.value, ast.Constant)] == []


# -------------------------------------------------------------------------------------------------------------- repairs


def test_the_filters_of_a_replay_are_in_the_link_and_back(world: World, over_world: Opening) -> None:
    """A repair, its games and the rows it takes make a link that chooses them shared."""
    app = over_world("repairs")
    app.button_group(key="repair_kind").set_value("replay").run()
    app.multiselect(key="repair").set_value([CHESS.key])
    app.selectbox(key="replay_refused_for").set_value("malformed_payload")
    app.text_input(key="replay_since").set_value("2026-01-31")
    app.text_input(key="replay_until").set_value("2100-01-01T12:00").run()
    expected = {
        "repair": "replay", "games": CHESS.key, "refused_for": "malformed_payload", "seen_since": "2026-01-31",
        "seen_until": "2100-01-01T12:00",
    }  # fmt: skip
    assert app.query_params == expected
    shared = link(over_world, "repairs", **expected)
    assert shared.selectbox(key="replay_refused_for").value == "malformed_payload"
    assert shared.text_input(key="replay_since").value == "2026-01-31"
    shared.button(key="preview_repair").click().run()
    shown = texts(shared)
    assert "Only rows refused for malformed_payload and first seen at or after 2026-01-31T00:00:00+00:00" in shown
    assert "first seen before 2100-01-01T12:00:00+00:00." in shown
    assert "Decodes 1 rows in quarantine" in shown
    shared.button(key="ask_repairs_repair").click().run()
    (submitted,) = list_operations(world.engine)
    assert submitted.parameters == {
        "games": [CHESS.key], "refused_for": "malformed_payload", "since": "2026-01-31T00:00:00+00:00",
        "until": "2100-01-01T12:00:00+00:00",
    }  # fmt: skip


def test_a_replay_of_all_takes_those_that_have_such_rows(world: World, over_world: Opening) -> None:
    """It takes each game that has such rows and a schema; where there are none it says so."""
    world.ingest(good(1, GO))  # a name that nobody knows
    world.split()
    app = link(over_world, "repairs", repair="replay", rows="all")
    assert app.multiselect(key="repair").disabled
    app.button(key="preview_repair").click().run()
    assert "1 to replay." in texts(app)
    app.selectbox(key="replay_refused_for").set_value("kills_worker").run()
    app.button(key="preview_repair").click().run()
    assert "Nothing to replay: no active game with a schema" in warned(app)


def test_rows_that_are_not_there_are_no_reason_for_a_replay(world: World, over_world: Opening) -> None:
    """The preview counts the chosen rows only, and refuses where there is none, with the reason."""
    app = link(over_world, "repairs", repair="replay", games=CHESS.key, seen_until="2001-01-01")
    app.button(key="preview_repair").click().run()
    assert "Quarantine holds no such row of it." in texts(app)
    assert list_operations(world.engine) == []


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"seen_since": "yesterday"}, "'yesterday' is not a time"),
        ({"seen_until": HOSTILE[1]}, "is not a time"),
        ({"seen_since": "2026-02-01", "seen_until": "2026-01-01"}, "No row is first seen since 2026-02-01"),
    ],
)
def test_a_time_that_is_none_is_said_and_refused(
    query: dict[str, str], sentence: str, world: World, over_world: Opening
) -> None:
    """It stays in its field, with a sentence, and there is no preview to confirm."""
    app = link(over_world, "repairs", repair="replay", games=CHESS.key, **query)
    assert sentence in texts(app).replace("\\", "")
    app.button(key="preview_repair").click().run()
    assert sentence in warned(app)
    assert not any(part in drawn_alive(app) for part in ("**bold** [", "](", ":red[", "javascript:"))
    assert not [each for each in app.button if str(each.key).startswith("ask_")]


def test_what_a_link_to_repairs_names_that_is_not_here_is_said(world: World, over_world: Opening) -> None:
    """A repair, a reason or a game that there is not is told of, and is not chosen."""
    app = link(over_world, "repairs", repair="burn", games="gone_x1")
    assert "ignored: repair “burn”; games “gone_x1”" in warned(app)
    assert app.button(key="preview_repair").label == "Preview the retry"
    app = link(over_world, "repairs", repair="replay", refused_for="boredom", rows="some")
    assert "rows “some”; refused_for “boredom”" in warned(app)
    assert app.selectbox(key="replay_refused_for").value is None


def test_rows_that_kill_need_a_reason(world: World) -> None:
    """A replay is a click; one of rows that may kill the controller needs a reason."""
    intent = Intent("replay", (f"game:{CHESS.key}",), "ann", parameters={"refused_for": "kills_worker"})
    assert gate.level(intent) == 2
    assert gate.level(Intent("replay", (f"game:{CHESS.key}",), "ann", parameters={"refused_for": None})) == 1


def test_enter_in_a_list_of_games_selects_one() -> None:
    """No list from which people choose games, principals, groups or statuses takes all that a typed text fits."""
    calls = [
        node
        for file in (ROOT / "app").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "st.multiselect"
    ]
    bulk = [ast.unparse(call.args[0]) for call in calls if "select_all=False" not in ast.unparse(call)]
    assert len(calls) > 5
    assert bulk == ["'Findings'"], "a list of findings is made to be taken whole, and names none of them"


def test_links_of_tables_open_in_place() -> None:
    """No table has a column whose links open another tab."""
    opening = [file.name for file in (ROOT / "app").rglob("*.py") if "LinkColumn(" in file.read_text("utf-8")]
    assert opening == []


@pytest.fixture
def went(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """Return where the pages lead: a page that Streamlit runs here knows no other one before it is drawn."""
    places: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(st, "switch_page", lambda page, query_params: places.append((page, query_params)))
    return places


def test_a_key_in_a_table_opens_its_game(
    store: Engine, opening: Opening, went: list[tuple[str, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click opens the game that the clicked cell names, whichever row holds it by now."""
    app = opening("repairs")
    assert list(app.dataframe[0].proto.button_click_widgets) == ["page"]
    column = links.game_column("Key", "repairs", 200)
    monkeypatch.setattr(st, "session_state", {column.key: {"row": 0, "label": KEY["Risk"]}})
    column.on_click(*column.args)
    assert went == [("views/game.py", {"game": KEY["Risk"]})]


@pytest.mark.parametrize(("page", "table"), [("fleet", "fleet"), ("repairs", "repairs"), ("game", "neighbours")])
def test_a_name_below_a_table_opens_its_game(
    store: Engine, opening: Opening, went: list[tuple[str, dict[str, str]]], page: str, table: str
) -> None:
    """A game of the table that is chosen by its name opens in place, and nothing stays chosen behind it."""
    app = opening(page, **({"game": KEY["Ludo"]} if page == "game" else {}))
    app.selectbox(key=f"{table}_open").set_value(KEY["Risk"]).run()
    assert not app.exception
    assert went == [("views/game.py", {"game": KEY["Risk"]})]
    assert app.selectbox(key=f"{table}_open").value is None


def test_the_id_below_a_table_opens_its_operation(
    store: Engine, opening: Opening, went: list[tuple[str, dict[str, str]]]
) -> None:
    """An operation that is chosen among those of the audit log opens in place, by the id that people see."""
    submitted = submit(store, Intent("pause", (f"game:{KEY['Go']}",), "ann", "to look at it"))
    app = opening("audit")
    app.selectbox(key="audit_open").set_value(submitted.operation_id[:8]).run()
    assert went == [("views/operations.py", {"operation": submitted.operation_id[:8]})]
    assert "Pause of Go" in texts(opening("operations", operation=submitted.operation_id[:8]))
