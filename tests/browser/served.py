"""The app over an environment as an operator starts it, and pages whose complaints fail the test."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.checkout import ROOT

CHROMIUM = Path("/usr/bin/chromium")
HARMLESS = "404"  # Streamlit asks below a page's address for its own health first


def free_port() -> int:
    """Return a port of this machine on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def started(
    command: Sequence[str],
    port: int,
    log: Path,
    cwd: Path = ROOT,
    environ: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start an app in a working folder, yield its process once it answers, and stop it afterwards."""
    with log.open("wb") as output:
        app = subprocess.Popen(
            [python, *command],
            cwd=cwd,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})},
        )
        try:
            _wait_until_healthy(app, f"http://127.0.0.1:{port}/healthz", log)
            yield app
        finally:
            app.terminate()
            app.wait(timeout=20)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run `turnout dashboard` over an environment and yield the URL it prints, which has the token."""
    port, log = free_port(), folder / "app.log"
    with started(["-m", "pipeline", "dashboard", "--env-dir", str(folder), "--port", str(port)], port, log):
        yield printed_url(log)


def printed_url(log: Path) -> str:
    """Return the URL that `turnout dashboard` has printed."""
    (url,) = (line.removeprefix("Dashboard: ") for line in log.read_text().splitlines() if line.startswith("Dashboard"))
    return url


def origin_of(url: str) -> str:
    """Return a URL without its path and its token."""
    return f"http://{urlsplit(url).netloc}"


def sign_in(context: BrowserContext, url: str) -> None:
    """Exchange the token of a printed URL for the cookie, as opening it does."""
    assert context.request.get(url).ok


@contextmanager
def opened(browser: Browser, url: str) -> Iterator[Page]:
    """Open an empty page that may reach the app of a printed URL; a complaint in its console fails the test."""
    address = origin_of(url)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=address)
    sign_in(context, url)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type == "error" and HARMLESS not in message.text else None
        ),
    )
    own = (address, address.replace("http", "ws"), "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(own) else complaints.append(request.url))
    yield page
    context.close()
    assert complaints == []


def _wait_until_healthy(app: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert app.poll() is None, f"the app ended: {log.read_text()}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    pytest.fail(f"the app did not become healthy in 120 s: {log.read_text()}")
