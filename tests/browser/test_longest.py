"""No page cuts a text, whatever the length of names, numbers and reasons, on the two narrowest screens of a desk."""

from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from pipeline.base.names import game_key
from tests.browser.lists import settled
from tests.browser.longest_world import GROUP, LONG, UNBROKEN, longest
from tests.browser.served import CHROMIUM, opened, served
from tests.checkout import ROOT

SOON: Final = 60_000
SCREENSHOTS: Final = ROOT / "artefacts" / "screenshots"
PAGES: Final[Mapping[str, tuple[str, str]]] = {
    "fleet": ("/", "Streams by group"),
    "game": (f"/game?game={game_key(LONG)}", "What can be done"),
    "game refused": (f"/game?game={game_key('Chess')}", "What can be done"),
    "game derived": (f"/game?game={game_key('Chess')}&rows=derived", "What can be done"),
    "game contract": (f"/game?game={game_key('Chess')}&rows=contract", "What can be done"),
    "groups": ("/groups", "All groups"),
    "steer": (f"/groups?steer={GROUP}", "The group and its games"),
    "games": (f"/games?name={game_key(f'{LONG} II')}", "Onboarding rules"),
    "schemas": (f"/schemas?game={game_key('Chess')}", "What changes from version"),
    "repairs": ("/repairs", "Evidence"),
    "access": (f"/access?why_game={game_key(LONG)}", "Drift"),
    "access change": (f"/access?view=change&of_games={game_key(UNBROKEN)}", "Preview the grant"),
    "access requests": ("/access?view=requests", "Approve…"),
    "access silver": ("/access?game_text=silver", "Choose a cell"),
    "access producers": ("/access?view=producers", "Producers of the gRPC edge"),
    "operations": ("/operations", "Earlier"),
    "history of a game": (f"/operations?history={game_key('Chess')}", "History of Chess"),
    "alerts": ("/alerts", "No server of alerts is configured"),
    "runbook": (f"/runbook?name=turnoutstreamdown&game={game_key(LONG)}", "Mitigation"),
    "audit": ("/audit", "Verify the log"),
    "books": ("/books", "Games by days"),
}
"""A page → its address, and a text that stands on it once it is drawn."""

WIDTHS: Final = (1280, 1440)
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]

CLIPPED: Final = (ROOT / "tests" / "browser" / "clipped.js").read_text("utf-8")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("longest")
    with longest(folder), served(folder) as started:
        yield started


def drawn(page: Page, name: str, width: int) -> None:
    """Open a page on a screen of this width, and wait until all of it is drawn."""
    path, text = PAGES[name]
    page.set_viewport_size({"width": width, "height": 1000})
    page.goto(f"{path}{'&' if '?' in path else '?'}every=60s")
    expect(page.get_by_text(text).first).to_be_attached(timeout=SOON)
    expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0, timeout=SOON)
    charts = page.locator('[data-testid="stVegaLiteChart"]')
    for number in range(charts.count()):
        expect(charts.nth(number).locator("svg").first).to_be_attached(timeout=SOON)
    settled(page)


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut(browser: Browser, address: str, name: str) -> None:
    """With the longest values no text is clipped, no table is wider than its place, no words of a chart overlap."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    found = {}
    with opened(browser, address) as page:
        for width in WIDTHS:
            drawn(page, name, width)
            page.screenshot(path=SCREENSHOTS / f"longest-{name.replace(' ', '-')}-{width}.png")
            found[width] = page.evaluate(CLIPPED)
    assert found == {width: [] for width in WIDTHS}
