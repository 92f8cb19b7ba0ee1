"""Asks registries for the schemas that a driver's streams wait for, and has shapes registered; both in threads.

A task never asks (law L13): it reports needs, and a stream that waits is here until a schema set has the answer.
"""

import math
import threading
from collections.abc import Collection, Mapping

from sqlalchemy import Engine

from pipeline.base.texts import in_utc
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.shape_needs import SHAPES, writer_of
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.data.streams.stream import Stream
from pipeline.data.variations.resolution import ShapeResolution
from pipeline.store.schema_needs import RegistryHealth, read_states


class Lookup:
    """The registries as one driver asks them."""

    def __init__(self, engine: Engine, resolution: Resolution | None, shapes: ShapeResolution | None = None) -> None:
        """Ask by this resolution, and register shapes of documents by the other; without one another driver may."""
        self._engine, self._resolution, self._shapes = engine, resolution, shapes
        self._stop = threading.Event()

    def start(self) -> None:
        """Start the threads."""
        for each in self._askers():
            each.start(self._stop)

    def stop(self) -> None:
        """Let the threads end after the question that each is asking; questions have bounds."""
        self._stop.set()
        for each in self._askers():
            each.wake()

    def _askers(self) -> list[Resolution | ShapeResolution]:
        return [each for each in (self._resolution, self._shapes) if each is not None]

    def want(self, streams: Collection[Stream]) -> None:
        """Ask for what these streams wait for; never waits itself.

        For a stream whose table has other columns merged than its rows, that is a look at what is kept beside bronze:
        the control store may be an older copy.
        """
        needs = [
            Need(stream.game_key, stream.game, need.registry, need.writer, need.seq, need.pos)
            for stream in streams
            if (waits := stream.waits) is not None
            for need in waits.needs
            if need.registry is not None
        ]
        lost = ((each, name) for each in streams for name in each.other_columns)
        self.note(
            [*needs, *(Need(of.game_key, of.game, SHAPES, writer_of(name, 0), of.cursor, 0) for of, name in lost)]
        )

    def note(self, needs: Collection[Need]) -> None:
        """Ask for these needs; never waits itself."""
        if self._resolution is not None:
            self._resolution.note([need for need in needs if need.registry != SHAPES])
        if self._shapes is not None:
            self._shapes.note(needs)

    def count(self, key: str, rows: Mapping[int, int]) -> None:
        """Take the rows of a game that landed, by the id of their schema that nobody declared; never waits."""
        if self._shapes is not None:
            self._shapes.count(key, rows)

    def ask_once(self) -> float:
        """Ask now, in this thread, for a driver that runs once and has no threads; return when to ask again.

        In seconds from now; infinite where nobody asks.
        """
        return min([math.inf, *(each.step() for each in self._askers())])

    def troubles(self) -> dict[str, str]:
        """Return what is wrong, by registry, as a clause: "does not answer since …"; also with shapes of documents."""
        states: dict[str, RegistryHealth] = {}
        unknown = tolerate_store_outage("why a registry gives no schema is not known")
        with unknown, self._engine.connect() as connection:
            states = read_states(connection)
        registering = {} if self._shapes is None else self._shapes.troubles()
        return {**{name: _clause(each) for name, each in states.items() if each.state != "ok"}, **registering}


def _clause(health: RegistryHealth) -> str:
    what = "does not answer" if health.state == "away" else "is not trusted"
    detail = "" if health.detail is None else f" ({health.detail.rstrip('.')})"
    return f"{what} since {in_utc(health.since, '%Y-%m-%d %H:%M UTC')}{detail}"
