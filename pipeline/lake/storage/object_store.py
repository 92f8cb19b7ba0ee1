"""Object stores as a storage. Nothing here renames, links or appends.

By obstore, which has put-if-absent. Address and credentials come from the environment, as with every client of these
stores, never from a setting: a store is pickled into Spark's tasks.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from pipeline.base.errors import StorageError
from pipeline.base.failpoints import effect
from pipeline.lake.storage.cloud import Cloud
from pipeline.lake.storage.location import FileEntry

PART: Final = 8 << 20
"""Bytes of a request's body, at most: a line of 0.3 MB/s sends them within a request's time."""

_NO_RIGHT: Final = "this process has no right to do that, or no credentials"
_NO_BUCKET: Final = "the bucket does not exist"
_SIGNS: Final = (
    ("NoSuchBucket", _NO_BUCKET),
    ("ContainerNotFound", _NO_BUCKET),
    ("bucket does not exist", _NO_BUCKET),
    ("RequestTimeTooSkewed", "this machine's clock is wrong"),
    ("ExpiredToken", "the credentials have expired"),
    ("AccessDenied", _NO_RIGHT),
    ("403 Forbidden", _NO_RIGHT),
    ("kind: Timeout", "the store has not answered in time"),
    ("kind: Connect", "the store cannot be reached"),
    ("SlowDown", "the store wants fewer requests"),
    ("503", "the store is out of service for now"),
    ("token request", "the platform gives this process no credentials"),
    ("PermanentRedirect", "the bucket is in another region: set AWS_REGION"),
)
_SHOWN: Final = 300  # letters of an error nobody has foreseen


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The buckets of a kind that this process reaches; a path begins with the bucket."""

    cloud: Cloud

    def url(self, path: str) -> str:
        """See `Storage`."""
        return f"{self.cloud.scheme}://{path}"

    def uri(self, path: str) -> str:
        """Return the URL."""
        return self.url(path)

    def local(self, path: str) -> str:
        """Refuse: it is on no machine's disk."""
        raise TypeError(f"{self.url(path)} is in an object store, and this needs a folder")

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        store, key = self._of(path)
        with self._as_os_errors(path):
            return bytes(obstore.get(store, key).bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage`."""
        store, key = self._of(path)
        with self._as_os_errors(path):
            return bytes(obstore.get_range(store, key, start=start, length=length))

    def entry(self, path: str) -> FileEntry | None:
        """See `Storage`."""
        store, key = self._of(path)
        try:
            with self._as_os_errors(path):
                return _entry(path.rpartition("/")[2], obstore.head(store, key))
        except FileNotFoundError:
            return None

    def is_folder(self, path: str) -> bool:
        """See `Storage`."""
        return next(self.files(path, deep=True), None) is not None

    def files(self, folder: str, *, deep: bool = False) -> Iterator[FileEntry]:
        """See `Storage`; without objects that have no content: Spark marks its folders by such, `name/`."""
        store, key = self._of(folder)
        begin = f"{key}/"
        with self._as_os_errors(folder):
            pages = obstore.list(store, begin) if deep else [obstore.list_with_delimiter(store, begin)["objects"]]
            for some in pages:
                yield from (_entry(each["path"].removeprefix(begin), each) for each in some if each["size"])

    def folders(self, folder: str) -> list[str]:
        """See `Storage`."""
        store, key = self._of(folder)
        with self._as_os_errors(folder):
            found = obstore.list_with_delimiter(store, f"{key}/")
        return sorted(each.removeprefix(f"{key}/").rstrip("/") for each in found["common_prefixes"])

    def make(self, folder: str) -> None:
        """Do nothing: a folder is what keys have in common."""

    def put(self, path: str, content: bytes) -> None:
        """See `Storage`."""
        store, key = self._of(path)
        with self._as_os_errors(path, writes=True), effect("publish_file"):
            obstore.put(store, key, content, use_multipart=len(content) > PART, chunk_size=PART, max_concurrency=2)

    def settle(self, folder: str, names: Collection[str]) -> None:
        """Do nothing: a store keeps a file before it answers."""

    def put_if_absent(
        self,
        path: str,
        content: bytes,
        *,
        drafted: str,  # noqa: ARG002 - no draft
        published: str,
        settled: bool = True,  # noqa: ARG002 - it always is
    ) -> bool:
        """See `Storage`."""
        store, key = self._of(path)
        try:
            with self._as_os_errors(path, writes=True), effect(published):
                obstore.put(store, key, content, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        return True

    def delete(self, path: str) -> None:
        """See `Storage`."""
        store, key = self._of(path)
        try:
            with self._as_os_errors(path):
                obstore.delete(store, key)
        except FileNotFoundError:
            return

    def move(self, path: str, target: str) -> None:
        """See `Storage`: a copy, then the deletion."""
        self.put(target, self.read(path))
        self.delete(path)

    def date(self, path: str, modified: float) -> bool:  # noqa: ARG002 - the protocol's signature
        """Return False: the store alone dates its files."""
        return False

    def clear(self, folder: str) -> None:
        """See `Storage`."""
        with suppress(OSError):
            for each in list(self.files(folder, deep=True)):
                self.delete(f"{folder}/{each.name}")

    @property
    def is_far(self) -> bool:
        """Return True."""
        return True

    def arrow(self, path: str) -> tuple[Any, str]:
        """See `Storage`."""
        bucket, slash, key = path.partition("/")
        system, name = self.cloud.arrow(bucket)
        return system, f"{name}{slash}{key}"

    @property
    def options(self) -> Mapping[str, str]:
        """See `Storage`."""
        return self.cloud.options()

    def _of(self, path: str) -> tuple[Any, str]:
        bucket, _, key = path.partition("/")
        with self._as_os_errors(path):  # credentials may be unreadable already
            return self.cloud.client(bucket), key

    @contextmanager
    def _as_os_errors(self, path: str, *, writes: bool = False) -> Iterator[None]:
        """Raise what files raise: every handler of storage's errors knows those."""
        try:
            yield
        except FileNotFoundError as error:  # obstore's own has its long text
            if writes:
                raise StorageError(f"{self.url(path)}: {_NO_BUCKET}") from error
            raise FileNotFoundError(f"{self.url(path)} does not exist") from error
        except AlreadyExistsError as error:
            raise FileExistsError(f"{self.url(path)} exists") from error
        except BaseError as error:
            raise StorageError(f"{self.url(path)}: {_reason(error)}") from error


def _entry(name: str, found: Any) -> FileEntry:
    tag = str(found["e_tag"] or "").strip('"')  # Azure's listings have it without quotes
    return FileEntry(name, found["size"], found["last_modified"].timestamp(), tag)


def _reason(error: BaseError) -> str:
    """Return in a few words what hinders a request, where that is known, else the beginning of the client's text."""
    text = str(error)
    for sign, meaning in _SIGNS:
        if sign in text:
            return meaning
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return _NO_RIGHT
    return text.splitlines()[0][:_SHOWN]
