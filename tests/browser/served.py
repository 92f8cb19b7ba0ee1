"""The app over an environment as an operator starts it, and pages whose complaints fail the test."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
HARMLESS = "404"  # Streamlit asks below a page's address for its own health first


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Start the app over an environment, yield its address, and stop it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.port", str(port)]
    with (folder / "app.log").open("wb") as log:
        app = subprocess.Popen(
            [*command, "--", "--env-dir", str(folder)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            _wait_until_healthy(app, f"http://127.0.0.1:{port}/_stcore/health", folder / "app.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            app.terminate()
            app.wait(timeout=20)


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """Open an empty page at the app's address; what its console complained of fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=address)
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
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert app.poll() is None, f"the app ended: {log.read_text()}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    pytest.fail(f"the app did not become healthy in 60 s: {log.read_text()}")
