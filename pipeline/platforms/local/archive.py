"""What executors on other machines need of Python: packages and turnout's own code, as archives in the user's cache.

Without pyspark, which their Spark brings, and without what only pages and commands import. Packed once per lock, and
the code once per content.
"""

import hashlib
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from pipeline.base.errors import Refused

PACKAGES: Final = (
    "arro3-core", "deltalake", "deprecated", "duckdb", "fastavro", "googleapis-common-protos", "msgspec", "numpy",
    "obstore", "pandas", "protobuf", "ptars", "pyarrow", "python-dateutil", "pytz", "six", "sqlalchemy",
    "typing-extensions", "tzdata", "wrapt",
)  # fmt: skip
"""The packages that modules of tasks import, directly or not."""

_LEFT_OUT: Final = {"include", "tests"}  # folders of packages
_CODE: Final = ("listeners", "pipeline", "protos")
_ROOT: Final = Path(__file__).parents[3]


def archives() -> tuple[Path, Path]:
    """Return the archives of packages and of turnout's code, packed where the cache lacks them.

    Raises:
        Refused: the cache cannot be written, or a package is not installed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnout" / "archives"
    try:
        versions = [f"{name}=={distribution(name).version}" for name in PACKAGES]
        lock = _hash(f"{sys.version} {versions} {sorted(_LEFT_OUT)}".encode())
        code = sorted(each for name in _CODE for each in (_ROOT / name).rglob("*") if _is_code(each))
        state = _hash(*(b"%s %s" % (str(each.relative_to(_ROOT)).encode(), each.read_bytes()) for each in code))
        return (
            _packed(cache / f"packages-{lock}.tar.gz", _files(PACKAGES)),
            _packed(cache / f"code-{state}.tar.gz", ((each, str(each.relative_to(_ROOT))) for each in code)),
        )
    except OSError as error:
        raise Refused(f"The Python of executors cannot be packed into {cache}: {error}. Correct that.") from error
    except PackageNotFoundError as error:
        raise Refused(f"The package {error} is not installed. Run ./turnout setup.") from error


def own_folders() -> tuple[str, str]:
    """Return the folders on this machine from which the archives are packed: of our code, and of the packages."""
    return str(_ROOT), str(distribution("pyarrow").locate_file(""))


def _is_code(file: Path) -> bool:
    return file.is_file() and file.suffix != ".pyc"


def _files(packages: Iterable[str]) -> Iterable[tuple[Path, str]]:
    """Yield each file of installed packages with its name below their folder."""
    for name in packages:
        for each in distribution(name).files or []:
            if not each.parts[0].startswith("..") and each.suffix != ".pyc" and not _LEFT_OUT & set(each.parts):
                yield Path(str(each.locate())), str(each)


def _packed(archive: Path, files: Iterable[tuple[Path, str]]) -> Path:
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=archive.parent, prefix=".packing-", delete=False) as draft:
        try:
            with tarfile.open(fileobj=draft, mode="w:gz", compresslevel=1) as packed:
                for file, name in files:
                    packed.add(file, name, recursive=False)
            draft.close()
            Path(draft.name).replace(archive)
        finally:
            Path(draft.name).unlink(missing_ok=True)
    return archive


def _hash(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part + b"\0")
    return found.hexdigest()[:16]
