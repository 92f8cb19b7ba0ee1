"""A real schema registry (Apicurio, with Confluent's API), run from the project's archive for the demo and for tests.

Listens on the loopback interface only, without encryption or authentication: never for production.
"""

import http.client
import shutil
import tarfile
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import Final, Self

from pipeline.base.errors import Refused
from pipeline.demo.server_process import HOST, ServerProcess, claimed, free_ports, launch
from pipeline.platforms.local.jars import java_executable, registry_archive

_API: Final = "/apis/ccompat/v7"
_READY_SECONDS: Final = 90.0
_JVM: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_PROPERTIES: Final = (
    "quarkus.datasource.jdbc.url=jdbc:h2:file:./data/registry;WRITE_DELAY=0",  # an id that was given survives a kill
    "quarkus.datasource.jdbc.initial-size=2",
    "quarkus.datasource.jdbc.min-size=2",
    f"quarkus.http.host={HOST}",
)


class Registry(ServerProcess):
    """A running registry; ends with `stop`, or as a context manager.

    Its folder holds `data` and `registry.log`. Starting again on the same folder keeps schemas and their ids.
    """

    @classmethod
    def start(cls, folder: Path, port: int | None = None) -> Self:
        """Start a registry that keeps its schemas in `folder` and return once it answers, after 3 to 10 seconds.

        Without a port, a free one is taken.

        Raises:
            Refused: the port is taken, the archive or Java is missing, or the registry does not come up.
        """
        (port,) = free_ports(port)
        program = _program(registry_archive().resolve())
        folder.mkdir(parents=True, exist_ok=True)
        log = folder.resolve() / "registry.log"
        properties = [f"-D{each}" for each in (*_PROPERTIES, f"quarkus.http.port={port}")]
        with claimed(folder, "registry") as lock, log.open("ab") as output:
            command = [java_executable(), *_JVM, *properties, "-jar", str(program)]
            process = launch(command, folder, output, lock)
        registry = cls(process, port, log)
        try:
            registry._wait_until_ready()
        except BaseException:
            registry.stop()
            raise
        return registry

    @property
    def url(self) -> str:
        """The base address for clients of Confluent's API."""
        return f"http://{HOST}:{self.port}{_API}"

    def _wait_until_ready(self) -> None:
        """Return when the registry lists its subjects."""
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise Refused(f"The schema registry failed to start. Log: {self.log}")
            if _answers(self.port):
                return
            time.sleep(0.1)  # between two attempts, of which the last one decides
        raise Refused(f"The schema registry does not answer at {self.url}. Log: {self.log}")


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", f"{_API}/subjects")
        with connection.getresponse() as response:
            return response.status == 200
    except (OSError, http.client.HTTPException):
        return False  # not up yet
    finally:
        connection.close()


def _program(archive: Path) -> Path:
    """Return the registry's program, unpacked beside its archive at the first start."""
    home = archive.with_name(archive.name.removesuffix(".tar.gz"))
    if not home.exists():
        try:
            with tempfile.TemporaryDirectory(prefix="unpacking-", dir=archive.parent) as folder:
                unpacked = Path(folder) / "app"
                _unpack(archive, unpacked)
                unpacked.rename(home)
        except OSError as error:
            if not home.exists():  # else another one was faster
                raise Refused(
                    f"{archive} cannot be unpacked: {error}. Its folder must be writable, with 150 MB free."
                ) from error
    programs = list(home.glob("*-runner.jar"))
    if len(programs) != 1:
        raise Refused(f"{home} holds no registry. Delete it, and start again.")
    return programs[0]


def _unpack(archive: Path, into: Path) -> None:
    """Unpack the archive's files; its SHA-256 was checked when it was fetched."""
    with tarfile.open(archive) as packed:
        for member in packed:
            source = packed.extractfile(member)
            if source is None or ".." in PurePosixPath(member.name).parts:
                continue  # a folder
            target = into / member.name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(source, file)
