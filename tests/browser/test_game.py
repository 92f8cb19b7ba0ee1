"""The Game page in a browser: what is chosen stands in the URL, and each link leads on in the same tab."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from pipeline.base.names import game_key
from tests.browser.game_world import failing_game, with_contract, with_derived, with_gold
from tests.browser.lists import SOON, enter
from tests.browser.seed import heartbeats
from tests.browser.served import opened, served
from tests.tables.repair_world import CHESS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("game")
    made = failing_game(folder, time.time())
    with_contract(made, time.time())
    with_derived(made, time.time())
    with_gold(made, time.time())
    made.engine.dispose()
    with heartbeats(folder, ["ingest", "a", "b"]), served(folder) as url:
        yield url


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as page:
        yield page


def test_rows_and_range_stand_in_the_url(page: Page) -> None:
    """A choice of rows and range survives a reload and can be shared; charts draw without a complaint."""
    page.goto(f"/game?game={CHESS.key}")
    expect(page.get_by_text("Rows of Chess refused since schema version 2")).to_be_visible(timeout=SOON)
    expect(page.locator('[data-testid="stVegaLiteChart"] svg')).to_have_count(3, timeout=SOON)
    page.get_by_role("radio", name="Landed").click()
    page.get_by_role("radio", name="6 h").click()
    page.wait_for_url(lambda url: "rows=landed" in url and "range=6h" in url and f"game={CHESS.key}" in url)
    page.reload()
    table = page.locator('[data-testid="stDataFrame"]').first
    expect(table.locator("td", has_text="clock_ms=").first).to_be_attached(timeout=SOON)
    expect(page.get_by_role("radio", name="6 h")).to_be_checked(timeout=SOON)


def test_a_contract_stands_beside_the_rows(page: Page) -> None:
    """Its rules, the rows that broke each and its readers stand in a tab that a link can name."""
    page.goto(f"/game?game={CHESS.key}")
    page.get_by_role("radio", name="Contract").click(timeout=SOON)
    page.wait_for_url(lambda url: "rows=contract" in url)
    page.reload()
    expect(page.get_by_text("3 rules · rows since")).to_be_visible(timeout=SOON)
    cells = page.locator('[data-testid="stDataFrame"]').first.locator("td")
    for text in ("play/clock_ms", "integer · at least 0", "never null · matches [a-h][1-8]", "BI <b>, daily revenue"):
        expect(cells.filter(has_text=text).first).to_be_attached(timeout=SOON)
    for text in (
        "at most 10 min are promised",
        "at most 1 h 0 min are promised",
        "play: move is unique: NOT CHECKED: ",
    ):
        expect(page.get_by_text(text)).to_be_visible(timeout=SOON)
    for exact in ("△ warn", "◆ quarantine", "■ stop", "6", "2", "0"):
        expect(cells.filter(has_text=re.compile(f"^{exact}$"))).to_have_count(1, timeout=SOON)


def test_derived_streams_stand_beside_the_rows(page: Page) -> None:
    """Tables that follow from the game's table stand in a tab that an alert's link names, the stopped one first."""
    page.goto(f"/game?game={CHESS.key}&rows=derived")
    expect(page.get_by_text("tables that follow from this game's table")).to_be_visible(timeout=SOON)
    cells = page.locator('[data-testid="stDataFrame"]').first.locator("td")
    for text in ("silver/moves_broken", "no column 'elo'", "no driver has carried it yet"):
        expect(cells.filter(has_text=text).first).to_be_attached(timeout=SOON)


def test_a_derived_stream_is_paused_by_a_click(page: Page) -> None:
    """Buttons of streams and of the game have names of their own; a preview stands before anything is submitted."""
    page.goto(f"/game?game={CHESS.key}&rows=derived")
    enter(page, "Derived stream", "moves_late")
    page.get_by_role("button", name="Repair stream…").click(timeout=SOON)
    expect(page.get_by_text("generation 3 with 160,000 rows")).to_be_visible(timeout=SOON)
    page.get_by_role("button", name="Cancel", exact=True).click(timeout=SOON)
    expect(page.get_by_role("button", name="Pause…")).to_have_count(1, timeout=SOON)
    page.get_by_role("button", name="Pause stream…").click(timeout=SOON)
    expect(page.get_by_text("1 to pause. Its driver ends a running commit")).to_be_visible(timeout=SOON)
    page.get_by_role("button", name="Pause the stream").click(timeout=SOON)
    expect(page.get_by_role("link", name="Submitted: operation")).to_be_visible(timeout=SOON)


def test_a_gold_table_is_drawn_below_its_streams(page: Page) -> None:
    """The choice of table and column stands in the URL; a table without a closed window is no chart of zeros."""
    page.goto(f"/game?game={CHESS.key}&rows=derived&column=clock")
    expect(page.get_by_text("windows of 1 min · computed through")).to_be_visible(timeout=SOON)
    charts = page.locator('[data-testid="stVegaLiteChart"] svg')
    expect(charts).to_have_count(4, timeout=SOON)
    expect(charts.nth(3).locator(".mark-rect path")).to_have_count(45, timeout=SOON)  # of 46 windows one has no value
    enter(page, "Gold table", "moves_by_hour")
    page.wait_for_url(lambda url: "gold=moves_by_hour" in url)
    expect(page.get_by_text("No window has closed yet.")).to_be_visible(timeout=SOON)
    expect(charts).to_have_count(3, timeout=SOON)


def test_links_lead_on_in_the_same_tab(page: Page) -> None:
    """A neighbour opens by its key; the next action of a cause opens the page that owns it, with the game chosen."""
    page.goto(f"/game?game={CHESS.key}")
    expect(page.get_by_text(f"key {CHESS.key}")).to_be_visible(timeout=SOON)
    page.get_by_role("button", name="Compare versions…").click(timeout=SOON)
    page.wait_for_url(lambda url: f"/schemas?game={CHESS.key}" in url)
    page.go_back()
    page.wait_for_url(lambda url: f"/game?game={CHESS.key}" in url)
    expect(page.get_by_role("button", name="Compare versions…")).to_be_visible(timeout=SOON)  # drawn to its end
    enter(page, "Open a game", "harbor quest")
    expect(page.get_by_text(f"key {game_key('Harbor quest')}")).to_be_visible(timeout=SOON)
    assert len(page.context.pages) == 1
