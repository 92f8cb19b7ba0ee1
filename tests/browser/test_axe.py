"""Each page is examined by axe, as people with a screen reader or weak eyes meet it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from pipeline.base.names import game_key
from pipeline.demo.breaking.channel import Active, offered
from pipeline.settings.tree import Paths
from tests.browser.lists import settled
from tests.browser.oncall_world import BOB, LATE, OnCall
from tests.browser.served import CHROMIUM, opened
from tests.tables.repair_world import CHESS

SOON: Final = 60_000
PAGES: Final[Mapping[str, tuple[str, str]]] = {
    "fleet": ("/", "streams failing"),
    "game": (f"/game?game={CHESS.key}", "Commits of Chess failed after"),
    "game without an incident": (f"/game?game={game_key(LATE)}", "What can be done"),
    "groups": ("/groups?steer=a", "All groups"),
    "games": ("/games", "Onboarding rules"),
    "schemas": (f"/schemas?game={CHESS.key}", "What changes from version"),
    "repairs": ("/repairs", "Evidence"),
    "access, why": (f"/access?why_game={CHESS.key}&why_who={BOB}", "does not read"),
    "access, change": ("/access?view=change", "Preview the grant"),
    "operations": ("/operations", "No operation is open"),
    "alerts": ("/alerts", "No server of alerts is configured"),
    "runbook": (f"/runbook?name=turnoutstreamdown&game={CHESS.key}", "Mitigation"),
    "audit": ("/audit", "Verify the log"),
    "books": ("/books", "No day is closed"),
    "break it": ("/break_it", "Nothing is broken"),
}
"""A page → its address, and a text that stands on it once it is drawn."""

Theme = Literal["light", "dark"]

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


class Whole:
    """A demo in which nothing is broken."""

    active: tuple[Active, ...] = ()

    def begin(self, fault: str, target: str) -> str:
        raise AssertionError(f"nobody breaks anything: {fault} {target}")

    undo = begin

    def look(self) -> None: ...

    def end_all(self) -> None: ...


@pytest.fixture(scope="module")
def breakable(world: OnCall) -> Iterator[None]:
    with offered(Paths(world.folder), Whole()):
        yield


def findings(page: Page) -> list[str]:
    """Return what axe finds serious or critical, with the place."""
    found: dict[str, Any] = Axe().run(page).response
    return [
        f"{rule['impact']}: {rule['id']}: {node['target']} {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for rule in found["violations"]
        if rule["impact"] in {"serious", "critical"}
        for node in rule["nodes"]
    ]


ALWAYS: Final = ("game",)
"""Pages that the ordinary suite examines; it has few seconds for all of them."""


@pytest.mark.parametrize(
    "name", [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.long) for each in PAGES]
)
def test_axe_finds_nothing_serious(browser: Browser, oncall_address: str, breakable: None, name: str) -> None:
    """No page has a serious or critical finding, in the light theme and in the dark one."""
    path, text = PAGES[name]
    with opened(browser, oncall_address) as page:
        found = {}
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.goto(f"{path}{'&' if '?' in path else '?'}every=60s")
            expect(page.get_by_text(text).first).to_be_attached(timeout=SOON)
            for number in range(page.locator('[data-testid="stVegaLiteChart"]').count()):
                chart = page.locator('[data-testid="stVegaLiteChart"]').nth(number)
                expect(chart.locator("svg").first).to_be_attached(timeout=SOON)
            settled(page)
            page.add_style_tag(content="*{transition:none!important;animation:none!important}")  # no half-faded text
            found[theme] = findings(page)
    assert found["light"] == []
    assert found["dark"] == []


@pytest.mark.long
def test_axe_finds_nothing_serious_in_the_palette_and_the_inbox(browser: Browser, oncall_address: str) -> None:
    """Open, the palette and the inbox have no serious or critical finding, in the light theme and in the dark one."""
    with opened(browser, oncall_address) as page:
        found = {}
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.goto("/audit?every=60s")
            expect(page.get_by_role("button", name="Find")).to_be_visible(timeout=SOON)
            settled(page)
            page.add_style_tag(content="*{transition:none!important;animation:none!important}")
            page.keyboard.press("s")
            expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_visible(timeout=SOON)
            found[f"palette, {theme}"] = findings(page)
            page.keyboard.press("Escape")
            page.get_by_role("button", name="Inbox").click()
            expect(page.get_by_test_id("stPopoverBody")).to_be_visible(timeout=SOON)
            found[f"inbox, {theme}"] = findings(page)
    assert {name: each for name, each in found.items() if each} == {}
