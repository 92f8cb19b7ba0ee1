"""The Java side of a machine: the jars of Spark, object stores, Kafka's broker and the demo's registry; Java.

Called wherever a JVM is started. Checks names only; `pipeline.platforms.local.fetch` checks contents.
"""

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.lake.storage.cloud import Jars
from pipeline.platforms.local.shared import checkout, launcher

Conf = Literal["spark", "kafka", "registry"] | Jars

CONFS: Final[tuple[Conf, ...]] = ("spark", "kafka", "registry")
"""What every set-up fetches."""

STORES: Final[dict[Conf, str]] = {
    "s3": "S3 (13 MB)",
    "azure": "Azure (1 MB)",
    "gcs": "Google Cloud Storage (38 MB)",
}
"""What Spark needs to read a kind of object store; fetched where tables are in one."""

_KNOWN: Final[tuple[Conf, ...]] = (*CONFS, *STORES)
LOCK_FILE: Final = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One line of the lock: `sha256  conf/file.jar`; the registry is an archive of its jars."""

    sha256: str
    conf: Conf
    file: str


def spark_jars() -> tuple[Path, ...]:
    """Return the jars of every Spark driver, in the lock's order.

    Raises:
        Refused: a jar is missing.
    """
    return _present("spark")


def store_jars(conf: Jars) -> tuple[Path, ...]:
    """Return the jars with which Spark reads a kind of object store, in the lock's order.

    Raises:
        Refused: a jar is missing.
    """
    return _present(conf)


def kafka_jars() -> tuple[Path, ...]:
    """Return the jars of the Kafka broker and its tools, in the lock's order.

    Raises:
        Refused: a jar is missing.
    """
    return _present("kafka")


def registry_archive() -> Path:
    """Return the archive of the demo's schema registry.

    Raises:
        Refused: it is missing.
    """
    (archive,) = _present("registry")
    return archive


def java_executable() -> str:
    """Return the Java program: the one in $JAVA_HOME when set, else the first on PATH.

    Raises:
        Refused: no Java is found.
    """
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise Refused(f"JAVA_HOME is {home}, but {java} does not exist. Correct JAVA_HOME or unset it.")
        return str(java)
    executable = shutil.which("java")
    if executable is None:
        raise Refused(
            "Java is not on PATH. Run ./turnout setup, or install Java 17 or later."
            if checkout()
            else "Java is not on PATH. Install Java 17 or later."
        )
    return executable


def set_up_command(confs: Iterable[str]) -> str:
    """Return the command that fetches the jars of these confs."""
    store = next((conf for conf in confs if conf in STORES), None)
    return f"{launcher()} setup" + (f" --{store}" if store else "")


def jars_dir() -> Path:
    """Return the folder that has a folder for each conf: $TURNOUT_JARS, else `jars` beside this Python."""
    chosen = os.environ.get("TURNOUT_JARS")
    return Path(chosen) if chosen else Path(sys.prefix) / "jars"


def locked_jars(lock_file: Path = LOCK_FILE) -> tuple[LockedJar, ...]:
    """Read the lock of jars.

    Raises:
        Refused: a line is not `sha256  conf/file.jar`.
    """
    return tuple(_parse(line, number, lock_file) for number, line in _lines(lock_file))


def _lines(lock_file: Path) -> Iterable[tuple[int, str]]:
    text = lock_file.read_text("utf-8")
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if line and not line.startswith("#"))


def _parse(line: str, number: int, lock_file: Path) -> LockedJar:
    sha256, _, place = line.partition("  ")
    conf, _, file = place.partition("/")
    if len(sha256) == 64 and file.endswith((".jar", ".tar.gz")) and "/" not in file:  # hex digits of SHA-256
        for known in _KNOWN:
            if conf == known:
                return LockedJar(sha256, known, file)
    raise Refused(f"{lock_file}, line {number}, is not 'sha256  conf/file.jar'. Restore the file from git.")


def _present(conf: Conf) -> tuple[Path, ...]:
    folder = jars_dir()
    paths = tuple(folder / conf / jar.file for jar in locked_jars() if jar.conf == conf)
    missing = [path for path in paths if not path.exists()]
    if missing:
        named = f"{join_limited(missing, 1)} {'are' if len(missing) > 1 else 'is'}"
        raise Refused(f"{named} missing. Run {set_up_command([conf])} to fetch the jars.")
    return paths
