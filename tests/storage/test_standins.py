"""Laws of object stores that the stand-ins of Google and Azure keep, as turnout's clients see them."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore, from_url

from tests.storage.azure_server import azure
from tests.storage.google_server import google


@pytest.fixture(params=["google", "azure"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with {"google": google, "azure": azure}[request.param]() as started:
        anybody = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        key = {"gcs_base_url": os.environ.get("GOOGLE_BASE_URL", ""), **anybody}
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(key))
        yield started


@pytest.fixture
def store(url: str) -> ObjectStore:
    return from_url(url, client_options={"allow_http": True})


def _listed(store: ObjectStore, prefix: str, offset: str | None = None) -> list[str]:
    return [each["path"] for page in obstore.list(store, prefix, offset=offset) for each in page]


def test_an_object_is_read_as_it_was_written(store: ObjectStore) -> None:
    """Law: bytes come back whole, in part and by their size, under a name of any signs; a later write replaces them."""
    name, long = "a b%20c+d=ž/&<e>", os.urandom(1 << 20)
    tag = obstore.put(store, name, b"0123456789")["e_tag"]
    assert [bytes(obstore.get_range(store, name, start=start, length=3)) for start in (2, 8)] == [b"234", b"89"]
    assert (obstore.head(store, name)["size"], obstore.head(store, name)["e_tag"]) == (10, tag)
    assert obstore.put(store, name, b"another")["e_tag"] != tag
    obstore.put(store, "long", long, use_multipart=True, chunk_size=100_000)
    obstore.copy(store, "long", "copy")
    contents = {each: bytes(obstore.get(store, each).bytes()) for each in _listed(store, "")}
    assert contents == {name: b"another", "copy": long, "long": long}


def test_a_listing_goes_over_its_pages(store: ObjectStore) -> None:
    """Law: a listing has each name once and in order, whatever its pages are, and starts after its offset."""
    files, folders = ([f"many/{number:04}" for number in range(first, 2500, 2)] for first in (0, 1))
    names = sorted([*files, *(f"{folder}/{name}" for folder in folders for name in "xy")])
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: obstore.put(store, name, b""), [*names, "more/1"]))
    assert _listed(store, "many") == names
    assert _listed(store, "many", "many/1998") == [name for name in names if name > "many/1998"]
    listed = obstore.list_with_delimiter(store, "many")
    assert (files, folders) == ([each["path"] for each in listed["objects"]], listed["common_prefixes"])
    assert obstore.list_with_delimiter(store)["common_prefixes"] == ["many", "more"]


def test_a_name_is_given_once(store: ObjectStore) -> None:
    """Law: of writers that create one name at the same time exactly one does, and its content stays."""
    winners: list[int] = []

    def create(writer: int) -> None:
        with suppress(AlreadyExistsError):
            obstore.put(store, f"once/{writer // 16}", b"%d" % writer, mode="create")
            winners.append(writer)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(create, range(320)))
    assert sorted(writer // 16 for writer in winners) == list(range(20))
    assert all(obstore.get(store, f"once/{writer // 16}").bytes() == b"%d" % writer for writer in winners)


def test_a_missing_object_is_missing_to_each_request(store: ObjectStore) -> None:
    """Law: an object that was deleted, alone or with others, or never was, is FileNotFoundError to each request."""
    for deleted in ("one", ["one", "two"]):
        for name in ("one", "two"):
            obstore.put(store, name, b"1")
        obstore.delete(store, deleted)
    assert _listed(store, "") == []
    for act in (obstore.get, obstore.head, obstore.delete):
        with pytest.raises(FileNotFoundError):
            act(store, "one")


def test_delta_rs_has_its_tables_there(store: ObjectStore, url: str) -> None:
    """Law: delta-rs makes a table, appends to it through one open table, and opens it by its checkpoint."""
    url, options = f"{url}/lake", {"allow_http": "true"}
    write_deltalake(url, pa.table({"a": range(1000)}), storage_options=options)
    opened = DeltaTable(url, storage_options=options)
    for _ in range(2):
        write_deltalake(opened, pa.table({"a": range(1000)}), mode="append")
    opened.create_checkpoint()
    assert "lake/_delta_log/_last_checkpoint" in _listed(store, "lake")
    assert DeltaTable(url, storage_options=options).to_pyarrow_table().num_rows == 3000
