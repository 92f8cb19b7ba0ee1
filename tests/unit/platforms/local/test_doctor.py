import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.cli.doctor import ask_registries, try_store
from pipeline.platforms.local import doctor
from pipeline.platforms.local.doctor import DoctorFinding
from pipeline.platforms.local.jars import locked_jars
from pipeline.settings.registries import RegistrySettings
from pipeline.settings.source import Source
from pipeline.settings.tree import Dashboard, Settings, load
from pipeline.store.database.engine import open_store


def by_subject(found: list[DoctorFinding]) -> dict[str, DoctorFinding]:
    return {finding.subject: finding for finding in found}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose locks fit this machine, with all jars and a Java."""
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "requirements-dev.lock").write_text("")
    for jar in locked_jars():
        (tmp_path / jar.conf).mkdir(exist_ok=True)
        (tmp_path / jar.conf / jar.file).touch()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\" 2026-01-01' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TURNOUT_JARS", str(tmp_path))
    return tmp_path


def test_package_that_differs_from_the_lock_is_missing(checkout: Path) -> None:
    """What runs is what was locked; of the tools of tests a difference does not stop turnout."""
    (checkout / "requirements.lock").write_text("pytest==0.0.1 \\\n    --hash=x\nno-such-thing==2\n")
    (checkout / "requirements-dev.lock").write_text("no-such-tool==2\n")
    found = by_subject(doctor.findings(Settings(), checkout, checkout))
    assert found["pytest"].state == "missing"
    assert "0.0.1 is locked" in found["pytest"].detail
    assert found["no-such-thing"].state == "missing"
    assert found["no-such-tool"].state == "optional"


def test_missing_jar_and_old_java_are_found(checkout: Path) -> None:
    """Each jar is looked at by itself, and Java by its version."""
    (checkout / "kafka" / "jose4j-0.9.6.jar").unlink()
    (checkout / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    found = by_subject(doctor.findings(Settings(), checkout, checkout))
    assert {subject for subject, each in found.items() if each.state == "missing"} == {"jose4j-0.9.6.jar", "Java"}


def test_databricks_has_java_and_jars_of_its_own(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster of Databricks neither our jars nor a Java of ours is missing."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "19.0")
    monkeypatch.setenv("TURNOUT_JARS", str(checkout / "none"))
    monkeypatch.setenv("JAVA_HOME", str(checkout / "none"))
    found = by_subject(doctor.findings(Settings(), checkout, checkout, "s3://bucket/prod"))
    assert [subject for subject, each in found.items() if each.state == "missing"] == []
    assert found["Databricks Runtime"].detail.startswith("19.0")


@pytest.mark.parametrize(
    ("url", "needed"),
    [
        ("", set()),
        ("s3://bucket/prod", {"hadoop-aws-3.5.0.jar"}),
        ("abfss://tables@games.dfs.core.windows.net/prod", {"hadoop-azure-3.5.0.jar"}),
        ("gs://bucket/prod", {"gcs-connector-3.0.13.jar"}),
    ],
)
def test_a_stores_jars_are_needed_where_tables_are_in_one(checkout: Path, url: str, needed: set[str]) -> None:
    """After an ordinary set-up this machine is fine with folders; the remedy names the command of the kind of store."""
    jars = {"s3": "hadoop-aws-3.5.0.jar", "azure": "hadoop-azure-3.5.0.jar", "gcs": "gcs-connector-3.0.13.jar"}
    for conf, jar in jars.items():
        (checkout / conf / jar).unlink()
    found = by_subject(doctor.findings(Settings(), checkout, checkout, url))
    assert {jar for jar in jars.values() if found[jar].state == "missing"} == needed
    assert {jar for jar in jars.values() if found[jar].state == "optional"} == {*jars.values()} - needed
    for conf, jar in jars.items():
        assert f"setup --{conf}" in found[jar].remedy


def test_taken_port_is_told_but_stops_nothing(checkout: Path) -> None:
    """A running dashboard is no defect of the machine."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = by_subject(doctor.findings(Settings(dashboard=Dashboard(port=port)), checkout, checkout))
    assert found[f"port {port} (dashboard.port)"].state == "optional"


def test_kafka_is_looked_for_only_when_it_is_the_source(checkout: Path) -> None:
    """The embedded source needs no broker; with Kafka an unreachable broker is missing."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: a connection is refused
        server = f"127.0.0.1:{unused.getsockname()[1]}"
        found = by_subject(doctor.findings(Settings(source=Source("kafka", server)), checkout, checkout))
    assert found[f"Kafka broker {server}"].state == "missing"
    assert not any("Kafka" in subject for subject in by_subject(doctor.findings(Settings(), checkout, checkout)))


def test_a_registry_that_is_away_is_missing(tmp_path: Path) -> None:
    """Games would wait for its schemas: who installs turnout learns of a wrong address before the first row does."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "7.avsc").write_text('{"type": "record", "name": "m.M", "fields": []}')
    folders = {name: RegistrySettings(kind="folder", folder=str(tmp_path / name)) for name in ("here", "away")}
    found = by_subject(ask_registries(Settings(registries=folders)))
    assert found["registry here"].state == "ok"
    assert found["registry away"].state == "missing"
    assert "registries.away" in found["registry away"].remedy


@pytest.mark.proves("G279")
def test_the_control_store_is_tried(tmp_path: Path) -> None:
    """A store that cannot be reached is missing; one that there is not yet is made later, and not by doctor."""
    settings, paths = load(tmp_path, {})
    (found,) = try_store(settings, paths)
    assert (found.state, paths.control_db.exists()) == ("ok", False)
    assert "does not exist yet" in found.detail
    open_store(settings, paths).dispose()
    assert try_store(settings, paths)[0].detail == "answers"
    paths.control_db.write_bytes(b"no database at all, but long enough to look like one" * 100)
    assert try_store(settings, paths)[0].state == "missing"
    away = load(tmp_path, {"TURNOUT_STORE__URL": "postgresql+psycopg://turnout@127.0.0.1:1/turnout?connect_timeout=1"})
    (found,) = try_store(*away)
    assert (found.state, found.remedy) == ("missing", "start its database, or correct store.url")


@pytest.mark.proves("G279")
def test_a_registry_of_another_path_is_named(tmp_path: Path) -> None:
    """An address that answers 404 to everything is no registry: the remedy has the path of the kind that needs one."""
    with served(tmp_path) as url:
        found = ask_registries(Settings(registries={"main": RegistrySettings(kind="confluent", url=url)}))
    assert [each.state for each in found] == ["missing"]
    assert "404" in found[0].detail
    assert "Apicurio's in /apis/ccompat/v7" in found[0].remedy


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve an empty folder, which has nothing of a registry."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_exit_code_tells_whether_something_needed_is_missing(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script can ask whether turnout can work here."""
    env = checkout / "env"
    env.mkdir()
    assert doctor.run(env, as_json=True, root=checkout) == 0
    reported = json.loads(capsys.readouterr().out)
    assert [each["subject"] for each in reported if each["state"] == "missing"] == []
    (env / "turnout.toml").write_text("nonsense = 1\n")
    assert doctor.run(env, as_json=True, root=checkout) == 1
    reported = json.loads(capsys.readouterr().out)
    assert [each["subject"] for each in reported if each["state"] == "missing"] == ["settings"]
    assert "nonsense" in reported[0]["detail"]


def test_text_gathers_what_is_good_and_shows_each_defect() -> None:
    """Fifty good jars are one line; a defect stands by itself with what to do."""
    found = [DoctorFinding("jars", f"{n}.jar", "ok", "present") for n in range(50)]
    found.append(DoctorFinding("jars", "bad.jar", "missing", "not there", "fetch it"))
    found += [DoctorFinding("tools", f"{n}", "optional", "not there", "install") for n in range(30)]
    found.append(DoctorFinding("disk", "disk", "ok", "3 GiB free"))
    assert doctor.render_findings(found).splitlines() == [
        "OK       jars: 50 of 51 correct",
        "missing  bad.jar: not there -> fetch it",
        *(f"optional {n}: not there -> install" for n in range(5)),
        "optional tools: 25 more like this -> install",
        "OK       disk: 3 GiB free",
    ]


def test_python_of_the_tests_is_good_enough(checkout: Path) -> None:
    """The interpreter is judged by its version."""
    found = by_subject(doctor.findings(Settings(), checkout, checkout))
    assert found["Python"].state == ("ok" if sys.version_info >= (3, 11) else "missing")
