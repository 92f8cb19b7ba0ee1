"""Network cost of the page of a large fleet."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, WebSocket

from tests.browser.seed import Seeded, heartbeats, seed
from tests.browser.served import CHROMIUM, opened, served

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]
_MAX_BYTES = 300_000
_REFRESHES = 2


def test_a_refresh_of_a_thousand_games_is_small(browser: Browser, tmp_path: Path) -> None:
    """All games of a large fleet are counted, drawn and listed worst first with at most 300 kB at each refresh."""
    games = [Seeded(f"Game number {number:04}", "ab"[number % 2], {}) for number in range(1_000)]
    (tmp_path / "turnout.toml").write_text("[dashboard]\nrefresh_seconds = 2\n")
    seed(tmp_path, games, now=time.time(), history=False)
    sizes: list[int] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: sizes.append(len(frame)))

    with heartbeats(tmp_path, ("ingest", "a", "b")), served(tmp_path) as address, opened(browser, address) as page:
        page.on("websocket", listen)
        page.goto("/")
        page.get_by_text("300 of 1\u202f000").wait_for(timeout=60_000)
        large = [size for size in sizes if size > _MAX_BYTES / 100]
        assert large, "the first look has the table and the chart"
        sizes.clear()
        clock = page.get_by_text("data as of")
        for _ in range(_REFRESHES):
            shown = clock.inner_text()
            page.wait_for_function("shown => !document.body.innerText.includes(shown)", arg=shown, timeout=30_000)
    assert sum(sizes) / _REFRESHES <= _MAX_BYTES
    assert sizes, "it was refreshed"
