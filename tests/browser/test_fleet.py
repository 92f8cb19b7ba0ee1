"""The Fleet page in a real browser: what an operator sees at a glance, clicks and copies."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pipeline.base.names import game_key
from tests.browser.lists import SOON, enter
from tests.browser.seed import fleet_of_forty, heartbeats, seed
from tests.browser.served import CHROMIUM, opened, served, sign_in
from tests.checkout import ROOT

SCREENSHOTS = ROOT / "artefacts" / "screenshots"
HEADLINE = "3 of 40 streams failing, 1 lagging, 1 at risk"

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the app over a seeded environment as an operator does, and stop it afterwards."""
    folder = tmp_path_factory.mktemp("environment")
    (folder / "turnout.toml").write_text("[dashboard]\nrefresh_seconds = 2\n")
    seed(folder, fleet_of_forty(), now=time.time())
    with heartbeats(folder, ("ingest", "a", "b")), served(folder) as started:
        yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Open an empty page at the app's address; a complaint of its console fails the test."""
    with opened(browser, address) as empty:
        yield empty


def cell(page: Page, text: str) -> Locator:
    """Find a table's cell: the canvas that is drawn holds a table for screen readers."""
    return page.locator('[data-testid="stDataFrame"] td[role="gridcell"]', has_text=text).first


def in_grid(page: Page, text: str) -> Locator:
    return page.locator(f'.st-key-card_grid [data-testid="stVegaLiteChart"] svg path[aria-label*="{text}"]').first


def test_the_fleet_is_read_at_a_glance(page: Page) -> None:
    """The page says in one sentence what is wrong, then by cause, and the worst game is the first row."""
    page.goto("/")
    expect(page.get_by_text(HEADLINE, exact=True)).to_be_visible(timeout=SOON)
    expect(page.get_by_text("Harbor quest stalled", exact=True)).to_be_visible(timeout=SOON)
    expect(page.get_by_text("data as of")).to_be_visible()
    expect(cell(page, "✗ failed")).to_be_attached(timeout=SOON)
    expect(page.get_by_role("button", name="■ stalled 1")).to_be_visible(timeout=SOON)
    expect(page.locator('[data-testid="stDataFrame"] table')).to_have_attribute("aria-rowcount", "41")


def test_a_link_restores_the_filters(page: Page) -> None:
    """Opening a link with filters shows the same games, and clearing a filter clears the URL."""
    page.goto("/?status=FAILED&group=b&q=arena&trouble=true&range=6h")
    expect(page.get_by_text("1 of 40")).to_be_visible(timeout=SOON)
    expect(page.get_by_placeholder("Name or key")).to_have_value("arena", timeout=SOON)
    page.get_by_placeholder("Name or key").fill("")
    expect(page.get_by_text("2 of 40")).to_be_visible(timeout=SOON)
    page.wait_for_url(lambda url: "q=" not in url and "status=FAILED" in url and "range=6h" in url)


def test_a_status_and_a_key_filter_and_write_the_url(page: Page) -> None:
    """A pill shows its games only, `F` those in trouble, and the URL can be copied."""
    page.goto("/")
    page.get_by_role("button", name="■ stalled 1").click(timeout=SOON)
    expect(page.get_by_text("1 of 40")).to_be_visible(timeout=SOON)
    page.wait_for_url(lambda url: "status=STALLED" in url)
    page.get_by_role("button", name="■ stalled 1").click(timeout=SOON)
    expect(page.get_by_text("40 of 40")).to_be_visible(timeout=SOON)
    page.keyboard.press("f")
    expect(page.get_by_text("5 of 40")).to_be_visible(timeout=SOON)
    page.wait_for_url(lambda url: "trouble=true" in url and "status" not in url)


def test_a_cell_of_the_grid_opens_its_game(page: Page) -> None:
    """A click on a game's cell opens that very game, found by its key and not by its place."""
    page.goto("/?status=STALLED")
    in_grid(page, "Harbor quest").click(timeout=SOON)
    page.wait_for_url(lambda url: f"game={game_key('Harbor quest')}" in url, timeout=SOON)


def test_a_row_opens_its_game_in_place_and_back_leads_to_the_filtered_rows(page: Page) -> None:
    """The name in a row opens that game's page in the same tab; Back and the crumb lead to the rows again."""
    page.goto("/?q=harbor+quest")
    expect(page.get_by_text("1 of 40")).to_be_visible(timeout=SOON)
    expect(cell(page, "Harbor quest")).to_be_attached(timeout=SOON)
    page.locator('[data-testid="stDataFrame"]').first.click(position={"x": 170, "y": 53})
    page.wait_for_url(lambda url: f"/game?game={game_key('Harbor quest')}" in url, timeout=SOON)
    assert len(page.context.pages) == 1
    crumb = page.locator(".st-key-crumb").get_by_role("link", name="Fleet", exact=True)
    expect(crumb).to_be_visible(timeout=SOON)
    page.go_back()
    expect(page.get_by_text("1 of 40")).to_be_visible(timeout=SOON)
    page.go_forward()
    crumb.click(timeout=SOON)
    expect(page.get_by_text("1 of 40")).to_be_visible(timeout=SOON)
    expect(page.get_by_placeholder("Name or key")).to_have_value("harbor quest", timeout=SOON)


def test_the_keyboard_alone_opens_a_game_of_the_table(page: Page) -> None:
    """Whoever uses no pointer types a name below the table and presses Enter; the game's page opens in place."""
    page.goto("/")
    enter(page, "Open a game", "harbor quest")
    page.wait_for_url(lambda url: f"game={game_key('Harbor quest')}" in url, timeout=SOON)


def test_a_refresh_replaces_no_chart_and_keeps_the_place(page: Page) -> None:
    """While the page is drawn again its charts and table stay the same nodes: nothing flickers or jumps."""
    page.goto("/?every=2s")
    expect(in_grid(page, "Harbor quest")).to_be_visible(timeout=SOON)
    expect(cell(page, "✗ failed")).to_be_attached(timeout=SOON)
    page.evaluate(
        "document.querySelectorAll('[data-testid=stVegaLiteChart] svg, [data-testid=stDataFrame] canvas')"
        ".forEach(node => node.dataset.seen = 'before')"
    )
    marked = page.locator('[data-seen="before"]').count()
    assert marked >= 2
    clock = page.get_by_text("data as of")
    for _ in range(2):
        shown = clock.inner_text()
        page.wait_for_function("shown => !document.body.innerText.includes(shown)", arg=shown, timeout=SOON)
    expect(clock).to_be_visible()
    assert page.locator('[data-seen="before"]').count() == marked


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.long)])
def test_screenshots(browser: Browser, address: str, scheme: str) -> None:
    """The page draws to the end in both themes, also on a narrow screen, without sideways scroll; kept for people."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(
        viewport={"width": 1440, "height": 1330}, base_url=address, color_scheme="dark" if scheme == "dark" else "light"
    )
    sign_in(context, address)
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_text(HEADLINE, exact=True)).to_be_visible(timeout=SOON)
    expect(in_grid(page, "Harbor quest")).to_be_visible(timeout=SOON)
    expect(cell(page, "✗ failed")).to_be_attached(timeout=SOON)
    page.screenshot(path=SCREENSHOTS / f"fleet-{scheme}.png")
    page.set_viewport_size({"width": 834, "height": 1100})
    expect(page.get_by_text(HEADLINE, exact=True)).to_be_visible(timeout=SOON)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=SCREENSHOTS / f"fleet-narrow-{scheme}.png")
    context.close()
