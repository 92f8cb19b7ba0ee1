"""The pages that steer: they show a preview, ask once, and act on what was chosen by name."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.exc import SQLAlchemyError

from app.components import confirm
from app.components.audit_csv import as_csv
from app.state import control_queries, previews, services
from pipeline.api import environment as environments
from pipeline.api.audit import AuditedAct
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control import gate
from pipeline.control.controller import KINDS
from pipeline.control.operations import pauses
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import resume, tick
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit, stream_control
from pipeline.store.assignments import read_assignments
from pipeline.store.audit import AccessChange, Entry, kept
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.operations import Intent, Operation, change, list_operations, operation
from pipeline.store.operations import submit as submit_store
from pipeline.store.processes.drivers import start_driver
from tests.browser.seed import HOSTILE, fleet_of_forty, seed
from tests.unit.app.app_world import (
    KEY,
    Opening,
    again,
    choose,
    drawn_alive,
    fill,
    forget_readings,
    inbox_label,
    links,
    submit,
    texts,
)

PAGES = ("groups", "games", "schemas", "repairs", "access", "operations", "audit", "books")


# ----------------------------------------------------------------------------------------------------------- the ladder


def intent(kind: str, *targets: str) -> Intent:
    return Intent(kind, targets, "ann")


DRAINS = {"desired": {"a": ["running", "drained"]}}
UNDRAINS = {"desired": {"a": ["drained", "running"]}}


@pytest.mark.parametrize(
    ("submitted", "level", "games", "typed"),
    [
        *((intent(kind, "game:x"), 1, 1, None) for kind in ("pause", "resume", "retry", "replay", "restore")),
        *((intent(kind, "game:x"), 2, 1, None) for kind in ("move", "rebuild", "retire", "anything new")),
        (intent("pause", "game:x", "game:y"), 3, 2, "PAUSE 2"),
        (intent("move", *(f"game:{number}" for number in range(12))), 3, 12, "MOVE 12"),
        (intent("restart", "group:a"), 3, 12, "RESTART 12"),
        (intent("stop", "group:a", "group:b"), 3, 2, "STOP 2"),
        (intent("start", "group:a"), 3, 0, "START 0"),
        (intent("move"), 3, 0, "MOVE 0"),
        (replace(intent("move", "game:x", "group:a"), parameters=DRAINS), 3, 1, "DRAIN 1"),
        (replace(intent("move", "game:x", "group:a"), parameters=UNDRAINS), 3, 1, "MOVE 1"),
    ],
)
def test_what_disturbs_more_must_be_confirmed_more(
    submitted: Intent, level: int, games: int, typed: str | None
) -> None:
    """One game gently is a click, one game a reason, several or a group a reason and words that count the games."""
    assert (gate.level(submitted), confirm.confirmation_phrase(submitted, games)) == (level, typed)
    assert (confirm.validation_error(submitted, games, "", "") is None) == (level == 1)
    assert (confirm.validation_error(submitted, games, " \n", typed or "") is None) == (level == 1)
    assert confirm.validation_error(submitted, games, "too busy", typed or "") is None
    assert (confirm.validation_error(submitted, games, "too busy", "move 12") is None) == (level < 3)


def test_a_request_touches_all_games_of_the_groups_it_is_about(store: Engine) -> None:
    """Games are counted once, whether they are named or stand in a group that is; a group without any counts none."""
    there = read_assignments(store)
    assert previews.touched(intent("restart", "group:a"), there) == 2
    assert previews.touched(intent("restart", "group:a", "group:b", "group:empty"), there) == 4
    assert previews.touched(intent("move", f"game:{KEY['Chess']}", "group:a"), there) == 2
    assert previews.touched(intent("move", f"game:{KEY['Chess']}", "game:gone"), there) == 2


# ------------------------------------------------------------------------------------------------- empty, full, hostile


@pytest.mark.parametrize("page", PAGES)
def test_each_page_draws_an_empty_store(page: str, tmp_path: Path, opening: Opening) -> None:
    """Without games, groups or operations every page says that there is nothing."""
    seed(tmp_path, [], now=time.time(), heartbeat_ages={})
    app = opening(page)
    sentence = {
        "groups": "No cluster group yet",
        "games": "No name waits for a decision",
        "schemas": "No schema is registered yet",
        "repairs": "No stream needs a repair",
        "access": "The catalog was never read",
        "operations": "No operation is open",
        "audit": "Audit log",
        "books": "No day is closed",
    }
    assert sentence[page] in texts(app)


@pytest.mark.parametrize("page", PAGES)
def test_each_page_draws_a_full_and_hostile_store(page: str, tmp_path: Path, opening: Opening) -> None:
    """Names, persons, reasons and errors that look like Markdown or HTML reach every page as plain text only."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    keys = [game_key(name) for name in HOSTILE]
    for key in keys:
        failed = stream_control.StreamControl(failures=2, failure_class="poison", evidence=HOSTILE[1], failed_at=1.0)
        stream_control.record_failures(engine, {key: failed})
    begun = [submit_store(engine, Intent("pause", (f"game:{key}",), HOSTILE[0], HOSTILE[1])) for key in keys]
    change(engine, change(engine, begun[0], OperationState.RUNNING), OperationState.NEEDS_HUMAN, HOSTILE[0])
    change(engine, begun[1], OperationState.FAILED, HOSTILE[1])
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
    assert inbox_label(app) == "Inbox :orange-badge[1]"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_keeps_what_it_had_when_the_store_goes_away(page: str, store: Engine, opening: Opening) -> None:
    """When reading fails the page says why, keeps its data, and does not pretend to know of operations."""
    submit_store(store, pauses.intent("pause", {KEY["Chess"]: "running"}, "ann", "why not"))
    app = opening(page)
    before = [str(frame.value) for frame in app.dataframe]
    with store.begin() as connection:
        for table in (tables.operation_targets, tables.operation_steps, tables.operations, tables.audit, tables.games):
            table.drop(connection)
    forget_readings()
    services.forget()
    app.run()
    assert not app.exception
    assert "no such table" in app.error[0].value
    assert "The page shows the last reading." in app.error[0].value
    assert [str(frame.value) for frame in app.dataframe] == before
    assert inbox_label(app) == "Inbox ?"


def test_pages_do_not_make_a_control_store_that_was_lost(tmp_path: Path) -> None:
    """An empty one would be healthy: a page begins no environment, wherever its store is."""
    store = tmp_path / "elsewhere.db"
    lost: list[dict[str, str]] = [{}, {"TURNOUT_STORE__URL": f"sqlite:///{store}"}]
    for variables in lost:
        with pytest.raises(Refused, match="The control store is missing"):
            services.engine(services.open_environment(["--env-dir", str(tmp_path)], variables))
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------------------- actions


def test_a_move_is_asked_for_with_a_reason_and_the_words(store: Engine, opening: Opening) -> None:
    """Nothing is written before reason and words are there; then it is one operation, which is not called done."""
    app = choose(opening("groups"), ["Chess", "Go"], "b")
    app.button(key="preview_move").click().run()
    shown = texts(app)
    assert re.search(r"- Chess +group a\n *\+ Chess +group b, ca", shown)
    assert "✓ no other operation is about them" in re.sub(r" +", " ", shown)
    assert "△ no controller runs, so it waits" in re.sub(r" +", " ", shown)
    assert [each.label for each in app.button if each.key == "ask_groups_move"] == ["Move 2 games"]
    assert list_operations(store) == []
    fill(app, reason="a is busy").button(key="ask_groups_move").click().run()
    assert "Type MOVE 2 to confirm" in app.warning[-1].value.replace("\\", "")
    fill(app, reason="a is busy", typed="MOVE 2").button(key="ask_groups_move").click().run()
    (submitted,) = list_operations(store)
    assert (submitted.kind, submitted.actor, submitted.reason) == ("move", services.actor(), "a is busy")
    assert set(submitted.targets) == {f"game:{KEY['Chess']}", f"game:{KEY['Go']}"}
    assert f"Submitted: operation {submitted.operation_id[:8]}" in links(app)
    assert "○ planned" in texts(app)
    assert "succeeded" not in texts(app)
    assert "No controller runs" in app.warning[0].value


@pytest.mark.proves("G116")
def test_a_second_click_is_the_same_operation(store: Engine, opening: Opening) -> None:
    """A click whose first run was killed before it could note what it did asks again under the preview's key."""
    app = opening("game", game=KEY["Chess"])
    app.button(key="act_pause").click().run()
    place = f"game_{KEY['Chess']}"
    kept = app.session_state[f"offer_{place}"]
    fill(app, reason="its schema").button(key=f"ask_{place}").click().run()
    (first,) = list_operations(store)
    app.session_state[f"offer_{place}"] = kept
    app.run()
    fill(app, reason="its schema").button(key=f"ask_{place}").click().run()
    assert [each.operation_id for each in list_operations(store)] == [first.operation_id]
    assert app.session_state[f"offer_{place}"].operation_id == first.operation_id


def test_another_preview_is_another_request(store: Engine, opening: Opening) -> None:
    """A key is a preview's: looking again makes a new one, whose fields are empty, and which the open one refuses."""
    app = opening("game", game=KEY["Chess"])
    app.button(key="act_pause").click().run()
    fill(app, reason="first").button(key=f"ask_game_{KEY['Chess']}").click().run()
    confirm_key = f"offer_game_{KEY['Chess']}"
    first = app.session_state[confirm_key].preview
    environment = services.open_environment([], {"TURNOUT_ENV_DIR": str(Path(str(store.url.database)).parent)})
    second = previews.preview_named(environment, "pause", [KEY["Chess"]])
    assert second.intent.idempotency_key != first.intent.idempotency_key
    with pytest.raises(Refused, match="1 of 1 targets belong to another open operation"):
        submit(environment, second.intent)


@pytest.mark.proves("G116")
def test_a_table_that_is_sorted_anew_does_not_change_the_target(store: Engine, opening: Opening) -> None:
    """Between choosing and asking the worst game becomes the best; the game that was chosen by name is acted on."""
    stream_control.record_failures(store, {KEY["Go"]: stream_control.StreamControl(failures=1, failed_at=1.0)})
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
    app.button(key="preview_repair").click().run()
    app.button(key="ask_repairs_repair").click().run()
    (submitted,) = list_operations(store)
    assert (submitted.kind, submitted.targets) == ("retry", (f"game:{KEY['Risk']}",))


def test_a_stale_preview_is_not_done_and_the_page_says_so(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """The controller refuses a plan if anything changed since the look, and its sentence is on the page."""
    start_driver(store, "group", "a", None)
    app = opening("game", game=KEY["Ludo"])
    app.button(key="act_move").click().run()
    assert "Choose the games to move and their new group" in app.warning[0].value.replace("\\", "")
    app.selectbox(key=f"to_{KEY['Ludo']}").set_value("a")
    app.button(key="act_move").click().run()
    with store.begin() as connection:
        connection.execute(update(tables.games).where(tables.games.c.game_key == KEY["Ludo"]).values(epoch=9))
    fill(app, reason="b is busy").button(key=f"ask_game_{KEY['Ludo']}").click().run()
    tick(ControlContext(Settings(), store, Paths(tmp_path)), KINDS)
    again(app)
    assert "✗ failed: Nothing was done: it has changed since you looked" in texts(app)


@pytest.mark.parametrize(
    ("page", "button", "sentence"),
    [
        ("groups", "preview_move", "Choose the games to move and their new group"),
        ("repairs", "preview_repair", "Nothing to retry: no game is chosen"),
    ],
)
def test_a_preview_of_nothing_is_refused(
    page: str, button: str, sentence: str, store: Engine, opening: Opening
) -> None:
    """Without a choice there is no preview to confirm, only a sentence that says what to choose."""
    app = opening(page)
    app.button(key=button).click().run()
    assert sentence in app.warning[-1].value.replace("\\", "")
    assert not [each for each in app.button if str(each.key).startswith("ask_")]


def test_a_repair_that_would_do_nothing_is_refused_with_its_reason(store: Engine, opening: Opening) -> None:
    """A stream in trouble that does not wait for a retry says so, in the table and to whoever asks."""
    with store.begin() as connection:
        mine = tables.streams.c.game_key == KEY["Go"]
        connection.execute(update(tables.streams).where(mine).values(status="STALLED", last_error="stuck"))
    app = choose(opening("repairs"), ["Go"], box="repair")
    table = app.dataframe[0].value.set_index("game")
    assert table.loc["Go", "possible"] == "✓ replay, rebuild"
    assert table.loc["Risk", "possible"] == "✓ retry, replay, rebuild"
    assert (table.loc["Risk", "class"], table.loc["Risk", "evidence"]) == (
        "its rows, schema or table",
        "bad rows of seq 5",
    )
    app.button(key="preview_repair").click().run()
    assert "Nothing to retry" in app.warning[0].value
    assert f"Go · {KEY['Go']}: There is no failure to try again after, and its lane is RUN." in texts(app)
    assert list_operations(store) == []


def test_a_locked_store_refuses_an_action_and_the_page_stands(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody holds the store for writing an action is refused with a sentence, and done when asked again."""
    monkeypatch.setattr(environments, "_PATIENCE_MS", 300)
    app = opening("game", game=KEY["Chess"])
    app.button(key="act_pause").click().run()
    button = app.button(key=f"ask_game_{KEY['Chess']}")
    with store.connect() as holder:
        holder.exec_driver_sql("BEGIN IMMEDIATE")
        button.click().run()
        holder.rollback()
    assert not app.exception
    assert "did not answer: database is locked" in app.warning[0].value.replace("\\", "")
    assert list_operations(store) == []
    app.button(key=f"ask_game_{KEY['Chess']}").click().run()
    assert [each.kind for each in list_operations(store)] == ["pause"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_while_somebody_writes(page: str, store: Engine, opening: Opening) -> None:
    """Looking never waits for a writer, not even at the first look of a dashboard that has just started."""
    with store.connect() as holder:
        holder.exec_driver_sql("BEGIN IMMEDIATE")
        app = opening(page)
        holder.rollback()
    assert not app.error


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_a_page_does_not_wait_long_for_a_lock(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard's connections give up after seconds, on SQLite and on PostgreSQL; drivers wait longer."""
    monkeypatch.setattr(environments, "_PATIENCE_MS", 300)
    submit_store(engine, intent("pause", "game:x"))
    environments.make_impatient(engine)
    with engine.connect() as holder:
        if engine.dialect.name == "sqlite":
            holder.exec_driver_sql("BEGIN IMMEDIATE")
        holder.execute(update(tables.audit_head).values(head_id=0))
        begun = time.monotonic()
        with pytest.raises(SQLAlchemyError):
            submit_store(engine, intent("pause", "game:y"))
        assert time.monotonic() - begun < 5  # a driver's connection waits for half a minute
        holder.rollback()
    submit_store(engine, intent("pause", "game:y"))


# ------------------------------------------------------------------------------------------------ an operation's page


def stuck(store: Engine) -> Operation:
    begun = submit_store(store, Intent("pause", (f"game:{KEY['Chess']}",), "ann", "why", {"games": [KEY["Chess"]]}))
    return change(
        store, change(store, begun, OperationState.RUNNING), OperationState.NEEDS_HUMAN, "Nobody tells of it."
    )


def test_those_that_need_a_person_come_first(store: Engine, opening: Opening) -> None:
    """The page begins with what waits for a person, in words, and the inbox of every page counts it."""
    first = stuck(store)
    ended = submit_store(store, intent("pause", f"game:{KEY['Go']}"))
    change(store, ended, OperationState.FAILED, "Nothing was done.")
    app = opening("operations")
    assert "1 operation needs a person" in texts(app)
    assert "▲ needs a person" in texts(app)
    assert "Nobody tells of it." in texts(app)
    (row,) = app.dataframe[0].value.to_dict("records")
    assert (row["state"], row["targets"], row["reason"]) == (["✗ failed"], "Go", "–")
    assert row["page"] == ended.operation_id[:8]
    assert inbox_label(opening("groups")) == "Inbox :orange-badge[1]"
    assert first.is_open


def test_an_operation_is_resumed_once(store: Engine, opening: Opening) -> None:
    """Resume lets it go on; what was drawn before it did does not let it go on a second time."""
    seen = stuck(store)
    app = opening("operations", operation=seen.operation_id[:8])
    button = next(each for each in app.button if each.label == "Resume")
    button.click().run()
    resumed = operation(store, seen.operation_id)
    assert resumed.state == "running"
    change(store, resumed, OperationState.NEEDS_HUMAN, "Again.")
    environment = services.open_environment([], {"TURNOUT_ENV_DIR": str(Path(str(store.url.database)).parent)})
    with pytest.raises(Refused, match="This operation was changed after you opened it"):
        previews.resume(environment, seen)
    assert operation(store, seen.operation_id).state == "needs_human"


def test_an_operation_is_closed_with_a_reason(store: Engine, opening: Opening) -> None:
    """Nobody closes without saying what was found; then the outcome names the person and the finding."""
    seen = stuck(store)
    app = opening("operations", operation=seen.operation_id)
    close = next(each for each in app.button if each.label == "Close it")
    close.click().run()
    assert "Enter a reason" in app.warning[0].value
    assert operation(store, seen.operation_id).is_open
    next(each for each in app.text_input if str(each.key).startswith("found_")).set_value("its driver was gone")
    next(each for each in app.button if each.label == "Close it").click().run()
    closed = operation(store, seen.operation_id)
    assert (closed.state, closed.outcome) == ("failed", f"Closed by {services.actor()}: its driver was gone")
    assert not app.exception


def test_an_operation_is_cancelled_with_a_reason(store: Engine, opening: Opening) -> None:
    """Nobody cancels without saying why; then it has ended, and its page says by whom."""
    seen = submit_store(store, Intent("pause", (f"game:{KEY['Chess']}",), "ann"))
    app = opening("operations", operation=seen.operation_id)
    next(each for each in app.button if each.label == "Cancel operation").click().run()
    assert "Enter a reason" in app.warning[-1].value
    assert operation(store, seen.operation_id).state == "planned"
    next(each for each in app.text_input if str(each.key).startswith("cancelled_")).set_value("the wrong game")
    next(each for each in app.button if each.label == "Cancel operation").click().run()
    ended = operation(store, seen.operation_id)
    assert ended.outcome == f"Cancelled by {services.actor()}: the wrong game. Nothing was done."
    assert "– cancelled" in texts(app)
    assert not app.exception


def test_an_undo_shows_what_it_does_before_it_is_asked(store: Engine, opening: Opening) -> None:
    """Undo is a preview and a confirmation like any other, and says why where it cannot be."""
    begun = submit_store(store, pauses.intent("pause", {KEY["Chess"]: "running"}, "ann", ""))
    stream_control.submit_control(store, KEY["Chess"], "ann", desired="paused")
    done = change(store, begun, OperationState.SUCCEEDED, "Paused.")
    app = opening("operations", operation=done.operation_id)
    app.button(key="undo").click().run()
    assert "1 to resume. No other stream is touched." in texts(app)
    assert len(list_operations(store)) == 1
    app.button(key=f"ask_undo_{done.operation_id}").click().run()
    assert [(each.kind, each.undoes) for each in list_operations(store, only_open=True)] == [
        ("resume", done.operation_id)
    ]
    failed = change(store, submit_store(store, intent("move", f"game:{KEY['Go']}")), OperationState.FAILED, "no")
    app = opening("operations", operation=failed.operation_id)
    assert app.button(key="undo").disabled
    assert "is failed and has done nothing, so there is nothing to undo" in texts(app)


def test_an_unknown_operation_says_so(store: Engine, opening: Opening) -> None:
    """A wrong link is a sentence and a way back, not an empty page."""
    app = opening("operations", operation="nothing")
    assert "No operation has the id" in app.error[0].value.replace("\\", "")
    assert "All operations" in links(app)


# ------------------------------------------------------------------------------------------------ groups, cards, audit


def test_the_audit_log_is_filtered_exported_and_verified(store: Engine, opening: Opening) -> None:
    """Filters are in the URL, a file holds no formula, and what was changed by hand is told on asking."""
    submit_store(store, Intent("pause", (f"game:{KEY['Chess']}",), "=cmd()", "why"))
    submit_store(store, Intent("move", (f"game:{KEY['Go']}",), "bob", "busy"))
    assert list(opening("audit").dataframe[0].value["actor"]) == ["bob", "=cmd()"]
    assert list(opening("audit", who="BOB").dataframe[0].value["action"]) == ["move"]
    assert list(opening("audit", did="pau").dataframe[0].value["targets"]) == ["Chess"]
    assert list(opening("audit", what="chess").dataframe[0].value["actor"]) == ["=cmd()"]
    assert "No act matches" in opening("audit", since="2020-01-01", until="2020-01-02").info[0].value
    app = opening("audit")
    app.button(key="verify").click().run()
    assert f"newest hash {audit.verify(store).head}" in texts(app)
    assert "✓ Intact: 2 entries" in texts(app)
    with store.begin() as connection:
        connection.execute(update(tables.audit).where(tables.audit.c.actor == "bob").values(actor="eve"))
    app.button(key="verify_again").click().run()
    assert "✗ NOT intact" in texts(app)
    assert "is not what was written" in texts(app)


def log_of(entries: Iterable[Entry], names: Mapping[str, str]) -> control_queries.Log:
    """Return a log whose entries are acts that have only begun."""
    return control_queries.Log(names, tuple(AuditedAct(each) for each in entries), 1, 0.0)


def test_an_act_is_one_row_with_its_beginning_end_and_undo(store: Engine, opening: Opening) -> None:
    """Begun and ended entries of an act share a row; a person's act about an operation has a row of its own."""
    drain = replace(
        intent("move", f"game:{KEY['Chess']}", f"game:{KEY['Go']}"),
        parameters={"assignments": {}, "desired": {"a": ["running", "drained"]}},
    )
    drained = submit_store(store, drain)
    resume(store, change(store, drained, OperationState.NEEDS_HUMAN, "why"), "bob", "mended")
    change(store, operation(store, drained.operation_id), OperationState.SUCCEEDED, "done")
    back = submit_store(store, replace(intent("move", f"game:{KEY['Go']}"), undoes=drained.operation_id))
    rows = opening("audit").dataframe[0].value
    assert list(rows["action"]) == ["move", "resume operation", "drain"]
    assert list(rows["targets"]) == ["Go", "Chess, Go", "group a"]
    assert list(rows["outcome"]) == [["… not ended"], ["✓ succeeded"], ["✓ succeeded"]]
    assert list(rows["place"]) == [f"{day(store)} #5", f"{day(store)} #2, #3", f"{day(store)} #1, #4"]
    assert list(rows["undo"]) == [f"undoes {drained.operation_id[:8]}", "–", f"undone by {back.operation_id[:8]}"]
    assert "–" not in {*rows["begun"], *rows["ended"][1:]}


def day(store: Engine) -> str:
    """Return the day of the newest entry."""
    return [*audit.entries(store)][-1].day


def test_an_act_that_began_before_the_chosen_days_says_when(store: Engine, opening: Opening) -> None:
    """The page reads the beginning of an operation from the whole log, and shows what ended in the chosen days."""
    paused = submit_store(store, Intent("pause", (f"game:{KEY['Chess']}",), "ann", "why"))
    with store.begin() as connection:
        connection.execute(update(tables.audit).values(day="2020-01-01", at=1_577_900_000.0))
        head = update(tables.audit_head).values(day="2020-01-01", at=1_577_900_000.0)
        connection.execute(head)
    change(store, paused, OperationState.SUCCEEDED, "done")
    rows = opening("audit").dataframe[0].value
    assert list(rows["begun"]) == ["2020-01-01 17:33:20"]
    assert list(rows["undo"]) == ["possible for 23 h 59 min"]
    early = opening("audit", since="2020-01-01", until="2020-01-02").dataframe[0].value
    assert list(early["ended"]) == list(rows["ended"])


def test_an_operation_has_the_words_of_its_definition(store: Engine, opening: Opening) -> None:
    """A move that empties a group is the drain of that group in card, list, title and filter."""
    desired = {"assignments": {}, "desired": {"a": ["running", "drained"]}}
    drain = replace(intent("move", f"game:{KEY['Chess']}", f"game:{KEY['Go']}"), parameters=desired)
    drained = submit_store(store, drain)
    assert "Drain of group a" in texts(opening("operations"))
    assert "Drain of group a" in texts(opening("operations", operation=drained.operation_id))
    change(store, drained, OperationState.SUCCEEDED, "done")
    app = opening("operations", kind="drain")
    assert [list(app.dataframe[0].value[name]) for name in ("kind", "targets")] == [["drain"], ["group a"]]
    assert list(opening("operations", q="group:a").dataframe[0].value["kind"]) == ["drain"]


def test_the_audit_log_names_game_table_and_person_of_a_change_of_access(store: Engine, opening: Opening) -> None:
    """Page, file and filters say who was granted what; a detail spoilt by hand says nothing, and breaks none."""
    table = f"turnout.games.{KEY['Chess']}"
    changes = [AccessChange("grant", "ann@x", KEY["Chess"], table), AccessChange("revoke", "bob@x", KEY["Go"], "t")]
    for index, rows in enumerate((kept(changes)["changes"], 7, ["x", {"verb": "say"}])):
        submit_store(store, Intent("access", (f"reader:{index}",), "eve", "why", {"changes": rows}))
    said = f"grant Chess ({table}) to ann@x; revoke Go (t) from bob@x"
    assert list(opening("audit").dataframe[0].value["targets"]) == ["2", "1", said]
    assert list(opening("audit", what="to ann@x").dataframe[0].value["targets"]) == [said]
    names: dict[str, str] = {KEY["Chess"]: "Chess", KEY["Go"]: "Go"}
    assert f",{said}," in as_csv(log_of(audit.entries(store), names))


def test_no_cell_of_the_export_is_a_formula(store: Engine) -> None:
    """Text that a spreadsheet would run is quoted in the file, whoever chose the name."""
    submit_store(store, Intent("pause", (f"game:{KEY['Chess']}",), "=cmd()", "why"))
    assert ",'=cmd()," in as_csv(log_of(audit.entries(store), {}))
