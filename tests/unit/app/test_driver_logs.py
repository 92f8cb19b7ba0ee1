"""The end of a driver's log: little of it, no secret in it, for operators only."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st

from app.gate import Person
from app.state import services
from app.state.driver_logs import tail
from app.state.services import Environment
from pipeline.api import driver_logs
from pipeline.api.driver_logs import doubt, masked
from pipeline.base.errors import Refused
from pipeline.settings.registries import RegistrySettings
from pipeline.settings.source import Source
from pipeline.settings.tree import Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.rows import Driver
from tests.unit.app.app_world import name_roles

ANN, BOB = Person("ann", by_platform=False), Person("bob", by_platform=False)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    open_store(*load(tmp_path)).dispose()
    name_roles(tmp_path, operators=["ann"])
    st.cache_data.clear()
    st.cache_resource.clear()
    yield services.open_environment(["--env-dir", str(tmp_path)], {})
    st.cache_data.clear()
    st.cache_resource.clear()


def write(environment: Environment, text: bytes, name: str = "group-a.log") -> Path:
    file = environment.paths.logs / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text)
    st.cache_resource.clear()
    return file


@pytest.mark.parametrize(
    "line",
    [
        "password=hunter22 and more",
        'WARN {"sasl.password": "hunter22", "x": 1}',
        "ssl.key.password = 'hunter22'",
        "Authorization: Bearer hunter22hunter22",
        "authorization: Basic aHVudGVyMjI=hunter22",
        "connect to postgresql://user:hunter22@db:5432/x",
        "https://host/path?token=hunter22&x=1",
        "kafka.sasl.jaas.config=org.apache.PlainLoginModule required username=u password=hunter22;",
        "started with --api-key hunter22",
        "AWS_SECRET_ACCESS_KEY=hunter22",
        "client_secret: hunter22",
    ],
)
def test_values_beside_telling_names_are_hidden(line: str) -> None:
    """Values beside a telling name, of a header or within an address are no part of what is shown."""
    (shown,) = masked([line])
    assert "hunter22" not in shown
    assert "(hidden)" in shown


def test_bare_keys_and_blocks_of_a_private_key_are_hidden() -> None:
    """Tokens known by their form are hidden, and every line of a private key, also if it began earlier."""
    key = ["-----BEGIN RSA PRIVATE KEY-----", "MIIEow", "-----END RSA PRIVATE KEY-----", "after"]
    assert list(masked(key)) == ["(hidden)", "(hidden)", "(hidden)", "after"]
    assert list(masked(key[1:])) == ["(hidden)", "(hidden)", "after"]
    bare = f"got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln and dapi{'0' * 32} and AKIA{'A' * 16}"
    assert next(masked([bare])) == "got (hidden) and (hidden) and (hidden)"


def test_the_values_of_secret_settings_are_hidden_wherever_they_stand() -> None:
    """A password or token of the settings is hidden also where nothing beside it says what it is."""
    settings = replace(
        Settings(),
        source=Source(kafka_options={"kafka.sasl.password": "s3cret-value"}),
        registries={"main": RegistrySettings(kind="confluent", token="t0ken-value", user="turnout")},
    )
    secrets = driver_logs.secrets_of(settings)
    (shown,) = masked(["the server said t0ken-value is not s3cret-value of turnout"], secrets)
    assert shown == "the server said (hidden) is not (hidden) of turnout"


def test_ordinary_lines_stay_as_they_are() -> None:
    """Errors, counts, paths and addresses without a user stay readable."""
    lines = [
        "ERROR turnout: no space left on device",
        "  at pipeline/data/streams/group.py:12",
        "http://127.0.0.1:8501/x",
    ]
    assert list(masked(lines)) == lines


def test_a_hostile_line_costs_little() -> None:
    """A line may be as long as what is read, and of whatever repeats: hiding takes no time by its square."""
    began = time.process_time()
    for piece in ("a", "token", "eyJ-", "jaas.", "://", "password='", "-----BEGIN "):
        list(masked([piece * (driver_logs.TAIL_BYTES // len(piece))]))
    assert time.process_time() - began < 1.0


def test_only_the_end_of_a_log_is_read(environment: Environment) -> None:
    """However large a log is, its last lines are shown, cut to a length, without what a terminal would obey."""
    write(environment, b"x" * 1_000_000 + b"\npassword=hunter22\n\x1b[31mred\x1b[0m\xff\n\n    indented\n" + b"y" * 900)
    found = tail(environment, "group", "a", ANN)
    assert found.lines[:4] == ("password=(hidden)", "red\ufffd", "", "    indented")
    assert (len(found.lines[4]), found.is_whole, found.file) == (400, False, "group-a.log")
    write(environment, "\n".join(map(str, range(1000))).encode())
    found = tail(environment, "group", "a", ANN)
    assert (len(found.lines), found.lines[-1], found.is_whole) == (driver_logs.MOST_LINES, "999", False)
    write(environment, b"one\ntwo\n")
    assert tail(environment, "group", "a", ANN).is_whole


def test_logs_are_for_operators(environment: Environment) -> None:
    """A person without the role sees no line of a log, nor whether the file exists."""
    write(environment, b"one\n")
    for name in ("a", "b"):
        with pytest.raises(Refused, match="shown to operators"):
            tail(environment, "group", name, BOB)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "a\0", ".."])
def test_a_name_never_leads_out_of_the_folder(name: str, environment: Environment) -> None:
    """A link may name any group; only names that a group can have become the name of a file."""
    with pytest.raises(Refused, match="No cluster group"):
        tail(environment, "group", name, ANN)


def test_a_log_elsewhere_is_a_reason(environment: Environment) -> None:
    """Without a file here, as of a driver on another machine or platform, the reason says where it may be."""
    with pytest.raises(Refused, match=r"No log on this machine: ingest\.log is not in the environment's folder logs"):
        tail(environment, "ingest", "main", ANN)


def test_a_log_of_another_start_is_doubted(environment: Environment) -> None:
    """A file that was last written before the driver started, or a driver of another host, is not passed off as its."""
    file = write(environment, b"one\n")
    os.utime(file, (1000.0, 1000.0))
    found = tail(environment, "group", "a", ANN)
    here = Driver("group", "a", os.uname().nodename, 7, 900.0, 2000.0, "running", None, None)
    assert doubt(found, here, 5.0) is None
    assert "started later" in str(doubt(found, replace(here, started_at=1500.0), 5.0))
    assert "runs on elsewhere" in str(doubt(found, replace(here, host="elsewhere"), 5.0))
    assert "ever reported" in str(doubt(found, None, 5.0))
