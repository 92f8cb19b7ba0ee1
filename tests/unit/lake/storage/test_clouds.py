"""The kinds of object stores: what each tells Spark; and what a store's latency costs."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pipeline.lake.delta import parquet
from pipeline.lake.delta.files import readable
from pipeline.lake.delta.scratch import scratch
from pipeline.lake.storage.places import cloud_of

URLS = ("s3://bucket/prod", "gs://bucket/prod", "abfss://tables@games.dfs.core.windows.net/prod")
SECRET = "s3cr3t"
IDENTITY = {"AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "client"}


@pytest.mark.parametrize(
    ("given", "provider"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": SECRET}, "SharedKey"),
        ({**IDENTITY, "AZURE_FEDERATED_TOKEN_FILE": "/token"}, "WorkloadIdentityTokenProvider"),
        ({**IDENTITY, "AZURE_CLIENT_SECRET": SECRET}, "ClientCredsTokenProvider"),
        ({"AZURE_STORAGE_SAS_TOKEN": f"sig={SECRET}"}, "SAS"),
        ({}, "MsiTokenProvider"),
    ],
)
def test_spark_is_told_which_credentials_of_azure_and_none_of_their_values(
    given: Mapping[str, str], provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: Hadoop uses the credentials that our client uses, and reads their values from the environment itself."""
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    cloud = cloud_of(URLS[2])
    assert cloud is not None
    conf = cloud.hadoop()
    assert any(value.endswith(provider) for value in conf.values())
    assert SECRET not in str(conf)
    assert SECRET not in str(cloud.variables())
    used = {name for name in given if f"${{env.{name}}}" in str(conf)}
    assert used == set(given), "Hadoop reads each variable that our client reads"


def test_no_secret_of_any_platform_is_in_sparks_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: nothing that a page of Spark shows, and no variable that a driver sends to executors, holds a secret."""
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_SERVICE_ACCOUNT_KEY"):
        monkeypatch.setenv(name, SECRET)
    for url in URLS:
        cloud = cloud_of(url)
        assert cloud is not None
        assert SECRET not in str({**cloud.hadoop(), **cloud.variables()})


def test_a_folder_is_in_no_cloud() -> None:
    """Law: what is no URL of an object store, and an unset root, needs no client of one."""
    assert [cloud_of(place) for place in ("", "/var/tables", "file:///var/tables")] == [None, None, None]


def test_files_of_a_store_are_copied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: verify waits for its store once for many files, not once for each: of 300 tables that is minutes."""
    both = threading.Barrier(2)

    def copy(_source: str, target: Path, _columns: Sequence[str] | None) -> None:
        both.wait(10)
        target.touch()

    monkeypatch.setattr(parquet, "copy", copy)
    with scratch("test", "64MB") as database:
        copies = readable(database, ["s3://bucket/one.parquet", "s3://bucket/two.parquet"])
        assert len(set(copies)) == 2
        assert all(Path(each).exists() for each in copies)
