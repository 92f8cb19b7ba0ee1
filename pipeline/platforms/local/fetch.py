"""Fetches the locked jars into a per-user cache and links them into the environment.

Called by the launcher (which holds the set-up lock), as `python -m pipeline.platforms.local.fetch CACHE INTO
[CONF...]`, where further confs are those that not every set-up fetches; and by the commands `setup` and `demo` of an
installed wheel. Java is started only when a jar with the locked SHA-256 is not in the cache yet.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pipeline.base.errors import Refused
from pipeline.platforms.local.jars import (
    CONFS,
    STORES,
    LockedJar,
    jars_dir,
    java_executable,
    locked_jars,
    set_up_command,
)
from pipeline.platforms.local.shared import checkout

IVY_FILE: Final = Path(__file__).parent / "ivy.xml"
IVY_SETTINGS: Final = Path(__file__).parent / "ivysettings.xml"

_TO_INSTALL: Final = "Run ./turnout setup" if checkout() else "Run pip install 'turnout[local]'"

Download = Callable[[Path, Path, Sequence[str]], None]
"""Downloads the jars of some confs: (cache, folder to fill with `conf/file.jar`, confs)."""


def fetch(cache: Path, into: Path, jars: Sequence[LockedJar], download: Download) -> int:
    """Bring the jars into `cache/jars` and link exactly them below `into`; return how many were downloaded.

    Raises:
        Refused: a jar could not be downloaded, or is not the one that was locked.
    """
    store = cache / "jars"
    absent = [jar for jar in jars if _sha256(store / jar.conf / jar.file) != jar.sha256]
    if absent:
        with tempfile.TemporaryDirectory(prefix="incoming-", dir=cache) as folder:
            download(cache, Path(folder), sorted({jar.conf for jar in absent}))
            for jar in absent:
                _accept(jar, Path(folder), store, cache)
    _link(jars, store, into)
    return len(absent)


def download_with_ivy(cache: Path, folder: Path, confs: Sequence[str] = CONFS, *, ivy_file: Path = IVY_FILE) -> None:
    """Download with the Ivy inside pyspark; $TURNOUT_IVY_SETTINGS may name the Ivy settings file to use.

    Raises:
        Refused: Java or the settings file is missing, or Ivy failed.
    """
    settings = Path(os.environ.get("TURNOUT_IVY_SETTINGS") or IVY_SETTINGS)
    if not settings.is_file():
        raise Refused(f"TURNOUT_IVY_SETTINGS names {settings}, which is not a file. Correct or unset it.")
    log = cache / "ivy.log"
    command = [java_executable(), "-jar", str(_ivy_jar()), "-cache", str(cache / "ivy"), "-settings", str(settings)]
    command += ["-ivy", str(ivy_file), "-confs", *confs]
    command += ["-retrieve", f"{folder}/[conf]/[artifact]-[revision].[ext]"]
    with log.open("wb") as output:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT).returncode
    if code != 0:
        raise Refused(
            f"The jars could not be downloaded (Ivy ended with code {code}): {_first_problem(log)}. Check the network,"
            " or name an Ivy settings file with your mirror in TURNOUT_IVY_SETTINGS, and run"
            f" {set_up_command(confs)} again. Ivy's whole log: {log}"
        )


def set_up(confs: Iterable[str] = ()) -> None:
    """Fetch the jars of these confs and of every set-up for this Python, as an installed wheel needs them.

    Does nothing where $TURNOUT_JARS names a folder of jars: its owner fills it.

    Raises:
        Refused: a jar could not be downloaded, or a folder cannot be written.
    """
    if os.environ.get("TURNOUT_JARS"):
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnout"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "setup.lock").open("a") as lock:  # the launcher's: of a user only one set-up runs at a time
            fcntl.flock(lock, fcntl.LOCK_EX)
            _fetch(cache, jars_dir(), {*CONFS, *confs})
    except OSError as error:
        raise Refused(_needs_folders(cache, jars_dir(), error)) from error


def main(arguments: Sequence[str]) -> int:
    """Fetch with Ivy; return 0, or 1 after saying what is wrong."""
    cache, into = (Path(argument).resolve() for argument in arguments[:2])
    try:
        _fetch(cache, into, {*CONFS, *arguments[2:]})
    except Refused as refused:
        _say(str(refused))
        return 1
    except OSError as error:
        _say(_needs_folders(cache, into, error))
        return 1
    return 0


def _fetch(cache: Path, into: Path, confs: Collection[str]) -> None:
    """Fetch the jars of these confs, and print on stderr what takes long."""
    jars = [jar for jar in locked_jars() if jar.conf in confs]
    if not all((cache / "jars" / jar.conf / jar.file).exists() for jar in jars):
        stores = [text for conf, text in STORES.items() if conf in confs]
        more = f", and those for tables in {' and '.join(stores)}" if stores else ""
        _say(f"fetching the jars of Spark, Kafka and the schema registry (205 MB){more}")
    fetched = fetch(cache, into, jars, download_with_ivy)
    if fetched:
        _say(f"{fetched} jars fetched, SHA-256 verified")


def _needs_folders(cache: Path, into: Path, error: OSError) -> str:
    return f"{error}. The folders {cache} and {into} must be writable, with 600 MB free."


def _accept(jar: LockedJar, folder: Path, store: Path, cache: Path) -> None:
    """Move one download into the store if it is the locked one."""
    fresh = folder / jar.conf / jar.file
    actual = _sha256(fresh)
    if actual is None:
        raise Refused(f"{jar.file} is in jars.lock but Ivy did not download it. Make ivy.xml and jars.lock agree.")
    if actual != jar.sha256:
        shutil.rmtree(cache / "ivy", ignore_errors=True)  # else the next try would find the same file there
        raise Refused(
            f"{jar.file} has the SHA-256 {actual} instead of {jar.sha256} in jars.lock, so it was not installed."
            f" Check the mirror, then run {set_up_command([jar.conf])} again."
        )
    target = store / jar.conf / jar.file
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh.replace(target)


def _link(jars: Iterable[LockedJar], store: Path, into: Path) -> None:
    """Make the folders of these jars hold a link to each and nothing else.

    A jar of an older lock must not reach a class path.
    """
    wanted = {into / jar.conf / jar.file: store / jar.conf / jar.file for jar in jars}
    confs = {link.parent.name for link in wanted}
    for old in into.glob("*/*"):
        if old.parent.name in STORES.keys() - confs:  # an earlier set-up fetched them, and this one was not asked to
            continue
        if old not in wanted or not old.is_symlink() or old.readlink() != wanted[old]:
            old.unlink()
    for link, target in wanted.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)


def _sha256(path: Path) -> str | None:
    """Return a file's SHA-256 in hex, None when there is no such file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Refused(f"pyspark is not installed in this environment. {_TO_INSTALL}.")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise Refused(f"{Path(spec.origin).parent}/jars holds no Ivy. Remove .venv and run ./turnout setup.")
    return jars[-1]


def _first_problem(log: Path) -> str:
    """Return the line of Ivy's output that says most about a failure."""
    lines = [line.strip(" \t:") for line in log.read_text("utf-8", "replace").splitlines()]
    for sign in ("Exception", "not found", "Server access", "failed"):
        for line in lines:
            if sign.lower() in line.lower():
                return line.rstrip(".")
    return lines[-1] if lines else "no output"


def _say(sentence: str) -> None:
    sys.stderr.write(f"turnout: {sentence}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
