"""Actions on games and groups by role: cards, roles, drains, restarts, proposals and repairs."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Engine, delete, insert, update
from streamlit.testing.v1 import AppTest

from app.components import cards
from app.gate import PERSON_HEADER, Person, seal
from app.person import identity
from app.state import control_queries, previews, services
from app.state.services import Environment
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control.capabilities import read_facts
from pipeline.control.operations import pauses
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.verdicts.condition import WINDOW_SECONDS
from pipeline.settings.tree import Metrics, Paths, Settings, load
from pipeline.store import stream_control
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.operations import Intent, change, list_operations
from pipeline.store.operations import submit as submit_store
from tests.browser.seed import HOSTILE, fleet_of_forty, seed
from tests.checkout import ROOT
from tests.unit.app.app_world import KEY, Opening, again, choose, drawn_alive, fill, name_roles, sign_in, submit, texts

WHO_ACTS: Final = identity.person  # which the tests' pages replace


@pytest.fixture
def environment(store: Engine, opening: Opening) -> Environment:
    """Return the environment on screen."""
    return services.open_environment([], {"TURNOUT_ENV_DIR": str(Path(str(store.url.database)).parent)})


def anybody(_kind: str) -> None:
    return None


def set_groups(store: Engine, **values: Any) -> None:
    with store.begin() as connection:
        connection.execute(update(tables.groups).values(values))


def add_group(store: Engine, name: str, **values: Any) -> None:
    with store.begin() as connection:
        connection.execute(insert(tables.groups).values(name=name, created_at=1.0, **values))


def set_games(store: Engine, name: str, **values: Any) -> None:
    with store.begin() as connection:
        connection.execute(update(tables.games).where(tables.games.c.game_key == KEY[name]).values(values))


def of_game(environment: Environment, name: str) -> Mapping[str, cards.Card]:
    services.forget()
    facts = control_queries.facts(environment, [KEY[name]])[KEY[name]]
    return {card.can.name: card for card in cards.of_game(facts, anybody)}


def of_group(environment: Environment, name: str) -> Mapping[str, cards.Card]:
    services.forget()
    return {card.can.name: card for card in cards.of_group(name, control_queries.steering(environment), anybody)}


def possible(found: Mapping[str, cards.Card]) -> set[str]:
    return {name for name, card in found.items() if card.can.possible}


# ---------------------------------------------------------------------------------------------------------------- cards


def never_had_tables(store: Engine) -> None:
    """Let drivers have reported no row of any game."""
    with store.begin() as connection:
        connection.execute(update(tables.streams).values(cursor_seq=0))


def test_what_can_be_done_with_a_game_follows_from_what_it_is(environment: Environment, store: Engine) -> None:
    """Each card is possible or says why not, and a retired, paused, parked or busy game has the cards it should."""
    assert "rebuild" in possible(of_game(environment, "Chess")), "its driver reported rows, so its table was removed"
    never_had_tables(store)
    assert possible(of_game(environment, "Chess")) == {"pause", "replay", "move", "retire"}
    assert possible(of_game(environment, "Risk")) == {"pause", "retry", "replay", "move", "retire"}
    assert "It has no table yet" in str(of_game(environment, "Chess")["rebuild"].can.why_not)
    assert "turnout does not start group" in str(of_game(environment, "Chess")["restart"].can.why_not)
    set_groups(store, backend="local")
    assert "restart" in possible(of_game(environment, "Chess"))
    stream_control.submit_control(store, KEY["Go"], "ann", desired="paused")
    assert possible(of_game(environment, "Go")) == {"resume", "replay", "move", "retire", "restart"}
    set_games(store, "Ludo", retired_at=1.0, group_name=None)
    retired = of_game(environment, "Ludo")
    assert possible(retired) == {"restore"}
    instead = {card.can.alternative.name for card in retired.values() if card.can.alternative is not None}
    assert instead == {"restore"}
    submit_store(store, Intent("move", (f"game:{KEY['Chess']}",), "ann"))
    busy = of_game(environment, "Chess")
    assert possible(busy) == set()
    assert "an open operation now: move " in str(busy["pause"].can.why_not)


def test_a_game_whose_driver_is_silent_may_be_paused_and_is_told_when(environment: Environment, store: Engine) -> None:
    """A decision while no driver runs waits for it, and the card says so before."""
    with store.begin() as connection:
        connection.execute(update(tables.drivers).values(heartbeat_at=1.0))
    assert "done when the driver runs" in str(of_game(environment, "Chess")["pause"].before)


def test_what_can_be_done_with_a_group_follows_from_what_is_wanted_of_it(
    environment: Environment, store: Engine
) -> None:
    """Somebody else's group is only drained; the controller's is stopped and restarted, or started, never both."""
    foreign = of_group(environment, "a")
    assert possible(foreign) == {"drain"}
    assert "turnout does not start group a" in str(foreign["restart"].can.why_not)
    set_groups(store, backend="local")
    assert possible(of_group(environment, "a")) == {"drain", "stop", "restart"}
    add_group(store, "idle", backend="local", desired="stopped")
    idle = of_group(environment, "idle")
    assert possible(idle) == {"start"}
    assert idle["stop"].can.alternative is not None
    assert idle["stop"].can.alternative.name == "start"
    submit_store(store, pauses.intent("pause", {KEY["Chess"]: "running"}, "ann", "why"))
    assert "Games of it belong to an open operation now: pause " in str(of_group(environment, "a")["drain"].can.why_not)
    submit_store(store, Intent("stop", ("group:b",), "ann"))
    assert possible(of_group(environment, "b")) == set()
    with store.begin() as connection:
        connection.execute(delete(tables.groups).where(tables.groups.c.name == "a"))
    assert "Nobody has registered this group" in str(of_group(environment, "a")["stop"].can.why_not)


def test_a_drain_that_has_no_room_says_so_on_its_card(environment: Environment, store: Engine) -> None:
    """Where games of a group fit nowhere its drain is not possible, and the numbers are in the sentence."""
    set_groups(store, capacity_cores=0.001)
    assert "2 of its 2 games fit nowhere" in str(of_group(environment, "a")["drain"].can.why_not)


# ---------------------------------------------------------------------------------------------------------------- roles


def test_an_operator_sees_what_needs_a_mover_and_cannot_ask_for_it(
    store: Engine, opening: Opening, tmp_path: Path
) -> None:
    """An action without the role is shown, disabled, with the role; the rest is as ever."""
    name_roles(tmp_path, operators=[services.actor()], movers=["ann"])
    app = opening("game", game=KEY["Chess"])
    assert f"· {services.actor()} · operator" in texts(app)
    assert not app.button(key="act_pause").disabled
    assert app.button(key="act_move").disabled
    assert app.button(key="act_retire").disabled
    assert "Needs the role mover" in texts(app)
    app = opening("groups")
    assert app.button(key="preview_move").disabled
    assert app.button(key="preview_even").disabled
    app.selectbox(key="steered_group").set_value("a").run()
    assert app.button(key="act_drain").disabled
    assert not opening("repairs").button(key="preview_repair").disabled


def test_who_has_no_role_may_only_look(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """Somebody whom no setting names sees the pages, with every button that asks disabled."""
    name_roles(tmp_path, operators=["bob"], movers=["ann"])
    stuck = change(
        store, submit_store(store, Intent("pause", (f"game:{KEY['Go']}",), "ann")), OperationState.NEEDS_HUMAN, "why"
    )
    app = opening("game", game=KEY["Chess"])
    assert "no role: you may only look" in texts(app)
    assert app.button(key="act_pause").disabled
    assert opening("repairs").button(key="preview_repair").disabled
    app = opening("operations", operation=stuck.operation_id)
    assert [each.disabled for each in app.button if each.label in ("Resume", "Close it")] == [True, True]


def test_an_undo_needs_the_role_of_what_it_asks_for(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """An operator may undo a pause, and sees the undo of a move disabled."""
    name_roles(tmp_path, operators=[services.actor()], movers=["ann"])
    for kind, name, disabled in (("pause", "Go", False), ("move", "Ludo", True)):
        done = change(
            store, submit_store(store, Intent(kind, (f"game:{KEY[name]}",), "ann")), OperationState.SUCCEEDED, "Done."
        )
        assert opening("operations", operation=done.operation_id).button(key="undo").disabled == disabled


def test_a_forged_call_is_refused_by_what_writes_and_not_by_a_button(
    environment: Environment, store: Engine, tmp_path: Path
) -> None:
    """Asking, resuming and closing check the role of who runs the page, whoever the intent names."""
    stuck = change(
        store, submit_store(store, Intent("pause", (f"game:{KEY['Go']}",), "ann")), OperationState.NEEDS_HUMAN, "why"
    )
    name_roles(tmp_path, operators=["bob"], movers=["ann"])
    with pytest.raises(Refused, match="may not pause"):
        previews.resume(environment, stuck)
    with pytest.raises(Refused, match="may not pause"):
        previews.close(environment, stuck, "x")
    name_roles(tmp_path, operators=[services.actor()], movers=["ann"])
    forged = Intent("move", (f"game:{KEY['Chess']}",), "ann", "mine", {"assignments": {KEY["Chess"]: "b"}})
    with pytest.raises(Refused, match="may not move: it needs the role mover"):
        submit(environment, forged)
    assert [each.state for each in list_operations(store)] == ["needs_human"]
    submitted = submit(environment, Intent("pause", (f"game:{KEY['Chess']}",), "ann"))
    assert submitted.actor == services.actor()


def staged_pause(opening: Opening) -> AppTest:
    """Open a game's page and preview a pause, which is not confirmed yet."""
    app = opening("game", game=KEY["Chess"])
    app.button(key="act_pause").click().run()
    return fill(app, reason="a deploy")


@pytest.mark.proves("G173")
def test_a_role_that_was_taken_away_is_gone_in_pages_that_are_open(
    store: Engine, opening: Opening, tmp_path: Path
) -> None:
    """The click on a page that was drawn with the role is refused without it, and what is drawn next says so."""
    name_roles(tmp_path, operators=[services.actor()])
    app = staged_pause(opening)
    name_roles(tmp_path, operators=["bob"])
    app.button(key=f"ask_game_{KEY['Chess']}").click().run()
    assert list_operations(store) == []
    assert "may not pause: it needs the role operator" in app.warning[0].value.replace("\\", "")
    assert app.button(key="act_pause").disabled
    assert "no role: you may only look" in texts(app)


@pytest.mark.proves("G173")
def test_settings_that_went_wrong_stop_what_is_submitted(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """While the settings cannot be read nothing is submitted by those of before, and the page says what is wrong."""
    app = staged_pause(opening)
    (tmp_path / "turnout.toml").write_text("[roles]\nmover = ['ann']")
    app.button(key=f"ask_game_{KEY['Chess']}").click().run()
    assert list_operations(store) == []
    assert "roles.mover: no such setting" in app.warning[0].value.replace("\\", "")
    (tmp_path / "turnout.toml").unlink()
    fill(again(app), reason="a deploy").button(key=f"ask_game_{KEY['Chess']}").click().run()
    assert len(list_operations(store)) == 1


@pytest.mark.proves("G173")
def test_another_control_store_than_the_one_on_screen_takes_nothing(
    store: Engine, opening: Opening, tmp_path: Path
) -> None:
    """A preview of one store is never submitted to the one that replaced it."""
    app = staged_pause(opening)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    (tmp_path / "turnout.toml").write_text(f'[store]\nurl = "{other}"')
    app.button(key=f"ask_game_{KEY['Chess']}").click().run()
    refused = app.session_state[f"offer_game_{KEY['Chess']}"].refused
    assert refused == "The control store was replaced after the page loaded. Reload the page."
    replacement = open_store(*load(tmp_path, {}))
    assert (list_operations(store), list_operations(replacement)) == ([], [])
    replacement.dispose()


@pytest.mark.proves("G172")
def test_in_a_workspace_no_roles_let_nobody_act(
    environment: Environment, store: Engine, opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person signed in by the platform may only look until roles name people, e-mail addresses in any case."""
    sign_in(monkeypatch, "ann@example.com", by_platform=True)
    app = opening("game", game=KEY["Chess"])
    assert "· ann@example.com · no roles are set: you may only look" in texts(app)
    assert "No roles are set, so this dashboard is read-only." in texts(app)
    assert app.button(key="act_pause").disabled
    pause = Intent("pause", (f"game:{KEY['Chess']}",), "ann")
    with pytest.raises(Refused, match="No roles are set"):
        submit(environment, pause)
    with pytest.raises(Refused, match="No roles are set"):  # also what needs no role, such as a request for access
        services.permitted(environment, None)
    name_roles(tmp_path, operators=["Ann@Example.com"])
    assert services.permitted(environment, None) == "ann@example.com"
    assert submit(environment, pause).actor == "ann@example.com"


@pytest.mark.proves("G275")
def test_a_connection_that_comes_back_as_another_person_ends_the_tab(
    store: Engine, opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann's preview and reason are gone when her tab's connection is Bob's: his click submits nothing of hers."""
    monkeypatch.setattr(identity, "person", WHO_ACTS)
    name_roles(tmp_path, movers=["ann@example.com", "bob@example.com"])
    connect(monkeypatch, "ann@example.com")
    app = fill(staged_pause(opening), reason="a deploy")
    assert "Submitted as ann" in texts(app)
    connect(monkeypatch, "bob@example.com")
    app.button(key=f"ask_game_{KEY['Chess']}").click().run()
    assert list_operations(store) == []
    sentence = "ann@example.com opened this tab, and its connection is bob@example.com's now."
    assert [each.value.startswith(sentence) for each in app.text] == [True]
    assert not app.button
    connect(monkeypatch, "ann@example.com")
    assert not again(app).button, "it stays so until it is loaded anew"
    assert opening("game", game=KEY["Chess"]).button, "another tab is another matter"


def connect(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the connection of every tab be a person's, as the gate seals it."""
    headers = dict(seal([], Person(name, by_platform=True), "https://app"))
    monkeypatch.setattr(identity, "_sealed", lambda: [headers[PERSON_HEADER.lower().encode()].decode()])


def test_a_page_that_nobody_is_known_to_look_at_says_one_sentence(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamlit started by hand, with nothing before it that knows people, shows no page."""

    def nobody() -> Person:
        raise Refused("Nobody is signed in.")

    monkeypatch.setattr(identity, "person", nobody)
    app = AppTest.from_file(ROOT / "app" / "main.py", default_timeout=30).run()
    assert [each.value for each in app.text] == ["Nobody is signed in."]
    assert not app.button


# --------------------------------------------------------------------------------------------------------------- groups


def test_a_group_shows_what_is_wanted_and_a_dash_for_what_is_not_known(store: Engine, opening: Opening) -> None:
    """What is not limited, was never told, or nobody counts is a dash or words, never 0; what is unsure is marked."""
    add_group(store, "idle", backend="local", capacity_cores=2.5, priority="high", desired="drained")
    app = opening("groups")
    assert "1 group down (idle)" in texts(app)
    table = app.dataframe[0].value.set_index("group")
    assert list(table.loc["idle", ["driver", "heartbeat", "games", "how"]]) == [["○ never started"], "–", "0", "–"]
    assert table.loc["idle", "deaths"] == "0"
    assert list(table.loc["idle", ["load", "share", "headroom"]]) == ["0 of 2.5 cores", "0 %", "2.5 cores"]
    assert list(table.loc["b", ["driver", "games", "how"]]) == [["● running"], "2", "✗ 1 failed"]
    assert list(table.loc["b", ["share", "headroom", "deaths"]]) == ["–", "no limit", "–"]
    for name in "ab":
        load = str(table.loc[name, "load"])
        assert load.startswith("about ")
        assert load.endswith(" cores, estimated"), "no driver measured its processes here"
    assert table.loc["a", "how"] == "● all healthy"


def test_a_group_that_shall_not_run_is_no_trouble(store: Engine, opening: Opening) -> None:
    """The headline counts drivers that are missing, not those that somebody has stopped."""
    add_group(store, "idle", backend="local", desired="stopped")
    with store.begin() as connection:
        connection.execute(update(tables.streams).values(status="RUNNING"))
    assert "All 2 enabled groups have a live driver" in texts(opening("groups"))
    with store.begin() as connection:
        connection.execute(update(tables.drivers).where(tables.drivers.c.name == "b").values(heartbeat_at=1.0))
    assert "1 group silent (b)" in texts(again(opening("groups")))


def test_deaths_of_the_last_hour_are_counted_with_the_last_word(store: Engine, opening: Opening) -> None:
    """A death counts for an hour; a run that was asked to end is none."""
    now, gone = time.time(), WINDOW_SECONDS + 60
    runs = [(now - 60, 1, HOSTILE[1]), (now - 120, 1, "exit code 1"), (now - 30, 0, "asked"), (now - gone, 1, "old")]
    with store.begin() as connection:
        for ended_at, died, said in sorted(runs):
            row = {
                "group_name": "a",
                "started_at": ended_at - 9,
                "ended_at": ended_at,
                "died": died,
                "exit_message": said,
            }
            connection.execute(insert(tables.group_runs).values(row))
    table = opening("groups").dataframe[0].value.set_index("group")
    assert str(table.loc["a", "deaths"]).startswith("2: **bold**")


@pytest.mark.proves("G132")
def test_an_alarm_and_a_controller_that_does_not_run_stand_on_top(store: Engine, opening: Opening) -> None:
    """All alarms are shown while their controller beats, its lease or none; without it each page says what that means.

    A controller that was killed holds its lease for half a minute more: `turnout status` goes by more than that, and
    so do the pages.
    """
    row = {"pid": 1, "host": "here", "started_at": 1.0, "heartbeat_at": time.time(), "state": "running"}
    alarms = "5 of 9 groups died\ngroup c is dead"
    submitted = submit_store(store, Intent("pause", (f"game:{KEY['Chess']}",), "ann"))
    with store.begin() as connection:
        connection.execute(insert(tables.drivers).values(kind="controller", name="main", error=alarms, **row))

    def warned(app: AppTest) -> list[str]:
        return [each.value.replace("\\", "") for each in app.warning]

    def lacks_controller(page: str, **query: str) -> bool:
        return any(each.startswith("The controller is silent") for each in warned(opening(page, **query)))

    assert warned(opening("groups")) == ["5 of 9 groups died", "group c is dead"], "it beats, and leases are no matter"
    assert not lacks_controller("operations", operation=submitted.operation_id[:8])
    assert not lacks_controller("access")
    with store.begin() as connection:
        mine = tables.drivers.c.kind == "controller"
        connection.execute(update(tables.drivers).where(mine).values(heartbeat_at=time.time() - 100))
        lease = {"pid_namespace": None, "started": None, "token": "t", "epoch": 1, "expires_at": time.time() + 1000}
        whose = {"kind": "controller", "name": "main", "host": "here", "pid": 1, "since": 1.0}
        connection.execute(insert(tables.leases).values(**whose, **lease))
    assert (
        "the controller is silent"
        in read_fleet(store, settings=Settings(metrics=Metrics(heartbeat_seconds=30.0))).judgement.headline
    )
    assert [each[:24] for each in warned(opening("groups"))] == ["The controller is silent"]
    assert lacks_controller("operations", operation=submitted.operation_id[:8])
    assert lacks_controller("operations")
    assert lacks_controller("access")


def test_a_restart_of_a_group_needs_words_that_count_its_games(store: Engine, opening: Opening) -> None:
    """A group is chosen by name, its restart is previewed, and asked for with a reason and its games' number."""
    set_groups(store, backend="local")
    app = opening("groups")
    app.selectbox(key="steered_group").set_value("b").run()
    assert "✗ Start: It is set to run already." in texts(app)
    app.button(key="act_restart").click().run()
    assert "1 to restart. 2 games go on from their cursors; those that run stand still meanwhile" in texts(app)
    fill(app, reason="new jar", typed="RESTART 1").button(key="ask_groups_group").click().run()
    assert "Type RESTART 2 to confirm" in app.warning[-1].value.replace("\\", "")
    assert list_operations(store) == []
    fill(app, reason="new jar", typed="RESTART 2").button(key="ask_groups_group").click().run()
    (submitted,) = list_operations(store)
    assert (submitted.kind, submitted.targets, submitted.reason) == ("restart", ("group:b",), "new jar")


def test_a_drain_is_one_move_that_counts_its_games(store: Engine, opening: Opening) -> None:
    """A drain moves all games of a group and marks it, with how full the groups are before and after."""
    app = opening("groups")
    app.selectbox(key="steered_group").set_value("a").run()
    assert "✗ Start, stop, restart: turnout does not start group a" in texts(app)
    app.button(key="act_drain").click().run()
    assert re.search(r"- group a +running\n *\+ group a +drained", texts(app))
    assert "not limited, 2 games → " in texts(app)
    fill(app, reason="new machine", typed="DRAIN 2").button(key="ask_groups_group").click().run()
    (submitted,) = list_operations(store)
    assert (submitted.kind, submitted.parameters["desired"]) == ("move", {"a": ["running", "drained"]})
    assert set(submitted.targets) == {"group:a", f"game:{KEY['Chess']}", f"game:{KEY['Go']}"}


def test_a_move_shows_how_full_the_groups_get_and_is_refused_where_there_is_no_room(
    store: Engine, opening: Opening
) -> None:
    """The page plans with the measured load, as the command does."""
    app = choose(opening("groups"), ["Chess"], "b")
    app.button(key="preview_move").click().run()
    assert "b: " in texts(app)
    assert "3 games" in texts(app)
    set_groups(store, capacity_cores=0.001)
    app.button(key="preview_move").click().run()
    assert "Group b has no room for 1 more" in app.warning[-1].value.replace("\\", "")


def test_a_proposal_is_asked_for_as_one_move(store: Engine, opening: Opening) -> None:
    """Games that cannot stay are named with their reason, and one confirmation moves all; else why none."""
    app = opening("groups")
    set_groups(store, capacity_cores=50.0)
    app.button(key="preview_even").click().run()
    assert "Nothing to move" in app.warning[-1].value
    with store.begin() as connection:
        connection.execute(update(tables.groups).where(tables.groups.c.name == "a").values(desired="drained"))
    app.button(key="preview_even").click().run()
    assert "cannot stay: group a is drained" in texts(app)
    assert list_operations(store) == []
    fill(app, reason="a goes", typed="MOVE 2").button(key="ask_groups_propose").click().run()
    (submitted,) = list_operations(store)
    assert submitted.parameters["assignments"] == {KEY["Chess"]: "b", KEY["Go"]: "b"}


# -------------------------------------------------------------------------------------------------------------- repairs


def test_a_capability_refusal_is_on_the_pages(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """The very sentence of why not, and what is instead, stands on the game's page and in a refused preview."""
    never_had_tables(store)
    facts = read_facts(store, Paths(tmp_path), KEY["Risk"], time.time(), count=False)
    assert not facts.has_table
    assert "✗ Dedupe, rebuild: It has no table yet. Its stream makes one from bronze. → Replay instead." in texts(
        opening("game", game=KEY["Risk"])
    )
    (tmp_path / "bronze").mkdir(exist_ok=True)
    Path(Paths(tmp_path).bronze).mkdir(parents=True, exist_ok=True)
    app = choose(opening("repairs"), ["Chess", "Risk"], box="repair")
    app.segmented_control(key="repair_kind").set_value("rebuild").run()
    app.button(key="preview_repair").click().run()
    assert "Nothing to rebuild." in app.warning[-1].value.replace("\\", "")
    assert f"Risk · {KEY['Risk']}: It has no table yet. Its stream makes one from bronze. Instead: replay." in texts(
        app
    )
    assert list_operations(store) == []


def test_a_replay_counts_before_it_is_asked_for(store: Engine, opening: Opening) -> None:
    """The card knows no count and lets ask; the preview looks, and says that there is nothing to replay."""
    app = opening("game", game=KEY["Chess"])
    assert "its rows in quarantine and counts them" in texts(app)
    app.button(key="act_replay").click().run()
    assert "Quarantine holds no row of it." in texts(app)
    assert list_operations(store) == []


def test_those_that_cannot_be_repaired_are_left_out_by_name(store: Engine, opening: Opening) -> None:
    """Of several games those that can be retried are, and each of the others says why not."""
    app = choose(opening("repairs"), ["Chess", "Risk"], box="repair")
    app.button(key="preview_repair").click().run()
    assert f"left out: Chess · {KEY['Chess']}: There is no failure to try again after" in texts(app)
    app.button(key="ask_repairs_repair").click().run()
    assert [each.targets for each in list_operations(store)] == [(f"game:{KEY['Risk']}",)]


def test_a_retirement_needs_a_reason_and_a_restore_a_click(store: Engine, opening: Opening) -> None:
    """A game is retired with a reason, and restored without one."""
    app = opening("game", game=KEY["Ludo"])
    app.button(key="act_retire").click().run()
    app.button(key=f"ask_game_{KEY['Ludo']}").click().run()
    assert "Enter a reason" in app.warning[-1].value
    set_games(store, "Ludo", retired_at=1.0, group_name=None)
    app = opening("game", game=KEY["Ludo"])
    app.button(key="act_restore").click().run()
    app.button(key=f"ask_game_{KEY['Ludo']}").click().run()
    assert [each.kind for each in list_operations(store)] == ["restore"]


# -------------------------------------------------------------------------------------------------------------- hostile


def test_hostile_names_reach_every_preview_as_text(tmp_path: Path, opening: Opening) -> None:
    """Names that look like Markdown or HTML act nowhere: not in cards, refusals, proposals or drains."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    keys = [game_key(name) for name in HOSTILE]
    row = {"pid": 1, "host": "here", "started_at": 1.0, "heartbeat_at": time.time(), "state": "running"}
    with engine.begin() as connection:
        connection.execute(update(tables.groups).where(tables.groups.c.name == "a").values(desired="drained"))
        connection.execute(insert(tables.drivers).values(kind="controller", name="main", error=HOSTILE[1], **row))
    submit_store(engine, Intent(HOSTILE[1][:20], (f"game:{keys[1]}",), HOSTILE[0], HOSTILE[1]))
    drawn = []
    app = opening("groups")
    app.selectbox(key="steered_group").set_value("a").run()
    app.button(key="preview_even").click().run()
    drawn.append(app)
    app = opening("repairs")
    app.multiselect(key="repair").set_value(keys)
    app.button(key="preview_repair").click().run()
    drawn.append(app)
    drawn += [opening("game", game=key) for key in keys]
    for each in drawn:
        assert not each.exception
        assert not any(part in drawn_alive(each) for part in ("<script", "**bold** [", "](", ":red[", "javascript:"))
        assert "\u202e" not in texts(each)
    engine.dispose()
