"""Asks registries of others for the schemas that a driver's streams wait for; the asking itself is in threads.

A task never asks (law L13): it reports needs, and a stream that waits is here until a schema set has the answer.
"""

import math
import threading
from collections.abc import Collection

from sqlalchemy import Engine

from pipeline.base.texts import in_utc
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.data.streams.stream import Stream
from pipeline.store.schema_needs import RegistryHealth, read_states


class Lookup:
    """The registries as one driver asks them."""

    def __init__(self, engine: Engine, resolution: Resolution | None) -> None:
        """Ask by this resolution; without one nobody asks, and another driver may."""
        self._engine, self._resolution = engine, resolution
        self._stop = threading.Event()

    def start(self) -> None:
        """Start the threads."""
        if self._resolution is not None:
            self._resolution.start(self._stop)

    def stop(self) -> None:
        """Let the threads end after the question that each is asking; questions have bounds."""
        self._stop.set()
        if self._resolution is not None:
            self._resolution.wake()

    def want(self, streams: Collection[Stream]) -> None:
        """Ask for what these streams wait for; never waits itself."""
        if self._resolution is not None:
            self._resolution.note(
                Need(stream.game_key, stream.game, need.registry, need.writer, need.seq, need.pos)
                for stream in streams
                if (waits := stream.waits) is not None
                for need in waits.needs
                if need.registry is not None
            )

    def note(self, needs: Collection[Need]) -> None:
        """Ask for these needs; never waits itself."""
        if self._resolution is not None:
            self._resolution.note(needs)

    def ask_once(self) -> float:
        """Ask now, in this thread, for a driver that runs once and has no threads; return when to ask again.

        In seconds from now; infinite where nobody asks.
        """
        return math.inf if self._resolution is None else self._resolution.step()

    def troubles(self) -> dict[str, str]:
        """Return what is wrong with registries, by generation, as a clause: "does not answer since …"."""
        states: dict[str, RegistryHealth] = {}
        unknown = tolerate_store_outage("why a registry gives no schema is not known")
        with unknown, self._engine.connect() as connection:
            states = read_states(connection)
        return {name: _clause(each) for name, each in states.items() if each.state != "ok"}


def _clause(health: RegistryHealth) -> str:
    what = "does not answer" if health.state == "away" else "is not trusted"
    detail = "" if health.detail is None else f" ({health.detail.rstrip('.')})"
    return f"{what} since {in_utc(health.since, '%Y-%m-%d %H:%M UTC')}{detail}"
