"""The palette and the inbox in a real browser: one letter, a few letters of a name, Enter."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, WebSocket, expect

from pipeline.base.names import game_key
from tests.browser.lists import PALETTE, SOON, find, settled
from tests.browser.seed import Seeded, heartbeats, seed
from tests.browser.served import CHROMIUM, opened, served

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]
_GAMES = 1_000
_MOST_SECONDS = 1.0
_CLOSED_BYTES = 4_000
"""Most bytes of one refresh of the bar: the inbox, and the button that opens the palette."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("palette")
    games = [Seeded(f"Game number {number:04}", "ab"[number % 2], {}) for number in range(_GAMES)]
    seed(folder, games, now=time.time(), history=False)
    with heartbeats(folder, ("ingest", "a", "b")), served(folder) as started:
        yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as empty:
        yield empty


@pytest.mark.parametrize("path", ["/audit", *(pytest.param(each, marks=pytest.mark.long) for each in ("/", "/books"))])
def test_a_letter_finds_a_game_on_every_page(page: Page, path: str) -> None:
    """Without the pointer: `S`, Tab, letters of a name and Enter open that very game among a thousand."""
    page.goto(path)
    find(page, "number 0777")
    page.wait_for_url(lambda url: f"game={game_key('Game number 0777')}" in url, timeout=SOON)
    expect(page.get_by_role("dialog")).to_have_count(0, timeout=SOON)


@pytest.mark.long
def test_an_act_on_a_group_is_planned_in_its_drawer(page: Page) -> None:
    """The palette leads to the drawer of a group with the plan in it; Cancel shows the group, Escape closes it."""
    page.goto("/")
    find(page, "drain group b")
    expect(page.get_by_role("dialog").get_by_role("button", name="Drain 500 games")).to_be_visible(timeout=SOON)
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog").get_by_text("The group and its games")).to_be_visible(timeout=SOON)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0, timeout=SOON)
    page.wait_for_url(lambda url: "steer" not in url, timeout=SOON)


@pytest.mark.long
def test_a_thousand_games_are_there_within_a_second(page: Page) -> None:
    """The palette of 1,000 games is open within 1 s, also the second time."""
    page.goto("/audit")
    expect(page.get_by_role("button", name="Find")).to_be_visible(timeout=SOON)
    settled(page)
    for _ in range(2):
        begun = time.monotonic()
        page.keyboard.press("s")
        expect(page.get_by_role("dialog").get_by_role("combobox", name=PALETTE)).to_be_visible(timeout=SOON)
        took = time.monotonic() - begun
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0, timeout=SOON)
    assert took < _MOST_SECONDS


@pytest.mark.long
def test_a_closed_palette_sends_nothing(page: Page) -> None:
    """While the palette is closed the bar's refreshes are a few kB, however many games there are."""
    sizes: list[int] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: sizes.append(len(frame)))

    page.on("websocket", listen)
    page.goto("/audit?every=60s")
    expect(page.get_by_role("button", name="Find")).to_be_visible(timeout=SOON)
    settled(page)
    sizes.clear()
    page.wait_for_timeout(12_000)  # one refresh of the bar
    assert 0 < sum(sizes) < _CLOSED_BYTES
