"""Who reaches the dashboard, and as whom: this machine's own pages, as the user of the system who runs it."""

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from pipeline.actor import current_user
from tests.browser.seed import fleet_of_forty, seed
from tests.browser.served import served

FORGED = {
    "X-Forwarded-Email": "boss@example.com",
    "X-Forwarded-User": "boss@example.com",
    "X-Forwarded-Preferred-Username": "boss@example.com",
    "X-Forwarded-Access-Token": "a token of theirs",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app over an environment in which only somebody else has roles."""
    import time

    folder = tmp_path_factory.mktemp("guarded")
    seed(folder, fleet_of_forty(), now=time.time(), history=False)
    roles = 'operators = ["boss@example.com"]\nmovers = ["boss@example.com"]\naccess_admins = ["boss@example.com"]\n'
    with (folder / "turnout.toml").open("a") as settings:
        settings.write(f"[roles]\n{roles}")
    with served(folder) as address:
        yield address


def handshake(address: str, host: str, origin: str | None) -> int:
    """Ask for the page's websocket, as a browser does; return the HTTP status."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    headers = {
        "Host": host, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **({"Origin": origin} if origin else {}),
    }  # fmt: skip
    try:
        connection.request("GET", "/_stcore/stream", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_headers_of_a_proxy_make_nobody_else(guarded: str, browser: Browser) -> None:
    """H1: behind no proxy, headers that name somebody with roles are ignored: who runs the dashboard may only look."""
    context = browser.new_context(base_url=guarded, extra_http_headers=FORGED)
    page = context.new_page()
    page.goto("/groups")
    expect(page.get_by_text("you may only look")).to_be_visible(timeout=30_000)
    expect(page.get_by_text(current_user()).first).to_be_visible()
    assert "boss@example.com" not in page.inner_text("body")
    context.close()


def test_pages_of_others_cannot_speak_to_the_dashboard(guarded: str) -> None:
    """H3: a foreign origin, and a foreign name that leads here, get no connection; the dashboard's own page does."""
    own = urlsplit(guarded).netloc
    assert handshake(guarded, own, guarded) == 101
    assert handshake(guarded, own, "http://evil.example") == 403
    assert handshake(guarded, "evil.example", "http://evil.example") in {400, 403}
