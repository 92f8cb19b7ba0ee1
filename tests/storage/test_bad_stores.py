"""A bucket that does not serve is an error of files to its users, in a few words."""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest

from pipeline.base.errors import Refused, StorageError
from pipeline.lake.delta import parquet
from pipeline.lake.storage import cloud
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.lake.storage.trial import trials
from tests.storage.buckets import Fault, Proxy, bucket, proxied

create = partial(Location.put_if_absent, drafted="draft_commit", published="publish_commit")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Proxy, Location]]:
    monkeypatch.setattr(cloud, "RETRY", {"max_retries": 1, "retry_timeout": timedelta(seconds=2)})
    with bucket() as url, proxied(os.environ["AWS_ENDPOINT_URL"]) as between:
        yield between, located(f"{url}/prod")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("forbidden", "this process has no right to do that, or no credentials"),
        ("refused", "the store wants fewer requests"),
    ],
)
def test_a_store_that_refuses_says_why(store: tuple[Proxy, Location], fault: Fault, said: str) -> None:
    """Law: whatever a store answers, its callers get what a disk would raise, with the place and the reason."""
    between, root = store
    (root / "file").put(b"here")
    between.fault = lambda _method, _path: fault
    file = root / "file"
    for act in (file.read, lambda: list(root.files()), partial(file.put, b""), partial(create, root / "new", b"")):
        with pytest.raises(OSError, match=said) as raised:
            act()
        assert str(root) in str(raised.value)
        assert not isinstance(raised.value, FileNotFoundError | FileExistsError)
    between.fault = lambda _method, _path: None
    assert file.read() == b"here", "it goes on by itself"


@pytest.mark.parametrize(
    ("variable", "value", "url", "said"),
    [
        (
            "AZURE_STORAGE_ACCOUNT_KEY",
            "no base64!",
            "abfss://tables@games.dfs.core.windows.net/prod",
            "Invalid Access Key",
        ),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/none.json", "gs://bucket/prod", "/etc/none.json"),
    ],
)
def test_credentials_that_cannot_be_read_are_an_error_of_files(
    variable: str, value: str, url: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a slip in a variable is one sentence to every command, as a store that is away is."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(StorageError, match=said):
        located(url).read()


def test_an_address_without_a_scheme_is_refused_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a slip in an address is refused with what is expected, before a client panics over it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9000")
    with pytest.raises(Refused, match=r"AWS_ENDPOINT_URL is '127.0.0.1:9000'. Set it to an address with http://"):
        located("s3://bucket/prod").read()


def test_a_bucket_that_is_not_there_is_named(store: tuple[Proxy, Location]) -> None:
    """Law: a mistyped bucket is an error of its listing and of its writes, and no bucket without files."""
    file = located("s3://no-such-bucket/prod/file")
    for act in (lambda: list(file.parent.files()), file.is_folder, partial(file.put, b""), partial(create, file, b"")):
        with pytest.raises(StorageError, match="the bucket does not exist"):
            act()


def test_the_trial_of_a_store_without_conditional_writes_refuses_it(
    store: tuple[Proxy, Location], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a store that gives one name twice is refused before it loses a row."""
    _, root = store

    def overwrites(self: Location, content: bytes, **_: str) -> bool:
        self.put(content)
        return True

    monkeypatch.setattr(Location, "put_if_absent", overwrites)
    found = {each.subject: each for each in trials(root)}
    assert found["put if absent"].stops
    assert found["put if absent"].detail == "8 of 8 writers created one name"


def test_the_trial_of_a_store_that_keeps_what_is_deleted_says_so(store: tuple[Proxy, Location]) -> None:
    """Law: where this process may not delete, doctor ends with that right, and not with an error."""
    between, root = store
    between.fault = lambda method, _path: "forbidden" if method in ("POST", "DELETE") else None
    *_, found = trials(root)
    assert (found.subject, found.stops) == ("deletion", False)
    assert "the right to delete" in found.remedy


def test_the_trial_of_a_read_only_store_refuses_it(store: tuple[Proxy, Location]) -> None:
    """Law: a store in which this process may not write is refused with the right that it lacks."""
    between, root = store
    between.fault = lambda method, _path: "forbidden" if method == "PUT" else None
    (found,) = trials(root)
    assert (found.subject, found.stops) == ("rights", True)
    assert "no right to do that" in found.detail


@pytest.mark.long
def test_arrow_waits_for_a_slow_store_as_long_as_our_client(store: tuple[Proxy, Location]) -> None:
    """Law: a store that answers after some seconds is slow to every reader, and away for none."""
    between, root = store
    rows = pa.table({"a": [1, 2, 3]})
    parquet.write(rows, root / "file.parquet", "zstd")
    between.fault = lambda _method, _path: time.sleep(3.2)
    assert parquet.read(root / "file.parquet").equals(rows)
