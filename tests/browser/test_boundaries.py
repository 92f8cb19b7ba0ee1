"""The gate of the dashboard in a real browser: access needs the printed URL and the dashboard's own pages."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from pipeline.base.actor import current_user
from tests.browser.seed import fleet_of_forty, seed
from tests.browser.served import CHROMIUM, origin_of, served, sign_in
from tests.raw_client import shake_hands

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]

FORGED = {
    "X-Forwarded-Email": "boss@example.com",
    "X-Forwarded-User": "boss@example.com",
    "X-Forwarded-Preferred-Username": "boss@example.com",
    "X-Forwarded-Access-Token": "a token of theirs",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app over an environment in which only somebody else has roles."""
    folder = tmp_path_factory.mktemp("guarded")
    seed(folder, fleet_of_forty(), now=time.time(), history=False)
    roles = 'operators = ["boss@example.com"]\nmovers = ["boss@example.com"]\naccess_admins = ["boss@example.com"]\n'
    with (folder / "turnout.toml").open("a") as settings:
        settings.write(f"[roles]\n{roles}")
    with served(folder) as url:
        yield url


@pytest.mark.proves("H1")
def test_headers_of_a_proxy_make_nobody_else(guarded: str, browser: Browser) -> None:
    """H1: behind no proxy, headers that name somebody with roles are ignored: who runs the dashboard may only look."""
    context = browser.new_context(base_url=guarded, extra_http_headers=FORGED)
    sign_in(context, guarded)
    page = context.new_page()
    page.goto("/groups")
    expect(page.get_by_text("you may only look")).to_be_visible(timeout=30_000)
    expect(page.get_by_text(current_user()).first).to_be_visible()
    assert "boss@example.com" not in page.inner_text("body")
    context.close()


@pytest.mark.proves("G171")
def test_the_printed_url_opens_the_page_and_leaves_the_address_bar(guarded: str, browser: Browser) -> None:
    """Opening the URL draws the page without the token in its address, and a second tab needs no token any more."""
    context = browser.new_context(base_url=guarded)
    stranger = browser.new_context(base_url=guarded).new_page()
    stranger.goto("/groups")
    assert stranger.inner_text("body").startswith("Open the URL that")
    page = context.new_page()
    page.goto(guarded)
    expect(page.get_by_text("you may only look")).to_be_visible(timeout=30_000)
    assert page.url == f"{origin_of(guarded)}/"
    second = context.new_page()
    second.goto("/repairs")
    expect(second.get_by_text("you may only look")).to_be_visible(timeout=30_000)
    assert page.evaluate("document.cookie").find("turnout-") == -1
    stranger.context.close()
    context.close()


@pytest.mark.proves("G174", "H3")
def test_pages_of_others_cannot_speak_to_the_dashboard(guarded: str, browser: Browser) -> None:
    """H3: a foreign origin, and a foreign name that leads here, get no connection; the dashboard's own page does."""
    own = origin_of(guarded)
    context = browser.new_context()
    sign_in(context, guarded)
    (kept,) = (each for each in context.cookies(own) if each.get("name", "").startswith("turnout-"))
    cookie = ("Cookie", f"{kept.get('name')}={kept.get('value')}")
    context.close()
    assert shake_hands(own, [cookie, ("Origin", own)]).status == 101
    assert shake_hands(own, [cookie, ("Origin", "http://evil.example")]).status == 403
    assert shake_hands(own, [cookie, ("Host", "evil.example"), ("Origin", "http://evil.example")]).status in {400, 403}
