"""Drivers on a real standalone cluster, with their tables in a bucket: what is lost there comes back, and no row is."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from pipeline.demo.cluster import SparkMaster, SparkWorker
from pipeline.demo.framings.by_type import FIELDS
from pipeline.demo.object_server import ObjectServer
from tests.postgres import postgres_server

_URL: Final = "s3://turnout/prod"
_WAIT_SECONDS: Final = 240.0
_GAMES: Final = ("--games", "4", "--versions", "2", "--seed", "5", "--formats", "protobuf,json", "--into", "wrappers")
_UNDECLARED: Final = (
    "--games", "2", "--skip-games", "4", "--versions", "2", "--seed", "5", "--formats", "json", "--framing", "type",
    "--into", "documents",
)  # fmt: skip
_DOCUMENTS: Final = "s3://turnout/documents"
_SOURCES: Final = {
    "TURNOUT_SOURCES__WRAPPERS__KIND": "delta",
    "TURNOUT_SOURCES__DOCUMENTS__PATH": _DOCUMENTS,
    "TURNOUT_SOURCES__DOCUMENTS__ENVELOPE": "json",
    "TURNOUT_SOURCES__DOCUMENTS__FRAMING": "type",
    **{f"TURNOUT_SOURCES__DOCUMENTS__ENVELOPE_FIELDS__{name.upper()}": path for name, path in FIELDS.items()},
}
pytestmark = pytest.mark.timeout(900)  # three minutes on an idle machine

_EACH: Final = 1_500  # events of one part
_DECLARED: Final = 1_000  # of them have a schema


@dataclass
class Fleet:
    """A cluster, a bucket and a store, and the processes of turnout that use them."""

    folder: Path
    environ: dict[str, str]
    workers: list[SparkWorker]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def command(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).with_name("turnout")), *words, "--env-dir", _URL]

    def run(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        """Run a command to its end and return what it prints."""
        log = self.folder / "commands.log"
        with log.open("ab") as output:
            done = subprocess.run(
                self.command(*words), env=self.environ, stdout=subprocess.PIPE, stderr=output, timeout=_WAIT_SECONDS
            )
        assert done.returncode in codes, f"{words} ended with {done.returncode}: {log.read_text()[-3000:]}"
        return done.stdout.decode()

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as output:
            self.running[name] = subprocess.Popen(
                self.command(*words), env=self.environ, stdout=output, stderr=output, start_new_session=True
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def landed(self) -> int:
        """Rows in bronze that are in tables or in quarantine."""
        printed = self.run("verify", "--json", codes=(0, 1, 2))
        if not printed:
            return 0  # there is no bronze yet
        result = json.loads(printed)
        return int(result["landed"]) + int(result["quarantined"])

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _WAIT_SECONDS
        while not is_so():
            assert time.monotonic() < end, f"no {what} within {_WAIT_SECONDS} s"
            for name, process in self.running.items():
                log = self.folder / f"{name}.log"
                assert process.poll() is None, f"{name} ended: {log.read_text()[-3000:]}"

    def send(self) -> None:
        self.run("simulate", *_GAMES, "--events", str(_DECLARED))
        self.run("simulate", *_UNDECLARED, "--events", str(_EACH - _DECLARED))

    def go_on(self) -> None:
        self.start("ingest", "ingest", "run")
        self.start("group", "groups", "run", "a")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        store = stack.enter_context(postgres_server())
        server = stack.enter_context(ObjectServer.start(tmp_path / "objects", "key", "secret"))
        server.make_bucket("turnout")
        reached = {
            "AWS_ENDPOINT_URL": server.address,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        master = stack.enter_context(SparkMaster.start(tmp_path / "cluster"))
        workers = [stack.enter_context(master.start_worker(f"worker-{number}", reached)) for number in (1, 2)]
        environ = {
            **os.environ,
            **reached,
            **master.environ,
            **_SOURCES,
            "TURNOUT_SPARK__MASTER": master.url,
            "TURNOUT_STORE__URL": store.url(),
            "XDG_STATE_HOME": str(tmp_path / "first-host"),
        }
        made = Fleet(tmp_path, environ, workers)
        try:
            yield made
        finally:
            for name in list(made.running):
                made.kill(name)


def executors(folder: Path) -> list[int]:
    """The processes of executors that work below a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_one = entry.name.isdigit() and b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes()
            if is_one and (entry / "cwd").resolve().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.proves("G231")
def test_nothing_is_lost_with_an_executor_a_worker_or_the_drivers_host(fleet: Fleet) -> None:
    """Law L3: an executor and a worker are killed under a pass, both drivers begin again from an empty work folder.

    Tasks run from the archives that were sent to them. Every value is compared with bronze at the end.
    """
    fleet.send()
    fleet.go_on()
    fleet.until(lambda: fleet.landed() >= _EACH, "rows of the first part")
    victims = executors(fleet.folder)
    assert len(victims) == 2, "each driver has one core of the cluster"
    fleet.send()
    os.kill(victims[0], signal.SIGKILL)
    fleet.until(lambda: fleet.landed() >= 2 * _EACH, "rows after an executor was killed")

    busy = next(each for each in fleet.workers if executors(each.log.parent))
    fleet.send()
    lost = executors(busy.log.parent)
    os.kill(busy.pid, signal.SIGKILL)
    for each in lost:
        os.kill(each, signal.SIGKILL)  # a machine takes its executors along
    fleet.until(lambda: fleet.landed() >= 3 * _EACH, "rows after a worker was lost")

    fleet.send()
    for name in ("ingest", "group"):
        fleet.kill(name)
    fleet.environ["XDG_STATE_HOME"] = str(fleet.folder / "another-host")
    fleet.go_on()
    fleet.until(lambda: fleet.landed() >= 4 * _EACH, "rows on another host")
    result: dict[str, Any] = json.loads(fleet.run("verify", "--values", "--json"))
    assert result["bronze_rows"] == 4 * _EACH
    assert (result["ok"], result["complete"], result["problems"]) == (True, True, [])
