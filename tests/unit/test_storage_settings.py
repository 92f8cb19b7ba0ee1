"""Where tables are, by settings and by the URL of an environment."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import Refused
from pipeline.settings import load
from pipeline.setup import doctor
from pipeline.storage.location import Location
from pipeline.storage_settings import machine_folder


def test_tables_are_at_the_root_that_is_set_and_the_rest_is_in_the_folder(tmp_path: Path) -> None:
    """Law: what one machine has stays in its folder, what others read is at the URL."""
    _, paths = load(tmp_path, {"TURNOUT_STORAGE__ROOT": "s3://bucket/prod/"})
    tables = (paths.bronze, paths.landing, paths.quarantine, paths.tables, paths.metrics, paths.ingest)
    assert {str(each).startswith("s3://bucket/prod/") for each in tables} == {True}
    assert str(paths.bronze) == "s3://bucket/prod/bronze"
    own = (paths.logs, paths.targets, paths.checkpoints, paths.control_db, paths.dashboard_token)
    assert {each.is_relative_to(tmp_path) for each in own} == {True}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"TURNOUT_STORAGE__ROOT": "/mnt/tables"}, "storage.root: expected a URL such as s3://bucket/prod"),
        ({"TURNOUT_STORAGE__ROOT": "s3://Bucket"}, "storage.root"),
        ({"TURNOUT_STORAGE__ROOT": "s3://bucket/../etc x"}, "storage.root"),
        ({"TURNOUT_STORAGE__ROOT": "s3://bucket/a", "TURNOUT_DEMUX__WRITER": "spark"}, "demux.writer"),
    ],
)
def test_a_root_that_cannot_work_is_refused_by_name(given: dict[str, str], said: str, tmp_path: Path) -> None:
    """Law: a wrong place is one sentence with the setting, before anything is written."""
    with pytest.raises(Refused, match=said):
        load(tmp_path, given)


def test_an_environment_at_a_url_has_a_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: the same URL is the same folder, another URL another one; its store must be a server."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    folder = machine_folder("s3://bucket/prod")
    assert machine_folder("s3://bucket/prod/") == folder
    assert machine_folder("s3://bucket/test") != folder
    assert folder.parent == tmp_path / "turnout"
    read: list[str] = []

    def nothing(file: Location) -> dict[str, Any]:
        read.append(str(file))
        return {}

    monkeypatch.setattr("pipeline.settings.read_toml", nothing)
    with pytest.raises(Refused, match=r"store.url: expected the address of a PostgreSQL database for s3://bucket/prod"):
        load(folder, {})
    assert read == ["s3://bucket/prod/turnout.toml"]
    _, paths = load(folder, {"TURNOUT_STORE__URL": "postgresql://db/turnout"})
    assert (str(paths.bronze), paths.root) == ("s3://bucket/prod/bronze", folder)
    with pytest.raises(Refused, match="expected none, or the URL of --env-dir"):
        load(folder, {"TURNOUT_STORE__URL": "postgresql://db/turnout", "TURNOUT_STORAGE__ROOT": "s3://other/prod"})


def test_only_addresses_of_buckets_are_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: another scheme is refused where it is given, with what is expected."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for url in ("hdfs://name/prod", "abfss://container/prod", "https://bucket.s3.amazonaws.com/prod", "s3://"):
        with pytest.raises(Refused, match="expected a folder, or a URL such as s3://bucket/prod"):
            machine_folder(url)


@pytest.mark.parametrize("folder", ["/Volumes/main/games/turnout", "/Workspace/Users/ada"])
def test_doctor_refuses_file_systems_that_cannot_link(folder: str) -> None:
    """Law: a volume of Databricks takes no environment, with the reason."""
    from pipeline.settings import Settings

    found = {each.subject: each for each in doctor.findings(Settings(), Path(folder), doctor.ROOT)}
    assert found["environment's folder"].state == "missing"
    assert "neither rename nor link" in found["environment's folder"].detail
