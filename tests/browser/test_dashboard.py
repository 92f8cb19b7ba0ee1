"""The real app in a real browser: what an operator sees, clicks and copies."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pipeline.names import game_key
from tests.browser.seed import HOSTILE, fleet_of_forty, heartbeats, seed
from tests.browser.served import CHROMIUM, ROOT, opened, served, sign_in

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
    seed(folder, fleet_of_forty(), now=time.time())
    with heartbeats(folder, ("ingest", "a", "b")), served(folder) as started:
        yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Open an empty page at the app's address; what its console complained of fails the test."""
    with opened(browser, address) as empty:
        yield empty


def _settled(page: Page) -> None:
    expect(page.locator('[data-testid="stApp"]')).to_have_attribute(
        "data-test-script-state", "notRunning", timeout=30_000
    )


def _cell(page: Page, text: str) -> Locator:
    """Find a table's cell: the canvas that is drawn holds a table for screen readers."""
    return page.locator('[data-testid="stDataFrame"] td[role="gridcell"]', has_text=text).first


def _glyph(page: Page, status: str) -> Locator:
    return page.locator(f'[data-testid="stVegaLiteChart"] text[aria-label*="{status}"]').first


def test_the_fleet_is_read_in_ten_seconds(page: Page) -> None:
    """The home page says in one sentence what is wrong, and the worst game is the first row."""
    page.goto("/")
    expect(page.get_by_text(HEADLINE, exact=True)).to_be_visible(timeout=30_000)
    expect(_cell(page, "✗ failed")).to_be_attached(timeout=15_000)
    expect(page.get_by_role("button", name="■ 1 stalled")).to_be_visible()
    expect(page.get_by_text("data as of")).to_be_visible()
    expect(page.locator('[data-testid="stDataFrame"] table')).to_have_attribute("aria-rowcount", "41")


def test_a_link_restores_the_filters(page: Page) -> None:
    """Opening a link with filters shows the same games, and clearing a filter clears the URL."""
    page.goto("/?status=FAILED&group=b&q=arena&trouble=true")
    expect(page.get_by_text("1 of 40 games")).to_be_visible(timeout=30_000)
    expect(page.get_by_placeholder("part of a name or key")).to_have_value("arena")
    page.get_by_placeholder("part of a name or key").fill("")
    expect(page.get_by_text("2 of 40 games")).to_be_visible(timeout=15_000)
    page.wait_for_url(lambda url: "q=" not in url and "status=FAILED" in url)


def test_a_count_filters_and_writes_the_url(page: Page) -> None:
    """Pressing a count shows its games only, and the URL can be copied."""
    page.goto("/")
    page.get_by_role("button", name="■ 1 stalled").click(timeout=30_000)
    expect(page.get_by_text("1 of 40 games")).to_be_visible(timeout=15_000)
    page.wait_for_url(lambda url: "status=STALLED" in url)


def test_a_cell_of_the_grid_opens_its_game(page: Page) -> None:
    """A click on a game's cell opens that very game, found by its key and not by its place."""
    page.goto("/?status=STALLED")
    expect(page.get_by_text("1 of 40 games")).to_be_visible(timeout=30_000)
    _glyph(page, "stalled").click()
    expect(page.get_by_text(f"key {game_key('Harbor quest')}")).to_be_visible(timeout=30_000)
    page.wait_for_url(lambda url: f"game={game_key('Harbor quest')}" in url)
    page.get_by_role("link", name="Fleet").click()
    expect(page.get_by_text(HEADLINE, exact=True)).to_be_visible(timeout=30_000)


def test_a_row_opens_its_game_in_place(page: Page) -> None:
    """The key in a row opens that game's page in the same tab, also from one game's page to another's."""
    page.goto("/?q=harbor+quest")
    expect(page.get_by_text("1 of 40 games")).to_be_visible(timeout=30_000)
    table = page.locator('[data-testid="stDataFrame"]').first
    expect(_cell(page, game_key("Harbor quest"))).to_be_attached(timeout=15_000)
    table.click(position={"x": 420, "y": 53})
    expect(page.get_by_text(f"key {game_key('Harbor quest')}")).to_be_visible(timeout=30_000)
    page.wait_for_url(lambda url: f"/game?game={game_key('Harbor quest')}" in url)
    neighbours = page.locator('[data-testid="stDataFrame"]').last
    expect(neighbours.locator("td", has_text=game_key("Fjord arena"))).to_be_attached(timeout=15_000)
    neighbours.click(position={"x": 350, "y": 53})
    expect(page.get_by_text(f"key {game_key('Fjord arena')}")).to_be_visible(timeout=30_000)
    assert len(page.context.pages) == 1


def test_the_keyboard_alone_opens_a_game_of_the_table(page: Page) -> None:
    """Whoever uses no pointer types a name below the table and presses Enter; the game's page opens in place."""
    page.goto("/")
    page.get_by_role("combobox", name="Open a game").press_sequentially("harbor quest", timeout=30_000)
    expect(page.get_by_role("option").first).to_be_visible(timeout=15_000)
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"key {game_key('Harbor quest')}")).to_be_visible(timeout=30_000)
    assert len(page.context.pages) == 1


def test_hostile_names_do_nothing(page: Page) -> None:
    """A name made of script, HTML and Markdown is shown letter by letter and runs nowhere."""
    page.goto(f"/game?game={game_key(HOSTILE[0])}")
    expect(page.get_by_text("<script>document.title='owned'</script>")).to_be_visible(timeout=30_000)
    _settled(page)
    assert page.title() != "owned"
    assert page.locator("img[src=x]").count() == 0
    page.goto(f"/game?game={game_key(HOSTILE[1])}")
    expect(page.get_by_text("**bold** [click](javascript:alert(1))")).to_be_visible(timeout=30_000)
    assert page.locator('a[href^="javascript"]').count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshots(browser: Browser, address: str, scheme: str) -> None:
    """Both pages draw to the end in both themes; the screenshots are kept for people."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, base_url=address, color_scheme="dark" if scheme == "dark" else "light"
    )
    sign_in(context, address)
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_text(HEADLINE, exact=True)).to_be_visible(timeout=30_000)
    expect(_glyph(page, "stalled")).to_be_visible(timeout=15_000)
    expect(_cell(page, "✗ failed")).to_be_attached(timeout=15_000)
    page.screenshot(path=SCREENSHOTS / f"fleet-{scheme}.png")
    page.goto(f"/game?game={game_key('Fjord arena')}")
    expect(page.get_by_text("✗ Failed for")).to_be_visible(timeout=30_000)
    expect(page.locator('[data-testid="stVegaLiteChart"] svg')).to_have_count(4, timeout=30_000)
    expect(page.locator('[data-testid="stDataFrame"] table')).to_have_count(3, timeout=30_000)
    page.screenshot(path=SCREENSHOTS / f"game-{scheme}.png", full_page=False)
    page.set_viewport_size({"width": 1440, "height": 1500})
    _settled(page)
    page.screenshot(path=SCREENSHOTS / f"game-long-{scheme}.png")
    context.close()
