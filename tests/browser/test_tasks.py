"""Ten tasks of an on-call person in a real browser, and what they cost: `python -m bench.tasks` writes the table."""

import pytest
from playwright.sync_api import Browser

from tests.browser.oncall_world import OnCall
from tests.browser.served import CHROMIUM, opened
from tests.browser.tasks import MOST_CLICKS, TASKS, Hand
from tests.checkout import ROOT

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


ALWAYS = ("move",)
"""Tasks that the ordinary suite does; it has few seconds for all of them."""


@pytest.mark.parametrize(
    "name", [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.long) for each in TASKS]
)
def test_a_task_takes_few_clicks(browser: Browser, world: OnCall, oncall_address: str, name: str) -> None:
    """The pages lead from the first look to the end of a task in at most four clicks, as the documents say."""
    task = TASKS[name]
    if task.prepare is not None:
        task.prepare(world)
    with opened(browser, oncall_address) as page:
        hand = Hand(page)
        task.do(hand)
    assert hand.clicks <= MOST_CLICKS
    rows = [line for line in (ROOT / "docs" / "dashboard.md").read_text("utf-8").splitlines() if task.name in line]
    assert [row.split("|")[2].strip() for row in rows] == [str(hand.clicks)], "run `python -m bench.tasks --docs`"
