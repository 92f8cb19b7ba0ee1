"""`turnout deploy build`: the folder of an app, from a checkout, again and again the same."""

import json
import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from pipeline.base.errors import Refused
from pipeline.platforms.databricks.deploy import build
from pipeline.platforms.databricks.deploy.build import build_app_source, build_wheel
from pipeline.platforms.local import shared
from tests.checkout import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout with a module, whose wheel is built quickly."""
    root = tmp_path / "checkout"
    for folder in (*build._PACKAGES, *build._DOCUMENTS):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").write_text("")
    for file in (
        "LICENSE",
        "pyproject.toml",
        "app.yaml",
        "requirements-app.lock",
        *map(str, ROOT.glob("requirements*.in")),
    ):
        shutil.copy(ROOT / file, root)
    return root


def test_the_folder_of_an_app_is_complete_and_locked(checkout: Path, tmp_path: Path) -> None:
    """An app installs the very bytes that were locked, and the wheel that lies beside the list."""
    made = build_app_source(checkout, tmp_path / "app-source")
    assert made.bytes_by_file.keys() == {"app.yaml", "requirements.txt", made.wheel.path.name}
    assert {each.name: each.stat().st_size for each in made.folder.iterdir()} == made.bytes_by_file
    listed = (made.folder / "requirements.txt").read_text()
    entries = re.split(r"\n(?=[a-z.])", listed.strip())[1:]
    assert [each for each in entries if "--hash=sha256:" not in each] == []
    assert entries[-1] == f"./{made.wheel.path.name} --hash=sha256:{sha256(made.wheel.path.read_bytes()).hexdigest()}"
    assert len(entries) == 1 + len(
        re.findall(r"^[a-z].*==", (ROOT / "requirements-app.lock").read_text(), re.MULTILINE)
    )
    assert "://" not in listed


def test_the_version_is_that_of_the_content(checkout: Path, tmp_path: Path) -> None:
    """A cluster installs a changed build; the same sources give the same bytes elsewhere, later, with other rights."""
    first = build_wheel(checkout, tmp_path)
    moved = checkout.rename(tmp_path / "elsewhere")
    (moved / "app" / "__pycache__").mkdir()
    (moved / "app" / "__pycache__" / "x.pyc").write_bytes(b"x")
    for file in moved.rglob("*.py"):
        file.chmod(0o600)
        os.utime(file, (1e9, 1e9))
    (tmp_path / "again").mkdir()
    again = build_wheel(moved, tmp_path / "again")
    assert re.fullmatch(r"0\.1\.0\+[0-9a-f]{12}", first.version)
    assert (again.version, again.sha256, again.path.name) == (first.version, first.sha256, first.path.name)
    (moved / "pipeline" / "new.py").write_text("")
    assert build_wheel(moved, tmp_path).version != first.version


def test_an_older_build_is_replaced_and_nothing_else(checkout: Path, tmp_path: Path) -> None:
    """Two wheels would both be deployed, and a folder with other files is somebody's own."""
    out = tmp_path / "app-source"
    old = build_app_source(checkout, out).wheel.path
    (checkout / "pipeline" / "new.py").write_text("")
    new = build_app_source(checkout, out).wheel.path
    assert not old.exists()
    assert [each.name for each in out.glob("*.whl")] == [new.name]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(Refused, match=r"notes\.txt, which no build made"):
        build_app_source(checkout, out)
    assert new.exists()


def test_a_file_that_no_app_takes_is_refused(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment would fail minutes later, in a workspace, for a reason that can be known here."""
    monkeypatch.setattr(build, "MOST_BYTES", 1_000)
    with pytest.raises(Refused, match=r"requirements\.txt has [\d,]+ bytes, and an app takes no file above 1,000"):
        build_app_source(checkout, tmp_path / "app-source")
    assert not (tmp_path / "app-source").exists()


@pytest.mark.parametrize("gone", ["LICENSE", "app.yaml", "requirements-app.lock", "grants", "docs/runbooks"])
def test_a_missing_source_is_named(checkout: Path, tmp_path: Path, gone: str) -> None:
    """A wheel without a part of the code would fail at its first import, in a workspace."""
    (checkout / gone).rename(tmp_path / "gone")
    with pytest.raises(Refused, match=f"{gone} .*Restore it from git"):
        build_app_source(checkout, tmp_path / "app-source")


def test_a_build_that_fails_says_why(checkout: Path, tmp_path: Path) -> None:
    """The reason is setuptools' own, in one sentence."""
    with (checkout / "requirements.in").open("a") as file:
        file.write("not a requirement\n")
    with pytest.raises(Refused, match=r"setuptools could not build the wheel: .*"):
        build_wheel(checkout, tmp_path)


def test_the_command_builds_in_the_working_folder(tmp_path: Path) -> None:
    """The environment's URL reaches the app's start; no control store, no environment and no network are needed."""
    command = [sys.executable, "-m", "pipeline", "deploy", "build", "--json", "--env-dir", "s3://bucket/prod"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["folder"] == str(tmp_path / "app-source")
    start = yaml.safe_load((tmp_path / "app-source" / "app.yaml").read_text())
    assert {"name": "TURNOUT_ENV_DIR", "value": "s3://bucket/prod"} in start["env"]
    assert start["command"][-3:] == ["-m", "app.server", "--databricks-app"]
    assert (tmp_path / "app-source" / said["wheel"]).is_file()


def test_a_wheel_builds_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed wheel has no sources: a person learns where to run the command."""
    monkeypatch.setattr(shared, "_ROOT", tmp_path)
    with pytest.raises(
        Refused, match=r"installed wheel, and an app is built from sources\. Run \./turnout in a checkout"
    ):
        shared.require_checkout("an app is built from sources")


def test_a_wheel_has_its_documents_beside_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links of alerts lead to runbooks in a checkout and of an installed wheel, and commands are called as there."""
    assert list(shared.documents("runbooks").glob("*.md"))
    assert shared.launcher() == "./turnout"
    monkeypatch.setattr(shared, "_ROOT", tmp_path)
    assert shared.documents("runbooks") == Path(sys.prefix) / "share" / "turnout" / "runbooks"
    assert shared.launcher() == "turnout"
