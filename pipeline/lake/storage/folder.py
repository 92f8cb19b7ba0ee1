"""Folders of this machine as a storage."""

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipeline.base import durable_file
from pipeline.lake.storage.location import FileEntry


@dataclass(frozen=True, slots=True)
class Folder:
    """The file system of this machine; paths are its own."""

    def url(self, path: str) -> str:
        """Return the path."""
        return path

    def uri(self, path: str) -> str:
        """Return `file://` and the path, escaped."""
        return Path(path).as_uri()

    def local(self, path: str) -> str:
        """Return the path."""
        return path

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage`."""
        with Path(path).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def entry(self, path: str) -> FileEntry | None:
        """See `Storage`."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if stat.S_ISDIR(found.st_mode) else _entry(os.path.basename(path), found)

    def is_folder(self, path: str) -> bool:
        """Return whether there is such a folder, also an empty one."""
        return os.path.isdir(path)

    def files(self, folder: str, *, deep: bool = False) -> Iterator[FileEntry]:
        """See `Storage`; links to folders are not followed."""
        waiting, begin = [folder], len(folder) + 1
        while waiting:
            try:
                entries = os.scandir(waiting.pop())
            except FileNotFoundError:
                continue
            with entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        if entry.is_dir(follow_symlinks=False):
                            waiting += [entry.path] if deep else []
                        elif entry.is_file():
                            yield _entry(entry.path[begin:], entry.stat())

    def folders(self, folder: str) -> list[str]:
        """See `Storage`."""
        try:
            with os.scandir(folder) as entries:
                return sorted(each.name for each in entries if each.is_dir())
        except FileNotFoundError:
            return []

    def make(self, folder: str) -> None:
        """See `Storage`; survives a power cut."""
        durable_file.make_folder(Path(folder))

    def settle(self, folder: str, names: Collection[str]) -> None:
        """See `Storage`."""
        durable_file.settle(Path(folder), names)

    def put(self, path: str, content: bytes) -> None:
        """See `Storage`; survives a power cut."""
        durable_file.replace(Path(path), content)

    def put_if_absent(self, path: str, content: bytes, *, drafted: str, published: str, settled: bool = True) -> bool:
        """See `Storage`; survives a power cut where `settled`."""
        return durable_file.create(path, content, drafted=drafted, published=published, settled=settled)

    def delete(self, path: str) -> None:
        """See `Storage`."""
        Path(path).unlink(missing_ok=True)

    def move(self, path: str, target: str) -> None:
        """See `Storage`; in one step."""
        Path(path).replace(target)

    def date(self, path: str, modified: float) -> bool:
        """See `Storage`."""
        with suppress(FileNotFoundError):
            os.utime(path, (modified, modified))
        return True

    def clear(self, folder: str) -> None:
        """See `Storage`."""
        shutil.rmtree(folder, ignore_errors=True)

    @property
    def is_far(self) -> bool:
        """Return False: it is a disk of this machine, or looks like one."""
        return False

    def arrow(self, path: str) -> tuple[Any, str]:
        """See `Storage`."""
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), path

    @property
    def options(self) -> Mapping[str, str]:
        """Nothing: delta-rs reads folders as they are."""
        return {}


def _entry(name: str, found: os.stat_result) -> FileEntry:
    return FileEntry(name, found.st_size, found.st_mtime, f"{found.st_ino}-{found.st_mtime_ns}")


FOLDERS: Final = Folder()
