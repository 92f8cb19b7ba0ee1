"""Where tables are: the settings of `[storage]`, and this machine's folder of an environment at a URL."""

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.base import durable_file, private_files
from pipeline.base.errors import Refused, StorageError
from pipeline.lake.storage import mounts
from pipeline.lake.storage.location import Location
from pipeline.settings.parsing import quoted

_LINK: Final = "turnout.url"
_COPY: Final = "turnout.toml.read"
_log = logging.getLogger(__name__)
_BUCKET: Final = re.compile(
    r"(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
    r"|gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
    r"|abfss://[a-z0-9][a-z0-9-]{1,61}[a-z0-9]@[a-z0-9]{3,24}\.dfs\.core\.windows\.net)"
    r"(/[A-Za-z0-9._=-]+)*/?"
)
_EXAMPLES: Final = "s3://bucket/prod, gs://bucket/prod or abfss://container@account.dfs.core.windows.net/prod"


@dataclass(frozen=True, slots=True)
class Storage:
    """Where tables are: see docs/storage.md."""

    root: str = ""
    """URL below which the tables and ingest's checkpoints are, such as `s3://bucket/prod`. Empty: the environment's
    folder. The folder keeps what is this machine's. Address and credentials come from the platform's variables, such
    as `AWS_REGION`, never from a setting."""


def storage_problems(storage: Storage, url: str, writer: str, store: str) -> list[str]:
    """Return what hinders tables in a bucket.

    Args:
        storage: the settings.
        url: of the environment, empty where it is a folder.
        writer: `demux.writer`.
        store: `store.url`.
    """
    root = storage.root
    problems = []
    if (reason := mounts.refused_place(root)) is not None:
        problems.append(f"storage.root: {reason}. Expected a URL such as {_EXAMPLES}")
    elif root and not _BUCKET.fullmatch(root):
        problems.append(f"storage.root: expected a URL such as {_EXAMPLES}, got {quoted(root)}")
    if root and url and root.rstrip("/") != url:
        problems.append(f"storage.root: expected none, or the URL of --env-dir, {url}, got {quoted(root)}")
    if (root or url) and writer == "spark":
        problems.append(
            "demux.writer: expected 'direct' where tables are in a bucket, got 'spark': there Spark's commits "
            "overwrite those of others"
        )
    if url and not store:
        problems.append(
            f"store.url: expected the address of a PostgreSQL database for {url}, got none: other machines "
            f"use this environment, too"
        )
    return problems


def read_link(folder: Path) -> str:
    """Return the URL of an environment whose machine's folder this is, empty for another folder."""
    link = folder / _LINK
    return link.read_text("utf-8").strip() if link.is_file() else ""


def read_settings(file: Location, folder: Path) -> bytes:
    """Return the content of an environment's settings file, empty without a file.

    Of a file in a store the folder of this machine keeps a copy, for its owner alone. It is used while the store does
    not serve, so that whatever needs only the control store still works.

    Raises:
        OSError: it cannot be read, and never was on this machine.
    """
    copy = folder / _COPY
    try:
        content = file.read()
    except FileNotFoundError:
        content = b""
    except StorageError as error:
        if not copy.is_file():
            raise
        _log.warning("%s. The settings are those that this machine read last", error)
        return copy.read_bytes()
    if file.is_far and not (copy.is_file() and copy.read_bytes() == content):
        private_files.write_file(copy, content.decode("utf-8", "replace"))
    return content


def machine_folder(url: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return this machine's folder for the environment at a URL, made where it is not there: `--env-dir s3://...`.

    It is named by a hash of the URL, below `$XDG_STATE_HOME/turnout`, and knows the URL. On Databricks it is on the
    disk of the driver's machine.

    Raises:
        Refused: it is no URL of a storage that turnout knows, or the folder cannot be made.
    """
    require_place(url)
    if not _BUCKET.fullmatch(url):
        raise Refused(f"{quoted(url)} cannot be an environment: expected a folder, or a URL such as {_EXAMPLES}.")
    known = os.environ if environ is None else environ
    whole = url.rstrip("/")
    folder = _state(known) / hashlib.sha256(whole.encode()).hexdigest()[:16]
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the temporary folder is of all users
        folder.mkdir(exist_ok=True)
        if read_link(folder) != whole:
            durable_file.write_text(folder / _LINK, whole)
    except OSError as error:
        raise Refused(f"{folder} cannot be used: {error.strerror}. Set XDG_STATE_HOME to another folder.") from error
    return folder


def require_place(place: str | Path) -> None:
    """Continue unless a place is in a file system of Databricks that takes no environment.

    Raises:
        Refused: it is.
    """
    reason = mounts.refused_place(str(place))
    if reason is None and isinstance(place, Path):
        reason = mounts.refused_place(str(place.resolve()))
    if reason is not None:
        raise Refused(f"{reason}. So {mounts.REMEDY}.")


def _state(environ: Mapping[str, str]) -> Path:
    """Return the folder of this machine's folders of environments.

    Raises:
        Refused: it would be in a file system of Databricks that takes none.
    """
    if chosen := environ.get("XDG_STATE_HOME"):
        state = Path(chosen) / "turnout"
    else:
        state = mounts.local_disk() if mounts.is_databricks(environ) else Path.home() / ".local" / "state" / "turnout"
    if (reason := mounts.refused_place(str(state))) is not None:
        raise Refused(f"{reason}. Set XDG_STATE_HOME to a folder on this machine's disk.")
    return state
