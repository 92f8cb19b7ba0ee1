"""How the page and the command line ask a running demo for a fault: a socket of this machine, for the same user alone.

The demo writes where it listens, and a secret, into `break-it.json` of its environment's folder (mode 0600), and
deletes the file when it ends. Each request gives the secret. One request is served at a time; each is small and has a
time limit. Linux only.
"""

import contextlib
import hmac
import json
import logging
import os
import secrets
import shutil
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from pipeline.base import private_files
from pipeline.base.errors import Refused, Transient
from pipeline.settings.tree import Paths

_log = logging.getLogger("turnout")
_MAX_OFFER: Final = 4_096  # bytes
_MAX_REQUEST: Final = 4_096
_MAX_ANSWER: Final = 65_536
_REQUEST_SECONDS: Final = 2.0
_GLANCE_SECONDS: Final = 0.5  # each page's longest wait for the answer whether it has a neighbour
_LOOK_SECONDS: Final = 3.0  # of a page that only looks
_ACT_SECONDS: Final = 60.0  # Kafka may take half a minute to confirm
_TICK_SECONDS: Final = 1.0
_WAITING: Final = 4  # connections
_UCRED: Final = struct.Struct("3i")  # pid, uid, gid
_WORDS: Final = frozenset({"look", "break", "undo"})


class DemoBusy(Refused):
    """A demo of this user took the connection, and does a fault right now."""


@dataclass(frozen=True, slots=True)
class Active:
    """A fault that has not ended."""

    fault: str
    target: str  # a game's key, a group's name, `ingest`; empty: the source
    since: float
    until: float  # it ends by itself then
    said: str  # what was done


@dataclass(frozen=True, slots=True)
class ChannelAnswer:
    """The demo's answer to a request."""

    said: str
    active: tuple[Active, ...]
    read_at: float  # Unix seconds
    people: tuple[str, ...] = ()  # as whom its user may act on the pages


class Breaking(Protocol):
    """What a demo does about requests."""

    @property
    def active(self) -> tuple[Active, ...]:
        """The faults that have not ended."""

    def begin(self, fault: str, target: str) -> str:
        """Do a fault, and return what was done.

        Raises:
            Refused: there is no such fault or target, or it cannot be done now.
            Transient: the source or the store did not answer.
        """

    def undo(self, fault: str, target: str) -> str:
        """End a fault, and return what was done.

        Raises:
            Refused: it does not last.
        """

    def look(self) -> None:
        """End what has lasted long enough; called about once a second."""

    def end_all(self) -> None:
        """End every fault: the demo ends."""


# ------------------------------------------------------------------------------------------------------------ the demo


@contextmanager
def offered(paths: Paths, breaking: Breaking, people: Sequence[str] = ()) -> Iterator[None]:
    """Serve requests while the block runs; then end all faults.

    `people` are as whom the demo's user may act on its pages, so that one person can show what takes two.
    """
    folder = Path(tempfile.mkdtemp(prefix="turnout-demo-"))  # short: a socket's name has at most 107 bytes
    closed = threading.Event()
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / "socket"))
            (folder / "socket").chmod(0o600)
            listening.listen(_WAITING)
            listening.settimeout(_TICK_SECONDS)
            secret = secrets.token_urlsafe(32)
            server = _Server(listening, secret, str(paths.root.resolve()), breaking, tuple(people))
            thread = threading.Thread(target=server.serve, args=(closed,), name="break it")
            thread.start()
            try:
                offer = {"socket": str(folder / "socket"), "secret": secret}
                private_files.write_file(paths.break_it, json.dumps(offer))
                yield
            finally:
                paths.break_it.unlink(missing_ok=True)
                closed.set()
                with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as waking:
                    waking.setblocking(False)
                    waking.connect(str(folder / "socket"))  # the thread waits for a connection
                thread.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Server:
    def __init__(
        self, listening: socket.socket, secret: str, env: str, breaking: Breaking, people: tuple[str, ...]
    ) -> None:
        self._listening, self._secret, self._env, self._breaking = listening, secret, env, breaking
        self._people = people

    def serve(self, closed: threading.Event) -> None:
        """Serve one request after another, in a thread that lives as long as the demo: its children end with it."""
        try:
            while not closed.is_set():
                self._breaking.look()
                try:
                    connection, _ = self._listening.accept()
                except TimeoutError:
                    continue
                with connection:
                    if not closed.is_set():
                        self._serve_one(connection)
        finally:
            self._breaking.end_all()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            request = self._read(connection)
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("break it: a request was refused: %s", error)
            self._answer(connection, ok=False, said="This is not a request of this demo.")
            return
        try:
            said, ok = self._do(request), True
        except (Refused, Transient) as refused:
            said, ok = str(refused), False
        except Exception:  # noqa: BLE001 - the demo goes on, and must end all faults
            _log.exception("break it: %s failed", request["do"])
            said, ok = "The demo could not do this: its terminal says why.", False
        self._answer(connection, ok=ok, said=said)

    def _read(self, connection: socket.socket) -> dict[str, str]:
        """Return a request of the same user who knows the secret.

        Raises:
            ValueError: it is anything else.
        """
        if _peer(connection) != os.geteuid():
            raise ValueError("another user")
        request = json.loads(_line(connection, _MAX_REQUEST, _REQUEST_SECONDS))
        if not isinstance(request, dict) or set(request) != {"secret", "env", "do", "fault", "target"}:
            raise ValueError("not a request")
        if not all(isinstance(value, str) for value in request.values()) or request["do"] not in _WORDS:
            raise ValueError("not a request")
        if not hmac.compare_digest(request["secret"].encode(), self._secret.encode()):
            raise ValueError("the secret is not this demo's")
        if request["env"] != self._env:
            raise ValueError("it is for another environment")
        return request

    def _do(self, request: Mapping[str, str]) -> str:
        acts: Mapping[str, Callable[[str, str], str]] = {"break": self._breaking.begin, "undo": self._breaking.undo}
        act = acts.get(request["do"])
        return "" if act is None else act(request["fault"], request["target"])

    def _answer(self, connection: socket.socket, *, ok: bool, said: str) -> None:
        active = [
            {name: getattr(each, name) for name in Active.__slots__} for each in (self._breaking.active if ok else ())
        ]
        people = self._people if ok else ()
        answer = {"ok": ok, "said": said, "env": self._env, "active": active, "people": people}
        with contextlib.suppress(OSError):  # whoever asked is gone
            connection.settimeout(_REQUEST_SECONDS)
            connection.sendall(json.dumps(answer).encode() + b"\n")


# ----------------------------------------------------------------------------------------------- the page, the command


def is_offered(paths: Paths) -> bool:
    """Return whether a demo of this user runs this environment and does faults; one at work on a fault does, too."""
    try:
        _ask(paths, {"do": "look", "fault": "", "target": ""}, _GLANCE_SECONDS)
    except DemoBusy:
        return True
    except Refused:
        return False
    return True


def people(paths: Paths) -> tuple[str, ...] | None:
    """Return as whom the user of the demo of this environment may act, nobody without a demo; None: it is busy."""
    try:
        return _ask(paths, {"do": "look", "fault": "", "target": ""}, _GLANCE_SECONDS).people
    except DemoBusy:
        return None
    except Refused:
        return ()


def look(paths: Paths) -> ChannelAnswer:
    """Return which faults have not ended.

    Raises:
        Refused: no demo of this user runs this environment.
    """
    return _ask(paths, {"do": "look", "fault": "", "target": ""}, _LOOK_SECONDS)


def begin(paths: Paths, fault: str, target: str) -> ChannelAnswer:
    """Have the demo do a fault.

    Raises:
        Refused: no demo of this user runs this environment, or it refuses.
    """
    return _ask(paths, {"do": "break", "fault": fault, "target": target}, _ACT_SECONDS)


def undo(paths: Paths, fault: str, target: str) -> ChannelAnswer:
    """Have the demo end a fault.

    Raises:
        Refused: no demo of this user runs this environment, or it refuses.
    """
    return _ask(paths, {"do": "undo", "fault": fault, "target": target}, _ACT_SECONDS)


def _ask(paths: Paths, request: Mapping[str, str], seconds: float) -> ChannelAnswer:
    place, secret = _read_offer(paths)
    env = str(paths.root.resolve())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(place)
            if _peer(connection) != os.geteuid():
                raise _no_demo(paths)
            connection.sendall(json.dumps({"secret": secret, "env": env, **request}).encode() + b"\n")
            answer = json.loads(_line(connection, _MAX_ANSWER, seconds))
            its_env, ok, said = str(answer["env"]), answer["ok"] is True, str(answer["said"])
            active = tuple(Active(**each) for each in answer["active"])
            people = tuple(str(each) for each in answer["people"])
        except TimeoutError as error:
            raise DemoBusy("The demo is busy with another fault. Try again in a moment.") from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _no_demo(paths) from error
    if its_env != env:
        raise _no_demo(paths)
    if not ok:
        raise Refused(said)
    return ChannelAnswer(said, active, time.time(), people)


def _read_offer(paths: Paths) -> tuple[str, str]:
    """Return the socket and the secret, from a file that only this user can have written.

    Raises:
        Refused: there is no such file.
    """
    if sys.platform != "linux":
        raise _no_demo(paths)
    try:
        handle = os.open(paths.break_it, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _no_demo(paths) from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise _no_demo(paths)
        text = file.read(_MAX_OFFER)
    try:
        offer: Any = json.loads(text)
        return str(offer["socket"]), str(offer["secret"])
    except (ValueError, TypeError, KeyError) as error:
        raise _no_demo(paths) from error


def _no_demo(paths: Paths) -> Refused:
    return Refused(
        f"No demo of yours runs {paths.root}: only a running `turnout demo` can be broken, by the user who started it."
    )


def _peer(connection: socket.socket) -> int:
    """Return the user at the other end."""
    uid: int = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[1]
    return uid


def _line(connection: socket.socket, most: int, seconds: float) -> bytes:
    """Read one line.

    Raises:
        ValueError: it is too long, or does not end.
        OSError: it takes too long.
    """
    deadline, text = time.monotonic() + seconds, b""
    while not text.endswith(b"\n"):
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        part = connection.recv(most)
        if not part:
            raise ValueError("it does not end")
        text += part
        if len(text) > most:
            raise ValueError("it is too long")
        if time.monotonic() > deadline:
            raise TimeoutError("it takes too long")
    return text
