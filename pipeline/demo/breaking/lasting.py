"""Faults that last: each begins when it is made, is looked at about once a second, and ends once."""

import logging
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import Engine

from listeners.process_kinds import GROUP
from pipeline.base.errors import Refused, Transient, first_line
from pipeline.demo.breaking import faults
from pipeline.demo.breaking.sessions import find_driver, limit_files, signal_session
from pipeline.demo.simulator import Event
from pipeline.store.processes.leases import Process

_log = logging.getLogger("turnout")
_END_SECONDS: Final = 40.0  # for a thread that sends to end: the longest that Kafka takes to confirm
_LOCK_SECONDS: Final = 1.0
_RUNS_SECONDS: Final = 0.1
_STANDS_SECONDS: Final = 0.9

Sending = Callable[[Iterator[Sequence[Event]], float | None, int | None, threading.Event], int]
"""Sends batches to the demo's source, at a rate, a number of them; returns how many events failed."""


class SimulatorSwitch(Protocol):
    """The simulator of the demo, which may be ended and started again."""

    def stop(self) -> None:
        """End it, so that nothing starts it again."""

    def start(self) -> None:
        """Start it again."""


class Lasting(Protocol):
    """A fault that has begun and lasts."""

    def end(self) -> str:
        """End it, and return what was done."""

    def over(self) -> str | None:
        """Return why it has ended by itself, None while it lasts."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A driver that stands still."""

    driver: Process
    target: str

    def end(self) -> str:
        """Let everything go on; see `Lasting`."""
        signal_session(self.driver, signal.SIGCONT)  # also what outlived a driver that was killed meanwhile
        return f"The driver of {self.target} goes on."

    def over(self) -> str | None:
        """See `Lasting`."""
        return "the driver was killed meanwhile" if self.driver.is_dead() else None


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """A group whose drivers die, one after another."""

    engine: Engine
    group: str

    def kill(self) -> None:
        """Kill the driver that there is.

        Raises:
            Refused: there is none.
        """
        signal_session(find_driver(self.engine, GROUP, self.group), signal.SIGKILL)

    def end(self) -> str:
        """Let everything go on; see `Lasting`."""
        return f"The next driver of {self.group} lives: the controller starts it after its pause."

    def over(self) -> None:
        """See `Lasting`."""
        with suppress(Refused):  # there is none yet
            self.kill()


@dataclass(slots=True)
class Starved:
    """A driver that a thread stops again and again; a lock that it holds is held a second longer at most."""

    driver: Process
    target: str
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="break it: starve", daemon=True)
        self._thread.start()

    def end(self) -> str:
        """Let everything go on; see `Lasting`."""
        self._stop.set()
        self._thread.join()
        return f"The driver of {self.target} has the whole machine again."

    def over(self) -> str | None:
        """See `Lasting`."""
        return "the driver has ended" if self.driver.is_dead() else None

    def _run(self) -> None:
        try:
            while not self._stop.wait(_RUNS_SECONDS) and not self.driver.is_dead():
                signal_session(self.driver, signal.SIGSTOP)
                self._stop.wait(_STANDS_SECONDS)
                signal_session(self.driver, signal.SIGCONT)
        finally:
            signal_session(self.driver, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class FullDisk:
    """A group whose workers can write no file."""

    engine: Engine
    group: str

    def fill(self) -> int:
        """Let writes of the workers fail; return how many workers there are.

        Raises:
            Refused: there is no driver.
        """
        return limit_files(find_driver(self.engine, GROUP, self.group), 0)

    def end(self) -> str:
        """Let everything go on; see `Lasting`."""
        with suppress(Refused):  # it has ended, and the next one has no limit
            limit_files(find_driver(self.engine, GROUP, self.group), None)
        return f"The workers of {self.group} can write again."

    def over(self) -> None:
        """See `Lasting`."""
        with suppress(Refused):
            self.fill()  # those that were started meanwhile, too


@dataclass(slots=True)
class LockedStore:
    """A control store whose lock for writes we hold, from the first look on: the act is in its audit log before."""

    file: Path
    _held: sqlite3.Connection | None = None

    def end(self) -> str:
        """Let everything go on; see `Lasting`."""
        if self._held is not None:
            self._held.close()
        return "The control store can be written again."

    def over(self) -> None:
        """See `Lasting`."""
        if self._held is None:
            connection = sqlite3.connect(self.file, timeout=_LOCK_SECONDS, isolation_level=None)
            try:
                connection.execute("BEGIN IMMEDIATE")
                self._held = connection
            except sqlite3.OperationalError:  # another process writes: the next look tries again
                connection.close()


@dataclass(frozen=True, slots=True)
class SourceSilence:
    """A source without producers."""

    source: SimulatorSwitch

    def end(self) -> str:
        """Let everything go on; see `Lasting`."""
        self.source.start()
        return "The simulator sends again."

    def over(self) -> None:
        """See `Lasting`."""
        return


@dataclass(slots=True)
class Feed:
    """Rows that a thread sends until it is ended."""

    send: Sending
    rows: Iterator[Sequence[Event]]
    said: str
    _stop: threading.Event = field(default_factory=threading.Event)
    _failed: str | None = None
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="break it: rows", daemon=True)
        self._thread.start()

    def end(self) -> str:
        """Let everything go on; see `Lasting`."""
        self._stop.set()
        self._thread.join(_END_SECONDS)
        return self.said

    def over(self) -> str | None:
        """See `Lasting`."""
        return self._failed

    def _run(self) -> None:
        try:
            self.send(self.rows, faults.POISON_PER_SECOND, None, self._stop)
        except (Refused, Transient) as error:
            self._failed = first_line(error)
        except Exception as error:  # noqa: BLE001 - it ends this fault, and the terminal has it
            _log.exception("break it: rows are not sent any more")
            self._failed = first_line(error)
