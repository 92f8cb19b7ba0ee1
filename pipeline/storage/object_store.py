"""Buckets as a storage: S3, and what speaks like it. Nothing here renames, links or appends.

By obstore, which has put-if-absent. Address, region and credentials come from the environment (`AWS_…`), as with every
client of S3, never from a setting: a store is pickled into Spark's tasks.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from pipeline.failpoints import effect
from pipeline.storage.location import Entry

_RETRY: Final[Any] = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
_TIMEOUT: Final = timedelta(seconds=30)  # of a request
_NO_RIGHT: Final = "this process has no right to do that, or no credentials"
_SIGNS: Final = (
    ("AccessDenied", _NO_RIGHT),
    ("403 Forbidden", _NO_RIGHT),
    ("kind: Timeout", "the store has not answered in time"),
    ("kind: Connect", "the store cannot be reached"),
    ("SlowDown", "the store wants fewer requests"),
    ("503", "the store is out of service for now"),
    ("PermanentRedirect", "the bucket is in another region: set AWS_REGION"),
    ("RequestTimeTooSkewed", "this machine's clock is wrong"),
)
_SHOWN: Final = 300  # letters of an error nobody has foreseen
_OPTIONS: Final = {"timeout": "30s", "connect_timeout": "10s", "max_retries": "5"}  # else delta-rs waits for minutes


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The buckets that this process reaches; a path begins with the bucket's name."""

    def url(self, path: str) -> str:
        """See `Storage`."""
        return f"s3://{path}"

    def uri(self, path: str) -> str:
        """Return the URL."""
        return self.url(path)

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
        """See `Storage`; without objects that have no content: Spark marks its folders by such, `name/`."""
        store, key = self._of(folder)
        begin = f"{key}/"
        with _as_os_errors(folder):
            pages = obstore.list(store, begin) if deep else [obstore.list_with_delimiter(store, begin)["objects"]]
            for some in pages:
                yield from (_entry(each["path"].removeprefix(begin), each) for each in some if each["size"])

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

    @property
    def arrow(self) -> Any:
        """See `Storage`."""
        return _arrow(endpoint(), region())

    @property
    def options(self) -> Mapping[str, str]:
        """See `Storage`."""
        return {"aws_region": region(), **_addressed(endpoint()), **_OPTIONS}

    def _of(self, path: str) -> tuple[S3Store, str]:
        bucket, _, key = path.partition("/")
        return _client(endpoint(), region(), bucket), key


BUCKETS: Final = ObjectStore()


def endpoint() -> str:
    """Return the store's address from `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, empty: AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def region() -> str:
    """Return the store's region from `AWS_REGION` or `AWS_DEFAULT_REGION`; servers of one's own do not look at it."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


@cache  # per process: a client keeps its connections
def _client(address: str, area: str, name: str) -> S3Store:
    given: Any = {"aws_region": area, **_addressed(address)}
    plain: Any = {"timeout": _TIMEOUT, "allow_http": address.startswith("http://")}
    return S3Store(name, config=given, client_options=plain, retry_config=_RETRY)


@cache
def _arrow(address: str, area: str) -> Any:
    from pyarrow.fs import S3FileSystem

    scheme, _, host = address.rpartition("://")
    return S3FileSystem(endpoint_override=host or None, scheme=scheme or "https", region=area)


def _addressed(address: str) -> dict[str, str]:
    if not address:
        return {}
    plain = {"aws_allow_http": "true"} if address.startswith("http://") else {}
    return {"aws_endpoint": address, "aws_virtual_hosted_style_request": "false", **plain}


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
        raise OSError(f"s3://{path}: {_reason(error)}") from error


def _reason(error: BaseError) -> str:
    """Return in a few words what hinders a request, where that is known, else the beginning of the client's text."""
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return _NO_RIGHT
    text = str(error)
    for sign, meaning in _SIGNS:
        if sign in text:
            return meaning
    return text.splitlines()[0][:_SHOWN]
