"""The first page of docs/edge.md, as a developer of a game server goes through it in an empty folder."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.demo.server_process import free_ports
from tests.checkout import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(420)]

WITHIN_SECONDS = 300.0
LAUNCHER = f"""#!/bin/sh
cd {ROOT} && exec {sys.executable} -m pipeline "$@"
"""
"""In place of `./turnout`, which would install packages first."""


def steps() -> list[tuple[str, str]]:
    """Return the page's blocks: language and content."""
    text = (ROOT / "docs" / "edge.md").read_text("utf-8")
    page = text[text.index("## From nothing to acknowledged events") : text.index("Without the demo, run an edge")]
    return re.findall(r"```(\w*)\n(.*?)```", page, re.DOTALL)


@contextmanager
def running(command: str, folder: Path) -> Iterator[str]:
    """Run the demo of the page; yield the address that it prints."""
    dashboard, catalog = free_ports(None, 1)
    env = folder / "env"
    env.mkdir()
    (env / "turnout.toml").write_text(f"[dashboard]\nport = {dashboard}\n[access]\nport = {catalog}\n")
    process = subprocess.Popen(["sh", "-c", f"exec {command}"], cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    drain = threading.Thread(target=process.stderr.read)
    watchdog = threading.Timer(WITHIN_SECONDS, process.kill)
    watchdog.start()
    try:
        printed = (re.search(r"edge +(127\.0\.0\.1:\d+):", line) for line in process.stderr)
        found = next((each[1] for each in printed if each), None)
        assert found, "the demo prints no edge"
        drain.start()
        yield found
    finally:
        watchdog.cancel()
        process.terminate()
        process.wait(90)
        if drain.ident is not None:
            drain.join()
        process.stderr.close()


def test_the_first_page_leads_to_acknowledged_events_in_five_minutes(tmp_path: Path) -> None:
    """Every command and program of the page runs as it is printed, but for the folder and a port that is taken."""
    started = time.monotonic()
    (demo, producer, program, send, _), folder = steps(), tmp_path / "checkout"
    folder.mkdir()
    (folder / "turnout").write_text(LAUNCHER)
    (folder / "turnout").chmod(0o755)
    (folder / ".venv").symlink_to(Path(sys.prefix))

    def ours(text: str, address: str = "") -> str:
        text = text.replace("/tmp/edge", str(folder / "env")).replace("producers.yaml", str(folder / "producers.yaml"))
        return text.replace("127.0.0.1:8470", address or "127.0.0.1:8470")

    with running(ours(demo[1]).strip(), folder) as address:
        (folder / "send.py").write_text(ours(program[1], address))
        commands = f"set -e\n{ours(producer[1])}\n{send[1]}"
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        listing = [str(folder / "turnout"), "edge", "producers", "list", "--env-dir", str(folder / "env")]
        while "simulate" not in subprocess.run(listing, capture_output=True, text=True, timeout=60).stdout:
            assert time.monotonic() - started < WITHIN_SECONDS  # a person would not be as fast as this test
        done = subprocess.run(
            ["bash", "-c", commands], cwd=folder, env=environ, capture_output=True, text=True, timeout=200
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("EdgeAcknowledged(event_id="), done.stdout
    assert time.monotonic() - started < WITHIN_SECONDS
