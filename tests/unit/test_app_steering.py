"""The pages that steer: they show a preview, ask once, and act on what was chosen by name."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import Engine, insert, update
from sqlalchemy.exc import SQLAlchemyError
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import PageLink

from app import asking, cards, confirm, looks, services
from app.spreadsheet import as_csv
from pipeline.control import pauses
from pipeline.control.controller import KINDS
from pipeline.control.engine import World, tick
from pipeline.errors import Refused
from pipeline.names import game_key
from pipeline.settings import Paths, Settings
from pipeline.store import audit, decisions, tables
from pipeline.store.drivers import start_driver
from pipeline.store.engine import open_store
from pipeline.store.fleet import read_fleet
from pipeline.store.operations import Operation, Wish, change, listed, operation
from pipeline.store.operations import ask as ask_store
from tests.browser.seed import HOSTILE, Seeded, fleet_of_forty, seed

ROOT = Path(__file__).parents[2]
PAGES = ("groups", "repairs", "operations", "audit")
Opening = Callable[..., AppTest]


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    """Open a page of the app over the test's environment."""
    monkeypatch.setenv("TURNOUT_ENV_DIR", str(tmp_path))
    monkeypatch.chdir(ROOT)
    st.cache_data.clear()
    st.cache_resource.clear()

    def open_page(page: str, **query: str) -> AppTest:
        app = AppTest.from_file(ROOT / "app" / "main.py", default_timeout=30).run()
        app = app.switch_page(f"views/{page}.py")
        app.query_params.update(query)
        return again(app)

    yield open_page
    st.cache_data.clear()
    st.cache_resource.clear()


def again(app: AppTest) -> AppTest:
    """Look again, at what the store holds now."""
    looks.forget()
    app.run()
    assert not app.exception
    return app


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    """Return the store of an environment with four games in two groups, one game of which is parked."""
    games = [Seeded("Chess", "a", {}), Seeded("Go", "a", {}), Seeded("Ludo", "b", {})]
    broken = {"status": "FAILED", "lane": "QUARANTINED", "last_error": "no space left"}
    seed(tmp_path, [*games, Seeded("Risk", "b", broken)], now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    parked = decisions.Decision(parked_at=time.time(), failures=3, failure_class="poison", evidence="bad rows of seq 5")
    decisions.record_failures(engine, {KEY["Risk"]: parked})
    yield engine
    engine.dispose()


KEY = {name: game_key(name) for name in ("Chess", "Go", "Ludo", "Risk")}


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.text, *app.caption))


def links(app: AppTest) -> list[str]:
    return [each.label for each in app.get("page_link") if isinstance(each, PageLink)]


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


# ----------------------------------------------------------------------------------------------------------- the ladder


def wish(kind: str, *targets: str) -> Wish:
    return Wish(kind, targets, "ann")


@pytest.mark.parametrize(
    ("asked", "level", "typed"),
    [
        (wish("pause", "game:x"), 1, None),
        (wish("resume", "game:x"), 1, None),
        (wish("retry", "game:x"), 1, None),
        (wish("move", "game:x"), 2, None),
        (wish("rebuild", "game:x"), 2, None),
        (wish("pause", "game:x", "game:y"), 3, "PAUSE 2"),
        (wish("move", *(f"game:{number}" for number in range(12))), 3, "MOVE 12"),
        (wish("drain", "group:a"), 3, "DRAIN 1"),
        (wish("pause", "group:a"), 3, "PAUSE 1"),
        (wish("move"), 3, "MOVE 0"),
    ],
)
def test_what_disturbs_more_must_be_confirmed_more(asked: Wish, level: int, typed: str | None) -> None:
    """One game reversibly is a click, one game a reason, several games or a group a reason and the words."""
    assert (confirm.level(asked), confirm.words_to_type(asked)) == (level, typed)
    assert (confirm.lacking(asked, "", "") is None) == (level == 1)
    assert (confirm.lacking(asked, " \n", typed or "") is None) == (level == 1)
    assert confirm.lacking(asked, "too busy", typed or "") is None
    assert (confirm.lacking(asked, "too busy", "move 12") is None) == (level < 3)


# ------------------------------------------------------------------------------------------------- empty, full, hostile


@pytest.mark.parametrize("page", PAGES)
def test_each_page_draws_an_empty_store(page: str, tmp_path: Path, opening: Opening) -> None:
    """Without games, groups or operations every page says that there is nothing, and which page one is on."""
    seed(tmp_path, [], now=time.time(), heartbeat_ages={})
    app = opening(page)
    sentence = {
        "groups": "No cluster group yet",
        "repairs": "Nothing to repair",
        "operations": "No operation is open",
        "audit": "Who did what",
    }
    assert sentence[page] in texts(app)
    assert links(app)[:5] == ["Fleet", "Groups", "Repairs", "Operations (0)", "Audit"]


@pytest.mark.parametrize("page", PAGES)
def test_each_page_draws_a_full_and_hostile_store(page: str, tmp_path: Path, opening: Opening) -> None:
    """Names, persons, reasons and errors that look like Markdown or HTML reach every page as plain text only."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    keys = [game_key(name) for name in HOSTILE]
    for key in keys:
        failed = decisions.Decision(failures=2, failure_class="poison", evidence=HOSTILE[1], failed_at=1.0)
        decisions.record_failures(engine, {key: failed})
    begun = [ask_store(engine, Wish("pause", (f"game:{key}",), HOSTILE[0], HOSTILE[1])) for key in keys]
    change(engine, change(engine, begun[0], "running"), "needs_human", HOSTILE[0])
    change(engine, begun[1], "failed", HOSTILE[1])
    app = opening(page)
    if page == "groups":
        app.multiselect(key="move_games").set_value(keys)
        app.selectbox(key="move_to").set_value("a")
        app.button(key="preview_move").click().run()
        assert "to move" in texts(app)
    for _ in range(2):
        drawn = drawn_alive(app)
        assert not any(part in drawn for part in ("<script", "**bold", "](", ":red[", "javascript:"))
        assert "\u202e" not in texts(app)
        assert not app.exception
        app = opening("operations", operation=begun[0].operation_id)
    assert "▲ needs a person" in texts(app)
    assert "1 needs a person" in "".join(element.value for element in app.markdown)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_keeps_what_it_had_when_the_store_goes_away(page: str, store: Engine, opening: Opening) -> None:
    """When reading fails the page says why, keeps its data, and does not pretend to know of operations."""
    ask_store(store, pauses.wish("pause", {KEY["Chess"]: "running"}, "ann", "why not"))
    app = opening(page)
    before = [str(frame.value) for frame in app.dataframe]
    with store.begin() as connection:
        for table in (tables.operation_targets, tables.operation_steps, tables.operations, tables.audit, tables.games):
            table.drop(connection)
    st.cache_data.clear()
    app.run()
    assert not app.exception
    assert "no such table" in app.error[0].value
    assert "the last that could be read" in app.error[0].value
    assert [str(frame.value) for frame in app.dataframe] == before
    assert "Operations (–)" in links(app)


# -------------------------------------------------------------------------------------------------------------- actions


def test_a_move_is_asked_for_with_a_reason_and_the_words(store: Engine, opening: Opening) -> None:
    """Nothing is written before reason and words are there; then it is one operation, which is not called done."""
    app = choose(opening("groups"), ["Chess", "Go"], "b")
    app.button(key="preview_move").click().run()
    assert f"Chess · {KEY['Chess']}: a → b" in texts(app)
    assert listed(store) == []
    fill(app, reason="a is busy").button(key="ask_groups_move").click().run()
    assert "Type MOVE 2 to confirm" in app.warning[0].value.replace("\\", "")
    fill(app, reason="a is busy", typed="MOVE 2").button(key="ask_groups_move").click().run()
    (asked,) = listed(store)
    assert (asked.kind, asked.actor, asked.reason) == ("move", services.actor(), "a is busy")
    assert set(asked.targets) == {f"game:{KEY['Chess']}", f"game:{KEY['Go']}"}
    assert f"Asked for: operation {asked.operation_id[:8]}" in links(app)
    assert "○ planned" in texts(app)
    assert "succeeded" not in texts(app)
    assert "No controller runs" in app.warning[0].value


def test_a_second_click_is_the_same_operation(store: Engine, opening: Opening) -> None:
    """A click whose first run was killed before it could note what it did asks again under the preview's key."""
    app = opening("game", game=KEY["Chess"])
    app.button(key="act_pause").click().run()
    place = f"game_{KEY['Chess']}"
    kept = app.session_state[f"offer_{place}"]
    fill(app, reason="its schema").button(key=f"ask_{place}").click().run()
    (first,) = listed(store)
    app.session_state[f"offer_{place}"] = kept
    app.run()
    fill(app, reason="its schema").button(key=f"ask_{place}").click().run()
    assert [each.operation_id for each in listed(store)] == [first.operation_id]
    assert app.session_state[f"offer_{place}"].asked == first.operation_id


def test_another_preview_is_another_wish(store: Engine, opening: Opening) -> None:
    """A key is a preview's: looking again makes a new one, whose fields are empty, and which the open one refuses."""
    app = opening("game", game=KEY["Chess"])
    app.button(key="act_pause").click().run()
    fill(app, reason="first").button(key=f"ask_game_{KEY['Chess']}").click().run()
    confirm_key = f"offer_game_{KEY['Chess']}"
    first = app.session_state[confirm_key].preview
    environment = services.open_environment([], {"TURNOUT_ENV_DIR": str(Path(str(store.url.database)).parent)})
    second = asking.preview_decision(environment, "pause", [KEY["Chess"]])
    assert second.wish.idempotency_key != first.wish.idempotency_key
    with pytest.raises(Refused, match="1 of 1 targets belong to another operation"):
        asking.ask(environment, second.wish)


def test_a_table_that_is_sorted_anew_does_not_change_the_target(store: Engine, opening: Opening) -> None:
    """Between choosing and asking the worst game becomes the best; the game that was chosen by name is acted on."""
    decisions.record_failures(store, {KEY["Go"]: decisions.Decision(failures=1, failed_at=1.0)})
    app = choose(opening("repairs"), ["Risk"], box="repair")
    assert app.dataframe[0].value["game"].iloc[0] == "Risk"
    values = {"status": "STALLED", "lane": "RUN", "backlog_age_seconds": 0.0}
    with store.begin() as connection:
        mine = tables.streams.c.game_key == KEY["Risk"]
        connection.execute(update(tables.streams).where(mine).values(values))
        mine = tables.streams.c.game_key == KEY["Go"]
        connection.execute(update(tables.streams).where(mine).values(status="CRASH_LOOP"))
    again(app)
    assert app.dataframe[0].value["game"].iloc[0] == "Go"
    app.button(key="preview_retry").click().run()
    app.button(key="ask_repairs_retry").click().run()
    (asked,) = listed(store)
    assert (asked.kind, asked.targets) == ("retry", (f"game:{KEY['Risk']}",))


def test_a_stale_preview_is_not_done_and_the_page_says_so(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """What changed between look and confirmation is refused by the controller, and its sentence is on the page."""
    start_driver(store, "group", "a", None)
    app = opening("game", game=KEY["Ludo"])
    app.button(key="act_move").click().run()
    assert "Choose what to move, and the group" in app.warning[0].value.replace("\\", "")
    app.selectbox(key=f"to_{KEY['Ludo']}").set_value("a")
    app.button(key="act_move").click().run()
    with store.begin() as connection:
        connection.execute(update(tables.games).where(tables.games.c.game_key == KEY["Ludo"]).values(epoch=9))
    fill(app, reason="b is busy").button(key=f"ask_game_{KEY['Ludo']}").click().run()
    tick(World(Settings(), store, Paths(tmp_path)), KINDS)
    again(app)
    assert "✕ failed: Nothing was done: it has changed since you looked" in texts(app)


@pytest.mark.parametrize(
    ("page", "button", "sentence"),
    [
        ("groups", "preview_move", "Choose what to move, and the group"),
        ("repairs", "preview_retry", "Nothing to retry: no game is chosen"),
    ],
)
def test_a_preview_of_nothing_is_refused(
    page: str, button: str, sentence: str, store: Engine, opening: Opening
) -> None:
    """Without a choice there is no preview to confirm, only a sentence that says what to choose."""
    app = opening(page)
    app.button(key=button).click().run()
    assert sentence in app.warning[0].value.replace("\\", "")
    assert not [each for each in app.button if str(each.key).startswith("ask_")]


def test_a_repair_that_would_do_nothing_is_refused_with_its_reason(store: Engine, opening: Opening) -> None:
    """A stream in trouble that does not wait for a retry says so, in the table and to whoever asks."""
    with store.begin() as connection:
        mine = tables.streams.c.game_key == KEY["Go"]
        connection.execute(update(tables.streams).where(mine).values(status="STALLED", last_error="stuck"))
    app = choose(opening("repairs"), ["Go"], box="repair")
    table = app.dataframe[0].value.set_index("game")
    assert table.loc["Go", "repairable"] == "✕ it waits for nothing"
    assert table.loc["Risk", "repairable"] == "✓ yes"
    assert (table.loc["Risk", "class"], table.loc["Risk", "evidence"]) == (
        "its rows, schema or table",
        "bad rows of seq 5",
    )
    app.button(key="preview_retry").click().run()
    assert "is not parked and does not wait" in app.warning[0].value.replace("\\", "")
    assert listed(store) == []


def test_a_locked_store_refuses_an_action_and_the_page_stands(store: Engine, opening: Opening) -> None:
    """While somebody holds the store for writing an action is refused with a sentence, and done when asked again."""
    app = opening("game", game=KEY["Chess"])
    app.button(key="act_pause").click().run()
    ask = app.button(key=f"ask_game_{KEY['Chess']}")
    with store.connect() as holder:
        holder.exec_driver_sql("BEGIN IMMEDIATE")
        ask.click().run()
        holder.rollback()
    assert not app.exception
    assert "did not answer: database is locked" in app.warning[0].value.replace("\\", "")
    assert listed(store) == []
    app.button(key=f"ask_game_{KEY['Chess']}").click().run()
    assert [each.kind for each in listed(store)] == ["pause"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_while_somebody_writes(page: str, store: Engine, opening: Opening) -> None:
    """Looking never waits for a writer, not even at the first look of a dashboard that has just started."""
    with store.connect() as holder:
        holder.exec_driver_sql("BEGIN IMMEDIATE")
        app = opening(page)
        holder.rollback()
    assert not app.error


def test_a_page_does_not_wait_long_for_a_lock(engine: Engine) -> None:
    """The dashboard's connections give up after seconds, on SQLite and on PostgreSQL; drivers wait longer."""
    ask_store(engine, wish("pause", "game:x"))
    services.impatient(engine)
    with engine.connect() as holder:
        if engine.dialect.name == "sqlite":
            holder.exec_driver_sql("BEGIN IMMEDIATE")
        holder.execute(update(tables.audit_head).values(head_id=0))
        begun = time.monotonic()
        with pytest.raises(SQLAlchemyError):
            ask_store(engine, wish("pause", "game:y"))
        assert time.monotonic() - begun < 15
        holder.rollback()
    ask_store(engine, wish("pause", "game:y"))


# ------------------------------------------------------------------------------------------------ an operation's page


def stuck(store: Engine) -> Operation:
    begun = ask_store(store, Wish("pause", (f"game:{KEY['Chess']}",), "ann", "why", {"games": [KEY["Chess"]]}))
    return change(store, change(store, begun, "running"), "needs_human", "Nobody tells of it.")


def test_those_that_need_a_person_come_first(store: Engine, opening: Opening) -> None:
    """The page begins with what waits for a person, in words, and the header says so in amber on every page."""
    first = stuck(store)
    ended = ask_store(store, wish("pause", f"game:{KEY['Go']}"))
    change(store, ended, "failed", "Nothing was done.")
    app = opening("operations")
    assert "1 operation needs a person" in texts(app)
    assert "▲ needs a person" in texts(app)
    assert "Nobody tells of it." in texts(app)
    (row,) = app.dataframe[0].value.to_dict("records")
    assert (row["state"], row["targets"], row["reason"]) == ("✕ failed", "Go", "–")
    assert row["page"] == f"operations?operation={ended.operation_id}"
    badges = "".join(element.value for element in opening("groups").markdown)
    assert ":orange-badge[:material/person_alert: 1 needs a person]" in badges
    assert first.is_open


def test_an_operation_is_resumed_once(store: Engine, opening: Opening) -> None:
    """Resume lets it go on; what was drawn before it did does not let it go on a second time."""
    seen = stuck(store)
    app = opening("operations", operation=seen.operation_id[:8])
    button = next(each for each in app.button if each.label == "Resume")
    button.click().run()
    resumed = operation(store, seen.operation_id)
    assert resumed.state == "running"
    change(store, resumed, "needs_human", "Again.")
    environment = services.open_environment([], {"TURNOUT_ENV_DIR": str(Path(str(store.url.database)).parent)})
    with pytest.raises(Refused, match="Somebody else has changed this operation"):
        asking.resume(environment, seen)
    assert operation(store, seen.operation_id).state == "needs_human"


def test_an_operation_is_closed_with_a_reason(store: Engine, opening: Opening) -> None:
    """Nobody closes without saying what was found; then the outcome names the person and the finding."""
    seen = stuck(store)
    app = opening("operations", operation=seen.operation_id)
    close = next(each for each in app.button if each.label == "Close it")
    close.click().run()
    assert "A reason is needed" in app.warning[0].value
    assert operation(store, seen.operation_id).is_open
    next(each for each in app.text_input if str(each.key).startswith("found_")).set_value("its driver was gone")
    next(each for each in app.button if each.label == "Close it").click().run()
    closed = operation(store, seen.operation_id)
    assert (closed.state, closed.outcome) == ("failed", f"Closed by {services.actor()}: its driver was gone")
    assert not app.exception


def test_an_undo_shows_what_it_does_before_it_is_asked(store: Engine, opening: Opening) -> None:
    """Undo is a preview and a confirmation like any other, and says why where it cannot be."""
    begun = ask_store(store, pauses.wish("pause", {KEY["Chess"]: "running"}, "ann", ""))
    decisions.ask(store, KEY["Chess"], "ann", desired="paused")
    done = change(store, begun, "succeeded", "Paused.")
    app = opening("operations", operation=done.operation_id)
    app.button(key="undo").click().run()
    assert "1 to resume. No other stream is touched." in texts(app)
    assert len(listed(store)) == 1
    app.button(key=f"ask_undo_{done.operation_id}").click().run()
    assert [(each.kind, each.undoes) for each in listed(store, only_open=True)] == [("resume", done.operation_id)]
    failed = change(store, ask_store(store, wish("move", f"game:{KEY['Go']}")), "failed", "no")
    app = opening("operations", operation=failed.operation_id)
    assert app.button(key="undo").disabled
    assert "only one that has succeeded can be undone" in texts(app)


def test_an_unknown_operation_says_so(store: Engine, opening: Opening) -> None:
    """A wrong link is a sentence and a way back, not an empty page."""
    app = opening("operations", operation="nothing")
    assert "There is no operation" in app.error[0].value.replace("\\", "")
    assert "All operations" in links(app)


# ------------------------------------------------------------------------------------------------ groups, cards, audit


def test_a_group_shows_what_is_wanted_and_a_dash_for_what_is_not_known(store: Engine, opening: Opening) -> None:
    """Capacity that is not limited, a driver that never told and a group nobody registered are dashes, never 0."""
    with store.begin() as connection:
        values = {"name": "idle", "created_at": 1.0, "capacity_cores": 2.5, "priority": "high", "desired": "drained"}
        connection.execute(insert(tables.groups).values(values))
    app = opening("groups")
    assert "1 of 3 groups without a living driver: idle" in texts(app)
    table = app.dataframe[0].value.set_index("group")
    assert list(table.loc["idle", ["driver", "heartbeat", "games", "how"]]) == ["○ never started", "–", "0", "–"]
    assert list(table.loc["idle", ["desired", "capacity", "priority"]]) == ["drained", "2.5 cores", "high"]
    assert list(table.loc["b", ["driver", "games", "how", "capacity"]]) == ["● running", "2", "✕ 1 failed", "–"]
    assert table.loc["a", "how"] == "● all well"


def test_cards_say_why_not_and_what_instead(store: Engine) -> None:
    """A card that cannot be has a reason and an alternative, one that can has neither reason."""
    fleet = read_fleet(store)

    def made(name: str, busy: dict[str, Operation] | None = None) -> dict[str, cards.Card]:
        row = fleet.row(KEY[name])
        assert row is not None
        look = looks.Steering(fleet, {}, decisions.decided(store), {}, busy or {}, fleet.read_at)
        return {card.name: card for card in cards.cards(row, look)}

    assert {name for name, card in made("Chess").items() if card.possible} == {"pause", "move"}
    assert {name for name, card in made("Risk").items() if card.possible} == {"pause", "retry", "move"}
    decisions.ask(store, KEY["Go"], "ann", desired="paused")
    assert {name for name, card in made("Go").items() if card.possible} == {"resume", "move"}
    busy = {f"game:{KEY['Chess']}": ask_store(store, wish("move", f"game:{KEY['Chess']}"))}
    assert all("a move, is about it now" in str(card.why_not) for card in made("Chess", busy).values())
    for name in KEY:
        for card in made(name).values():
            assert (card.why_not is None) == card.possible
            assert card.possible or card.alternative


def test_the_audit_log_is_filtered_exported_and_verified(store: Engine, opening: Opening) -> None:
    """Filters are in the URL, a file holds no formula, and what was changed by hand is told on asking."""
    ask_store(store, Wish("pause", (f"game:{KEY['Chess']}",), "=cmd()", "why"))
    ask_store(store, Wish("move", (f"game:{KEY['Go']}",), "bob", "busy"))
    assert list(opening("audit").dataframe[0].value["actor"]) == ["bob", "=cmd()"]
    assert list(opening("audit", who="BOB").dataframe[0].value["action"]) == ["move"]
    assert list(opening("audit", did="pau").dataframe[0].value["targets"]) == ["Chess"]
    assert list(opening("audit", what="chess").dataframe[0].value["actor"]) == ["=cmd()"]
    assert "No entry matches" in opening("audit", since="2020-01-01", until="2020-01-02").info[0].value
    app = opening("audit")
    app.button(key="verify").click().run()
    assert f"newest hash {audit.verify(store).head}" in texts(app)
    assert "✓ Intact: 2 entries" in texts(app)
    with store.begin() as connection:
        connection.execute(update(tables.audit).where(tables.audit.c.actor == "bob").values(actor="eve"))
    app.button(key="verify_again").click().run()
    assert "✕ NOT intact" in texts(app)
    assert "is not what was written" in texts(app)


def test_no_cell_of_the_export_is_a_formula(store: Engine) -> None:
    """What a spreadsheet would run is quoted in the file, whoever chose the name."""
    ask_store(store, Wish("pause", (f"game:{KEY['Chess']}",), "=cmd()", "why"))
    newest = tuple(audit.entries(store))
    assert ",'=cmd()," in as_csv(looks.Log({}, newest, 1, 0.0))
