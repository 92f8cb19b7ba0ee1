"""The whole demo with its tables in Azure and Google: over Azurite, where it is installed, and a stand-in of Google."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from pipeline.demo.server_process import HOST, free_ports
from pipeline.lake.storage.places import located
from tests.storage.google_server import google

pytestmark = pytest.mark.long
_AZURITE: Final = "azurite-blob"
_ACCOUNT: Final = "devstoreaccount1.dfs.core.windows.net"
_READY_SECONDS: Final = 60.0


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Run Azurite, Microsoft's emulator, and yield the URL of an empty container of it."""
    program = shutil.which(_AZURITE)
    if program is None:
        pytest.skip(f"{_AZURITE} is not on PATH: npm install azurite@3.35.0")
    (port,) = free_ports(None, 0)
    command = [program, "--blobHost", HOST, "--blobPort", str(port), "--location", str(folder), "--skipApiVersionCheck"]
    with pytest.MonkeyPatch.context() as patch, subprocess.Popen([*command, "--silent"]) as process:
        patch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        patch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://{HOST}:{port}")
        try:
            url = f"abfss://tables@{_ACCOUNT}"
            _make_container(url)
            yield url
        finally:
            process.kill()


def _make_container(url: str) -> None:
    system, name = located(url).storage.arrow(located(url).path)
    until = time.monotonic() + _READY_SECONDS
    while True:
        try:
            system.create_dir(name)
        except OSError:
            assert time.monotonic() < until, "Azurite does not answer"
        else:
            return


@contextmanager
def _google(_folder: Path) -> Iterator[str]:
    with google() as url:
        yield url


CLOUDS: Final[dict[str, Callable[[Path], AbstractContextManager[str]]]] = {"azure": azurite, "gcs": _google}


@pytest.mark.proves("G232")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_demo_in_another_cloud_ends_with_the_same_proof(
    cloud: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: Spark, Arrow, delta-rs and our client find the same tables in each kind of store, and the same values."""
    turnout, folder = str(Path(sys.executable).with_name("turnout")), str(tmp_path / "env")
    with CLOUDS[cloud](tmp_path / "objects") as url:
        monkeypatch.setenv("TURNOUT_STORAGE__ROOT", f"{url}/demo")
        command = [turnout, "demo", "--once", "--json", "--games", "3", "--events", "600", "--env-dir", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        result = json.loads(done.stdout.splitlines()[-1])
        assert (result["bronze_rows"], result["ok"], result["complete"], result["problems"]) == (600, True, True, [])
        compared = [turnout, "verify", "--values", "--env-dir", folder]
        values = subprocess.run(compared, capture_output=True, text=True, timeout=200, check=False)
        assert values.returncode == 0, values.stdout[-2000:]
        tried = subprocess.run(
            [turnout, "doctor", "--env-dir", folder], capture_output=True, text=True, timeout=100, check=False
        )
        assert "storage: 4 of 4 correct" in tried.stdout
