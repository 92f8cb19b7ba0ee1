import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.platforms.local import fetch as fetching
from pipeline.platforms.local.jars import LockedJar, locked_jars

GOOD = b"the locked bytes"
JAR = LockedJar(hashlib.sha256(GOOD).hexdigest(), "spark", "one.jar")
OF_S3 = LockedJar(hashlib.sha256(b"s3").hexdigest(), "s3", "s3.jar")
OTHER = LockedJar(hashlib.sha256(b"other").hexdigest(), "kafka", "other.jar")


def bring(content: dict[LockedJar, bytes]) -> fetching.Download:
    def download(_cache: Path, folder: Path, _confs: Sequence[str]) -> None:
        for jar, data in content.items():
            (folder / jar.conf).mkdir(exist_ok=True)
            (folder / jar.conf / jar.file).write_bytes(data)

    return download


def never(_cache: Path, _folder: Path, _confs: Sequence[str]) -> None:
    raise AssertionError("downloaded although every jar was cached")


def test_first_fetch_downloads_and_links(tmp_path: Path) -> None:
    """What is fetched is found under its name in the environment."""
    into = tmp_path / "into"
    assert fetching.fetch(tmp_path, into, [JAR, OTHER], bring({JAR: GOOD, OTHER: b"other"})) == 2
    assert (into / "spark" / "one.jar").read_bytes() == GOOD
    assert (into / "kafka" / "other.jar").read_bytes() == b"other"
    assert not list(tmp_path.glob("incoming-*"))


def test_cached_jars_are_reused_without_a_download(tmp_path: Path) -> None:
    """A second checkout costs neither network nor Java."""
    fetching.fetch(tmp_path, tmp_path / "a", [JAR], bring({JAR: GOOD}))
    assert fetching.fetch(tmp_path, tmp_path / "b", [JAR], never) == 0
    assert (tmp_path / "b" / "spark" / "one.jar").read_bytes() == GOOD


def test_damaged_cached_jar_is_fetched_again(tmp_path: Path) -> None:
    """A cached file counts by its content, not by its name."""
    fetching.fetch(tmp_path, tmp_path / "a", [JAR], bring({JAR: GOOD}))
    (tmp_path / "jars" / "spark" / "one.jar").write_bytes(b"half")
    assert fetching.fetch(tmp_path, tmp_path / "a", [JAR], bring({JAR: GOOD})) == 1
    assert (tmp_path / "a" / "spark" / "one.jar").read_bytes() == GOOD


def test_jar_with_another_hash_is_refused_and_forgotten(tmp_path: Path) -> None:
    """A file that was not locked never reaches a class path, and the next try downloads afresh."""
    (tmp_path / "ivy").mkdir()
    with pytest.raises(Refused, match=r"one\.jar has the SHA-256"):
        fetching.fetch(tmp_path, tmp_path / "into", [JAR], bring({JAR: b"evil"}))
    assert not (tmp_path / "ivy").exists()
    assert not (tmp_path / "jars").exists()
    assert not (tmp_path / "into").exists()


def test_jar_that_did_not_come_is_refused(tmp_path: Path) -> None:
    """A download that leaves out a jar is an error, whatever its exit code."""
    with pytest.raises(Refused, match=r"other\.jar is in jars\.lock"):
        fetching.fetch(tmp_path, tmp_path / "into", [JAR, OTHER], bring({JAR: GOOD}))


def test_jar_of_an_older_lock_leaves_the_environment(tmp_path: Path) -> None:
    """Two versions of one jar never meet on a class path."""
    into = tmp_path / "into"
    fetching.fetch(tmp_path, into, [JAR, OTHER], bring({JAR: GOOD, OTHER: b"other"}))
    fetching.fetch(tmp_path, into, [JAR], never)
    assert [path.name for path in into.glob("*/*")] == ["one.jar"]


def test_link_into_an_older_cache_is_renewed(tmp_path: Path) -> None:
    """After the cache has moved the environment points to the new one."""
    first, second = tmp_path / "first", tmp_path / "second"
    for cache in (first, second):
        cache.mkdir()
        fetching.fetch(cache, tmp_path / "into", [JAR], bring({JAR: GOOD}))
    assert (tmp_path / "into" / "spark" / "one.jar").readlink() == second / "jars" / "spark" / "one.jar"


def test_jars_of_s3_stay_when_others_are_fetched(tmp_path: Path) -> None:
    """An ordinary set-up after one for S3 takes nothing away; the next one for S3 leaves no older jar."""
    into = tmp_path / "into"
    fetching.fetch(tmp_path, into, [JAR, OF_S3], bring({JAR: GOOD, OF_S3: b"s3"}))
    (into / "s3" / "older.jar").symlink_to(tmp_path / "older.jar")
    fetching.fetch(tmp_path, into, [JAR], never)
    assert {path.name for path in into.glob("*/*")} == {"one.jar", "s3.jar", "older.jar"}
    fetching.fetch(tmp_path, into, [JAR, OF_S3], never)
    assert {path.name for path in into.glob("*/*")} == {"one.jar", "s3.jar"}


@pytest.mark.parametrize(("more", "confs"), [((), {"spark", "kafka", "registry"}), (("s3",), {"s3"})])
def test_only_what_is_named_is_downloaded_beside_the_ordinary(
    more: tuple[str, ...], confs: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary set-up fetches nothing of S3; one for S3 asks Ivy for what is absent alone."""
    asked: set[str] = set()

    def download(_cache: Path, _folder: Path, confs: Sequence[str]) -> None:
        asked.update(confs)
        raise Refused("enough")

    present = {} if not more else {jar: jar.sha256 for jar in locked_jars() if jar.conf != "s3"}
    monkeypatch.setattr(fetching, "download_with_ivy", download)
    monkeypatch.setattr(fetching, "_sha256", lambda path: present.get(_locked(path)))
    assert fetching.main([str(tmp_path), str(tmp_path / "into"), *more]) == 1
    assert asked == confs


def _locked(path: Path) -> LockedJar:
    return next(jar for jar in locked_jars() if (jar.conf, jar.file) == (path.parent.name, path.name))


def test_missing_ivy_settings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named mirror serves or fails; the default never takes its place."""
    monkeypatch.setenv("TURNOUT_IVY_SETTINGS", str(tmp_path / "none.xml"))
    with pytest.raises(Refused, match=r"none\.xml, which is not a file"):
        fetching.download_with_ivy(tmp_path, tmp_path)


def test_failing_ivy_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the network fails a person reads why, and where all of it stands."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho resolving\necho 'Server access error at somewhere'\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("TURNOUT_IVY_SETTINGS", raising=False)
    with pytest.raises(Refused, match=r"code 1\): Server access error at somewhere\. Check the network.*ivy\.log"):
        fetching.download_with_ivy(tmp_path, tmp_path / "folder")


def test_an_installed_wheel_fetches_for_its_own_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`turnout setup` and the demo of a wheel bring jars to where drivers look; a person's own folder stays."""
    asked: list[Sequence[LockedJar]] = []

    def fetch(_cache: Path, _into: Path, jars: Sequence[LockedJar], _download: fetching.Download) -> int:
        asked.append(jars)
        return 0

    monkeypatch.setattr(fetching, "fetch", fetch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TURNOUT_JARS", str(tmp_path))
    fetching.set_up(["s3"])
    assert asked == []
    monkeypatch.delenv("TURNOUT_JARS")
    fetching.set_up(["s3"])
    assert {jar.conf for jar in asked[0]} == {"spark", "kafka", "registry", "s3"}


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel's set-up ends with a sentence, not with a trace of calls."""
    (tmp_path / "turnout").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TURNOUT_JARS", raising=False)
    with pytest.raises(Refused, match=f"The folders {tmp_path}/turnout and .* must be writable"):
        fetching.set_up()
