"""Needs that a driver's tasks reported, in memory until the thread of their registry writes them to the store."""

import math
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from sqlalchemy import Engine

from pipeline.base.names import GameKey
from pipeline.store.schema_needs import OpenNeed, write_needs

_MOST: Final = 10_000  # needs in memory; further ones are reported again by the rows that wait


class Need(NamedTuple):
    """A writer whose schema a game lacks."""

    game_key: GameKey
    game: str
    registry: str  # the generation of a registry
    writer: bytes  # as on the wire, with its index path where it has one
    seq: int  # of the first row that needs it,
    pos: int  # and its place there

    @property
    def own(self) -> "_Own":
        """The same for all rows that need it."""
        return self.registry, self.writer, self.game_key


_Own: TypeAlias = tuple[str, bytes, GameKey]


class Notes:
    """What was reported; any thread may call it."""

    def __init__(self, engine: Engine, steady: Callable[[], float], idle: float) -> None:
        """Write to this store, and each need once in `idle` seconds; `steady` gives seconds that no one sets back."""
        self._engine, self._steady, self._idle = engine, steady, idle
        self._noted: dict[_Own, tuple[Need, bool]] = {}  # the one of the first row, and whether it asks again
        self._written: dict[_Own, float] = {}  # when it was last written
        self._lock = threading.Lock()

    def add(self, need: Need, *, again: bool) -> bool:
        """Keep a need; return False where it was written a moment ago, or there is no room. Never waits."""
        with self._lock:
            if not again and self._steady() - self._written.get(need.own, -math.inf) < self._idle:
                return False
            if need.own not in self._noted and len(self._noted) >= _MOST:
                return False
            before, asks = self._noted.get(need.own, (need, False))
            self._noted[need.own] = min(before, need, key=lambda each: (each.seq, each.pos)), again or asks
            return True

    def write(self, now: float) -> None:
        """Write what was noted, of all registries, as the first row of a game may wait for any; `now` in Unix seconds.

        Where the control store does not answer, its error is raised and what was noted stays so.
        """
        with self._lock:
            noted = dict(self._noted)
        if not noted:
            return
        needs = (
            OpenNeed(need.registry, need.writer, need.game_key, need.game, now, need.seq, need.pos, again=again)
            for need, again in noted.values()
        )
        write_needs(self._engine, needs)
        with self._lock:
            for own, each in noted.items():
                if self._noted.get(own) == each:
                    del self._noted[own]
            at = self._steady()
            self._written = {own: then for own, then in self._written.items() if at - then < self._idle}
            self._written.update(dict.fromkeys(noted, at))
