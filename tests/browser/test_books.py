"""The Books page in a browser."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.books_world import CHESS, GO, LUDO, with_books
from tests.browser.lists import SOON
from tests.browser.seed import fleet_of_forty, heartbeats, seed
from tests.browser.served import opened, served


@pytest.mark.long
def test_books_are_found_by_a_game(browser: Browser, tmp_path: Path) -> None:
    """The books of a game are two clicks and a word from any page, and the word stands in the URL."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    with_books(tmp_path)
    with heartbeats(tmp_path, ["ingest", "a", "b"]), served(tmp_path) as url, opened(browser, url) as page:
        page.goto("/groups")
        page.get_by_role("link", name="Books").click(timeout=SOON)
        expect(page.get_by_text("1 day needs a person to close")).to_be_visible(timeout=SOON)
        page.get_by_placeholder("game").fill("aurora")
        page.wait_for_url(lambda at: "q=aurora" in at)
        cells = page.locator('[data-testid="stDataFrame"]').nth(1).locator("td")
        expect(cells.filter(has_text=CHESS).first).to_be_attached(timeout=SOON)
        expect(page.get_by_text("3 of 3")).to_be_visible(timeout=SOON)


@pytest.mark.long
def test_books_say_how_each_day_is_and_why(browser: Browser, tmp_path: Path) -> None:
    """Each day has its state as a word, and its reason; a game that cannot be read is not known, and never closed."""
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    with_books(tmp_path)
    with heartbeats(tmp_path, ["ingest", "a", "b"]), served(tmp_path) as url, opened(browser, url) as page:
        page.goto("/books")
        tables = page.locator('[data-testid="stDataFrame"]')
        matrix, days = tables.nth(0).locator("td"), tables.nth(1).locator("td")
        for text in ("± 996", "✓ 900", "▲", "not known: its table cannot be read"):
            expect(matrix.filter(has_text=text).first).to_be_attached(timeout=SOON)
        for text in (
            "▲ needs a person", "Bronze lost rows that may have been of the day <b>.",
            "○ open", "Bronze is not known to be complete through its end.",
            "corrected", "agreed <i>", "1abcdef1",
        ):  # fmt: skip
            expect(days.filter(has_text=text).first).to_be_attached(timeout=SOON)
        for game, rows in ((GO, 1), (CHESS, 3), (LUDO, 0)):
            page.get_by_placeholder("game").fill(game)
            shown = page.get_by_text("No game matches.") if rows == 0 else page.get_by_text(f"{rows} of {rows}")
            expect(shown).to_be_visible(timeout=SOON)
