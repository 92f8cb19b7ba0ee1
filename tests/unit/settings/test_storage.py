"""Where tables are, by settings and by the URL of an environment."""

from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.lake.storage import cloud, mounts
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.platforms.local import doctor
from pipeline.settings.storage import machine_folder, require_place
from pipeline.settings.tree import Paths, Settings, load
from tests.storage.buckets import bucket


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

    def nothing(file: Location, _folder: Path) -> bytes:
        read.append(str(file))
        return b""

    monkeypatch.setattr("pipeline.settings.tree.read_settings", nothing)
    with pytest.raises(Refused, match=r"store.url: expected the address of a PostgreSQL database for s3://bucket/prod"):
        load(folder, {})
    assert read == ["s3://bucket/prod/turnout.toml"]
    _, paths = load(folder, {"TURNOUT_STORE__URL": "postgresql://db/turnout"})
    assert (str(paths.bronze), paths.root) == ("s3://bucket/prod/bronze", folder)
    with pytest.raises(Refused, match="expected none, or the URL of --env-dir"):
        load(folder, {"TURNOUT_STORE__URL": "postgresql://db/turnout", "TURNOUT_STORAGE__ROOT": "s3://other/prod"})


def test_settings_in_a_store_that_is_away_are_those_that_were_read_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: an outage of the store disables no command that needs only the control store; the log has its reason."""
    monkeypatch.setattr(cloud, "RETRY", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    given = {"TURNOUT_STORE__URL": "postgresql://db/turnout"}
    with bucket() as url:
        folder = machine_folder(f"{url}/prod")
        (located(url) / "prod/turnout.toml").put(b"[demux]\ntrigger_seconds = 7\n")
        assert load(folder, given)[0].demux.trigger_seconds == 7
        (kept,) = folder.glob("*.read")
        assert kept.stat().st_mode & 0o77 == 0, "it may hold secrets"
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        assert load(folder, given)[0].demux.trigger_seconds == 7
        kept.unlink()
        with pytest.raises(Refused, match=f"{url}/prod/turnout.toml: the store cannot be reached. `turnout doctor`"):
            load(folder, given)


def test_doctor_tries_a_store_whose_settings_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: of an environment at a URL doctor says why its store does not serve, and asks it itself."""
    monkeypatch.setattr(cloud, "RETRY", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    asked: list[str] = []

    def ask(_settings: Settings, paths: Paths) -> list[doctor.DoctorFinding]:
        asked.append(paths.storage)
        return []

    # A bucket of its own: a client keeps the credentials of its first use, which another test may have made.
    assert doctor.run(machine_folder("s3://unreachable/prod"), False, ask) == 1
    assert asked == ["s3://unreachable/prod"]
    assert "the store cannot be reached" in capsys.readouterr().out


def test_only_addresses_of_buckets_are_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: another scheme is refused where it is given, with what is expected."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for url in ("hdfs://name/prod", "abfss://container/prod", "https://bucket.s3.amazonaws.com/prod", "s3://"):
        with pytest.raises(Refused, match="expected a folder, or a URL such as s3://bucket/prod"):
            machine_folder(url)


MOUNTS = ("/Volumes/main/games/turnout", "/Workspace/Users/ada", "/dbfs/turnout", "dbfs:/turnout")


@pytest.mark.parametrize("place", [*MOUNTS, "dbfs:///turnout"])
def test_no_environment_is_at_a_mount_of_databricks(place: str, tmp_path: Path) -> None:
    """Law: where files can neither be renamed nor linked two writers may both win, however the place is named."""
    with pytest.raises(Refused, match=r"neither rename nor link \(ENOSYS\).*external location.*s3://bucket/prod"):
        require_place(place)
    with pytest.raises(Refused, match=r"storage.root: .*neither rename nor link.*Expected a URL such as s3://bucket"):
        load(tmp_path, {"TURNOUT_STORAGE__ROOT": place})
    if "://" in place:
        with pytest.raises(Refused, match="neither rename nor link"):
            machine_folder(place)
    else:
        with pytest.raises(Refused, match="neither rename nor link"):
            load(Path(place), {})


def test_a_link_to_a_mount_is_refused(tmp_path: Path) -> None:
    """Law: another name does not make a volume a folder."""
    (tmp_path / "env").symlink_to("/Volumes/main/games")
    with pytest.raises(Refused, match="/Volumes/main/games is in a file system of Databricks"):
        load(tmp_path / "env", {})


@pytest.mark.parametrize("folder", ["/Volumes2/a", "/data/Volumes/a", "/dbfs2", "dbfs"])
def test_a_name_that_only_looks_like_a_mount_is_fine(folder: str) -> None:
    """Law: only the mounts themselves are refused."""
    assert mounts.refused_place(folder) is None


def test_disks_of_a_mac_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a Mac mounts its disks where Databricks mounts volumes, and they can link."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert mounts.refused_place("/Volumes/disk/env") is None
    assert mounts.refused_place("/Workspace/env") is not None


def test_the_folder_of_a_driver_on_databricks_is_on_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: what a driver keeps of an environment at a URL is on its machine's disk, whatever home a platform gives."""
    disk, temporary = tmp_path / "local_disk0", tmp_path / "tmp"
    monkeypatch.setattr(mounts, "_LOCAL_DISK", disk)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(Path, "home", lambda: Path("/Workspace/home"))
    known = {mounts.RUNTIME: "19.0"}
    folder = machine_folder("s3://bucket/prod", known)
    assert folder.parent == temporary / "turnout", "there is no such disk"
    assert folder.parent.stat().st_mode & 0o77 == 0, "other users have the temporary folder, too"
    disk.mkdir()
    assert machine_folder("s3://bucket/prod", known).parent == disk / "turnout"
    assert machine_folder("s3://bucket/prod", {**known, "XDG_STATE_HOME": str(tmp_path)}).parent == tmp_path / "turnout"
    for elsewhere in ({**known, "XDG_STATE_HOME": "/Volumes/a/b/c"}, {}):
        with pytest.raises(Refused, match="Set XDG_STATE_HOME to a folder on this machine's disk"):
            machine_folder("s3://bucket/prod", elsewhere)


@pytest.mark.parametrize("folder", MOUNTS)
def test_doctor_refuses_file_systems_that_cannot_link(folder: str) -> None:
    """Law: a volume of Databricks takes no environment, with the reason and the way."""
    from pipeline.settings.tree import Settings

    found = {each.subject: each for each in doctor.findings(Settings(), Path(folder), doctor.ROOT)}
    assert found["environment's folder"].state == "missing"
    assert "neither rename nor link" in found["environment's folder"].detail
    assert "external location" in found["environment's folder"].remedy
