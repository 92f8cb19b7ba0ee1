"""The page of one game in a real browser: what an operator sees, clicks and copies."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from pipeline.base.names import game_key
from tests.browser.seed import HOSTILE, fleet_of_forty, heartbeats, seed
from tests.browser.served import CHROMIUM, opened, served, sign_in
from tests.checkout import ROOT

SCREENSHOTS = ROOT / "artefacts" / "screenshots"

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
    """Open an empty page at the app's address; a complaint in its console fails the test."""
    with opened(browser, address) as empty:
        yield empty


def _settled(page: Page) -> None:
    expect(page.locator('[data-testid="stApp"]')).to_have_attribute(
        "data-test-script-state", "notRunning", timeout=30_000
    )


@pytest.mark.long
def test_a_row_opens_its_game_in_place(page: Page) -> None:
    """The key in a row of neighbours opens that game's page in the same tab."""
    page.goto(f"/game?game={game_key('Harbor quest')}")
    expect(page.get_by_text(f"key {game_key('Harbor quest')}")).to_be_visible(timeout=30_000)
    neighbours = page.locator('[data-testid="stDataFrame"]').last
    expect(neighbours.locator("td", has_text=game_key("Fjord arena"))).to_be_attached(timeout=15_000)
    neighbours.click(position={"x": 430, "y": 53})
    expect(page.get_by_text(f"key {game_key('Fjord arena')}")).to_be_visible(timeout=30_000)
    assert len(page.context.pages) == 1


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_screenshots(browser: Browser, address: str, scheme: str) -> None:
    """The page draws to the end in both themes; the screenshots are kept for people."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, base_url=address, color_scheme="dark" if scheme == "dark" else "light"
    )
    sign_in(context, address)
    page = context.new_page()
    page.goto(f"/game?game={game_key('Fjord arena')}")
    expect(page.get_by_text("nothing landed for")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("No driver reported this game in this time.")).to_be_visible(timeout=30_000)
    expect(page.locator('[data-testid="stDataFrame"] table')).to_have_count(2, timeout=30_000)
    page.screenshot(path=SCREENSHOTS / f"game-{scheme}.png", full_page=False)
    page.set_viewport_size({"width": 1440, "height": 1500})
    _settled(page)
    page.screenshot(path=SCREENSHOTS / f"game-long-{scheme}.png")
    context.close()
