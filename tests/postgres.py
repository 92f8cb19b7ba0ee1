"""A real PostgreSQL server for tests: a cluster of its own in a temporary folder, on loopback, gone at the end."""

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

_FORGETFUL = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}
"""Settings of a server whose data need not outlive it."""

_WHO_LOGS_IN = "host all turnout 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
"""The superuser of tests needs no password, every other role does: else no test could tell a token from another."""

_START_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


class Postgres:
    """A running server; each `url` is a store of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._address = f"turnout@127.0.0.1:{port}/postgres"
        self._numbers = itertools.count(1)
        self._own: psycopg.Connection | None = None  # kept: each new one costs a process

    def url(self) -> str:
        """Return the address of an empty schema, for SQLAlchemy.

        What is made in it hides what PostgreSQL has of the same name: so a test can have a clock of its own.
        """
        schema = f"store_{next(self._numbers)}"
        self.run(f"CREATE SCHEMA {schema}")
        return f"postgresql+psycopg://{self._address}?options=-csearch_path%3D{schema},pg_catalog"

    def run(self, *statements: str) -> None:
        """Execute statements as superuser, each in its own transaction."""
        if self._own is None:
            self._own = psycopg.connect(f"postgresql://{self._address}", autocommit=True)
        for each in statements:
            self._own.execute(each.encode())

    def run_in(self, database: str, *statements: str) -> None:
        """Execute statements as superuser in another database than that of stores by `url`."""
        with psycopg.connect(f"postgresql://turnout@127.0.0.1:{self.port}/{database}", autocommit=True) as connection:
            for each in statements:
                connection.execute(each.encode())

    def new_name(self, kind: str) -> str:
        """Return a name that no database or role of this server has."""
        return f"{kind}_{next(self._numbers)}"

    def is_up(self) -> bool:
        try:
            psycopg.connect(f"postgresql://{self._address}").close()
        except psycopg.OperationalError:
            return False
        return True

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Start a server as a user without rights: it refuses to run as root."""
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="turnout-postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user, user)
        data = folder / "data"
        initdb = [_program("initdb"), "-D", str(data), "-U", "turnout", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        made = subprocess.run(initdb, user=user, group=user, cwd=folder, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        (data / "pg_hba.conf").write_text(_WHO_LOGS_IN)
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", **_FORGETFUL}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [_program("postgres"), "-D", str(data), *flags],
                user=user, group=user, cwd=folder, stdout=output, stderr=output, preexec_fn=_end_with_parent,  # noqa: PLW1509
            )  # fmt: skip
        try:
            server = Postgres(port)
            deadline = time.monotonic() + _START_SECONDS
            while not server.is_up():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield server
            server.close()
        finally:
            process.send_signal(signal.SIGQUIT)  # end at once: a checkpoint takes 10 s
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    """Find a program of the newest PostgreSQL; Debian keeps them off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    place = str(found[-1]) if found else shutil.which(name)
    if place is None:
        pytest.fail(f"{name} is not installed: run ./turnout setup --dev")
    return place


def _user() -> str | None:
    """Return a user without rights to run as where we are root, None where we are not."""
    if os.getuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
