"""Buckets as a storage: S3, and what speaks like it. Nothing here renames, links or appends.

By obstore, which has put-if-absent. Credentials come from the environment (`AWS_…`), never from a setting: a store is
pickled into Spark's tasks.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import S3Store

from pipeline.failpoints import effect
from pipeline.storage.location import Entry, Location

_RETRY: Final[Any] = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
_TIMEOUT: Final = timedelta(seconds=30)  # of a request


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The buckets that one endpoint has; a path begins with the bucket's name."""

    endpoint: str = ""
    """Its address; empty: AWS's own."""

    region: str = "us-east-1"

    def url(self, path: str) -> str:
        """See `Storage`."""
        return f"s3://{path}"

    def local(self, path: str) -> str:
        """Refuse: it is on no machine's disk."""
        raise TypeError(f"{self.url(path)} is in an object store, and this needs a folder")

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        store, key = self._of(path)
        with _as_os_errors(path):
            return bytes(obstore.get(store, key).bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage`."""
        store, key = self._of(path)
        with _as_os_errors(path):
            return bytes(obstore.get_range(store, key, start=start, length=length))

    def entry(self, path: str) -> Entry | None:
        """See `Storage`."""
        store, key = self._of(path)
        try:
            with _as_os_errors(path):
                return _entry(path.rpartition("/")[2], obstore.head(store, key))
        except FileNotFoundError:
            return None

    def is_folder(self, path: str) -> bool:
        """See `Storage`."""
        return next(self.files(path, deep=True), None) is not None

    def files(self, folder: str, *, deep: bool = False) -> Iterator[Entry]:
        """See `Storage`."""
        store, key = self._of(folder)
        begin = f"{key}/"
        with _as_os_errors(folder):
            if not deep:
                found = obstore.list_with_delimiter(store, begin)
                yield from (_entry(each["path"].removeprefix(begin), each) for each in found["objects"])
                return
            for some in obstore.list(store, begin):
                yield from (_entry(each["path"].removeprefix(begin), each) for each in some)

    def folders(self, folder: str) -> list[str]:
        """See `Storage`."""
        store, key = self._of(folder)
        with _as_os_errors(folder):
            found = obstore.list_with_delimiter(store, f"{key}/")
        return sorted(each.removeprefix(f"{key}/").rstrip("/") for each in found["common_prefixes"])

    def make(self, folder: str) -> None:
        """Do nothing: a folder is what keys have in common."""

    def put(self, path: str, content: bytes) -> None:
        """See `Storage`."""
        store, key = self._of(path)
        with _as_os_errors(path), effect("publish_file"):
            obstore.put(store, key, content, use_multipart=False)

    def put_if_absent(self, path: str, content: bytes, *, drafted: str, published: str) -> bool:  # noqa: ARG002 - no draft
        """See `Storage`."""
        store, key = self._of(path)
        try:
            with _as_os_errors(path), effect(published):
                obstore.put(store, key, content, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        return True

    def delete(self, path: str) -> None:
        """See `Storage`."""
        store, key = self._of(path)
        try:
            with _as_os_errors(path):
                obstore.delete(store, key)
        except FileNotFoundError:
            return

    @property
    def arrow(self) -> Any:
        """See `Storage`."""
        from pyarrow.fs import S3FileSystem

        scheme, _, address = self.endpoint.rpartition("://")
        return S3FileSystem(endpoint_override=address or None, scheme=scheme or "https", region=self.region)

    @property
    def options(self) -> Mapping[str, str]:
        """See `Storage`."""
        return {"aws_region": self.region, **_addressed(self.endpoint)}

    def _of(self, path: str) -> tuple[S3Store, str]:
        bucket, _, key = path.partition("/")
        return _client(self.endpoint, self.region, bucket), key


def bucket(name: str, endpoint: str = "", region: str = "us-east-1") -> Location:
    """Return a bucket as a location."""
    return Location(ObjectStore(endpoint, region), name)


@cache  # per process: a client keeps its connections
def _client(endpoint: str, region: str, name: str) -> S3Store:
    given: Any = {"aws_region": region, **_addressed(endpoint)}
    plain: Any = {"timeout": _TIMEOUT, "allow_http": endpoint.startswith("http://")}
    return S3Store(name, config=given, client_options=plain, retry_config=_RETRY)


def _addressed(endpoint: str) -> dict[str, str]:
    if not endpoint:
        return {}
    plain = {"aws_allow_http": "true"} if endpoint.startswith("http://") else {}
    return {"aws_endpoint": endpoint, "aws_virtual_hosted_style_request": "false", **plain}


def _entry(name: str, found: Any) -> Entry:
    return Entry(name, found["size"], found["last_modified"].timestamp(), str(found["e_tag"] or ""))


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Raise what files raise: every handler of storage's errors knows those."""
    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(f"s3://{path} does not exist") from error
    except AlreadyExistsError as error:
        raise FileExistsError(f"s3://{path} exists") from error
    except BaseError as error:
        raise OSError(f"s3://{path}: {str(error).splitlines()[0]}") from error
