"""Games and principals chosen by typing, in a real browser: an exact name and Enter choose that one and no other."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page

from pipeline.base.names import game_key
from tests.browser.access_world import catalogued
from tests.browser.lists import SOON, enter
from tests.browser.served import CHROMIUM, opened, served
from tests.unit.grants.catalog_world import SCIM

NAMES = ("A Chess", "Chess", "Chess Masters", "Chess960", "Cheap Guess", "Blitz/Chess", "Cheese dash", "Go")
ACTIVE = ("anna", "bob@example.com.au", "etl-admin", "joann")
INACTIVE = ("ann", "bob@example.com")

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve an environment whose games and principals have names that a search for one of them finds, too."""
    folder = tmp_path_factory.mktemp("choices")
    with catalogued(folder, NAMES, dict.fromkeys(ACTIVE, ())) as world:
        for name in INACTIVE:
            off = {"op": "replace", "path": "active", "value": False}
            made = f"{SCIM}/Users/{world.server.make('Users', name)}"
            world.server.ok("PATCH", made, {"Operations": [off]})
        world.server.make("ServicePrincipals", "etl")
        world.look()
        with served(folder) as started:
            yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as empty:
        yield empty


@pytest.mark.parametrize(
    ("place", "name"), [("groups", "Chess"), pytest.param("repairs", "Go", marks=pytest.mark.long)]
)
def test_an_exact_name_and_enter_choose_that_game(page: Page, place: str, name: str) -> None:
    """Of all games that a typed text fits, Enter takes the one with that very name, and no other with it."""
    page.goto(f"/{place}")
    enter(page, "Games", name)
    page.wait_for_url(lambda url: "games=" in url, timeout=SOON)
    assert page.url.count("games=") == 1
    assert f"games={game_key(name)}" in page.url


@pytest.mark.parametrize(
    ("typed", "principal"),
    [
        pytest.param("ANN", "ann", marks=pytest.mark.long),
        pytest.param("etl", "etl", marks=pytest.mark.long),
        pytest.param(*("bob@example.com",) * 2, marks=pytest.mark.long),
    ],
)
def test_an_exact_name_and_enter_choose_that_principal(page: Page, typed: str, principal: str) -> None:
    """An exact name in whatever case, and Enter, take that principal, whatever its kind and state, no longer name."""
    page.goto("/access?view=change&do=take")
    enter(page, "Principals", typed)
    page.wait_for_url(lambda url: "to=" in url, timeout=SOON)
    assert parse_qs(urlsplit(page.url).query)["to"] == [principal]


@pytest.mark.long
def test_an_exact_name_and_enter_ask_about_that_principal(page: Page) -> None:
    """The list that asks why somebody reads takes an exact name as the list of a change does."""
    page.goto("/access?view=why")
    enter(page, "Principal", "etl")
    page.wait_for_url(lambda url: "why_who=" in url, timeout=SOON)
    assert parse_qs(urlsplit(page.url).query)["why_who"] == ["etl"]
