"""Answers what games with undeclared documents wait for, in a thread of a driver: registers the shapes of documents.

What cannot be registered now decides nothing (law L14): its game waits, and it is tried again.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sqlalchemy import Engine, select

from pipeline.base.errors import Conflict, Refused, Transient, first_line
from pipeline.base.names import GameKey, shown
from pipeline.base.texts import in_utc
from pipeline.data.contracts.formats.json.caps import USUAL, Caps
from pipeline.data.contracts.registries.notes import Need, Notes
from pipeline.data.contracts.shape_needs import SHAPES
from pipeline.data.variations.registering import Registrar
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.storage.location import Location
from pipeline.store.database.engine import STORE_AWAY
from pipeline.store.database.tables import games
from pipeline.store.games import Game
from pipeline.store.processes.leases import store_time
from pipeline.store.schema_needs import OpenNeed, first_elsewhere, read_needs
from pipeline.store.variations import note_rows

_log: Final = logging.getLogger("turnout")
_IDLE_SECONDS: Final = 3.0  # between two looks for what other processes wrote: a replay of a new game's rows waits
_NOTED_SECONDS: Final = 30.0  # between two writes of one need
_RETRY_SECONDS: Final = 5.0  # after a failure; doubled up to
_MOST_SECONDS: Final = 60.0
_MOST_COUNTED: Final = 10_000  # schemas of games whose rows are counted at once
_FAILS: Final = (Refused, Transient, Conflict, DeltaError, OSError)


class ShapeResolution:
    """Registers shapes of documents as games need them. One thread may run it; `note` and `wake` are any thread's."""

    def __init__(
        self,
        engine: Engine,
        bronze: Location,
        environment: str,
        caps: Caps = USUAL,
        clock: Callable[[], float] | None = None,
        *,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Register nothing yet.

        Args:
            engine: the control store.
            bronze: whose documents are read, and beside which ids are taken.
            environment: whose bronze it is.
            caps: those with which event types begin.
            clock: Unix seconds; None: by the store's clock.
            steady: seconds by a clock that nobody sets back.
        """
        self._engine, self._steady = engine, steady
        self._clock = clock or (lambda: store_time(engine))
        self._registrar = Registrar(engine, bronze, environment, caps)
        self._notes = Notes(engine, steady, _NOTED_SECONDS)
        self._failures: dict[GameKey, int] = {}  # in a row
        self._retry_at: dict[GameKey, float] = {}  # by the steady clock
        self._troubles: dict[GameKey, str] = {}
        self._landed: Counter[tuple[str, int]] = Counter()  # rows that are not in the store's statistics yet
        self._lock = threading.Lock()
        self._wake = threading.Event()

    def note(self, needs: Iterable[Need], *, again: bool = False) -> None:
        """Take needs of games that are onboarded, and wake the thread; never waits. Others than of shapes are left."""
        noted = [self._notes.add(need, again=again) for need in needs if need.registry == SHAPES]
        if any(noted):
            self._wake.set()

    def count(self, key: str, rows: Mapping[int, int]) -> None:
        """Take rows that landed, by the id of their schema; never waits. Some may be lost: nothing depends on them."""
        with self._lock:
            for schema_id, number in rows.items():
                if (key, schema_id) in self._landed or len(self._landed) < _MOST_COUNTED:
                    self._landed[key, schema_id] += number

    def start(self, stop: threading.Event) -> None:
        """Start the thread; it ends after `stop` is set and `wake` was called."""
        threading.Thread(target=self._run, args=(stop,), name=SHAPES, daemon=True).start()

    def wake(self) -> None:
        """Wake the thread, such as when it should end."""
        self._wake.set()

    def step(self) -> float:
        """Do what is due; return after how many seconds to come back, infinite without any need.

        Raises:
            STORE_AWAY: the control store does not answer; what was noted stays so.
        """
        now, steady = self._clock(), self._steady()
        self._notes.write(now)
        self._write_counts(now)
        needs, elsewhere = self._read()
        for key in [each for each in self._retry_at if each not in needs]:
            self._forget(key)
        rests = [math.inf]
        for key, own in needs.items():
            if (rest := self._retry_at.get(key, steady) - steady) > 0:
                rests.append(rest)
                continue
            try:
                served = self._registrar.serve(Game(key, own[0].game), own, now, steady, elsewhere.get(key))
            except STORE_AWAY:
                raise
            except Exception as error:  # noqa: BLE001 - law L6: what one game meets, no other one waits for
                rests.append(self._failed(key, own[0].game, error, now))
                continue
            self._forget(key)
            if served is not None:
                rests.append(served)
        self._registrar.rest()
        return min(rests)

    def troubles(self) -> Mapping[str, str]:
        """Return what is wrong, as a clause after "which", under the name that needs of shapes have; empty: nothing."""
        found = list(self._troubles.values())
        return {SHAPES: found[0]} if found else {}

    def _write_counts(self, now: float) -> None:
        with self._lock:
            landed, self._landed = self._landed, Counter()
        if landed:
            note_rows(self._engine, landed, now)

    def _read(self) -> tuple[dict[GameKey, list[OpenNeed]], dict[GameKey, tuple[int, int]]]:
        """Return the needs of games that a group may carry, and what waits for other registries before them."""
        found: dict[GameKey, list[OpenNeed]] = {}
        with self._engine.connect() as connection:
            for need in read_needs(connection, SHAPES):
                found.setdefault(need.game_key, []).append(need)
            if not found:
                return {}, {}
            known = select(games.c.game_key).where(games.c.retired_at.is_(None))
            carried = set(connection.scalars(known))
            found = {key: own for key, own in found.items() if key in carried}
            return found, first_elsewhere(connection, SHAPES, found)

    def _failed(self, key: GameKey, game: str, error: Exception, now: float) -> float:
        times = self._failures[key] = self._failures.get(key, 0) + 1
        rest = min(_MOST_SECONDS, _RETRY_SECONDS * 2.0 ** min(times - 1, 10))
        self._retry_at[key] = self._steady() + rest
        said = first_line(error).rstrip(".")
        if times == 1:
            unforeseen = None if isinstance(error, _FAILS) else error
            _log.warning("%s: shapes of documents are not registered: %s", key, said, exc_info=unforeseen)
            since = in_utc(now, "%Y-%m-%d %H:%M UTC")
            self._troubles[key] = f"cannot be registered for {shown(game)} since {since} ({said})"
        return rest

    def _forget(self, key: GameKey) -> None:
        self._failures.pop(key, None)
        self._retry_at.pop(key, None)
        self._troubles.pop(key, None)

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wake.clear()
            try:
                rest = self.step()
            except STORE_AWAY as error:
                _log.warning("shapes of documents: the control store does not answer: %s", first_line(error))
                rest = _RETRY_SECONDS
            except Exception:  # noqa: BLE001 - the edge of a thread: games with undeclared documents wait, all else goes on
                _log.exception("shapes of documents: registering failed")
                rest = _MOST_SECONDS
            if not stop.is_set():
                self._wake.wait(min(rest, _IDLE_SECONDS))
