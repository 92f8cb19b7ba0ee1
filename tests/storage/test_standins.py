"""Laws of object stores that the stand-ins of Google and Azure keep, seen by the clients that turnout has."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import obstore
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from obstore.exceptions import AlreadyExistsError
from obstore.store import AzureStore, GCSStore

from tests.storage.azure_server import azure
from tests.storage.google_server import google


@dataclass(frozen=True, slots=True)
class Standin:
    url: str
    store: AzureStore | GCSStore
    options: dict[str, str]
    """Of delta-rs."""


@contextmanager
def _google() -> Iterator[Standin]:
    with google() as url:
        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        key = json.dumps({"gcs_base_url": os.environ["GOOGLE_BASE_URL"], "disable_oauth": True, **nobody})
        store = GCSStore(
            url.removeprefix("gs://"), config={"service_account_key": key}, client_options={"allow_http": True}
        )
        yield Standin(url, store, {"google_service_account_key": key, "allow_http": "true"})


@contextmanager
def _azure() -> Iterator[Standin]:
    with azure() as url:
        store = AzureStore(url.removeprefix("abfss://").partition("@")[0], client_options={"allow_http": True})
        yield Standin(url, store, {"azure_storage_use_emulator": "true", "allow_http": "true"})


@pytest.fixture(params=[_google, _azure], ids=["google", "azure"])
def standin(request: pytest.FixtureRequest) -> Iterator[Standin]:
    with request.param() as started:
        yield started


def _listed(standin: Standin, prefix: str, offset: str | None = None) -> list[str]:
    return [each["path"] for page in obstore.list(standin.store, prefix, offset=offset) for each in page]


def test_an_object_is_read_as_it_was_written(standin: Standin) -> None:
    """Law: bytes come back whole, in part and by their size, under a name of any signs; a later write replaces them."""
    for name in ("a/b", "a b%20c+d=ž/&<e>"):
        put = obstore.put(standin.store, name, b"0123456789", use_multipart=False)
        assert bytes(obstore.get(standin.store, name).bytes()) == b"0123456789"
        assert bytes(obstore.get_range(standin.store, name, start=2, length=3)) == b"234"
        assert bytes(obstore.get_range(standin.store, name, start=8, length=100)) == b"89"
        head = obstore.head(standin.store, name)
        assert (head["size"], head["e_tag"]) == (10, put["e_tag"])
        assert obstore.put(standin.store, name, b"another", use_multipart=False)["e_tag"] != put["e_tag"]
        assert bytes(obstore.get(standin.store, name).bytes()) == b"another"
        assert _listed(standin, name.partition("/")[0]) == [name]


def test_an_object_of_several_parts_is_read_as_it_was_written(standin: Standin) -> None:
    """Law: what a client uploads in parts, or lets the server copy, is one object of all of them in their order."""
    content = os.urandom(1 << 20)
    obstore.put(standin.store, "parts", content, use_multipart=True, chunk_size=100_000)
    obstore.copy(standin.store, "parts", "copy")
    for name in ("parts", "copy"):
        assert bytes(obstore.get(standin.store, name).bytes()) == content


def test_a_listing_goes_over_its_pages(standin: Standin) -> None:
    """Law: a listing has each name once and in order, whatever its pages are, and starts after its offset."""
    files = [f"many/{number:04}" for number in range(0, 2500, 2)]
    folders = [f"many/{number:04}" for number in range(1, 2500, 2)]
    names = sorted([*files, *(f"{folder}/{name}" for folder in folders for name in "xy")])
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: obstore.put(standin.store, name, b"", use_multipart=False), [*names, "more/1"]))
    assert _listed(standin, "many") == names
    assert _listed(standin, "many", "many/1998") == [name for name in names if name > "many/1998"]
    listed = obstore.list_with_delimiter(standin.store, "many")
    assert (files, folders) == ([each["path"] for each in listed["objects"]], list(listed["common_prefixes"]))
    assert list(obstore.list_with_delimiter(standin.store)["common_prefixes"]) == ["many", "more"]


def test_a_name_is_given_once(standin: Standin) -> None:
    """Law: of writers that create one name at the same time exactly one does, and its content stays."""

    def create(attempt: int) -> int | None:
        try:
            obstore.put(standin.store, f"once/{attempt % 20}", b"%d" % attempt, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return None
        return attempt

    with ThreadPoolExecutor(16) as pool:
        winners = [attempt for attempt in pool.map(create, range(320)) if attempt is not None]
    assert set(range(20)) == {winner % 20 for winner in winners}
    assert len(winners) == 20
    for winner in winners:
        assert bytes(obstore.get(standin.store, f"once/{winner % 20}").bytes()) == b"%d" % winner


def test_what_is_not_there_is_missing(standin: Standin) -> None:
    """Law: what was deleted, or never was, is FileNotFoundError to all that read it, and to who deletes it."""
    for name in ("one", "two", "three"):
        obstore.put(standin.store, name, b"1", use_multipart=False)
    obstore.delete(standin.store, "one")
    obstore.delete(standin.store, ["two", "three"])
    assert _listed(standin, "") == []
    for act in (obstore.get, obstore.head, obstore.delete):
        with pytest.raises(FileNotFoundError):
            act(standin.store, "one")


def test_delta_rs_has_its_tables_there(standin: Standin) -> None:
    """Law: delta-rs makes a table, appends to it while others read it, and writes a checkpoint that opens it."""
    url = f"{standin.url}/lake/table"
    rows = pa.table({"a": range(1000)})
    write_deltalake(url, rows, storage_options=standin.options)
    opened = DeltaTable(url, storage_options=standin.options)
    for _ in range(2):
        write_deltalake(opened, rows, mode="append", commit_properties=CommitProperties({"by": "test"}))
    opened.create_checkpoint()
    fresh = DeltaTable(url, storage_options=standin.options)
    assert (fresh.version(), len(fresh.file_uris())) == (2, 3)
    assert fresh.to_pyarrow_table().num_rows == 3000
    assert "lake/table/_delta_log/_last_checkpoint" in _listed(standin, "lake")
