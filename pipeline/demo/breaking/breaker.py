"""Does the faults of a running demo and ends them; each is in the audit log as the act of the demo's user."""

import logging
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import Engine

from pipeline.actor import current_user
from pipeline.contracts.policies import Policies
from pipeline.contracts.registrations import Registration
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.registering import proposals
from pipeline.control.registering.requests import SchemaRequest
from pipeline.demo.breaking import faults
from pipeline.demo.breaking.channel import Active
from pipeline.demo.breaking.faults import FAULTS, Fault
from pipeline.demo.breaking.rows import batches, garbage
from pipeline.demo.breaking.sessions import find_driver, limit_files, signal_session
from pipeline.demo.samples.conflicts import Conflict, conflicts
from pipeline.demo.simulator import Event, family
from pipeline.errors import Refused, Transient, first_line
from pipeline.names import shown
from pipeline.settings import Paths, Settings, load
from pipeline.store.audit import Act
from pipeline.store.database.engine import open_store
from pipeline.store.fleet import SchemaVersion, read_schemas
from pipeline.store.games import find, known_games
from pipeline.store.groups import read_groups
from pipeline.store.processes.leases import Process

_log = logging.getLogger("turnout")
_MOST_ACTIVE: Final = 8
_BATCH: Final = faults.POISON_PER_SECOND // 2  # events
_END_SECONDS: Final = 40.0  # of a thread that sends: Kafka may take so long to confirm
_FREEZE_TRIES: Final = 20
_LOCK_SECONDS: Final = 1.0
_RUNS_SECONDS: Final = 0.1
_STANDS_SECONDS: Final = 0.9
_RELEASE: Final = "break it: a careless release"  # the reason of its registrations

Sending = Callable[[Iterator[Sequence[Event]], float | None, int | None, threading.Event], int]
"""Sends batches to the demo's source, at a rate, a number of them; returns how many events failed."""


class Source(Protocol):
    """The simulator of the demo, which may be ended and started again."""

    def stop(self) -> None:
        """End it, so that nothing starts it again."""

    def start(self) -> None:
        """Start it again."""


@dataclass(frozen=True, slots=True)
class World:
    """What a demo lends to its faults."""

    paths: Paths
    source: Source
    send: Sending
    versions: int  # schema versions per game


class _Lasting(Protocol):
    """A fault that has begun and lasts."""

    def end(self) -> str:
        """End it, and return what was done."""

    def over(self) -> str | None:
        """Return why it has ended by itself, None while it lasts."""


@dataclass(frozen=True, slots=True)
class _Begun:
    active: Active
    lasting: _Lasting


class Breaker:
    """The faults of one demo; not shared between threads."""

    def __init__(self, world: World) -> None:
        """Open the control store of the demo's environment."""
        self._world = world
        self._paths = world.paths
        self._engine = open_store(self._settings, self._paths)
        self._begun: dict[tuple[str, str], _Begun] = {}
        self._begin: Final = {
            "kill": self._kill,
            "freeze": self._freeze,
            "crash": self._crash,
            "starve": self._starve,
            "disk": self._fill_disk,
            "silence": self._silence,
            "poison": self._poison,
            "quarantine": self._fill_quarantine,
            "schema": self._deploy_schema,
        }

    @property
    def _settings(self) -> Settings:
        """The settings as they are now: roles may have changed."""
        return load(self._paths.root)[0]

    @property
    def active(self) -> tuple[Active, ...]:
        """The faults that have not ended, the oldest first."""
        return tuple(each.active for each in self._begun.values())

    def begin(self, name: str, target: str) -> str:
        """Do a fault; see `channel.Breaking`."""
        fault = _known(name)
        target = self._target(fault, target)
        if (name, target) in self._begun:
            raise Refused(f"{fault.title}: this has been done and lasts. End it first.")
        if fault.limit_seconds and len(self._begun) >= _MOST_ACTIVE:
            raise Refused(f"{_MOST_ACTIVE} faults last already. End one first.")
        with self._audited(fault, name, target):
            said, lasting = self._begin[name](target)
        if lasting is not None:
            now = time.time()
            self._begun[name, target] = _Begun(Active(name, target, now, now + fault.limit_seconds, said), lasting)
        return said

    def undo(self, name: str, target: str) -> str:
        """End a fault; see `channel.Breaking`."""
        fault = _known(name)
        target = self._target(fault, target)
        begun = self._begun.get((name, target))
        if begun is None:
            raise Refused(f"{fault.title}: there is nothing to end. It is over, or was never done.")
        return self._end(begun, "a person ended it")

    def look(self) -> None:
        """End what has lasted long enough, and forget what has ended by itself."""
        now = time.time()
        for begun in [*self._begun.values()]:
            why = begun.lasting.over() or ("its time is over" if now > begun.active.until else None)
            if why is not None:
                self._end_quietly(begun, why)

    def end_all(self) -> None:
        """End every fault, the newest first, and give the store back."""
        for begun in reversed([*self._begun.values()]):
            self._end_quietly(begun, "the demo ends")
        self._engine.dispose()

    # ---------------------------------------------------------------------------------------------------- the faults

    def _kill(self, target: str) -> tuple[str, None]:
        driver = find_driver(self._engine, *_driver(target))
        number = signal_session(driver, signal.SIGKILL)
        return f"Killed the driver of {target}: process {driver.pid} and {number - 1} that it started.", None

    def _freeze(self, target: str) -> tuple[str, _Lasting]:
        driver = find_driver(self._engine, *_driver(target))
        for _ in range(_FREEZE_TRIES):
            number = signal_session(driver, signal.SIGSTOP)
            if _store_is_free(self._paths.control_db):
                return f"Froze the driver of {target}: {number} processes stand still.", _Frozen(driver, target)
            signal_session(driver, signal.SIGCONT)  # it held the store's lock, and would freeze everybody
        raise Refused(f"The driver of {target} writes to the control store all the time. Try again.")

    def _crash(self, target: str) -> tuple[str, _Lasting]:
        crash = _CrashLoop(self._engine, target)
        crash.kill()
        return f"Each driver of {target} is killed as soon as it drives.", crash

    def _starve(self, target: str) -> tuple[str, _Lasting]:
        driver = find_driver(self._engine, *_driver(target))
        return f"The driver of {target} runs for a tenth of each second.", _Starved(driver, target)

    def _fill_disk(self, target: str) -> tuple[str, _Lasting]:
        disk = _FullDisk(self._engine, target)
        number = disk.fill()
        return f"No file can be written by the workers of {target}: {number} now, and each further one.", disk

    def _silence(self, _target: str) -> tuple[str, _Lasting]:
        self._world.source.stop()
        return "Stopped the simulator: no event arrives.", _Silence(self._world.source)

    def _poison(self, target: str) -> tuple[str, _Lasting]:
        game, schema = self._game(target)
        sent = batches(game, schema.schema_id, garbage, _BATCH, "malformed_payload")
        said = f"{shown(game)} gets {faults.POISON_PER_SECOND} malformed rows a second."
        return said, _Feed(self._world.send, sent, f"{shown(game)} gets no malformed rows any more.")

    def _fill_quarantine(self, target: str) -> tuple[str, None]:
        game, schema = self._game(target)
        rows = faults.QUARANTINE_ROWS
        burst = next(batches(game, schema.schema_id, garbage, rows, "malformed_payload"))
        failed = self._world.send(iter([burst]), None, rows, threading.Event())
        if failed:
            raise Transient(f"The broker did not confirm {failed} of {rows} rows. Try again.")
        return f"Sent {rows} malformed rows of {shown(game)}.", None

    def _deploy_schema(self, target: str) -> tuple[str, _Lasting]:
        game, schema = self._game(target)
        registration, conflict, change = self._breaking_release(game, schema.format)
        self._have_refused(registration)
        kept = replace(registration, policies=Policies((("incompatible", "quarantine"),)))
        done = proposals.register(self._settings, self._engine, kept, current_user(), _RELEASE)
        if isinstance(done, SchemaRequest):
            raise Refused("By the setting schemas.second_person this release waits for another person. Turn it off.")
        sent = batches(game, done.schema_id, conflict.payload, _BATCH, "quarantined_schema")
        said = f"{shown(game)} sends version {done.version}, which turnout refused first: {change}"
        return said, _Feed(self._world.send, sent, f"{shown(game)} sends its older versions alone again.")

    def _have_refused(self, registration: Registration) -> None:
        """Have the release's schema refused, as the audit log then says."""
        try:
            proposals.register(self._settings, self._engine, registration, current_user(), _RELEASE)
        except Refused:
            return
        raise Refused(f"turnout took the schema of {shown(registration.game)}: it breaks nothing.")

    def _breaking_release(self, game: str, format_name: str) -> tuple[Registration, Conflict, str]:
        """Return a schema of the game that turnout refuses by its default policies, and the change that it refuses."""
        for conflict in conflicts(format_name, family(game), self._world.versions):
            registration = Registration(game, conflict.message, conflict.definition, format=format_name)
            plan = proposals.propose(self._settings, self._engine, registration).plan
            if plan.new and plan.refused:
                return registration, conflict, str(plan.refused[0])
        raise Refused(f"{shown(game)} has had every breaking release that the demo knows. Choose another game.")

    # ------------------------------------------------------------------------------------------------------- targets

    def _target(self, fault: Fault, target: str) -> str:
        """Return a target as faults keep it: a game's key, a group's name, `ingest`, or nothing for the source.

        Raises:
            Refused: there is no such one.
        """
        if fault.target == "source":
            if target:
                raise Refused(f"{fault.title} takes no target: a demo has one source.")
            return ""
        if fault.target == "game":
            return str(find(target, {str(key): name for key, name in known_games(self._engine).items()}).key)
        known = [*sorted(read_groups(self._engine)), *(["ingest"] if fault.target == "driver" else [])]
        if target not in known:
            raise Refused(f"{fault.title} takes one of: {', '.join(map(shown, known))}.")
        return target

    def _game(self, key: str) -> tuple[str, SchemaVersion]:
        """Return a game's name and its first schema, which every demo's game can send.

        Raises:
            Refused: it has no schema yet.
        """
        registered = read_schemas(self._engine, key)
        if not registered:
            raise Refused("The game has no schema yet. Wait until the page Schemas lists one.")
        return registered[0].game, registered[0]

    # --------------------------------------------------------------------------------------------------------- endings

    def _end(self, begun: _Begun, why: str) -> str:
        """End a fault; it is forgotten whatever comes of it, and what it did is in the audit log."""
        active, fault = begun.active, FAULTS[begun.active.fault]
        del self._begun[active.fault, active.target]
        with self._audited(fault, f"end {active.fault}", active.target, why):
            return begun.lasting.end()

    def _end_quietly(self, begun: _Begun, why: str) -> None:
        try:
            _log.info("break it: %s (%s)", self._end(begun, why), why)
        except Exception:  # noqa: BLE001 - the others must end, too
            _log.exception("break it: %s did not end in order", begun.active.fault)

    def _audited(self, fault: Fault, what: str, target: str, why: str = "break it") -> AbstractContextManager[None]:
        kind = "group" if fault.target == "driver" else fault.target
        targets = (f"{kind}:{target}" if target else kind,)
        act = Act(current_user(), f"break it: {what}", targets, None, {"reason": why})
        return gate.acting(self._settings, self._engine, DirectAct.BREAK_IT, act)


@dataclass(frozen=True, slots=True)
class _Frozen:
    """A driver that stands still."""

    driver: Process
    target: str

    def end(self) -> str:
        signal_session(self.driver, signal.SIGCONT)  # also what outlived a driver that was killed meanwhile
        return f"The driver of {self.target} goes on."

    def over(self) -> str | None:
        return "the driver was killed meanwhile" if self.driver.is_dead() else None


@dataclass(frozen=True, slots=True)
class _CrashLoop:
    """A group whose drivers die, one after another."""

    engine: Engine
    group: str

    def kill(self) -> None:
        signal_session(find_driver(self.engine, "group", self.group), signal.SIGKILL)

    def end(self) -> str:
        return f"The next driver of {self.group} lives: the controller starts it after its pause."

    def over(self) -> None:
        with suppress(Refused):  # there is none yet
            self.kill()


@dataclass(slots=True)
class _Starved:
    """A driver that a thread stops again and again; a lock that it holds is held a second longer at most."""

    driver: Process
    target: str
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="break it: starve", daemon=True)
        self._thread.start()

    def end(self) -> str:
        self._stop.set()
        self._thread.join()
        return f"The driver of {self.target} has the whole machine again."

    def over(self) -> str | None:
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
class _FullDisk:
    """A group whose workers can write no file."""

    engine: Engine
    group: str

    def fill(self) -> int:
        return limit_files(find_driver(self.engine, "group", self.group), 0)

    def end(self) -> str:
        with suppress(Refused):  # it has ended, and the next one has no limit
            limit_files(find_driver(self.engine, "group", self.group), None)
        return f"The workers of {self.group} can write again."

    def over(self) -> None:
        with suppress(Refused):
            self.fill()  # those that were started meanwhile, too


@dataclass(frozen=True, slots=True)
class _Silence:
    """A source without producers."""

    source: Source

    def end(self) -> str:
        self.source.start()
        return "The simulator sends again."

    def over(self) -> None:
        return None


@dataclass(slots=True)
class _Feed:
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
        self._stop.set()
        self._thread.join(_END_SECONDS)
        return self.said

    def over(self) -> str | None:
        return self._failed

    def _run(self) -> None:
        try:
            self.send(self.rows, faults.POISON_PER_SECOND, None, self._stop)
        except (Refused, Transient) as error:
            self._failed = first_line(error)
        except Exception as error:  # noqa: BLE001 - it ends this fault, and the terminal has it
            _log.exception("break it: rows are not sent any more")
            self._failed = first_line(error)


def _known(name: str) -> Fault:
    if name not in FAULTS:
        raise Refused(f"There is no fault {shown(name)}: choose {', '.join(FAULTS)}.")
    return FAULTS[name]


def _driver(target: str) -> tuple[str, str]:
    return ("ingest", "main") if target == "ingest" else ("group", target)


def _store_is_free(file: Path) -> bool:
    """Tell whether others can write to the control store while a driver stands still."""
    try:
        with closing(sqlite3.connect(file, timeout=_LOCK_SECONDS, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    return True
