import os
import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT

TESTS = """
import os, signal, subprocess, sys
from pathlib import Path

def test_crash():
    wait = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    child = subprocess.Popen(wait, start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
    (Path(__file__).parent / "child").write_text(str(child.pid))
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_worker_that_dies_ends_the_run_and_its_processes(tmp_path: Path) -> None:
    """A run says which worker died and ends, and no process of it runs on."""
    (tmp_path / "test_crash.py").write_text(TESTS, "utf-8")
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
    assert "test_crash.py" in done.stdout
    child = Path("/proc") / (tmp_path / "child").read_text("utf-8")
    assert not child.exists() or "State:\tZ" in (child / "status").read_text("utf-8")
