"""A real Spark cluster on this machine for the demo and for tests: a standalone master and workers, each a process.

On the loopback interface only; master, workers and drivers share a secret, which stands in a file that only its user
reads. A worker's executors unpack their Python into its own work folder.
"""

import http.client
import os
import secrets
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from pipeline.base import private_files
from pipeline.base.errors import Refused
from pipeline.demo.server_process import HOST, ServerProcess, claimed, free_ports, launch
from pipeline.platforms.local.jars import java_executable
from pipeline.platforms.session.spark import properties

CORES: Final = 4
"""Declared cores of a worker: each driver takes one, whatever the machine has."""

_READY_SECONDS: Final = 60.0
_WORKER_MEMORY: Final = "4g"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData")


class SparkMaster(ServerProcess):
    """A running standalone master; ends with `stop`, or as a context manager. Its folder holds `master.log`."""

    def __init__(self, *started: object, folder: Path, conf: Path) -> None:
        """Wrap a process."""
        super().__init__(*started)  # type: ignore[arg-type]
        self._folder, self._conf = folder, conf

    @property
    def url(self) -> str:
        """What drivers call it."""
        return f"spark://{HOST}:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which drivers find the secret, and take one core each."""
        python = os.path.realpath(sys.executable)  # without our packages: executors use what was sent to them
        return {"SPARK_CONF_DIR": str(self._conf), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": python}

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Start a master and return once it answers.

        Raises:
            Refused: the folder is in use, Java is missing, or it did not answer.
        """
        folder.mkdir(parents=True, exist_ok=True)
        conf = folder / "conf"
        private_files.make_folder(conf)
        shared = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_urlsafe(32),
            "spark.network.crypto.enabled": "true",
            "spark.cores.max": "1",
            "spark.executor.memory": "512m",
            "spark.master.ui.killEnabled": "false",
            "spark.ui.killEnabled": "false",
        }
        private_files.write_file(conf / "spark-defaults.conf", properties(shared))
        log = folder / "master.log"
        with claimed(folder, "Spark master") as lock, log.open("ab") as output:
            port, ui = free_ports(None, 1)
            arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(ui)]
            process = launch(_command(_MASTER, conf, *arguments), folder, output, lock, _environ(conf))
        master = cls(process, port, log, folder=folder, conf=conf)
        _await(master, ui, "/json/", b'"ALIVE"')
        return master

    def start_worker(self, name: str, environ: Mapping[str, str]) -> "SparkWorker":
        """Start a worker with a folder of its own, and return once it answers; its executors get these variables.

        Raises:
            Refused: it did not answer.
        """
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "worker.log"
        with claimed(folder, "Spark worker") as lock, log.open("ab") as output:
            port, ui = free_ports(None, 1)
            arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(ui), "--cores", str(CORES)]
            arguments += ["--memory", _WORKER_MEMORY, "--work-dir", str(folder / "work"), self.url]
            known = {**_environ(self._conf), **environ}
            process = launch(_command(_WORKER, self._conf, *arguments), folder, output, lock, known)
        worker = SparkWorker(process, port, log)
        _await(worker, ui, "/json/", self.url.encode())
        return worker


class SparkWorker(ServerProcess):
    """A running worker; ends with `stop`, and its executors with it."""


def _command(main: str, conf: Path, *arguments: str) -> list[str]:
    home = _home()
    class_path = f"{conf}{os.pathsep}{home / 'jars' / '*'}"
    return [java_executable(), *_JVM, *_OPENS, "-cp", class_path, main, *arguments]


_OPENED: Final = "java.lang java.lang.invoke java.net java.nio java.util sun.nio.ch sun.security.action"
_OPENS: Final = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split())


def _home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Refused("pyspark is not installed in this environment. Run ./turnout setup.")
    return Path(spec.origin).parent


def _environ(conf: Path) -> dict[str, str]:
    """Return the variables of a daemon: no Python of ours, so that executors have what was sent to them."""
    left_out = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "TURNOUT_HOME")
    known = {name: value for name, value in os.environ.items() if name not in left_out}
    spark = {"SPARK_HOME": str(_home()), "SPARK_SCALA_VERSION": "2.13"}  # pyspark's own has no release file
    return {**known, **spark, "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": HOST}


def _await(server: ServerProcess, port: int, path: str, sign: bytes) -> None:
    until = time.monotonic() + _READY_SECONDS
    try:
        while server.running and time.monotonic() < until:
            if sign in _answer(port, path):
                return
            time.sleep(0.1)
        raise Refused(f"Spark's master or worker did not start. Its log: {server.log}")
    except BaseException:
        server.stop()
        raise


def _answer(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        with connection.getresponse() as response:
            return response.read().replace(b" ", b"")
    except (OSError, http.client.HTTPException):
        return b""  # not up yet
    finally:
        connection.close()
