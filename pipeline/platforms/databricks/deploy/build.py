"""Builds what goes into a workspace: the wheel, and the folder from which a Databricks App starts.

Called by `turnout deploy build`, in a checkout. The same content gives the same wheel, byte for byte. Its version has
the content's hash: a running cluster does not install again what it has (databricks/cli, libs/testserver/jobs.go).
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import yaml

from pipeline.base.errors import Refused

MOST_BYTES: Final = 10_485_760
"""The most bytes of one file; with a larger one the deployment of an app fails.

From databricks/databricks-agent-skills, databricks-apps/references/platform-guide.md.
"""

_PACKAGES: Final = ("app", "grants", "listeners", "pipeline", "protos")
_DOCUMENTS: Final = ("docs/grafana", "docs/runbooks")
_PROJECT: Final = "pyproject.toml"
_LOCK: Final = "requirements-app.lock"
_APP: Final = "app.yaml"
_REQUIREMENTS: Final = "requirements.txt"
_OURS: Final = re.compile(r"app\.yaml|requirements\.txt|turnout-[^/]+\.whl")
_VERSION: Final = re.compile(r'^version = "([^"+]+)"$', re.MULTILINE)
_ZIP_BEGINS: Final = "315532800"  # 1980-01-01: no archive has an older file, and all of ours shall have one age
_BUILD: Final = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
_BUILD_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that was built."""

    path: Path
    version: str
    """Version of the project, with the first 12 hex digits of the content's SHA-256 behind a `+`."""
    sha256: str


@dataclass(frozen=True, slots=True)
class AppSource:
    """The folder of an app: its start, its requirements and the wheel."""

    folder: Path
    wheel: Wheel
    bytes_by_file: dict[str, int]


def build_app_source(root: Path, out: Path, url: str = "") -> AppSource:
    """Build the wheel and the folder of the app; an older build in that folder is replaced.

    Args:
        root: the checkout.
        out: the folder.
        url: of the environment that the app shows; without one the deployment must set $TURNOUT_ENV_DIR.

    Raises:
        Refused: a source is missing, the wheel cannot be built, a file is too large for an app, or the folder has files
            that no build made.
    """
    with tempfile.TemporaryDirectory(prefix="turnout-app-") as draft:
        folder = Path(draft)
        wheel = build_wheel(root, folder)
        (folder / _APP).write_text(start(_read(root / _APP).decode(), url), "utf-8")
        (folder / _REQUIREMENTS).write_text(requirements(_read(root / _LOCK).decode(), wheel), "utf-8")
        sizes = {each.name: each.stat().st_size for each in sorted(folder.iterdir())}
        for name, size in sizes.items():
            if size > MOST_BYTES:
                raise Refused(
                    f"{name} has {size:,} bytes, and an app takes no file above {MOST_BYTES:,}. Make it smaller: "
                    "pyproject.toml says what a wheel holds."
                )
        _replace(folder, out)
    return AppSource(out, Wheel(out / wheel.path.name, wheel.version, wheel.sha256), sizes)


def build_wheel(root: Path, into: Path) -> Wheel:
    """Build the wheel of a checkout into a folder.

    Raises:
        Refused: a source is missing, or the wheel cannot be built.
    """
    if find_spec("setuptools") is None:
        raise Refused("setuptools, which builds the wheel, is not installed here. Run ./turnout setup.")
    with tempfile.TemporaryDirectory(prefix="turnout-wheel-") as place:
        staged, made = Path(place) / "staged", Path(place) / "made"
        made.mkdir()
        version = _stage(root, staged)
        _run_build(staged, made)
        (wheel,) = made.glob("*.whl")
        target = into / wheel.name
        shutil.copyfile(wheel, target)
    return Wheel(target, version, hashlib.sha256(target.read_bytes()).hexdigest())


def start(app_yaml: str, url: str) -> str:
    """Return app.yaml, with the URL of the environment where there is one."""
    if not url:
        return app_yaml
    parsed = yaml.safe_load(app_yaml)
    parsed["env"].append({"name": "TURNOUT_ENV_DIR", "value": url})
    return "# made by `turnout deploy build`\n" + yaml.safe_dump(parsed, sort_keys=False)


def requirements(lock: str, wheel: Wheel) -> str:
    """Return the requirements of the app: what the lock says, and the wheel, each with its hashes."""
    kept = [line for line in lock.splitlines() if not line.lstrip().startswith("#")]
    kept.append(f"./{wheel.path.name} --hash=sha256:{wheel.sha256}")
    return "\n".join(["# made by `turnout deploy build`", *kept, ""])


def _stage(root: Path, staged: Path) -> str:
    """Copy the sources, with the version that says their content; return that version."""
    content = hashlib.sha256()
    for file in _sources(root):
        name = file.relative_to(root)
        copy = staged / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(_read(file))
        copy.chmod(0o644)
        content.update(b"%s\0%d\0%s" % (name.as_posix().encode(), copy.stat().st_size, copy.read_bytes()))
    project = staged / _PROJECT
    text, version = project.read_text("utf-8"), ""
    if found := _VERSION.search(text):
        version = f"{found[1]}+{content.hexdigest()[:12]}"
        text = text.replace(found[0], f'version = "{version}"', 1)
    else:
        raise Refused(f'{root / _PROJECT} has no line such as version = "0.1.0". Restore the file from git.')
    project.write_text(text, "utf-8")
    return version


def _sources(root: Path) -> Iterator[Path]:
    """Yield the files that a wheel is made from, in an order that the machine does not choose."""
    yield root / "LICENSE"
    yield root / _PROJECT
    yield from sorted(root.glob("requirements*.in"))
    for folder in (*_PACKAGES, *_DOCUMENTS):
        if not (root / folder).is_dir():
            raise Refused(f"{root / folder} is missing, from which the wheel is built. Restore it from git.")
        yield from sorted(
            each for each in (root / folder).rglob("*") if each.is_file() and "__pycache__" not in each.parts
        )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}. Restore it from git.") from error


def _run_build(staged: Path, made: Path) -> None:
    environ = {**os.environ, "SOURCE_DATE_EPOCH": _ZIP_BEGINS}
    command = [sys.executable, "-I", "-c", _BUILD, str(made)]
    try:
        done = subprocess.run(
            command, cwd=staged, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_BUILD_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise Refused(f"setuptools did not build the wheel within {_BUILD_SECONDS} seconds. Try again.") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Refused(f"setuptools could not build the wheel: {lines[-1] if lines else 'no output'}")


def _replace(folder: Path, out: Path) -> None:
    """Put the files of a folder into another, and remove those of an older build there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = sorted(each.name for each in out.iterdir() if not _OURS.fullmatch(each.name) or each.is_dir())
        if foreign:
            raise Refused(f"{out} has {foreign[0]}, which no build made. Remove it, or name another folder with --out.")
        for old in out.iterdir():
            old.unlink()
        for new in sorted(folder.iterdir()):
            shutil.copyfile(new, out / new.name)
    except OSError as error:
        raise Refused(f"{out} cannot be written: {error.strerror}. Name another folder with --out.") from error
