"""Groups made and changed on their page: what changes is shown first, and nobody overwrites another's change."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, Engine, delete, insert, update
from streamlit.testing.v1 import AppTest

from app.state import services
from app.state.services import Environment
from pipeline.api import acts
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control.group_proposals import GroupProposal
from pipeline.store import audit
from pipeline.store.database import tables
from pipeline.store.groups import Group, change, read_groups
from tests.browser.seed import HOSTILE
from tests.unit.app.app_world import (
    Opening,
    again,
    choose,
    drawn_alive,
    forget_readings,
    four_games,
    name_roles,
    pages_of,
    texts,
)


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with four_games(tmp_path) as engine:
        yield engine


@pytest.fixture
def environment(store: Engine, opening: Opening) -> Environment:
    """Return the environment on screen."""
    return services.open_environment([], {"TURNOUT_ENV_DIR": str(Path(str(store.url.database)).parent)})


def opened(opening: Opening, name: str) -> AppTest:
    """Open the form of a group that is chosen by its name."""
    app = opening("groups")
    app.selectbox(key="steered_group").set_value(name).run()
    return app.button(key="open_change").click().run()


def reason(app: AppTest, said: str) -> AppTest:
    next(field for field in app.text_input if str(field.key).startswith("reason_")).set_value(said)
    return app


def warned(app: AppTest) -> str:
    return "\n".join(each.value.replace("\\", "") for each in app.warning)


def entries(store: Engine) -> list[tuple[str, str, str]]:
    """Return what the audit log has of groups that were made or changed."""
    found = audit.entries(store, "2000-01-01", "2999-01-01")
    return [(each.actor, each.action, each.detail.get("reason", "")) for each in found if each.phase == "begun"]


# --------------------------------------------------------------------------------------------------------- the headline


def lose_lease(connection: Connection) -> None:
    lease = {"host": "localhost", "pid": 4242, "token": "t", "epoch": 1, "since": 1.0, "expires_at": time.time() - 1}
    connection.execute(insert(tables.leases).values(kind="group", name="a", **lease))


def start_again(connection: Connection) -> None:
    connection.execute(insert(tables.group_runs).values(group_name="a", started_at=time.time()))


def report_nothing(connection: Connection) -> None:
    silent = {"updated_at": time.time() - 91}  # a heartbeat may be 90 s old here
    connection.execute(update(tables.streams).where(tables.streams.c.group_name == "a").values(silent))


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (lose_lease, "1 group silent (a)"),
        (report_nothing, "group a degraded (2 of 2)"),
    ],
)
def test_groups_and_fleet_say_the_same_of_a_group(
    store: Engine, opening: Opening, happens: Callable[[Connection], None], said: str
) -> None:
    """Once a lease, the controller or silent streams tell that a driver died, both headlines say so, in one wording."""
    with store.begin() as connection:
        connection.execute(update(tables.streams).values(status="RUNNING"))
    assert "All 2 groups' drivers are alive" in texts(opening("groups"))
    with store.begin() as connection:
        happens(connection)
    forget_readings()
    fleet, groups = texts(opening("fleet")), texts(opening("groups"))
    assert said in fleet
    assert f"{said[0].upper()}{said[1:]}" in groups
    assert "alive" not in groups


def test_groups_and_fleet_say_that_a_group_starts(store: Engine, opening: Opening) -> None:
    """A normal restart is a start on both pages, neither unknown nor well."""
    with store.begin() as connection:
        connection.execute(update(tables.streams).values(status="RUNNING"))
        start_again(connection)
    fleet, groups = texts(opening("fleet")), texts(opening("groups"))
    assert "2 of 4 streams starting" in fleet
    assert "1 of 2 groups' drivers starting: a" in groups
    assert "alive" not in groups


def test_a_driver_that_starts_is_not_called_alive(store: Engine, opening: Opening) -> None:
    """A group of one game, or of none, whose driver has not reported yet is said to be starting."""
    with store.begin() as connection:
        connection.execute(update(tables.streams).values(status="RUNNING"))
        connection.execute(update(tables.games).values(group_name="b"))
        connection.execute(update(tables.streams).values(group_name="b"))
        start_again(connection)
    assert "1 of 2 groups' drivers starting: a" in texts(opening("groups"))


def test_no_group_is_called_healthy_whose_games_are_not_well(store: Engine, opening: Opening) -> None:
    """The table judges games as the cards do: a game that starts is not called healthy."""

    def worst(app: AppTest) -> dict[str, str]:
        table = next(each.value for each in app.dataframe if "how" in each.value)
        return dict(zip(table["group"], table["how"], strict=True))

    with store.begin() as connection:
        connection.execute(update(tables.streams).values(status="RUNNING"))
    assert worst(opening("groups")) == {"a": "● all healthy", "b": "● all healthy"}
    with store.begin() as connection:
        start_again(connection)
    forget_readings()
    assert worst(opening("groups")) == {"a": "… 2 starting", "b": "● all healthy"}


def test_a_driver_that_is_silent_has_no_load_on_any_page(store: Engine, opening: Opening) -> None:
    """A silent driver uses what nobody knows: neither its last measurement nor an estimate is its load now."""
    with store.begin() as connection:
        connection.execute(update(tables.drivers).where(tables.drivers.c.name == "a").values(heartbeat_at=0.0))
    app = opening("groups")
    table = next(each.value for each in app.dataframe if "load" in each.value).set_index("group")
    assert list(table.loc["a", ["load", "headroom"]]) == ["–", "–"]
    assert table.loc["b", "load"] != "–"
    assert "No driver of it lives, so its load is not known." in texts(app)


# --------------------------------------------------------------------------------------------------------------- loads


def test_cards_and_the_drawer_say_what_a_group_can_carry(store: Engine, opening: Opening) -> None:
    """Headroom is words, also where it is unknown; a move's drawer has the load of its two groups before and after."""
    with store.begin() as connection:
        connection.execute(update(tables.groups).where(tables.groups.c.name == "b").values(capacity_cores=0.0001))
    app = choose(opening("groups"), ["Chess"], "a").run()
    shown = texts(app)
    assert "No limit is set. How much it keeps up with is not known yet." in shown
    assert "Over its limit by" in shown
    assert "Load before and after" not in shown, "Chess is in group a"
    with store.begin() as connection:
        connection.execute(update(tables.groups).values(capacity_cores=4.0))
    app.selectbox(key="move_to").set_value("b").run()
    app.button(key="preview_move").click().run()
    drawer = texts(again(app)).rpartition("Load before and after")[2]
    change = r"0\.\d+ → 0\.\d+ of 4 cores"
    assert re.search(rf"group a\s+{change}\s+group b\s+{change}", drawer)
    assert "estimated from rows and commits" in drawer
    assert re.search(r"0\s+50 %\s+100 %\s+of its limit", drawer), "the bars have a scale"


# ----------------------------------------------------------------------------------------------------------------- make


def test_a_group_is_made_after_a_preview(store: Engine, opening: Opening) -> None:
    """Nothing is written before the confirmation; then the group is as previewed, the audit log says who and why."""
    app = opening("groups")
    app.text_input(key="make_name").set_value(" spring ")
    app.number_input(key="make_cores").set_value(2.5)
    app.selectbox(key="make_priority").set_value("high")
    app.button(key="preview_make").click().run()
    shown = texts(app)
    for line in ("group spring", "driver started by: the controller", "capacity: 2.5 cores", "of priority: high"):
        assert line in shown
    assert "Spark master: the setting's, " in shown
    assert "spring" not in read_groups(store)
    reason(app, "spring launch").button(key="ask_make_group").click().run()
    assert "✓ Group spring is made." in texts(app)
    assert read_groups(store)["spring"] == Group("spring", "local", "running", 2.5, "high")
    assert entries(store) == [(services.actor(), "create group", "spring launch")]
    assert "spring" in list(again(app).dataframe[0].value["group"])


def test_a_group_is_made_where_there_is_none(tmp_path: Path, store: Engine, opening: Opening) -> None:
    """In an empty environment the page has the form, and a game that waits may go to the group at once."""
    with store.begin() as connection:
        for table in (tables.groups, tables.drivers, tables.streams):
            connection.execute(delete(table))
        connection.execute(tables.games.update().values(group_name=None))
    app = opening("groups")
    assert "No cluster group yet" in texts(app)
    app.text_input(key="make_name").set_value("first")
    app.button(key="preview_make").click().run()
    assert "4 games wait for a group, and may go there." in texts(app)
    app.button(key="ask_make_group").click().run()
    assert list(read_groups(store)) == ["first"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "Give the group a name"),
        ("a", "Group a already exists"),
        ("Capital", "cannot name a cluster group"),
        (HOSTILE[1], "cannot name a cluster group"),
        (HOSTILE[0], "cannot name a cluster group"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_written(
    name: str, sentence: str, store: Engine, opening: Opening
) -> None:
    """No name, one that is taken and one that is none are refused at the preview, and act nowhere."""
    app = opening("groups")
    app.text_input(key="make_name").set_value(name)
    app.button(key="preview_make").click().run()
    assert sentence in warned(app)
    assert not any(part in drawn_alive(app) for part in ("<script", "**bold** [", "](", ":red[", "javascript:"))
    assert [each for each in app.button if str(each.key).startswith(("ask_make", "ask_change"))] == []
    assert set(read_groups(store)) == {"a", "b"}


def test_of_two_that_make_the_same_group_the_second_is_refused(store: Engine, opening: Opening) -> None:
    """The overtaken person learns it between preview and confirmation; the group is as the first made it."""
    app = opening("groups")
    app.text_input(key="make_name").set_value("c")
    app.button(key="preview_make").click().run()
    with store.begin() as connection:
        connection.execute(insert(tables.groups).values(name="c", created_at=1.0, priority="low"))
    app.button(key="ask_make_group").click().run()
    assert "Group c already exists" in warned(app)
    assert "✓" not in texts(app)
    assert read_groups(store)["c"].priority == "low"


# --------------------------------------------------------------------------------------------------------------- change


def test_a_preview_says_what_changes_and_only_that(store: Engine, opening: Opening) -> None:
    """A change shows "was → will be" for what differs; a harmless change needs no reason."""
    app = opened(opening, "b")
    app.selectbox(key="want_b_1_priority").set_value("low")
    app.button(key="preview_change").click().run()
    assert "for games of priority: normal → low" in texts(app)
    assert "capacity: " not in texts(app)
    app.button(key="ask_change_b").click().run()
    assert "✓ Group b is changed." in texts(app)
    assert read_groups(store)["b"] == Group("b", "none", "running", None, "low", version=2)
    app.button(key="drop_change_b").click().run()
    assert app.selectbox(key="steered_group").value is None, "the drawer is closed"
    app.selectbox(key="steered_group").set_value("b").run()
    assert "for games of priority: low" in texts(app), "what is wanted stands in the drawer"


def test_what_disturbs_needs_a_reason(store: Engine, opening: Opening) -> None:
    """Another who starts the driver, or a limit below the load, says what it does, and is not written without a why."""
    app = opened(opening, "b")
    app.selectbox(key="want_b_1_backend").set_value("local")
    app.number_input(key="want_b_1_cores").set_value(0.001)
    app.button(key="preview_change").click().run()
    shown = texts(app)
    assert "driver started by: not turnout → the controller" in shown
    assert "capacity: no limit → 0.001 cores" in shown
    assert "The controller takes it over: a driver that runs goes on" in shown
    assert "Its 2 games take about" in shown
    app.button(key="ask_change_b").click().run()
    assert "Enter a reason" in warned(app)
    assert read_groups(store)["b"].version == 1
    reason(app, "b goes under the controller").button(key="ask_change_b").click().run()
    assert (read_groups(store)["b"].backend, read_groups(store)["b"].capacity_cores) == ("local", 0.001)
    assert entries(store) == [(services.actor(), "change group", "b goes under the controller")]


@pytest.mark.proves("G106")
def test_a_second_operator_is_refused_and_overwrites_nothing(store: Engine, opening: Opening) -> None:
    """Of two that look at the same group the slower is told what the other changed, at the preview and at the end."""
    late, slow = opened(opening, "a"), opened(opening, "a")
    slow.number_input(key="want_a_1_cores").set_value(8.0)
    slow.button(key="preview_change").click().run()
    assert "capacity: no limit → 8 cores" in texts(slow)
    seen = read_groups(store)["a"]
    change(store, seen, replace(seen, capacity_cores=3.0), "ann", "fast")
    slow.button(key="ask_change_a").click().run()
    assert "Group a was changed after you opened it" in warned(slow)
    assert "is changed." not in texts(slow)
    late.selectbox(key="want_a_1_priority").set_value("high")
    late.button(key="preview_change").click().run()
    assert "Group a was changed after you opened it" in warned(late)
    assert "capacity: no limit → 3 cores" in texts(late)
    assert [each for each in late.button if str(each.key).startswith(("ask_make", "ask_change"))] == []
    assert read_groups(store)["a"] == replace(seen, capacity_cores=3.0, version=2)
    assert "after you opened this form" in warned(again(late))
    late.button(key="reopen_change").click().run()
    assert late.number_input(key="want_a_2_cores").value == 3.0
    late.selectbox(key="want_a_2_priority").set_value("high")
    late.button(key="preview_change").click().run()
    late.button(key="ask_change_a").click().run()
    assert read_groups(store)["a"] == replace(seen, capacity_cores=3.0, priority="high", version=3)


def test_a_second_click_writes_once(store: Engine, opening: Opening) -> None:
    """A proposal that is written is not written again by a click that comes late."""
    app = opened(opening, "b")
    app.selectbox(key="want_b_1_priority").set_value("low")
    app.button(key="preview_change").click().run()
    kept = app.session_state["offer_change_b"]
    app.button(key="ask_change_b").click().run()
    app.session_state["offer_change_b"] = kept
    app.run()
    app.button(key="ask_change_b").click().run()
    assert "Group b was changed after you opened it" in warned(app)
    assert read_groups(store)["b"].version == 2
    assert len(entries(store)) == 1


def test_a_change_of_nothing_is_refused(store: Engine, opening: Opening) -> None:
    """A form that is as it was opened says so, and there is nothing to confirm."""
    app = opened(opening, "a")
    app.button(key="preview_change").click().run()
    assert "Nothing to change: group a is already in that state." in warned(app)
    assert read_groups(store)["a"].version == 1


# ------------------------------------------------------------------------------------------------------------- commands


def turnout(environment: Environment, *arguments: str) -> list[str]:
    """Return the lines that a command about groups prints."""
    words = ["groups", *arguments, "--env-dir", str(environment.paths.root)]
    return CliRunner().invoke(cli, words, catch_exceptions=False).output.splitlines()


def plan(environment: Environment, seen: Group | None, then: Group) -> GroupProposal:
    return acts.plan_group(services.opened(environment), seen, then)


def write(environment: Environment, proposal: GroupProposal, reason: str) -> str:
    return acts.write_group(services.opened(services.renewed(environment)), proposal, services.actor(), reason)


def test_a_command_changes_a_group_as_the_page_does(environment: Environment, store: Engine) -> None:
    """Lines, the reason that is needed and its sentence are the same; of the two, the second is refused."""
    seen = read_groups(store)["b"]
    preview = plan(environment, seen, replace(seen, backend="local", capacity_cores=0.001))
    assert len(preview.effects) == 2
    setting = ("set", "b", "--backend", "local", "--cores", "0.001")
    with pytest.raises(Refused) as on_page:
        write(environment, preview, " ")
    with pytest.raises(Refused) as by_command:
        turnout(environment, *setting)
    assert str(on_page.value) == str(by_command.value)
    assert str(on_page.value) == f"{preview.effects[0]} Enter a reason. It is kept in the audit log."
    assert turnout(environment, *setting, "--reason", "r") == [*preview.lines, "Group b is changed."]
    with pytest.raises(Refused, match="Group b was changed after you opened it"):
        write(environment, preview, "r")
    with pytest.raises(Refused, match="Nothing to change: group b is already in that state"):
        turnout(environment, *setting, "--reason", "r")
    assert entries(store) == [(services.actor(), "change group", "r")]


def test_a_command_makes_a_group_as_the_page_does(environment: Environment, store: Engine) -> None:
    """Lines and the sentence about a name that is taken are the same, whoever is first."""
    preview = plan(environment, None, Group("c", "local", capacity_cores=2.0))
    making = ("create", "c", "--backend", "local", "--cores", "2")
    assert turnout(environment, *making) == [*preview.lines, "Group c is made."]
    for act in (
        lambda: write(environment, preview, ""),
        lambda: plan(environment, None, Group("c")),
        lambda: turnout(environment, *making),
    ):
        with pytest.raises(Refused, match=r"^Group c already exists\. Change it instead\.$"):
            act()
    assert entries(store) == [(services.actor(), "create group", "")]


# ---------------------------------------------------------------------------------------------------------------- roles


def test_who_has_not_the_role_sees_it_and_cannot_do_it(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """Making and changing groups need a mover: an operator sees both disabled, with the role they need."""
    name_roles(tmp_path, operators=[services.actor()], movers=["ann"])
    app = opening("groups")
    app.selectbox(key="steered_group").set_value("a").run()
    assert app.button(key="preview_make").disabled
    assert app.button(key="open_change").disabled
    assert texts(app).count("Needs the role mover") >= 2


def test_a_forged_write_is_refused_by_what_writes(environment: Environment, store: Engine, tmp_path: Path) -> None:
    """The role is checked where it is written, whatever the page has shown before."""
    name_roles(tmp_path, operators=[services.actor()], movers=["ann"])
    made = plan(environment, None, Group("c"))
    seen = read_groups(store)["a"]
    changed = plan(environment, seen, replace(seen, priority="high"))
    for proposal, kind in ((made, "create a group"), (changed, "change a group")):
        with pytest.raises(Refused, match=f"may not {kind}: it needs the role mover"):
            write(environment, proposal, "forged")
    assert set(read_groups(store)) == {"a", "b"}
    assert read_groups(store)["a"] == seen
