"""Spark's local folders in the machine's folder of an environment."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipeline.platforms.session.folder import session_folder, takes_sockets

_DRIVER = """
import sys, time
from pathlib import Path
from pipeline.platforms.session.folder import session_folder
print(session_folder(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_a_start_removes_what_dead_sessions_left(tmp_path: Path) -> None:
    """A killed driver leaves its spills: the next start removes them, and touches nothing of a driver that runs."""
    parent = tmp_path / "spark"
    command = [sys.executable, "-c", _DRIVER, str(parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        folder = Path(driver.stdout.readline().strip())
        try:
            (folder / "blockmgr-1").mkdir()
            (folder / "blockmgr-1" / "shuffle").write_bytes(b"rows")
            first = session_folder(parent)
            second = session_folder(parent)
            assert (folder / "blockmgr-1" / "shuffle").exists()
            assert first.exists(), "a process may have several sessions, one after the other"
        finally:
            driver.send_signal(signal.SIGKILL)
    third = session_folder(parent)
    assert {each for each in parent.iterdir() if each.is_dir()} == {first, second, third}


def test_a_disk_without_locks_ends_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can tell whose folder it is, it stays."""

    def unsupported(*_: object) -> None:
        raise OSError("no locks")

    monkeypatch.setattr("fcntl.flock", unsupported)
    folders = {session_folder(tmp_path / "spark") for _ in range(2)}
    assert folders == {each for each in (tmp_path / "spark").iterdir() if each.is_dir()}


@pytest.mark.proves("G283")
def test_sockets_are_made_where_their_path_is_short_enough() -> None:
    """A folder whose path leaves no room for a socket's name gets none, and a trial leaves nothing."""
    with tempfile.TemporaryDirectory() as short:
        folder = Path(short)
        assert takes_sockets(folder)
        longest = folder / ("x" * (60 - len(f"{folder}/")))  # Spark 4.2: "should be lower than 61"
        for each, is_short in ((longest, True), (folder / f"{longest.name}x", False)):
            each.mkdir()
            assert takes_sockets(each) is is_short
            assert list(each.iterdir()) == []
