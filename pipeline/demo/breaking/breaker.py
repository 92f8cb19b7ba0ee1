"""Does the faults of a running demo and ends them; each is in the audit log as the act of the demo's user."""

import logging
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from listeners.process_kinds import GROUP, INGEST, ONLY
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused, Transient
from pipeline.base.names import shown
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.registering import proposals
from pipeline.control.registering.requests import SchemaRequest
from pipeline.data.books import ledger
from pipeline.data.books.days import MICROS, label, newest_revisions
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registrations import Registered, Registration
from pipeline.data.output_contracts.rules import REASON
from pipeline.demo import promise
from pipeline.demo.breaking import faults
from pipeline.demo.breaking.channel import Active
from pipeline.demo.breaking.faults import FAULTS, Fault
from pipeline.demo.breaking.lasting import (
    CrashLoop,
    Feed,
    Frozen,
    FullDisk,
    Lasting,
    LockedStore,
    Sending,
    SimulatorSwitch,
    SourceSilence,
    Starved,
)
from pipeline.demo.breaking.rows import batches, garbage
from pipeline.demo.breaking.sessions import find_driver, signal_session
from pipeline.demo.samples.conflicts import ConflictingSchema, conflicts
from pipeline.demo.simulator import GOOD, Event, family
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store import audit
from pipeline.store.audit import Act
from pipeline.store.database.engine import open_store
from pipeline.store.games import find, known_games
from pipeline.store.groups import read_groups
from pipeline.store.schema_versions import SchemaVersion, read_schemas

_log = logging.getLogger("turnout")
_MOST_ACTIVE: Final = 8
_BATCH: Final = faults.POISON_PER_SECOND // 2  # events
_FREEZE_TRIES: Final = 20
_LOCK_SECONDS: Final = 1.0
_RELEASE: Final = "break it: a careless release"  # the reason of its registrations


@dataclass(frozen=True, slots=True)
class World:
    """What a demo lends to its faults."""

    paths: Paths
    source: SimulatorSwitch
    send: Sending
    versions: int  # schema versions per game


@dataclass(frozen=True, slots=True)
class _Begun:
    active: Active
    lasting: Lasting


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
            "lock": self._lock_store,
            "silence": self._silence,
            "poison": self._poison,
            "quarantine": self._fill_quarantine,
            "schema": self._deploy_schema,
            "contract": self._break_contract,
            "late": self._send_late,
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
        act = _act(fault, name, target, "break it")
        with gate.acting(self._settings, self._engine, DirectAct.BREAK_IT, act):
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
        gate.permit(self._settings, self._engine, current_user(), DirectAct.BREAK_IT)
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

    def _freeze(self, target: str) -> tuple[str, Lasting]:
        driver = find_driver(self._engine, *_driver(target))
        for _ in range(_FREEZE_TRIES):
            number = signal_session(driver, signal.SIGSTOP)
            if _store_is_free(self._paths.control_db):
                return f"Froze the driver of {target}: {number} processes stand still.", Frozen(driver, target)
            signal_session(driver, signal.SIGCONT)  # it held the store's lock, and would freeze everybody
        raise Refused(f"The driver of {target} writes to the control store all the time. Try again.")

    def _crash(self, target: str) -> tuple[str, Lasting]:
        crash = CrashLoop(self._engine, target)
        crash.kill()
        return f"Each driver of {target} is killed as soon as it drives.", crash

    def _starve(self, target: str) -> tuple[str, Lasting]:
        driver = find_driver(self._engine, *_driver(target))
        return f"The driver of {target} runs for a tenth of each second.", Starved(driver, target)

    def _fill_disk(self, target: str) -> tuple[str, Lasting]:
        disk = FullDisk(self._engine, target)
        number = disk.fill()
        return f"No file can be written by the workers of {target}: {number} now, and each further one.", disk

    def _lock_store(self, _target: str) -> tuple[str, Lasting]:
        return "No process can write to the control store, within a second.", LockedStore(self._paths.control_db)

    def _silence(self, _target: str) -> tuple[str, Lasting]:
        self._world.source.stop()
        return "Stopped the simulator: no event arrives.", SourceSilence(self._world.source)

    def _poison(self, target: str) -> tuple[str, Lasting]:
        game, schema = self._game(target)
        sent = batches(game, schema.schema_id, garbage, _BATCH, "malformed_payload")
        said = f"{shown(game)} gets {faults.POISON_PER_SECOND} malformed rows a second."
        return said, Feed(self._world.send, sent, f"{shown(game)} gets no malformed rows any more.")

    def _fill_quarantine(self, target: str) -> tuple[str, None]:
        game, schema = self._game(target)
        rows = faults.QUARANTINE_ROWS
        self._send(batches(game, schema.schema_id, garbage, rows, "malformed_payload"), rows)
        return f"Sent {rows} malformed rows of {shown(game)}.", None

    def _deploy_schema(self, target: str) -> tuple[str, Lasting]:
        game, schema = self._game(target)
        registration, conflict, change = self._breaking_release(game, schema.format)
        self._have_refused(registration)
        kept = replace(registration, policies=Policies((("incompatible", "quarantine"),)))
        done = self._register(kept)
        if isinstance(done, SchemaRequest):
            raise Refused("By the setting schemas.second_person this release waits for another person. Turn it off.")
        sent = batches(game, done.schema_id, conflict.payload, _BATCH, "quarantined_schema")
        said = f"{shown(game)} sends version {done.version}, which turnout refused first: {change}"
        return said, Feed(self._world.send, sent, f"{shown(game)} sends its older versions alone again.")

    def _break_contract(self, target: str) -> tuple[str, Lasting]:
        game, schema = self._game(target)
        payload = promise.payloads(schema.format, game, breaking=True)
        sent = batches(game, schema.schema_id, payload, _BATCH, REASON)
        said = f"{shown(game)} gets {faults.POISON_PER_SECOND} rows a second that break its output contract."
        return said, Feed(self._world.send, sent, f"{shown(game)} gets no rows that break its contract any more.")

    def _send_late(self, target: str) -> tuple[str, None]:
        game, schema = self._game(target)
        closed = newest_revisions(ledger.read(self._paths.books, target))
        if not closed:
            raise Refused(f"No day of {shown(game)} is closed yet: the page Books shows when one is.")
        last = closed[max(closed)]
        moment = last.day / MICROS + last.day_seconds / 2
        rows, payload = faults.LATE_ROWS, promise.payloads(schema.format, game, breaking=False)
        self._send(batches(game, schema.schema_id, payload, rows, GOOD, lambda: moment), rows)
        return (
            f"Sent {rows} rows of {shown(game)} for the day {label(last.day, last.day_seconds)}, which is closed.",
            None,
        )

    def _send(self, sent: Iterator[list[Event]], rows: int) -> None:
        """Send the first rows at once.

        Raises:
            Transient: the broker did not confirm all of them.
        """
        failed = self._world.send(iter([next(sent)]), None, rows, threading.Event())
        if failed:
            raise Transient(f"The broker did not confirm {failed} of {rows} rows. Try again.")

    def _register(self, registration: Registration) -> Registered | SchemaRequest:
        bronze = self._paths.bronze
        return proposals.register(self._settings, self._engine, bronze, registration, current_user(), _RELEASE)

    def _have_refused(self, registration: Registration) -> None:
        """Have the release's schema refused, as the audit log then says."""
        try:
            self._register(registration)
        except Refused:
            return
        raise Refused(f"turnout took the schema of {shown(registration.game)}: it breaks nothing.")

    def _breaking_release(self, game: str, format_name: str) -> tuple[Registration, ConflictingSchema, str]:
        """Return a schema of the game that turnout refuses by its default policies, and the change that it refuses."""
        for conflict in conflicts(format_name, family(game), self._world.versions):
            registration = Registration(game, conflict.message, conflict.definition, format=format_name)
            plan = proposals.propose(self._settings, self._engine, self._paths.bronze, registration).plan
            if plan.new and plan.refused:
                return registration, conflict, str(plan.refused[0])
        raise Refused(f"{shown(game)} has had every breaking release that the demo knows. Choose another game.")

    # ------------------------------------------------------------------------------------------------------- targets

    def _target(self, fault: Fault, target: str) -> str:
        """Return a target as faults keep it: a game's key, a group's name, `ingest`, or nothing where it has no name.

        Raises:
            Refused: there is no such one.
        """
        if not fault.is_named:
            if target:
                raise Refused(f"{fault.title} takes no target: a demo has one {fault.target}.")
            return ""
        if fault.is_of_a_game:
            if not target:
                raise Refused(f"{fault.title} takes a game, by name or key: `turnout games list` has them.")
            key = find(target, {str(key): name for key, name in known_games(self._engine).items()}).key
            if fault.target == "promised" and key not in (known := promise.promised(self._engine)):
                which = f"choose {', '.join(map(shown, known.values()))}" if known else "wait about a minute"
                raise Refused(f"{fault.title} takes a game with the demo's output contract: {which}.")
            return str(key)
        drivers = [*sorted(read_groups(self._engine)), *([INGEST] if fault.target == "driver" else [])]
        if target not in drivers:
            raise Refused(f"{fault.title} takes one of: {', '.join(map(shown, drivers))}.")
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
        """End a fault first, as nothing may keep it from ending; then write that into the audit log."""
        active, fault = begun.active, FAULTS[begun.active.fault]
        del self._begun[active.fault, active.target]
        said = begun.lasting.end()
        with audit.acting(self._engine, _act(fault, f"end {active.fault}", active.target, why)):
            return said

    def _end_quietly(self, begun: _Begun, why: str) -> None:
        try:
            _log.info("break it: %s (%s)", self._end(begun, why), why)
        except Exception:  # noqa: BLE001 - the others must end, too
            _log.exception("break it: %s did not end in order", begun.active.fault)


def _act(fault: Fault, what: str, target: str, why: str) -> Act:
    kind = "group" if fault.target == "driver" else "game" if fault.is_of_a_game else fault.target
    targets = (f"{kind}:{target}" if target else kind,)
    return Act(current_user(), f"break it: {what}", targets, None, {"reason": why})


def _known(name: str) -> Fault:
    if name not in FAULTS:
        raise Refused(f"There is no fault {shown(name)}: choose {', '.join(FAULTS)}.")
    return FAULTS[name]


def _driver(target: str) -> tuple[str, str]:
    return (INGEST, ONLY) if target == INGEST else (GROUP, target)


def _store_is_free(file: Path) -> bool:
    """Return whether others can write to the control store while a driver stands still."""
    try:
        with closing(sqlite3.connect(file, timeout=_LOCK_SECONDS, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    return True
