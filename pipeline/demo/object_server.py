"""A real S3 server, run for the demo and for tests: versitygw where it is installed, else moto's.

Listens on the loopback interface only, without encryption: never for production. versitygw keeps its buckets in its
folder; moto holds them in memory, and they end with it.
"""

import http.client
import os
import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from pipeline.base.errors import Refused
from pipeline.demo.server_process import HOST, ServerProcess, claimed, free_ports, launch

REGION: Final = "us-east-1"
_READY_SECONDS: Final = 60.0
_VERSITYGW: Final = "versitygw"
_BUCKETS: Final = "buckets"  # below the server's folder, with versitygw
# With several threads moto gave one name to two of eight writers that created it at one time, so it gets one request at
# a time; each connection has a thread that reads and writes, so that a client that was stopped holds up no other.
_MOTO: Final = """
import io, sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
WSGIRequestHandler.log_request = lambda *_: None
moto, one = DomainDispatcherApplication(create_backend_app), threading.Lock()

def application(environ, start):
    size = -1 if environ.get("wsgi.input_terminated") else int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(size)
    environ["wsgi.input"] = io.BytesIO(body)
    with one:
        answer = moto(environ, start)
        try:
            return [b"".join(answer)]
        finally:
            getattr(answer, "close", lambda: None)()

make_server("127.0.0.1", int(sys.argv[1]), application, threaded=True).serve_forever()
"""


class ObjectServer(ServerProcess):
    """A running S3 server; ends with `stop`, or as a context manager. Its folder holds `object-server.log`."""

    @property
    def address(self) -> str:
        """What clients call its endpoint."""
        return f"http://{HOST}:{self.port}"

    @staticmethod
    def is_kept() -> bool:
        """Return whether buckets outlive the server."""
        return shutil.which(_VERSITYGW) is not None

    @classmethod
    def start(cls, folder: Path, key: str, secret: str, port: int | None = None) -> Self:
        """Start a server for one key and its secret, and return once it answers.

        Without a port, a free one is taken.

        Raises:
            Refused: no server is installed, the folder is in use, the port is taken, or the server did not answer.
        """
        if not cls.is_kept() and find_spec("moto") is None:
            raise Refused("No S3 server is installed. Run ./turnout setup --s3 to install one.")
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()  # the server begins in it, so a relative path would lead elsewhere
        log = folder / "object-server.log"
        with claimed(folder, "object-server") as lock, log.open("ab") as output:
            (chosen,) = free_ports(port)
            environ = {**os.environ, "ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}  # no process list shows them
            process = launch(_command(folder, chosen), folder, output, lock, environ)
        server = cls(process, chosen, log)
        try:
            _await_answer(server)
        except BaseException:
            server.stop()
            raise
        return server

    def make_bucket(self, name: str) -> None:
        """Make a bucket; it may be there."""
        if self.is_kept():
            (self.log.parent / _BUCKETS / name).mkdir(exist_ok=True)
        elif _status(self.port, "PUT", f"/{name}") != 200:
            raise Refused(f"The S3 server made no bucket. Its log: {self.log}")


def _command(folder: Path, port: int) -> list[str]:
    program = shutil.which(_VERSITYGW)
    if program is None:
        return [sys.executable, "-c", _MOTO, str(port)]
    buckets = folder / _BUCKETS
    buckets.mkdir(exist_ok=True)
    return [program, "--region", REGION, "--port", f"{HOST}:{port}", "posix", str(buckets)]


def _await_answer(server: ObjectServer) -> None:
    until = time.monotonic() + _READY_SECONDS
    while server.running and time.monotonic() < until:
        if _status(server.port, "GET", "/"):
            return
        time.sleep(0.05)
    raise Refused(f"The S3 server did not start. Its log: {server.log}")


def _status(port: int, method: str, path: str) -> int:
    """Return the status of an answer to an unsigned request, 0 without one."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request(method, path)
        with connection.getresponse() as response:
            return response.status
    except (OSError, http.client.HTTPException):
        return 0  # not up yet
    finally:
        connection.close()
