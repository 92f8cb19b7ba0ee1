import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.platforms.local import jars
from pipeline.platforms.local.fetch import IVY_FILE


def test_lock_and_ivy_file_name_the_same_jars() -> None:
    """Every jar that is fetched has a locked SHA-256, and every locked jar is fetched."""
    wanted = {
        f"{dependency.attrib['conf'].removesuffix('->master(*)')}/{dependency.attrib['name']}-{dependency.attrib['rev']}"
        f".{dependency[0].attrib['ext'] if len(dependency) else 'jar'}"
        for dependency in ET.parse(IVY_FILE).iter("dependency")
    }
    assert {f"{jar.conf}/{jar.file}" for jar in jars.locked_jars()} == wanted
    assert {conf: sum(name.startswith(conf) for name in wanted) for conf in (*jars.CONFS, *jars.STORES)} == {
        "spark": 7,
        "kafka": 46,
        "registry": 1,
        "s3": 36,
        "azure": 1,
        "gcs": 1,
    }


def test_nothing_is_resolved_transitively() -> None:
    """A machine gets exactly the jars that are listed, whatever their own dependencies say."""
    assert {each.attrib["transitive"] for each in ET.parse(IVY_FILE).iter("dependency")} == {"false"}


def test_missing_jar_is_refused_with_its_path_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM is never started with a class path that lacks a jar."""
    monkeypatch.setenv("TURNOUT_JARS", str(tmp_path))
    for jar in jars.locked_jars():
        (tmp_path / jar.conf).mkdir(exist_ok=True)
        (tmp_path / jar.conf / jar.file).touch()
    gone = tmp_path / "spark" / "delta-storage-4.4.0.jar"
    gone.unlink()
    with pytest.raises(Refused, match=rf"{gone} is missing\. Run \./turnout setup"):
        jars.spark_jars()
    assert len(jars.kafka_jars()) == 46


def test_missing_jars_of_s3_name_their_own_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an ordinary set-up the first use of a bucket names the set-up that fetches the rest."""
    monkeypatch.setenv("TURNOUT_JARS", str(tmp_path))
    with pytest.raises(Refused, match=r"are missing\. Run \./turnout setup --s3 to fetch the jars\."):
        jars.store_jars("s3")


def test_order_of_jars_is_the_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process gets the same class path in the same order."""
    monkeypatch.setenv("TURNOUT_JARS", str(tmp_path))
    for jar in reversed(jars.locked_jars()):
        (tmp_path / jar.conf).mkdir(exist_ok=True)
        (tmp_path / jar.conf / jar.file).touch()
    assert [path.name for path in jars.kafka_jars()] == [
        each.file for each in jars.locked_jars() if each.conf == "kafka"
    ]


@pytest.mark.parametrize(
    "line", ["abc  spark/a.jar", f"{'0' * 64}  other/a.jar", f"{'0' * 64}  spark/../a.jar", f"{'0' * 64}  spark/a.zip"]
)
def test_damaged_lock_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    """A lock that cannot be understood is never read as a shorter one."""
    lock = tmp_path / "jars.lock"
    lock.write_text(f"{'0' * 64}  spark/good.jar\n{line}\n")
    with pytest.raises(Refused, match="line 2"):
        jars.locked_jars(lock)


def test_wrong_java_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chosen Java is used or refused, never silently replaced by another."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Refused, match="JAVA_HOME"):
        jars.java_executable()


def test_no_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java a person is told to install it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="install Java 17"):
        jars.java_executable()
