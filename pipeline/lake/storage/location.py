"""Where tables lie: a storage, and places in it. Nothing outside this room does arithmetic on their paths."""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as a listing shows it."""

    name: str  # relative to the folder that was listed
    size: int  # bytes
    modified: float  # Unix seconds by the storage's clock
    tag: str = ""  # another one once the content has changed


class Storage(Protocol):
    """A place for files, by their paths: parts joined by `/`. Its calls raise OSError where storage does not answer."""

    def url(self, path: str) -> str:
        """Return what delta-rs, Spark and people call a path."""

    def uri(self, path: str) -> str:
        """Return what a catalog calls a path: `url` with a scheme."""

    def local(self, path: str) -> str:
        """Return the path in this machine's file system.

        Raises:
            TypeError: it is elsewhere.
        """

    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of a file, shorter at its end.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def entry(self, path: str) -> FileEntry | None:
        """Return a file's name, size and age; None where there is no such file."""

    def is_folder(self, path: str) -> bool:
        """Return whether there is anything below a path."""

    def files(self, folder: str, *, deep: bool = False) -> Iterator[FileEntry]:
        """Yield the files in a folder, or with `deep` all below it, in no order; a file may go meanwhile."""

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, in order."""

    def make(self, folder: str) -> None:
        """Make a folder and those above it, where folders are something; it may be there."""

    def settle(self, folder: str, names: Collection[str]) -> None:
        """Put files below a folder on disk, with their names, that were written by other ways than `put`.

        Until then a power cut may take them. Nothing in a bucket, whose files are kept before they are there.

        Raises:
            OSError: one of them is missing, or the disk fails.
        """

    def put(self, path: str, content: bytes) -> None:
        """Write a file in one step: a reader finds the old content or the new one, never a part."""

    def put_if_absent(self, path: str, content: bytes, *, drafted: str, published: str, settled: bool = True) -> bool:
        """Write a file in one step unless there is one, and return whether this call wrote it.

        Of concurrent calls one succeeds. False may also be a lost reply: read it and compare. `drafted` and `published`
        are the names of its fail-points. With `settled` False a power cut may take the file, but not a part of it.
        """

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""

    def move(self, path: str, target: str) -> None:
        """Give a file another name, which another file may have until then; not in one step where storage cannot.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def date(self, path: str, modified: float) -> bool:
        """Set when a file was last changed, Unix seconds, and return whether storage can; a missing one is fine."""

    def clear(self, folder: str) -> None:
        """Delete all below a folder, and the folder; a missing one is fine, and so is what cannot be deleted."""

    @property
    def is_far(self) -> bool:
        """Whether each call is a request that takes time and costs: many are then made at once, and none in vain."""

    def arrow(self, path: str) -> tuple[Any, str]:
        """Return Arrow's file system, to read, and what it calls a path."""

    @property
    def options(self) -> Mapping[str, str]:
        """What delta-rs needs to reach it."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a storage: a table's folder, a file of it, or a folder of tables."""

    storage: Storage
    path: str

    def __truediv__(self, name: str) -> "Location":
        """Return a place below this one; `name` may have several parts."""
        return Location(self.storage, posixpath.join(self.path, name))

    def __str__(self) -> str:
        return self.storage.url(self.path)

    def __fspath__(self) -> str:
        return self.storage.local(self.path)

    @property
    def uri(self) -> str:
        """See `Storage.uri`."""
        return self.storage.uri(self.path)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.path)

    @property
    def parent(self) -> "Location":
        """The folder in which it is."""
        return Location(self.storage, posixpath.dirname(self.path))

    def read(self) -> bytes:
        """See `Storage.read`."""
        return self.storage.read(self.path)

    def read_text(self) -> str:
        """Return a file's content as text.

        Raises:
            FileNotFoundError: there is no such file.
            UnicodeDecodeError: it is no text.
        """
        return self.read().decode("utf-8")

    def read_range(self, start: int, length: int) -> bytes:
        """See `Storage.read_range`."""
        return self.storage.read_range(self.path, start, length)

    @property
    def is_far(self) -> bool:
        """See `Storage.is_far`."""
        return self.storage.is_far

    @property
    def options(self) -> dict[str, str] | None:
        """What delta-rs needs to reach it; None: nothing."""
        return dict(self.storage.options) or None

    def entry(self) -> FileEntry | None:
        """See `Storage.entry`."""
        return self.storage.entry(self.path)

    def exists(self) -> bool:
        """Return whether there is such a file."""
        return self.entry() is not None

    def size(self) -> int:
        """Return a file's size in bytes.

        Raises:
            FileNotFoundError: there is no such file.
        """
        found = self.entry()
        if found is None:
            raise FileNotFoundError(f"{self} does not exist")
        return found.size

    def is_folder(self) -> bool:
        """See `Storage.is_folder`."""
        return self.storage.is_folder(self.path)

    def files(self, *, deep: bool = False) -> Iterator[FileEntry]:
        """See `Storage.files`."""
        return self.storage.files(self.path, deep=deep)

    def folders(self) -> list["Location"]:
        """Return the folders in this one, in the order of their names."""
        return [self / name for name in self.storage.folders(self.path)]

    def make(self) -> None:
        """See `Storage.make`."""
        self.storage.make(self.path)

    def put(self, content: bytes) -> None:
        """See `Storage.put`."""
        self.storage.put(self.path, content)

    def settle(self, names: Collection[str]) -> None:
        """See `Storage.settle`."""
        self.storage.settle(self.path, names)

    def put_if_absent(self, content: bytes, *, drafted: str, published: str, settled: bool = True) -> bool:
        """See `Storage.put_if_absent`."""
        return self.storage.put_if_absent(self.path, content, drafted=drafted, published=published, settled=settled)

    def delete(self) -> None:
        """See `Storage.delete`."""
        self.storage.delete(self.path)

    def move(self, target: "Location") -> None:
        """Give a file the name of another place of its storage; see `Storage.move`."""
        self.storage.move(self.path, target.path)

    def date(self, modified: float) -> bool:
        """See `Storage.date`."""
        return self.storage.date(self.path, modified)

    def clear(self) -> None:
        """See `Storage.clear`."""
        self.storage.clear(self.path)
