import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.base.private_files import PUBLIC, make_file, make_folder, write_file
from pipeline.platforms.local.child_processes import Children
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def wide_umask() -> Iterator[None]:
    """Files are private whatever the user's mask."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.proves("G178")
def test_the_control_store_is_its_owners(tmp_path: Path) -> None:
    """Other users of the machine read neither the store nor what SQLite keeps beside it."""
    engine = open_store(*load(tmp_path / "new", {}))
    with engine.connect():
        modes = {path.name: mode(path) for path in (tmp_path / "new").iterdir() if path.name.startswith("control.db")}
    assert modes
    assert set(modes.values()) == {0o600}


def test_a_store_of_sqlite_elsewhere_is_its_owners(tmp_path: Path) -> None:
    """A store by URL is as private as one in the environment's folder, what SQLite has beside it included."""
    place = tmp_path / "store.db"
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": f"sqlite:///{place}"})
    with open_store(settings, paths).connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM groups").all()
        assert {mode(path) for path in tmp_path.iterdir()} == {0o600}
        for path in tmp_path.iterdir():
            path.chmod(0o644)
        open_store(settings, paths).dispose()
        assert {path.name: mode(path) for path in tmp_path.iterdir()} == {
            f"store.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm")
        }


def test_a_folder_in_the_place_of_the_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    """It is not ours to narrow: a folder that nobody may enter is lost to its owner."""
    (tmp_path / "control.db").mkdir(mode=0o755)
    before = mode(tmp_path / "control.db")
    with pytest.raises(Refused, match=r"cannot be opened: .*control\.db is not a file\. Move it away"):
        open_store(*load(tmp_path, {}))
    assert mode(tmp_path / "control.db") == before


def test_a_file_is_made_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems such as exFAT and many network ones refuse hard links; a store can begin there, too."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    make_file(tmp_path / "control.db")
    make_file(tmp_path / "control.db")
    assert [(path.name, mode(path)) for path in tmp_path.iterdir()] == [("control.db", 0o600)]


def test_a_store_from_before_is_narrowed(tmp_path: Path) -> None:
    """A store that an older turnout made for everyone is its owner's from the next start on."""
    settings, paths = load(tmp_path, {})
    open_store(settings, paths).dispose()
    paths.control_db.chmod(0o644)
    open_store(settings, paths).dispose()
    assert mode(paths.control_db) == 0o600


def test_opening_a_store_again_releases_no_lock_of_it(tmp_path: Path) -> None:
    """A process has a store open more than once: closing any handle of its file would free SQLite's locks on it.

    Another process that goes would then take itself for the last one, and delete the write-ahead log in use.
    """
    settings, paths = load(tmp_path, {})
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM groups').connection.close()"
    with open_store(settings, paths).connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM groups").all()
        open_store(settings, paths).dispose()
        subprocess.run([sys.executable, "-c", code, str(paths.control_db)], check=True)
        assert (tmp_path / "control.db-wal").exists()


def test_a_secret_that_is_replaced_is_its_owners_alone(tmp_path: Path) -> None:
    """A token is never readable for others, whatever mode the file before it had, and no draft is left behind."""
    file = tmp_path / "token"
    file.write_text("old")
    file.chmod(0o666)
    write_file(file, "new")
    assert (file.read_text(), mode(file), list(tmp_path.iterdir())) == ("new", 0o600, [file])
    write_file(file, "for all", PUBLIC)
    assert (file.read_text(), mode(file)) == ("for all", 0o666)


def test_of_many_that_begin_a_store_all_get_the_same(tmp_path: Path) -> None:
    """Processes start together: each makes the file or finds it, and none is left beside it."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: make_file(tmp_path / "control.db"), range(64)))
    assert [path.name for path in tmp_path.iterdir()] == ["control.db"]


@pytest.mark.proves("G178")
def test_logs_are_their_owners(tmp_path: Path) -> None:
    """Logs name games and errors; they are nobody else's to read."""
    with Children(tmp_path / "logs"):
        assert mode(tmp_path / "logs") == 0o700


def test_what_is_private_already_stays(tmp_path: Path) -> None:
    """A mode that is narrower is a person's choice."""
    (tmp_path / "folder").mkdir(0o500)
    make_folder(tmp_path / "folder")
    (tmp_path / "file").touch(0o400)
    make_file(tmp_path / "file")
    assert (mode(tmp_path / "folder"), mode(tmp_path / "file")) == (0o500, 0o400)
