"""Folders and files for their owner only: the control store, logs, tokens.

Files of the data path have fail-points, and are written by `durable_file`.
"""

import contextlib
import errno
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PUBLIC: Final = 0o666


def make_folder(folder: Path) -> None:
    """Make a folder with mode 0700, and its parents with the default mode; narrow an own folder that is wider."""
    folder.mkdir(parents=True, exist_ok=True)
    _narrow(folder, 0o700)


def make_file(file: Path) -> None:
    """Make an empty file with mode 0600 unless it exists; narrow an own file that is wider.

    Never opens an existing file: closing it would release the locks that this process has on it by other handles, and
    so SQLite's on a database (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    if not file.exists():
        draft = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.link(draft, file)
        except FileExistsError:  # another process was faster
            pass
        except OSError:  # a file system without hard links: opened only when this very call makes it
            with contextlib.suppress(FileExistsError):
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        finally:
            draft.unlink()
    _narrow(file, 0o600)


def write_file(file: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file's content in one step, with this mode, less the user's mask, from its first byte on."""
    write_files({file: text}, mode)


def write_files(texts: Mapping[Path, str], mode: int = 0o600) -> None:
    """Replace each file's content in one step; none before all texts are on disk and no folder is in the way.

    Then their names are put on disk, too.
    """
    drafts = {file: file.with_name(f".{file.name}-{uuid.uuid4().hex}") for file in texts}
    try:
        for file, draft in drafts.items():
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
            with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "w", encoding="utf-8") as handle:
                handle.write(texts[file])
                handle.flush()
                os.fsync(handle.fileno())  # an empty file after a power cut would be worse than none
        for file, draft in drafts.items():
            draft.replace(file)
        for folder in {file.parent for file in texts}:
            names = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(names)
            finally:
                os.close(names)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _narrow(path: Path, mode: int) -> None:
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o777 & ~mode:
        path.chmod(mode)
