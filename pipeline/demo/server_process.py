"""A server of the demo and of tests: one process of its own on a claimed folder, and a free port of this machine.

Broker and registry are such servers; each knows its command and when it is ready.
"""

import fcntl
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from pipeline.base.errors import Refused

HOST: Final = "127.0.0.1"
_STOP_SECONDS: Final = 20.0


class ServerProcess:
    """A running server; ends with `stop`, or as a context manager."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        """Wrap a process."""
        self.port = port
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """The process id, also after the end."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Return whether the process lives."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the server: politely, and after 20 seconds by force. Does nothing when it has ended."""
        if not self.running:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def launch(
    command: Sequence[str],
    folder: Path,
    output: IO[bytes],
    lock: IO[bytes],
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server's process in its folder, under the claim of that folder; with these variables, or our own."""
    return subprocess.Popen(
        command,
        env=environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=(lock.fileno(),),  # so the claim lasts exactly as long as the server, not as who started it
        start_new_session=True,  # Ctrl-C in a terminal must not end it before those who use it
    )


@contextmanager
def claimed(folder: Path, kind: str) -> Iterator[IO[bytes]]:
    """Hold a folder for one server of a kind.

    Raises:
        Refused: another one runs on it.
    """
    with (folder / f"{kind}.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(f"A {kind} already runs on {folder}. Stop it, or choose another folder.") from error
        yield lock


def free_ports(port: int | None, more: int = 0) -> tuple[int, ...]:
    """Return the port, or a free one for None, and further ones, all of them free a moment ago.

    Raises:
        Refused: the port is taken.
    """
    sockets = [socket.socket() for _ in range(1 + more)]
    try:
        sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sockets[0].bind((HOST, port or 0))
        except OSError as error:
            raise Refused(
                f"Port {port} of {HOST} cannot be used: {error.strerror}. Free it or choose another."
            ) from error
        for each in sockets[1:]:
            each.bind((HOST, 0))
        return tuple(int(each.getsockname()[1]) for each in sockets)
    finally:
        for each in sockets:
            each.close()
