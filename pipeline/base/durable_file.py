"""Puts files and their names on disk, and writes small files atomically: what is on disk survives a power cut.

A file that was only written is in the system's memory, and so is a name that was made, linked or renamed. On an NFS
mount, on disk is what the server keeps.
"""

import contextlib
import itertools
import os
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pipeline.base.failpoints import effect

_AT_ONCE: Final = 16  # files on their way to the disk: 300 take half as long as one after another
_FEW: Final = 4  # for which threads are not started


def settle(folder: Path, names: Collection[str]) -> None:
    """Put files below a folder on disk, then their names.

    Raises:
        OSError: one of them is missing, or the disk fails.
    """
    paths = [folder / name for name in names]
    _sync_each(paths)
    _sync_each({path.parent for path in paths})


def make_folder(folder: Path) -> None:
    """Make a folder and those above it unless they are there, and put the names of new ones on disk."""
    missing = list(itertools.takewhile(lambda each: not each.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync(each.parent)


def write_text(file: Path, text: str) -> None:
    """Replace a file's content in one step, and make its folder; see `replace`."""
    with effect("make_folder"):
        make_folder(file.parent)
    replace(file, text.encode())


def replace(file: Path, content: bytes) -> None:
    """Replace a file's content in one step, and put it on disk; a reader finds the old content or the new one."""
    with _drafted(os.fspath(file), content, drafted="draft_file") as draft, effect("publish_file"):
        Path(draft).replace(file)
    _sync(file.parent)


def create(file: str | Path, content: bytes, *, drafted: str, published: str, settled: bool = True) -> bool:
    """Write a file into its folder unless the name exists, and return whether this call wrote it.

    Of concurrent calls one succeeds. The content is on disk before the name is there. Afterwards the name is on disk,
    too, by any process; unless `settled` is False: then a power cut may take the name. `drafted` and `published` are
    the names of its fail-points.
    """
    name = os.fspath(file)
    with _drafted(name, content, drafted) as draft:
        try:
            with effect(published):
                os.link(draft, name)  # atomic, and fails where the name exists
            created = True
        except FileExistsError:
            created = False
    if settled:
        _sync(Path(name).parent)
    return created


@contextlib.contextmanager
def _drafted(file: str, content: bytes, drafted: str) -> Iterator[str]:
    """Write the content to a file of another name; maintenance deletes the files of dead processes.

    Paths are texts here: a driver does this for each commit, and a `Path` costs as much as a call of the system.
    """
    folder, name = os.path.split(file)
    draft = os.path.join(folder, f".{name}-{uuid.uuid4().hex}.tmp")
    try:
        with effect(drafted), open(draft, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())  # an empty file after a power cut would be worse than none
        yield draft
    finally:
        with effect("delete_draft"), contextlib.suppress(FileNotFoundError):
            os.unlink(draft)


def _sync_each(paths: Collection[Path]) -> None:
    run: Callable[..., Iterator[None]] = map
    with contextlib.ExitStack() as stack:
        if len(paths) > _FEW:
            run = stack.enter_context(ThreadPoolExecutor(min(_AT_ONCE, len(paths)))).map
        for _ in run(_sync, paths):
            pass


def _sync(path: Path) -> None:
    """Wait until the disk has a file's content, or the names in a folder, by any process."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
