"""What Databricks mounts: file systems that take no environment, and the disk of a driver, which is its working folder.

Source: rename and link fail with ENOSYS in volumes (https://github.com/earth-mover/icechunk/issues/2341,
https://github.com/developmentseed/obstore/issues/748).
"""

import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

RUNTIME: Final = "DATABRICKS_RUNTIME_VERSION"
"""The variable that every process of a Databricks cluster has, such as 19.0."""

REMEDY: Final = (
    "put the tables at an external location, and name its URL with --env-dir: s3://bucket/prod, gs://bucket/prod or "
    "abfss://container@account.dfs.core.windows.net/prod"
)
"""What to do where a place is refused."""

_LOCAL_DISK: Final = Path("/local_disk0")
_MOUNTS: Final = ("/Volumes", "/Workspace", "/dbfs")


def is_databricks(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether this process runs on a cluster of Databricks."""
    return bool((os.environ if environ is None else environ).get(RUNTIME))


def refused_place(place: str) -> str | None:
    """Return why no environment and no table can be at a place, a path or a URL; None where one can.

    A Mac has its disks in /Volumes, which are fine.
    """
    for root in (*_MOUNTS, "dbfs:"):
        if place != root and not place.startswith(root if root == "dbfs:" else f"{root}/"):
            continue
        if root == "/Volumes" and platform.system() == "Darwin":
            return None
        ends = ", and access to it expires during a run" if root == "/Workspace" else ""
        return (
            f"{place} is in a file system of Databricks that can neither rename nor link (ENOSYS), so two writers may "
            f"both win one commit{ends}"
        )
    return None


def local_disk() -> Path:
    """Return the folder on the disk of a driver's machine for what may be lost with the cluster."""
    disk = _LOCAL_DISK if os.access(_LOCAL_DISK, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return disk / "turnout"
