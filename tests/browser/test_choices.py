"""Games that are chosen by typing, in a real browser: an exact name and Enter choose that game and no other."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from pipeline.names import game_key
from tests.browser.seed import Seeded, beating, seed
from tests.browser.served import CHROMIUM, opened, served

SOON = 30_000
NAMES = ("A Chess", "Chess", "Chess Masters", "Chess960", "Cheap Guess", "Blitz/Chess", "Cheese dash", "Go")

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve an environment whose games have names that a search for one of them finds, too."""
    folder = tmp_path_factory.mktemp("choices")
    seed(folder, [Seeded(name, "a", {}) for name in NAMES], now=time.time(), history=False)
    with beating(folder, ("ingest", "a")), served(folder) as started:
        yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as empty:
        yield empty


@pytest.mark.parametrize(("place", "name"), [("groups", "Chess"), ("repairs", "Go")])
def test_an_exact_name_and_enter_choose_that_game(page: Page, place: str, name: str) -> None:
    """Of all games that a typed text fits, Enter takes the one with that very name, and no other with it."""
    page.goto(f"/{place}")
    field = page.get_by_role("combobox", name="Games")
    field.press_sequentially(name, timeout=SOON)
    expect(page.get_by_role("option").first).to_be_visible(timeout=SOON)
    field.press("Enter")
    page.wait_for_url(lambda url: "games=" in url, timeout=SOON)
    assert page.url.count("games=") == 1
    assert f"games={game_key(name)}" in page.url
