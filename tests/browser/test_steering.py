"""Steering in a real browser: from a choice by name to an operation that a controller brings on."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.settings.tree import Paths, Settings
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import open_store
from pipeline.store.groups import read_groups
from pipeline.store.operations import list_operations
from pipeline.store.processes.runs import active_drivers
from pipeline.store.stream_control import StreamControl, record_failures
from tests.browser.drivers import steered
from tests.browser.lists import SOON, choose, settled, take
from tests.browser.seed import Seeded, fleet_of_forty, heartbeats, seed
from tests.browser.served import CHROMIUM, opened, served

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return the store of forty games with living drivers and a controller; one game is parked, one only stalled."""
    folder = tmp_path_factory.mktemp("steered")
    fleet = [Seeded(game.name, game.group, game.reported or {}) for game in fleet_of_forty()]
    seed(folder, fleet, now=time.time(), heartbeat_ages={"ingest": 0.0}, history=False)
    store = open_store(Settings(), Paths(folder))
    parked = StreamControl(parked_at=time.time(), failures=3, failure_class="poison", evidence="bad rows of seq 588")
    record_failures(store, {game_key("Fjord arena"): parked})
    store.dispose()
    with heartbeats(folder, ("ingest",)), steered(folder) as running:
        yield running


@pytest.fixture(scope="module")
def address(store: Engine) -> Iterator[str]:
    with served(Path(str(store.url.database)).parent) as started:
        yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as empty:
        yield empty


def dismiss(page: Page) -> None:
    """Close the drawer, behind which the page is inert."""
    page.get_by_role("dialog").get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("dialog")).to_have_count(0, timeout=SOON)


def chosen_again(page: Page) -> None:
    """Choose the group again where the page has let go of it: on a busy machine it does; see docs/plan.md."""
    settled(page)
    if "steer=spring" not in page.url:
        take(page, "Group", "spring")


def operations_of(store: Engine, name: str) -> list[str]:
    return [each.kind for each in list_operations(store) if f"game:{game_key(name)}" in each.targets]


def test_a_move_is_planned_confirmed_and_seen_to_be_done(page: Page, store: Engine) -> None:
    """Two games chosen by name move when the reason and the words are given; the drawer follows them to the end.

    It does so while the page below is drawn once a minute.
    """
    page.goto("/groups?every=60s")
    choose(page, "Games", "Aurora arena")
    choose(page, "Games", "Cinder arena")
    take(page, "To group", "b")
    page.get_by_role("button", name="Preview the move").click()
    expect(page.get_by_text("- Aurora arena  group a")).to_be_visible(timeout=SOON)
    expect(page.get_by_text("+ Aurora arena  group b")).to_be_visible(timeout=SOON)
    page.get_by_label("Reason").fill("a is too busy")
    page.get_by_role("button", name=re.compile(r"^Move \d")).click()
    expect(page.get_by_text("Type MOVE 2 to confirm: 2 games are touched.")).to_be_visible(timeout=SOON)
    assert operations_of(store, "Aurora arena") == []
    page.get_by_label("Type MOVE 2 to confirm").fill("MOVE 2")
    page.get_by_role("button", name=re.compile(r"^Move \d")).click()
    link = page.get_by_role("link", name="Submitted: operation")
    expect(link).to_be_visible(timeout=SOON)
    expect(page.get_by_text("✓ succeeded: Moved and seen: 2 in b.")).to_be_visible(timeout=SOON)
    assert {read_assignments(store)[game_key(name)].group for name in ("Aurora arena", "Cinder arena")} == {"b"}
    expect(page.get_by_role("dialog").get_by_role("button", name="Undo…")).to_be_visible(timeout=SOON)
    link.click()
    expect(page.get_by_text("Move of Aurora arena, Cinder arena")).to_be_visible(timeout=SOON)
    expect(page.get_by_role("button", name="Undo…")).to_be_enabled(timeout=SOON)
    page.wait_for_url(lambda url: "/operations?operation=" in url)


@pytest.mark.proves("G116")
def test_a_double_click_asks_once(page: Page, store: Engine) -> None:
    """Two fast clicks on the confirmation are one operation."""
    page.goto(f"/game?game={game_key('Gale quest')}")
    page.get_by_role("button", name="Pause…").click(timeout=SOON)
    page.get_by_role("button", name=re.compile(r"^Pause \d")).dblclick(timeout=SOON)
    expect(page.get_by_role("link", name="Submitted: operation")).to_be_visible(timeout=SOON)
    expect(page.get_by_text("✓ succeeded: Paused")).to_be_visible(timeout=SOON)
    assert operations_of(store, "Gale quest") == ["pause"]


@pytest.mark.proves("G116")
def test_a_tab_that_is_closed_loses_nothing(browser: Browser, address: str, store: Engine) -> None:
    """A tab closed in the very moment of the confirmation leaves an operation that is brought to its end."""
    with opened(browser, address) as page:
        with page.expect_websocket() as connected:
            page.goto(f"/game?game={game_key('Iris quest')}")
        page.get_by_role("button", name="Pause…").click(timeout=SOON)
        confirm = page.get_by_role("button", name=re.compile(r"^Pause \d"))
        expect(confirm).to_be_visible(timeout=SOON)
        # The server answers, so it has the click: what a browser that goes away has only sent, TCP may drop. The page
        # asks for its refreshes on the same connection.
        with connected.value.expect_event("framesent", lambda frame: b"ask_" in frame):
            confirm.click()
        connected.value.wait_for_event("framereceived")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not _ended(store, "Iris quest"):
        time.sleep(0.1)
    assert _ended(store, "Iris quest") == ["succeeded"]
    assert operations_of(store, "Iris quest") == ["pause"]


def _ended(store: Engine, name: str) -> list[str]:
    found = [each for each in list_operations(store) if f"game:{game_key(name)}" in each.targets]
    return [each.state for each in found if not each.is_open]


@pytest.mark.long
def test_a_repair_is_refused_with_its_reason_or_done(page: Page, store: Engine) -> None:
    """A stream that waits for nothing is not retried, and the page says why; the parked one is tried again."""
    page.goto("/repairs")
    choose(page, "Games", "Harbor quest")
    page.get_by_role("button", name="Preview the retry").click()
    expect(page.get_by_text("There is no failure to try again after, and its lane is RUN.")).to_be_visible(timeout=SOON)
    expect(page.get_by_role("button", name=re.compile(r"^Retry \d"))).to_have_count(0)
    assert operations_of(store, "Harbor quest") == []
    page.goto("/repairs")
    choose(page, "Games", "Fjord arena")
    page.get_by_role("button", name="Preview the retry").click()
    page.get_by_role("button", name=re.compile(r"^Retry \d")).click(timeout=SOON)
    expect(page.get_by_text("✓ succeeded: Tried again")).to_be_visible(timeout=SOON)
    assert operations_of(store, "Fjord arena") == ["retry"]


@pytest.mark.long
def test_a_group_is_drained_and_takes_no_more(page: Page, store: Engine) -> None:
    """A group chosen by its name is drained with its words typed: its games run elsewhere, and it gets no more."""
    page.goto("/groups")
    take(page, "Group", "a")
    games = sum(assignment.group == "a" for assignment in read_assignments(store).values())
    page.get_by_role("button", name="Drain…").click(timeout=SOON)
    expect(page.get_by_text(re.compile(r"\+ group a +drained"))).to_be_visible(timeout=SOON)
    page.get_by_label("Reason").fill("new machine")
    page.get_by_label(f"Type DRAIN {games} to confirm").fill(f"DRAIN {games}")
    page.get_by_role("button", name=re.compile(r"^Drain \d")).click()
    expect(page.get_by_text("✓ succeeded: Moved and seen")).to_be_visible(timeout=60_000)
    assert {assignment.group for assignment in read_assignments(store).values()} == {"b"}
    assert read_group_liveness(store)["a"].desired == "drained"
    dismiss(page)
    expect(page.locator(".st-key-card_group_a").get_by_text("○ drained")).to_be_visible(timeout=SOON)
    take(page, "Group", "a")
    expect(page.get_by_text("✗ Drain: It takes no games, and has none.")).to_be_visible(timeout=SOON)


def test_a_reload_keeps_what_is_chosen(page: Page) -> None:
    """Choices made one after the other are in the URL by their keys, and there again after a reload."""
    page.goto("/groups?games=gone_x1")
    expect(page.get_by_text("The link names unknown values")).to_be_visible(timeout=SOON)
    names = ("Basalt quest", "Dune quest", "Ember quest")
    for name in names:
        choose(page, "Games", name)
    take(page, "To group", "b")
    keys = "&".join(f"games={game_key(name)}" for name in names)
    page.wait_for_url(f"**/groups?{keys}&games=gone_x1&to=b", timeout=SOON)
    page.get_by_role("button", name="Remove from the link").click()
    page.wait_for_url(f"**/groups?{keys}&to=b", timeout=SOON)
    page.reload()
    for name in names:
        expect(page.get_by_text(f"{name} · {game_key(name)}")).to_be_visible(timeout=SOON)
    expect(page.get_by_text("The link names unknown values")).to_have_count(0)


@pytest.mark.long
def test_a_group_is_made_and_stopped_started_and_restarted(page: Page, store: Engine) -> None:
    """A group made on the page gets a driver from the controller, and obeys from then on; a reload keeps it chosen."""
    page.goto("/groups")
    page.get_by_text("Make a group").click(timeout=SOON)
    page.get_by_label("Name").fill("spring")
    page.get_by_role("spinbutton", name="Capacity in cores").fill("2")
    page.get_by_role("button", name="Preview the group").click()
    expect(page.get_by_text("The controller starts its driver.")).to_be_visible(timeout=SOON)
    assert "spring" not in read_groups(store)
    page.get_by_label("Reason").fill("spring launch")
    page.get_by_role("button", name="Make group spring").click()
    expect(page.get_by_text("✓ Group spring is made.")).to_be_visible(timeout=SOON)
    dismiss(page)
    settled(page)
    take(page, "Group", "spring")
    page.wait_for_url("**/groups?steer=spring", timeout=SOON)
    page.reload()
    for kind, said in (("stop", "Stopped"), ("start", "Started"), ("restart", "Restarted")):
        page.get_by_role("button", name=f"{kind.capitalize()}…", exact=True).click(timeout=SOON)
        page.get_by_label("Reason", exact=True).fill("to see that it obeys")
        page.get_by_label(f"Type {kind.upper()} 0 to confirm").fill(f"{kind.upper()} 0")
        page.get_by_role("button", name=re.compile(rf"^{kind.capitalize()} \d")).click()
        expect(page.get_by_text(f"✓ succeeded: {said} and seen: spring.")).to_be_visible(timeout=60_000)
        dismiss(page)
        chosen_again(page)
    driver = active_drivers(store)["spring"]
    assert driver.state == "running"
    assert driver.process.pid != os.getpid()
    page.get_by_role("button", name="Change…").click()
    page.get_by_role("spinbutton", name="Capacity in cores").fill("")
    page.get_by_role("button", name="Preview the change").click()
    expect(page.get_by_text("capacity: 2 cores → no limit")).to_be_visible(timeout=SOON)
    page.get_by_role("button", name="Change group spring").click()
    expect(page.get_by_text("✓ Group spring is changed.")).to_be_visible(timeout=SOON)
    assert read_groups(store)["spring"].capacity_cores is None
