"""Lists of a page, as a person uses them: type and take what is offered.

A list that is open closes once its page scrolls, as one that Back has opened does while it is drawn, and keeps the
typed text: a person opens it again, and so do these. A list that never offers the line fails the test.
"""

from collections.abc import Callable
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from pipeline.base.names import game_key

SOON: Final = 30_000
_TRIES: Final = 6

PALETTE: Final = "Game, group, operation, page or action"
"""The box of the palette, which a letter opens on every page."""


def settled(page: Page) -> None:
    """Wait until all of the page that a click has changed is drawn."""
    expect(page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]')).to_be_visible(timeout=SOON)


def take(page: Page, box: str, name: str) -> None:
    """Open a list and click what it offers."""
    field = page.get_by_role("combobox", name=box, exact=True)
    _take(page, name, lambda: field.click(timeout=SOON))


def choose(page: Page, box: str, name: str) -> None:
    """Choose a game by its name: type it, click the one that is offered."""
    field = page.get_by_role("combobox", name=box)
    _take(page, f"{name} · {game_key(name)}", lambda: field.fill(name, timeout=SOON))
    field.press("Escape")


def enter(page: Page, box: str, typed: str) -> None:
    """Type into a list, and press Enter once its first line has the focus."""
    field, first = page.get_by_role("combobox", name=box, exact=True), page.get_by_role("option").first
    expect(field).to_be_visible(timeout=SOON)
    settled(page)
    for _ in range(_TRIES):
        field.fill("", timeout=SOON)
        field.press_sequentially(typed, timeout=SOON)
        if _focused(first):
            field.press("Enter")
            return
        page.keyboard.press("Escape")
    pytest.fail(f"{box} never offered a line for {typed}")


def find(page: Page, letters: str) -> None:
    """Press the letter, go into the list, type, and take its first line."""
    expect(page.get_by_role("button", name="Find")).to_be_visible(timeout=SOON)
    settled(page)
    page.keyboard.press("s")
    expect(page.get_by_role("dialog").get_by_role("combobox", name=PALETTE)).to_be_visible(timeout=SOON)
    page.keyboard.press("Tab")
    page.keyboard.type(letters)
    expect(page.get_by_role("option").first).to_have_attribute("data-focused", "true", timeout=SOON)
    page.keyboard.press("Enter")


def _take(page: Page, name: str, open_list: Callable[[], None]) -> None:
    option = page.get_by_role("option", name=name, exact=True)
    for _ in range(_TRIES):
        open_list()
        try:
            option.click(timeout=SOON / _TRIES)
        except PlaywrightTimeout:
            page.keyboard.press("Escape")
        else:
            return
    pytest.fail(f"no list offered {name}")


def _focused(line: Locator) -> bool:
    try:
        expect(line).to_have_attribute("data-focused", "true", timeout=SOON / _TRIES)
    except AssertionError:
        return False
    return True
