"""Ten tasks of an on-call person, as they are done on the pages; clicks and seconds are counted.

Each begins on the page that a bookmark or a link in an alert opens, and ends where the answer stands on screen or the
operation is submitted. A click is a press of the pointer; a text is typed where the pointer or Tab has put the cursor,
and Enter ends it.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, expect

from pipeline.base.names import game_key
from pipeline.control.proposals import PlacementView
from pipeline.store.operations import list_operations, operation, submit
from tests.browser.lists import enter, find
from tests.browser.oncall_world import BOB, EVE, HUNG, LATE, WELL, OnCall
from tests.tables.repair_world import CHESS

MOST_CLICKS: Final = 4
SOON: Final = 45_000


@dataclass
class Hand:
    """A person at the page: it clicks and types as one does, and counts."""

    page: Page
    clicks: int = 0
    texts: int = 0
    _begun: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the page was asked for, without a person's thinking."""
        return time.monotonic() - self._begun

    def click(self, target: Locator) -> None:
        target.click(timeout=SOON)
        self.clicks += 1

    def press(self, name: str | re.Pattern[str], exact: bool = True) -> None:
        """Click a button."""
        self.click(self.page.get_by_role("button", name=name, exact=exact).first)

    def write(self, text: str, *ends: str) -> None:
        """Type where the cursor is, then press keys such as Enter or Tab."""
        self.page.keyboard.type(text)
        self.texts += 1
        for key in ends:
            self.page.keyboard.press(key)

    def open(self, page: str) -> None:
        """Click a page's name in the menu."""
        self.click(self.page.get_by_test_id("stTopNavLink").filter(has_text=page))

    def choose(self, label: str, text: str) -> None:
        """Click into a list, type, and take with Enter what it offers first."""
        enter(self.page, label, text)
        self.clicks += 1
        self.texts += 1

    def find(self, letters: str) -> None:
        """Open what the palette offers first for some letters, without the pointer."""
        find(self.page, letters)
        self.texts += 1

    def see(self, text: str) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible(timeout=SOON)

    def see_cell(self, text: str) -> None:
        """See a text in a table, which is a picture with a table for screen readers in it."""
        expect(self.page.locator('td[role="gridcell"]', has_text=text).first).to_be_attached(timeout=SOON)


def _late_and_why(hand: Hand) -> None:
    hand.page.goto("/")
    hand.see("streams failing")
    hand.see(f"Commits of {LATE} failed")
    hand.choose("Open a game", LATE)
    hand.see("another writer moved the cursor from 812 to 815")


def _refused_rows(hand: Hand) -> None:
    hand.page.goto("/")
    hand.choose("Open a game", "chess")
    hand.see_cell("quarantined_schema")


def _restart(hand: Hand) -> None:
    hand.page.goto("/")
    hand.see(f"The driver of group {HUNG} fell silent")
    hand.press("Restart group…")
    hand.click(hand.page.get_by_label("Reason", exact=True))
    hand.write("hangs", "Tab")
    hand.write("RESTART 3")
    hand.press(re.compile(r"^Restart \d"))
    hand.see("Submitted: operation")


def _move(hand: Hand) -> None:
    hand.page.goto("/")
    hand.find(WELL.lower())
    hand.choose("To group", "b")
    hand.press("Move…")
    hand.click(hand.page.get_by_label("Reason", exact=True))
    hand.write("b has room", "Tab")
    hand.press(re.compile(r"^Move \d"))
    hand.see("✓ succeeded: Moved and seen: 1 in b.")


def _rebuild(hand: Hand) -> None:
    hand.page.goto("/")
    hand.choose("Open a game", "chess")
    hand.press("Rebuild…")
    hand.click(hand.page.get_by_label("Reason", exact=True))
    hand.write("its files are damaged", "Tab")
    hand.press(re.compile(r"^Rebuild \d"))
    hand.see("Submitted: operation")


def _replay(hand: Hand) -> None:
    hand.page.goto(f"/game?game={CHESS.key}")
    hand.click(hand.page.locator(".st-key-act_replay button"))
    hand.press(re.compile(r"^Replay \d"))
    hand.see("Submitted: operation")


def _why_not(hand: Hand) -> None:
    hand.page.goto("/")
    hand.open("Access")
    hand.choose("Game", "chess")
    hand.choose("Principal", BOB)
    hand.see(f"· no: {BOB} does not read")


def _grant(hand: Hand) -> None:
    filled = {"view": "change", "do": "give", "of_games": CHESS.key, "to": BOB}
    hand.page.goto(f"/access?{urlencode(filled)}")
    hand.click(hand.page.get_by_label("Reason", exact=True))
    hand.write("numbers of the quarter", "Tab")
    hand.press("Preview the grant")
    hand.press(re.compile(r"^Grant \d"))
    hand.see("✓ succeeded: 1 gained read access")


def _undo(hand: Hand) -> None:
    hand.page.goto("/")
    hand.find("move of gale quest")
    hand.press("Undo…")
    hand.click(hand.page.get_by_label("Reason"))
    hand.write("moved by mistake", "Tab")
    hand.press(re.compile(r"^Move \d"))
    hand.see("Submitted: operation")


def _who_changed(hand: Hand) -> None:
    hand.page.goto("/")
    hand.open("Audit")
    hand.click(hand.page.get_by_label("Game or group"))
    hand.write("gale quest", "Enter")
    hand.see_cell(EVE)


def _hang(world: OnCall) -> None:
    world.hang()


def _have_moved(world: OnCall) -> None:
    """Let eve have moved a game, once."""
    if any(each.actor == EVE for each in list_operations(world.store)):
        return
    key = game_key("Gale quest")
    view = PlacementView(world.catalogued.settings, world.store)
    target = "b" if view.assignments[key].group == "a" else "a"
    made = submit(world.store, view.move([key], target, EVE, "for the launch").intent)
    deadline = time.monotonic() + 30
    while operation(world.store, made.operation_id).is_open:
        assert time.monotonic() < deadline, "the move goes on"
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Task:
    """One task: what a person wants, what must be so before, and how it is done."""

    name: str
    do: Callable[[Hand], None]
    prepare: Callable[[OnCall], None] | None = None


TASKS: Final[Mapping[str, Task]] = {
    "late": Task("Find which games are late, and why", _late_and_why),
    "rows": Task("Read the refused rows of a game", _refused_rows),
    "restart": Task("Restart a group whose driver hangs", _restart, _hang),
    "move": Task("Move a game to another group", _move),
    "rebuild": Task("Rebuild a game's table", _rebuild),
    "replay": Task("Replay a game's refused rows", _replay),
    "why": Task("See why a person cannot read a game", _why_not),
    "grant": Task("Grant a person read access to a game", _grant),
    "undo": Task("Undo a move", _undo, _have_moved),
    "audit": Task("Find who changed what of a game", _who_changed, _have_moved),
}
