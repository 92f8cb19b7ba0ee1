"""The contract of every storage, and what a location is. A further kind of storage is one more line of `STORAGES`."""

import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import boto3
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Schema

from pipeline.lake.delta import parquet
from pipeline.lake.delta.log import exists
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.object_store import PART
from pipeline.lake.storage.places import located
from tests.storage.azure_server import azure
from tests.storage.buckets import bucket
from tests.storage.google_server import google


@contextmanager
def _bucket(_folder: Path) -> Iterator[Location]:
    with bucket() as url:
        yield located(url)


@contextmanager
def _azure(_folder: Path) -> Iterator[Location]:
    with azure() as url:
        yield located(url)


@contextmanager
def _google(_folder: Path) -> Iterator[Location]:
    with google() as url:
        yield located(url)


@contextmanager
def _folder(folder: Path) -> Iterator[Location]:
    yield located(folder)


STORAGES: Final[dict[str, Callable[[Path], AbstractContextManager[Location]]]] = {
    "folder": _folder,
    "s3": _bucket,
    "azure": _azure,
    "gcs": _google,
}
"""Each gives an empty place in a storage of its kind."""

create = partial(Location.put_if_absent, drafted="draft_commit", published="publish_commit")


@pytest.fixture(params=list(STORAGES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    with STORAGES[request.param](tmp_path) as whole:
        yield whole / "place"


def test_a_file_is_read_as_it_was_written(place: Location) -> None:
    """Law: bytes come back as they are, whole or in part, and a later write replaces them all."""
    place.make()
    file = place / "one"
    file.put(b"0123456789")
    assert (file.read(), file.size(), file.exists()) == (b"0123456789", 10, True)
    assert (file.read_range(2, 3), file.read_range(8, 100)) == (b"234", b"89")
    file.put("ž".encode())
    assert file.read_text() == "ž"


def test_a_missing_file_is_missing_everywhere(place: Location) -> None:
    """Law: what is not there is None, empty or FileNotFoundError, and can be deleted."""
    file = place / "folder/none"
    assert (file.entry(), file.exists(), file.is_folder()) == (None, False, False)
    assert (list(file.files()), list(file.files(deep=True)), file.folders()) == ([], [], [])
    for read in (file.read, file.size, partial(file.read_range, 0, 1)):
        with pytest.raises(FileNotFoundError):
            read()
    file.delete()


def test_a_name_is_given_once(place: Location) -> None:
    """Law: of writers that create one name at the same time exactly one gets True, and its content stays."""
    place.make()
    for round_ in range(20):
        file = place / f"{round_:020}.json"
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(partial(create, file), [b"%d" % writer for writer in range(8)]))
        assert sum(done) == 1
        assert file.read() == b"%d" % done.index(True)
    assert {each.name for each in place.files()} == {f"{round_:020}.json" for round_ in range(20)}, "no draft is left"


def test_a_listing_has_names_sizes_and_another_tag_for_another_content(place: Location) -> None:
    """Law: a listing is of one folder, or of all below it; another content changes the file's tag."""
    (place / "a").make()
    (place / "a/x").make()
    for name in ("a/1", "a/2", "a/x/3", "b"):
        (place / name).put(name.encode())
    assert {each.name: each.size for each in (place / "a").files()} == {"1": 3, "2": 3}
    assert {each.name for each in place.files(deep=True)} == {"a/1", "a/2", "a/x/3", "b"}
    assert [each.path for each in place.folders()] == [(place / "a").path]
    assert ((place / "a").is_folder(), (place / "z").is_folder()) == (True, False)
    assert (place / "a").entry() is None, "a folder is no file"
    before = (place / "b").entry()
    assert before is not None
    (listed,) = place.files()
    assert (listed.name, listed.size, listed.tag) == (before.name, before.size, before.tag)
    assert abs(listed.modified - before.modified) < 1, "headers have whole seconds"
    (place / "b").put(b"B")
    after = (place / "b").entry()
    assert after is not None
    assert after.tag != before.tag
    assert after.modified >= before.modified
    (place / "b").delete()
    assert [each.name for each in place.files()] == []


def test_delta_rs_and_arrow_find_the_same_files(place: Location) -> None:
    """Law: a table that delta-rs makes at a location is there for us, and for Arrow's file system."""
    assert not exists(place)
    columns = Schema.from_arrow(pa.schema([("a", pa.int64())]))
    DeltaTable.create(str(place), columns, storage_options=dict(place.storage.options) or None)
    assert exists(place)
    assert DeltaTable(str(place), storage_options=dict(place.storage.options) or None).version() == 0
    files, name = place.storage.arrow((place / "_delta_log/00000000000000000000.json").path)
    assert files.get_file_info(name).size == (place / "_delta_log/00000000000000000000.json").size()


def test_a_file_that_arrow_names_is_known_below_its_folder(place: Location) -> None:
    """Law: maintenance finds the files with copies of rows in the table's log, whatever Arrow calls their container."""
    place.make()
    parquet.write(pa.table({"a": [1, 2]}), place / "part-1.parquet", "zstd")
    names = parquet.dataset([str(place / "part-1.parquet")]).to_table(columns=["__filename"]).column(0).unique()
    assert [parquet.name_below(place, each) for each in names.to_pylist()] == ["part-1.parquet"]


def test_a_large_file_is_stored_in_parts(place: Location) -> None:
    """Law: no request carries more than a slow line sends in its time, and a reader finds all of a file or nothing."""
    place.make()
    content = os.urandom(2 * PART + 1)
    (place / "large").put(content)
    assert (place / "large").read() == content
    (place / "large").put(b"small")
    assert (place / "large").read() == b"small"


def test_a_location_is_found_by_its_url_and_by_its_uri(place: Location) -> None:
    """Law: what delta-rs calls a place, and what a catalog calls it, lead back to it."""
    odd = place / "a b%20c"
    assert located(str(odd)) == odd
    assert located(odd.uri) == odd
    assert located(odd) is odd
    assert "://" in odd.uri


def test_a_folders_marker_is_no_file(tmp_path: Path) -> None:
    """Law: the empty object by which Spark marks a folder is in no listing of files."""
    with _bucket(tmp_path) as whole:
        (whole / "place/query/offsets").put(b"1")
        name = whole.path
        client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
        client.put_object(Bucket=name, Key="place/query/")
        assert [each.name for each in (whole / "place").files()] == []
        assert [each.name for each in (whole / "place").files(deep=True)] == ["query/offsets"]
        assert [each.name for each in (whole / "place").folders()] == ["query"]


def test_a_location_is_a_value(place: Location) -> None:
    """Law: locations are equal by storage and path, go to tasks by pickle, and know their name and parent."""
    file = place / "tables" / "chess"
    assert file == place / "tables/chess"
    assert pickle.loads(pickle.dumps(file)) == file
    assert (file.name, file.parent, len({file, place / "tables/chess"})) == ("chess", place / "tables", 1)


def test_an_object_store_that_is_away_is_an_error_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: no caller needs another handler than that of a disk; the sentence names the place."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    file = located("s3://nowhere/file")
    for act in (file.read, file.exists, partial(file.put, b"")):
        with pytest.raises(OSError, match="s3://nowhere/file: the store cannot be reached") as raised:
            act()
        assert not isinstance(raised.value, FileNotFoundError | FileExistsError)
    with pytest.raises(TypeError, match="needs a folder"):
        Path(file)
