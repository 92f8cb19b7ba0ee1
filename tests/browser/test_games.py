"""The Games page in a real browser: a game from its proposal to its approval, rejections, rules, retired games."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect
from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.store.assignments import read_assignments
from pipeline.store.onboarding import onboarded, refusals
from pipeline.store.onboarding_rules import read_rules
from tests.browser.games_world import PROPOSED, RETIRED, WAITS, games_world
from tests.browser.lists import SOON, settled, take
from tests.browser.served import CHROMIUM, opened, served

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]
RULES = """version: 1
rules:
  - name: studio-b
    match: {prefixes: ["kestrel "]}
    readers: [analysts]
"""
EXPECTED = 60_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with games_world(tmp_path_factory.mktemp("games")) as running:
        yield running


@pytest.fixture(scope="module")
def address(store: Engine) -> Iterator[str]:
    with served(Path(str(store.url.database)).parent) as started:
        yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as empty:
        empty.goto("/games")
        expect(empty.get_by_text("Names that may become games")).to_be_visible(timeout=SOON)
        settled(empty)
        yield empty


def take_name(page: Page, box: str, name: str) -> None:
    take(page, box, f"{name} · {game_key(name)}")


def cell(page: Page, text: str, table: str) -> None:
    """See a text in a table, which is a picture with a table for screen readers in it."""
    drawn = page.locator(f'[class*="st-key-{table}"] td[role="gridcell"]', has_text=text).first
    expect(drawn).to_be_attached(timeout=SOON)


def until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)  # another thread writes it


def games_of(store: Engine) -> set[str]:
    return {each.candidate.game for each in onboarded(store)}


def test_a_proposed_game_is_approved_and_followed_to_its_group(page: Page, store: Engine) -> None:
    """A form proposes a game, its evidence is shown, and the approval is followed until its stream is live."""
    page.get_by_text("Propose a game that has sent nothing yet").click()
    page.get_by_label("Game", exact=True).fill("Nebula quest")
    page.get_by_label("Expected events per second").fill("25")
    page.get_by_role("button", name="Preview the proposal").click()
    expect(page.get_by_text("'Nebula quest': nothing has arrived")).to_be_visible(timeout=SOON)
    page.get_by_label("Reason", exact=True).fill("opens in May")
    page.get_by_role("button", name="Propose the game").click()
    expect(page.get_by_text("✓ 'Nebula quest' is proposed.")).to_be_visible(timeout=SOON)
    page.get_by_role("dialog").get_by_role("button", name="Dismiss").click()
    take_name(page, "Name to decide about", "Nebula quest")
    expect(page.get_by_text("opens in May", exact=True)).to_be_visible(timeout=SOON)
    page.get_by_text("Group, priority and readers").click()
    page.locator('[class*="st-key-wish_group"]').get_by_role("combobox").click()
    page.get_by_role("option", name="b", exact=True).click()
    page.get_by_role("button", name="Approve…", exact=True).first.click()
    expect(page.get_by_text("'Nebula quest': group b, priority normal, by no rule")).to_be_visible(timeout=SOON)
    page.get_by_role("button", name="Approve the game").click()
    expect(page.get_by_text("✓ succeeded: 'Nebula quest' is a game.")).to_be_visible(timeout=EXPECTED)
    assert read_assignments(store)[game_key("Nebula quest")].group == "b"


def test_a_rejected_name_comes_back_by_an_approval(page: Page, store: Engine) -> None:
    """A rejection takes a name and its proposal from the list, and the table of rejected names gives it back."""
    take_name(page, "Name to decide about", PROPOSED)
    page.get_by_role("button", name="Reject…").click()
    expect(page.get_by_text("The proposal of ann@example.com ends")).to_be_visible(timeout=SOON)
    page.get_by_label("Reason (may be empty)").fill("sold to another studio")
    page.get_by_role("button", name="Reject the name").click()
    expect(page.get_by_text(f"✓ '{PROPOSED}' is rejected.")).to_be_visible(timeout=SOON)
    page.get_by_role("dialog").get_by_role("button", name="Dismiss").click()
    cell(page, "sold to another studio", "card_games_rejected")
    assert refusals(store)[PROPOSED].reason == "sold to another studio"
    rejected = page.locator('[class*="st-key-card_games_rejected"]')
    take_name(page, "Rejected name", PROPOSED)
    rejected.get_by_role("button", name="Approve…").click()
    page.get_by_role("button", name="Approve the game").click()
    expect(page.get_by_text(f"✓ succeeded: '{PROPOSED}' is a game.")).to_be_visible(timeout=EXPECTED)
    assert PROPOSED in games_of(store)


def test_rules_of_a_file_are_shown_before_they_are_applied(page: Page, store: Engine) -> None:
    """A file of rules shows each rule that it changes and each waiting name that becomes a game by it."""
    page.get_by_text("Replace the rules by those of a file").click()
    given = FilePayload(name="rules.yml", mimeType="text/yaml", buffer=RULES.encode())
    page.locator('[class*="st-key-games_rules_form"] input[type="file"]').set_input_files(given)
    expect(page.get_by_text("rules.yml")).to_be_visible(timeout=SOON)
    page.get_by_role("button", name="Preview the rules").click()
    expect(page.get_by_text("- studio-a").first).to_be_visible(timeout=SOON)
    expect(page.get_by_text(f"'{WAITS}' (48,000 rows) becomes a game by studio-b")).to_be_visible(timeout=SOON)
    page.get_by_label("Reason", exact=True).fill("studio B moved in")
    page.get_by_role("button", name="Apply the rules").click()
    expect(page.get_by_text("✓ 1 rule is in force.")).to_be_visible(timeout=SOON)
    page.get_by_role("dialog").get_by_role("button", name="Dismiss").click()
    cell(page, "studio-b", "card_games_rules")
    cell(page, "'kestrel '", "card_games_rules")
    assert [each.name for each in read_rules(store).rules] == ["studio-b"]


def test_a_retired_game_is_restored(page: Page, store: Engine) -> None:
    """A retired game comes back from the table of retired games, and placement gives it a group."""
    retired = page.locator('[class*="st-key-card_games_retired"]')
    take_name(page, "Retired game", RETIRED)
    retired.get_by_role("button", name="Restore…").click()
    page.get_by_role("button", name=re.compile(r"^Restore \d")).click()
    expect(page.get_by_text("✓ succeeded: Restored").first).to_be_visible(timeout=EXPECTED)
    until(lambda: read_assignments(store)[game_key(RETIRED)].group in {"a", "b"}, "no group took it")
