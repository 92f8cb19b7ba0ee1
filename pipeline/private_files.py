"""Folders and files for their owner only: the control store, logs, tokens. Other users of the machine read nothing."""

import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a folder with mode 0700, with its parents as the system makes them; narrow one of ours that is wider."""
    folder.mkdir(parents=True, exist_ok=True)
    _narrow(folder, 0o700)


def make_file(file: Path) -> None:
    """Make an empty file with mode 0600 where there is none; narrow one of ours that is wider."""
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    _narrow(file, 0o600)


def _narrow(path: Path, mode: int) -> None:
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o777 & ~mode:
        path.chmod(mode)
