import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT

TESTS = """
import ctypes, os, signal, subprocess, sys, time
from pathlib import Path

def test_crash():
    wait = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    child = subprocess.Popen(wait, start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
    (Path(__file__).parent / "child").write_text(str(child.pid))
    DIE()

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

def crash_in_a_library():
    c = ctypes.CDLL(None)
    c.pthread_create(ctypes.byref(ctypes.c_ulong()), None, ctypes.cast(c.abort, ctypes.c_void_p), None)
    time.sleep(60)

def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("die", "reason", "stack"),
    [
        ("crash", "died of SIGSEGV\nFatal Python error: Segmentation fault\n\nCurrent thread 0x", " in crash\n"),
        (
            "crash_in_a_library",
            "died of SIGABRT\nFatal Python error: Aborted\nThe thread that crashed runs no",
            "in crash_",
        ),
        ("be_killed", "died of SIGKILL\nIt said nothing: it was killed", ""),
    ],
    ids=["in Python", "in a library's thread", "from outside"],
)
def test_a_worker_that_dies_ends_the_run_and_its_processes(tmp_path: Path, die: str, reason: str, stack: str) -> None:
    """A run says which worker died, of which signal and where, and ends; no process of it runs on."""
    (tmp_path / "test_crash.py").write_text(TESTS.replace("DIE", die), "utf-8")
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text("def test_passes():\n    pass\n", "utf-8")
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-n", "2", "--dist", "loadfile"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.dead_workers", *options, str(tmp_path)],
        cwd=tmp_path, env={**environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    assert "crashed and worker restarting disabled" in done.stdout
    said = done.stdout.partition(" a worker died ")[2]
    assert reason in said
    assert stack in said
    assert "test_crash.py::test_crash" in said
    child = Path("/proc") / (tmp_path / "child").read_text("utf-8")
    assert not child.exists() or "State:\tZ" in (child / "status").read_text("utf-8")
