"""The local folder of a Spark session: shuffles, spills, broadcasts, sockets. Called by `session`.

It lies in the machine's folder of the environment, as programs that clean /tmp also take what a running driver needs.
"""

import fcntl
import os
import shutil
import socket
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipeline.base.private_files import make_folder

_LOCK: Final = "lock"
_MOST_BYTES: Final = 60  # Spark 4.2 refuses a longer spark.python.unix.domain.socket.dir
_held: Final[list[int]] = []  # the locks of this process's sessions: the system opens them when it ends


def session_folder(parent: Path) -> Path:
    """Make a folder for a session of this process, and remove those of processes that have ended."""
    make_folder(parent)
    own = os.open(parent / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # a disk without locks: nothing is removed there
            fcntl.flock(own, fcntl.LOCK_EX)  # so that nobody removes a folder between its making and its lock
        for each in parent.iterdir():
            if each.is_dir() and (lock := _locked(each)) is not None:
                shutil.rmtree(each, ignore_errors=True)
                os.close(lock)
        made = parent / uuid.uuid4().hex[:8]  # short, as a socket's path has at most 107 bytes
        made.mkdir(0o700)
        if (lock := _locked(made)) is not None:
            _held.append(lock)
        return made
    finally:
        os.close(own)


def takes_sockets(folder: Path) -> bool:
    """Return whether Spark can make its Unix sockets in a folder: the path is short, and the file system has them."""
    if len(os.fsencode(folder)) > _MOST_BYTES:
        return False
    place = folder / f".{uuid.uuid4()}.sock"  # as Spark names them
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.bind(str(place))
        except OSError:
            return False
    place.unlink()
    return True


def _locked(folder: Path) -> int | None:
    """Lock a session's folder, or return None where a process that runs has it, or nobody can tell."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # another user's
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
